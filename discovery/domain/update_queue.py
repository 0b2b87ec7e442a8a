"""The unsent updates of one public watcher: bounded in number and in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NO_POSITIONS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QueuedUpdate:
    """One encoded update, and the positions from which a watch resumes after it."""

    encoded: bytes
    positions: Mapping[int, int] = field(default_factory=dict)
    """By shard: the position to resume from after this update."""

    forgotten: int = 0
    """The shard that can no longer be resumed after this update; 0: none."""


class UpdateQueue:
    """First in, first out. ``sent`` has the positions from which a reader would resume."""

    def __init__(
        self, *, updates_max: int, bytes_max: int, sent: Mapping[int, int] = NO_POSITIONS
    ) -> None:
        self.bytes = 0
        self.sent = dict(sent)
        """By shard: everything up to it has been taken."""
        self._updates_max = updates_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[QueuedUpdate, float]] = deque()

    def __repr__(self) -> str:
        return f"<UpdateQueue updates={len(self)} bytes={self.bytes}>"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_calm(self) -> bool:
        """Whether a part of a snapshot may be added: half of the room is reserved for events."""
        return len(self._waiting) * 2 < self._updates_max and self.bytes * 2 < self._bytes_max

    def age(self, now: float) -> float:
        """Return how long the oldest update has waited, in the unit of the given times; 0 without
        one."""
        return now - self._waiting[0][1] if self._waiting else 0.0

    def offer(self, update: QueuedUpdate, now: float) -> bool:
        """Add ``update``; return False if there is no room.

        An empty queue has room for an update of any size.
        """
        has_room = (
            len(self._waiting) < self._updates_max
            and self.bytes + len(update.encoded) <= self._bytes_max
        )
        if self._waiting and not has_room:
            return False
        self._waiting.append((update, now))
        self.bytes += len(update.encoded)
        return True

    def take(self) -> QueuedUpdate | None:
        """Remove and return the oldest update, None if there is none."""
        if not self._waiting:
            return None
        update, _ = self._waiting.popleft()
        self.bytes -= len(update.encoded)
        if update.forgotten:
            self.sent.pop(update.forgotten, None)
        self.sent.update(update.positions)
        return update

    def clear(self) -> None:
        """Drop everything that waits."""
        self._waiting.clear()
        self.bytes = 0
