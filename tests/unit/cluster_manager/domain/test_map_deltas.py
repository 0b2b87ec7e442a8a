"""The map's differences: whatever changes, whoever applies them, in whatever pieces they come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager import wire
from cluster_manager.domain.shard_map import (
    Placement,
    ShardChanged,
    ShardMap,
    ShardMapChanged,
    evolve,
)
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from cluster_manager.service.connection import NodeConnection
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotRun, SlotTable
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from tests.unit.cluster_manager.fakes import ManagerUnderTest, balance, hello, settle, taken

NODES = ("a", "b", "c", "d")
SHARDS = range(1, 6)

placements = st.builds(
    Placement,
    shard_id=st.sampled_from(SHARDS),
    replicas=st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True).map(tuple),
    joining=st.lists(st.sampled_from(NODES), max_size=1).map(tuple),
    leaving=st.lists(st.sampled_from(NODES), max_size=1).map(tuple),
    configuration_index=st.integers(0, 9),
    has_led=st.booleans(),
)


@st.composite
def runs(draw: st.DrawFn) -> SlotRun:
    first = draw(st.integers(0, SLOT_COUNT - 1))
    last = min(SLOT_COUNT - 1, first + draw(st.sampled_from([0, 1, 7, 4_000])))
    return SlotRun(first, last, draw(st.sampled_from(SHARDS)))


Change = tuple[list[Placement], list[SlotRun], list[int]]
changes: st.SearchStrategy[Change] = st.tuples(
    st.lists(placements, max_size=3, unique_by=lambda placement: placement.shard_id),
    st.lists(runs(), max_size=3),
    st.lists(st.sampled_from(SHARDS), max_size=1),
)

FIRST = ShardMap(
    SlotTable(1, tuple(1 + slot % 3 for slot in range(SLOT_COUNT))),
    tuple(Placement(shard_id, ("a", "b", "c"), has_led=shard_id > 1) for shard_id in (1, 2, 3, 9)),
)
"""Shard 9 stays: a later map in which no shard has led is one of a release that does not say."""


def history(script: Sequence[Change]) -> Iterator[tuple[ShardMap, ShardChanged, ShardMap]]:
    """Yield each map, its change, and the next map made without it, by plain replacement."""
    before = FIRST
    for changed, slots, removed in script:
        named = {placement.shard_id for placement in changed}
        gone = tuple(shard_id for shard_id in removed if shard_id not in named)
        version = before.version + 1
        event = ShardChanged(version, tuple(changed), tuple(slots), gone)
        owners = list(before.table.owners)
        for run in slots:
            for slot in range(run.first, run.last + 1):
                owners[slot] = run.shard_id
        kept = [p for p in before.placements if p.shard_id not in (*named, *gone)]
        placed = sorted([*kept, *changed], key=lambda placement: placement.shard_id)
        after = ShardMap(SlotTable(version, tuple(owners)), tuple(placed))
        yield before, event, after
        before = after


def view_of(shard_map: ShardMap) -> ClusterView:
    view = ClusterView()
    view.apply(cluster_pb.ClusterUpdate(shard_map=wire.shard_map_to_proto(shard_map)))
    return view


def delta(from_version: int, events: Sequence[ShardChanged]) -> cluster_pb.ClusterUpdate:
    return cluster_pb.ClusterUpdate(map_delta=wire.map_delta(from_version, events))


@given(script=st.lists(changes, max_size=5), data=st.data())
@settings(max_examples=60, deadline=None)
def test_differences_lead_to_the_same_map_as_whole_ones(
    script: list[Change], data: st.DataObject
) -> None:
    steps = list(history(script))
    maps, events = [FIRST, *(step[2] for step in steps)], [step[1] for step in steps]

    # The domain, and every stored event read back.
    folded = FIRST
    for event, after in zip(events, maps[1:], strict=True):
        stored = wire.event_to_proto(event).SerializeToString()
        assert wire.event_from_proto(events_pb.Event.FromString(stored)) == event
        folded = evolve(folded, event)
        assert folded == after
        assert evolve(after, event) is after, "a repeated difference changes nothing"

    # The tables of group 0: rows and digest are those of whole maps.
    engine = sql.create_engine("sqlite://")
    whole_engine = sql.create_engine("sqlite://")
    with engine.begin() as connection, whole_engine.begin() as whole:
        tables.METADATA.create_all(connection)
        tables.METADATA.create_all(whole)
        digest = fold_event(connection, ShardMapChanged(FIRST))
        whole_digest = fold_event(whole, ShardMapChanged(FIRST))
        for event, after in zip(events, maps[1:], strict=True):
            digest += fold_event(connection, event)
            whole_digest += fold_event(whole, ShardMapChanged(after))
        assert tables.load_state(connection).shard_map == maps[-1]
        assert digest % 2**64 == whole_digest % 2**64
    engine.dispose()
    whole_engine.dispose()

    # A node that starts from any version, with the changes in any pieces, some of them twice.
    start = data.draw(st.integers(0, len(events)))
    view = view_of(maps[start])
    while view.shard_map_version < maps[-1].version:
        known = view.shard_map_version - 1
        begin = data.draw(st.integers(0, known))
        end = data.draw(st.integers(known + 1, len(events)))
        view.apply(delta(maps[begin].version, events[:end]))
        assert view.shard_map == wire.shard_map_to_proto(maps[end])
        view.apply(delta(maps[begin].version, events[: data.draw(st.integers(begin, end))]))
        assert view.to_update() == view_of(maps[end]).to_update()
        for placement in maps[end].placements:
            assert view.has_led(placement.shard_id) is placement.has_led
        assert view.shard_ids == [placement.shard_id for placement in maps[end].placements]


@given(before=st.lists(runs(), max_size=4), after=st.lists(runs(), max_size=4))
@settings(max_examples=50, deadline=None)
def test_the_runs_between_two_tables_lead_from_one_to_the_other(
    before: list[SlotRun], after: list[SlotRun]
) -> None:
    one, other = FIRST.table.with_runs(2, before), FIRST.table.with_runs(3, after)

    found = one.runs_to(other)

    assert one.with_runs(3, found) == other
    assert all(run.last < later.first for run, later in itertools.pairwise(found))
    assert all(one.owners[run.first] != run.shard_id for run in found)


@pytest.mark.parametrize(
    "run", [SlotRun(3, 2, 1), SlotRun(-1, 2, 1), SlotRun(0, SLOT_COUNT, 1), SlotRun(0, 1, 0)]
)
def test_slots_that_are_none_are_refused_and_change_nothing(run: SlotRun) -> None:
    with pytest.raises(ValueError, match="no slots of a shard"):
        FIRST.table.with_runs(2, [run])


def test_a_difference_that_begins_behind_the_known_map_is_not_merged() -> None:
    view = view_of(FIRST)
    later = ShardChanged(3, (Placement(1, ("d",)),))
    update = delta(2, [later])

    assert view.misses_changes(update)
    with pytest.raises(ValueError, match="difference to version 2"):
        view.apply(update)
    assert view.shard_map == wire.shard_map_to_proto(FIRST)

    assert not view_of(evolve(FIRST, ShardChanged(2)) or FIRST).misses_changes(update)
    assert ClusterView().misses_changes(update)


def test_a_map_that_does_not_say_who_has_led_keeps_its_meaning_under_differences() -> None:
    earlier = ShardMap(SlotTable(7, FIRST.table.owners), FIRST.placements)
    stored = wire.shard_map_to_proto(earlier)
    for placement in stored.shards:
        placement.has_led = False
    view = ClusterView()
    view.apply(cluster_pb.ClusterUpdate(shard_map=stored))

    view.apply(
        delta(7, [ShardChanged(8, (Placement(4, ("a",)), Placement(2, ("b",), has_led=True)))])
    )

    again = ClusterView()
    again.apply(view.to_update())
    for known in (view, again):
        led = {shard_id: known.has_led(shard_id) for shard_id in known.shard_ids}
        assert led == {1: True, 2: True, 3: True, 4: False, 9: True}


def test_a_later_map_decides_where_slots_are_that_their_shard_gave_away() -> None:
    view = view_of(FIRST)
    assert view.learn_move([(0, 9)], 3, shard_map_version=1)

    view.apply(delta(1, [ShardChanged(2, (), (SlotRun(3, 3, 9),))]))

    assert view.slot_table == FIRST.table.with_runs(2, [SlotRun(3, 3, 9)])
    assert (
        view.shard_map == view_of(evolve(FIRST, ShardChanged(2, (), (SlotRun(3, 3, 9),)))).shard_map
    )


def test_a_version_that_is_left_out_breaks_the_fold() -> None:
    with pytest.raises(AssertionError, match="version 3 follows 1"):
        evolve(FIRST, ShardChanged(3))


# The manager --------------------------------------------------------------------------------------


def wish(node_id: str) -> cluster_pb.ChangeReplicasRequest:
    add = cluster_pb.ChangeReplicasRequest.CHANGE_ADD
    return cluster_pb.ChangeReplicasRequest(shard_id=1, node_id=node_id, change=add)


async def joined(one: ManagerUnderTest, node_id: str, **said: object) -> NodeConnection:
    who = hello(node_id)
    who.MergeFrom(cluster_pb.Hello(**said))  # type: ignore[arg-type]
    return await one.manager.join(who)


@pytest.fixture
async def led(tmp_path: Path) -> ManagerUnderTest:
    """A manager whose shards have all been led: its map is at version 2."""
    one = ManagerUnderTest(tmp_path)
    connections = await one.join_shard_nodes()
    for connection in connections:
        await taken(connection)
    for shard_id in (1, 2):
        report = cluster_pb.LeaderReport(shard_id=shard_id, term=1, node_id="a", grpc="a:1")
        one.manager.receive(connections[0], cluster_pb.NodeMessage(leader=report))
    await settle()
    await balance(one.manager, on=False)
    return one


async def test_a_change_is_pushed_as_its_difference_and_whole_to_nodes_that_take_none(
    led: ManagerUnderTest,
) -> None:
    older, newer = await joined(led, "c"), await joined(led, "d", takes_deltas=True)
    await settle()
    views = [ClusterView(), ClusterView()]
    for view, connection in zip(views, (older, newer), strict=True):
        for update in await taken(connection):
            view.apply(update)
    led.updates.clear()

    await led.manager.change_replicas(wish("c"))
    await settle()

    (whole,), (small,) = await taken(older), await taken(newer)
    assert (whole.shard_map.version, whole.HasField("map_delta")) == (3, False)
    assert (small.map_delta.from_version, small.map_delta.version) == (2, 3)
    assert not small.HasField("shard_map")
    assert [list(placement.joining) for placement in small.map_delta.changed] == [["c"]]
    assert small.ByteSize() < 100 < whole.ByteSize()
    assert led.updates == [small], "the manager's own view follows by differences too"
    for view, update in zip(views, (whole, small), strict=True):
        view.apply(update)
    assert views[0].shard_map == views[1].shard_map


async def test_a_node_that_knows_the_map_is_not_sent_it_again(led: ManagerUnderTest) -> None:
    for said, has_map in (
        ({"takes_deltas": True, "shard_map_version": 2}, False),
        ({"takes_deltas": True, "shard_map_version": 3}, False),
        ({"takes_deltas": True, "shard_map_version": 1}, True),
        ({"shard_map_version": 2}, True),
    ):
        connection = await joined(led, "a", **said)
        full, *_ = await taken(connection)
        assert full.full
        assert full.HasField("shard_map") is has_map, said
        assert len(full.leaders) == 2


async def test_the_log_has_differences_once_every_replica_knows_them(
    led: ManagerUnderTest,
) -> None:
    newer = await joined(led, "d", takes_deltas=True)
    await joined(led, "c")
    await settle()
    await taken(newer)
    led.log.event_levels[NodeId("cm-2")] = EVENT_LEVEL - 1

    await led.manager.change_replicas(wish("c"))
    led.log.event_levels.clear()
    await led.manager.change_replicas(wish("d"))
    await settle()

    term = led.manager.leader_term
    assert term is not None
    stored = [
        type(event).__name__
        for entry in led.log.read(1, events_max=1_000, bytes_max=10**7)
        for event in wire.events_of_entry(entry)
        if isinstance(event, ShardMapChanged | ShardChanged)
    ]
    assert stored == ["ShardMapChanged", "ShardChanged", "ShardMapChanged", "ShardChanged"]
    first, second = await taken(newer)
    assert first.shard_map.version == 3
    assert (second.map_delta.from_version, second.map_delta.version) == (3, 4)
    shard_map = term.committed.shard_map
    assert shard_map is not None
    assert shard_map == term.pending.shard_map
    assert shard_map.placements[0].joining == ("c", "d")
    with led.store.read_transaction() as connection:
        assert tables.load_state(connection).shard_map == shard_map
