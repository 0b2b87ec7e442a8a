"""Intervals of acknowledgements: what overlaps, what the log must know, what is bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.audit.interval_check import (
    AcknowledgedInterval,
    Grant,
    IntervalAudit,
)
from nextgen.kernel.limits.placement import AUDIT_EPOCHS_PER_UNIT_MAX
from tests.support.history.intervals import check_intervals

MS = 1_000_000


def interval(epoch, first, last, broker="a", unit=""):
    return AcknowledgedInterval(broker, "t", "id", unit, epoch, first * MS, last * MS, 1)


def grant(epoch, broker="a", unit=""):
    return Grant("id", unit, epoch, broker, f"1:{epoch}")


GRANTS = [grant(1, "a"), grant(2, "b"), grant(3, "a")]


def messages(intervals, grants=GRANTS, **options):
    return [finding.message for finding in check_intervals(intervals, grants, **options)]


def test_owners_that_follow_each_other_are_good():
    chain = [interval(1, 10, 20), interval(2, 21, 30, "b"), interval(3, 30, 40)]

    assert messages(chain) == []


def test_an_epoch_that_acknowledges_after_the_next_has_begun_is_an_overlap():
    (message,) = messages([interval(1, 10, 22), interval(2, 21, 30, "b")])

    assert message == (
        "t was acknowledged by broker a under epoch 1 until 1.000 ms after broker b under "
        "epoch 2 had begun"
    )


def test_an_epoch_that_comes_back_long_after_is_an_overlap_too():
    assert len(messages([interval(2, 21, 30, "b"), interval(1, 50, 60)])) == 1


@pytest.mark.parametrize(("last", "found"), [(26, 0), (27, 1)])
def test_clocks_of_machines_may_differ_by_the_tolerance_and_no_more(last, found):
    intervals = [interval(1, 10, last), interval(2, 21, 30, "b")]

    assert len(messages(intervals, tolerance_ns=5 * MS)) == found


def test_units_of_one_topic_are_apart():
    intervals = [interval(1, 10, 30, unit="p1"), interval(2, 20, 40, "b", unit="p2")]

    assert messages(intervals, [grant(1, unit="p1"), grant(2, "b", unit="p2")]) == []


def test_two_brokers_under_one_epoch_are_an_overlap_whenever_it_was():
    found = messages([interval(2, 10, 20, "b"), interval(2, 30, 40, "a")])

    assert any("under the same" in message for message in found)


def test_an_epoch_that_is_not_in_the_log_is_found_once_the_log_was_read():
    audit = IntervalAudit()
    audit.granted(grant(1))

    assert audit.heard(interval(2, 10, 20)) == []
    (finding,) = audit.log_is_read()

    assert "which is not in the log" in finding.message
    assert audit.log_is_read() == [], "told once"


def test_a_log_that_is_behind_is_waited_for():
    audit = IntervalAudit()
    audit.heard(interval(1, 10, 20))
    audit.granted(grant(1))

    assert (audit.unknown, audit.log_is_read()) == (0, [])


def test_what_was_heard_after_the_log_was_read_is_not_judged_by_it():
    audit = IntervalAudit()
    audit.heard(interval(1, 10, 20))
    marked = audit.intervals
    audit.heard(interval(2, 30, 40))
    audit.heard(interval(1, 10, 25))

    assert [finding.key for finding in audit.log_is_read(marked)] == ["t"]
    assert audit.unknown == 1


def test_an_acknowledgement_under_the_epoch_of_another_is_found():
    expected = "t was acknowledged by broker c under epoch 2, which the log gave to b at 1:2"

    assert messages([interval(2, 10, 20, "c")]) == [expected]
    audit = IntervalAudit()
    audit.heard(interval(2, 10, 20, "c"))
    assert [finding.message for finding in audit.granted(grant(2, "b"))] == [expected]


def test_an_epoch_that_the_log_gives_twice_is_found():
    assert len(messages([], [grant(1, "a"), grant(1, "b")])) == 1


def test_of_a_log_that_was_cut_only_what_is_certain_is_said():
    grants = [grant(5), grant(6)]
    older, newer = interval(4, 10, 20), interval(7, 30, 40)
    audit = IntervalAudit()
    audit.has_whole_log = False
    for each in grants:
        audit.granted(each)
    audit.heard(older)
    audit.heard(newer)

    (finding,) = audit.log_is_read()

    assert "epoch 7" in finding.message
    assert audit.unjudged == 1


@pytest.mark.parametrize(
    "bad",
    [
        replace(interval(1, 10, 20), first_ns=0),
        interval(1, 20, 10),
        replace(interval(1, 10, 20), epoch=0),
        replace(interval(1, 10, 20), acknowledged=0),
    ],
)
def test_an_interval_that_cannot_be_is_found(bad):
    audit = IntervalAudit()

    assert [finding.key for finding in audit.heard(bad)] == ["t"]
    assert audit.units == 0


def test_an_overlap_is_reported_once_however_often_it_is_observed():
    audit = IntervalAudit()
    for each in GRANTS:
        audit.granted(each)
    found = []
    for last in range(22, 30):
        found += audit.heard(interval(1, 10, last))
        found += audit.heard(interval(2, 21, 40, "b"))

    assert len(found) == 1


def test_only_the_latest_epochs_of_a_unit_are_remembered():
    def overlap_with_the_first(epochs):
        audit = IntervalAudit()
        for epoch in range(1, epochs + 1):
            audit.heard(interval(epoch, epoch * 10, epoch * 10 + 5))
        return audit.heard(interval(epochs, 12, epochs * 10 + 5))

    remembered = overlap_with_the_first(AUDIT_EPOCHS_PER_UNIT_MAX)
    forgotten = overlap_with_the_first(AUDIT_EPOCHS_PER_UNIT_MAX + 1)

    assert len(remembered) == AUDIT_EPOCHS_PER_UNIT_MAX - 1
    assert len(forgotten) == AUDIT_EPOCHS_PER_UNIT_MAX - 1, "the first epoch is not compared"


def test_a_unit_that_was_forgotten_raises_no_alarm_when_it_is_heard_of_again():
    audit = IntervalAudit(units_max=3)
    for number in range(4):
        audit.granted(grant(1, unit=f"p{number}"))
    assert audit.units == 3

    assert audit.heard(interval(1, 10, 20, unit="p0")) == []
    assert audit.log_is_read() == []
    assert audit.unjudged == 1

    audit.granted(grant(2, "b", unit="p0"))
    assert audit.heard(interval(1, 10, 20, unit="p0")) == []
    assert audit.log_is_read() == []
    audit.heard(interval(3, 30, 40, unit="p0"))
    assert len(audit.log_is_read()) == 1, "what is behind the epochs that are known is judged"


@pytest.mark.parametrize(("units", "found"), [(3, 1), (4, 0)])
def test_only_so_many_units_are_remembered(units, found):
    audit = IntervalAudit(units_max=3)
    audit.heard(interval(1, 10, 30, unit="p0"))
    for number in range(1, units):
        audit.heard(interval(1, 10, 30, unit=f"p{number}"))

    assert len(audit.heard(interval(2, 20, 40, "b", unit="p0"))) == found
    assert audit.units == 3


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=2, max_size=6)


@given(SPANS, st.integers(0, 20), st.randoms(use_true_random=False))
def test_the_order_in_which_reports_come_changes_nothing(spans, tolerance, random):
    intervals = [
        interval(epoch, start + 1, start + length)
        for epoch, (start, length) in enumerate(spans, start=1)
    ]
    grants = [grant(epoch) for epoch in range(1, len(spans) + 1)]
    expected = any(
        lower.last_ns > higher.first_ns + tolerance * MS
        for at, lower in enumerate(intervals)
        for higher in intervals[at + 1 :]
    )
    # As brokers report: an interval grows.
    reports = [replace(each, last_ns=each.first_ns) for each in intervals] + intervals
    random.shuffle(reports)

    found = messages(reports, grants, tolerance_ns=tolerance * MS)

    assert bool(found) == expected
