"""Messages that came again too often go to a topic of their own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.segment_consumer import SegmentConsumer
from nextgen.client.st.consuming.settings import DeadLetterPolicy
from nextgen.client.st.domain.positions import MessageId
from nextgen.client.st.errors import ScalableTopicError
from nextgen.kernel.limits.scalable import ST_DEAD_LETTERS_AT_ONCE_MAX
from nextgen.tasks.background import start

ORIGIN_TOPIC = "REAL_TOPIC"
ORIGIN_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
"""Properties of a dead letter, besides those that it had: the names are Java's."""


class LetterProducer(Protocol):
    """A producer of payloads as they are."""

    async def submit(
        self,
        value: bytes,
        *,
        key: str | None,
        properties: Mapping[str, str] | None,
        event_time_ms: int | None,
    ) -> asyncio.Future[MessageId]: ...

    async def close(self) -> None: ...


MakeProducer = Callable[[DeadLetterPolicy], Awaitable[LetterProducer]]
"""Returns a producer for the policy's topic, after it has made the policy's subscription there."""


class DeadLetters:
    """Forwards messages and acknowledges each once it is stored. ``on_failure`` gets the others."""

    def __init__(
        self,
        policy: DeadLetterPolicy,
        subscription: str,
        make_producer: MakeProducer,
        on_failure: Callable[[Message[Any]], None],
    ) -> None:
        self._policy = policy
        self._subscription = subscription
        self._make_producer = make_producer
        self._on_failure = on_failure
        self._producer: LetterProducer | None = None
        self._waiting: deque[tuple[SegmentConsumer, Message[Any]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def takes(self, message: Message[Any]) -> bool:
        """Return whether a message came again more often than it may."""
        return message.redelivery_count > self._policy.max_redeliveries

    def put(self, consumer: SegmentConsumer, message: Message[Any]) -> None:
        self._waiting.append((consumer, message))
        if len(self._waiting) == 1:
            start("st-dead-letters", self._forward_all(), self._tasks)

    async def close(self) -> None:
        """Stop forwarding. A message that has no dead letter yet stays unacknowledged: the broker
        delivers it again to the next consumer of the subscription."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._producer is not None:
            await self._producer.close()

    async def _forward_all(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), ST_DEAD_LETTERS_AT_ONCE_MAX)
            letters = [self._waiting[index] for index in range(count)]
            for letter, result in zip(letters, await self._forwarded(letters), strict=True):
                consumer, message = letter
                if isinstance(result, BaseException):
                    self._on_failure(message)
                else:
                    consumer.acknowledge(message.position)
            for _ in letters:
                self._waiting.popleft()

    async def _forwarded(
        self, letters: list[tuple[SegmentConsumer, Message[Any]]]
    ) -> list[MessageId | BaseException]:
        try:
            if self._producer is None:
                topic = letters[0][1].topic
                self._producer = await self._make_producer(self._policy.of(topic))
            stored = [await self._submit(self._producer, message) for _, message in letters]
        except ScalableTopicError as error:
            return [error] * len(letters)
        return await asyncio.gather(*stored, return_exceptions=True)

    async def _submit(
        self, producer: LetterProducer, message: Message[Any]
    ) -> asyncio.Future[MessageId]:
        properties = {
            **message.properties,
            ORIGIN_TOPIC: message.topic,
            ORIGIN_SUBSCRIPTION: self._subscription,
            ORIGIN_MESSAGE_ID: str(message.message_id),
        }
        return await producer.submit(
            message.data,
            key=message.key,
            properties=properties,
            event_time_ms=message.event_time_ms,
        )
