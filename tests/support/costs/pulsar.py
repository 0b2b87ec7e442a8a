"""The most expensive Pulsar frames, and a client that sends one where it costs the most."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.pulsar import ACK_IDS_MAX
from nextgen.pulsar.client import ConnectionLost, PulsarClientConnection
from nextgen.pulsar.frames import FIELD_OF_TYPE, encode_frame
from nextgen.pulsar.payload import message_payload
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
)
from tests.support.costs.messages import costly_messages, varint
from tests.support.costs.stall_budget import Send
from tests.support.pulsar.frames import metadata

SMALL_BYTES = 64 * 1024
"""A frame size that a server accepts before CONNECT, and that most limits let pass."""

HEAD_BYTES = 64
"""Sizes, type and tags around the content of a command."""

ANSWER_S_MAX = 60

NO_FRAME = b"\xff" * 8
PRODUCER_ID = 1
CONSUMER_ID = 1
SUBSCRIPTION = "stall"
CLIENT_COMMANDS_OF_ANOTHER = {"producer": PRODUCER_ID + 1, "subscribe": CONSUMER_ID + 1}


@dataclass(frozen=True)
class Target:
    """A server that speaks Pulsar. On a broker the client has a producer and a consumer."""

    host: str
    port: int
    topic: str
    is_broker: bool
    ledger_id: int = 0

    @property
    def given(self) -> dict[str, Any]:
        """Return field values with which a command is carried out as far as possible."""
        return {
            "topic": self.topic,
            "namespace": self.topic.partition("://")[2].rpartition("/")[0],
            "subscription": SUBSCRIPTION,
            "subType": CommandSubscribe.Key_Shared,
            "keySharedMode": 1,
            "producer_id": PRODUCER_ID,
            "consumer_id": CONSUMER_ID,
            "ledgerId": self.ledger_id,
            "entryId": lambda number: number,
            "request_id": 1_000,
            "start": lambda number: 2 * number,
            "end": lambda number: 2 * number,
            "topics": lambda number: f"{self.topic}-{number}",
        }


@dataclass(frozen=True)
class PulsarFrame:
    """One frame. ``greets`` is whether its client sends CONNECT before it."""

    name: str
    serialise: Callable[[], bytes]
    greets: bool = True


def command_frames(
    target: Target, bytes_max: int, *, greets: bool = True, with_long: bool = False
) -> Iterator[PulsarFrame]:
    """Yield frames of every command there is, each full of another of its fields."""
    for number, field_name in FIELD_OF_TYPE.items():
        field = BaseCommand.DESCRIPTOR.fields_by_number[number]
        given = dict(target.given)
        if field_name in CLIENT_COMMANDS_OF_ANOTHER:
            given |= {"producer_id": PRODUCER_ID + 1, "consumer_id": CONSUMER_ID + 1}
            given["subscription"] = f"{SUBSCRIPTION}-2"
        head = BaseCommand(type=number).SerializePartialToString()
        for message in costly_messages(
            field.message_type._concrete_class,
            bytes_max=bytes_max - HEAD_BYTES,
            given=given,
            with_long=with_long,
        ):
            when = "" if greets else "before CONNECT: "
            serialise = partial(_command_frame, head, field.number, message.serialise)
            yield PulsarFrame(f"{when}{field_name}.{message.name}", serialise, greets)


def payload_frames(bytes_max: int) -> Iterator[PulsarFrame]:
    """Yield messages whose metadata is full of each of its fields."""
    send = BaseCommand(
        type=BaseCommand.SEND, send=CommandSend(producer_id=PRODUCER_ID, sequence_id=1)
    )
    given = {"producer_name": "p", "publish_time": 1}
    for message in costly_messages(
        MessageMetadata, bytes_max=bytes_max - 4 * HEAD_BYTES, given=given, with_long=False
    ):
        serialise = partial(_payload_frame, send, message.serialise)
        yield PulsarFrame(f"send: {message.name}", serialise)


def acks_of_every_second_entry(target: Target, entries: int) -> Iterator[PulsarFrame]:
    """Yield ACKs, each as long as may be, that leave a cursor with a hole for every id.

    From the last entry to the first, so that all that is known already lies behind each id.
    """
    for number, last in enumerate(range(entries, 0, -2 * ACK_IDS_MAX)):
        first = max(0, last - 2 * ACK_IDS_MAX)
        ids = [
            MessageIdData(ledgerId=target.ledger_id, entryId=entry_id)
            for entry_id in range(last - 1, first, -2)
        ]
        ack = CommandAck(consumer_id=CONSUMER_ID, ack_type=CommandAck.Individual, message_id=ids)
        command = BaseCommand(type=BaseCommand.ACK, ack=ack)
        name = f"ack: into {number * ACK_IDS_MAX} holes"
        yield PulsarFrame(name, partial(_frame, command.SerializeToString()))


def _command_frame(head: bytes, field_number: int, serialise: Callable[[], bytes]) -> bytes:
    data = serialise()
    return _frame(head + varint(field_number << 3 | 2) + varint(len(data)) + data)


def _payload_frame(send: BaseCommand, serialise: Callable[[], bytes]) -> bytes:
    made = MessageMetadata()
    made.MergeFromString(serialise())
    return encode_frame(send, message_payload(made, b"m"))


def _frame(command: bytes) -> bytes:
    size = len(command)
    return (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + command


def sender(target: Target, frame: PulsarFrame) -> Send:
    """Return what sends ``frame`` on a connection of its own and waits until it was handled."""
    return partial(_send, target, frame)


async def _send(target: Target, frame: PulsarFrame) -> None:
    if frame.greets:
        await _send_greeted(target, frame.serialise())
    else:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        # What is no frame ends the connection behind one that was accepted, a CONNECT.
        writer.write(frame.serialise() + NO_FRAME)
        await _until_closed(reader)
        writer.close()


async def _until_closed(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        async with timeout(ANSWER_S_MAX):
            while await reader.read(64 * 1024):
                pass


async def _send_greeted(target: Target, data: bytes) -> None:
    answered = asyncio.Event()

    def on_push(command: BaseCommand, _payload: bytes) -> None:
        if command.type == BaseCommand.PONG:
            answered.set()

    client = await PulsarClientConnection.open(
        target.host, target.port, on_push=on_push, timeout_ms=ANSWER_S_MAX * 1_000
    )
    client.closed.add_done_callback(lambda _: answered.set())
    try:
        if target.is_broker:
            await _occupy(client, target.topic)
        client.send(data)
        client.send_command(BaseCommand(type=BaseCommand.PING, ping={}))
        async with timeout(ANSWER_S_MAX):
            await answered.wait()
    except ConnectionLost:
        pass
    finally:
        client.close()
        with contextlib.suppress(MetadataError, ConnectionError):
            await client.closed


async def _occupy(client: PulsarClientConnection, topic: str) -> None:
    """Open a producer and a consumer, so that frames that name them are carried out."""
    producer = CommandProducer(topic=topic, producer_id=PRODUCER_ID, request_id=1)
    consumer = CommandSubscribe(
        topic=topic,
        subscription=SUBSCRIPTION,
        subType=CommandSubscribe.Shared,
        consumer_id=CONSUMER_ID,
        request_id=2,
    )
    for command in (
        BaseCommand(type=BaseCommand.PRODUCER, producer=producer),
        BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=consumer),
    ):
        answer = await client.request(command, timeout_ms=ANSWER_S_MAX * 1_000)
        assert answer.type != BaseCommand.ERROR, answer


async def publish(target: Target, count: int) -> int:
    """Send a few messages and return the id of the ledger that has them."""
    receipts: list[int] = []
    done = asyncio.Event()

    def on_push(command: BaseCommand, _payload: bytes) -> None:
        if command.type == BaseCommand.SEND_RECEIPT:
            receipts.append(command.send_receipt.message_id.ledgerId)
            if len(receipts) == count:
                done.set()

    client = await PulsarClientConnection.open(
        target.host, target.port, on_push=on_push, timeout_ms=ANSWER_S_MAX * 1_000
    )
    async with client:
        await _occupy(client, target.topic)
        for number in range(count):
            send = CommandSend(producer_id=PRODUCER_ID, sequence_id=number)
            made = BaseCommand(type=BaseCommand.SEND, send=send)
            client.send(encode_frame(made, message_payload(metadata(), b"m")))
        async with timeout(ANSWER_S_MAX):
            await done.wait()
    return receipts[-1]
