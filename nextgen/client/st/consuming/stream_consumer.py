"""A consumer that gets the messages of each key in order, and acknowledges cumulatively."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.consuming.inbox import Inbox
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.receiving import Arrival, Receiving
from nextgen.client.st.consuming.segment_consumer import SegmentConsumer
from nextgen.client.st.consuming.settings import ConsumerSettings, InitialPosition
from nextgen.client.st.consuming.subscribing import SegmentSubscription
from nextgen.client.st.domain.assignment import AssignedSegment, Assignment, change_between
from nextgen.client.st.domain.layout import Layout
from nextgen.client.st.domain.positions import DeliveredPositions
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.watching.registration import Registration
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")


class StreamConsumer(Receiving[Value]):
    """Comes from ``PulsarClient.stream_consumer``. The controller of the topic assigns segments to
    the consumers of a subscription; children of a split come when their parent is acknowledged.

    A segment that goes to another consumer delivers nothing more, and is left once all that it
    delivered is acknowledged, or after the operation's time-out.
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
        numbers: Iterator[int] | None = None,
    ) -> None:
        """``numbers``: of messages in the order of the queue, if other consumers share it."""
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
        self._numbers = count(1) if numbers is None else numbers
        self._delivered = DeliveredPositions(self._numbers)
        self._taken_number = 0
        self._leaving: dict[str, SegmentConsumer] = {}
        self._wanted: dict[str, AssignedSegment] = {}
        self._drained: asyncio.Event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._registration = Registration(
            brokers,
            self.watch,
            subscription=subscription,
            consumer_name=settings.consumer_name,
            timeout_ms=timeout_ms,
            on_assignment=self._assigned,
        )

    async def start(self) -> None:
        """Register with the controller and subscribe the assigned segments.

        Raises:
            ScalableTopicError: That is not possible. Nothing is left open.
        """
        try:
            await self.watch.start()
            await self._registration.start()
            await self.wait_opened(self.segments.values())
        except BaseException:
            await self.close()
            raise

    @property
    def assigned(self) -> tuple[str, ...]:
        """The segments of this consumer, by their own topics."""
        return tuple(self._wanted)

    async def acknowledge_cumulative(self, message: Message[Value]) -> None:
        """Acknowledge the message and, in every segment, what was enqueued before it."""
        self.acknowledge_until(message.number)

    def acknowledge_until(self, number: int) -> None:
        """Acknowledge what was enqueued up to a message's number."""
        for segment, positions in self._delivered.acknowledged_until(number).items():
            consumer = self.segments.get(segment) or self._leaving.get(segment)
            if consumer is None:
                continue
            if consumer.how.bucket_ranges:
                # A shared segment has no cumulative acknowledgement.
                for position in positions:
                    consumer.acknowledge(position)
            else:
                consumer.acknowledge_until(positions[-1])
        if self._leaving:
            self._drained.set()

    async def close(self) -> None:
        if not self.is_closed:
            self._registration.close()
            for task in self._tasks:
                task.cancel()
            for consumer in self._leaving.values():
                consumer.close()
            await super().close()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._registration.wait_closed()

    # Hooks ------------------------------------------------------------------------------------

    def topic_recreated(self) -> None:
        self._delivered = DeliveredPositions(self._numbers)
        self._drained.set()
        self._registration.topic_recreated()

    def layout_changed(self, layout: Layout, former: Layout | None) -> None:
        self._join_wanted()

    def enqueued(self, message: Message[Any]) -> None:
        message.number = self._delivered.delivered(message.segment, message.position)

    def taken(self, consumer: SegmentConsumer, message: Message[Any]) -> None:
        self._taken_number = message.number

    def was_reset(self, consumer: SegmentConsumer) -> None:
        self._delivered.forget_behind(consumer.how.segment, self._taken_number)

    # Assignments ------------------------------------------------------------------------------

    def _assigned(self, assignment: Assignment, former: Assignment | None) -> None:
        self._wanted = {each.topic: each for each in assignment.segments}
        for each in change_between(former, assignment).left:
            consumer = self.segments.pop(each.topic, None)
            if consumer is not None:
                consumer.pause()
                self._delivered.forget_behind(each.topic, self._taken_number)
                self._leaving[each.topic] = consumer
                start("st-segment-drain", self._leave(each.topic, consumer), self._tasks)
        self._join_wanted()

    def _join_wanted(self) -> None:
        for topic, each in self._wanted.items():
            if topic not in self.segments and topic not in self._leaving and not self.is_closed:
                self.open_segment(self._how(each))

    async def _leave(self, topic: str, consumer: SegmentConsumer) -> None:
        """Wait until what the segment delivered is acknowledged, then leave it."""
        try:
            async with timeout(self.timeout_ms / 1_000):
                while self._delivered.pending(topic):
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            # The application does not acknowledge: its next owner gets the messages again.
            pass
        self._delivered.forget(topic)
        del self._leaving[topic]
        consumer.close()
        self._drained.set()
        self._join_wanted()

    def _how(self, segment: AssignedSegment) -> SegmentSubscription:
        settings = self._settings
        layout = self.layout
        known = None if layout is None else layout.segments.get(segment.segment_id)
        kinds = pulsar.CommandSubscribe
        # The controller has made the subscription; where it has not, nothing may be missed
        # of a segment that has parents.
        is_child = known is not None and bool(known.parents)
        return SegmentSubscription(
            topic=self.topic,
            segment=segment.topic,
            subscription=self._subscription,
            kind=kinds.Key_Shared if segment.is_shared else kinds.Exclusive,
            consumer_name=settings.consumer_name,
            receiver_queue=settings.receiver_queue,
            properties=settings.properties,
            subscription_properties=settings.subscription_properties,
            is_earliest=is_child or settings.initial_position is InitialPosition.EARLIEST,
            bucket_ranges=segment.bucket_ranges,
            is_legacy=known is not None and known.is_legacy,
        )
