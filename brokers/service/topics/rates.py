"""The rates of one topic, its producers, its subscriptions and their consumers, for statistics."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.service.producing.producers import Producers
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.traffic import Rate, Traffic


class TopicRates:
    """Measured every ``TOPIC_RATES_MS``. A topic without traffic costs two comparisons."""

    def __init__(
        self,
        traffic: Traffic,
        producers: Producers,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self._traffic = traffic
        self._producers = producers
        self._subscriptions = subscriptions
        self.rate_in = Rate()
        self.rate_out = Rate()
        self._counted = (0, 0)
        self._is_quiet = True
        self._at_ms: int | None = None

    @property
    def published(self) -> tuple[float, float]:
        """Messages and bytes per second."""
        return self.rate_in.messages_per_s, self.rate_in.bytes_per_s

    def measure(self, now_ms: int) -> None:
        """Set all rates, of the time since the last call. ``now_ms`` never goes backwards."""
        before_ms, self._at_ms = self._at_ms, now_ms
        counted = (self._traffic.messages_in, self._traffic.messages_out)
        was_quiet, self._is_quiet = self._is_quiet, counted == self._counted
        self._counted = counted
        if before_ms is None:
            self._set(0)
        elif now_ms > before_ms and not (was_quiet and self._is_quiet):
            self._set((now_ms - before_ms) / 1_000)

    def _set(self, seconds: float) -> None:
        traffic = self._traffic
        self.rate_in.measure(traffic.messages_in, traffic.bytes_in, seconds)
        self.rate_out.measure(traffic.messages_out, traffic.bytes_out, seconds)
        for producer in self._producers:
            state = producer.state
            producer.rate.measure(state.messages_in, state.bytes_in, seconds)
        for subscription in self._subscriptions.values():
            stats = subscription.stats()
            subscription.rate.measure(stats.messages_out, stats.bytes_out, seconds)
            for consumer in subscription.consumers:
                consumer.rate.measure(consumer.messages_out, consumer.bytes_out, seconds)
