"""What a subscription needs of the four ways to hand out entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from brokers.domain.position import Position
from brokers.service.subscriptions.consumer import Consumer


class Dispatcher(Protocol):
    """Hands out one subscription's entries to its consumers.

    The subscription calls ``run`` after everything that may make dispatch possible. No method
    waits. A dispatcher never acknowledges: the cursor belongs to the subscription.
    """

    consumers: list[Consumer]

    @property
    def unacked_messages(self) -> int:
        """Messages sent and not acknowledged, where that is counted."""
        ...

    @property
    def delayed_entries(self) -> int:
        """Entries that are held back because their time has not come."""
        ...

    @property
    def next_due_at_ms(self) -> int | None:
        """When an entry that is held back is to be sent, by the wall clock."""
        ...

    def attach(self, consumer: Consumer) -> None:
        """Take in a consumer, or raise ``Refusal``."""
        ...

    def detach(self, consumer: Consumer) -> None:
        """Let go of a consumer; what it did not acknowledge goes to the others, in order."""
        ...

    def acked(self, consumer: Consumer, position: Position, *, messages_left: int) -> None:
        """An entry was acknowledged, all but ``messages_left`` messages of it."""
        ...

    def passed_over(self, up_to: Position) -> None:
        """Everything up to an entry counts as acknowledged, whoever has it or waits for it."""
        ...

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, consumer_epoch: int
    ) -> None:
        """Send again what ``consumer`` has and did not acknowledge; None: all of it."""
        ...

    def send_again(self, positions: Sequence[Position]) -> None:
        """Send entries again whose acknowledgement could not be taken."""
        ...

    def rewind(self) -> None:
        """Forget what was sent: begin again at the cursor."""
        ...

    def run(self) -> bool:
        """Send what can be sent, up to a turn's worth; return whether there is more."""
        ...
