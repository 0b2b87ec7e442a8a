"""The client for programs without an event loop: the same calls, each waits for its result.

Any number of threads may use one client. All of it runs on one thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from nextgen.client.st.client import PulsarClient
from nextgen.client.st.consuming.checkpoint_consumer import CheckpointConsumer
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.namespace_consumer import (
    NamespaceQueueConsumer,
    NamespaceStreamConsumer,
)
from nextgen.client.st.consuming.queue_consumer import QueueConsumer
from nextgen.client.st.consuming.receiver import Receiver
from nextgen.client.st.consuming.stream_consumer import StreamConsumer
from nextgen.client.st.domain.checkpoints import Checkpoint
from nextgen.client.st.domain.positions import MessageId
from nextgen.client.st.errors import AlreadyClosed
from nextgen.client.st.producing.producer import Producer
from nextgen.client.st.schemas.schema import Schema

Value = TypeVar("Value")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Wrapped = TypeVar("Wrapped")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="nextgen-scalable-client", daemon=True
        )
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        if self._loop.is_closed():
            work.close()
            raise AlreadyClosed("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Carry out ``work`` there and return its result. An interrupt cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Blocking(Generic[Wrapped]):
    """An object of the client, and the thread that it lives on."""

    def __init__(self, thread: LoopThread, wrapped: Wrapped) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return f"<blocking {self._wrapped!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """As that of the object behind it. Harmless when the client is closed."""
        if not self._thread.is_stopped:
            self._thread.wait(self._wrapped.close())  # type: ignore[attr-defined]


def _waiting(
    method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Return ``method`` as one that waits for its result."""

    @wraps(method)
    def call(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        result: Result = self._thread.wait(method(self._wrapped, *arguments, **named))
        return result

    return call


class BlockingProducer(_Blocking[Producer[Value]]):
    """``Producer`` for threads."""

    shutdown = _waiting(Producer.shutdown)
    send = _waiting(Producer.send)
    flush = _waiting(Producer.flush)

    def submit(self, value: Value, **options: Any) -> Future[MessageId]:
        """Do as ``Producer.submit``: return a future once the message has its place."""
        stored: asyncio.Future[MessageId] = self._thread.wait(
            self._wrapped.submit(value, **options)
        )
        return self._thread.submit(_result_of(stored))


class _BlockingConsumer(_Blocking[Wrapped]):
    receive = _waiting(Receiver.receive)
    receive_many = _waiting(Receiver.receive_many)

    def __iter__(self) -> Iterator[Message[Any]]:
        while True:
            try:
                message = self.receive()
            except AlreadyClosed:
                return
            yield message


class BlockingQueueConsumer(_BlockingConsumer[QueueConsumer[Value]]):
    """``QueueConsumer`` for threads."""

    acknowledge = _waiting(QueueConsumer.acknowledge)
    negative_acknowledge = _waiting(QueueConsumer.negative_acknowledge)


class BlockingStreamConsumer(_BlockingConsumer[StreamConsumer[Value]]):
    """``StreamConsumer`` for threads."""

    acknowledge_cumulative = _waiting(StreamConsumer.acknowledge_cumulative)


class BlockingNamespaceQueueConsumer(_BlockingConsumer[NamespaceQueueConsumer[Value]]):
    """``NamespaceQueueConsumer`` for threads."""

    acknowledge = _waiting(NamespaceQueueConsumer.acknowledge)
    negative_acknowledge = _waiting(NamespaceQueueConsumer.negative_acknowledge)


class BlockingNamespaceStreamConsumer(_BlockingConsumer[NamespaceStreamConsumer[Value]]):
    """``NamespaceStreamConsumer`` for threads."""

    acknowledge_cumulative = _waiting(NamespaceStreamConsumer.acknowledge_cumulative)


class BlockingCheckpointConsumer(_BlockingConsumer[CheckpointConsumer[Value]]):
    """``CheckpointConsumer`` for threads."""

    has_message_available = _waiting(CheckpointConsumer.has_message_available)

    def checkpoint(self) -> Checkpoint:
        """As ``CheckpointConsumer.checkpoint``."""
        return self._thread.wait(_checkpoint_of(self._wrapped))


class BlockingPulsarClient(_Blocking[PulsarClient]):
    """``PulsarClient`` for threads. It takes the same arguments."""

    def __init__(self, service_url: str, **settings: Any) -> None:
        thread = LoopThread()
        try:
            super().__init__(thread, thread.wait(_made(service_url, settings)))
        except BaseException:
            thread.stop()
            raise

    def close(self) -> None:
        super().close()
        if not self._thread.is_stopped:
            self._thread.stop()

    def shutdown(self) -> None:
        """As ``PulsarClient.shutdown``: end at once."""
        if not self._thread.is_stopped:
            self._thread.wait(self._wrapped.shutdown())
            self._thread.stop()

    def create_producer(
        self, topic: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> BlockingProducer[Value]:
        """As ``PulsarClient.create_producer``."""
        made = self._wrapped.create_producer(topic, schema=schema, **settings)
        return BlockingProducer(self._thread, self._thread.wait(made))

    def queue_consumer(
        self, topic: str, subscription: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> BlockingQueueConsumer[Value]:
        """As ``PulsarClient.queue_consumer``."""
        made = self._wrapped.queue_consumer(topic, subscription, schema=schema, **settings)
        return BlockingQueueConsumer(self._thread, self._thread.wait(made))

    def stream_consumer(
        self, topic: str, subscription: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> BlockingStreamConsumer[Value]:
        """As ``PulsarClient.stream_consumer``."""
        made = self._wrapped.stream_consumer(topic, subscription, schema=schema, **settings)
        return BlockingStreamConsumer(self._thread, self._thread.wait(made))

    def namespace_queue_consumer(
        self,
        namespace: str,
        subscription: str,
        *,
        property_filters: Mapping[str, str] | None = None,
        schema: Schema[Value] | None = None,
        **settings: Any,
    ) -> BlockingNamespaceQueueConsumer[Value]:
        """As ``PulsarClient.namespace_queue_consumer``."""
        made = self._wrapped.namespace_queue_consumer(
            namespace, subscription, property_filters=property_filters, schema=schema, **settings
        )
        return BlockingNamespaceQueueConsumer(self._thread, self._thread.wait(made))

    def namespace_stream_consumer(
        self,
        namespace: str,
        subscription: str,
        *,
        property_filters: Mapping[str, str] | None = None,
        schema: Schema[Value] | None = None,
        **settings: Any,
    ) -> BlockingNamespaceStreamConsumer[Value]:
        """As ``PulsarClient.namespace_stream_consumer``."""
        made = self._wrapped.namespace_stream_consumer(
            namespace, subscription, property_filters=property_filters, schema=schema, **settings
        )
        return BlockingNamespaceStreamConsumer(self._thread, self._thread.wait(made))

    def checkpoint_consumer(
        self, topic: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> BlockingCheckpointConsumer[Value]:
        """As ``PulsarClient.checkpoint_consumer``."""
        made = self._wrapped.checkpoint_consumer(topic, schema=schema, **settings)
        return BlockingCheckpointConsumer(self._thread, self._thread.wait(made))

    def reader(
        self, topic: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> BlockingCheckpointConsumer[Value]:
        """As ``PulsarClient.reader``."""
        made = self._wrapped.reader(topic, schema=schema, **settings)
        return BlockingCheckpointConsumer(self._thread, self._thread.wait(made))


async def _made(service_url: str, settings: dict[str, Any]) -> PulsarClient:
    # Made on the loop that will use it.
    return PulsarClient(service_url, **settings)


async def _result_of(future: asyncio.Future[Result]) -> Result:
    return await future


async def _checkpoint_of(consumer: CheckpointConsumer[Any]) -> Checkpoint:
    return consumer.checkpoint()
