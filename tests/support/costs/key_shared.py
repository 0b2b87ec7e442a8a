"""Messages with keys as long as they may be, for several Key_Shared subscriptions of one topic."""

from __future__ import annotations

import asyncio

from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    CommandUnsubscribe,
)
from tests.support.costs.pulsar import ANSWER_S_MAX, Target
from tests.support.pulsar.frames import metadata

KEYS = 640
KEY_BYTES = 16 * 1024
SUBSCRIPTIONS = 8
_TIMEOUT_MS = ANSWER_S_MAX * 1_000


async def deliver_large_keys(target: Target) -> None:
    """Send ``KEYS`` messages; return when each of the subscriptions has got all of them.

    Whatever was made for it is gone then, so that it costs the same again.
    """
    wanted, received, done = KEYS * SUBSCRIPTIONS, 0, asyncio.Event()

    def on_push(command: BaseCommand, _payload: bytes) -> None:
        nonlocal received
        received += command.type == BaseCommand.MESSAGE
        if received == wanted:
            done.set()

    client = await PulsarClientConnection.open(
        target.host, target.port, on_push=on_push, timeout_ms=_TIMEOUT_MS
    )
    async with client:
        producer = CommandProducer(topic=target.topic, producer_id=1)
        await _request(client, BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
        for number in range(SUBSCRIPTIONS):
            await _subscribe(client, target.topic, number)
        for number in range(KEYS):
            key = f"{number:0{KEY_BYTES}}"
            send = CommandSend(producer_id=1, sequence_id=number)
            payload = message_payload(metadata(partition_key=key, sequence_id=number), b"m")
            client.send(encode_frame(BaseCommand(type=BaseCommand.SEND, send=send), payload))
        async with timeout(ANSWER_S_MAX):
            await done.wait()
        for number in range(SUBSCRIPTIONS):
            unsubscribe = CommandUnsubscribe(consumer_id=number)
            await _request(
                client, BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=unsubscribe)
            )


async def _subscribe(client: PulsarClientConnection, topic: str, number: int) -> None:
    subscribe = CommandSubscribe(
        topic=topic,
        subscription=f"s{number}",
        subType=CommandSubscribe.Key_Shared,
        consumer_id=number,
    )
    await _request(client, BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
    flow = CommandFlow(consumer_id=number, messagePermits=2 * KEYS)
    client.send_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))


async def _request(client: PulsarClientConnection, command: BaseCommand) -> None:
    answer = await client.request(command, timeout_ms=_TIMEOUT_MS)
    assert answer.type != BaseCommand.ERROR, answer
