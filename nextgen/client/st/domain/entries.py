"""Acknowledgements of messages that were stored together as one entry.

A server keeps one acknowledgement for an entry, so it is sent when all its messages have theirs.
"""

from __future__ import annotations

from nextgen.client.st.domain.positions import Position


class UnacknowledgedEntries:
    """The entries of one segment that were received and not acknowledged."""

    def __init__(self) -> None:
        self._missing: dict[tuple[int, int], set[int] | None] = {}

    def __len__(self) -> int:
        return len(self._missing)

    def received(self, entry: tuple[int, int], indexes: set[int] | None) -> set[int] | None:
        """An entry came; ``indexes`` are those of its messages, None if it is no batch.

        Returns those to deliver: when an entry comes again, the messages in it that are
        acknowledged already are left out.
        """
        known = self._missing.get(entry)
        if known is not None and indexes is not None:
            indexes = indexes & known
        self._missing[entry] = indexes
        return None if indexes is None else set(indexes)

    def acknowledge(self, position: Position) -> bool:
        """Acknowledge one message; return whether its entry is complete by that."""
        if position.entry not in self._missing:
            return False
        indexes = self._missing[position.entry]
        if indexes is not None:
            indexes.discard(position.batch_index)
            if indexes:
                return False
        del self._missing[position.entry]
        return True

    def acknowledge_until(
        self, position: Position, *, before: tuple[int, int] | None = None
    ) -> tuple[int, int] | None:
        """Acknowledge everything up to a message, or up to ``before``, which must not be; return
        the last complete entry, if any.

        Entries are in the order of their storage: the segment is read by one consumer.
        """
        last: tuple[int, int] | None = None
        for entry in list(self._missing):
            if entry > position.entry or (before is not None and entry > before):
                break
            if entry == position.entry:
                indexes = self._missing[entry]
                if indexes is not None:
                    indexes.difference_update(range(position.batch_index + 1))
                    if indexes:
                        break
            del self._missing[entry]
            last = entry
        return last

    def forget(self, entry: tuple[int, int]) -> None:
        self._missing.pop(entry, None)

    def clear(self) -> None:
        self._missing.clear()
