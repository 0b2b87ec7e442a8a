"""Entries that come again later, and messages that the application has for too long."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from nextgen.client.st.domain.positions import Position

Entry = tuple[int, int]

_DOUBLINGS_MAX = 64


@dataclass(frozen=True, slots=True)
class RedeliveryBackoff:
    """Pauses that grow with the number of times that a message came again.

    The first is ``first_ms``, each following one is ``multiplier`` times as long, up to
    ``last_ms``.
    """

    first_ms: int
    last_ms: int
    multiplier: float = 2.0

    def pause_ms(self, redeliveries: int) -> float:
        """Return the pause before a message that came again so many times does so once more."""
        if self.multiplier == 1:
            return min(self.first_ms, self.last_ms)
        growth = self.multiplier ** min(redeliveries, _DOUBLINGS_MAX)
        return min(self.first_ms * growth, self.last_ms)


class Redeliveries:
    """Entries by the time at which they are due."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, str, Entry]] = []
        self._known: set[tuple[str, Entry]] = set()

    @property
    def next_due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def add(self, segment: str, entry: Entry, due: float) -> None:
        """One request for an entry is enough, however many of its messages are wanted."""
        if (segment, entry) not in self._known:
            self._known.add((segment, entry))
            heappush(self._waiting, (due, segment, entry))

    def take_due(self, now: float) -> dict[str, list[Entry]]:
        """Take and return the entries that are due, by segment."""
        due: dict[str, list[Entry]] = {}
        while self._waiting and self._waiting[0][0] <= now:
            _, segment, entry = heappop(self._waiting)
            self._known.discard((segment, entry))
            due.setdefault(segment, []).append(entry)
        return due


class Unfinished:
    """Messages that the application took and has not acknowledged, each for the same time.

    Times MUST not go back.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._taken: dict[tuple[str, Position], tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def next_due(self) -> float | None:
        for due, _ in self._taken.values():
            return due
        return None

    def took(self, segment: str, position: Position, redeliveries: int, now: float) -> None:
        """The application takes a message, which came again so many times."""
        self._taken.pop((segment, position), None)
        self._taken[segment, position] = (now + self._limit_s, redeliveries)

    def finished(self, segment: str, position: Position) -> None:
        """The application acknowledged it, positively or negatively."""
        self._taken.pop((segment, position), None)

    def forget(self, segment: str) -> None:
        """All messages of a segment that are not acknowledged come again by themselves."""
        for place in [place for place in self._taken if place[0] == segment]:
            del self._taken[place]

    def take_overdue(self, now: float) -> list[tuple[str, Position, int]]:
        """Take and return what is overdue: segment, position, how often it came again."""
        overdue: list[tuple[str, Position, int]] = []
        for place, (due, redeliveries) in self._taken.items():
            if due > now:
                break
            overdue.append((*place, redeliveries))
        for segment, position, _ in overdue:
            del self._taken[segment, position]
        return overdue
