"""Vectors of positions, checkpoints, and entries whose messages are acknowledged one by one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.st.domain.checkpoints import Checkpoint, Edge, Mark, readable_segments
from nextgen.client.st.domain.entries import UnacknowledgedEntries
from nextgen.client.st.domain.positions import DeliveredPositions, MessageId, Position
from nextgen.client.st.errors import InvalidCheckpoint
from nextgen.kernel.limits.scalable import CHECKPOINT_BYTES_MAX, LAYOUT_SEGMENTS_MAX
from tests.unit.client.st.domain.layouts import CREATED_AT_MS, merge, new_layout, segment, split

TOPIC = "topic://public/default/t"
COUNTS = st.integers(0, 2**63 - 1)
PLACES = st.builds(
    lambda ledger_id, entry_id, batch_index: Position(ledger_id, entry_id, batch_index),
    COUNTS,
    COUNTS,
    st.integers(-1, 1000),
) | st.sampled_from([Edge.START, Edge.END])


def test_a_cumulative_acknowledgement_covers_what_was_enqueued_before_in_every_segment() -> None:
    delivered = DeliveredPositions()
    for entry in range(3):
        delivered.delivered("a", Position(1, entry))
    number = delivered.delivered("b", Position(2, 0))
    delivered.delivered("a", Position(1, 3))
    delivered.delivered("b", Position(2, 1))

    covered = delivered.acknowledged_until(number)

    assert covered == {
        "a": [Position(1, 0), Position(1, 1), Position(1, 2)],
        "b": [Position(2, 0)],
    }
    assert delivered.acknowledged_until(number) == {}
    assert (delivered.pending("a"), delivered.pending("b"), len(delivered)) == (1, 1, 2)


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 30))
def test_it_covers_exactly_the_vector_at_the_moment_of_enqueueing(
    segments: list[str], chosen: int
) -> None:
    delivered = DeliveredPositions()
    numbers = [delivered.delivered(each, Position(0, entry)) for entry, each in enumerate(segments)]
    chosen = min(chosen, len(numbers) - 1)
    covered = delivered.acknowledged_until(numbers[chosen]) if numbers else {}

    before = segments[: chosen + 1]
    assert {each: len(found) for each, found in covered.items()} == {
        each: before.count(each) for each in before
    }


def test_what_was_not_taken_out_of_the_queue_is_forgotten_when_it_comes_again() -> None:
    delivered = DeliveredPositions()
    first = delivered.delivered("a", Position(1, 0))
    delivered.delivered("a", Position(1, 1))
    last = delivered.delivered("b", Position(2, 0))

    delivered.forget_behind("a", first)

    assert delivered.acknowledged_until(last) == {"a": [Position(1, 0)], "b": [Position(2, 0)]}


def test_a_segment_that_is_left_is_in_no_vector() -> None:
    delivered = DeliveredPositions()
    number = delivered.delivered("a", Position(1, 0))
    delivered.forget("a")

    assert delivered.acknowledged_until(number) == {}


@given(st.dictionaries(st.text(max_size=20), st.builds(Mark, COUNTS, PLACES), max_size=5))
def test_a_checkpoint_comes_back_from_its_bytes(marks: dict[str, Mark]) -> None:
    checkpoint = Checkpoint(TOPIC, marks)

    assert Checkpoint.from_bytes(checkpoint.to_bytes()) == checkpoint


@given(st.binary(max_size=60))
def test_other_bytes_are_no_checkpoint(data: bytes) -> None:
    with pytest.raises(InvalidCheckpoint):
        Checkpoint.from_bytes(data)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"version": 2, "topic": TOPIC, "segments": {}},
        {"version": 1, "topic": 3, "segments": {}},
        {"version": 1, "topic": TOPIC, "segments": []},
        {"version": 1, "topic": TOPIC, "segments": {"a": 1}},
        {"version": 1, "topic": TOPIC, "segments": {"a": [1, "middle"]}},
        {"version": 1, "topic": TOPIC, "segments": {"a": [1, "latest"]}},
        {"version": 1, "topic": TOPIC, "segments": {"a": [1, [1, 2]]}},
        {"version": 1, "topic": TOPIC, "segments": {"a": [1, [1, -2, 3]]}},
        {"version": 1, "topic": TOPIC, "segments": {"a": [1, [1, 2, -3]]}},
    ],
)
def test_a_damaged_checkpoint_is_refused(document: object) -> None:
    with pytest.raises(InvalidCheckpoint):
        Checkpoint.from_bytes(json.dumps(document).encode())


def test_a_checkpoint_has_at_most_LAYOUT_SEGMENTS_MAX_segments() -> None:
    marks = {f"{number}": Mark(0, Edge.END) for number in range(LAYOUT_SEGMENTS_MAX)}

    assert Checkpoint.from_bytes(Checkpoint(TOPIC, marks).to_bytes()).marks == marks
    marks["one more"] = Mark(0, Edge.END)
    assert len(marks) == LAYOUT_SEGMENTS_MAX + 1
    with pytest.raises(InvalidCheckpoint, match="segments"):
        Checkpoint.from_bytes(Checkpoint(TOPIC, marks).to_bytes())


def test_a_checkpoint_has_at_most_CHECKPOINT_BYTES_MAX_bytes() -> None:
    data = Checkpoint(TOPIC, {}).to_bytes()
    padded = data + b" " * (CHECKPOINT_BYTES_MAX - len(data))

    assert Checkpoint.from_bytes(padded).topic == TOPIC
    assert len(padded + b" ") == CHECKPOINT_BYTES_MAX + 1
    with pytest.raises(InvalidCheckpoint, match="bytes"):
        Checkpoint.from_bytes(padded + b" ")


def test_a_segment_without_mark_or_of_another_topic_is_read_from_its_start() -> None:
    known, other = segment(0, 0, 0xFFFF), segment(1, 0, 0xFFFF)
    place = Position(7, 3, 2)
    checkpoint = Checkpoint(TOPIC, {known.topic: Mark(CREATED_AT_MS, place)})

    assert checkpoint.start_of(known) == place
    assert checkpoint.start_of(other) is Edge.START
    again = segment(0, 0, 0xFFFF, created_at_ms=CREATED_AT_MS + 1)
    assert checkpoint.start_of(again) is Edge.START


def test_children_are_read_when_all_parents_are_at_their_end() -> None:
    layout = merge(new_layout(2), 0, 1)
    layout = split(layout, 2)
    names = {each.segment_id: each.topic for each in layout.segments.values()}

    def ids(*ended: int) -> list[int]:
        return [each.segment_id for each in readable_segments(layout, {names[n] for n in ended})]

    assert ids() == [0, 1]
    assert ids(0) == [1]
    assert ids(0, 1) == [2]
    assert ids(0, 1, 2) == [3, 4]


def test_an_entry_is_acknowledged_when_all_its_messages_are() -> None:
    entries = UnacknowledgedEntries()
    entries.received((1, 0), {0, 1, 2})
    entries.received((1, 1), None)

    assert [entries.acknowledge(Position(1, 0, index)) for index in (2, 0, 0, 1)] == [
        False,
        False,
        False,
        True,
    ]
    assert entries.acknowledge(Position(1, 1))
    assert not entries.acknowledge(Position(1, 1)), "acknowledged already"
    assert len(entries) == 0


def test_an_acknowledgement_up_to_a_message_stops_before_its_incomplete_entry() -> None:
    entries = UnacknowledgedEntries()
    entries.received((1, 0), None)
    entries.received((1, 1), {0, 1, 2})
    entries.received((2, 0), None)

    assert entries.acknowledge_until(Position(1, 1, 1)) == (1, 0)
    assert entries.acknowledge_until(Position(1, 1, 2)) == (1, 1)
    assert entries.acknowledge_until(Position(1, 1, 2)) is None
    assert len(entries) == 1


def test_ids_are_readable() -> None:
    assert str(MessageId(TOPIC, "segment://public/default/t/0000-ffff-0", Position(1, 2, 3))) == (
        "segment://public/default/t/0000-ffff-0#1:2:3"
    )
