"""A node: which groups it opens, what it remembers, what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from nextgen.client.cluster_link import ClusterLink, TransferListener
from nextgen.kernel.errors import JournalCorrupted
from nextgen.kernel.slots import initial_table
from nextgen.replication.memory_log import MemoryLog
from nextgen.replication.ports import GroupId, NodeId
from nextgen.replication.view_store import ViewStore
from protos.nextgen.v1.cluster_service_pb2 import (
    ClusterUpdate,
    LeaderReport,
    LeadershipTransfer,
)
from protos.nextgen.v1.events_pb2 import NodeRegistered, ShardMapChanged, ShardPlacement
from shards.metrics import NodeMetrics
from shards.node import OpenedGroup, ShardNode
from shards.projections.fold import fold
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from shards.replica import Replica
from shards.shard_leader import Surroundings
from tests.support.shard_harness import Cluster, LocalShard, VirtualClock
from tests.support.shard_world import Entropy
from tests.support.virtual_time import run_virtual
from tests.unit.shards.adapters.test_cluster import FakeLink

NODES = ("node-1", "node-2", "node-3")
TABLE = initial_table((1, 2))
MAP = ShardMapChanged(
    version=1,
    slot_owners=TABLE.to_bytes(),
    shards=[
        ShardPlacement(shard_id=1, replicas=["node-1", "node-2"]),
        ShardPlacement(shard_id=2, replicas=["node-2", "node-3"]),
    ],
)


def registered(node_id: str, port: int = 100) -> NodeRegistered:
    return NodeRegistered(
        node_id=node_id, kind="shard", grpc=f"{node_id}:1", raft_host=node_id, raft_port=port
    )


class NodeLink(FakeLink):
    """The fake link, with requests to hand leadership over."""

    def __init__(self) -> None:
        super().__init__()
        self._transfers: list[TransferListener] = []

    def on_transfer(self, listener: TransferListener) -> None:
        self._transfers.append(listener)

    def ask_transfer(self, shard_id: int, target: str) -> None:
        for listener in self._transfers:
            listener(LeadershipTransfer(shard_id=shard_id, target=target))


class MemoryGroups:
    """Groups without network or journal; remembers what it was asked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.opened: dict[int, tuple[MemoryLog, bool]] = {}
        self.peers: dict[str, tuple[str, int]] = {}
        self.stored: list[ClusterUpdate] = []
        self.is_corrupted = False

    async def open(
        self, shard_id: int, members: Sequence[NodeId], *, is_led_elsewhere: bool
    ) -> OpenedGroup:
        if self.is_corrupted:
            raise JournalCorrupted(f"the journal of shard {shard_id} has a hole")
        view = ViewStore(self._directory / f"group-{shard_id}", METADATA, fold)
        log = MemoryLog(view, group_id=GroupId(shard_id), members=members, leads=False)
        self.opened[shard_id] = (log, is_led_elsewhere)
        return OpenedGroup(log, query_of(view.reader))

    async def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        self.peers[node_id] = (host, port)

    async def store(self, known: ClusterUpdate) -> None:
        self.stored.append(known)


class World:
    """A node and what it stands in."""

    def __init__(self, directory: Path) -> None:
        self.link = NodeLink()
        self.groups = MemoryGroups(directory)
        cluster, others = Cluster(10), LocalShard()
        around = Surroundings(
            node_id="node-1",
            directory=cluster,
            managers=others,
            capacity=cluster,
            metadata=others,
            parents=cast(Any, None),
            reports=cluster,
            clock=VirtualClock(),
            entropy=Entropy(),
            draw=lambda: (0, 0),
        )
        self.replicas: dict[int, Replica] = {}
        self.node = ShardNode(
            "node-1",
            "node-1:1",
            cast(ClusterLink, self.link),
            self.groups,
            around,
            NodeMetrics(CollectorRegistry()),
            self.replicas,
        )

    def log(self, shard_id: int) -> MemoryLog:
        return self.groups.opened[shard_id][0]

    def reports(self) -> list[LeaderReport]:
        return [message.leader for message in self.link.sent]


def with_node(directory: Path, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World(directory)
        running = asyncio.create_task(world.node.run())
        try:
            await scenario(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await world.node.stop()

    run_virtual(main)


def test_it_opens_the_groups_that_the_map_gives_it_and_learns_its_peers(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.link.push(full=True, shard_map=MAP, nodes=[registered(node) for node in NODES])
        await asyncio.sleep(0.1)

        assert sorted(world.replicas) == [1]
        assert world.groups.peers == {"node-2": ("node-2", 100), "node-3": ("node-3", 100)}

    with_node(tmp_path, scenario)


def test_it_remembers_map_and_addresses_before_it_opens_anything(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.groups.is_corrupted = True
        world.link.push(full=True, shard_map=MAP, nodes=[registered(node) for node in NODES])
        await asyncio.sleep(0.1)

        (stored,) = world.groups.stored
        assert stored.shard_map == MAP
        assert [node.node_id for node in stored.nodes] == list(NODES)
        assert not stored.leaders

    with_node(tmp_path, scenario)


def test_what_did_not_change_is_not_stored_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        nodes = [registered(node) for node in NODES]
        world.link.push(full=True, shard_map=MAP, nodes=nodes)
        await asyncio.sleep(0.1)
        world.link.push(full=True, shard_map=MAP, nodes=nodes)
        await asyncio.sleep(0.1)
        assert len(world.groups.stored) == 1

        world.link.push(nodes=[registered("node-2", port=200)])
        await asyncio.sleep(0.1)

        assert len(world.groups.stored) == 2
        assert world.groups.peers["node-2"] == ("node-2", 200)

    with_node(tmp_path, scenario)


def test_at_a_restart_it_opens_what_it_remembers_without_being_told(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        remembered = ClusterUpdate(full=True, shard_map=MAP, nodes=[registered("node-2")])
        world.link.view.apply(remembered)

        await world.node.open_known()

        assert sorted(world.replicas) == [1]
        assert world.groups.peers == {"node-2": ("node-2", 100)}

    with_node(tmp_path, scenario)


def test_a_shard_that_is_led_already_is_opened_as_one_that_may_have_been_lost(
    tmp_path: Path,
) -> None:
    async def scenario(world: World) -> None:
        led = LeaderReport(shard_id=1, term=3, node_id="node-2", grpc="node-2:1")
        world.link.push(full=True, shard_map=MAP, leaders=[led])
        await asyncio.sleep(0.1)

        assert world.groups.opened[1][1] is True

    with_node(tmp_path, scenario)


def test_a_group_that_must_not_run_ends_the_node(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.groups.is_corrupted = True
        world.link.view.apply(ClusterUpdate(shard_map=MAP))

        with pytest.raises(JournalCorrupted):
            await world.node.open_known()

    with_node(tmp_path, scenario)


def test_leadership_is_reported_at_once_and_again_after_a_reconnect(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.link.push(full=True, shard_map=MAP)
        await asyncio.sleep(0.1)

        world.log(1).become_leader()
        (report,) = world.reports()
        assert (report.shard_id, report.term) == (1, 1)
        assert (report.node_id, report.grpc) == ("node-1", "node-1:1")
        assert world.link.view.leader_endpoint(1) == "node-1:1"
        world.link.connect()

        assert world.reports() == [report, report]

    with_node(tmp_path, scenario)


def test_what_is_not_led_any_more_is_not_reported(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.link.push(full=True, shard_map=MAP)
        await asyncio.sleep(0.1)
        world.log(1).become_leader()
        world.log(1).lose_leadership(NodeId("node-2"))
        world.link.sent.clear()

        world.link.connect()

        assert world.reports() == []

    with_node(tmp_path, scenario)


def test_a_request_to_hand_over_is_carried_out(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.link.push(full=True, shard_map=MAP)
        await asyncio.sleep(0.1)
        world.log(1).become_leader()

        world.link.ask_transfer(1, "node-9")
        await asyncio.sleep(0.1)
        assert world.replicas[1].leader is not None
        world.link.ask_transfer(2, "node-2")
        world.link.ask_transfer(1, "node-2")
        await asyncio.sleep(0.1)

        assert world.replicas[1].leader is None
        assert world.replicas[1].leader_id == "node-2"

    with_node(tmp_path, scenario)


def test_it_is_ready_when_every_replica_of_its_own_has_a_leader(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert world.node.readiness() == (False, ["no shard map is known yet"])

        world.link.push(full=True, shard_map=MAP)
        assert world.node.readiness() == (False, ["shard 1 is not open yet"])
        await asyncio.sleep(0.1)
        assert world.node.readiness() == (False, ["shard 1 has no known leader"])
        world.log(1).lose_leadership(NodeId("node-2"))

        assert world.node.readiness() == (True, [])

    with_node(tmp_path, scenario)


def test_its_status_has_a_line_for_each_replica(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.link.push(full=True, shard_map=MAP)
        await asyncio.sleep(0.1)
        world.log(1).become_leader()
        await asyncio.sleep(0.1)

        status = world.node.status()

        assert (status.node_id, status.shard_map_version) == ("node-1", 1)
        assert [replica.role for replica in status.replicas] == ["leader"]
        assert status.counters["commits"] == 1

    with_node(tmp_path, scenario)
