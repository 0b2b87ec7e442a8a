"""A consumer that shares all messages of a topic with others of its subscription."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.consuming.inbox import Inbox
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.receiving import Arrival, Receiving
from nextgen.client.st.consuming.settings import ConsumerSettings, InitialPosition
from nextgen.client.st.consuming.subscribing import SegmentSubscription
from nextgen.client.st.domain.layout import Layout, LayoutSegment
from nextgen.client.st.domain.redelivery import Redeliveries
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
    ) -> None:
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
        self._redelivering: asyncio.TimerHandle | None = None

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
        consumer = self.segments.get(message.segment)
        if consumer is not None:
            consumer.acknowledge(message.position)

    async def negative_acknowledge(self, message: Message[Value]) -> None:
        """Have the message delivered again, to anyone, after ``negative_ack_delay_ms``."""
        due = asyncio.get_running_loop().time() + self._settings.negative_ack_delay_ms / 1_000
        self._redeliveries.add(message.segment, message.position.entry, due)
        self._arm()

    async def close(self) -> None:
        if self._redelivering is not None:
            self._redelivering.cancel()
            self._redelivering = None
        await super().close()

    def layout_changed(self, layout: Layout, former: Layout | None) -> None:
        if self.is_closed:
            return
        present = {each.topic for each in layout.segments.values()}
        for segment in list(self.segments):
            if segment not in present:
                self.close_segment(segment)
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
            is_earliest=is_earliest or not is_first,
            is_legacy=segment.is_legacy,
            priority_level=settings.priority_level,
        )

    def _arm(self) -> None:
        due = self._redeliveries.next_due
        if self._redelivering is None and due is not None and not self.is_closed:
            self._redelivering = asyncio.get_running_loop().call_at(due, self._redeliver)

    def _redeliver(self) -> None:
        self._redelivering = None
        due = self._redeliveries.take_due(asyncio.get_running_loop().time())
        for segment, entries in due.items():
            consumer = self.segments.get(segment)
            if consumer is not None:
                consumer.redeliver(entries)
        self._arm()
