"""Inclusive ranges of 16-bit hashes, as the segments of scalable topics have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HASH_MAX = 0xFFFF
"""The highest hash of a key: hashes have 16 bits."""

HASHES = HASH_MAX + 1


@dataclass(frozen=True, slots=True, order=True)
class HashRange:
    """From ``start`` to ``end``, both included. Ranges are ordered by start, then by end."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of its hashes."""
        return self.end - self.start + 1

    def split(self) -> tuple[HashRange, HashRange]:
        """Return its lower and its upper half; the lower one has the middle of an odd size."""
        assert self.size > 1, f"a range of one value cannot be split: {self}"
        middle = self.start + (self.end - self.start) // 2
        return HashRange(self.start, middle), HashRange(middle + 1, self.end)

    def is_adjacent(self, other: HashRange) -> bool:
        """Return whether one begins behind the other's end. The space of hashes is no circle."""
        return self.end + 1 == other.start or other.end + 1 == self.start

    def union(self, other: HashRange) -> HashRange:
        """Return both as one range."""
        assert self.is_adjacent(other), f"{self} and {other} are not adjacent"
        return HashRange(min(self.start, other.start), max(self.end, other.end))


WHOLE_RANGE = HashRange(0, HASH_MAX)


def initial_ranges(count: int) -> tuple[HashRange, ...]:
    """Return ``count`` ranges of equal width that cover all hashes; the last has the remainder."""
    assert 1 <= count <= HASHES, f"{count} ranges of {HASHES} hashes"
    width = HASHES // count
    starts = [number * width for number in range(count)]
    ends = [*[start - 1 for start in starts[1:]], HASH_MAX]
    return tuple([HashRange(start, end) for start, end in zip(starts, ends, strict=True)])


def are_tiling(ranges: Iterable[HashRange]) -> bool:
    """Return whether ``ranges``, in any order, cover each hash exactly once."""
    expected = 0
    for each in sorted(ranges):
        if each.start != expected or each.end < each.start:
            return False
        expected = each.end + 1
    return expected == HASHES
