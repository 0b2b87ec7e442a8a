"""A broker process against a scripted cluster manager and broker manager."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from nextgen.cli.local.plan import MINIMAL, make_plan_on_free_ports
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import (
    NAMES_PER_GET_MAX,
    SERVES_NAMES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
)
from nextgen.kernel.routing.slots import initial_table
from nextgen.runtime.servers.grpc_server import new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import (
    BrokerServiceStub,
    BrokerSessionServiceServicer,
    add_BrokerSessionServiceServicer_to_server,
)
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.cluster_service_pb2_grpc import (
    ClusterServiceServicer,
    add_ClusterServiceServicer_to_server,
)
from protos.nextgen.v1.events_pb2 import LoadReport, ShardMapChanged, ShardPlacement
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Namespace,
    Tenant,
    Topic,
)
from protos.nextgen.v1.shard_service_pb2 import ObjectName, TopicAssignment
from tests.support.processes.fork_server import start_warm

WAIT_S = 30
NAME = "persistent://acme/orders/paid"


class Manager(ClusterServiceServicer, BrokerSessionServiceServicer):
    """Cluster manager and broker manager in one; keeps what the broker said.

    A broker waits for its greeting for a while only. One that comes again because this process
    was slow is told once more what was said since the session was established. Nothing is said
    to one whose hello was not read yet: it would be told that twice.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.heard: asyncio.Queue[wire.BrokerMessage] = asyncio.Queue()
        self.loads: list[LoadReport] = []
        self._said: list[wire.ManagerMessage] = []
        self._outbox: asyncio.Queue[wire.ManagerMessage | None] = asyncio.Queue()
        """Of the broker that said hello last."""

    async def Join(self, request_iterator: Any, context: Any) -> AsyncIterator[ClusterUpdate]:
        async for message in request_iterator:
            if message.HasField("hello"):
                yield ClusterUpdate(
                    full=True,
                    shard_map=ShardMapChanged(
                        version=1,
                        slot_owners=initial_table([1]).to_bytes(),
                        shards=[ShardPlacement(shard_id=1, replicas=["n"])],
                    ),
                    leaders=[LeaderReport(shard_id=1, term=1, node_id="n", grpc=self.endpoint)],
                )
            else:
                yield ClusterUpdate(heartbeat_sequence=message.heartbeat.sequence)

    async def Connect(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        outbox: asyncio.Queue[wire.ManagerMessage | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(request_iterator, outbox))
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reading.cancel()

    async def hear(self, kind: str) -> Any:
        """Return the next message of a kind; others are skipped."""
        async with timeout(WAIT_S):
            while True:
                message = await self.heard.get()
                if message.WhichOneof("body") == kind:
                    return getattr(message, kind)

    async def _read(self, messages: Any, outbox: asyncio.Queue[Any]) -> None:
        async for message in messages:
            self.heard.put_nowait(message)
            if message.HasField("hello"):
                self._outbox = outbox
                for said in self._said:
                    outbox.put_nowait(said)
            if message.heartbeat.HasField("load"):
                self.loads.append(message.heartbeat.load)
            if message.HasField("goodbye"):
                outbox.put_nowait(None)

    def hang_up(self) -> None:
        """Break the stream; what was heard on it counts no more."""
        self._said.clear()
        self.heard = asyncio.Queue()
        self._outbox.put_nowait(None)

    def _say(self, message: wire.ManagerMessage) -> None:
        self._said.append(message)
        self._outbox.put_nowait(message)

    def establish(
        self,
        session_id: str,
        *,
        resumed: bool = False,
        next_sequence: int = 1,
        report_held: bool = False,
    ) -> None:
        said = wire.SessionEstablished(
            session_id=session_id,
            epoch=1,
            resumed=resumed,
            session_ttl_ms=120_000,  # Heartbeats are not answered here.
            heartbeat_ms=200,
            next_sequence=next_sequence,
            report_held=report_held,
        )
        self._say(wire.ManagerMessage(established=said))

    def deliver(self, *deliveries: wire.Delivery) -> None:
        batch = wire.Deliveries(deliveries=deliveries)
        self._say(wire.ManagerMessage(deliveries=batch))


@asynccontextmanager
async def manager_and_broker() -> AsyncIterator[tuple[Manager, Any, Any]]:
    plan = make_plan_on_free_ports(MINIMAL)
    place, node = plan.node("cluster-manager-1"), plan.node("broker-1")
    manager = Manager(place.grpc)
    server = new_server([])
    add_ClusterServiceServicer_to_server(manager, server.server)
    add_BrokerSessionServiceServicer_to_server(manager, server.server)
    await server.start("127.0.0.1", place.grpc_port, "the test")
    flags = ["--node-id", "broker-1", "--cluster-id", "test", "--zone", "east"]
    flags += ["--listen", node.grpc, "--http-listen", node.http, "--cluster-managers", place.grpc]
    process = start_warm("brokers", flags, environment=os.environ)
    # One of ours would give up a broker that stands still.
    channel = grpc.aio.insecure_channel(node.grpc)
    try:
        yield manager, process, BrokerServiceStub(channel)
    finally:
        await channel.close()
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        await server.stop(0)


def assignment() -> tuple[wire.Delivery, ...]:
    topic = Topic(topic_id="id-1", name=NAME)
    return (
        wire.Delivery(sequence=1, tenant=Tenant(name="acme")),
        wire.Delivery(sequence=2, namespace=Namespace(name="acme/orders")),
        wire.Delivery(sequence=3, assign=TopicAssignment(topic=topic, name=NAME, epoch=4)),
    )


async def test_a_broker_registers_serves_what_it_is_assigned_and_says_goodbye():
    async with manager_and_broker() as (manager, process, broker):
        hello = await manager.hear("hello")
        manager.establish("s-1")
        manager.deliver(*assignment())
        sync = await manager.hear("sync")
        answer = await broker.Serves(wire.ServesRequest(topics=["acme/orders/paid", "other"]))
        await manager.hear("heartbeat")
        status = await broker.GetBrokerStatus(wire.GetBrokerStatusRequest())
        process.send_signal(signal.SIGTERM)
        await manager.hear("goodbye")
        code = await asyncio.to_thread(process.wait, WAIT_S)

    assert (hello.broker_id, hello.session_id, hello.zone) == ("broker-1", "", "east")
    assert hello.capacity_units == 50_000
    assert hello.skips_unknown
    assert sync.sequence == 3
    assert [one.serves for one in answer.answers] == [True, False]
    assert (answer.answers[0].epoch, answer.answers[0].has_metadata) == (4, True)
    assert answer.session_id == "s-1"
    assert manager.loads[0].memory_bytes > 0
    assert (status.topics, status.applied_sequence, status.session_id) == (1, 3, "s-1")
    assert code == 0


async def test_a_broken_stream_is_resumed_and_a_lost_session_voids_everything():
    async with manager_and_broker() as (manager, _, broker):
        await manager.hear("hello")
        manager.establish("s-1")
        manager.deliver(*assignment())
        await manager.hear("sync")
        manager.hang_up()
        resuming = await manager.hear("hello")
        served_meanwhile = await broker.Serves(wire.ServesRequest(topics=[NAME]))
        manager.establish("s-2")
        manager.deliver(wire.Delivery(sequence=1, tenant=Tenant(name="other")))
        sync = await manager.hear("sync")
        after = await broker.Serves(wire.ServesRequest(topics=[NAME]))

    assert (resuming.session_id, resuming.last_sequence) == ("s-1", 3)
    assert served_meanwhile.answers[0].serves
    assert sync.sequence == 1
    assert (after.answers[0].serves, after.session_id) == (False, "s-2")


async def test_changed_metadata_is_held_and_reported_on_request():
    topic = ObjectName(kind=KIND_TOPIC, name=NAME)
    namespace = ObjectName(kind=KIND_NAMESPACE, name="acme/orders")
    async with manager_and_broker() as (manager, _, broker):
        await manager.hear("hello")
        manager.establish("s-1")
        manager.deliver(
            *assignment(),
            wire.Delivery(sequence=4, topic=Topic(topic_id="id-1", name=NAME, version=5)),
            wire.Delivery(sequence=5),
            wire.Delivery(sequence=6, topic=Topic(topic_id="id-1", name=NAME, version=4)),
        )
        first = await manager.hear("sync")
        held = await broker.GetMetadata(wire.GetMetadataRequest(names=[topic, namespace]))
        status = await broker.GetBrokerStatus(wire.GetBrokerStatusRequest())
        manager.hang_up()
        await manager.hear("hello")
        manager.establish("s-1", resumed=True, next_sequence=7, report_held=True)
        told = await manager.hear("held")
        removed = wire.MetadataRemoved(kind=KIND_NAMESPACE, name="acme/orders")
        manager.deliver(wire.Delivery(sequence=7, removed=removed))
        last = first
        while last.sequence < 7:
            last = await manager.hear("sync")
        after = await broker.GetMetadata(wire.GetMetadataRequest(names=[topic, namespace]))

    assert (first.sequence, held.applied_sequence) == (6, 6)
    assert [item.WhichOneof("value") for item in held.items] == ["topic", "namespace"]
    assert held.items[0].topic.version == 5
    assert status.counters["deliveries_skipped"] == 1
    assert told.complete
    assert [(each.name, each.version) for each in told.objects] == [
        ("acme", 0),
        ("acme/orders", 0),
        (NAME, 5),
    ]
    assert [(unit.unit, unit.epoch) for unit in told.objects[2].units] == [("", 4)]
    assert [item.WhichOneof("value") for item in after.items] == ["topic", None]


async def test_names_are_answered_on_a_stream_up_to_the_limit_and_not_beyond():
    async with manager_and_broker() as (manager, _, broker):
        await manager.hear("hello")
        call = broker.ServesStream()
        await call.write(wire.ServesRequest(topics=[NAME] * SERVES_NAMES_MAX))
        first = await call.read()
        await call.write(wire.ServesRequest(topics=[NAME] * (SERVES_NAMES_MAX + 1)))
        with pytest.raises(grpc.RpcError) as refusal:
            await call.read()

    assert len(first.answers) == SERVES_NAMES_MAX
    assert isinstance(error_of_rpc(refusal.value), InvalidRequest)


async def held_and_refused(
    at_limit: list[ObjectName], beyond: list[ObjectName]
) -> tuple[list[str | None], Exception]:
    """Ask a broker that holds nothing for both; return what it has and why it refuses the other."""
    async with manager_and_broker() as (manager, _, broker):
        await manager.hear("hello")
        held = await broker.GetMetadata(wire.GetMetadataRequest(names=at_limit))
        with pytest.raises(grpc.RpcError) as refusal:
            await broker.GetMetadata(wire.GetMetadataRequest(names=beyond))
    return [item.WhichOneof("value") for item in held.items], error_of_rpc(refusal.value)


async def test_a_broker_is_asked_for_so_many_objects_and_not_one_more():
    name = ObjectName(kind=KIND_TENANT, name="nobody")

    held, refusal = await held_and_refused(
        [name] * NAMES_PER_GET_MAX, [name] * (NAMES_PER_GET_MAX + 1)
    )

    assert held == [None] * NAMES_PER_GET_MAX
    assert isinstance(refusal, InvalidRequest)


async def test_a_broker_is_asked_for_names_of_topic_text_characters_max_and_no_longer():
    longest, longer = (
        ObjectName(kind=KIND_TENANT, name="x" * length)
        for length in (TOPIC_TEXT_CHARACTERS_MAX, TOPIC_TEXT_CHARACTERS_MAX + 1)
    )

    held, refusal = await held_and_refused([longest], [longer])

    assert held == [None]
    assert isinstance(refusal, InvalidRequest)
    assert "at most 2048 characters" in str(refusal)
