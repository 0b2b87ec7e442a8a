"""Replicas follow the nodes: whatever comes, goes or is lost, the plan ends at a stable placement.

``World`` makes the changes that a plan asks for, by the rules of the shard map, and checks after
each of them what must always hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.domain.membership import NodeState
from cluster_manager.domain.node_placement import (
    Bounds,
    Cluster,
    Move,
    ReplicaChange,
    ShardNode,
    moves,
    next_changes,
    under_way,
)
from cluster_manager.domain.replica_changes import (
    Change,
    ChangeReplicas,
    TakeMembers,
    decide_change,
    decide_members,
)
from cluster_manager.domain.shard_map import Placement, ShardMap, evolve, place_replicas
from cluster_manager.domain.zone_spread import ZoneSpread
from nextgen.kernel.events.decider import Accepted, fold
from nextgen.kernel.limits.placement import (
    REPLICA_TRANSFERS_MAX,
    REPLICA_TRANSFERS_PER_NODE_MAX,
)
from nextgen.kernel.routing.slots import initial_table, preference_order

TABLE = initial_table([1])
"""Slots do not matter here."""

ROUNDS_MAX = 2_000
"""More rounds than any of these clusters needs: a plan that has not ended by then never does."""


@dataclass
class World:
    """A cluster whose shards carry out what the plan asks for."""

    shard_map: ShardMap
    nodes: dict[str, ShardNode]
    factor: int
    moved: list[ReplicaChange] = field(default_factory=list)

    @staticmethod
    def of(nodes: Iterable[ShardNode], shards: int, factor: int) -> World:
        """Return a cluster with its first map over ``nodes``."""
        by_id = {node.node_id: node for node in nodes}
        shard_ids = range(1, shards + 1)
        zones = {node.node_id: node.zone for node in by_id.values()}
        placements = place_replicas(shard_ids, sorted(by_id), factor, zones)
        led = tuple(replace(each, has_led=True) for each in placements)
        return World(ShardMap(TABLE, led), by_id, factor)

    @property
    def cluster(self) -> Cluster:
        leaders = {
            each.shard_id: each.staying[0] for each in self.shard_map.placements if each.staying
        }
        return Cluster(self.shard_map.placements, self.nodes, self.factor, leaders)

    @property
    def active(self) -> list[ShardNode]:
        return [node for node in self.nodes.values() if node.is_active]

    def change(self, node_id: str, **changed: object) -> None:
        self.nodes[node_id] = replace(self.nodes[node_id], **changed)

    def step(self) -> bool:
        """Let the shards do what was asked, then ask for what comes next; return whether it was
        anything."""
        was_any = self.carry_out()
        changes = next_changes(self.cluster)
        for change in changes:
            self._ask(change)
        self._check_bounds()
        return was_any or bool(changes)

    def settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            if not self.step():
                return
        raise AssertionError(f"the plan does not end: {next_changes(self.cluster)}")

    def carry_out(self) -> bool:
        """Complete each change that is under way and that the shard can make."""
        was_any = False
        for placement in self.shard_map.placements:
            joining = [each for each in placement.joining if self.nodes[each].is_connected]
            if not self.cluster.has_majority(placement) or not (joining or placement.leaving):
                continue
            voters = [*placement.replicas, *joining]
            voters = [each for each in voters if each not in placement.leaving]
            report = TakeMembers(
                placement.shard_id, placement.configuration_index + 1, tuple(voters), ()
            )
            self._take(decide_members(self.shard_map, report))
            was_any = True
        return was_any

    def _ask(self, change: ReplicaChange) -> None:
        if change.change is Change.REMOVE:
            placement = self.shard_map.placement(change.shard_id)
            assert placement is not None
            left = [each for each in placement.staying if each != change.node_id]
            assert sum(self.nodes[each].is_active for each in left) >= self.factor
        connected = {node.node_id for node in self.nodes.values() if node.is_connected}
        wish = ChangeReplicas(
            change.shard_id, change.node_id, change.change, connected, replaces=True
        )
        self._take(decide_change(self.shard_map, wish))
        self.moved.append(change)

    def _take(self, decision: object) -> None:
        assert isinstance(decision, Accepted), decision
        shard_map = fold(evolve, self.shard_map, decision.events)
        assert shard_map is not None
        self.shard_map = shard_map

    def _check_bounds(self) -> None:
        joining = Counter(
            node for placement in self.shard_map.placements for node in placement.joining
        )
        assert joining.total() <= REPLICA_TRANSFERS_MAX
        assert all(count <= REPLICA_TRANSFERS_PER_NODE_MAX for count in joining.values())

    # What should hold when the plan has ended ---------------------------------------------------

    def load(self) -> Counter[str]:
        held = Counter({node.node_id: 0 for node in self.active})
        held.update(each for placement in self.shard_map.placements for each in placement.replicas)
        return held

    def check_settled(self) -> None:
        """Each shard has all its replicas on active nodes, zones and nodes are even."""
        spread = ZoneSpread.of((node.zone for node in self.active), self.factor)
        for placement in self.shard_map.placements:
            assert not placement.joining
            assert not placement.leaving
            held = [each for each in placement.replicas if self.nodes[each].is_active]
            if len(self.active) >= self.factor:
                assert len(placement.replicas) == len(held) == self.factor
                counts = Counter(self.nodes[each].zone for each in held)
                assert spread.unevenness(counts) == 0
        load = self.load()
        for zone in {node.zone for node in self.active}:
            counts_of_zone = [load[node.node_id] for node in self.active if node.zone == zone]
            assert max(counts_of_zone) - min(counts_of_zone) <= 1


def nodes_of(count: int, zones: str = "-") -> list[ShardNode]:
    return [
        ShardNode(f"node-{number}", zones[number % len(zones)].strip("-"))
        for number in range(1, count + 1)
    ]


def added(world: World) -> int:
    return sum(change.change is Change.ADD for change in world.moved)


# Examples -------------------------------------------------------------------------------------


def test_a_fourth_node_gets_its_share_and_nothing_else_moves() -> None:
    world = World.of(nodes_of(3), shards=4, factor=3)
    world.settle()
    assert world.moved == []

    world.nodes["node-9"] = ShardNode("node-9")
    world.settle()

    world.check_settled()
    assert world.load() == {"node-1": 3, "node-2": 3, "node-3": 3, "node-9": 3}
    assert {change.node_id for change in world.moved if change.change is Change.ADD} == {"node-9"}
    assert added(world) == 3


@pytest.mark.parametrize("state", [NodeState.LEAVING, NodeState.LOST, NodeState.REMOVED])
def test_a_node_that_gives_up_its_replicas_moves_only_what_it_had(state: NodeState) -> None:
    world = World.of(nodes_of(6), shards=40, factor=3)
    had = world.load()["node-2"]

    world.change("node-2", state=state, is_connected=state is NodeState.LEAVING)
    world.settle()

    world.check_settled()
    assert world.load()["node-2"] == 0
    assert added(world) == had == 20
    assert {change.node_id for change in world.moved if change.change is Change.REMOVE} == {
        "node-2"
    }


@pytest.mark.parametrize(("shards", "zones"), [(64, "-"), (100, "-"), (100, "abc"), (48, "ab")])
def test_a_sixth_node_moves_no_more_than_its_share_and_five_points(shards: int, zones: str) -> None:
    world = World.of(nodes_of(5, zones), shards=shards, factor=3)
    replicas = 3 * shards

    newcomer = ShardNode("node-6", zones[6 % len(zones)].strip("-"))
    world.nodes[newcomer.node_id] = newcomer
    world.settle()

    world.check_settled()
    assert added(world) / replicas <= 1 / 6 + 0.05


def test_a_replica_goes_where_the_ring_prefers_it() -> None:
    """Every node has room: the first in the order that has no replica yet gets it."""
    world = World.of(nodes_of(8), shards=1, factor=3)
    (placement,) = world.shard_map.placements

    world.change(placement.replicas[1], state=NodeState.LOST, is_connected=False)

    (move,) = moves(world.cluster)
    free = [node.node_id for node in world.active if node.node_id not in placement.replicas]
    order = preference_order("shard-1", [node.node_id for node in world.active])
    assert move.target == next(node for node in order if node in free)
    assert move.source == placement.replicas[1]


def test_a_third_zone_gets_a_replica_of_every_shard() -> None:
    """Its only node then has more replicas than the others: zones come before evenness."""
    world = World.of(nodes_of(4, "ab"), shards=8, factor=3)
    world.nodes["node-9"] = ShardNode("node-9", "c")

    world.settle()

    world.check_settled()
    assert world.load()["node-9"] == 8
    assert added(world) == 8


def test_a_node_that_moved_to_another_zone_gives_up_what_is_uneven_there() -> None:
    world = World.of(nodes_of(6, "abc"), shards=12, factor=3)

    world.change("node-1", zone="a")
    world.settle()

    world.check_settled()


def test_the_replica_comes_first_and_the_old_one_goes_when_it_votes() -> None:
    world = World.of(nodes_of(4), shards=1, factor=3)
    (placement,) = world.shard_map.placements
    drained = placement.replicas[0]
    spare = next(node for node in world.nodes if node not in placement.replicas)
    world.change(drained, state=NodeState.LEAVING)

    world.step()
    (joining,) = world.shard_map.placements
    assert (joining.joining, joining.leaving) == ((spare,), ())
    assert next_changes(world.cluster) == []
    world.step()
    (leaving,) = world.shard_map.placements
    assert (leaving.joining, leaving.leaving) == ((), (drained,))
    assert under_way(world.cluster) == [Move(1, drained, "")]


def test_a_shard_without_a_majority_changes_nothing_and_stops_evening_out() -> None:
    world = World.of(nodes_of(5), shards=10, factor=3)
    world.nodes["node-9"] = ShardNode("node-9")
    assert next_changes(world.cluster) != []
    first, second = world.shard_map.placements[0].replicas[:2]
    for node_id in (first, second):
        world.change(node_id, is_connected=False)

    assert next_changes(world.cluster) == []
    world.change(first, state=NodeState.LOST)
    lacking = {
        each.shard_id
        for each in world.shard_map.placements
        if {first, second} <= set(each.replicas)
    }
    found = next_changes(world.cluster)
    assert found != []
    assert not lacking & {change.shard_id for change in found}


def test_nothing_is_removed_while_too_few_nodes_are_left() -> None:
    world = World.of(nodes_of(3), shards=4, factor=3)
    world.change("node-1", state=NodeState.LOST, is_connected=False)

    world.settle()

    assert world.moved == []
    world.change("node-1", state=NodeState.ACTIVE, is_connected=True)
    world.settle()
    assert world.moved == []


def test_what_was_not_yet_replaced_stays_on_a_node_that_comes_back() -> None:
    world = World.of(nodes_of(6), shards=24, factor=3)
    had = world.load()["node-3"]
    world.change("node-3", state=NodeState.LOST, is_connected=False)
    world.step()
    joining = [each for each in world.shard_map.placements if each.joining]
    assert len(joining) == REPLICA_TRANSFERS_MAX

    world.change("node-3", state=NodeState.ACTIVE, is_connected=True)
    cancelled = next_changes(world.cluster)

    assert {change.change for change in cancelled} == {Change.CANCEL}
    assert len(cancelled) == len(joining)
    world.settle()
    world.check_settled()
    assert world.load()["node-3"] == had


def test_seven_replicas_are_replaced_as_well() -> None:
    world = World.of(nodes_of(8), shards=3, factor=7)
    world.change("node-1", state=NodeState.REMOVED, is_connected=False)

    world.settle()

    world.check_settled()


def test_replicas_on_a_node_that_never_joined_are_replaced() -> None:
    placement = Placement(1, ("gone", "a", "b"), has_led=True)
    nodes = {each: ShardNode(each) for each in "abc"}

    assert next_changes(Cluster((placement,), nodes, 3)) == [ReplicaChange(1, "c", Change.ADD)]


def test_a_shard_that_has_not_been_led_stays_as_it_is() -> None:
    nodes = {each: ShardNode(each) for each in "abc"}
    cluster = Cluster((Placement(1, ("gone", "a", "b")),), nodes, 3)

    assert (moves(cluster), next_changes(cluster)) == ([], [])


def test_bounds_count_the_leader_that_sends() -> None:
    world = World.of(nodes_of(3), shards=12, factor=3)
    for number in range(4, 9):
        world.nodes[f"node-{number}"] = ShardNode(f"node-{number}")
    led_by_one = dict.fromkeys(range(1, 13), "node-1")

    found = next_changes(replace(world.cluster, leaders=led_by_one))

    assert len(found) == REPLICA_TRANSFERS_PER_NODE_MAX
    wide = Bounds(per_node=12, per_cluster=12)
    many = next_changes(replace(world.cluster, leaders=led_by_one, bounds=wide))
    assert len(many) == 12


def test_more_replicas_than_wanted_are_removed_from_the_fullest_node() -> None:
    placements = (
        Placement(1, tuple("abcd"), has_led=True),
        Placement(2, tuple("abc"), has_led=True),
    )
    nodes = {each: ShardNode(each) for each in "abcd"}

    (change,) = next_changes(Cluster(placements, nodes, 3))

    assert change.change is Change.REMOVE
    assert change.shard_id == 1
    assert change.node_id in "abc"


# Properties -----------------------------------------------------------------------------------

zones = st.sampled_from(["-", "ab", "abc", "aab", "abcd"])


@given(count=st.integers(1, 9), shards=st.integers(1, 24), factor=st.integers(1, 5), zones=zones)
@settings(max_examples=60, deadline=None)
def test_the_first_map_is_placed_as_wanted(
    count: int, shards: int, factor: int, zones: str
) -> None:
    world = World.of(nodes_of(max(count, factor), zones), shards, factor)

    assert moves(world.cluster) == []


events = st.lists(
    st.tuples(
        st.sampled_from(["join", "drain", "lose", "vanish", "return", "undo", "wait"]),
        st.integers(0, 9),
        st.integers(0, 3),
    ),
    max_size=12,
)


@given(
    count=st.integers(3, 7),
    shards=st.integers(1, 16),
    factor=st.integers(1, 3),
    zones=zones,
    history=events,
)
@settings(max_examples=120, deadline=None)
def test_whatever_nodes_do_the_plan_ends_and_loses_nothing(
    count: int, shards: int, factor: int, zones: str, history: list[tuple[str, int, int]]
) -> None:
    """No removal leaves fewer active voters than wanted: ``World`` checks each of them."""
    world = World.of(nodes_of(count, zones), shards, factor)
    for what, which, rounds in history:
        happen(world, what, which, zones)
        for _ in range(rounds):
            world.step()

    # In the end everybody who is not gone for good is there, and at least as many as are needed.
    for node in list(world.nodes.values()):
        if node.state is not NodeState.REMOVED:
            world.change(node.node_id, is_connected=True)
        if node.state is NodeState.LOST:
            world.change(node.node_id, state=NodeState.ACTIVE)
    world.settle()

    assert moves(world.cluster) == []
    if all(world.cluster.has_majority(each) for each in world.shard_map.placements):
        world.check_settled()


def happen(world: World, what: str, which: int, zones: str) -> None:
    """Let one node come, go, or change its state, if one can."""
    if what == "join":
        number = len(world.nodes) + 1
        zone = zones[which % len(zones)].strip("-")
        world.nodes[f"node-{number}"] = ShardNode(f"node-{number}", zone)
        return
    chosen = sorted(world.nodes)[which % len(world.nodes)]
    node = world.nodes[chosen]
    if what == "drain" and node.is_active and len(world.active) > world.factor:
        world.change(chosen, state=NodeState.LEAVING)
    elif what == "lose" and node.is_active:
        world.change(chosen, state=NodeState.LOST, is_connected=False)
    elif what == "vanish":
        world.change(chosen, is_connected=False)
    elif what == "return":
        is_lost = node.state is NodeState.LOST
        world.change(chosen, is_connected=True, state=NodeState.ACTIVE if is_lost else node.state)
    elif what == "undo":
        world.change(chosen, state=NodeState.ACTIVE)


@given(shards=st.integers(20, 60), which=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_lost_node_of_any_cluster_moves_only_what_it_had(shards: int, which: int) -> None:
    world = World.of(nodes_of(6), shards, factor=3)
    had = world.load()[f"node-{which}"]

    world.change(f"node-{which}", state=NodeState.LOST, is_connected=False)
    world.settle()

    assert added(world) == had
    world.check_settled()
