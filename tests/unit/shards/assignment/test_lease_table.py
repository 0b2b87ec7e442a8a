"""Leases in force, and when to renew them."""

from __future__ import annotations

from nextgen.kernel.limits.placement import LEASE_UNUSED_MS
from protos.nextgen.v1.cluster_service_pb2 import CapacityLease, LeaseReturn
from shards.assignment.lease_table import GivenUnits, Lease, LeaseTable
from shards.domain.slots.events import CountedUnits, OutgoingSlots

UNUSED_S = LEASE_UNUSED_MS / 1000


def lease(
    session_id: str, units: int = 10, ttl_ms: int = 90_000, version: int = 0
) -> CapacityLease:
    return CapacityLease(
        broker_id="b", session_id=session_id, units=units, ttl_ms=ttl_ms, version=version
    )


def table_of(units: int, *uses: tuple[float, int], version: int = 3) -> LeaseTable:
    """Return a table with a lease on "s", and what was used of it when."""
    table = LeaseTable()
    table.replace([lease("s", units, version=version)], asked_at=0.0)
    for at, used in uses:
        table.note_use("s", used, at)
    return table


def test_a_lease_is_in_force_from_its_request_on_for_its_time() -> None:
    table = LeaseTable()

    table.replace([lease("s", 10, 1_000)], asked_at=100.0)

    assert table.lease("s", 100.999) == Lease("b", "s", 10, 101.0)
    assert table.lease("s", 101.0) is None
    assert table.lease("other", 100.0) is None


def test_an_answer_replaces_all_that_was_known() -> None:
    table = LeaseTable()
    table.replace([lease("a"), lease("b")], asked_at=0.0)

    table.replace([lease("b", 20)], asked_at=1.0)

    assert table.session_ids() == ("b",)
    assert table.units_leased == 20


def test_renewal_is_due_at_a_third_of_the_shortest_time_left() -> None:
    table = LeaseTable()
    assert table.renew_at(10.0) is None

    table.replace([lease("a", ttl_ms=90_000), lease("b", ttl_ms=60_000)], asked_at=10.0)

    assert table.renew_at(10.0) == 30.0


def test_a_dropped_lease_is_gone() -> None:
    table = LeaseTable()
    table.replace([lease("a")], asked_at=0.0)

    table.drop("a")
    table.drop("a")

    assert table.lease("a", 0.0) is None


def returned(units: int, version: int = 3) -> LeaseReturn:
    return LeaseReturn(broker_id="b", session_id="s", units=units, version=version)


def test_what_was_not_needed_for_long_is_given_back_and_used_no_more() -> None:
    table = table_of(100, (0.0, 20), (UNUSED_S, 20))

    table.begin_returns({"s": 10})

    assert table.returns() == [returned(30)]
    assert table.lease("s", 1.0) == Lease("b", "s", 30, 90.0, 3)


def test_nothing_is_given_back_before_it_was_unused_for_long() -> None:
    table = table_of(100, (0.0, 20), (UNUSED_S - 0.001, 20))

    table.begin_returns({"s": 10})

    assert table.returns() == []
    assert table.lease("s", 1.0) == Lease("b", "s", 100, 90.0, 3)


def test_a_peak_is_remembered_for_as_long_as_unused_units_are_kept() -> None:
    table = table_of(100, (0.0, 0), (UNUSED_S - 1, 90), (UNUSED_S, 0), (2 * UNUSED_S - 1, 0))
    table.begin_returns({"s": 10})
    assert table.returns() == []

    table.note_use("s", 0, 2 * UNUSED_S)
    table.begin_returns({"s": 10})

    assert table.returns() == [returned(10)]


def test_a_return_is_said_and_kept_until_a_later_version_is_told() -> None:
    """An answer of the same version may have passed a copy of the return that is on its way."""
    table = table_of(100, (0.0, 20), (UNUSED_S, 20))
    table.begin_returns({"s": 10})

    table.replace([lease("s", 100, version=3)], asked_at=1.0)
    assert table.returns() == [returned(30)]
    assert table.lease("s", 1.0) == Lease("b", "s", 30, 91.0, 3)

    table.replace([lease("s", 45, version=5)], asked_at=2.0)
    assert table.returns() == []
    assert table.lease("s", 2.0) == Lease("b", "s", 45, 92.0, 5)


def test_a_return_is_repeated_as_it_was_though_less_is_needed_by_then() -> None:
    table = table_of(100, (0.0, 20), (UNUSED_S, 20))
    table.begin_returns({"s": 10})

    for at in (2 * UNUSED_S, 3 * UNUSED_S):
        table.note_use("s", 0, at)
    table.begin_returns({"s": 10})

    assert table.returns() == [returned(30)]


def test_a_return_outlives_an_answer_without_the_lease() -> None:
    table = table_of(100, (0.0, 20), (UNUSED_S, 20))
    table.begin_returns({"s": 10})

    table.replace([], asked_at=1.0)
    table.replace([lease("s", 100, version=3)], asked_at=2.0)

    assert table.returns() == [returned(30)]
    assert table.lease("s", 2.0) == Lease("b", "s", 30, 92.0, 3)


def test_returns_of_sessions_that_ended_are_forgotten() -> None:
    table = table_of(100, (0.0, 20), (UNUSED_S, 20))
    table.begin_returns({"s": 10})

    table.forget_sessions({"s", "other"})
    assert table.returns() == [returned(30)]
    table.forget_sessions({"other"})

    assert table.returns() == []


def test_a_cluster_manager_that_tells_no_versions_is_returned_nothing() -> None:
    table = table_of(100, (0.0, 0), (UNUSED_S, 0), version=0)

    table.begin_returns({"s": 10})

    assert table.returns() == []


def test_a_session_without_a_known_first_block_returns_nothing() -> None:
    table = table_of(100, (0.0, 0), (UNUSED_S, 0))

    table.begin_returns({})

    assert table.returns() == []


# Less capacity than is leased --------------------------------------------------------------------


def bounded(units: int, keep: int, version: int = 3) -> CapacityLease:
    stated = lease("s", units, version=version)
    stated.units_to_keep = keep
    return stated


def shrinking_table(units: int, used: int, keep: int) -> LeaseTable:
    table = table_of(units, (0.0, used))
    table.replace([bounded(units, keep)], asked_at=1.0)
    return table


def test_above_the_bound_nothing_is_assigned_and_what_is_not_used_is_returned() -> None:
    table = shrinking_table(100, used=20, keep=30)
    assert table.lease("s", 2.0) == Lease("b", "s", 30, 91.0, 3, 30)
    assert table.may_return_excess

    table.begin_excess_returns()

    assert table.returns() == [returned(30)]
    assert table.excess("s", 20) == 0


def test_what_is_used_above_the_bound_has_to_leave_and_is_returned_only_then() -> None:
    table = shrinking_table(100, used=50, keep=30)
    assert table.excess("s", 50) == 20
    assert table.lease("s", 2.0) == Lease("b", "s", 30, 91.0, 3, 30)

    table.begin_excess_returns()
    assert table.returns() == [returned(50)]
    table.note_use("s", 40, 3.0)
    table.begin_excess_returns()
    assert table.returns() == [returned(50)], "a return is not changed once it was sent"
    table.replace([bounded(50, 30, version=4)], asked_at=4.0)
    table.begin_excess_returns()

    assert table.returns() == [returned(40, version=4)]


def test_a_bound_that_is_gone_gives_the_lease_back() -> None:
    table = shrinking_table(100, used=20, keep=30)

    table.replace([lease("s", 100, version=3)], asked_at=2.0)

    assert table.lease("s", 3.0) == Lease("b", "s", 100, 92.0, 3)
    assert not table.may_return_excess
    assert table.excess("s", 100) == 0


def test_a_session_without_a_lease_has_no_excess() -> None:
    assert LeaseTable().excess("s", 10) == 0


def test_units_above_the_bound_are_not_taken_for_unused_ones() -> None:
    """Of 50 used units 20 have to leave: the return for lack of use must not name fewer than 50."""
    table = table_of(100, (0.0, 50), (UNUSED_S, 50))
    table.replace([bounded(100, 30)], asked_at=1.0)

    table.begin_returns({"s": 10})

    assert table.returns() == []


def outgoing(move_id: int, units: int) -> OutgoingSlots:
    return OutgoingSlots(move_id, ((5, 9),), 2, (CountedUnits("s", units),), (), 0)


def test_units_that_left_with_slots_are_not_used_here() -> None:
    table = table_of(100)

    table.give({"s": 30})
    assert table.lease("s", 1.0) == Lease("b", "s", 70, 90.0, 3)

    table.replace([lease("s", 100, version=4)], asked_at=1.0)
    assert table.lease("s", 1.0) == Lease("b", "s", 70, 91.0, 4), "a renewal does not say they left"

    table.give({})
    assert table.lease("s", 1.0) == Lease("b", "s", 100, 91.0, 4)


def test_more_given_units_than_are_leased_leave_nothing_to_use() -> None:
    table = table_of(10)

    table.give({"s": 11, "of another broker": 1})

    assert table.lease("s", 1.0) == Lease("b", "s", 0, 90.0, 3)


def test_nothing_is_returned_while_the_ledger_is_to_take_units_away() -> None:
    table = table_of(100, (0.0, 20), (UNUSED_S, 20))
    table.give({"s": 30})

    table.begin_returns({"s": 10})
    assert table.returns() == []

    table.give({})
    table.begin_returns({"s": 10})
    assert table.returns() == [returned(30)]


def test_units_count_as_given_until_an_answer_that_was_requested_behind_the_move() -> None:
    moves = [outgoing(1, 30), outgoing(2, 5)]
    given = GivenUnits(lambda: moves)

    assert not given.look(1.0)
    assert given.units() == {"s": 35}
    given.stated(1.5)
    assert given.units() == {"s": 35}, "the move is in the record"

    del moves[0]
    assert given.look(2.0)
    given.stated(1.9)
    assert given.units() == {"s": 35}, "this answer may not have the change"

    given.stated(2.1)
    assert given.units() == {"s": 5}
    assert not given.look(3.0)
