"""The port by which a topic answers a producer's connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from brokers.domain.position import Position
from brokers.domain.producing.deduplication import Chunk
from brokers.ports.client_info import ClientInfo


@dataclass(frozen=True, slots=True)
class Publication:
    """One SEND with a correct checksum. Nothing else in the payload was checked."""

    payload: bytes
    sequence_id: int
    highest_sequence_id: int
    """As in the command, where 0 means that the client did not set it."""
    message_count: int
    chunk: Chunk | None


class ProducerSink(Protocol):
    """The connection of one producer. Only ``is_alive`` waits; no method raises."""

    @property
    def connection(self) -> object:
        """The connection, for comparison by identity."""
        ...

    @property
    def client(self) -> ClientInfo:
        """The client behind the connection."""
        ...

    def stored(self, publication: Publication, position: Position) -> None:
        """Answer a SEND that is durable; ``BEFORE_ALL`` if it was a duplicate."""
        ...

    def failed(self, publication: Publication, code: int, message: str) -> None:
        """Answer a SEND that was not stored. The client reconnects and repeats it."""
        ...

    def settled(self, publication: Publication) -> None:
        """Note that a SEND is done. Called after its answer, and also if it gets none."""
        ...

    def queued(self, name: str) -> None:
        """Notify the client that the producer waits for exclusive access."""
        ...

    def end(self, broker_url: str) -> None:
        """Close the producer from the broker's side; ``broker_url`` may be empty."""
        ...

    async def is_alive(self) -> bool:
        """Return whether the client is alive. If not, its connection was dropped."""
        ...
