"""One consumer of a subscription, as its broker sees it: what it asked for and what it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.kind import SubscriptionKind
from brokers.ports.consumer import ConsumerSink, Dispatch
from nextgen.kernel.limits.pulsar import CONSUMER_PERMITS_MAX, CONSUMER_UNACKED_MAX

NO_EPOCH = -1
"""The consumer epoch of a client that has none: it is not sent along."""


@dataclass(frozen=True, slots=True)
class KeySharedRequest:
    """What a Key_Shared consumer wants of the 65,536 hashes."""

    is_sticky: bool = False
    """False: a fair share (AUTO_SPLIT). True: exactly ``ranges`` (STICKY)."""
    ranges: Sequence[tuple[int, int]] = ()
    """First and last hash, both included."""
    is_out_of_order_allowed: bool = False
    """A key may go to a new consumer while an old one has messages of it."""


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """A SUBSCRIBE, as far as it is about the consumer."""

    consumer_id: int
    name: str
    kind: SubscriptionKind
    priority_level: int = 0
    """0 is served first."""
    key_shared: KeySharedRequest | None = None
    consumer_epoch: int = NO_EPOCH
    read_compacted: bool = False


class Consumer:
    """A consumer that is connected. Owned by its subscription."""

    __slots__ = (
        "arrival",
        "bytes_out",
        "epoch",
        "is_blocked",
        "messages_out",
        "permits",
        "request",
        "sink",
        "unacked",
        "unacked_messages",
    )

    def __init__(self, request: ConsumerRequest, sink: ConsumerSink, arrival: int) -> None:
        self.request = request
        self.sink = sink
        self.arrival = arrival
        """Grows with every consumer of the subscription."""
        self.permits = 0
        """Messages it may still be sent. A batch may take it below zero."""
        self.epoch = request.consumer_epoch
        self.unacked: dict[Position, int] = {}
        """Of Shared and Key_Shared: entries it was sent, each with its messages still open."""
        self.unacked_messages = 0
        """Sum of ``unacked``."""
        self.is_blocked = False
        """It has too much that it did not acknowledge."""
        self.messages_out = 0
        self.bytes_out = 0

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} id={self.request.consumer_id} permits={self.permits}>"

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def priority_level(self) -> int:
        return self.request.priority_level

    @property
    def is_ready(self) -> bool:
        """Whether it can be sent something."""
        return self.permits > 0 and not self.is_blocked and self.sink.is_writable

    def add_permits(self, permits: int) -> None:
        """Let it be sent so many more messages.

        Raises:
            Refusal: TooManyRequests beyond ``CONSUMER_PERMITS_MAX``; nothing is changed.
        """
        if permits <= 0:
            raise Refusal(ServerError.NOT_ALLOWED, f"flow of {permits} messages")
        if self.permits + permits > CONSUMER_PERMITS_MAX:
            raise Refusal(
                ServerError.TOO_MANY_REQUESTS,
                f"more than {CONSUMER_PERMITS_MAX} permits at a time",
            )
        self.permits += permits

    def deliver(self, dispatches: Sequence[Dispatch]) -> None:
        """Send entries and count them. Permits and ``unacked`` are the dispatcher's business."""
        for dispatch in dispatches:
            self.messages_out += dispatch.entry.message_count
            self.bytes_out += len(dispatch.entry.payload)
        self.sink.deliver(dispatches)

    def hold(self, position: Position, messages: int) -> None:
        """Remember that an entry is on its way to it."""
        self.unacked[position] = messages
        self.unacked_messages += messages
        if self.unacked_messages >= CONSUMER_UNACKED_MAX:
            self.is_blocked = True

    def let_go_all(self) -> int:
        """Take back all it has; return how many messages that were."""
        taken = self.unacked_messages
        self.unacked.clear()
        self.unacked_messages = 0
        self.is_blocked = False
        return taken

    def let_go(self, position: Position, *, messages_left: int = 0) -> int:
        """Take back all of an entry but ``messages_left``; return how many messages that were."""
        had = self.unacked.pop(position, 0)
        if messages_left and had:
            self.unacked[position] = messages_left
        taken = had - messages_left if had else 0
        self.unacked_messages -= taken
        if self.is_blocked and self.unacked_messages <= CONSUMER_UNACKED_MAX // 2:
            self.is_blocked = False
        return taken
