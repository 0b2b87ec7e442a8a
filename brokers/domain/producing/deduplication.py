"""Which of a producer's sequence ids are stored or on their way there.

A client that does not know what became of a SEND sends it again, with the sequence id it had.
What is counted per producer name is the highest sequence id of a *complete* message: the chunks
of one message share its sequence id, and the id counts when the last chunk is in.
"""

from __future__ import annotations

from dataclasses import dataclass

NONE_YET = -1
"""Below every sequence id."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which part of one message an entry is."""

    chunk_id: int
    """From 0."""
    chunk_count: int

    @property
    def is_last(self) -> bool:
        return self.chunk_id >= self.chunk_count - 1


class ProducerSequence:
    """The sequence ids of one producer name. ``highest`` is that of what was let in."""

    __slots__ = ("_begun", "highest")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self._begun: tuple[int, int] | None = None
        """Sequence id and last chunk of a message whose chunks are not all in."""

    def __repr__(self) -> str:
        return f"<ProducerSequence highest={self.highest} begun={self._begun}>"

    def recall(self, sequence_id: int, chunk_id: int) -> None:
        """Learn from storage that a message was begun and how far it came."""
        if sequence_id > self.highest:
            self._begun = (sequence_id, chunk_id)

    def admit(self, first: int, last: int, chunk: Chunk | None) -> bool:
        """Return whether an entry with the sequence ids ``first`` to ``last`` is to be stored.

        What is refused is stored already or on its way. An entry that is new in part is stored:
        a batch that a client has put together anew may bring a message twice, but loses none.
        """
        if last <= self.highest:
            return False
        begun_id, begun_chunk = self._begun or (NONE_YET, NONE_YET)
        if chunk is not None and begun_id == first and chunk.chunk_id <= begun_chunk:
            return False
        self.follow(first, last, chunk)
        return True

    def follow(self, first: int, last: int, chunk: Chunk | None) -> None:
        """Let an entry in whatever came before it: where nobody looks for duplicates.

        ``highest`` goes down with a producer that counts anew: who begins to look for duplicates
        takes what it sent since for what it is.
        """
        if chunk is None or chunk.is_last:
            self.highest = last
            self._begun = None
        else:
            self._begun = (first, chunk.chunk_id)


def last_sequence_id(sequence_id: int, highest_sequence_id: int) -> int:
    """Return the sequence id of the last message in a SEND, as far as its client has said.

    Not every client numbers its messages: some give each SEND the next number, however many
    messages its batch has. So the size of a batch says nothing, and counting on with it would take
    later batches of theirs for duplicates.
    """
    return max(sequence_id, highest_sequence_id)
