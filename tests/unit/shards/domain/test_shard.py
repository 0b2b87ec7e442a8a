"""The slots of a shard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.events.generations import EPOCHS_MAX
from nextgen.kernel.limits.cluster import SLOT_COUNT
from shards.domain.shard import (
    INITIAL,
    SHARD_KEY,
    AdoptSlots,
    MarkRestore,
    RestoreMarked,
    RestorePhase,
    Shard,
    SlotsAdopted,
    decide,
    evolve,
)
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

RANGES = ((0, 99), (200, 299))


def test_an_empty_log_adopts_the_slots_of_the_map():
    decision = decide(INITIAL, AdoptSlots(RANGES, 3))

    assert decision == Accepted((SlotsAdopted(RANGES, 3),))
    assert evolve(INITIAL, decision.events[0]) == Shard(RANGES, 3)


def test_an_empty_log_adopts_no_slots_where_the_map_has_none_for_it():
    decision = decide(INITIAL, AdoptSlots((), 3))

    assert decision == Accepted((SlotsAdopted((), 3),))


@pytest.mark.parametrize("ranges", [RANGES, ((0, 99),), ()])
@pytest.mark.parametrize("adopted", [RANGES, ()])
def test_a_log_that_has_adopted_slots_adopts_none_of_a_map_whatever_it_says(adopted, ranges):
    assert decide(Shard(adopted, 3), AdoptSlots(ranges, 4)) == Accepted(())


@pytest.mark.parametrize("bad", [(-1, 4), (5, 4), (0, SLOT_COUNT)])
def test_what_is_no_range_of_slots_is_refused(bad):
    decision = decide(INITIAL, AdoptSlots((bad,), 1))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.LIMIT_EXCEEDED


BEGUN, ENDED, ABANDONED = RestorePhase.BEGUN, RestorePhase.ENDED, RestorePhase.ABANDONED
EMPTY = Shard(RANGES, 1)


def marked(*phases: RestorePhase) -> Shard:
    shard = EMPTY
    for phase in phases:
        shard = evolve(shard, RestoreMarked("one", phase, 7 << 32))
    return shard


@pytest.mark.parametrize(
    ("shard", "phase", "restore_id", "objects", "expected"),
    [
        (EMPTY, BEGUN, "one", 0, True),
        (EMPTY, BEGUN, "one", 1, "has 1 tenants"),
        (EMPTY, ENDED, "one", 0, "it was not begun"),
        (EMPTY, ABANDONED, "one", 0, False),
        (marked(BEGUN), BEGUN, "one", 9, False),
        (marked(BEGUN), BEGUN, "two", 0, "of backup one has not ended"),
        (marked(BEGUN), ENDED, "one", 9, True),
        (marked(BEGUN), ENDED, "two", 9, "it was not begun"),
        (marked(BEGUN), ABANDONED, "one", 0, True),
        (marked(BEGUN), ABANDONED, "one", 1, "has 1 tenants"),
        (marked(BEGUN), ABANDONED, "two", 0, "of backup one has not ended"),
        (marked(BEGUN, ABANDONED), BEGUN, "one", 0, True),
        (marked(BEGUN, ABANDONED), BEGUN, "two", 0, True),
        (marked(BEGUN, ABANDONED), ENDED, "one", 0, "it was not begun"),
        (marked(BEGUN, ENDED), ENDED, "one", 9, False),
        (marked(BEGUN, ENDED), BEGUN, "one", 9, False),
        (marked(BEGUN, ENDED), BEGUN, "two", 9, "has 9 tenants"),
        (marked(BEGUN, ENDED), BEGUN, "two", 0, True),
        (INITIAL, BEGUN, "one", 0, "has not adopted"),
    ],
)
def test_a_restore_begins_in_an_empty_shard_and_ends_once(
    shard, phase, restore_id, objects, expected
):
    decision = decide(shard, MarkRestore(restore_id, phase, objects, 7 << 32))

    if isinstance(expected, str):
        assert isinstance(decision, Rejected)
        assert decision.code is RejectionCode.NOT_ALLOWED
        assert expected in decision.message
    else:
        assert decision == Accepted((RestoreMarked(restore_id, phase, 7 << 32),) * expected)


def test_the_least_epoch_only_grows_and_no_epoch_is_beyond_the_last_generation():
    shard = evolve(marked(BEGUN, ENDED), RestoreMarked("two", BEGUN, 3 << 32))

    assert (shard.restore_id, shard.is_restoring, shard.least_epoch) == ("two", True, 7 << 32)
    decision = decide(EMPTY, MarkRestore("one", BEGUN, 0, EPOCHS_MAX))
    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.LIMIT_EXCEEDED
    assert isinstance(decide(EMPTY, MarkRestore("one", BEGUN, 0, EPOCHS_MAX - 1)), Accepted)


ranges = st.sampled_from([(), RANGES, ((0, SLOT_COUNT - 1),), ((9, 2),)])
commands = st.one_of(
    st.builds(AdoptSlots, ranges, st.integers(1, 3)),
    st.builds(
        MarkRestore,
        st.sampled_from(["one", "two"]),
        st.sampled_from(RestorePhase),
        st.integers(0, 1),
        st.just(1 << 32),
    ),
)
SHARD = AggregateUnderTest(decide, evolve, StateKind.SHARD, lambda _: SHARD_KEY)


@given(history=st.lists(commands, max_size=5), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(SHARD, history, command, cut)
