"""The interface of a subscription to its dispatcher, for the four kinds of subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from brokers.domain.position import Position
from brokers.service.subscriptions.consumer import Consumer

UNBOUNDED = 2**62
"""As many messages as a turn has."""


class Dispatcher(Protocol):
    """Sends one subscription's entries to its consumers.

    The subscription calls ``run`` after every event that may make dispatch possible. No method
    waits. A dispatcher never acknowledges: the subscription owns the cursor.
    """

    consumers: list[Consumer]
    active: Consumer | None
    """The consumer that gets everything; None if there is none, or if consumers share."""

    @property
    def unacked_messages(self) -> int:
        """Number of sent and unacknowledged messages, if this kind counts them."""
        ...

    @property
    def delayed_entries(self) -> int:
        """Number of delayed entries that are not due yet."""
        ...

    @property
    def next_due_at_ms(self) -> int | None:
        """The time at which the next delayed entry is due, by the wall clock."""
        ...

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer, or raise ``Refusal``."""
        ...

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer; the others get its unacknowledged entries, in order."""
        ...

    def acked(self, consumer: Consumer, position: Position, *, messages_left: int) -> None:
        """Note that an entry was acknowledged, except for ``messages_left`` of its messages."""
        ...

    def passed_over(self, up_to: Position) -> None:
        """Note that all entries up to this one are acknowledged, sent or waiting ones too."""
        ...

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, consumer_epoch: int
    ) -> None:
        """Redeliver unacknowledged entries of ``consumer``: the named ones; None: all of them."""
        ...

    def send_again(self, positions: Sequence[Position]) -> None:
        """Redeliver entries whose acknowledgement was refused."""
        ...

    def rewind(self) -> None:
        """Forget which entries were sent, and begin again at the cursor."""
        ...

    def use_unacked(self, most: int) -> None:
        """Set how many messages all consumers together may leave unacknowledged, if this kind
        counts them."""
        ...

    def run(self, messages_max: int = UNBOUNDED) -> bool:
        """Send entries, up to the limit of a turn and until they have so many messages; return
        whether there are more."""
        ...
