"""The assignment of hash slots to Key_Shared consumers.

AUTO_SPLIT: every consumer has points on a ring of slots, and a slot belongs to the consumer with
the next point. So a consumer that connects or leaves moves only slots to or from itself. STICKY:
consumers name their slots; messages of slots without a consumer wait.
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
        """Add a member, or raise ``Refusal`` (ConsumerAssignError)."""
        ...

    def remove(self, member: MemberType) -> None:
        """Remove a member and its slots."""
        ...

    def owner(self, slot: int) -> MemberType | None:
        """Return the member that has the slot."""
        ...


class SplitRanges(Generic[MemberType]):
    """AUTO_SPLIT. Points are hashes of the member's name, so that a consumer that reconnects under
    the same name gets the same keys."""

    def __init__(self, points_per_member: int = KEY_POINTS_PER_CONSUMER) -> None:
        self._points_per_member = points_per_member
        self._names: dict[MemberType, tuple[str, int]] = {}
        self._points_of: dict[MemberType, frozenset[int]] = {}
        # Members at each point, the oldest first: that one has the slots before the point.
        self._at_point: dict[int, list[MemberType]] = {}
        self._points: list[int] = []

    def add(self, member: MemberType, name: str, ranges: Sequence[Range]) -> None:
        """Add a member with a fair share. ``ranges`` must be empty."""
        if ranges:
            raise Refusal(
                ServerError.CONSUMER_ASSIGN, "other consumers have no ranges (AUTO_SPLIT)"
            )
        taken = {number for other, number in self._names.values() if other == name}
        number = next(n for n in range(len(taken) + 1) if n not in taken)
        self._names[member] = (name, number)
        points = self._points_of[member] = self._hashed(name, number)
        for point in points:
            at_point = self._at_point.setdefault(point, [])
            if not at_point:
                insort(self._points, point)
            at_point.append(member)

    def remove(self, member: MemberType) -> None:
        """Remove a member; the others get its share."""
        for point in self._points_of.pop(member):
            at_point = self._at_point[point]
            at_point.remove(member)
            if not at_point:
                del self._at_point[point]
                del self._points[bisect_left(self._points, point)]
        del self._names[member]

    def owner(self, slot: int) -> MemberType | None:
        """Return the member with the first point at or behind the slot, around the ring."""
        if not self._points:
            return None
        index = bisect_left(self._points, slot)
        return self._at_point[self._points[index % len(self._points)]][0]

    def _hashed(self, name: str, number: int) -> frozenset[int]:
        return frozenset(
            murmur3_32(f"{name}\0{number}\0{point}".encode()) % KEY_SLOTS
            for point in range(self._points_per_member)
        )


class StickyRanges(Generic[MemberType]):
    """STICKY: each member has exactly the ranges that it requested, without overlaps."""

    def __init__(self) -> None:
        # Ordered by first slot: the first slots alone, for searching, and the ranges with members.
        self._firsts: list[int] = []
        self._ranges: list[tuple[int, int, MemberType]] = []

    def add(self, member: MemberType, name: str, ranges: Sequence[Range]) -> None:
        """Add a member with its ranges, which must be valid and free."""
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
            # Ranges do not overlap, so only the last one that begins before the end can overlap.
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
        """Remove a member and free its ranges."""
        self._take([each for each in self._ranges if each[2] is not member])

    def owner(self, slot: int) -> MemberType | None:
        """Return the member that requested the slot."""
        index = bisect_right(self._firsts, slot) - 1
        if index < 0 or self._ranges[index][1] < slot:
            return None
        return self._ranges[index][2]

    def _take(self, ranges: list[tuple[int, int, MemberType]]) -> None:
        self._ranges = ranges
        self._firsts = [first for first, _, _ in ranges]
