"""One topic unit, open at this broker: its ledger, its producers, its subscriptions.

    open ──▶ closing (appends are answered, clients are redirected) ──▶ closed

A closed topic stays closed. To serve the unit again, open a new ``Topic``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.schema import Schema, SchemaKind
from brokers.domain.storage_policy import StoragePolicy
from brokers.domain.topic_facts import CURSOR_PREFIX
from brokers.ports.consumer import ConsumerSink
from brokers.ports.ledger import Fenced, LedgerDamaged, TopicLedger
from brokers.ports.producer import ProducerSink
from brokers.service.client_limits.topic_limits import TopicClientLimits
from brokers.service.producing.producers import Producer, ProducerRequest, Producers
from brokers.service.producing.publishing import Publishing
from brokers.service.shadows.acknowledged import AcknowledgedByShadows
from brokers.service.shadows.followers import Followers
from brokers.service.storage_refusal import STORAGE_ERRORS, storage_refusal
from brokers.service.subscriptions.many_subscriptions import WakeUps, for_all
from brokers.service.subscriptions.subscription import (
    Consumer,
    ConsumerRequest,
    Subscription,
    SubscriptionKind,
    SubscriptionStart,
)
from brokers.service.topics.rates import TopicRates
from brokers.service.topics.schemas import TopicSchemas
from brokers.service.topics.shadow import shadow_of
from brokers.service.topics.termination import Termination
from brokers.service.topics.unit import TopicDependencies, TopicUnit
from brokers.service.traffic import Traffic
from nextgen.kernel.limits.pulsar import (
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    SUBSCRIPTIONS_PER_TURN,
    TOPIC_DRAIN_MS_MAX,
)
from nextgen.kernel.limits.scalable import SEGMENT_HANDOVER_MS_MAX
from nextgen.tasks.background import join

_logger = structlog.get_logger(__name__)


class Topic:
    """One owner's topic. ``on_closing`` is called once, when it begins to close by itself."""

    def __init__(
        self,
        unit: TopicUnit,
        ledger: TopicLedger,
        dependencies: TopicDependencies,
        on_closing: Callable[[Topic, str], None],
        policy: StoragePolicy | None = None,
    ) -> None:
        self.unit = unit
        self.ledger = ledger
        self.traffic = Traffic(dependencies.traffic)
        self.policy = policy or dependencies.policy
        """The topic's effective policy; only ``use_policy`` changes it."""
        self.followers = Followers()
        """The streams that feed its shadows."""
        self.shadows = AcknowledgedByShadows(ledger)
        """Up to where its shadows have acknowledged."""
        self.schemas = TopicSchemas(unit.name, ledger, self.policy, self.followers.facts_changed)
        self.subscriptions: dict[str, Subscription] = {}
        self.failure: Exception | None = None
        """The error with which storage failed."""
        self.is_closing = False
        self._dependencies = dependencies
        self._on_closing = on_closing
        self._publishing = Publishing(
            ledger,
            is_kept=unit.is_persistent,
            traffic=self.traffic,
            append_latency=dependencies.append_latency,
            now_ms=dependencies.now_ms,
            on_failure=self._storage_failed,
        )
        self._publishing.recognise_duplicates(is_wanted=self.policy.deduplicates)
        self.limits = TopicClientLimits(
            unit.name, dependencies.clients, lambda: self.rates.published
        )
        """What clients may use of it."""
        self.limits.use(self.policy.limits, ())
        self.producers = Producers(
            unit.name, ledger, self._publishing, dependencies.make_name, self.limits
        )
        self._termination = Termination(unit.name, ledger, self._publishing)
        parts = self.subscriptions, self.schemas, self._termination, self._publishing
        self.as_shadow = shadow_of(unit.name, ledger, *parts)
        self.rates = TopicRates(self.traffic, self.producers, self.subscriptions)
        self._wake_ups = WakeUps(self.subscriptions)
        self._creating: dict[str, asyncio.Task[Subscription]] = {}
        self._closing: asyncio.Task[None] | None = None
        self._idle_since_ms: int | None = None
        self._stop_listening = ledger.on_appended(self._appended)
        ledger.on_fenced(self._fenced)
        ledger.on_failed(self._storage_failed)

    def __repr__(self) -> str:
        return (
            f"<Topic {self.unit.name} epoch={self.unit.epoch} producers={len(self.producers)} "
            f"subscriptions={len(self.subscriptions)} closing={self.is_closing}>"
        )

    async def recover(self) -> None:
        """Restore the durable subscriptions from the ledger's state."""
        for key, stored in list(self.ledger.state.items()):
            if key.startswith(CURSOR_PREFIX):
                if len(self.subscriptions) % SUBSCRIPTIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
                name = key.removeprefix(CURSOR_PREFIX)
                subscription = Subscription.recover(
                    name,
                    stored,
                    self.ledger,
                    self._dependencies.now_ms,
                    partition=self.unit.partition,
                )
                self._keep(subscription)
        if self.as_shadow is not None:
            self.as_shadow.recovered()

    @property
    def is_usable(self) -> bool:
        """Whether clients may connect."""
        return not self.is_closing and not self.ledger.is_fenced

    @property
    def is_terminated(self) -> bool:
        """Whether nothing more can be published, for ever."""
        return self._termination.is_over

    @property
    def has_clients(self) -> bool:
        subscriptions = self.subscriptions.values()
        return bool(len(self.producers) or any(each.consumers for each in subscriptions))

    @property
    def use(self) -> str:
        """What a deletion would take from clients: producers, consumers, subscriptions; or ""."""
        kept = len(self._durable) + len(self._creating)
        counts = dict(producers=len(self.producers), consumers=self.consumers, subscriptions=kept)
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)

    @property
    def consumers(self) -> int:
        return sum(len(subscription.consumers) for subscription in self.subscriptions.values())

    @property
    def pending_entries(self) -> int:
        """Number of publications that storage has not answered."""
        return self._publishing.in_flight

    @property
    def entries_added(self) -> int:
        """Number of entries that were stored since the topic was opened here."""
        return self._publishing.entries_stored

    def now_ms(self) -> int:
        """Return the wall clock's time, by which entries get their publish times."""
        return self._dependencies.now_ms()

    @property
    def backlog_bytes(self) -> int:
        """Backlog of the slowest durable subscription, by the average size of entries."""
        entries = max((each.backlog_entries for each in self._durable), default=0)
        kept = self.ledger.entry_count
        return self.ledger.byte_count * min(entries, kept) // kept if kept else 0

    @property
    def acknowledged_by_all(self) -> Position:
        """The position up to which every durable subscription has acknowledged everything."""
        return min((each.mark_delete for each in self._durable), default=self.ledger.last)

    def idle_for_ms(self, now_ms: int) -> int:
        """Return how long the topic has had no client, as observed by calls of this method.

        0 while it has one, or feeds a shadow. A client that connected and left between two calls
        counts as present.
        """
        if self.has_clients or self.followers or self._creating or not self.is_usable:
            self._idle_since_ms = None
            return 0
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        return now_ms - self._idle_since_ms

    def use_policy(self, policy: StoragePolicy) -> None:
        """Set the policy. It applies to later messages and schemas; the rest at the next upkeep."""
        self.policy = policy
        self.schemas.use_policy(policy)
        self._publishing.recognise_duplicates(is_wanted=policy.deduplicates)
        self.followers.changed()
        self.limits.use(policy.limits, self.subscriptions.values())

    def refuse_publishing(self, refusal: Refusal | None) -> None:
        """Refuse publications for a reason; None: accept them again, unless the topic has ended."""
        if not self._termination.has_begun and self.as_shadow is None:
            self._publishing.refusal = refusal

    def pass_over(self, up_to: Position) -> None:
        """Acknowledge everything up to an entry in every durable subscription."""
        for subscription in self._durable:
            subscription.pass_over(up_to)

    async def terminate(self) -> None:
        """End publishing for ever; return when that is durable. A repetition changes nothing.

        Producers are closed, and refused when they come back. Consumers are notified once they have
        acknowledged everything.

        Raises:
            Refusal: The topic closes.
            Unavailable, Fenced, StorageFailed: See ``Termination.end``.
        """
        self._check_usable()
        await self._termination.end()
        self.followers.facts_changed()
        self.producers.send_away()
        for subscription in list(self.subscriptions.values()):
            subscription.topic_terminated()

    # Producers -------------------------------------------------------------------------------

    async def add_producer(
        self, request: ProducerRequest, sink: ProducerSink, schema: Schema | None, initial: str
    ) -> tuple[Producer, int | None]:
        """Add a producer; return it and the version of its schema if it has one.

        ``initial`` is the name of a subscription to create before it produces, or empty.

        Raises:
            Refusal: The producer may not have access.
        """
        self._check_usable()
        if self._publishing.refusal is not None:
            raise self._publishing.refusal
        version = None
        if schema is not None and schema.kind != SchemaKind.NONE:
            version = await self.schemas.add(schema)
        if initial:
            start = SubscriptionStart(is_earliest=True)
            await self._subscription(initial, start, SubscriptionKind.SHARED)
        self._check_usable()
        producer = await self.producers.add(request, sink)
        self._idle_since_ms = None
        return producer, version

    async def settle(self, producer: Producer) -> None:
        """Return when all SENDs of a producer are answered."""
        await self._publishing.settle(producer.state)

    # Consumers -------------------------------------------------------------------------------

    async def subscribe(
        self,
        name: str,
        start: SubscriptionStart,
        request: ConsumerRequest,
        sink: ConsumerSink,
        schema: Schema | None,
    ) -> tuple[Subscription, Consumer]:
        """Add a consumer to a subscription, which is created if it does not exist.

        An Exclusive one of a segment waits ``SEGMENT_HANDOVER_MS_MAX`` for another one to leave.

        Raises:
            Refusal: The consumer may not connect.
        """
        self._check_usable()
        self.limits.check_subscribe(sink.client, request.name, request.consumer_id)
        self.limits.check_consumer(self.subscriptions, name)
        if schema is not None:
            await self.schemas.check_consumer(schema, is_idle=self._is_untouched)
        if not self.unit.is_persistent and start.is_durable:
            start = SubscriptionStart(is_durable=False)
        subscription = await self._subscription(name, start, request.kind)
        if self.unit.is_segment and request.kind is SubscriptionKind.EXCLUSIVE:
            # The shard gives a segment to another member of a group by telling both of them.
            await subscription.departures.wait(
                lambda: not subscription.consumers, SEGMENT_HANDOVER_MS_MAX
            )
        self._check_usable()
        if self.subscriptions.get(name) is not subscription:
            raise Refusal(ServerError.METADATA, f"subscription {name} has just ended: try again")
        if subscription.is_durable != start.is_durable:
            raise Refusal(
                ServerError.NOT_ALLOWED,
                f"subscription {name} of {self.unit.name} is "
                f"{'durable' if subscription.is_durable else 'not durable'}",
            )
        try:
            self.limits.check_consumer(self.subscriptions, name)
            with self.limits.consumer(sink.client) as claim:
                consumer = subscription.add_consumer(request, sink, claim)
        except Refusal:
            self._drop_if_over(subscription)
            raise
        self._idle_since_ms = None
        return subscription, consumer

    def remove_consumer(self, subscription: Subscription, consumer: Consumer) -> None:
        """Remove a consumer; a subscription that is not durable ends with its last one."""
        subscription.remove_consumer(consumer)
        self._drop_if_over(subscription)

    def has_subscription(self, name: str) -> bool:
        """Return whether there is a subscription of this name, or one is being created."""
        return name in self.subscriptions or name in self._creating

    async def create_subscription(self, name: str, start: SubscriptionStart) -> Subscription:
        """Create a subscription without a consumer. The first consumer decides its kind.

        Raises:
            Refusal: The topic has too many subscriptions, or it closes, or storage failed.
        """
        self._check_usable()
        return await self._subscription(name, start, SubscriptionKind.EXCLUSIVE)

    async def delete_subscription(self, subscription: Subscription, *, is_forced: bool) -> None:
        """Delete a subscription durably, at an operator's request.

        Raises:
            Refusal: Consumers are connected and ``is_forced`` is not set, or a seek is running.
        """
        self._check_usable()
        try:
            await subscription.delete(is_forced=is_forced)
        finally:
            self._drop_if_over(subscription)

    async def unsubscribe(
        self, subscription: Subscription, consumer: Consumer, *, is_forced: bool
    ) -> None:
        """Delete a subscription durably, at its consumer's request.

        Raises:
            Refusal: There are other consumers, and ``is_forced`` is not set.
        """
        try:
            await subscription.delete(consumer, is_forced=is_forced)
        except STORAGE_ERRORS as error:
            raise self.storage_failed(error) from error
        self._drop(subscription)

    def storage_failed(self, error: Exception) -> Refusal:
        """Return the answer to a client for one of ``STORAGE_ERRORS``. Damage ends the topic."""
        if isinstance(error, LedgerDamaged):
            self._storage_failed(error)
        if isinstance(error, Fenced):
            self.ledger.look_for_fence()
        return storage_refusal(error, self.unit.name)

    async def _subscription(
        self, name: str, start: SubscriptionStart, kind: SubscriptionKind
    ) -> Subscription:
        subscription = self.subscriptions.get(name)
        if subscription is not None:
            return subscription
        self._check_usable()
        creating = self._creating.get(name)
        if creating is None:
            if len(self.subscriptions) + len(self._creating) >= SUBSCRIPTIONS_PER_TOPIC_MAX:
                raise Refusal(
                    ServerError.NOT_ALLOWED,
                    f"topic {self.unit.name} has {SUBSCRIPTIONS_PER_TOPIC_MAX} subscriptions",
                )
            self.limits.check_subscription(len(self.subscriptions) + len(self._creating))
            creating = join(self._create(name, start, kind))
            creating.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._creating[name] = creating
        try:
            return await asyncio.shield(creating)
        except STORAGE_ERRORS as error:
            raise self.storage_failed(error) from error
        except asyncio.CancelledError:
            if creating.cancelled() and self.is_closing:
                # The topic closed and cancelled the creation; the caller was not cancelled.
                self._check_usable()
            creating.add_done_callback(self._created_for_nobody)
            raise

    async def _create(
        self, name: str, start: SubscriptionStart, kind: SubscriptionKind
    ) -> Subscription:
        try:
            subscription = await Subscription.create(
                name,
                start,
                self.ledger,
                self._dependencies.now_ms,
                kind=kind,
                partition=self.unit.partition,
            )
            self._keep(subscription)
            return subscription
        finally:
            del self._creating[name]

    def _created_for_nobody(self, creating: asyncio.Task[Subscription]) -> None:
        if not creating.cancelled() and creating.exception() is None:
            self._drop_if_over(creating.result())

    def _keep(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.name] = subscription
        self.limits.attach(subscription)
        subscription.on_failed(self._storage_failed)
        subscription.on_over(lambda: self._drop(subscription))
        if subscription.is_durable:
            on_drained = self._dependencies.on_drained
            subscription.on_drained(lambda: on_drained(self.unit, subscription))
        if self.is_terminated:
            subscription.topic_terminated()

    def _drop_if_over(self, subscription: Subscription) -> None:
        if subscription.is_over:
            self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self.limits.detach(subscription.name)

    # The end ---------------------------------------------------------------------------------

    async def close(self, broker_url: str = "", *, is_over: bool = False) -> None:
        """Redirect the clients, to ``broker_url`` if it is known, and close the ledger.

        Earlier appends are answered first, unless storage is stuck. ``is_over``: the unit is given
        up for good in this epoch, see ``TopicLedger.close``.
        """
        if self._closing is None:
            self.is_closing = True
            self._closing = join(self._close(broker_url, is_over=is_over))
        await asyncio.shield(self._closing)

    async def _close(self, broker_url: str, *, is_over: bool) -> None:
        self._publishing.stop()
        self.limits.close()
        if self.failure is None and not self.ledger.is_fenced:
            # Finish before redirecting clients: they may reach the next owner, which fences this
            # one, and acknowledgements that are not stored yet would be lost.
            await asyncio.gather(
                self._publishing.drained(TOPIC_DRAIN_MS_MAX),
                for_all(self.subscriptions.values(), lambda each: each.settle(TOPIC_DRAIN_MS_MAX)),
            )
        self.producers.end_all(broker_url)
        for creating in list(self._creating.values()):
            creating.cancel()
        await for_all(self.subscriptions.values(), lambda each: each.close(broker_url))
        self._stop_listening()
        self.followers.end()
        await self.ledger.close(is_over=is_over)
        _logger.info("topic closed", topic=repr(self), broker_url=broker_url)

    def _fenced(self) -> None:
        self._end_by_itself("fenced by a later owner")

    def _storage_failed(self, error: Exception) -> None:
        if not self.ledger.is_fenced:
            self.failure = error
        self._end_by_itself(str(error))

    def _end_by_itself(self, reason: str) -> None:
        if not self.is_closing:
            self.is_closing = True
            self._publishing.stop()
            self._on_closing(self, reason)

    def _appended(self) -> None:
        self._wake_ups.appended()
        self.followers.changed()

    @property
    def _durable(self) -> list[Subscription]:
        return [each for each in self.subscriptions.values() if each.is_durable]

    def _check_usable(self) -> None:
        if not self.is_usable:
            raise Refusal(
                ServerError.SERVICE_NOT_READY,
                f"topic {self.unit.name} is being closed here: look it up again",
            )

    @property
    def _is_untouched(self) -> bool:
        """Whether the topic is unused, so that its first consumer sets the schema."""
        is_empty = self.ledger.last == BEFORE_ALL
        return is_empty and (self.as_shadow is not None or not self.has_clients)
