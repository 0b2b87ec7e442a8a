"""Where the broker manager is, by the cluster's state."""

from __future__ import annotations

import asyncio

from brokers.adapters.cluster.locator import ClusterLocator
from brokers.ports.session import ManagerLocation
from nextgen.client.cluster.link import ChangeListener, ClusterView
from nextgen.kernel.routing.slots import initial_table
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import ShardMapChanged, ShardPlacement


class FakeLink:
    """A link whose updates a test pushes."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self._listeners: list[ChangeListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        self._listeners.append(listener)

    def push(self, update: ClusterUpdate) -> None:
        self.view.apply(update)
        for listener in self._listeners:
            listener(self.view, update)


def shard_map() -> ClusterUpdate:
    placements = [ShardPlacement(shard_id=1, replicas=["n"])]
    owners = initial_table([1]).to_bytes()
    return ClusterUpdate(
        shard_map=ShardMapChanged(version=1, slot_owners=owners, shards=placements)
    )


def leader(term: int, grpc: str) -> ClusterUpdate:
    return ClusterUpdate(leaders=[LeaderReport(shard_id=1, term=term, node_id="n", grpc=grpc)])


def test_nothing_is_known_before_there_is_a_map_and_a_leader():
    link = FakeLink()
    locator = ClusterLocator(link, "broker-1")  # type: ignore[arg-type]

    before = locator.location()
    link.push(shard_map())
    without_leader = locator.location()
    link.push(leader(4, "a:1"))

    assert (before, without_leader) == (None, None)
    assert locator.location() == ManagerLocation("a:1", 4)


async def test_a_wait_ends_with_a_change_of_the_place():
    link = FakeLink()
    link.push(shard_map())
    locator = ClusterLocator(link, "broker-1")  # type: ignore[arg-type]
    waiting = asyncio.create_task(locator.wait_change(60_000))
    await asyncio.sleep(0)

    link.push(shard_map())
    await asyncio.sleep(0)
    still_waiting = not waiting.done()
    link.push(leader(1, "a:1"))
    await waiting

    assert still_waiting


async def test_a_wait_ends_after_its_time():
    locator = ClusterLocator(FakeLink(), "broker-1")  # type: ignore[arg-type]

    async with timeout(30):
        await locator.wait_change(1)
