"""What clients may use of one topic, kept: rates of publishing and dispatch, numbers of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from brokers.domain.refusal import ServerError
from brokers.ports.client_info import ClientInfo
from brokers.service.client_limits.broker_clients import (
    BrokerClients,
    Claim,
    Use,
    changed_limiter,
)
from brokers.service.client_limits.publish_throttle import PublishThrottle
from brokers.service.client_limits.rate_limiter import RateLimiter
from brokers.service.client_limits.subscribe_counts import SubscribeCounts
from nextgen.kernel.governance.client_limits import NO_LIMITS, Rate, TopicLimits


class LimitedSending(Protocol):
    """The sending of one subscription."""

    def use_rates(self, limiters: Sequence[RateLimiter]) -> None:
        """Keep what is sent within these rates; none: send without a bound."""
        ...

    def use_unacked(self, consumer_max: int, subscription_max: int) -> None:
        """Send no more than so many messages that are not acknowledged."""
        ...


class LimitedSubscription(Protocol):
    """A subscription of the topic."""

    @property
    def name(self) -> str: ...

    @property
    def consumers(self) -> Sequence[object]: ...

    @property
    def sending(self) -> LimitedSending: ...


class TopicClientLimits:
    """Limits of one open topic. ``published`` returns messages and bytes per second.

    Without limits ``throttle`` is None, and subscriptions have no rates: traffic costs nothing.
    """

    def __init__(
        self, name: str, clients: BrokerClients, published: Callable[[], tuple[float, float]]
    ) -> None:
        self.limits = NO_LIMITS
        self.throttle: PublishThrottle | None = None
        """Charged with each SEND, if there is one."""
        self._name = name
        self._clients = clients
        self._published = published
        self._tenant = clients.tenant(name.split("/")[2])
        self._publish: RateLimiter | None = None
        self._dispatch: RateLimiter | None = None
        self._subscriptions: dict[str, RateLimiter] = {}
        self._subscribes = SubscribeCounts(asyncio.get_running_loop().time)

    def use(self, limits: TopicLimits, subscriptions: Iterable[LimitedSubscription]) -> None:
        """Set the limits. Clients that are connected stay, whatever their number."""
        before, self.limits = self.limits, limits
        clients = self._clients
        if limits.tenant != before.tenant:
            waits = (clients.publisher_waits, clients.subscription_waits)
            self._tenant.use_limits(limits.tenant, waits)
        self._publish = changed_limiter(
            self._publish, limits.publish, on_wait=clients.publisher_waits
        )
        self._dispatch = self._dispatch_limiter(self._dispatch, limits.dispatch)
        self._use_throttle([each for each in (self._publish, self._tenant.publish) if each])
        if limits != before:
            for subscription in subscriptions:
                self.attach(subscription)

    def attach(self, subscription: LimitedSubscription) -> None:
        """Keep a subscription to the limits; may be repeated."""
        limits, name = self.limits, subscription.name
        rate = dict(limits.named_dispatch).get(name, limits.subscription_dispatch)
        own = self._dispatch_limiter(self._subscriptions.pop(name, None), rate)
        if own is not None:
            self._subscriptions[name] = own
        given = (own, self._dispatch, self._tenant.dispatch)
        subscription.sending.use_rates([each for each in given if each is not None])
        subscription.sending.use_unacked(limits.consumer_unacked, limits.subscription_unacked)

    def detach(self, name: str) -> None:
        """A subscription has ended."""
        own = self._subscriptions.pop(name, None)
        if own is not None:
            own.close()

    def close(self) -> None:
        """The topic closes: hold nobody any more."""
        self._use_throttle([])
        for limiter in (self._publish, self._dispatch, *self._subscriptions.values()):
            if limiter is not None:
                limiter.close()

    # Numbers ---------------------------------------------------------------------------------

    def claim_producer(self, producers: int, client: ClientInfo) -> Claim:
        """Count a producer beside ``producers`` others.

        Raises:
            Refusal: ProducerBusy, or NotAllowedError: see ``BrokerClients.claim``.
        """
        most = self.limits.producers
        if 0 < most <= producers:
            raise self._clients.refusal(
                Use.PRODUCER,
                ServerError.PRODUCER_BUSY,
                f"topic {self._name} reached max producers limit: {most}",
            )
        return self._clients.claim(Use.PRODUCER, self._tenant, self.limits.tenant, client)

    @contextmanager
    def consumer(self, client: ClientInfo) -> Iterator[Claim]:
        """Count a consumer that the block connects; not if the block refuses it.

        Raises:
            Refusal: ConsumerBusy, or NotAllowedError: see ``BrokerClients.claim``.
        """
        claim = self._clients.claim(Use.CONSUMER, self._tenant, self.limits.tenant, client)
        try:
            yield claim
        except BaseException:
            claim.release()
            raise

    def check_consumer(
        self, subscriptions: Mapping[str, LimitedSubscription], subscription: str
    ) -> None:
        """Raise ``Refusal``, ConsumerBusy, if one more consumer would be too many."""
        topic_max, subscription_max = self.limits.consumers, self.limits.subscription_consumers
        if not (topic_max or subscription_max):
            return
        problem, found = "", subscriptions.get(subscription)
        if 0 < topic_max <= sum(len(each.consumers) for each in subscriptions.values()):
            problem = f"topic {self._name} reached max consumers limit: {topic_max}"
        elif found is not None and 0 < subscription_max <= len(found.consumers):
            problem = f"subscription of {self._name} reached max consumers limit"
            problem = f"{problem}: {subscription_max}"
        if problem:
            raise self._clients.refusal(Use.CONSUMER, ServerError.CONSUMER_BUSY, problem)

    def check_subscription(self, subscriptions: int) -> None:
        """Raise ``Refusal``, NotAllowedError, if these are as many subscriptions as may be."""
        most = self.limits.subscriptions
        if 0 < most <= subscriptions:
            raise self._clients.refusal(
                Use.SUBSCRIPTION,
                ServerError.NOT_ALLOWED,
                f"exceed the maximum number of subscriptions of the topic {self._name}: {most}",
            )

    def check_subscribe(self, client: ClientInfo, consumer: str, consumer_id: int) -> None:
        """Raise ``Refusal``, NotAllowedError, if a consumer subscribes too often."""
        most, period = self.limits.subscribes, self.limits.subscribe_period_seconds
        key = (client.host, consumer, consumer_id)
        if most and not self._subscribes.admit(key, most, period):
            raise self._clients.refusal(
                Use.SUBSCRIBE,
                ServerError.NOT_ALLOWED,
                f"subscribe limited by subscribe rate limit per consumer: {most} in {period} s",
            )

    def _use_throttle(self, limiters: Sequence[RateLimiter]) -> None:
        if self.throttle is not None:
            if self.throttle.limiters == tuple(limiters):
                return
            self.throttle.close()
        self.throttle = PublishThrottle(limiters) if limiters else None

    def _dispatch_limiter(self, limiter: RateLimiter | None, rate: Rate) -> RateLimiter | None:
        return changed_limiter(
            limiter,
            rate,
            published=self._published,
            on_wait=self._clients.subscription_waits,
        )
