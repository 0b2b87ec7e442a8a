"""Segments of scalable topics at brokers, over sockets: entry buckets and the end of a segment."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brokers.domain.subscriptions.entry_buckets import bucket_hash
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload, open_payload
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import topic_admin_pb2 as admin
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.callers.stock_client import SMALL, PulsarSystem, running_system

pytestmark = pytest.mark.integration

WAIT_S = 60
KEYS = ["a", "key1", "order-42", "my-key", "hello"]
EACH = 8
EARLIEST = admin.TopicPlace(earliest=admin.Earliest())


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SMALL) as system:
        yield system


def one_segment(system: PulsarSystem, name: str) -> str:
    """Create a scalable topic, and a subscription at the beginning of its only segment."""
    system.create_topic(f"topic://public/default/{name}")
    segment = f"segment://public/default/{name}/0000-ffff-0"
    system.operate(segment, admin.CreateSubscriptionRequest(subscription="sub", start=EARLIEST))
    return segment


def buckets(count: int) -> pulsar.KeySharedMeta:
    starts = [number * 65_536 // count for number in range(count + 1)]
    return pulsar.KeySharedMeta(
        keySharedMode=pulsar.STICKY,
        entryBucketDispatch=True,
        hashRanges=[
            pulsar.IntRange(start=starts[number], end=starts[number + 1] - 1)
            for number in range(count)
        ],
    )


class Member:
    """One consumer on a connection of its own; keeps what it was sent."""

    def __init__(self, connection: PulsarClientConnection) -> None:
        self.connection = connection
        self.messages: list[tuple[pulsar.MessageIdData, str, int]] = []
        """Id, key and number of each message."""
        self.has_ended = False

    def push(self, command: BaseCommand, payload: bytes) -> None:
        if command.type == BaseCommand.MESSAGE:
            metadata = open_payload(payload).metadata
            message = (command.message.message_id, metadata.partition_key, metadata.sequence_id)
            self.messages.append(message)
        elif command.type == BaseCommand.REACHED_END_OF_TOPIC:
            self.has_ended = True

    def acknowledge(self, message: tuple[pulsar.MessageIdData, str, int]) -> None:
        ack = pulsar.CommandAck(consumer_id=1, ack_type=0, message_id=[message[0]])
        self.connection.send_command(BaseCommand(type=BaseCommand.ACK, ack=ack))


async def connected(system: PulsarSystem, segment: str, push: Any) -> PulsarClientConnection:
    host, _, port = system.broker_addresses[system.owner(segment)].rpartition(":")
    return await PulsarClientConnection.open(host, int(port), on_push=push)


async def joined(
    system: PulsarSystem, segment: str, meta: pulsar.KeySharedMeta
) -> tuple[Member, BaseCommand]:
    """Subscribe on a new connection; return the consumer and the answer."""
    pushed: list[tuple[BaseCommand, bytes]] = []
    connection = await connected(system, segment, lambda *each: pushed.append(each))
    member = Member(connection)
    connection._on_push = member.push
    subscribe = pulsar.CommandSubscribe(
        topic=segment,
        subscription="sub",
        subType=pulsar.CommandSubscribe.Key_Shared,
        consumer_id=1,
        keySharedMeta=meta,
    )
    answer = await connection.request(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
    if answer.type == BaseCommand.SUCCESS:
        flow = pulsar.CommandFlow(consumer_id=1, messagePermits=1_000)
        connection.send_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))
    return member, answer


async def produce(system: PulsarSystem, segment: str, *, stamped: bool) -> None:
    """Send ``EACH`` messages of each key, in turns, and wait for their receipts."""
    receipts: list[int] = []

    def push(command: BaseCommand, _payload: bytes) -> None:
        receipts.append(command.type)

    async with await connected(system, segment, push) as connection:
        producer = pulsar.CommandProducer(topic=segment, producer_id=1)
        await connection.request(BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
        for number in range(EACH * len(KEYS)):
            key = KEYS[number % len(KEYS)]
            metadata = pulsar.MessageMetadata(
                producer_name="p", sequence_id=number, publish_time=1, partition_key=key
            )
            if stamped:
                metadata.entry_hash_min = metadata.entry_hash_max = bucket_hash(key.encode())
            send = pulsar.CommandSend(producer_id=1, sequence_id=number, num_messages=1)
            command = BaseCommand(type=BaseCommand.SEND, send=send)
            connection.send(encode_frame(command, message_payload(metadata, b"x")))
        await until(lambda: receipts.count(BaseCommand.SEND_RECEIPT) == EACH * len(KEYS))


async def until(condition: Callable[[], bool]) -> None:
    async with timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stamped", [True, False])
async def test_consumers_share_a_segment_by_buckets_in_order_until_its_end(
    system: PulsarSystem, stamped: bool
):
    segment = await asyncio.to_thread(one_segment, system, f"shared-{stamped}".lower())
    first, _ = await joined(system, segment, buckets(4))
    second, _ = await joined(system, segment, buckets(4))
    stale, refused = await joined(system, segment, buckets(3))
    stale.connection.close()
    assert refused.error.error == pulsar.ConsumerAssignError
    assert "stale layout" in refused.error.message

    await produce(system, segment, stamped=stamped)
    total = EACH * len(KEYS)
    await until(lambda: len(first.messages) + len(second.messages) == total)
    assert not {key for _, key, _ in first.messages} & {key for _, key, _ in second.messages}

    # One acknowledges half and dies; the others get the rest, each key in order.
    done: dict[str, list[int]] = defaultdict(list)
    for message in first.messages[: len(first.messages) // 2]:
        first.acknowledge(message)
        done[message[1]].append(message[2])
    first.connection.close()
    third, _ = await joined(system, segment, buckets(4))
    members = [second, third]
    acknowledged = [0, 0]

    def take() -> bool:
        for index, member in enumerate(members):
            for message in member.messages[acknowledged[index] :]:
                member.acknowledge(message)
                done[message[1]].append(message[2])
                acknowledged[index] += 1
        return sum(map(len, done.values())) >= total

    await until(take)
    assert done == {key: list(range(index, total, len(KEYS))) for index, key in enumerate(KEYS)}

    # Sealed: all reach the end, and those that come later too, at any owner.
    last = await asyncio.to_thread(system.operate, segment, admin.TerminateRequest())
    assert last.position.entry_id == total - 1
    await until(lambda: second.has_ended and third.has_ended)
    for member in members:
        member.connection.close()
    await asyncio.to_thread(system.move, segment)
    later, _ = await joined(system, segment, buckets(4))
    await until(lambda: later.has_ended)
    assert later.messages == []
    assert await asyncio.to_thread(system.operate, segment, admin.TerminateRequest()) == last
    later.connection.close()
