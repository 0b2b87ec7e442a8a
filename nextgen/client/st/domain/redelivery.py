"""Entries that the application wants again later."""

from __future__ import annotations

from collections import deque


class Redeliveries:
    """Entries by the time at which they are due. Times MUST not go back."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, str, tuple[int, int]]] = deque()
        self._known: set[tuple[str, tuple[int, int]]] = set()

    @property
    def next_due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def add(self, segment: str, entry: tuple[int, int], due: float) -> None:
        """One request for an entry is enough, however many of its messages are wanted."""
        if (segment, entry) not in self._known:
            self._known.add((segment, entry))
            self._waiting.append((due, segment, entry))

    def take_due(self, now: float) -> dict[str, list[tuple[int, int]]]:
        """Take and return the entries that are due, by segment."""
        due: dict[str, list[tuple[int, int]]] = {}
        while self._waiting and self._waiting[0][0] <= now:
            _, segment, entry = self._waiting.popleft()
            self._known.discard((segment, entry))
            due.setdefault(segment, []).append(entry)
        return due
