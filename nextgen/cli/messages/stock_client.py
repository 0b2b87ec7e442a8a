"""The stock Pulsar client for Python, as the command line uses it.

It is an optional dependency and is imported when a command needs it. Its errors become those of
this project; the log lines of its C++ part are dropped, because the error has the reason.
"""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from nextgen.cli.console.install_hint import install_hint
from nextgen.kernel.errors import (
    DeadlineExceeded,
    MetadataError,
    Refused,
    RefusesToStart,
    Unavailable,
)
from nextgen.runtime.security.client_token import token_in_use
from nextgen.runtime.security.process_tls import tls_in_use

OPERATION_TIMEOUT_S = 15
"""Time-out for a lookup or for creating a producer or consumer: longer than any failover."""

SEND_TIMEOUT_MS = 15_000
CONNECT_TIMEOUT_MS = 1_000
IN_FLIGHT_MAX = 1_000
"""Messages sent and not yet acknowledged."""

RECEIVE_INTERVAL_MS = 500
"""Time-out of one receive call, so that Ctrl-C takes effect between two calls."""

_REFUSALS = {
    "TopicNotFound": (
        "NOT_FOUND",
        "there is no topic {topic}: its namespace is absent, or does not create topics on demand",
    ),
    "InvalidTopicName": ("INVALID_NAME", "{topic} is not the name of a topic"),
    "ConsumerBusy": ("BUSY", "{topic}: the subscription has a consumer that does not share it"),
    "ProducerBusy": ("BUSY", "{topic}: another producer has it for itself"),
    "ProducerFenced": ("BUSY", "{topic}: another producer took it over"),
    "ProducerBlockedQuotaExceededError": ("BACKLOG_FULL", "the backlog of {topic} is full"),
    "ProducerBlockedQuotaExceededException": ("BACKLOG_FULL", "the backlog of {topic} is full"),
    "MessageTooBig": ("TOO_LARGE", "a message for {topic} is larger than its broker takes"),
    "NotAllowedError": ("NOT_ALLOWED", "{topic}: the broker does not allow this"),
    "TopicTerminated": ("NOT_ALLOWED", "{topic} is terminated"),
    "AuthenticationError": ("NOT_ALLOWED", "{topic}: the client has not proved its role"),
    "AuthorizationError": (
        "FORBIDDEN",
        "{topic}: your role has no permission for this (see nextgen permissions)",
    ),
    "IncompatibleSchema": ("INCOMPATIBLE_SCHEMA", "{topic} has another schema"),
}


Message = Any
"""A ``pulsar.Message``; the library ships without types."""


class SendFailed(Exception):
    """A message was not acknowledged. ``args[0]`` is the name of the client's result."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One message that was sent and is durable."""

    number: int
    """The number of the sent message, from 0."""
    message_id: str


class StockClient:
    """A stock client for one topic. Make it with ``stock_client``, whose errors it has."""

    def __init__(self, pulsar: Any, client: Any, topic: str) -> None:
        self._pulsar = pulsar
        self._client = client
        self._topic = topic

    def __repr__(self) -> str:
        return f"<StockClient {self._topic}>"

    def send(
        self, contents: Iterable[bytes], *, key: str | None, in_flight_max: int = IN_FLIGHT_MAX
    ) -> Iterator[Acknowledged]:
        """Send every message and yield each once it is acknowledged, in the order of the acks.

        Ends when all are acknowledged; a caller that stops earlier does not know the outcome of the
        others.
        """
        producer = self._client.create_producer(
            self._topic,
            send_timeout_millis=SEND_TIMEOUT_MS,
            max_pending_messages=IN_FLIGHT_MAX,
            batching_enabled=True,
            batching_max_publish_delay_ms=1,
        )
        outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        in_flight = 0
        for number, content in enumerate(contents):
            producer.send_async(content, _noted(outcomes, number), partition_key=key)
            in_flight += 1
            while in_flight >= in_flight_max or not outcomes.empty():
                yield _acknowledged(outcomes)
                in_flight -= 1
        producer.flush()
        for _ in range(in_flight):
            yield _acknowledged(outcomes)

    def consume(
        self, subscription: str, *, kind: str, earliest: bool, count: int, quiet_s: float
    ) -> Iterator[Message]:
        """Yield messages of a subscription; acknowledge each when the next one is requested.

        ``kind`` is a name in ``pulsar.ConsumerType``. ``count`` 0: any number. The iteration ends
        after ``quiet_s`` without a message (0: never).

        Raises:
            DeadlineExceeded: ``quiet_s`` passed before ``count`` messages had arrived.
        """
        begin = self._pulsar.InitialPosition
        consumer = self._client.subscribe(
            self._topic,
            subscription,
            consumer_type=getattr(self._pulsar.ConsumerType, kind),
            initial_position=begin.Earliest if earliest else begin.Latest,
            # Otherwise an acknowledged message is redelivered with the rest of its batch.
            batch_index_ack_enabled=True,
        )
        for message in self._received(consumer.receive, count, quiet_s):
            yield message
            consumer.acknowledge(message)
        consumer.close()

    def read(self, *, earliest: bool, follow: bool, count: int) -> Iterator[Message]:
        """Yield messages from one end of the topic on; without ``follow`` to its present end."""
        ends = self._pulsar.MessageId
        reader = self._client.create_reader(self._topic, ends.earliest if earliest else ends.latest)
        read = 0
        while not (count and read == count) and (follow or reader.has_message_available()):
            yield from self._received(reader.read_next, 1, 0.0)
            read += 1
        reader.close()

    def _received(
        self, receive: Callable[..., Message], count: int, quiet_s: float
    ) -> Iterator[Message]:
        received = 0
        last = time.monotonic()
        while not count or received < count:
            try:
                message = receive(timeout_millis=RECEIVE_INTERVAL_MS)
            except self._pulsar.Timeout:
                if not quiet_s or time.monotonic() - last < quiet_s:
                    continue
                if count:
                    raise DeadlineExceeded(
                        f"{received} of {count} messages came, then none for {quiet_s:g} s"
                    ) from None
                return
            received += 1
            yield message
            last = time.monotonic()


@contextmanager
def stock_client(service_url: str, topic: str) -> Iterator[StockClient]:
    """Open a client and close it; its errors are converted to errors of this project.

    Raises:
        RefusesToStart: The client is not installed.
        Unavailable: No address of the URL accepts connections, or no broker serves the topic.
        Refused, DeadlineExceeded: See ``error_of``.
    """
    try:
        import pulsar
    except ImportError as error:
        raise RefusesToStart(
            f"this command needs the Pulsar client for Python ({error}): {install_hint('client')}"
        ) from error
    _check_reachable(service_url)
    token = token_in_use()
    # Without a certificate of the cluster: the authorities that the library trusts by itself.
    tls = tls_in_use()
    client = pulsar.Client(
        service_url,
        authentication=pulsar.AuthenticationToken(token) if token else None,
        operation_timeout_seconds=OPERATION_TIMEOUT_S,
        connection_timeout_ms=CONNECT_TIMEOUT_MS,
        stats_interval_in_seconds=0,
        tls_trust_certs_file_path=None if tls is None else str(tls.ca_file),
        tls_validate_hostname=True,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    try:
        yield StockClient(pulsar, client, topic)
    except pulsar.Interrupted:
        raise KeyboardInterrupt from None
    except pulsar.PulsarException as error:
        raise error_of(type(error).__name__, topic, service_url) from error
    except SendFailed as error:
        raise error_of(str(error), topic, service_url) from error
    finally:
        with suppress(pulsar.PulsarException):
            client.close()


def error_of(name: str, topic: str, service_url: str) -> MetadataError:
    """Return this project's error for the client's error or result called ``name``."""
    if name in _REFUSALS:
        code, sentence = _REFUSALS[name]
        return Refused(code, sentence.format(topic=topic))
    if name == "Timeout":
        return DeadlineExceeded(f"{topic}: no answer in time from {service_url}")
    return Unavailable(f"{topic} is not served at {service_url} at the moment ({name})")


def _check_reachable(service_url: str) -> None:
    """Check that an address accepts connections: the client would retry until its time-out."""
    addresses = service_url.partition("://")[2].split(",")
    for address in addresses:
        host, _, port = address.rpartition(":")
        with suppress(OSError):
            timeout_s = CONNECT_TIMEOUT_MS / 1000
            socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
            return
    raise Unavailable(f"no process listens at {service_url}")


_Outcome = tuple[int, Any, Any]
"""Number of the message, the client's result, the message id."""


def _noted(outcomes: queue.SimpleQueue[_Outcome], number: int) -> Callable[[Any, Any], None]:
    """Return a callback for one of the client's threads."""
    return lambda result, message_id: outcomes.put((number, result, message_id))


def _acknowledged(outcomes: queue.SimpleQueue[_Outcome]) -> Acknowledged:
    try:
        number, result, message_id = outcomes.get(timeout=2 * SEND_TIMEOUT_MS / 1000)
    except queue.Empty:
        raise SendFailed("Timeout") from None
    if result.name != "Ok":
        raise SendFailed(result.name)
    return Acknowledged(number, text_of_id(message_id))


def text_of_id(message_id: Any) -> str:
    """Return a message id as Pulsar's tools show it: ledger:entry:partition, then :batch index."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    batch_index = message_id.batch_index()
    return f"{text}:{batch_index}" if batch_index >= 0 else text
