"""A Pulsar client from before CLOSE_PRODUCER said where to: it speaks the protocol over sockets.

Whenever its producer is closed it looks its topic up again, at the service URL, and counts that.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from nextgen.pulsar.frames import (
    FIELD_OF_TYPE,
    FrameReader,
    encode_command,
    encode_frame,
    parse_command,
)
from nextgen.pulsar.payload import message_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

PROTOCOL_VERSION = 19
"""The last one without ``assignedBrokerServiceUrl``."""

TIMEOUT_S = 20
RECEIVE_BYTES = 65_536
NAME = "old-producer"
ATTEMPTS_MAX = 50
_PREFIX = "pulsar://"


class _Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix(_PREFIX).rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._reader = FrameReader()
        self._arrived: list[pulsar.BaseCommand] = []
        self.request(
            pulsar.BaseCommand.CONNECT,
            pulsar.BaseCommand.CONNECTED,
            client_version="old",
            protocol_version=PROTOCOL_VERSION,
        )

    def send(self, kind: Any, payload: bytes | None = None, **fields: Any) -> None:
        command = pulsar.BaseCommand(type=kind)
        inner = getattr(command, FIELD_OF_TYPE[kind])
        inner.SetInParent()
        inner.CopyFrom(type(inner)(**fields))
        frame = encode_command(command) if payload is None else encode_frame(command, payload)
        self._socket.sendall(frame)

    def request(self, kind: Any, *answers: int, **fields: Any) -> pulsar.BaseCommand:
        self.send(kind, **fields)
        return self.next(*answers)

    def next(self, *kinds: int) -> pulsar.BaseCommand:
        """Return the next command of one of these kinds; answers pings meanwhile."""
        while True:
            while self._arrived:
                command = self._arrived.pop(0)
                if command.type == pulsar.BaseCommand.PING:
                    self.send(pulsar.BaseCommand.PONG)
                elif command.type in kinds:
                    return command
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._arrived += [parse_command(frame.command) for frame in self._reader.feed(data)]

    def close(self) -> None:
        self._socket.close()


class OldProducer:
    """A producer that sends one message at a time. ``lookups`` counts its LOOKUP commands."""

    def __init__(self, service_url: str, topic: str) -> None:
        self._service_url = service_url
        self._topic = topic
        self._broker: _Connection | None = None
        self._sequence_id = 0
        self.lookups = 0
        self.closed_urls: list[str] = []
        """The reasons with which brokers closed it; a client of that age does not read them."""

    def __enter__(self) -> OldProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._broker is not None:
            self._broker.close()

    def send(self) -> tuple[int, int]:
        """Send a message, again after each move of the topic; return its ledger and entry."""
        sequence_id, self._sequence_id = self._sequence_id, self._sequence_id + 1
        metadata = pulsar.MessageMetadata(
            producer_name=NAME, sequence_id=sequence_id, publish_time=1
        )
        payload = message_payload(metadata, b"%d" % sequence_id)
        for _ in range(ATTEMPTS_MAX):
            broker = self._connected()
            broker.send(
                pulsar.BaseCommand.SEND,
                payload,
                producer_id=0,
                sequence_id=sequence_id,
                num_messages=1,
            )
            answer = broker.next(pulsar.BaseCommand.SEND_RECEIPT, pulsar.BaseCommand.CLOSE_PRODUCER)
            if answer.type == pulsar.BaseCommand.SEND_RECEIPT:
                stored = answer.send_receipt.message_id
                return stored.ledgerId, stored.entryId
            self.closed_urls.append(answer.close_producer.assignedBrokerServiceUrl)
            broker.close()
            self._broker = None
        raise AssertionError(f"{self._topic} took no message in {ATTEMPTS_MAX} attempts")

    def _connected(self) -> _Connection:
        for _ in range(ATTEMPTS_MAX):
            if self._broker is not None:
                return self._broker
            broker = _Connection(self._look_up())
            answer = broker.request(
                pulsar.BaseCommand.PRODUCER,
                pulsar.BaseCommand.PRODUCER_SUCCESS,
                pulsar.BaseCommand.ERROR,
                topic=self._topic,
                producer_id=0,
                request_id=1,
                producer_name=NAME,
            )
            if answer.type == pulsar.BaseCommand.PRODUCER_SUCCESS:
                self._broker = broker
            else:
                broker.close()
        raise AssertionError(f"no broker serves {self._topic}")

    def _look_up(self) -> str:
        self.lookups += 1
        service = _Connection(self._service_url)
        try:
            answer = service.request(
                pulsar.BaseCommand.LOOKUP,
                pulsar.BaseCommand.LOOKUP_RESPONSE,
                topic=self._topic,
                request_id=1,
                authoritative=False,
            )
        finally:
            service.close()
        return str(answer.lookupTopicResponse.brokerServiceUrl)
