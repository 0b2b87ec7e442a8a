"""What is known of a producer's sends afterwards."""

from __future__ import annotations

import pytest

from nextgen.harness.load.pulsar.send_record import SendRecord


def record_of(*sends: tuple[float, float | None]) -> SendRecord:
    """Return a record of (sent, acknowledged) times; None: never."""
    record = SendRecord()
    for sent_at, _ in sends:
        record.sent(sent_at)
    for number, (_, acknowledged_at) in enumerate(sends):
        if acknowledged_at is not None:
            record.acknowledged(number, acknowledged_at)
    return record


def test_what_is_not_answered_is_in_flight():
    record = record_of((1.0, 1.1), (1.2, None), (1.3, None))

    record.failed("Timeout")

    assert (record.count, record.acknowledged_count, record.failed_count) == (3, 1, 1)
    assert record.in_flight == 1
    assert record.first_failure == "Timeout"
    assert record.acknowledged_ranges() == [[0, 0]]


def test_the_sends_in_flight_at_a_moment_were_sent_before_and_answered_after():
    record = record_of((1.0, 1.5), (1.0, 3.0), (2.0, None), (2.5, 2.6))

    assert record.in_flight_at(2.0) == 2


@pytest.mark.parametrize(
    ("from_s", "until_s", "gap_ms"),
    [(1.5, 1.6, 1_000), (2.5, 4.5, 3_000), (5.5, 6.0, 1_000), (0.5, 6.0, float("inf"))],
)
def test_the_gap_is_the_longest_one_that_touches_the_period(from_s, until_s, gap_ms):
    record = record_of(*[(at - 0.5, at) for at in (1.0, 2.0, 5.0, 6.0)])

    assert record.gap_ms(from_s, until_s) == pytest.approx(gap_ms)


def test_without_an_acknowledgement_after_it_a_gap_has_no_end():
    assert record_of((0.9, 1.0), (1.1, None)).gap_ms(1.5, 2.0) == float("inf")
    assert SendRecord().gap_ms(1.5, 2.0) == float("inf")


def test_the_longest_wait_is_of_one_send_or_between_two_acknowledgements():
    waited = record_of((1.0, 4.0), (1.0, 2.0), (1.0, 3.0))
    silent = record_of((1.0, 1.1), (6.0, 6.1))

    assert waited.longest_wait_ms() == pytest.approx(3_000)
    assert silent.longest_wait_ms() == pytest.approx(5_000)
    assert SendRecord().longest_wait_ms() == 0
