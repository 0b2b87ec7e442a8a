"""Messages that are stored as several entries, because they are larger than one may be.

The chunks of a message have its id in common and are numbered from 0. Those of different messages
may be mixed, and a message may be without an end: its producer stopped, or began it again in a
child of the segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nextgen.kernel.limits.scalable import (
    ST_CHUNKS_HELD_BYTES_MAX,
    ST_CHUNKS_INCOMPLETE_MS,
    ST_MEMORY_PER_MESSAGE_BYTES,
)

Entry = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One of them."""

    message: str
    number: int
    count: int
    entry: Entry
    body: bytes


@dataclass(slots=True)
class _Incomplete:
    bodies: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    early: list[Entry] = field(default_factory=list)
    """Those of chunks that came although an earlier one is missing."""

    size_bytes: int = 0
    last_at: float = 0.0


class Chunks:
    """The chunks of one segment. Times MUST not go back."""

    def __init__(self, held_bytes_max: int = ST_CHUNKS_HELD_BYTES_MAX) -> None:
        self._held_bytes_max = held_bytes_max
        self._incomplete: dict[str, _Incomplete] = {}
        self._earlier: dict[Entry, list[Entry]] = {}
        self.held_bytes = 0

    def __len__(self) -> int:
        """The number of messages that are not complete."""
        return len(self._incomplete)

    @property
    def first_entry(self) -> Entry | None:
        """The first entry of a message that is not complete. It must not be acknowledged yet."""
        return min(
            (entry for each in self._incomplete.values() for entry in (*each.entries, *each.early)),
            default=None,
        )

    @property
    def next_due(self) -> float | None:
        """When the first of them is overdue."""
        for each in self._incomplete.values():
            return each.last_at + ST_CHUNKS_INCOMPLETE_MS / 1_000
        return None

    def add(self, chunk: Chunk, now: float) -> tuple[bytes | None, list[Entry]]:
        """Add a chunk; return the whole message if it is its last one.

        Also returns entries that have to be sent again: chunks that came before an earlier one of
        their message, which is here now, and those of the oldest messages if too much is held.
        """
        former = self._incomplete.pop(chunk.message, None)
        again: list[Entry] = []
        if former is None or chunk.number == 0:
            # Its producer, or its broker, begins it again.
            again = former.early if former is not None else []
            self.held_bytes -= former.size_bytes if former is not None else 0
            former = _Incomplete()
        # The last place is that of the message with the newest chunk.
        self._incomplete[chunk.message] = former
        former.last_at = now
        self._take(former, chunk)
        if chunk.number < len(former.bodies):
            again, former.early = again + former.early, []
        if len(former.bodies) < chunk.count:
            return None, again + self._make_room(chunk.message)
        entries = self._drop(chunk.message)
        self._earlier[chunk.entry] = [each for each in entries if each != chunk.entry]
        return b"".join(former.bodies), again

    def _take(self, message: _Incomplete, chunk: Chunk) -> None:
        size_bytes = ST_MEMORY_PER_MESSAGE_BYTES
        if chunk.number > len(message.bodies):
            message.early.append(chunk.entry)
        else:
            message.entries.append(chunk.entry)
            if chunk.number == len(message.bodies):
                message.bodies.append(chunk.body)
                size_bytes += len(chunk.body)
        message.size_bytes += size_bytes
        self.held_bytes += size_bytes

    def entries_before(self, last: Entry) -> list[Entry]:
        """Return the other entries of a whole message, by its last one."""
        return self._earlier.get(last, [])

    def acknowledged(self, last: Entry) -> list[Entry]:
        """Take and return the other entries of a whole message that is acknowledged."""
        return self._earlier.pop(last, [])

    def acknowledged_until(self, entry: Entry) -> None:
        """Everything up to an entry is acknowledged."""
        for last in [last for last in self._earlier if last <= entry]:
            del self._earlier[last]

    def take_overdue(self, now: float) -> list[Entry]:
        """Take and return the entries of messages of which nothing came for too long."""
        overdue = [
            message
            for message, each in self._incomplete.items()
            if each.last_at + ST_CHUNKS_INCOMPLETE_MS / 1_000 <= now
        ]
        return [entry for message in overdue for entry in self._drop(message)]

    def restart(self) -> None:
        """What is not complete comes again."""
        self._incomplete.clear()
        self.held_bytes = 0

    def _drop(self, message: str) -> list[Entry]:
        known = self._incomplete.pop(message, None)
        if known is None:
            return []
        self.held_bytes -= known.size_bytes
        return known.entries + known.early

    def _make_room(self, newest: str) -> list[Entry]:
        dropped: list[Entry] = []
        while self.held_bytes > self._held_bytes_max:
            oldest = next(iter(self._incomplete))
            if oldest == newest:
                break
            dropped += self._drop(oldest)
        return dropped
