"""Consumers of all scalable topics of a namespace that have some properties.

    watch of the namespace ─▶ topic comes ─▶ a consumer of it ─▶ one queue ─▶ the application
                              topic goes ──▶ it is closed; what it enqueued is dropped

A topic's consumer that fails is made again after 100 ms to 30 s, while the topic is there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.consuming.dead_letters import MakeProducer
from nextgen.client.st.consuming.inbox import Inbox
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.queue_consumer import QueueConsumer
from nextgen.client.st.consuming.receiver import Receiver
from nextgen.client.st.consuming.receiving import Arrival, Receiving
from nextgen.client.st.consuming.settings import ConsumerSettings
from nextgen.client.st.consuming.stream_consumer import StreamConsumer
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.domain.topic_names import NamesChange
from nextgen.client.st.errors import (
    AlreadyClosed,
    NotSupported,
    ScalableTopicError,
    TopicNotFound,
)
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.watching.namespace_watch import NamespaceWatch
from nextgen.client.st.wire import is_final
from nextgen.kernel.limits.scalable import ST_NAMESPACE_TOPICS_MAX, ST_TOPICS_OPENING_MAX
from nextgen.kernel.routing.names import NamespaceName
from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.tasks.background import start

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound=Receiving[Any])


class _TopicArrival(NamedTuple):
    consumer: Receiving[Any]
    arrival: Arrival


class _TopicInbox(Inbox[Arrival]):
    """The queue of one topic's consumer: a part of the queue of all."""

    def __init__(self, shared: Inbox[_TopicArrival]) -> None:
        super().__init__()
        self._shared = shared
        self.consumer: Receiving[Any] | None = None
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Why the consumer gets nothing more."""

    def put(self, item: Arrival) -> None:
        assert self.consumer is not None
        self._shared.put(_TopicArrival(self.consumer, item))

    def fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(error)


class _Topic(Generic[Kind]):
    """One topic of the namespace, and what becomes of consuming it."""

    def __init__(self) -> None:
        self.consumer: Kind | None = None
        self.is_open = False
        """Whether the consumer is subscribed."""
        self.error: ScalableTopicError | None = None
        """Why the latest attempt failed."""
        self.was_tried = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class NamespaceConsumer(Receiver[Value, _TopicArrival], Generic[Value, Kind]):
    """What consumers of a namespace share.

    ``make`` returns a consumer of one topic, not started.
    """

    def __init__(
        self,
        namespace: NamespaceName,
        properties: PropertyFilter,
        make: Callable[[str, Inbox[Arrival]], Kind],
        *,
        brokers: Brokers,
        timeout_ms: int,
    ) -> None:
        self.is_closed = False
        self._make = make
        self._error: ScalableTopicError | None = None
        self._topics: dict[str, _Topic[Kind]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.inbox: Inbox[_TopicArrival] = Inbox()
        self._opening = asyncio.Semaphore(ST_TOPICS_OPENING_MAX)
        self._watch = NamespaceWatch(
            brokers,
            namespace,
            properties,
            answer_timeout_ms=timeout_ms,
            on_change=self._names_changed,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}, {len(self._topics)} topics>"

    @property
    def namespace(self) -> str:
        return self._watch.namespace.text

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are consumed at the moment, sorted."""
        return tuple(sorted(name for name, each in self._topics.items() if each.is_open))

    @property
    def failing(self) -> dict[str, ScalableTopicError]:
        """The topics that cannot be consumed at the moment, each with the reason."""
        return {name: each.error for name, each in self._topics.items() if each.error is not None}

    async def start(self) -> None:
        """Watch the namespace, and try each of its topics once.

        Raises:
            ScalableTopicError: The namespace cannot be watched, or a topic refuses the consumer for
                good. Nothing is left open.
        """
        try:
            await self._watch.start()
            if self._error is not None:
                raise self._error
            for each in list(self._topics.values()):
                await each.was_tried.wait()
                if each.error is not None and _is_refusal(each.error):
                    raise each.error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End. Nothing is acknowledged by that. Harmless when closed already."""
        if self.is_closed:
            return
        self.is_closed = True
        self._watch.close()
        for name in list(self._topics):
            self._leave(name)
        self.inbox.fail(AlreadyClosed("the consumer was closed"))
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._watch.wait_closed()

    # For the kinds ----------------------------------------------------------------------------

    def consumers(self) -> list[Kind]:
        """Return the consumers of all topics."""
        return [each.consumer for each in self._topics.values() if each.consumer is not None]

    def consumer_of(self, topic: str) -> Kind | None:
        """Return the consumer of a topic, if it is consumed."""
        found = self._topics.get(topic)
        return None if found is None else found.consumer

    # Inside -----------------------------------------------------------------------------------

    def take(self, arrival: _TopicArrival) -> Message[Value] | None:
        # What waits of a consumer that was closed is none for the application.
        message: Message[Value] | None = arrival.consumer.take(arrival.arrival)
        return message

    def _names_changed(self, change: NamesChange) -> None:
        for name in change.removed:
            self._leave(name)
        for name in change.added:
            if len(self._topics) >= ST_NAMESPACE_TOPICS_MAX:
                self._error = NotSupported(
                    f"{self.namespace} has more than {ST_NAMESPACE_TOPICS_MAX} topics of these "
                    "properties: further ones are not consumed"
                )
                self.inbox.fail(self._error)
                return
            topic = self._topics[name] = _Topic()
            topic.task = start("st-topic-of-namespace", self._consume(name, topic))

    def _leave(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is None or topic.task is None:
            return
        topic.was_tried.set()
        topic.task.cancel()
        self._leaving.add(topic.task)
        topic.task.add_done_callback(self._leaving.discard)

    async def _consume(self, name: str, topic: _Topic[Kind]) -> None:
        """Consume a topic until this task is cancelled."""
        backoff = Backoff()
        while True:
            inbox = _TopicInbox(self.inbox)
            consumer = self._make(name, inbox)
            # Its first messages come before all its segments are subscribed.
            inbox.consumer = topic.consumer = consumer
            try:
                async with self._opening:
                    await consumer.start()
                topic.is_open, topic.error = True, None
                topic.was_tried.set()
                backoff.reset()
                error = await inbox.failed
                assert isinstance(error, ScalableTopicError), "consumers fail with nothing else"
                topic.error = error
            except ScalableTopicError as refused:
                topic.error = refused
            finally:
                topic.consumer, topic.is_open = None, False
                await consumer.close()
            topic.was_tried.set()
            await asyncio.sleep(backoff.next_ms() / 1_000)


class NamespaceQueueConsumer(NamespaceConsumer[Value, QueueConsumer[Any]]):
    """Comes from ``PulsarClient.namespace_queue_consumer``: a queue of each topic. Messages are
    acknowledged one by one."""

    def __init__(
        self,
        namespace: NamespaceName,
        properties: PropertyFilter,
        subscription: str,
        schema: Schema[Value],
        settings: ConsumerSettings,
        *,
        brokers: Brokers,
        timeout_ms: int,
        make_letter_producer: MakeProducer | None = None,
    ) -> None:
        def make(topic: str, inbox: Inbox[Arrival]) -> QueueConsumer[Any]:
            return QueueConsumer(
                topic,
                subscription,
                schema,
                settings,
                brokers=brokers,
                timeout_ms=timeout_ms,
                inbox=inbox,
                make_letter_producer=make_letter_producer,
            )

        super().__init__(namespace, properties, make, brokers=brokers, timeout_ms=timeout_ms)

    async def acknowledge(self, message: Message[Value]) -> None:
        """The message is done with. Of a topic that has left nothing happens: it comes again."""
        consumer = self.consumer_of(message.topic)
        if consumer is not None:
            await consumer.acknowledge(message)

    async def negative_acknowledge(self, message: Message[Value]) -> None:
        """Have the message delivered again, see ``QueueConsumer.negative_acknowledge``."""
        consumer = self.consumer_of(message.topic)
        if consumer is not None:
            await consumer.negative_acknowledge(message)


class NamespaceStreamConsumer(NamespaceConsumer[Value, StreamConsumer[Any]]):
    """Comes from ``PulsarClient.namespace_stream_consumer``: a stream of each topic. There is no
    order among topics, but a cumulative acknowledgement covers all of them."""

    def __init__(
        self,
        namespace: NamespaceName,
        properties: PropertyFilter,
        subscription: str,
        schema: Schema[Value],
        settings: ConsumerSettings,
        *,
        brokers: Brokers,
        timeout_ms: int,
    ) -> None:
        numbers = itertools.count(1)

        def make(topic: str, inbox: Inbox[Arrival]) -> StreamConsumer[Any]:
            return StreamConsumer(
                topic,
                subscription,
                schema,
                settings,
                brokers=brokers,
                timeout_ms=timeout_ms,
                inbox=inbox,
                numbers=numbers,
            )

        super().__init__(namespace, properties, make, brokers=brokers, timeout_ms=timeout_ms)

    async def acknowledge_cumulative(self, message: Message[Value]) -> None:
        """Acknowledge the message and, in every segment of every topic, what was enqueued before
        it."""
        for consumer in self.consumers():
            consumer.acknowledge_until(message.number)


def _is_refusal(error: ScalableTopicError) -> bool:
    """Whether a topic will never take the consumer. One that is gone is no topic any more."""
    return is_final(error) and not isinstance(error, TopicNotFound)
