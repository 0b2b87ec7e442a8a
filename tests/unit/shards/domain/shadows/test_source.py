"""The record of a source: every order, in every condition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from shards.domain.shadows.source import (
    EVERY_SHARD,
    INITIAL,
    HoldSource,
    RecordShadowShard,
    RemoveSource,
    ShadowShardRecorded,
    ShadowSource,
    ShadowSourceCreated,
    ShadowSourceHeld,
    ShadowSourceRemoved,
    decide,
    evolve,
)
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

NAME = "persistent://acme/orders/source"
CREATED = ShadowSourceCreated(NAME, "t-1")


def recorded(shard_id):
    return ShadowShardRecorded(NAME, "t-1", shard_id)


def given_events(*events):
    return fold(evolve, INITIAL, events)


def test_the_first_shard_begins_the_record():
    decision = decide(INITIAL, RecordShadowShard(NAME, "t-1", 3))

    assert decision == Accepted((CREATED, recorded(3)))


def test_shards_are_recorded_once_each_in_order():
    source = given_events(CREATED, recorded(3))

    assert decide(source, RecordShadowShard(NAME, "t-1", 3)) == Accepted(())
    assert decide(source, RecordShadowShard(NAME, "t-1", 1)) == Accepted((recorded(1),))
    assert given_events(CREATED, recorded(3), recorded(1)) == ShadowSource(NAME, "t-1", (1, 3))


def test_no_shard_is_recorded_beside_all_of_them():
    source = given_events(CREATED, recorded(EVERY_SHARD))

    assert decide(source, RecordShadowShard(NAME, "t-1", 3)) == Accepted(())


@pytest.mark.parametrize(
    "order", [RecordShadowShard(NAME, "t-2", 1), HoldSource(NAME, "t-2", growing_to=2)]
)
def test_an_order_about_another_topic_of_the_name_is_refused(order):
    decision = decide(given_events(CREATED), order)

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_FOUND


def test_a_hold_replaces_the_one_before_and_ends():
    held = ShadowSourceHeld(NAME, "t-1", True, 4)
    source = given_events(CREATED, recorded(1), held)

    assert (source.is_held, source.is_deleting, source.growing_to) == (True, True, 4)
    assert decide(source, HoldSource(NAME, "t-1", True, 4)) == Accepted(())
    released = decide(source, HoldSource(NAME, "t-1"))
    assert released == Accepted((ShadowSourceHeld(NAME, "t-1", False, 0),))
    assert not fold(evolve, source, released.events).is_held


def test_a_record_goes_with_its_topic_alone():
    source = given_events(CREATED, recorded(1))
    removed = ShadowSourceRemoved(NAME, "t-1")

    assert decide(source, RemoveSource(NAME, "t-2")) == Accepted(())
    assert decide(source, RemoveSource(NAME, "t-1")) == Accepted((removed,))
    assert evolve(source, removed) is None


ids = st.sampled_from(["t-1", "t-2"])
commands = st.one_of(
    st.builds(RecordShadowShard, st.just(NAME), ids, st.integers(0, 3)),
    st.builds(HoldSource, st.just(NAME), ids, st.booleans(), st.integers(0, 2)),
    st.builds(RemoveSource, st.just(NAME), ids),
)
SOURCE = AggregateUnderTest(decide, evolve, StateKind.SHADOW_SOURCE, lambda state: state.name)


@given(history=st.lists(commands, max_size=15), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(SOURCE, history, command, cut)
