"""Deduplication: which of a producer's sequence ids are stored or being stored.

A client that got no answer to a SEND repeats it with the same sequence id. So the highest sequence
id of a *complete* message is kept for each producer name. The chunks of one message share its
sequence id, which counts when the last chunk is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

NONE_YET = -1
"""Below every sequence id."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The part of a chunked message that an entry is."""

    chunk_id: int
    """Number of the chunk in its message, from 0."""
    chunk_count: int

    @property
    def is_last(self) -> bool:
        return self.chunk_id >= self.chunk_count - 1


class ProducerSequence:
    """The sequence ids of one producer name. ``highest`` is that of the last accepted message."""

    __slots__ = ("_begun", "highest")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self._begun: tuple[int, int] | None = None
        """Sequence id and last chunk of a message that is not complete."""

    def __repr__(self) -> str:
        return f"<ProducerSequence highest={self.highest} begun={self._begun}>"

    def recall(self, sequence_id: int, chunk_id: int) -> None:
        """Set the incomplete message, and its last chunk, from storage."""
        if sequence_id > self.highest:
            self._begun = (sequence_id, chunk_id)

    def admit(self, first: int, last: int, chunk: Chunk | None) -> bool:
        """Return whether an entry with the sequence ids ``first`` to ``last`` has to be stored.

        A refused entry is stored already, or being stored. An entry that is new in part is stored:
        a batch that a client has recombined may repeat a message, but loses none.
        """
        if last <= self.highest:
            return False
        begun_id, begun_chunk = self._begun or (NONE_YET, NONE_YET)
        if chunk is not None and begun_id == first and chunk.chunk_id <= begun_chunk:
            return False
        self.follow(first, last, chunk)
        return True

    def follow(self, first: int, last: int, chunk: Chunk | None) -> None:
        """Accept an entry without deduplication.

        ``highest`` also decreases with a producer that starts numbering again, so that
        deduplication is right if it is enabled later.
        """
        if chunk is None or chunk.is_last:
            self.highest = last
            self._begun = None
        else:
            self._begun = (first, chunk.chunk_id)


def last_sequence_id(sequence_id: int, highest_sequence_id: int) -> int:
    """Return the sequence id of the last message in a SEND: the client's, or that of the SEND.

    It must not be computed from the size of the batch: some clients number SENDs instead of
    messages, and their later batches would then look like duplicates.
    """
    return max(sequence_id, highest_sequence_id)
