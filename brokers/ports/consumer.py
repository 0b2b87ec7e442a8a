"""The port by which a subscription sends to a consumer's connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from brokers.ports.client_info import ClientInfo
from brokers.ports.ledger import Entry


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One entry that is sent to one consumer."""

    entry: Entry
    redelivery_count: int
    ack_set: Sequence[int]
    """Ack set of a batch: a bit per message that is *not* acknowledged, as 64-bit words, lowest
    first, signed as in Java. Empty: no message is acknowledged, or the entry is not a batch."""
    consumer_epoch: int


class ConsumerSink(Protocol):
    """The connection of one consumer. No method waits or raises."""

    @property
    def is_writable(self) -> bool:
        """Whether the client keeps up. If not, dispatch to it pauses until ``resumed``."""
        ...

    @property
    def client(self) -> ClientInfo:
        """The client behind the connection."""
        ...

    def deliver(self, dispatches: Sequence[Dispatch]) -> None:
        """Send the messages, in order."""
        ...

    def active_changed(self, *, is_active: bool) -> None:
        """Notify a Failover consumer whether it is the active one."""
        ...

    def reached_end(self) -> None:
        """Notify the client that the topic is terminated and everything is acknowledged."""
        ...

    def end(self, broker_url: str) -> None:
        """Close the consumer from the broker's side; ``broker_url`` may be empty."""
        ...
