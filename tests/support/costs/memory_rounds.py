"""What a round of work leaves behind in memory, measured in a process of its own.

``python -m tests.support.costs.memory_rounds waiting_producers`` prints, as JSON, the resident
megabytes before the first round, at the height of each round, and after each. The garbage collector
is off:
what only it would free counts as kept, because a busy broker collects old objects rarely.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable

import psutil

from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle

ROUNDS = 3
WAITING = 20
COMMAND_BYTES = 5 * 1024 * 1024
_UNKNOWN_FIELD = b"\xfa\x3f"
"""Tag of field 1023, length-delimited: protobuf keeps unknown fields."""

Round = Callable[[FakeClient], Awaitable[None]]


async def waiting_producers(client: FakeClient) -> None:
    """Twenty producers wait for a topic that another one has to itself."""
    for number in range(WAITING):
        request = client.command(
            pulsar.BaseCommand.PRODUCER,
            request_id=100 + number,
            topic=TOPIC,
            producer_id=number,
            producer_access_mode=pulsar.WaitForExclusive,
        )
        client.send_raw(_enlarged(request))
    await client.until_got(pulsar.BaseCommand.PRODUCER_SUCCESS, WAITING)


async def opening_consumers(client: FakeClient) -> None:
    """Twenty consumers wait for a topic that is being looked up."""
    for number in range(WAITING):
        request = client.command(
            pulsar.BaseCommand.SUBSCRIBE,
            request_id=100 + number,
            topic=TOPIC + "-absent",
            subscription="sub",
            subType=pulsar.CommandSubscribe.Shared,
            consumer_id=number,
        )
        client.send_raw(_enlarged(request))
    await settle()


async def waiting_lookups(client: FakeClient) -> None:
    """Twenty lookups wait for shards."""
    for number in range(WAITING):
        request = client.command(
            pulsar.BaseCommand.LOOKUP, request_id=100 + number, topic=TOPIC + "-absent"
        )
        client.send_raw(_enlarged(request))
    await settle()


async def measure(work: Round) -> dict[str, list[float]]:
    world = BrokerWorld()
    broker = world.broker()
    owner = broker.client()
    await owner.producer(producer_access_mode=pulsar.Exclusive)
    world.directory.released.clear()
    gc.collect()
    gc.disable()
    high: list[float] = []
    after = [_resident_mb()]
    for _ in range(ROUNDS):
        client = broker.client()
        await work(client)
        high.append(_resident_mb())
        client.leave()
        await settle()
        del client
        after.append(_resident_mb())
    return {"high": high, "after": after}


def _enlarged(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    """Return a command as large as a frame: protobuf keeps fields that it does not know."""
    filler = bytes(COMMAND_BYTES - 1024)
    size = len(filler)
    encoded = bytearray()
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    data = command.SerializeToString() + _UNKNOWN_FIELD + bytes(encoded) + filler
    return pulsar.BaseCommand.FromString(data)


def _resident_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1_000_000


if __name__ == "__main__":
    rounds: dict[str, Round] = {
        each.__name__: each for each in (waiting_producers, opening_consumers, waiting_lookups)
    }
    print(json.dumps(asyncio.run(measure(rounds[sys.argv[1]]))))
