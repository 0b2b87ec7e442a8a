"""The shard map: the first one, its placements, and the four properties."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.domain.shard_map import (
    INITIAL,
    CreateShardMap,
    Placement,
    ShardMap,
    ShardMapChanged,
    State,
    decide,
    decide_led,
    evolve,
    place_replicas,
)
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import SHARDS_MAX, SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable, initial_table

THREE_NODES = ("shard-node-1", "shard-node-2", "shard-node-3")

commands = st.builds(
    CreateShardMap,
    node_ids=st.lists(st.sampled_from(["a", "b", "c"]), max_size=4).map(tuple),
    shards=st.integers(-1, 3),
    replication_factor=st.integers(-1, 4),
)


def _apply(state: State, command: CreateShardMap) -> State:
    decision = decide(state, command)
    return fold(evolve, state, decision.events) if isinstance(decision, Accepted) else state


def test_the_first_map_has_every_slot_and_a_placement_per_shard() -> None:
    decision = decide(INITIAL, CreateShardMap(THREE_NODES, shards=4, replication_factor=3))

    assert isinstance(decision, Accepted)
    (changed,) = decision.events
    assert changed.shard_map.version == 1
    assert changed.shard_map.shard_ids == (1, 2, 3, 4)
    assert changed.shard_map.table == initial_table([1, 2, 3, 4])
    assert all(sorted(p.replicas) == list(THREE_NODES) for p in changed.shard_map.placements)


def test_a_cluster_that_has_a_map_keeps_it_whatever_is_asked_for() -> None:
    state = _apply(INITIAL, CreateShardMap(THREE_NODES, shards=4, replication_factor=3))

    again = decide(state, CreateShardMap(("x",), shards=9, replication_factor=1))

    assert again == Accepted(())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (CreateShardMap(THREE_NODES, 0, 3), RejectionCode.LIMIT_EXCEEDED),
        (CreateShardMap(THREE_NODES, SHARDS_MAX + 1, 3), RejectionCode.LIMIT_EXCEEDED),
        (CreateShardMap(THREE_NODES, 4, 0), RejectionCode.LIMIT_EXCEEDED),
        (CreateShardMap(THREE_NODES, 4, 8), RejectionCode.LIMIT_EXCEEDED),
        (CreateShardMap(THREE_NODES[:2], 4, 3), RejectionCode.NOT_ALLOWED),
        (CreateShardMap((), 4, 1), RejectionCode.NOT_ALLOWED),
        (CreateShardMap(("a", "a"), 4, 2), RejectionCode.NOT_ALLOWED),
    ],
)
def test_a_map_that_cannot_be_is_refused(command: CreateShardMap, code: RejectionCode) -> None:
    decision = decide(INITIAL, command)

    assert isinstance(decision, Rejected)
    assert decision.code is code


@given(
    nodes=st.integers(1, 9),
    shards=st.integers(1, 24),
    replication_factor=st.integers(1, 5),
)
@settings(max_examples=40)
def test_placements_are_even(nodes: int, shards: int, replication_factor: int) -> None:
    node_ids = [f"node-{number}" for number in range(nodes)]
    replication_factor = min(replication_factor, nodes)

    placements = place_replicas(range(1, shards + 1), node_ids, replication_factor)

    first_replicas = Counter(placement.replicas[0] for placement in placements)
    held = Counter(node for placement in placements for node in placement.replicas)
    assert all(len(set(p.replicas)) == replication_factor for p in placements)
    assert _spread(first_replicas, node_ids) <= 1
    assert _spread(held, node_ids) <= 2
    assert placements == place_replicas(range(1, shards + 1), node_ids[::-1], replication_factor)


def _spread(counts: Counter[str], node_ids: list[str]) -> int:
    return max(counts[node] for node in node_ids) - min(counts[node] for node in node_ids)


@given(history=st.lists(commands, max_size=5), command=commands)
@settings(max_examples=40)
def test_retry(history: list[CreateShardMap], command: CreateShardMap) -> None:
    state = INITIAL
    for earlier in history:
        state = _apply(state, earlier)

    if isinstance(decide(state, command), Accepted):
        assert decide(_apply(state, command), command) == Accepted(())


@given(history=st.lists(commands, max_size=5))
@settings(max_examples=40)
def test_replay_and_snapshot(history: list[CreateShardMap]) -> None:
    state, events, engine = INITIAL, [], sql.create_engine("sqlite://")
    with engine.begin() as connection:
        tables.METADATA.create_all(connection)
        for command in history:
            decision = decide(state, command)
            for event in decision.events if isinstance(decision, Accepted) else ():
                events.append(event)
                fold_event(connection, event)
            state = _apply(state, command)
        restored = tables.load_state(connection).shard_map
    engine.dispose()

    assert restored == state
    assert fold(evolve, INITIAL, events) == state


def test_snapshot_of_a_later_map_replaces_the_earlier_one() -> None:
    table = initial_table([1, 2])
    earlier = ShardMap(table, (Placement(1, ("a", "b")), Placement(2, ("b", "a"))))
    later = ShardMap(type(table)(2, table.owners), (Placement(2, ("c",)), Placement(1, ("b",))))
    engine = sql.create_engine("sqlite://")

    with engine.begin() as connection:
        tables.METADATA.create_all(connection)
        fold_event(connection, ShardMapChanged(earlier))
        fold_event(connection, ShardMapChanged(later))
        restored = tables.load_state(connection).shard_map
    engine.dispose()

    assert restored is not None
    assert restored.table == later.table
    assert sorted(restored.placements, key=lambda p: p.shard_id) == [
        Placement(1, ("b",)),
        Placement(2, ("c",)),
    ]


@given(history=st.lists(commands, max_size=5))
@settings(max_examples=40)
def test_total(history: list[CreateShardMap]) -> None:
    state = INITIAL
    for command in history:
        assert isinstance(decide(state, command), Accepted | Rejected)
        state = _apply(state, command)

    assert state is None or len(state.table.owners) == SLOT_COUNT


def test_the_first_map_ends_once_every_shard_has_been_led() -> None:
    first = _apply(INITIAL, CreateShardMap(THREE_NODES, shards=3, replication_factor=2))
    assert first is not None

    assert decide_led(first, [1]).events == ()
    (changed,) = decide_led(first, [1, 2, 3]).events

    after = evolve(first, changed)
    led = tuple(replace(each, has_led=True) for each in first.placements)
    assert after == ShardMap(SlotTable(2, first.table.owners), led), "nothing else is different"
    assert decide_led(after, [1, 2, 3]).events == ()
    assert decide_led(None, [1]).events == ()


def test_shards_that_were_added_are_recorded_when_they_have_led_all_that_are_known() -> None:
    first = _apply(INITIAL, CreateShardMap(THREE_NODES, shards=2, replication_factor=2))
    assert first is not None
    added = tuple(Placement(shard_id, ("b",)) for shard_id in (3, 4, 5))
    both = evolve(first, *decide_led(first, [1, 2]).events)
    assert both is not None
    grown = ShardMap(SlotTable(7, first.table.owners), (*both.placements, *added))

    assert decide_led(grown, [1, 2]).events == ()
    (changed,) = decide_led(grown, [1, 3, 5]).events

    assert [each.shard_id for each in changed.changed] == [3, 5]
    after = evolve(grown, changed)
    assert after is not None
    assert after.version == 8
    assert after.table.owners == grown.table.owners
    led = {each.shard_id: each.has_led for each in after.placements}
    assert led == {1: True, 2: True, 3: True, 4: False, 5: True}
    assert decide_led(after, [1, 2, 3, 5]).events == ()
