"""Which Key_Shared consumer a slot belongs to.

AUTO_SPLIT: every consumer has points on a ring of slots, and a slot belongs to whoever has the next
point; a consumer that comes or goes moves only slots to or from itself. STICKY: consumers say which
slots are theirs; what nobody claims waits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.key_hash import KEY_SLOTS, murmur3_32
from nextgen.kernel.limits.pulsar import KEY_POINTS_PER_CONSUMER, STICKY_RANGES_MAX

MemberType = TypeVar("MemberType")
Range = tuple[int, int]
"""First and last slot."""

_first_slot = itemgetter(0)


class KeyRanges(Protocol[MemberType]):
    """Assigns slots to members."""

    def add(self, member: MemberType, name: str, ranges: Sequence[Range]) -> None:
        """Take in a member, or raise ``Refusal`` (ConsumerAssignError)."""
        ...

    def remove(self, member: MemberType) -> None:
        """Take a member's slots away from it."""
        ...

    def owner(self, slot: int) -> MemberType | None:
        """Return whose slot it is."""
        ...


class SplitRanges(Generic[MemberType]):
    """AUTO_SPLIT. Points are made of the member's name, so that a consumer that comes back under
    its name gets its keys back."""

    def __init__(self, points_per_member: int = KEY_POINTS_PER_CONSUMER) -> None:
        self._points_per_member = points_per_member
        self._names: dict[MemberType, tuple[str, int]] = {}
        # Members at each point, longest there first: the first has the slots before the point.
        self._at_point: dict[int, list[MemberType]] = {}
        self._points: list[int] = []

    def add(self, member: MemberType, name: str, ranges: Sequence[Range]) -> None:
        """Give a member its share. ``ranges`` must be empty."""
        if ranges:
            raise Refusal(
                ServerError.CONSUMER_ASSIGN, "other consumers have no ranges (AUTO_SPLIT)"
            )
        taken = {number for other, number in self._names.values() if other == name}
        number = next(n for n in range(len(taken) + 1) if n not in taken)
        self._names[member] = (name, number)
        for point in self._points_of(member):
            at_point = self._at_point.setdefault(point, [])
            if not at_point:
                insort(self._points, point)
            if member not in at_point:
                at_point.append(member)

    def remove(self, member: MemberType) -> None:
        """Give a member's share to the others."""
        for point in set(self._points_of(member)):
            at_point = self._at_point[point]
            at_point.remove(member)
            if not at_point:
                del self._at_point[point]
                del self._points[bisect_left(self._points, point)]
        del self._names[member]

    def owner(self, slot: int) -> MemberType | None:
        """Return who has the first point at or behind the slot, around the ring."""
        if not self._points:
            return None
        index = bisect_left(self._points, slot)
        return self._at_point[self._points[index % len(self._points)]][0]

    def _points_of(self, member: MemberType) -> list[int]:
        name, number = self._names[member]
        return [
            murmur3_32(f"{name}\0{number}\0{point}".encode()) % KEY_SLOTS
            for point in range(self._points_per_member)
        ]


class StickyRanges(Generic[MemberType]):
    """STICKY: exactly what was asked for, without overlaps."""

    def __init__(self) -> None:
        # By first slot: the first slots alone, to be searched, and each range with its member.
        self._firsts: list[int] = []
        self._ranges: list[tuple[int, int, MemberType]] = []

    def add(self, member: MemberType, name: str, ranges: Sequence[Range]) -> None:
        """Give a member its ranges, which must be valid and nobody's."""
        if not 0 < len(ranges) <= STICKY_RANGES_MAX:
            raise Refusal(
                ServerError.CONSUMER_ASSIGN, f"consumer needs 1 to {STICKY_RANGES_MAX} ranges"
            )
        last = -1
        for start, end in sorted(ranges):
            if not (0 <= start <= end < KEY_SLOTS) or start <= last:
                raise Refusal(ServerError.CONSUMER_ASSIGN, f"range {start}-{end} is not valid")
            last = end
        for start, end in ranges:
            # Ranges do not overlap, so the last that begins before the end is the one to look at.
            index = bisect_right(self._firsts, end) - 1
            if index >= 0 and self._ranges[index][1] >= start:
                first, final, _ = self._ranges[index]
                raise Refusal(
                    ServerError.CONSUMER_ASSIGN,
                    f"range {start}-{end} overlaps {first}-{final} of another consumer",
                )
        taken = self._ranges + [(start, end, member) for start, end in ranges]
        self._take(sorted(taken, key=_first_slot))

    def remove(self, member: MemberType) -> None:
        """Make a member's ranges nobody's."""
        self._take([each for each in self._ranges if each[2] is not member])

    def owner(self, slot: int) -> MemberType | None:
        """Return the member that asked for the slot."""
        index = bisect_right(self._firsts, slot) - 1
        if index < 0 or self._ranges[index][1] < slot:
            return None
        return self._ranges[index][2]

    def _take(self, ranges: list[tuple[int, int, MemberType]]) -> None:
        self._ranges = ranges
        self._firsts = [first for first, _, _ in ranges]
