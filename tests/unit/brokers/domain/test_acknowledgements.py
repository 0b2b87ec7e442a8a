"""Intervals of acknowledgements that a broker remembers, and how many."""

from __future__ import annotations

from brokers.domain.acknowledgements import Acknowledgements
from nextgen.kernel.limits.placement import ACKNOWLEDGEMENTS_KEPT_MAX


def key(number=1, epoch=1):
    return (f"id-{number}", "", epoch)


def shown(acknowledgements):
    return [(each.key, each.first_ns, each.last_ns, each.entries) for each in acknowledgements]


def test_an_interval_grows_with_each_round():
    kept = Acknowledgements()
    interval = kept.opened(key(), "t")
    interval.note(10, 2)
    interval.note(15, 1)

    assert shown(kept) == [(key(), 10, 15, 3)]


def test_a_clock_that_is_set_back_does_not_shorten_an_interval():
    kept = Acknowledgements()
    interval = kept.opened(key(), "t")
    interval.note(10, 1)
    interval.note(5, 1)

    assert shown(kept) == [(key(), 10, 10, 2)]


def test_a_unit_without_acknowledged_messages_is_not_reported():
    kept = Acknowledgements()
    kept.opened(key(), "t")
    kept.closed(key())

    assert (shown(kept), len(kept)) == ([], 0)


def test_an_epoch_that_is_opened_again_goes_on_with_its_interval():
    kept = Acknowledgements()
    kept.opened(key(), "t").note(10, 1)
    kept.closed(key())
    kept.opened(key(), "t").note(20, 1)

    assert shown(kept) == [(key(), 10, 20, 2)]


def test_closed_units_are_remembered_up_to_a_bound_and_open_ones_beside_them():
    kept = Acknowledgements()
    kept.opened(key(0), "open").note(1, 1)
    for number in range(1, ACKNOWLEDGEMENTS_KEPT_MAX + 2):
        kept.opened(key(number), "t").note(number, 1)
        kept.closed(key(number))

    told = [each.key for each in kept]

    assert len(told) == ACKNOWLEDGEMENTS_KEPT_MAX + 1
    assert key(0) in told
    assert key(1) not in told
    assert key(2) in told


def test_intervals_may_come_and_go_during_an_iteration():
    kept = Acknowledgements()
    for number in (1, 2):
        kept.opened(key(number), "t").note(number, 1)

    seen = []
    for interval in kept:
        seen.append(interval.key)
        kept.closed(interval.key)

    assert seen == [key(1), key(2)]
