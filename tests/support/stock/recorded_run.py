"""The history of a run of recorded clients: what was done to the cluster, and what its log says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nextgen.audit.verdict import Verdict
from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.chaos.gather import committed_positions, gather_log
from nextgen.harness.history.check import check
from nextgen.harness.history.model import Fault, Run
from nextgen.harness.history.record_file import Recorder, load_history
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from tests.support.stock.cluster import FOR_STOCK
from tests.support.stock.world import World


class RecordedRun:
    """Creates ``topics`` at its begin. Clients write their files into ``directory``."""

    def __init__(self, world: World, directory: Path, topics: Sequence[str]) -> None:
        self.directory = directory
        self._world = world
        self._topics = tuple(topics)
        self._targets = world.system.discovery_endpoints
        self._began_ns = time.monotonic_ns()
        self._faults: list[Fault] = []
        world.cluster.run(self._create())

    @contextmanager
    def fault(self, kind: str, target: str) -> Iterator[None]:
        """Record that the body does something to the cluster."""
        began_ns = time.monotonic_ns()
        yield
        self._faults.append(Fault(kind, target, began_ns, time.monotonic_ns()))

    def judged(self) -> Verdict:
        """Return the verdict on all files, with the log of the shard, by every check."""
        ended_ns = time.monotonic_ns()
        self._world.cluster.run(self._gather())
        with Recorder(self.directory / "run.jsonl") as recorder:
            recorder.write(Run("stock", self._began_ns, ended_ns, scopes=self._topics))
            recorder.write_all(self._faults)
        return check(load_history(self.directory))

    async def _create(self) -> None:
        with Recorder(self.directory / "prepare.jsonl") as recorder:
            async with DiscoveryClient(self._targets) as client:
                calls = RecordedCalls("prepare", client, recorder)
                for topic in self._topics:
                    created = await calls.create(topic, FOR_STOCK)
                    assert created.is_ok, created

    async def _gather(self) -> None:
        positions = await committed_positions(self._targets)
        await gather_log(self._targets, {}, positions, self.directory)
