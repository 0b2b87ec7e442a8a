"""Jobs that change topics of one shard, and jobs that watch these changes.

Names contain their watcher: ``<stem><watcher>-<number>``, and a watcher's prefix ends with the
dash. Times are of the machine's monotonic clock, the same in every process.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.harness.load.jobs.create import create_topics
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.polled_cluster import PolledCluster
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.background import cancel_and_wait
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item

CAUGHT_UP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class WatchedNames:
    """The created topics; each of the ``watchers`` watches those with its prefix."""

    namespace: str
    stem: str
    watchers: int

    def prefix(self, watcher: int) -> str:
        return f"persistent://{self.namespace}/{self.stem}{watcher:05d}-"

    def name(self, number: int) -> str:
        """Return a name; successive numbers are of successive watchers."""
        return f"{self.prefix(number % self.watchers)}{number:08d}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def change_topics(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Create topics of one shard for some seconds, one per request, with some in flight."""
    names = WatchedNames(**job["names"])
    cluster = PolledCluster(job["targets"])
    await cluster.look()
    numbers = _numbers(names, cluster, job["shard_id"], job["first"])
    latencies = Latencies()
    acknowledged: dict[str, tuple[float, float]] = {}
    refusals: list[str] = []
    last = job["first"]
    ends_at = time.monotonic() + job["seconds"]

    async def lane(client: DiscoveryClient) -> None:
        nonlocal last
        while time.monotonic() < ends_at and len(acknowledged) < job["changes_max"]:
            number = last = next(numbers)
            name = names.name(number)
            sent_at = time.monotonic()
            refused = await create_topics(client, [name])
            acknowledged[name] = (sent_at, time.monotonic())
            latencies.add(time.monotonic() - sent_at)
            refusals.extend(refused)
            reporter.advance(1)
            if job["pause_ms"]:
                await asyncio.sleep(job["pause_ms"] / 1000)

    began_at = time.monotonic()
    async with DiscoveryClient(job["targets"]) as client, TaskGroup() as lanes:
        for _ in range(job["in_flight"]):
            lanes.create_task(lane(client))
    seconds = time.monotonic() - began_at
    return {
        "count": len(acknowledged),
        "seconds": seconds,
        "latency_ms": latencies.summary(),
        "errors": refusals[:10],
        "acknowledged": acknowledged,
        "next": last + 1,
    }


def _numbers(
    names: WatchedNames, cluster: PolledCluster, shard_id: int, first: int
) -> Iterator[int]:
    for number in itertools.count(first):
        if cluster.view.shard_for_key(parse_topic(names.name(number)).routing_key) == shard_id:
            yield number


class _Watcher:
    """Records the updates of one watch."""

    def __init__(
        self, seen: list[tuple[str, int, float]], errors: list[str], notified: asyncio.Event
    ) -> None:
        self.is_ready = False
        self._notified = notified
        self._seen = seen
        self._errors = errors

    def on_reset(self) -> None:
        if self.is_ready:
            self._errors.append("a watch had to begin again")

    def on_items(self, items: Sequence[Item]) -> None:
        """Ignore the snapshot: existing topics are not counted."""

    def on_snapshot_complete(self, position: int) -> None:
        self.is_ready = True

    def on_events(self, events: Sequence[Event]) -> None:
        arrived_at = time.monotonic()
        self._seen.extend(
            (event.topic_created.name, event.position, arrived_at) for event in events
        )

    def on_position(self, position: int) -> None:
        # The stream has the position of all watches.
        self._notified.set()

    def on_ended(self, error: MetadataError) -> None:
        self._errors.append(f"a watch ended: {error}")


async def watch_topics(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Watch up to the position of the command {"until": position}, over some streams.

    Reports {"ready": true} when every snapshot is complete.
    """
    names = WatchedNames(**job["names"])
    cluster = PolledCluster(job["targets"])
    await cluster.look()
    seen: dict[int, list[tuple[str, int, float]]] = {n: [] for n in job["watchers"]}
    errors: list[str] = []
    notified = asyncio.Event()
    streams = [
        ShardWatch(job["shard_id"], f"perf-{os.getpid()}-{number}", cluster)
        for number in range(min(job["streams"], len(seen)))
    ]
    watchers = []
    for place, number in enumerate(job["watchers"]):
        watcher = _Watcher(seen[number], errors, notified)
        stream = streams[place % len(streams)]
        stream.add(watcher, kinds=[KIND_TOPIC], prefix=names.prefix(number))
        watchers.append(watcher)
    tasks = [asyncio.create_task(each) for each in (cluster.run(), *(s.run() for s in streams))]
    try:
        await wait_until(lambda: all(watcher.is_ready for watcher in watchers), notified)
        reporter.send({"ready": True})
        until = (await reporter.commands.get())["until"]
        await wait_until(lambda: all(stream.position >= until for stream in streams), notified)
    finally:
        await cancel_and_wait(*tasks)
    return {"seen": seen, "errors": errors, "streams": len(streams)}


async def wait_until(done: Callable[[], bool], notified: asyncio.Event) -> None:
    """Return once ``done``. It is checked whenever ``notified`` is set by a watcher."""
    try:
        async with timeout(CAUGHT_UP_TIMEOUT_S):
            while not done():
                notified.clear()
                await notified.wait()
    except TimeoutError:
        raise Unavailable(f"not caught up within {CAUGHT_UP_TIMEOUT_S:g} s") from None
