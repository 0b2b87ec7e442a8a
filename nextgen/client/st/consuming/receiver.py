"""How an application takes messages from the queue of a consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, Self, TypeVar

from nextgen.client.st.consuming.inbox import Inbox
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.errors import AlreadyClosed, ScalableTopicError, TimedOut
from nextgen.client.st.settings import positive
from nextgen.tasks.timeouts import timeout

Value = TypeVar("Value")
Item = TypeVar("Item")


class Receiver(Generic[Value, Item]):
    """A consumer of one topic, or of those of a namespace, with one queue of items."""

    inbox: Inbox[Item]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End. Nothing is acknowledged by that. Harmless when closed already."""
        raise NotImplementedError

    def take(self, arrival: Item) -> Message[Value] | None:
        """Return the message of an item of the queue, None if it is not for the application."""
        raise NotImplementedError

    async def receive(self, timeout_ms: int | None = None) -> Message[Value]:
        """Return the next message.

        Raises:
            TimedOut: None came within ``timeout_ms``.
            AlreadyClosed: The consumer was closed.
            TopicNotFound: The topic of a consumer of one topic was deleted.
            NotSupported: The namespace has more than ``ST_NAMESPACE_TOPICS_MAX`` topics.
            ScalableTopicError: A segment of a consumer of one topic refuses it.
        """
        if (message := self.receive_nowait()) is not None:
            return message
        try:
            async with timeout(None if timeout_ms is None else timeout_ms / 1_000):
                while True:
                    arrival = await self.inbox.get()
                    if (message := self.take(arrival)) is not None:
                        return message
        except TimeoutError as error:
            raise TimedOut(f"no message within {timeout_ms} ms") from error

    def receive_nowait(self) -> Message[Value] | None:
        """Return the next message, or None if none is here. Raises as ``receive`` does."""
        while (arrival := self.inbox.get_nowait()) is not None:
            if (message := self.take(arrival)) is not None:
                return message
        return None

    async def receive_many(self, most: int, timeout_ms: int | None = None) -> list[Message[Value]]:
        """Return up to so many messages as soon as there is one; none if ``timeout_ms`` is over.

        Raises as ``receive`` does, except for ``TimedOut``.
        """
        positive("most", most)
        try:
            messages = [await self.receive(timeout_ms)]
        except TimedOut:
            return []
        while len(messages) < most:
            try:
                message = self.receive_nowait()
            except ScalableTopicError:
                # The next call raises it.
                break
            if message is None:
                break
            messages.append(message)
        return messages

    async def __aiter__(self) -> AsyncIterator[Message[Value]]:
        while True:
            try:
                message = await self.receive()
            except AlreadyClosed:
                return
            yield message
