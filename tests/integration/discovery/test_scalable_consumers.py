"""Consumers of a scalable topic join, leave and come back over the wire, at any node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.local.plan import NodePlan, make_plan_on_free_ports
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.harness.history.checks.segment_check import check_segments
from nextgen.harness.history.log_events import log_event_of
from nextgen.harness.history.log_fold import index_log
from nextgen.kernel.limits.scalable import SCALABLE_ATTACH_RENEWAL_MS
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import Hello
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.shards.processes import NAMESPACE, Caller
from tests.support.processes.local_cluster import ClusterSize, LocalCluster

pytestmark = pytest.mark.integration

NAME = f"topic://{NAMESPACE}/paid"
KEY = parse_topic(NAME).routing_key
SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=1)
GRACE_MS = 3_000
WAIT_S = 60
M1 = pulsar.CommandConnect(client_version="Pulsar-Java-v5.0.0-M1", protocol_version=21)


class ShortGrace(LocalCluster):
    """A cluster whose shards wait a short time for clients that are gone."""

    def environment_of(self, node: NodePlan) -> dict[str, str]:
        grace = {"NEXTGEN_SCALABLE_CONSUMER_GRACE_MS": str(GRACE_MS)}
        return super().environment_of(node) | grace


class Member:
    """A client with one registered consumer; keeps the assignments that it was sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.assignments: list[pulsar.ScalableConsumerAssignment] = []
        self.connection: PulsarClientConnection

    @classmethod
    async def join(
        cls,
        address: str,
        name: str,
        *,
        subscription: str = "s",
        connect: pulsar.CommandConnect | None = None,
    ) -> Member:
        """Connect, watch the layout as clients do, and register."""
        self = cls(name)
        host, _, port = address.rpartition(":")
        self.connection = await PulsarClientConnection.open(
            host, int(port), on_push=self._push, connect=connect
        )
        subscribe = pulsar.CommandScalableTopicSubscribe(
            topic=NAME,
            subscription=subscription,
            consumer_name=name,
            consumer_id=1,
            consumer_type=pulsar.STREAM,
        )
        command = BaseCommand(
            type=BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, scalableTopicSubscribe=subscribe
        )
        answer = await self.connection.request(command, timeout_ms=WAIT_S * 1_000)
        response = answer.scalableTopicSubscribeResponse
        assert not response.HasField("error"), response
        self.assignments.append(response.assignment)
        return self

    async def leave(self) -> None:
        leave = pulsar.CommandScalableTopicUnsubscribe(consumer_id=1)
        command = BaseCommand(
            type=BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE, scalableTopicUnsubscribe=leave
        )
        answer = await self.connection.request(command, timeout_ms=WAIT_S * 1_000)
        assert answer.type == BaseCommand.SUCCESS, answer

    async def vanish(self) -> None:
        self.connection.close()
        await self.connection.closed

    @property
    def segments(self) -> list[int]:
        return [each.segment_id for each in self.assignments[-1].segments]

    @property
    def shares(self) -> list[int]:
        """The buckets of each segment, 0 of one that nobody else has."""
        return [len(each.bucket_ranges) for each in self.assignments[-1].segments]

    def _push(self, command: BaseCommand, _payload: bytes) -> None:
        if command.type == BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE:
            update = command.scalableTopicAssignmentUpdate
            assert update.consumer_id == 1
            self.assignments.append(update.assignment)


async def until(condition: Callable[[], bool]) -> None:
    async with timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def scalable(directory: Path, segments: int) -> AsyncIterator[tuple[LocalCluster, Caller]]:
    """Start a cluster with a scalable topic."""
    plan = make_plan_on_free_ports(SIZE, cluster_id="test")
    async with ShortGrace(plan, directory) as cluster:
        await cluster.wait_ready()
        hello = Hello(cluster_id="test", node_id="client-1", kind="client")
        link = ClusterLink(plan.manager_endpoints.split(","), hello)
        pool = ExchangePool(lambda: link.view.shard_map_version)
        await link.start()
        try:
            await link.wait_ready()
            caller = Caller(link, ShardRouter(link, pool), pool)
            await caller.wait_brokers(SIZE.brokers)
            await caller.prepare()
            specs = [pb.TopicSpec(name=NAME, segments=segments)]
            await caller.execute(KEY, create_topics=pb.CreateTopics(topics=specs))
            yield cluster, caller
        finally:
            await pool.stop()
            await link.stop()


def addresses(cluster: LocalCluster) -> list[str]:
    """Return where Pulsar clients reach discovery, and each of the brokers."""
    nodes = [*cluster.plan.of_kind("discovery"), *cluster.plan.of_kind("broker")]
    return [node.pulsar for node in nodes]


async def check_log(caller: Caller) -> list[tuple[str, str]]:
    """Judge the shard's log: who consumed which segments, after each change. Return which consumers
    are no longer registered, and why."""
    events = await caller.events(caller.leader_endpoint(1), 1)
    assert list(check_segments(index_log(map(log_event_of, events)))) == []
    gone = [
        each.scalable_consumer_left for each in events if each.HasField("scalable_consumer_left")
    ]
    return [(each.consumer_name, each.reason) for each in gone]


async def connected(caller: Caller, segment: str, push: Any) -> PulsarClientConnection:
    answer = await caller.lookup(segment)
    host, _, port = answer.broker_url.removeprefix("pulsar://").rpartition(":")
    return await PulsarClientConnection.open(host, int(port), on_push=push)


async def publish(caller: Caller, segment: str) -> None:
    """Store one message in a segment."""
    stored = asyncio.Event()
    connection = await connected(caller, segment, lambda *_: stored.set())
    producer = pulsar.CommandProducer(topic=segment, producer_id=1)
    await connection.request(BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
    metadata = pulsar.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    send = pulsar.CommandSend(producer_id=1, sequence_id=0, num_messages=1)
    command = BaseCommand(type=BaseCommand.SEND, send=send)
    connection.send(encode_frame(command, message_payload(metadata, b"x")))
    async with timeout(WAIT_S):
        await stored.wait()
    connection.close()


async def drain(caller: Caller, segment: str) -> None:
    """Consume and acknowledge everything in a segment, as its consumer does."""
    messages: asyncio.Queue[pulsar.MessageIdData] = asyncio.Queue()

    def push(command: BaseCommand, _payload: bytes) -> None:
        if command.type == BaseCommand.MESSAGE:
            messages.put_nowait(command.message.message_id)

    connection = await connected(caller, segment, push)
    subscribe = pulsar.CommandSubscribe(
        topic=segment, subscription="s", subType=pulsar.CommandSubscribe.Exclusive, consumer_id=1
    )
    answer = await connection.request(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
    assert answer.type == BaseCommand.SUCCESS, answer
    flow = pulsar.CommandFlow(consumer_id=1, messagePermits=100)
    connection.send_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))
    async with timeout(WAIT_S):
        message = await messages.get()
    ack = pulsar.CommandAck(consumer_id=1, ack_type=0, message_id=[message], request_id=7)
    answer = await connection.request(BaseCommand(type=BaseCommand.ACK, ack=ack))
    connection.close()


async def test_consumers_join_leave_and_survive_a_killed_leader(tmp_path: Path) -> None:
    """1. Three consumers join at discovery and at two brokers. 2. The leader of the shard is
    killed: the assignments stay, and are not sent again. 3. One consumer leaves, one connection
    breaks and comes back by another node within the grace, one never comes back. 4. A segment is
    split: its children come when it is drained. 5. The log says that each segment had one consumer
    at each moment."""
    async with scalable(tmp_path, segments=4) as (cluster, caller):
        discovery, first_broker, second_broker = addresses(cluster)
        a = await Member.join(discovery, "a")
        assert a.segments == [0, 1, 2, 3]
        b = await Member.join(first_broker, "b")
        c = await Member.join(second_broker, "c")
        await until(lambda: sorted(a.segments + b.segments + c.segments) == [0, 1, 2, 3])
        settled = {each.name: each.segments for each in (a, b, c)}
        assert sorted(map(len, settled.values())) == [1, 1, 2]
        sent = [len(each.assignments) for each in (a, b, c)]

        await cluster.kill(caller.link.view.leaders[1].node_id)
        await asyncio.sleep((GRACE_MS + SCALABLE_ATTACH_RENEWAL_MS) / 1_000)

        assert [len(each.assignments) for each in (a, b, c)] == sent
        d = await Member.join(discovery, "d")
        await until(
            lambda: sorted(a.segments + b.segments + c.segments + d.segments) == [0, 1, 2, 3]
        )
        had = b.segments

        await d.leave()
        await until(lambda: len(a.segments + b.segments + c.segments) == 4)
        await b.vanish()
        await asyncio.sleep(GRACE_MS / 3_000)
        again = await Member.join(second_broker, "b")
        assert set(had) <= set(again.segments)
        await asyncio.sleep(2 * GRACE_MS / 1_000)
        assert len(a.segments + again.segments + c.segments) == 4

        await c.vanish()
        await until(lambda: sorted(a.segments + again.segments) == [0, 1, 2, 3])

        segment = "segment://acme/orders/paid/0000-3fff-0"
        await publish(caller, segment)
        body = pb.ChangeLayout(name=NAME, kind="split", segments=[0])
        result = await caller.execute(KEY, change_layout=body)
        assert not result.rejection_code, result
        await until(lambda: {each.assignments[-1].layout_epoch for each in (a, again)} == {1})
        assert sorted(a.segments + again.segments) == [0, 1, 2, 3], "0 is not drained yet"
        await drain(caller, segment)
        await until(lambda: sorted(a.segments + again.segments) == [1, 2, 3, 4, 5])

        for each in (a, again):
            await each.vanish()
        assert await check_log(caller) == [("d", "left"), ("c", "expired")]


async def test_consumers_share_one_segment_unless_one_takes_no_buckets(tmp_path: Path) -> None:
    async with scalable(tmp_path, segments=1) as (cluster, caller):
        discovery, broker, _ = addresses(cluster)
        a = await Member.join(discovery, "a")
        b = await Member.join(broker, "b")
        await until(lambda: (a.shares, b.shares) == ([4], [4]))

        m1 = await Member.join(discovery, "m1", connect=M1)

        assert m1.segments == []
        await until(lambda: (a.shares, b.shares) == ([0], []))
        await m1.leave()
        await until(lambda: (a.shares, b.shares) == ([4], [4]))
        for each in (a, b, m1):
            await each.vanish()
        await check_log(caller)
