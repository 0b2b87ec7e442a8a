"""The stored form: what goes in comes out, and yesterday's bytes are still read."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.position import Position
from brokers.domain.subscriptions.cursor import Cursor
from brokers.domain.subscriptions.cursor_record import (
    UnknownCursorVersion,
    decode_cursor,
    encode_cursor,
)
from brokers.domain.subscriptions.kind import SubscriptionKind
from nextgen.kernel.limits.pulsar import ACK_SET_WORDS_MAX, CURSOR_HOLES_MAX

positions = st.builds(Position, st.integers(2**20, 2**20 + 3), st.integers(0, 40))
GOLDEN = bytes.fromhex(
    "96"  # a list of six:
    "01"  # version
    "01"  # Shared
    "92ce0010000002"  # mark-delete 1048576:2
    "9292ce001000009405010a00"  # of ledger 1048576: 5 to 6, and 10 further on 16
    "92ce001000019200cd03e8"  # of ledger 1048577: 0 to 1000
    "9193ce0010000104c40205ff"  # of batch 1048577:4 messages 0, 2 and 8 to 15 are open
    "81a47465616da161"  # properties
)


def nothing_between(after: Position, up_to: Position) -> int:
    return 1


def the_same(one: Cursor, other: Cursor) -> None:
    assert one.mark_delete == other.mark_delete
    assert list(one.ranges) == list(other.ranges)
    assert one.ranges.count == other.ranges.count
    assert one.partial == other.partial


def example() -> Cursor:
    cursor = Cursor(Position(2**20, 2), nothing_between)
    cursor.ranges.add_range(Position(2**20, 5), 6)
    cursor.ranges.add_range(Position(2**20, 16), 16)
    cursor.ranges.add_range(Position(2**20 + 1, 0), 1_000)
    cursor.put_part(Position(2**20 + 1, 4), 0xFF05)
    return cursor


@given(
    positions,
    st.lists(positions),
    st.dictionaries(positions, st.integers(1, 2**130), max_size=5),
    st.sampled_from(SubscriptionKind),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_a_cursor_survives_being_stored(
    mark_delete: Position,
    acked: list[Position],
    partial: dict[Position, int],
    kind: SubscriptionKind,
    properties: dict[str, str],
) -> None:
    cursor = Cursor(mark_delete, nothing_between)
    for position in acked:
        cursor.ranges.add(position)
    cursor.partial.update(partial)

    record = decode_cursor(encode_cursor(cursor, kind, properties), nothing_between)

    the_same(record.cursor, cursor)
    assert (record.kind, record.properties) == (kind, properties)


def test_a_record_of_version_1_reads_as_it_always_did() -> None:
    record = decode_cursor(GOLDEN, nothing_between)

    the_same(record.cursor, example())
    assert (record.kind, record.properties) == (SubscriptionKind.SHARED, {"team": "a"})
    assert encode_cursor(example(), SubscriptionKind.SHARED, {"team": "a"}) == GOLDEN


def test_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(UnknownCursorVersion):
        decode_cursor(msgpack.packb((2, "who knows")), nothing_between)


def test_a_cursor_full_of_holes_is_not_large() -> None:
    cursor = Cursor(Position(2**20, 0), nothing_between)
    for entry in range(2, 2 * CURSOR_HOLES_MAX + 2, 2):
        cursor.ranges.add(Position(2**20, entry))
    assert len(cursor.ranges) == CURSOR_HOLES_MAX

    assert len(encode_cursor(cursor, SubscriptionKind.SHARED, {})) < 300_000


def test_ack_set_words_max_are_read_from_disk_and_of_one_more_the_entry_is_open() -> None:
    """Earlier releases stored ack sets of any size; sending an entry again loses nothing."""
    cursor = Cursor(Position(2**20, 2), nothing_between)
    cursor.put_part(Position(2**20, 4), 1 << 64 * ACK_SET_WORDS_MAX - 1)
    cursor.put_part(Position(2**20, 5), 1 << 64 * ACK_SET_WORDS_MAX)

    stored = encode_cursor(cursor, SubscriptionKind.SHARED, {})
    read = decode_cursor(stored, nothing_between).cursor

    assert list(read.partial) == [Position(2**20, 4)]
    assert not read.is_acked(Position(2**20, 5))
