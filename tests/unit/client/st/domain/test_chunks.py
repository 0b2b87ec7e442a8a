"""Messages in chunks, put together from entries in any order and number."""

from __future__ import annotations

import random

import pytest

from nextgen.client.st.domain.chunks import Chunk, Chunks
from nextgen.kernel.limits.scalable import (
    ST_CHUNKS_HELD_BYTES_MAX,
    ST_CHUNKS_INCOMPLETE_MS,
    ST_MEMORY_PER_MESSAGE_BYTES,
)

INCOMPLETE_S = ST_CHUNKS_INCOMPLETE_MS / 1_000


def chunk(message: str, number: int, entry: int, count: int = 3) -> Chunk:
    return Chunk(message, number, count, (1, entry), f"{message}{number} ".encode())


def test_chunks_of_messages_that_are_mixed_are_joined_each_in_its_order() -> None:
    chunks = Chunks()
    for number, (name, part) in enumerate([("a", 0), ("b", 0), ("a", 1), ("b", 1)]):
        assert chunks.add(chunk(name, part, number), 0.0) == (None, [])
    assert (len(chunks), chunks.first_entry) == (2, (1, 0))

    assert chunks.add(chunk("b", 2, 4), 0.0) == (b"b0 b1 b2 ", [])
    assert chunks.first_entry == (1, 0)
    assert chunks.add(chunk("a", 2, 5), 0.0) == (b"a0 a1 a2 ", [])

    assert chunks.first_entry is None
    assert chunks.held_bytes == 0
    assert chunks.entries_before((1, 4)) == [(1, 1), (1, 3)]
    assert chunks.acknowledged((1, 4)) == [(1, 1), (1, 3)]
    assert chunks.acknowledged((1, 4)) == []
    chunks.acknowledged_until((1, 5))
    assert chunks.acknowledged((1, 5)) == []


def test_a_message_that_is_begun_again_is_joined_from_its_new_beginning() -> None:
    """The producer lost its connection: what was stored comes twice, under other entries."""
    chunks = Chunks()
    for number, entry in ((0, 0), (1, 1), (0, 2), (1, 3), (1, 4)):
        assert chunks.add(chunk("a", number, entry), 0.0) == (None, [])

    assert chunks.add(chunk("a", 2, 5), 0.0) == (b"a0 a1 a2 ", [])
    assert chunks.entries_before((1, 5)) == [(1, 2), (1, 3), (1, 4)]


def test_a_chunk_before_an_earlier_one_is_wanted_again_once_that_is_here() -> None:
    chunks = Chunks()
    assert chunks.add(chunk("a", 1, 0), 0.0) == (None, [])
    assert chunks.add(chunk("a", 2, 1), 0.0) == (None, [])
    assert chunks.first_entry == (1, 0)

    assert chunks.add(chunk("a", 0, 2), 0.0) == (None, [(1, 0), (1, 1)])
    assert chunks.add(chunk("a", 1, 0), 0.0) == (None, [])
    assert chunks.add(chunk("a", 2, 1), 0.0) == (b"a0 a1 a2 ", [])


def test_a_message_without_an_end_is_given_up_after_ST_CHUNKS_INCOMPLETE_MS() -> None:
    chunks = Chunks()
    chunks.add(chunk("a", 0, 0), 1.0)
    chunks.add(chunk("b", 1, 1), 2.0)
    chunks.add(chunk("a", 1, 2), 3.0)

    assert chunks.next_due == 2.0 + INCOMPLETE_S
    assert chunks.take_overdue(2.0 + INCOMPLETE_S) == [(1, 1)]
    assert chunks.take_overdue(3.0 + INCOMPLETE_S) == [(1, 0), (1, 2)]
    assert (chunks.next_due, chunks.held_bytes) == (None, 0)


@pytest.mark.parametrize("more", [0, 1])
def test_at_most_ST_CHUNKS_HELD_BYTES_MAX_bytes_are_held(more: int) -> None:
    """One byte more, and the oldest message is given up: it comes again."""
    chunks = Chunks()
    half = ST_CHUNKS_HELD_BYTES_MAX // 2 - ST_MEMORY_PER_MESSAGE_BYTES
    body = bytes(half + 1)
    chunks.add(Chunk("a", 0, 2, (1, 0), body[:half]), 0.0)
    again = chunks.add(Chunk("b", 0, 2, (1, 1), body[: half + more]), 0.0)

    assert again == (None, [(1, 0)] if more else [])
    limit = ST_CHUNKS_HELD_BYTES_MAX + 1
    assert chunks.held_bytes < limit


def test_whatever_the_order_every_whole_message_is_joined_and_nothing_is_held_for_ever() -> None:
    for seed in range(200):
        rules = random.Random(seed)
        waiting = [
            chunk(name, number, 10 * index + number)
            for index, name in enumerate("abcd")
            for number in range(3)
        ]
        rules.shuffle(waiting)
        stored = {each.entry: each for each in waiting}
        chunks, found = Chunks(), []
        while waiting:
            whole, again = chunks.add(waiting.pop(0), 0.0)
            if whole is not None:
                found.append(whole)
            # Sent again in the order of their storage, as brokers do.
            waiting += [stored[each] for each in sorted(again)]
        # A chunk that came before one that came again needs another time.
        left = [stored[each] for each in sorted(chunks.take_overdue(1e9))]
        for each in left:
            whole, _ = chunks.add(each, 0.0)
            if whole is not None:
                found.append(whole)

        assert sorted(found) == [f"{name}0 {name}1 {name}2 ".encode() for name in "abcd"]
        assert (len(chunks), chunks.held_bytes) == (0, 0)
