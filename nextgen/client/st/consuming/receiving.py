"""What all consumers of one topic share: segments, the queue, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.consuming.inbox import Inbox
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.receiver import Receiver
from nextgen.client.st.consuming.schema_versions import SchemaVersions
from nextgen.client.st.consuming.segment_consumer import SegmentConsumer
from nextgen.client.st.consuming.subscribing import SegmentSubscription
from nextgen.client.st.domain.layout import Layout
from nextgen.client.st.errors import AlreadyClosed, ScalableTopicError, TimedOut, TopicNotFound
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.watching.layout_watch import LayoutWatch
from nextgen.kernel.limits.scalable import ST_CONSUMERS_OPENING_MAX
from nextgen.tasks.timeouts import timeout

Value = TypeVar("Value")


class Arrival(NamedTuple):
    """An item of the queue. Without message: the segment is at its end."""

    consumer: SegmentConsumer
    generation: int
    message: Message[Any] | None

    @property
    def is_valid(self) -> bool:
        """Whether the segment was not subscribed again since."""
        return self.consumer.generation == self.generation


class Receiving(Receiver[Value, Arrival]):
    """Derived by each kind of consumer. Hooks: ``topic_recreated``, ``layout_changed``, ``taken``,
    ``was_reset``, ``reached_end``, ``segment_ended``."""

    def __init__(
        self,
        topic: str,
        schema: Schema[Value],
        *,
        brokers: Brokers,
        timeout_ms: int,
        create_if_missing: bool,
        inbox: Inbox[Arrival] | None = None,
    ) -> None:
        self.brokers = brokers
        self.schema = schema
        self.versions = SchemaVersions(schema, timeout_ms=timeout_ms)
        self.timeout_ms = timeout_ms
        self.segments: dict[str, SegmentConsumer] = {}
        self.inbox: Inbox[Arrival] = Inbox() if inbox is None else inbox
        self.is_closed = False
        self._is_vanished = False
        self.opening = asyncio.Semaphore(ST_CONSUMERS_OPENING_MAX)
        self._closing: list[SegmentConsumer] = []
        self.watch = LayoutWatch(
            brokers,
            topic,
            create_if_missing=create_if_missing,
            answer_timeout_ms=timeout_ms,
            on_layout=self._layout_came,
            on_vanished=self._topic_vanished,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}, {len(self.segments)} segments>"

    @property
    def topic(self) -> str:
        """The topic's name, as the server resolves it."""
        return self.watch.topic

    @property
    def layout(self) -> Layout | None:
        """The newest layout of the topic."""
        return self.watch.layout

    async def start(self) -> None:
        """Begin to receive.

        Raises:
            ScalableTopicError: That is not possible. Nothing is left open.
        """
        raise NotImplementedError

    # Hooks ------------------------------------------------------------------------------------

    def topic_recreated(self) -> None:
        """The topic was deleted and created again. No segment is subscribed any more, and
        ``layout_changed`` follows."""

    def layout_changed(self, layout: Layout, former: Layout | None) -> None:
        """There is a layout. Both are of one epoch if only hints differ."""

    def enqueued(self, message: Message[Any]) -> None:
        """A message goes into the queue."""

    def taken(self, consumer: SegmentConsumer, message: Message[Any]) -> None:
        """A message goes to the application."""

    def is_wanted(self, message: Message[Any]) -> bool:
        """Whether the application is to have a message, which is taken either way."""
        return True

    def segment_ended(self, consumer: SegmentConsumer) -> None:
        """The application has taken the last message of a sealed segment."""

    # Receiving --------------------------------------------------------------------------------

    def take(self, arrival: Arrival) -> Message[Value] | None:
        """Return the message of an item of the queue, None if it is not for the application."""
        if not arrival.is_valid:
            return None
        consumer, _, message = arrival
        if message is None:
            self.segment_ended(consumer)
            return None
        consumer.took(message)
        self.taken(consumer, message)
        return message if self.is_wanted(message) else None

    # Owner of segment consumers ---------------------------------------------------------------

    def arrived(self, consumer: SegmentConsumer, messages: list[Message[Any]]) -> None:
        generation = consumer.generation
        for message in messages:
            self.enqueued(message)
            self.inbox.put(Arrival(consumer, generation, message))

    def reached_end(self, consumer: SegmentConsumer) -> None:
        self.inbox.put(Arrival(consumer, consumer.generation, None))

    def was_reset(self, consumer: SegmentConsumer) -> None:
        """A segment is subscribed again: what was not taken comes again."""

    def failed(self, consumer: SegmentConsumer, error: ScalableTopicError) -> None:
        self.inbox.fail(error)

    # Segments ---------------------------------------------------------------------------------

    def open_segment(self, how: SegmentSubscription) -> SegmentConsumer:
        """Subscribe a segment."""
        consumer = self.segments[how.segment] = SegmentConsumer(self, how)
        consumer.open()
        return consumer

    def close_segment(self, segment: str) -> None:
        consumer = self.segments.pop(segment, None)
        if consumer is not None:
            consumer.close()
            self._closing = [each for each in self._closing if each.has_tasks]
            self._closing.append(consumer)

    async def wait_opened(self, consumers: Iterable[SegmentConsumer]) -> None:
        """Wait until segments are subscribed, those that are left meanwhile excepted.

        Raises:
            TimedOut: They were not in time.
            ScalableTopicError: One refuses.
        """
        try:
            async with timeout(self.timeout_ms / 1_000):
                for each in list(consumers):
                    await asyncio.shield(each.opened)
        except TimeoutError as error:
            raise TimedOut(
                f"not all segments of {self.topic} were subscribed within {self.timeout_ms} ms"
            ) from error

    async def close(self) -> None:
        """End. Nothing is acknowledged by that. Harmless when closed already."""
        if self.is_closed:
            return
        self.is_closed = True
        self.watch.close()
        for segment in list(self.segments):
            self.close_segment(segment)
        self.inbox.fail(AlreadyClosed("the consumer was closed"))
        await asyncio.gather(*(each.wait_closed() for each in self._closing))
        await self.watch.wait_closed()

    def _layout_came(self, layout: Layout, former: Layout | None) -> None:
        if self._is_vanished:
            self._is_vanished = False
            self.inbox.clear_error()
        if former is not None and not layout.shares_segment_with(former):
            # Segments of the same names are others: nothing that is known of them holds.
            for segment in list(self.segments):
                self.close_segment(segment)
            self.topic_recreated()
        self.layout_changed(layout, former)

    def _topic_vanished(self) -> None:
        self._is_vanished = True
        self.inbox.fail(TopicNotFound(f"{self.topic} was deleted"))
