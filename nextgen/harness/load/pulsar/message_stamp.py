"""The content of a message of the kill tests: its lane, and its number in the lane.

A lane is one producer on one topic; its messages are numbered from 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

_STAMP = struct.Struct(">IQ")
STAMP_BYTES = _STAMP.size


def stamped(lane: int, number: int, message_bytes: int) -> bytes:
    """Return a message's content, filled up to ``message_bytes``."""
    return _STAMP.pack(lane, number).ljust(message_bytes, b".")


def stamp_of(content: bytes) -> tuple[int, int]:
    """Return lane and number of a content that ``stamped`` made.

    Raises:
        ValueError: It has another form.
    """
    if len(content) < STAMP_BYTES or content[STAMP_BYTES:].strip(b"."):
        raise ValueError(f"{content[:40]!r} is no content of ours")
    lane, number = _STAMP.unpack_from(content)
    return lane, number


def ranges_of(numbers: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] ranges, which are few when little was lost."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def numbers_in(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)
