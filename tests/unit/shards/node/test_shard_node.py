"""A node: which groups it opens, what it remembers, what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from nextgen.client.cluster.link import ClusterLink, TransferListener
from nextgen.kernel.errors import JournalCorrupted, StaleShardMap
from nextgen.kernel.limits.cluster import SESSION_RETURN_MS, SLOT_COUNT
from nextgen.kernel.limits.placement import SHARD_SIZES_MS
from nextgen.kernel.routing.slots import SlotTable, initial_table
from nextgen.replication.ports import GroupId, LogStatus, NodeId, Role
from nextgen.replication.view.store import ViewStore
from protos.nextgen.v1.broker_service_pb2 import BrokerHello
from protos.nextgen.v1.cluster_service_pb2 import (
    ClusterUpdate,
    LeaderReport,
    LeadershipTransfer,
    ShardMapDelta,
)
from protos.nextgen.v1.events_pb2 import (
    BrokerEndpoints,
    NodeRegistered,
    ShardMapChanged,
    ShardPlacement,
)
from shards.adapters.routed import RoutedParents
from shards.domain.shard import Shard
from shards.metrics import NodeMetrics
from shards.node.replica import Replica
from shards.node.shard_leader import LeaderDependencies
from shards.node.shard_node import OpenedGroup, ShardNode
from shards.projections.fold import fold
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from tests.support.logs.memory_log import MemoryLog
from tests.support.scalable.segments import NoSegments
from tests.support.scenarios import run_by
from tests.support.shards.harness import Cluster, LocalShard, VirtualClock
from tests.support.shards.home_shards import CONTROLLERS, SilentHomes
from tests.support.shards.world import Entropy
from tests.support.simulated.virtual_time import run_virtual
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


@dataclass(frozen=True)
class Opened:
    """A group, and what was said when it was opened."""

    log: MemoryLog
    members: tuple[str, ...]
    is_joining: bool
    may_be_lost: bool


class MemoryGroups:
    """Groups without network or journal; remembers what it was asked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.opened: dict[int, Opened] = {}
        self.on_disk: set[int] = set()
        self.peers: dict[str, tuple[str, int]] = {}
        self.stored: list[ClusterUpdate] = []
        self.is_corrupted = False

    async def open(
        self, shard_id: int, members: Sequence[NodeId], *, is_joining: bool, may_be_lost: bool
    ) -> OpenedGroup:
        if self.is_corrupted:
            raise JournalCorrupted(f"the journal of shard {shard_id} has a hole")
        view = ViewStore(self._directory / f"group-{shard_id}", METADATA, fold)
        log = MemoryLog(view, group_id=GroupId(shard_id), members=members, leads=False)
        self.opened[shard_id] = Opened(log, tuple(members), is_joining, may_be_lost)
        self.on_disk.add(shard_id)
        return OpenedGroup(log, query_of(view.reader), view.read_transaction)

    async def put_aside(self, shard_ids: AbstractSet[int]) -> Sequence[int]:
        still_open = {
            shard_id
            for shard_id, opened in self.opened.items()
            if opened.log.status.role is not Role.STOPPED
        }
        moved = (shard_ids & self.on_disk) - still_open
        self.on_disk -= moved
        return sorted(moved)

    def disk_free_bytes(self) -> int:
        return 7_000_000

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
        dependencies = LeaderDependencies(
            node_id="node-1",
            directory=cluster,
            managers=others,
            controllers=others,
            capacity=cluster,
            quotas=cluster,
            metadata=others,
            tenancy=others,
            homes=SilentHomes(),
            controllers_id=CONTROLLERS,
            parents=RoutedParents(cast(Any, others), self.link.view),
            reports=cluster,
            segments=NoSegments(),
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
            dependencies,
            NodeMetrics(CollectorRegistry()),
            self.replicas,
        )

    def log(self, shard_id: int) -> MemoryLog:
        return self.groups.opened[shard_id].log

    def reports(self) -> list[LeaderReport]:
        return [message.leader for message in self.link.sent if message.HasField("leader")]

    def members_reports(self) -> list[tuple[int, int]]:
        """Return shard and term of what was reported about members."""
        reports = [message.members for message in self.link.sent if message.HasField("members")]
        return [(report.shard_id, report.term) for report in reports]

    async def place(self, version: int, **placement: list[str]) -> None:
        """Push a map in which shard 1 is placed like this."""
        shards = [ShardPlacement(shard_id=1, **placement), MAP.shards[1]]  # type: ignore[arg-type]
        changed = ShardMapChanged(version=version, slot_owners=MAP.slot_owners, shards=shards)
        self.link.push(full=True, shard_map=changed)
        await asyncio.sleep(0.1)

    async def add_empty_shard(self, version: int, shard_id: int) -> None:
        """Push a map in which this node alone has the only replica of a shard without slots."""
        shards = [
            ShardPlacement(shard_id=1, replicas=["node-2"], has_led=True),
            ShardPlacement(shard_id=shard_id, replicas=["node-1"]),
        ]
        owners = SlotTable(version, (1,) * SLOT_COUNT).to_bytes()
        changed = ShardMapChanged(version=version, slot_owners=owners, shards=shards)
        self.link.push(full=True, shard_map=changed)
        await asyncio.sleep(0.1)


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


@run_by(with_node)
async def test_it_opens_the_groups_that_the_map_gives_it_and_learns_its_peers(world: World) -> None:
    world.link.push(full=True, shard_map=MAP, nodes=[registered(node) for node in NODES])
    await asyncio.sleep(0.1)

    assert sorted(world.replicas) == [1]
    assert world.groups.peers == {"node-2": ("node-2", 100), "node-3": ("node-3", 100)}


@run_by(with_node)
async def test_it_remembers_map_and_addresses_before_it_opens_anything(world: World) -> None:
    world.groups.is_corrupted = True
    world.link.push(full=True, shard_map=MAP, nodes=[registered(node) for node in NODES])
    await asyncio.sleep(0.1)

    (stored,) = world.groups.stored
    assert stored.shard_map == MAP
    assert [node.node_id for node in stored.nodes] == list(NODES)
    assert not stored.leaders


@run_by(with_node)
async def test_what_did_not_change_is_not_stored_again(world: World) -> None:
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


@run_by(with_node)
async def test_changes_that_concern_no_replica_of_it_are_stored_together_later(
    world: World,
) -> None:
    world.link.push(full=True, shard_map=MAP)
    await asyncio.sleep(0.1)
    elsewhere = [
        ShardMapDelta(
            from_version=version - 1,
            version=version,
            changed=[ShardPlacement(shard_id=2, replicas=["node-2"], joining=[f"n-{version}"])],
        )
        for version in (2, 3, 4)
    ]
    here = ShardMapDelta(
        from_version=4,
        version=5,
        changed=[ShardPlacement(shard_id=1, replicas=["node-1"], joining=["n-5"])],
    )
    for delta in elsewhere[:2]:
        world.link.push(map_delta=delta)
        await asyncio.sleep(1)
    assert [known.shard_map.version for known in world.groups.stored] == [1]
    await asyncio.sleep(4)
    assert [known.shard_map.version for known in world.groups.stored] == [1, 3]

    world.link.push(map_delta=elsewhere[2])
    await asyncio.sleep(0.1)
    world.link.push(map_delta=here)
    await asyncio.sleep(0.1)

    *_, last = world.groups.stored
    assert [known.shard_map.version for known in world.groups.stored] == [1, 3, 5]
    assert last.shard_map.slot_owners == MAP.slot_owners
    assert [list(shard.joining) for shard in last.shard_map.shards] == [["n-5"], ["n-4"]]
    await asyncio.sleep(10)
    assert len(world.groups.stored) == 3


@run_by(with_node)
async def test_at_a_restart_it_opens_remembered_topics_without_an_assignment(world: World) -> None:
    remembered = ClusterUpdate(full=True, shard_map=MAP, nodes=[registered("node-2")])
    world.link.view.apply(remembered)

    await world.node.open_known()

    assert sorted(world.replicas) == [1]
    assert world.groups.peers == {"node-2": ("node-2", 100)}


@run_by(with_node)
async def test_a_shard_that_is_led_already_is_opened_as_one_that_may_have_been_lost(
    world: World,
) -> None:
    led = LeaderReport(shard_id=1, term=3, node_id="node-2", grpc="node-2:1")
    world.link.push(full=True, shard_map=MAP, leaders=[led])
    await asyncio.sleep(0.1)

    assert world.groups.opened[1].may_be_lost


@run_by(with_node)
async def test_a_shard_that_was_led_from_here_is_opened_as_one_that_may_have_been_lost(
    world: World,
) -> None:
    """It led and lost its disk: voting afresh, it could make a second leader of its own term."""
    led = LeaderReport(shard_id=1, term=3, node_id="node-1", grpc="node-1:1")
    world.link.push(full=True, shard_map=MAP, leaders=[led])
    await asyncio.sleep(0.1)

    assert world.groups.opened[1].may_be_lost


@run_by(with_node)
async def test_a_group_that_must_not_run_ends_the_node(world: World) -> None:
    world.groups.is_corrupted = True
    world.link.view.apply(ClusterUpdate(shard_map=MAP))

    with pytest.raises(JournalCorrupted):
        await world.node.open_known()


@run_by(with_node)
async def test_leadership_is_reported_at_once_and_again_after_a_reconnect(world: World) -> None:
    world.link.push(full=True, shard_map=MAP)
    await asyncio.sleep(0.1)

    world.log(1).become_leader()
    (report,) = world.reports()
    assert (report.shard_id, report.term) == (1, 1)
    assert (report.node_id, report.grpc) == ("node-1", "node-1:1")
    assert world.link.view.leader_endpoint(1) == "node-1:1"
    world.link.connect()

    assert world.reports() == [report, report]


@run_by(with_node)
async def test_a_leader_elsewhere_is_known_from_the_nodes_own_replica(world: World) -> None:
    """Nothing waits for the cluster manager's push of what this node knows by itself."""
    world.link.push(full=True, shard_map=MAP, nodes=[registered("node-2")])
    await asyncio.sleep(0.1)
    world.log(1).become_leader()
    assert world.link.view.leader_endpoint(1) == "node-1:1"

    world.log(1).lose_leadership(NodeId("node-2"))

    leader = world.link.view.leaders[1]
    assert (leader.node_id, leader.term) == ("node-2", 2)


@run_by(with_node)
async def test_what_is_not_led_any_more_is_not_reported(world: World) -> None:
    world.link.push(full=True, shard_map=MAP)
    await asyncio.sleep(0.1)
    world.log(1).become_leader()
    world.log(1).lose_leadership(NodeId("node-2"))
    world.link.sent.clear()

    world.link.connect()

    assert world.reports() == []


@pytest.mark.parametrize(("shard_id", "term", "left"), [(1, 2, 0), (1, 1, 1), (1, 3, 1), (2, 2, 1)])
@run_by(with_node)
async def test_a_leader_waits_less_for_brokers_once_every_node_was_told_of_it(
    world: World, *, shard_id: int, term: int, left: int
) -> None:
    world.link.push(full=True, shard_map=MAP)
    await asyncio.sleep(0.1)
    world.log(1).become_leader()
    broker_id = next(name for name in map(str, range(99)) if TABLE.shard_for_key(name) == 1)
    hello = BrokerHello(broker_id=broker_id, endpoints=BrokerEndpoints(grpc="it:1"))
    await world.replicas[1].leading().brokers.sessions.connect(hello)
    world.log(1).become_leader()
    sessions = world.replicas[1].leading().brokers.sessions

    report = LeaderReport(shard_id=shard_id, term=term, node_id="node-1", grpc="node-1:1")
    world.link.push(leaders=[report])
    await asyncio.sleep(SESSION_RETURN_MS / 1000 + 0.1)

    assert world.replicas[1].leading().term == 2
    assert sessions.count == left


@run_by(with_node)
async def test_a_request_to_hand_over_is_carried_out(world: World) -> None:
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


@run_by(with_node)
async def test_it_is_ready_when_every_replica_of_its_own_has_a_leader(world: World) -> None:
    assert world.node.readiness() == (False, ["no shard map is known yet"])

    world.link.push(full=True, shard_map=MAP)
    assert world.node.readiness() == (False, ["shard 1 is not open yet"])
    await asyncio.sleep(0.1)
    assert world.node.readiness() == (False, ["shard 1 has no known leader"])
    world.log(1).lose_leadership(NodeId("node-2"))

    assert world.node.readiness() == (True, [])


@run_by(with_node)
async def test_its_status_has_a_line_for_each_replica(world: World) -> None:
    world.link.push(full=True, shard_map=MAP)
    await asyncio.sleep(0.1)
    world.log(1).become_leader()
    await asyncio.sleep(0.1)

    status = world.node.status()

    assert (status.node_id, status.shard_map_version) == ("node-1", 1)
    assert [replica.role for replica in status.replicas] == ["leader"]
    assert status.counters["commits"] == 1


# Members ------------------------------------------------------------------------------------------


@run_by(with_node)
async def test_a_group_of_the_first_map_may_be_a_fresh_one(world: World) -> None:
    await world.place(1, replicas=["node-1", "node-2"])

    opened = world.groups.opened[1]
    assert (opened.is_joining, opened.may_be_lost) == (False, False)


@run_by(with_node)
async def test_a_replica_without_data_under_a_later_map_may_have_lost_it(world: World) -> None:
    """The first map stays until every shard has been led, so somebody voted already."""
    await world.place(2, replicas=["node-1", "node-2"])

    opened = world.groups.opened[1]
    assert (opened.is_joining, opened.may_be_lost) == (False, True)


@run_by(with_node)
async def test_a_group_of_a_shard_that_was_added_later_may_be_a_fresh_one(world: World) -> None:
    """Nobody could elect its first leader otherwise."""
    led = ShardPlacement(shard_id=2, replicas=["node-2"], has_led=True)
    added = ShardPlacement(shard_id=3, replicas=["node-1"])
    changed = ShardMapChanged(version=5, slot_owners=MAP.slot_owners, shards=[led, added])
    world.link.push(full=True, shard_map=changed)
    await asyncio.sleep(0.1)

    assert not world.groups.opened[3].may_be_lost


@run_by(with_node)
async def test_the_first_leader_adopts_the_slots_of_the_map_as_it_is_by_then(world: World) -> None:
    """A replica may be open for long before it leads for the first time."""
    world.link.push(full=True, shard_map=MAP)
    await asyncio.sleep(0.1)
    one = [ShardPlacement(shard_id=1, replicas=["node-1"], has_led=True)]
    owners = SlotTable(4, (1,) * SLOT_COUNT).to_bytes()
    world.link.push(shard_map=ShardMapChanged(version=4, slot_owners=owners, shards=one))

    world.log(1).become_leader()
    await asyncio.sleep(0.1)

    leader = world.replicas[1].leader
    assert leader is not None
    assert leader.state.slots.map_version == 4
    assert sum(leader.state.slots.owned()) == SLOT_COUNT


@run_by(with_node)
async def test_a_shard_without_slots_is_led_and_keeps_that_it_has_none(world: World) -> None:
    led = ShardPlacement(shard_id=1, replicas=["node-2"], has_led=True)
    added = ShardPlacement(shard_id=3, replicas=["node-1"])
    owners = SlotTable(5, (1,) * SLOT_COUNT).to_bytes()
    world.link.push(shard_map=ShardMapChanged(version=5, slot_owners=owners, shards=[led, added]))
    await asyncio.sleep(0.1)

    world.log(3).become_leader()
    await asyncio.sleep(0.1)

    leader = world.replicas[3].leader
    assert leader is not None
    assert leader.state.reads.load_shard() == Shard((), 5)
    with pytest.raises(StaleShardMap):
        leader.state.slots.check(0)
    assert world.node.readiness() == (True, [])


@run_by(with_node)
async def test_a_node_that_joins_opens_the_group_and_waits(world: World) -> None:
    await world.place(2, replicas=["node-2", "node-3"], joining=["node-1"])

    opened = world.groups.opened[1]
    assert opened.is_joining
    assert opened.members == ("node-2", "node-3")
    # Nothing is promised to anybody yet, so nothing is lacking.
    assert world.node.readiness() == (True, [])


@run_by(with_node)
async def test_a_node_whose_joining_was_cancelled_before_it_looked_opens_nothing(
    world: World,
) -> None:
    await world.place(2, replicas=["node-2", "node-3"], leaving=["node-1"])

    assert not world.groups.opened


@run_by(with_node)
async def test_a_replica_that_leaves_stays_open_until_no_placement_names_it(world: World) -> None:
    await world.place(1, replicas=["node-1", "node-2"])
    await world.place(2, replicas=["node-1", "node-2"], leaving=["node-1"])
    assert sorted(world.replicas) == [1]

    await world.place(3, replicas=["node-2"])

    assert not world.replicas
    assert world.log(1).status.role is Role.STOPPED
    assert world.groups.on_disk == set()


@run_by(with_node)
async def test_a_replica_that_was_closed_and_is_wanted_again_joins_anew(world: World) -> None:
    await world.place(1, replicas=["node-1", "node-2"])
    await world.place(2, replicas=["node-2"])
    before = world.log(1)

    await world.place(3, replicas=["node-2"], joining=["node-1"])

    assert sorted(world.replicas) == [1]
    assert world.log(1) is not before
    assert world.groups.opened[1].is_joining


@run_by(with_node)
async def test_a_leader_that_no_placement_names_is_closed_when_it_leads_no_more(
    world: World,
) -> None:
    await world.place(1, replicas=["node-1", "node-2"])
    # Nobody follows, so there is nobody to hand over to.
    alone = Alone(world.log(1))
    world.replicas[1].log = alone  # type: ignore[assignment]
    world.log(1).become_leader()
    await world.place(2, replicas=["node-2"])
    assert sorted(world.replicas) == [1]
    assert world.groups.on_disk == {1}

    world.log(1).lose_leadership(NodeId("node-2"))
    await asyncio.sleep(0.1)

    assert not world.replicas
    assert world.groups.on_disk == set()


@run_by(with_node)
async def test_a_shard_without_slots_that_leaves_the_map_is_closed_though_it_is_led(
    world: World,
) -> None:
    await world.place(2, replicas=["node-2"])
    await world.add_empty_shard(3, 9)
    world.log(9).become_leader()
    await asyncio.sleep(0.1)
    assert world.replicas[9].leader is not None

    await world.place(4, replicas=["node-2"])

    assert 9 not in world.replicas
    assert world.log(9).status.role is Role.STOPPED
    assert world.groups.on_disk == set()


@run_by(with_node)
async def test_a_shard_with_slots_stays_open_though_the_map_has_lost_it(world: World) -> None:
    await world.place(2, replicas=["node-1", "node-2"])
    world.log(1).become_leader()
    await asyncio.sleep(0.1)

    world.link.push(
        full=True,
        shard_map=ShardMapChanged(
            version=3, slot_owners=bytes([0, 2]) * SLOT_COUNT, shards=[MAP.shards[1]]
        ),
    )
    await asyncio.sleep(0.1)

    assert world.replicas[1].leader is not None
    assert world.groups.on_disk == {1}


def sizes(world: World) -> list[tuple[int, int, int, float]]:
    return [
        (size.shard_id, size.topics, size.rows, size.commands_per_second)
        for message in world.link.sent
        if message.HasField("shard_sizes")
        for size in message.shard_sizes.shards
    ]


@run_by(with_node)
async def test_the_sizes_of_led_shards_are_reported_at_once_after_a_reconnect_and_every_ten_seconds(
    world: World,
) -> None:
    await world.place(2, replicas=["node-1", "node-2"])
    await asyncio.sleep(SHARD_SIZES_MS / 1_000)
    assert sizes(world) == [], "nothing is led here"
    world.log(1).become_leader()
    await asyncio.sleep(0.1)
    assert sizes(world) == [(1, 0, 0, 0.0)]
    world.link.connect()
    await asyncio.sleep(0.1)
    assert [shard_id for shard_id, *_ in sizes(world)] == [1, 1]
    await asyncio.sleep(SHARD_SIZES_MS / 1_000)
    assert [shard_id for shard_id, *_ in sizes(world)] == [1, 1, 1]


@run_by(with_node)
async def test_at_a_restart_what_was_removed_meanwhile_is_put_aside(world: World) -> None:
    world.groups.on_disk = {1, 2, 9}
    world.link.view.apply(ClusterUpdate(full=True, shard_map=MAP))

    await world.node.open_known()

    # Shard 2 is placed elsewhere; of a shard that no map has, nobody can say that.
    assert world.groups.on_disk == {1, 9}


@run_by(with_node)
async def test_without_a_map_nothing_on_disk_is_touched(world: World) -> None:
    world.groups.on_disk = {1, 2}

    await world.node.open_known()

    assert world.groups.on_disk == {1, 2}


@run_by(with_node)
async def test_members_are_reported_by_each_leader_and_again_after_a_reconnect(
    world: World,
) -> None:
    await world.place(2, replicas=["node-1", "node-2"], leaving=["node-9"])
    world.log(1).become_leader()
    await asyncio.sleep(0.1)
    first = len(world.members_reports())
    assert set(world.members_reports()) == {(1, 1)}

    world.link.connect()
    await asyncio.sleep(0.1)
    assert len(world.members_reports()) > first
    world.log(1).lose_leadership(NodeId("node-2"))
    world.link.sent.clear()
    world.link.connect()
    await asyncio.sleep(1)

    assert world.members_reports() == []


@run_by(with_node)
async def test_a_leader_that_is_to_leave_hands_over(world: World) -> None:
    await world.place(1, replicas=["node-1", "node-2"])
    world.log(1).become_leader()

    await world.place(2, replicas=["node-1", "node-2"], leaving=["node-1"])

    assert world.log(1).status.leader_id == "node-2"


class Alone:
    """A log without peers."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    @property
    def status(self) -> LogStatus:
        return replace(self._log.status, progress=())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@run_by(with_node)
async def test_a_leader_takes_a_node_in_and_reports_it(world: World) -> None:
    await world.place(1, replicas=["node-1", "node-2"])
    world.log(1).become_leader()

    await world.place(2, replicas=["node-1", "node-2"], joining=["node-3"])
    await asyncio.sleep(1)

    assert world.log(1).status.members == ("node-1", "node-2", "node-3")
    reported = [message.members for message in world.link.sent if message.HasField("members")]
    assert list(reported[-1].voters) == ["node-1", "node-2", "node-3"]
    assert reported[-1].configuration_index == world.log(1).status.configuration_index
