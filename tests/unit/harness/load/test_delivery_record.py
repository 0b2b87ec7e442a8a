"""What counts as lost, duplicated, redelivered and out of order."""

from __future__ import annotations

import pytest

from nextgen.harness.load.pulsar.delivery_record import ACK_SETTLED_MS, RECONNECT_MS, DeliveryRecord
from nextgen.harness.load.pulsar.message_stamp import numbers_in, ranges_of, stamp_of, stamped

SETTLED_S = ACK_SETTLED_MS / 1000
RECONNECT_S = RECONNECT_MS / 1000


def place(entry: int, *, partition: int = -1, ledger: int = 1) -> tuple[int, int, int, int]:
    return (ledger, entry, partition, -1)


def kill(at_s: float) -> tuple[float, float]:
    return (at_s, at_s)


def test_what_arrived_once_and_in_order_leaves_no_complaint():
    record = DeliveryRecord()
    for number in range(3):
        record.arrive(0, number, place(number), 1.0)

    assert record.missing({0: [[0, 2]]}) == []
    assert (record.arrived, record.out_of_order, record.stored_twice) == (3, 0, 0)
    assert record.duplicated([]) == []


def test_an_acknowledged_send_that_never_came_is_lost_and_others_are_not():
    record = DeliveryRecord()
    record.arrive(0, 0, place(0), 1.0)
    record.arrive(1, 5, place(0), 1.0)

    assert record.missing({0: [[0, 1]], 1: [[5, 5]], 2: []}) == [(0, 1)]


def test_a_message_stored_twice_is_found_whatever_was_killed():
    record = DeliveryRecord()
    record.arrive(0, 0, place(0), 10.0)
    record.arrive(0, 0, place(1, ledger=2), 10.1)

    assert record.stored_twice == 1
    assert record.again == []


@pytest.mark.parametrize(
    ("interruptions", "duplicates"),
    [
        ([], 1),
        ([kill(10.0 + SETTLED_S)], 0),
        ([kill(10.0 + SETTLED_S + 0.01)], 1),
        ([kill(10.0 - RECONNECT_S)], 0),
        ([kill(10.0 - RECONNECT_S - 0.01)], 1),
        ([kill(20.5)], 1),
        ([kill(1.0), kill(10.2), kill(30.0)], 0),
        ([(1.0, 12.0)], 0),
        ([(11.5, 12.0)], 1),
    ],
)
def test_a_redelivery_is_excused_by_an_interruption_close_to_its_acknowledgement(
    interruptions, duplicates
):
    record = DeliveryRecord()
    record.arrive(0, 0, place(0), 10.0)
    record.arrive(0, 0, place(0), 20.0)

    assert len(record.again) == 1
    assert len(record.duplicated(interruptions)) == duplicates
    assert record.arrived == 1


def test_an_interruption_after_the_second_arrival_excuses_nothing():
    record = DeliveryRecord()
    record.arrive(0, 0, place(0), 10.0)
    record.arrive(0, 0, place(0), 10.1)

    assert len(record.duplicated([kill(10.2)])) == 1


def test_a_third_arrival_has_to_respect_the_second_acknowledgement():
    record = DeliveryRecord()
    for at_s in (10.0, 11.0, 30.0):
        record.arrive(0, 0, place(0), at_s)

    assert len(record.duplicated([kill(10.5)])) == 1


def test_order_is_that_of_each_lane_and_partition():
    record = DeliveryRecord()
    record.arrive(0, 0, place(0, partition=0), 1.0)
    record.arrive(0, 3, place(0, partition=1), 1.0)
    record.arrive(0, 1, place(1, partition=0), 1.0)
    record.arrive(1, 0, place(0, partition=1), 1.0)
    assert record.out_of_order == 0

    record.arrive(0, 2, place(1, partition=1), 1.0)

    assert record.out_of_order == 1
    assert "2 came behind 3" in record.examples[0]


def test_a_redelivery_of_older_messages_is_not_out_of_order():
    record = DeliveryRecord()
    for number in (0, 1, 2, 1, 2, 3):
        record.arrive(0, number, place(number), 1.0)

    assert record.out_of_order == 0
    assert len(record.again) == 2


def test_a_stamp_is_read_as_it_was_written_and_nothing_else_is():
    assert stamp_of(stamped(7, 2**40, 100)) == (7, 2**40)
    assert len(stamped(7, 1, 100)) == 100
    for foreign in (b"", b"hello", stamped(1, 2, 100)[:-1] + b"x"):
        with pytest.raises(ValueError, match="no content of ours"):
            stamp_of(foreign)


def test_ranges_hold_the_same_numbers():
    numbers = [0, 1, 2, 5, 7, 8]

    assert ranges_of(numbers) == [[0, 2], [5, 5], [7, 8]]
    assert list(numbers_in(ranges_of(numbers))) == numbers
    assert ranges_of([]) == []


def test_a_message_at_a_shadow_has_the_id_that_it_has_at_its_source():
    source, shadow = DeliveryRecord(), DeliveryRecord()
    for number in range(3):
        source.arrive(7, number, place(number), 1.0)
        source.arrive(8, number, place(number), 1.0)
        shadow.arrive(7, number, place(number), 1.0)
    assert shadow.ids_other_than(source) == 0

    shadow.arrive(7, 9, place(9), 1.0)
    assert shadow.ids_other_than(source) == 0, "it has not arrived at the source yet"
    source.arrive(7, 9, place(10), 1.0)
    assert shadow.ids_other_than(source) == 1
