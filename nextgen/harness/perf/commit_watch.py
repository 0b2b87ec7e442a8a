"""Commits of one shard, seen from the public port by a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.load.process import LoadProcess
from nextgen.harness.perf.bench import Bench
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.background import cancel_and_wait
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

LANES = 4
NAMES = 200_000
"""Candidates per watch; those whose slot the shard has are created."""

RECOVERED_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True)
class Created:
    """One create, on the machine's monotonic clock."""

    sent_at: float
    acknowledged_at: float

    @property
    def took_ms(self) -> float:
        return (self.acknowledged_at - self.sent_at) * 1000


class CommitWatch:
    """The probe's reports so far. Made by ``watched``."""

    def __init__(self, shard_id: int, spare_names: list[str]) -> None:
        self.shard_id = shard_id
        self.created: list[Created] = []
        self._spare_names = spare_names
        self._heard = asyncio.Event()

    def spare_name(self) -> str:
        """Return an unused name of a topic of this shard, for the caller alone."""
        return self._spare_names.pop()

    def hear(self, message: dict[str, Any]) -> None:
        if "sent_at" in message:
            self.created.append(Created(message["sent_at"], message["acknowledged_at"]))
            self._heard.set()

    async def wait_sent_after(self, moment: float) -> Created:
        """Return the first acknowledged create that was sent after ``moment``.

        A create that was sent before it may also have been committed before it.

        Raises:
            CheckFailed: There was none for ``RECOVERED_TIMEOUT_MS``.
        """
        try:
            async with timeout(RECOVERED_TIMEOUT_MS / 1000):
                while True:
                    later = [one for one in self.created if one.sent_at > moment]
                    if later:
                        return min(later, key=lambda one: one.acknowledged_at)
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise CheckFailed(
                f"shard {self.shard_id} had no commit for {RECOVERED_TIMEOUT_MS} ms"
            ) from None

    async def commit_for(self, seconds: float) -> None:
        """Wait while the shard commits, for at least this time."""
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        await self.wait_sent_after(begin)

    def longest_gap_ms(self, begin: float, end: float) -> float:
        """Return the longest time between two acknowledgements, or between one and either end of
        the interval."""
        times = sorted(one.acknowledged_at for one in self.created)
        inside = [begin, *(at for at in times if begin < at < end), end]
        return max((later - earlier) * 1000 for earlier, later in itertools.pairwise(inside))

    def slowest_ms(self, begin: float, end: float) -> float:
        """Return the duration of the slowest create that was in flight in this time."""
        took = [
            one.took_ms for one in self.created if one.acknowledged_at > begin and one.sent_at < end
        ]
        return max(took, default=0.0)


@asynccontextmanager
async def watched(bench: Bench, shard_id: int) -> AsyncIterator[tuple[CommitWatch, dict[str, Any]]]:
    """Create topics in the shard, one after the other in each lane, while the block runs.

    The second value is filled with the probe's own counts at the end: ``refused``,
    ``failed_attempts`` and why the first of them failed.
    """
    names = await _names_in_shard(bench, shard_id)
    watch = CommitWatch(shard_id, names[-100:])
    job = {
        "kind": "commit_probe",
        "targets": list(bench.targets),
        "names": names[:-100],
        "lanes": LANES,
    }
    summary: dict[str, Any] = {}
    probe = await LoadProcess.start(job)
    listening = asyncio.create_task(probe.result(watch.hear))
    try:
        yield watch, summary
        await probe.request_stop()
        summary.update(await listening)
    finally:
        await cancel_and_wait(listening)
        await probe.stop()


async def cluster_of(bench: Bench) -> Any:
    """Return the cluster as a discovery node knows it."""
    async with DiscoveryClient(bench.targets) as client:
        return await client.call("GetCluster", GetClusterRequest())


async def _names_in_shard(bench: Bench, shard_id: int) -> list[str]:
    cluster = await cluster_of(bench)
    table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
    stem = f"failover-{time.monotonic_ns():x}"
    candidates = bench.topics(stem, NAMES).names()
    return [n for n in candidates if table.shard_for_key(parse_topic(n).routing_key) == shard_id]
