"""What a subscription needs of the connection that a consumer is on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from brokers.ports.ledger import Entry


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One entry on its way to one consumer."""

    entry: Entry
    redelivery_count: int
    ack_set: Sequence[int]
    """Of a batch, a bit per message that is *not* acknowledged yet, as 64-bit words, lowest
    first, signed as in Java; empty: all of them are open, or it is no batch."""
    consumer_epoch: int


class ConsumerSink(Protocol):
    """Where one consumer's messages go. Nothing here waits or raises."""

    @property
    def is_writable(self) -> bool:
        """Whether the client reads. If not, dispatch to it pauses until ``resumed``."""
        ...

    def deliver(self, dispatches: Sequence[Dispatch]) -> None:
        """Send the messages, in order."""
        ...

    def active_changed(self, *, is_active: bool) -> None:
        """Tell a Failover consumer whether it is the one that gets messages."""
        ...

    def end(self, broker_url: str) -> None:
        """Close the consumer from the broker's side; ``broker_url`` may be empty."""
        ...
