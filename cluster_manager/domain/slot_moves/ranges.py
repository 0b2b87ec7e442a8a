"""Ranges of slots: inclusive, ascending, and as few as possible."""

from __future__ import annotations

from collections.abc import Iterator

from nextgen.kernel.limits.cluster import SLOT_COUNT

SlotRanges = tuple[tuple[int, int], ...]
"""Pairs of the first and the last slot."""


def slots_of(ranges: SlotRanges) -> Iterator[int]:
    """Yield the slots, in the order of the ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def count_of(ranges: SlotRanges) -> int:
    """Return the number of slots."""
    return sum(last + 1 - first for first, last in ranges)


def shown(ranges: SlotRanges) -> str:
    """Return the ranges for people: ``0-4095, 9000``."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def mistake_in(ranges: SlotRanges) -> str:
    """Return why these are no ranges of slots, "" if they are."""
    if not ranges:
        return "no slot is named"
    before = -1
    for first, last in ranges:
        if not 0 <= first <= last < SLOT_COUNT:
            return f"{first}-{last} is no range of slots: they are 0 to {SLOT_COUNT - 1}"
        if first <= before:
            return f"slot {first} is named twice, or the ranges are not ascending"
        before = last
    return ""
