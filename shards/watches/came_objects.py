"""Objects whose slots have just come from another shard, whose subscribers are not known here.

What follows is as behind an election, for these objects alone: subscribers of the shard that had
the slots may answer by what they know until their leases there are over, and broker managers watch
the objects there until they have heard of the move (ADR 0170).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

SlotRanges = Collection[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Came:
    ranges: SlotRanges
    leases_end: float
    managers_end: float

    def has(self, slots: Collection[int]) -> bool:
        return any(first <= slot <= last for slot in slots for first, last in self.ranges)


class CameObjects:
    """The objects that came in one term. Times are seconds of one clock that never goes back."""

    def __init__(self) -> None:
        self._came: list[_Came] = []

    def __repr__(self) -> str:
        return f"<CameObjects moves={len(self._came)}>"

    def add(
        self, ranges: SlotRanges, *, now: float, leases_end: float, managers_end: float
    ) -> None:
        """Note slots that come at this moment, and until when former subscribers count."""
        self._came = [each for each in self._came if each.managers_end > now]
        self._came.append(_Came(tuple(ranges), leases_end, managers_end))

    def are_settled(self, slots: Collection[int], now: float, *, is_move: bool) -> bool:
        """Return whether no subscriber elsewhere may rely on what a change in ``slots`` replaces.

        A move of units waits for leases alone, a write for broker managers, too.
        """
        return not any(
            each.has(slots)
            for each in self._came
            if now < (each.leases_end if is_move else max(each.leases_end, each.managers_end))
        )

    def ends(self) -> Iterator[float]:
        """Yield when waits are over."""
        for each in self._came:
            yield each.leases_end
            yield each.managers_end
