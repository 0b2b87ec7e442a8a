"""The end of a terminated topic, as one subscription reaches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.service.subscriptions.consumer import Consumer


class EndOfTopic:
    """Notifies the consumers, and a listener, once everything of a terminated topic is
    acknowledged.

    The listener is called once, and again for a consumer that connects later and behind a reset:
    whoever listens may not have known the subscription before, or may have forgotten the end.
    """

    def __init__(self) -> None:
        self.is_terminated = False
        """Whether nothing more is appended to the topic."""
        self.on_drained: Callable[[], None] | None = None
        self._is_reached = False

    def restart(self) -> None:
        """Begin anew: the cursor was set."""
        self._is_reached = False

    def look(self, consumers: Sequence[Consumer], *, is_drained: bool) -> None:
        """Notify those that do not know yet, if the end is reached. The topic MUST be
        terminated."""
        if not is_drained:
            self._is_reached = False
            return
        is_news = not self._is_reached
        self._is_reached = True
        for consumer in consumers:
            if not consumer.has_reached_end:
                consumer.has_reached_end = is_news = True
                consumer.sink.reached_end()
        if is_news and self.on_drained is not None:
            self.on_drained()
