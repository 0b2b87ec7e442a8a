"""Splits and merges in a real cluster, under writers that know only the layout and their keys."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from nextgen.client import Client
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.model import ScalableTopic, scalable_topic_of
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable.segments import Segment
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload, open_payload
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import Hello
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_SCALABLE_TOPIC
from protos.nextgen.v1.layouts_pb2 import ScalableTopic as StoredTopic
from protos.nextgen.v1.policies_pb2 import Policies, RetentionPolicy
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.shards.processes import NAMESPACE, TIMEOUT_MS, Caller
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

NAME = f"topic://{NAMESPACE}/paid"
SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=1)
KEYS = (0x0000, 0x3FFF, 0x4000, 0x7FFF, 0x8000, 0xFFFF)
"""Hashes of the writers' keys."""

WAIT_S = 60
WRITE_EVERY_S = 0.005

Message = tuple[int, int]
"""Key and number."""


class Connection:
    """A producer of one segment, or a reader of it, on a connection of its own."""

    def __init__(self) -> None:
        self.receipts: asyncio.Queue[bool] = asyncio.Queue()
        self.messages: list[Message] = []
        self.last_id = pulsar.MessageIdData()
        self.connection: PulsarClientConnection

    @classmethod
    async def open(cls, caller: Caller, segment: str) -> Connection:
        self = cls()
        answer = await caller.lookup(segment)
        if answer.rejection_code:
            raise ConnectionError(answer.message)
        host, _, port = answer.broker_url.removeprefix("pulsar://").rpartition(":")
        self.connection = await PulsarClientConnection.open(host, int(port), on_push=self._push)
        self.connection.closed.add_done_callback(lambda _: self.receipts.put_nowait(False))
        return self

    async def produce(self, segment: str) -> None:
        producer = pulsar.CommandProducer(topic=segment, producer_id=1)
        answer = await self.connection.request(
            BaseCommand(type=BaseCommand.PRODUCER, producer=producer)
        )
        if answer.type != BaseCommand.PRODUCER_SUCCESS:
            raise ConnectionError(answer.error.message)

    async def send(self, message: Message) -> bool:
        """Return whether a message was acknowledged."""
        key, number = message
        metadata = pulsar.MessageMetadata(
            producer_name="p", sequence_id=number, publish_time=1, partition_key=f"{key:04x}"
        )
        send = pulsar.CommandSend(producer_id=1, sequence_id=number, num_messages=1)
        command = BaseCommand(type=BaseCommand.SEND, send=send)
        self.connection.send(encode_frame(command, message_payload(metadata, b"x")))
        return await self.receipts.get()

    async def read(self, segment: str) -> None:
        subscribe = pulsar.CommandSubscribe(
            topic=segment,
            subscription="s",
            subType=pulsar.CommandSubscribe.Exclusive,
            consumer_id=1,
        )
        answer = await self.connection.request(
            BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)
        )
        assert answer.type == BaseCommand.SUCCESS, answer
        flow = pulsar.CommandFlow(consumer_id=1, messagePermits=100_000)
        self.connection.send_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))

    def acknowledge_all(self) -> None:
        ack = pulsar.CommandAck(
            consumer_id=1, ack_type=pulsar.CommandAck.Cumulative, message_id=[self.last_id]
        )
        self.connection.send_command(BaseCommand(type=BaseCommand.ACK, ack=ack))

    def _push(self, command: BaseCommand, payload: bytes) -> None:
        if command.type == BaseCommand.SEND_RECEIPT:
            self.receipts.put_nowait(True)
        elif command.type in (BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER):
            self.receipts.put_nowait(False)
        elif command.type == BaseCommand.MESSAGE:
            metadata = open_payload(payload).metadata
            self.messages.append((int(metadata.partition_key, 16), metadata.sequence_id))
            self.last_id = command.message.message_id


class Writer:
    """Publishes by one key, each message once the one before it is acknowledged."""

    def __init__(self, caller: Caller, key: int) -> None:
        self._caller = caller
        self._key = key
        self.acked = 0
        self.longest_gap_s = 0.0

    async def run(self) -> None:
        last = time.monotonic()
        while True:
            connected = None
            try:
                segment = await self._segment()
                connected = await Connection.open(self._caller, segment)
                await connected.produce(segment)
                while await connected.send((self._key, self.acked)):
                    self.acked += 1
                    now = time.monotonic()
                    self.longest_gap_s = max(self.longest_gap_s, now - last)
                    last = now
                    await asyncio.sleep(WRITE_EVERY_S)
            except (MetadataError, ConnectionError):
                pass
            finally:
                if connected is not None:
                    connected.connection.close()
            await asyncio.sleep(0.002)

    async def _segment(self) -> str:
        layout = await layout_of(self._caller)
        (found,) = [
            each
            for each in layout.segments
            if not each.is_sealed and each.hash_start <= self._key <= each.hash_end
        ]
        return found.name_in(parse_topic(NAME))


async def layout_of(caller: Caller) -> ScalableTopic:
    return scalable_topic_of(await stored(caller))


async def stored(caller: Caller) -> StoredTopic:
    """Return the topic as its shard has it."""
    names = [pb.ObjectName(kind=KIND_SCALABLE_TOPIC, name=NAME)]
    request = pb.ShardRequest(get=pb.GetRequest(names=names))
    key = parse_topic(NAME).routing_key
    response = await caller.router.call_key(key, request, timeout_ms=TIMEOUT_MS)
    return response.get.items[0].scalable_topic


async def change(caller: Caller, kind: str, *segments: int) -> pb.CommandResult:
    body = pb.ChangeLayout(name=NAME, kind=kind, segments=segments)
    result = await caller.execute(parse_topic(NAME).routing_key, change_layout=body)
    assert not result.rejection_code, result
    return result


@asynccontextmanager
async def scalable(directory: Path) -> AsyncIterator[tuple[LocalCluster, Caller]]:
    """Start a cluster with a topic of one segment and a subscription."""
    async with running_cluster(directory, SIZE) as cluster:
        hello = Hello(cluster_id="test", node_id="client-1", kind="client")
        link = ClusterLink(cluster.plan.manager_endpoints.split(","), hello)
        pool = ExchangePool(lambda: link.view.shard_map_version)
        await link.start()
        try:
            await link.wait_ready()
            caller = Caller(link, ShardRouter(link, pool), pool)
            await caller.prepare()
            key = parse_topic(NAME).routing_key
            specs = [pb.TopicSpec(name=NAME, segments=1)]
            await caller.execute(key, create_topics=pb.CreateTopics(topics=specs))
            body = pb.CreateScalableSubscription(name=NAME, subscription="s", type="stream")
            result = await caller.execute(key, create_scalable_subscription=body)
            assert not result.rejection_code, result
            yield cluster, caller
        finally:
            await pool.stop()
            await link.stop()


@asynccontextmanager
async def writing(caller: Caller) -> AsyncIterator[list[Writer]]:
    """Write by all keys; behind the block each has written once more."""
    writers = [Writer(caller, key) for key in KEYS]
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    try:
        await all_write(writers)
        yield writers
        await all_write(writers)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_write(writers: list[Writer]) -> None:
    """Return when each has written since the call: its range has a home."""
    before = [writer.acked for writer in writers]
    async with timeout(WAIT_S):
        while any(writer.acked == then for writer, then in zip(writers, before, strict=True)):
            await asyncio.sleep(0.01)


async def check_messages(caller: Caller, writers: list[Writer]) -> None:
    """Check that everything acknowledged is there, once in the order of each key."""
    layout = await layout_of(caller)
    read: dict[int, list[int]] = defaultdict(list)
    wanted = {(key, writer.acked - 1) for key, writer in zip(KEYS, writers, strict=True)}
    for segment in sorted(layout.segments, key=lambda each: each.segment_id):
        for key, number in await _messages_of(caller, segment, wanted):
            read[key].append(number)
    for key, writer in zip(KEYS, writers, strict=True):
        numbers = list(dict.fromkeys(read[key]))
        assert numbers[: writer.acked] == list(range(writer.acked)), f"key {key:#x}"


async def _messages_of(caller: Caller, segment: Segment, wanted: set[Message]) -> list[Message]:
    name = segment.name_in(parse_topic(NAME))
    reader = await Connection.open(caller, name)
    try:
        await reader.read(name)
        wanted_here = {each for each in wanted if _is_in(segment, each[0])}
        async with timeout(WAIT_S):
            if segment.is_sealed:
                assert segment.end is not None
                while len(reader.messages) <= segment.end.entry_id:
                    await asyncio.sleep(0.01)
            else:
                while not wanted_here <= set(reader.messages):
                    await asyncio.sleep(0.01)
        return reader.messages
    finally:
        reader.connection.close()


def _is_in(segment: Segment, key: int) -> bool:
    return segment.hash_start <= key <= segment.hash_end


async def test_writers_go_on_over_a_split_and_a_merge(tmp_path: Path) -> None:
    async with scalable(tmp_path) as (_, caller):
        async with writing(caller) as writers:
            split = await change(caller, "split", 0)
            layout = await layout_of(caller)
            assert [(each.hash_start, each.is_sealed) for each in layout.segments] == [
                (0x0000, True),
                (0x0000, False),
                (0x8000, False),
            ]
            await all_write(writers)
            await change(caller, "split", 1)
            await all_write(writers)
            await change(caller, "merge", 3, 4)
            await all_write(writers)
        assert split.operation_id == 1
        assert (await layout_of(caller)).epoch == 3
        await check_messages(caller, writers)


@pytest.mark.parametrize(
    "after_s",
    [
        pytest.param((0.005, 0.015), id="twice"),
        pytest.param((0.0, 0.002, 0.005, 0.01, 0.02, 0.04), id="often", marks=pytest.mark.slow),
    ],
)
async def test_a_killed_leader_leaves_no_range_without_a_home(
    tmp_path: Path, after_s: tuple[float, ...]
) -> None:
    """It is killed at other moments of a split or a merge; writers and the operation go on."""
    async with scalable(tmp_path) as (cluster, caller):
        async with writing(caller) as writers:
            segments = [0]
            for number, pause_s in enumerate(after_s):
                kind = "merge" if len(segments) == 2 else "split"
                changing = asyncio.create_task(change(caller, kind, *segments))
                await asyncio.sleep(pause_s)
                leader = caller.link.view.leaders[caller.shard_of(NAME)].node_id
                await cluster.kill(leader)

                await changing
                await all_write(writers)

                await cluster.start_node(leader)
                await cluster.wait_ready([leader])
                layout = await layout_of(caller)
                assert layout.epoch == number + 1
                segments = [each.segment_id for each in layout.segments if not each.is_sealed]
        await check_messages(caller, writers)


async def test_a_sealed_segment_is_noted_as_drained_once_everything_is_acknowledged(
    tmp_path: Path,
) -> None:
    """The leader has the topic and the manager of the brokers. While there is none, its owner
    keeps the report."""
    async with scalable(tmp_path) as (cluster, caller):
        async with a_sealed_segment(caller) as consumer:
            await cluster.kill(caller.link.view.leaders[caller.shard_of(NAME)].node_id)
            consumer.acknowledge_all()

            subscription = (await stored(caller)).subscriptions[0]
            async with timeout(WAIT_S):
                while not subscription.drained:
                    await asyncio.sleep(0.05)
                    (subscription,) = (await stored(caller)).subscriptions
        assert list(subscription.drained) == [0]


async def test_a_drained_segment_without_retention_leaves_layout_and_disk(tmp_path: Path) -> None:
    async with scalable(tmp_path) as (_, caller):
        retention = RetentionPolicy(time_ms=0, size_bytes=0)
        body = pb.SetPolicies(
            kind=KIND_NAMESPACE, name=NAMESPACE, policies=Policies(retention=retention)
        )
        await caller.execute(NAMESPACE, set_policies=body)
        async with a_sealed_segment(caller) as consumer:
            topic_id = (await stored(caller)).topic_id
            assert files_of(tmp_path, topic_id, "s0")
            consumer.acknowledge_all()

            async with timeout(WAIT_S):
                while len((topic := await stored(caller)).segments) > 2 or topic.removals:
                    await asyncio.sleep(0.05)

        assert [each.segment_id for each in topic.segments] == [1, 2]
        assert topic.epoch == 2
        assert not files_of(tmp_path, topic_id, "s0")
        for child in topic.segments:
            assert not child.parents
            assert files_of(tmp_path, topic_id, f"s{child.segment_id}")
        answer = await caller.lookup(f"segment://{NAMESPACE}/paid/0000-ffff-0")
        assert answer.rejection_code == "NOT_FOUND"


async def test_a_deleted_topic_leaves_nothing_in_views_and_on_disk(tmp_path: Path) -> None:
    """Its layout, subscriptions and consumers, the assignments of its segments, their loads, and
    all files. What stays is a mark for each segment (ADR 0085), and what the log says."""
    async with scalable(tmp_path) as (cluster, caller):
        body = pb.RegisterScalableConsumer(
            name=NAME, subscription="s", consumer_name="c", type="stream", takes_buckets=True
        )
        key = parse_topic(NAME).routing_key
        await caller.execute(key, register_scalable_consumer=body)
        async with writing(caller):
            await change(caller, "split", 0)
        topic_id = (await stored(caller)).topic_id
        for unit in ("s0", "s1", "s2"):
            assert files_of(tmp_path, topic_id, unit)
        assert {"scalable_topics", "topics", "assignments"} <= tables_with(tmp_path, topic_id)

        async with Client(list(cluster.plan.discovery_endpoints)) as client:
            await client.delete_topic(NAME, force=True)

        async with timeout(WAIT_S):
            while (left := tables_with(tmp_path, topic_id)) or any(
                files_of(tmp_path, topic_id, unit) for unit in ("s0", "s1", "s2")
            ):
                await asyncio.sleep(0.1)
        assert not left
        marks = {path.name for path in tmp_path.rglob("*") if path.name.endswith((".s0", ".s1"))}
        assert marks == {f"removed-{topic_id}.s0", f"removed-{topic_id}.s1"}


def tables_with(directory: Path, topic_id: str) -> set[str]:
    """Return the tables of all replicas' views in which a topic is, or one of its segments.

    Outcomes of commands are kept for a time.
    """
    found: set[str] = set()
    wanted = (topic_id.encode(), bytes.fromhex(topic_id), b"/paid")
    for path in directory.rglob("view.*.sqlite"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as view:
            tables = [
                name
                for (name,) in view.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            for table in tables:
                for row in view.execute(f"SELECT * FROM {table}"):
                    values = [each.encode() if isinstance(each, str) else each for each in row]
                    stored_bytes = [each for each in values if isinstance(each, bytes)]
                    if any(each in value for value in stored_bytes for each in wanted):
                        found.add(table)
    return found - {"outcomes"}


@asynccontextmanager
async def a_sealed_segment(caller: Caller) -> AsyncIterator[Connection]:
    """Seal the first segment with three messages, and read them, without acknowledgements."""
    parent = (await layout_of(caller)).segments[0].name_in(parse_topic(NAME))
    producer = await Connection.open(caller, parent)
    await producer.produce(parent)
    for number in range(3):
        assert await producer.send((0, number))
    await change(caller, "split", 0)
    consumer = await Connection.open(caller, parent)
    try:
        await consumer.read(parent)
        async with timeout(WAIT_S):
            while len(consumer.messages) < 3:
                await asyncio.sleep(0.01)
        (subscription,) = (await stored(caller)).subscriptions
        assert not subscription.drained
        yield consumer
    finally:
        for connected in (producer, consumer):
            connected.connection.close()


def files_of(directory: Path, topic_id: str, unit: str) -> list[Path]:
    """Return the files with messages, cursors and claims of a unit."""
    return [path for path in directory.rglob("*") if path.parent.name == f"{topic_id}.{unit}"]
