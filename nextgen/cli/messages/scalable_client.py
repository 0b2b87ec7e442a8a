"""Our own client of scalable topics, as the command line uses it: like ``StockClient``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from nextgen.cli.messages.stock_client import IN_FLIGHT_MAX, Acknowledged
from nextgen.client.st import BlockingPulsarClient, InitialPosition, MessageId, errors
from nextgen.client.st import Message as ScalableMessage
from nextgen.client.st.blocking import (
    BlockingCheckpointConsumer,
    BlockingProducer,
    BlockingQueueConsumer,
    BlockingStreamConsumer,
)
from nextgen.kernel.errors import DeadlineExceeded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.pulsar.service_urls import TLS_SCHEME
from nextgen.runtime.security.client_token import token_in_use
from nextgen.runtime.security.process_tls import tls_in_use
from nextgen.runtime.security.tls import client_context

OPERATION_TIMEOUT_MS = 15_000
RECEIVE_INTERVAL_MS = 500
"""Time-out of one receive call, so that Ctrl-C takes effect between two calls."""


class ScalableClient:
    """A client for one scalable topic. Make it with ``scalable_client``."""

    def __init__(self, client: BlockingPulsarClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    def send(
        self, contents: Iterable[bytes], *, key: str | None, in_flight_max: int = IN_FLIGHT_MAX
    ) -> Iterator[Acknowledged]:
        """Do as ``StockClient.send``."""
        producer: BlockingProducer[bytes] = self._client.create_producer(
            self._topic, chunking_enabled=True
        )
        in_flight: deque[tuple[int, Future[MessageId]]] = deque()
        for number, content in enumerate(contents):
            in_flight.append((number, producer.submit(content, key=key)))
            while in_flight and (len(in_flight) >= in_flight_max or in_flight[0][1].done()):
                yield _acknowledged(*in_flight.popleft())
        while in_flight:
            yield _acknowledged(*in_flight.popleft())

    def consume(
        self, subscription: str, *, kind: str, earliest: bool, count: int, quiet_s: float
    ) -> Iterator[Any]:
        """Do as ``StockClient.consume``: shared as a queue, and otherwise as a stream."""
        position = InitialPosition.EARLIEST if earliest else InitialPosition.LATEST
        if kind == "Shared":
            queue: BlockingQueueConsumer[bytes] = self._client.queue_consumer(
                self._topic, subscription, initial_position=position
            )
            yield from _received(queue.receive, queue.acknowledge, count, quiet_s)
            queue.close()
            return
        stream: BlockingStreamConsumer[bytes] = self._client.stream_consumer(
            self._topic, subscription, initial_position=position
        )
        yield from _received(stream.receive, stream.acknowledge_cumulative, count, quiet_s)
        stream.close()

    def read(self, *, earliest: bool, follow: bool, count: int) -> Iterator[Any]:
        """Do as ``StockClient.read``."""
        position = InitialPosition.EARLIEST if earliest else InitialPosition.LATEST
        reader: BlockingCheckpointConsumer[bytes] = self._client.reader(
            self._topic, initial_position=position, create_if_missing=False
        )
        read = 0
        while not (count and read == count) and (follow or reader.has_message_available()):
            yield from _received(reader.receive, _leave, 1, 0.0)
            read += 1
        reader.close()


class ShownMessage:
    """A message with the methods that the stock client's have."""

    def __init__(self, message: ScalableMessage[bytes]) -> None:
        self._message = message

    def data(self) -> bytes:
        return self._message.data

    def partition_key(self) -> str:
        return self._message.key or ""

    def properties(self) -> dict[str, str]:
        return dict(self._message.properties)

    def publish_timestamp(self) -> int:
        return self._message.publish_time_ms

    def redelivery_count(self) -> int:
        return self._message.redelivery_count

    def topic_name(self) -> str:
        return self._message.segment

    def message_id(self) -> ShownMessage:
        return self

    def ledger_id(self) -> int:
        return self._message.position.ledger_id

    def entry_id(self) -> int:
        return self._message.position.entry_id

    def partition(self) -> int:
        return self._message.position.partition

    def batch_index(self) -> int:
        return self._message.position.batch_index


@contextmanager
def scalable_client(service_url: str, topic: str) -> Iterator[ScalableClient]:
    """Open a client and close it; its errors are converted to errors of the command line.

    Raises:
        Unavailable: No server answers.
        Refused, DeadlineExceeded: A server refused, or did not answer in time.
    """
    used = tls_in_use() if service_url.startswith(TLS_SCHEME) else None
    context = None if used is None else client_context(used.ca_file)
    with BlockingPulsarClient(
        service_url,
        operation_timeout_ms=OPERATION_TIMEOUT_MS,
        token=token_in_use() or None,
        tls=context,
    ) as client:
        try:
            yield ScalableClient(client, topic)
        except errors.TopicNotFound as error:
            raise Refused(RejectionCode.NOT_FOUND, f"there is no topic {topic}: {error}") from error
        except errors.TimedOut as error:
            raise DeadlineExceeded(f"{topic}: {error}") from error
        except (errors.ConnectionFailed, errors.SendFailed) as error:
            raise Unavailable(f"{topic} is not served at {service_url}: {error}") from error
        except errors.ScalableTopicError as error:
            raise Refused(RejectionCode.NOT_ALLOWED, f"{topic}: {error}") from error


def _received(
    receive: Callable[..., ScalableMessage[bytes]],
    acknowledge: Callable[[ScalableMessage[bytes]], None],
    count: int,
    quiet_s: float,
) -> Iterator[Any]:
    received, silent_s = 0, 0.0
    while not count or received < count:
        try:
            message = receive(RECEIVE_INTERVAL_MS)
        except errors.TimedOut:
            silent_s += RECEIVE_INTERVAL_MS / 1_000
            if not quiet_s or silent_s < quiet_s:
                continue
            if count:
                raise DeadlineExceeded(
                    f"{received} of {count} messages came, then none for {quiet_s:g} s"
                ) from None
            return
        received, silent_s = received + 1, 0.0
        yield ShownMessage(message)
        acknowledge(message)


def _acknowledged(number: int, stored: Future[MessageId]) -> Acknowledged:
    place = stored.result().position
    batch = "" if place.batch_index < 0 else f":{place.batch_index}"
    return Acknowledged(number, f"{place.ledger_id}:{place.entry_id}:{place.partition}{batch}")


def _leave(message: ScalableMessage[bytes]) -> None:
    """Readers acknowledge by themselves."""
