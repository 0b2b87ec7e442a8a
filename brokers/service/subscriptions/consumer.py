"""One consumer of a subscription at its broker: its request and its unacknowledged messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.kind import SubscriptionKind
from brokers.ports.consumer import ConsumerSink, Dispatch
from brokers.service.client_limits.broker_clients import Claim
from brokers.service.traffic import Rate
from nextgen.kernel.limits.pulsar import CONSUMER_PERMITS_MAX, CONSUMER_UNACKED_MAX

NO_EPOCH = -1
"""The consumer epoch of a client without one: MESSAGE frames then have none either."""


@dataclass(frozen=True, slots=True)
class KeySharedRequest:
    """The part of the 65,536 hashes that a Key_Shared consumer requests."""

    is_sticky: bool = False
    """False: a fair share (AUTO_SPLIT). True: exactly ``ranges`` (STICKY)."""
    ranges: Sequence[tuple[int, int]] = ()
    """First and last hash, both included."""
    uses_entry_buckets: bool = False
    """With ``is_sticky``: ``ranges`` are the entry buckets of the whole segment, which the broker
    spreads over the consumers (PIP-486)."""
    is_out_of_order_allowed: bool = False
    """Whether a key may go to a new consumer while another has unacknowledged messages of it."""


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """The part of a SUBSCRIBE about the consumer."""

    consumer_id: int
    name: str
    kind: SubscriptionKind
    priority_level: int = 0
    """Priority level; 0 is served first."""
    key_shared: KeySharedRequest | None = None
    consumer_epoch: int = NO_EPOCH
    read_compacted: bool = False
    is_managed: bool = False
    """Whether it is a part of a consumer that follows the layout of a scalable topic."""


class Consumer:
    """A connected consumer. Owned by its subscription."""

    __slots__ = (
        "arrival",
        "bytes_out",
        "claim",
        "connected_since_ms",
        "epoch",
        "has_reached_end",
        "is_blocked",
        "messages_out",
        "permits",
        "rate",
        "request",
        "sink",
        "unacked",
        "unacked_max",
        "unacked_messages",
    )

    def __init__(
        self,
        request: ConsumerRequest,
        sink: ConsumerSink,
        arrival: int,
        now_ms: int = 0,
        claim: Claim | None = None,
    ) -> None:
        self.request = request
        self.sink = sink
        self.arrival = arrival
        """Number of the consumer in its subscription, in order of arrival."""
        self.permits = 0
        """Messages that it may still be sent. A batch may make it negative."""
        self.epoch = request.consumer_epoch
        self.unacked: dict[Position, int] = {}
        """For Shared and Key_Shared: entries it was sent, with their unacknowledged messages."""
        self.unacked_messages = 0
        """Sum of ``unacked``."""
        self.unacked_max = CONSUMER_UNACKED_MAX
        self.is_blocked = False
        """Whether it has too many unacknowledged messages."""
        self.claim = claim or Claim()
        """What it takes of the numbers of consumers that may be."""
        self.messages_out = 0
        self.bytes_out = 0
        self.connected_since_ms = now_ms
        self.rate = Rate()
        self.has_reached_end = False
        """Whether its client knows that the topic is terminated and everything acknowledged."""

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
        """Whether it can be sent a message."""
        return self.permits > 0 and not self.is_blocked and self.sink.is_writable

    def add_permits(self, permits: int) -> None:
        """Add permits for more messages.

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
        """Send entries and count them. The dispatcher updates permits and ``unacked``."""
        for dispatch in dispatches:
            self.messages_out += dispatch.entry.message_count
            self.bytes_out += len(dispatch.entry.payload)
        self.sink.deliver(dispatches)

    def hold(self, position: Position, messages: int) -> None:
        """Record that an entry was sent to it."""
        self.unacked[position] = messages
        self.unacked_messages += messages
        if self.unacked_messages >= self.unacked_max:
            self.is_blocked = True

    def use_unacked(self, most: int) -> None:
        """Set how many messages it may leave unacknowledged."""
        self.unacked_max = most
        self.is_blocked = self.unacked_messages >= most

    def let_go_all(self) -> int:
        """Take back all its entries; return their number of unacknowledged messages."""
        taken = self.unacked_messages
        self.unacked.clear()
        self.unacked_messages = 0
        self.is_blocked = False
        return taken

    def let_go(self, position: Position, *, messages_left: int = 0) -> int:
        """Reduce an entry to ``messages_left`` messages; return the number of removed ones."""
        had = self.unacked.pop(position, 0)
        if messages_left and had:
            self.unacked[position] = messages_left
        taken = had - messages_left if had else 0
        self.unacked_messages -= taken
        if self.is_blocked and self.unacked_messages <= self.unacked_max // 2:
            self.is_blocked = False
        return taken
