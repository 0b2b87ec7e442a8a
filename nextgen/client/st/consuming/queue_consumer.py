"""A consumer that shares all messages of a topic with others of its subscription."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.consuming.dead_letters import DeadLetters, MakeProducer
from nextgen.client.st.consuming.inbox import Inbox
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.receiving import Arrival, Receiving
from nextgen.client.st.consuming.segment_consumer import SegmentConsumer
from nextgen.client.st.consuming.settings import ConsumerSettings, InitialPosition
from nextgen.client.st.consuming.subscribing import SegmentSubscription
from nextgen.client.st.domain.layout import Layout, LayoutSegment
from nextgen.client.st.domain.positions import Position
from nextgen.client.st.domain.redelivery import Redeliveries, RedeliveryBackoff, Unfinished
from nextgen.client.st.schemas.schema import Schema
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")


class QueueConsumer(Receiving[Value]):
    """Comes from ``PulsarClient.queue_consumer``. It is subscribed *Shared* on every segment,
    sealed ones included, and follows the layout. Messages are acknowledged one by one.

    A segment that appears later is read from its start.
    """

    def __init__(
        self,
        topic: str,
        subscription: str,
        schema: Schema[Value],
        settings: ConsumerSettings,
        *,
        brokers: Brokers,
        timeout_ms: int,
        inbox: Inbox[Arrival] | None = None,
        make_letter_producer: MakeProducer | None = None,
    ) -> None:
        """``make_letter_producer``: needed if the settings have a policy for dead letters."""
        super().__init__(
            topic,
            schema,
            brokers=brokers,
            timeout_ms=timeout_ms,
            create_if_missing=settings.create_if_missing,
            inbox=inbox,
        )
        self._subscription = subscription
        self._settings = settings
        self._redeliveries = Redeliveries()
        self._unfinished: Unfinished | None = None
        if settings.ack_timeout_ms:
            self._unfinished = Unfinished(settings.ack_timeout_ms / 1_000)
        self._letters: DeadLetters | None = None
        if settings.dead_letter is not None:
            assert make_letter_producer is not None
            self._letters = DeadLetters(
                settings.dead_letter, subscription, make_letter_producer, self._again
            )
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    async def start(self) -> None:
        """Subscribe all segments.

        Raises:
            ScalableTopicError: That is not possible. Nothing is left open.
        """
        try:
            await self.watch.start()
            await self.wait_opened(self.segments.values())
        except BaseException:
            await self.close()
            raise

    async def acknowledge(self, message: Message[Value]) -> None:
        """The message is done with. The broker learns of it soon."""
        if self._unfinished is not None:
            self._unfinished.finished(message.segment, message.position)
        consumer = self.segments.get(message.segment)
        if consumer is not None:
            consumer.acknowledge(message.position)

    async def negative_acknowledge(self, message: Message[Value]) -> None:
        """Have the message delivered again, to anyone, after ``negative_ack_delay_ms`` or as
        ``negative_ack_backoff`` says."""
        if self._unfinished is not None:
            self._unfinished.finished(message.segment, message.position)
        self._again(message)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await super().close()
        if self._letters is not None:
            await self._letters.close()

    # Hooks ------------------------------------------------------------------------------------

    def arrived(self, consumer: SegmentConsumer, messages: list[Message[Any]]) -> None:
        letters = self._letters
        if letters is not None:
            dead = [each for each in messages if letters.takes(each)]
            messages = [each for each in messages if not letters.takes(each)]
            consumer.skipped(len(dead))
            for each in dead:
                letters.put(consumer, each)
        super().arrived(consumer, messages)

    def taken(self, consumer: SegmentConsumer, message: Message[Any]) -> None:
        if self._unfinished is not None:
            now = self._loop.time()
            place = message.position
            self._unfinished.took(message.segment, place, message.redelivery_count, now)
            self._arm()

    def was_reset(self, consumer: SegmentConsumer) -> None:
        if self._unfinished is not None:
            self._unfinished.forget(consumer.how.segment)

    def layout_changed(self, layout: Layout, former: Layout | None) -> None:
        if self.is_closed:
            return
        present = {each.topic for each in layout.segments.values()}
        for segment in list(self.segments):
            if segment not in present:
                self.close_segment(segment)
                if self._unfinished is not None:
                    self._unfinished.forget(segment)
        for each in (*layout.sealed, *layout.active):
            if each.topic not in self.segments:
                self.open_segment(self._how(each, is_first=former is None))

    def _how(self, segment: LayoutSegment, *, is_first: bool) -> SegmentSubscription:
        settings = self._settings
        is_earliest = settings.initial_position is InitialPosition.EARLIEST
        return SegmentSubscription(
            topic=self.topic,
            segment=segment.topic,
            subscription=self._subscription,
            kind=pulsar.CommandSubscribe.Shared,
            consumer_name=settings.consumer_name,
            receiver_queue=settings.receiver_queue,
            properties=settings.properties,
            subscription_properties=settings.subscription_properties,
            is_earliest=is_earliest or not is_first,
            is_legacy=segment.is_legacy,
            priority_level=settings.priority_level,
        )

    def _again(self, message: Message[Any]) -> None:
        settings = self._settings
        self._redeliver_later(
            message.segment,
            message.position,
            message.redelivery_count,
            settings.negative_ack_backoff,
            settings.negative_ack_delay_ms,
        )
        self._arm()

    def _redeliver_later(
        self,
        segment: str,
        position: Position,
        redeliveries: int,
        backoff: RedeliveryBackoff | None,
        delay_ms: float,
    ) -> None:
        if backoff is not None:
            delay_ms = backoff.pause_ms(redeliveries)
        self._redeliveries.add(segment, position.entry, self._loop.time() + delay_ms / 1_000)

    def _arm(self) -> None:
        dues = [self._redeliveries.next_due]
        if self._unfinished is not None:
            dues.append(self._unfinished.next_due)
        due = min((each for each in dues if each is not None), default=None)
        if due is None or self.is_closed:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        # The handle of another event loop may not say when it is due.
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """Time has passed: have sent again what is due."""
        self._timer = None
        now = self._loop.time()
        if self._unfinished is not None:
            for segment, position, redeliveries in self._unfinished.take_overdue(now):
                self._redeliver_later(
                    segment, position, redeliveries, self._settings.ack_timeout_backoff, 0
                )
        due = self._redeliveries.take_due(self._loop.time())
        for segment, entries in due.items():
            consumer = self.segments.get(segment)
            if consumer is not None:
                consumer.redeliver(entries)
        self._arm()
