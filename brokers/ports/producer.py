"""What a topic needs of the connection that a producer is on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from brokers.domain.position import Position
from brokers.domain.producing.deduplication import Chunk


@dataclass(frozen=True, slots=True)
class Publication:
    """One SEND. Its checksum holds; nothing else of the payload was looked at."""

    payload: bytes
    sequence_id: int
    highest_sequence_id: int
    """As in the command, where 0 means that the client does not say it."""
    message_count: int
    chunk: Chunk | None


class ProducerSink(Protocol):
    """Where one producer's answers go. Only ``is_alive`` waits; nothing raises."""

    @property
    def connection(self) -> object:
        """The connection, to be compared by identity."""
        ...

    def stored(self, publication: Publication, position: Position) -> None:
        """Answer a SEND that is durable; ``BEFORE_ALL`` if it was a duplicate."""
        ...

    def failed(self, publication: Publication, code: int, message: str) -> None:
        """Answer a SEND that is not stored. The client ends its connection and comes back."""
        ...

    def settled(self, publication: Publication) -> None:
        """The SEND waits for nothing any more. Comes behind its answer, also if it has none."""
        ...

    def queued(self, name: str) -> None:
        """Tell the client that the producer waits to have the topic to itself."""
        ...

    def end(self, broker_url: str) -> None:
        """Close the producer from the broker's side; ``broker_url`` may be empty."""
        ...

    async def is_alive(self) -> bool:
        """Return whether the client is there. If it is not, its connection has been dropped."""
        ...
