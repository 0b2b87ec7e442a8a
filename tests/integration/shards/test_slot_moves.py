"""Slots of a real cluster move to another shard while clients look up, create, produce, consume."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pulsar
import pytest

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.shards.slot_plans import follow, plan_slots
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1.cluster_service_pb2 import (
    ClusterUpdate,
    PlanSlotsRequest,
    SlotPlan,
)
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import SlotRange
from tests.support.callers.steady_load import NAMESPACE, steady_load
from tests.support.callers.stock_load import (
    Outcome,
    SteadyProducer,
    assert_stored_once_in_order,
)
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=2)
MOVED_MS_MAX = 60_000
RECEIVE_MS = 30_000


@pytest.mark.slow
async def test_slots_move_under_load_and_nothing_fails_or_is_lost(tmp_path: Path) -> None:
    """There and back: what a shard gave away comes to it as to any other."""
    topic = f"persistent://{NAMESPACE}/w0-1"
    slot = slot_of(parse_topic(topic).routing_key)
    async with running_cluster(tmp_path, SIZE) as cluster:
        async with steady_load(cluster) as load:
            owner = await _shard_of(cluster, slot)
            with await asyncio.to_thread(_Stock, cluster.plan.service_url, topic) as stock:
                for target in (3 - owner, owner):
                    plan = await _move(cluster, slot, target)
                    assert (plan.plan.phase, plan.slots_left) == ("done", 0)
                    assert await _shard_of(cluster, slot) == target
                    await load.progress()
                    await asyncio.to_thread(stock.load.wait_acknowledged, 100)
                outcome = await asyncio.to_thread(stock.end)
            assert load.errors == []
        assert outcome.failed == {}
        assert_stored_once_in_order(stock.consumed, outcome)
        print(load.summary(), f"longest gap of the producer {outcome.gap_ms_max:.0f} ms")
        await load.assert_nothing_lost()


@pytest.mark.slow
async def test_a_brokers_session_and_its_units_outlive_a_move_of_its_slot(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster, steady_load(cluster) as load:
        slot = slot_of("broker-1")
        before = await _known(cluster)
        names = sorted(load.ledger.present)[:20]
        assigned = {each.topic: each.epoch for each in await load.client.lookup(names)}
        for target in (3 - await _shard_of(cluster, slot), await _shard_of(cluster, slot)):
            await _move(cluster, slot, target)
            await load.progress()
            # Longer than a session lives whose broker its manager does not hear.
            await asyncio.sleep(5.0)
        after = await _known(cluster)
        again = {each.topic: each.epoch for each in await load.client.lookup(names)}
        assert load.errors == []

    assert _sessions(before) == _sessions(after)
    assert assigned == again


def _sessions(known: ClusterUpdate) -> dict[str, tuple[str, bool]]:
    return {each.broker_id: (each.session_id, each.is_live) for each in known.brokers}


class _Stock:
    """A stock producer and a stock consumer of one topic."""

    def __init__(self, service_url: str, topic: str) -> None:
        self.client = pulsar.Client(service_url)
        self.consumer = self.client.subscribe(topic, "all")
        self.load = SteadyProducer(
            self.client.create_producer(topic), in_flight_max=100, pause_ms=2
        )
        self.consumed: list[int] = []

    def __enter__(self) -> _Stock:
        self.load.__enter__()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.client.close()

    def end(self) -> Outcome:
        """Stop producing, and consume everything."""
        self.load.__exit__()
        last = self.load.outcome.sent - 1
        while last not in self.consumed:
            message = self.consumer.receive(RECEIVE_MS)
            self.consumer.acknowledge(message)
            self.consumed.append(int(message.data()))
        return self.load.outcome


async def _move(cluster: LocalCluster, slot: int, target: int) -> SlotPlan:
    endpoints = list(cluster.plan.discovery_endpoints)
    first = slot - slot % 64
    request = PlanSlotsRequest(
        kind="move_slots", into_shard=target, ranges=[SlotRange(first=first, last=first + 63)]
    )
    plan = await plan_slots(endpoints, request)
    return await follow(endpoints, plan.plan.plan_id, MOVED_MS_MAX, lambda _plan: None)


async def _known(cluster: LocalCluster) -> ClusterUpdate:
    async with DiscoveryClient(list(cluster.plan.discovery_endpoints)) as discovery:
        known: ClusterUpdate = await discovery.call("GetCluster", GetClusterRequest())
    return known


async def _shard_of(cluster: LocalCluster, slot: int) -> int:
    known = await _known(cluster)
    table = SlotTable.from_bytes(known.shard_map.version, known.shard_map.slot_owners)
    return table.owners[slot]
