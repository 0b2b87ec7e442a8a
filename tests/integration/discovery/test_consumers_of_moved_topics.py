"""Members of streams come and go at one discovery node while their topic's slot moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.shards.slot_plans import follow, plan_slots
from nextgen.client import Client, NewTopic, st
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1.cluster_service_pb2 import PlanSlotsRequest
from protos.nextgen.v1.events_pb2 import SlotRange
from tests.support.processes.local_cluster import ClusterSize, running_cluster

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=2)
NAMESPACE = "acme/streams"
MOVED_MS_MAX = 60_000
WAIT_MS = 15_000


@asynccontextmanager
async def member(url: str, topic: str, name: str) -> AsyncIterator[st.StreamConsumer[bytes]]:
    """Join a stream; leave without a word."""
    client = st.PulsarClient(url, operation_timeout_ms=WAIT_MS)
    try:
        yield await client.stream_consumer(
            topic, "s", consumer_name=name, initial_position=st.InitialPosition.EARLIEST
        )
    finally:
        await client.shutdown()


async def move(cluster: LocalCluster, topic: str, shard_id: int) -> None:
    slot = slot_of(parse_topic(topic).routing_key)
    endpoints = list(cluster.plan.discovery_endpoints)
    request = PlanSlotsRequest(
        kind="move_slots", into_shard=shard_id, ranges=[SlotRange(first=slot, last=slot)]
    )
    plan = await plan_slots(endpoints, request)
    done = await follow(endpoints, plan.plan.plan_id, MOVED_MS_MAX, lambda _plan: None)
    assert (done.plan.phase, done.slots_left) == ("done", 0)


async def two_of_shard_1(client: Client) -> list[str]:
    """Create two scalable topics in one shard."""
    table = initial_table([1, 2])
    names = (f"topic://{NAMESPACE}/t-{number}" for number in range(100))
    topics = [each for each in names if table.shard_for_key(parse_topic(each).routing_key) == 1][:2]
    for made in await client.create_topics([NewTopic(each, segments=1) for each in topics]):
        assert made.is_created, made
    return topics


async def test_an_end_behind_a_move_holds_up_no_stream_of_the_former_shard(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, SIZE) as cluster,
        Client(list(cluster.plan.discovery_endpoints)) as client,
    ):
        await client.create_tenant("acme")
        await client.create_namespace(NAMESPACE)
        stays, moves = await two_of_shard_1(client)
        url = cluster.plan.service_url
        async with st.PulsarClient(url, operation_timeout_ms=WAIT_MS) as sending:
            producers: dict[str, st.Producer[bytes]] = {
                each: await sending.create_producer(each) for each in (stays, moves)
            }
            for shard_id in (2, 1):
                async with member(url, moves, "a") as consumer:
                    await move(cluster, moves, shard_id)
                    await producers[moves].send(b"moved")
                    assert (await consumer.receive(WAIT_MS)).data == b"moved"

                async with member(url, stays, "a") as consumer:
                    await producers[stays].send(b"stayed")
                    assert (await consumer.receive(WAIT_MS)).data == b"stayed"
