"""The slots of a shard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import SLOT_COUNT
from shards.domain.shard import INITIAL, SHARD_KEY, AdoptSlots, Shard, SlotsAdopted, decide, evolve
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

RANGES = ((0, 99), (200, 299))


def test_an_empty_log_adopts_the_slots_of_the_map():
    decision = decide(INITIAL, AdoptSlots(RANGES, 3))

    assert decision == Accepted((SlotsAdopted(RANGES, 3),))
    assert evolve(INITIAL, decision.events[0]) == Shard(RANGES, 3)


def test_the_same_slots_are_not_adopted_twice_whatever_the_version():
    assert decide(Shard(RANGES, 3), AdoptSlots(RANGES, 4)) == Accepted(())


def test_other_slots_are_refused():
    decision = decide(Shard(RANGES, 3), AdoptSlots(((0, 99),), 4))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


@pytest.mark.parametrize("bad", [(-1, 4), (5, 4), (0, SLOT_COUNT)])
def test_what_is_no_range_of_slots_is_refused(bad):
    decision = decide(INITIAL, AdoptSlots((bad,), 1))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.LIMIT_EXCEEDED


ranges = st.sampled_from([(), RANGES, ((0, SLOT_COUNT - 1),), ((9, 2),)])
commands = st.builds(AdoptSlots, ranges, st.integers(1, 3))
SHARD = AggregateUnderTest(decide, evolve, StateKind.SHARD, lambda _: SHARD_KEY)


@given(history=st.lists(commands, max_size=5), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(SHARD, history, command, cut)
