"""What the cluster manager shows to Prometheus."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from cluster_manager.adapters.metrics import ManagerCollector
from protos.nextgen.v1.cluster_service_pb2 import (
    LeaseCapacityRequest,
    NodeMessage,
    PlanSlotsRequest,
    SetNodeStateRequest,
    ShardSize,
    ShardSizes,
)
from protos.nextgen.v1.events_pb2 import SlotRange
from tests.unit.cluster_manager.fakes import ManagerUnderTest, broker, hello, leader, settle


def _page(one: ManagerUnderTest) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(ManagerCollector(one.manager))
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {name.removeprefix("nextgen_cluster_manager_"): float(value) for name, value in pairs}


async def test_a_leader_shows_the_cluster_and_a_follower_only_itself(tmp_path: Path) -> None:
    one = ManagerUnderTest(tmp_path)
    first, _ = await one.join_shard_nodes()
    one.manager.receive(first, broker())
    await settle()
    await one.manager.lease_capacity(LeaseCapacityRequest(shard_id=1))

    page = _page(one)
    assert page["is_leader"] == 1
    assert page["connected_nodes"] == 2
    assert page["live_brokers"] == 1
    assert page["shard_map_version"] == 1
    assert (page["replicas_to_move"], page["replicas_moving"]) == (0, 0)
    assert page["inactive_shard_nodes"] == 0
    assert (page["granted_units"], page["leased_units"]) == (80, 20)

    await one.manager.join(hello("c"))
    drain = SetNodeStateRequest(node_id="a", state="leaving")
    await one.manager.set_node_state(drain)
    for shard_id in (1, 2):
        one.manager.receive(first, leader(shard_id, 1, "a"))
    await settle()
    page = _page(one)
    assert (page["replicas_to_move"], page["inactive_shard_nodes"]) == (2, 1)

    one.log.lose_leadership()
    page = _page(one)
    assert page["is_leader"] == 0
    assert "connected_nodes" not in page
    one.manager.stop()
    await one.log.stop()


async def test_a_leader_shows_what_a_plan_has_yet_to_do(tmp_path: Path) -> None:
    one = ManagerUnderTest(tmp_path)
    a, b = await one.join_shard_nodes()
    for shard_id, node in ((1, a), (2, b)):
        one.manager.receive(node, leader(shard_id, 3, node.node_id))
        size = ShardSize(shard_id=shard_id, term=3, rows=10, topics=5)
        one.manager.receive(node, NodeMessage(shard_sizes=ShardSizes(shards=[size])))
    await settle()
    names = ("plan_running", "slots_to_move", "slots_moving")
    assert [_page(one)[name] for name in names] == [0, 0, 0]

    term = one.manager.leader_term
    assert term is not None
    assert term.committed.shard_map is not None
    slots = term.committed.shard_map.table.slots_of(1)[:10]
    ranges = [SlotRange(first=slot, last=slot) for slot in slots]
    await one.manager.plan_slots(PlanSlotsRequest(kind="move_slots", into_shard=2, ranges=ranges))
    await settle()
    assert [_page(one)[name] for name in names] == [1, 10, 10]

    one.manager.stop()
    await one.log.stop()
