"""What a subscription has sent to its consumers, and how much it may send."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.service.client_limits.pacing import Pacing
from brokers.service.client_limits.rate_limiter import RateLimiter
from brokers.service.subscriptions.consumer import Consumer
from brokers.service.subscriptions.dispatch.dispatcher import Dispatcher
from nextgen.kernel.limits.pulsar import CONSUMER_UNACKED_MAX, SUBSCRIPTION_UNACKED_MAX


class Sending:
    """``ask`` requests a turn of the subscription. ``begin`` it with each dispatcher."""

    _dispatcher: Dispatcher

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._sent_before = (0, 0)
        self._charged = (0, 0)
        """What of ``total`` is charged already."""
        self._pacing: Pacing | None = None
        self._unacked_max = (CONSUMER_UNACKED_MAX, SUBSCRIPTION_UNACKED_MAX)

    def use_rates(self, limiters: Sequence[RateLimiter]) -> None:
        """Keep to these rates; none: send without a bound."""
        if self._pacing is not None:
            self._pacing.close()
        self._pacing = Pacing(limiters, self._ask) if limiters else None
        self._charged = self.total(self._dispatcher.consumers)
        self._ask()

    def use_unacked(self, consumer_max: int, subscription_max: int) -> None:
        """Set how many messages a consumer, and all together, may leave unacknowledged."""
        self._unacked_max = (consumer_max, subscription_max)
        self._dispatcher.use_unacked(subscription_max)
        for consumer in self._dispatcher.consumers:
            consumer.use_unacked(consumer_max)
        self._ask()

    def begin(self, dispatcher: Dispatcher) -> None:
        """Send by this dispatcher from here on."""
        self._dispatcher = dispatcher
        dispatcher.use_unacked(self._unacked_max[1])

    def joins(self, consumer: Consumer) -> None:
        """A consumer is about to join."""
        consumer.use_unacked(self._unacked_max[0])

    def leaves(self, consumer: Consumer) -> None:
        """A consumer leaves: release its claim, and remember what it was sent."""
        messages, size_bytes = self._sent_before
        self._sent_before = (messages + consumer.messages_out, size_bytes + consumer.bytes_out)
        consumer.claim.release()

    def total(self, consumers: Sequence[Consumer]) -> tuple[int, int]:
        """Return the messages and bytes sent to these consumers, and to those that have left."""
        messages, size_bytes = self._sent_before
        for consumer in consumers:
            messages += consumer.messages_out
            size_bytes += consumer.bytes_out
        return messages, size_bytes

    def run(self) -> bool:
        """Send what the rates allow; return whether there is more to do at once."""
        dispatcher = self._dispatcher
        if self._pacing is None:
            return dispatcher.run()
        messages_max = self._pacing.messages_max()
        if not messages_max:
            return False
        has_more = dispatcher.run(messages_max)
        messages, size_bytes = self._charged
        self._charged = self.total(dispatcher.consumers)
        if self._charged[0] != messages and self._pacing is not None:
            self._pacing.sent(self._charged[0] - messages, self._charged[1] - size_bytes)
        return has_more
