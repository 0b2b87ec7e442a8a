"""Clusters with slots to move: states of the cluster manager, and what happens in the shards."""

from __future__ import annotations

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import CapacityGranted, CapacityLeased
from cluster_manager.domain.cluster import INITIAL, ClusterState, fold_events
from cluster_manager.domain.membership import Node, NodeRegistered
from cluster_manager.domain.shard_map import ShardMap, ShardMapChanged, place_replicas
from cluster_manager.domain.slot_moves.planning import PlanContext, PlanSlots
from cluster_manager.domain.slot_moves.plans import PlanKind
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable

NODES = ("a", "b", "c")
CONTEXT = PlanContext(frozenset(NODES), replication_factor=2, now_ms=1_000_000)


def cluster(shards: int = 3, *, version: int = 7) -> ClusterState:
    """Return a cluster whose shards have equal runs of slots, and two brokers with leases."""
    shard_ids = range(1, shards + 1)
    owners = tuple(1 + slot * shards // SLOT_COUNT for slot in range(SLOT_COUNT))
    nodes = [NodeRegistered(Node(node, "shard", f"{node}:1", node, 2)) for node in NODES]
    shard_map = ShardMap(SlotTable(version, owners), place_replicas(shard_ids, NODES, 2))
    brokers = [
        BrokerRecorded(Broker(f"broker-{n}", f"s-{n}", 1, True, capacity_units=100)) for n in (1, 2)
    ]
    leases = [
        event
        for n in (1, 2)
        for event in (
            CapacityGranted(f"broker-{n}", f"s-{n}", 100),
            *(
                CapacityLeased(f"broker-{n}", f"s-{n}", shard_id, 20, 90_000, 1, 10, 3)
                for shard_id in shard_ids
            ),
        )
    ]
    return fold_events(INITIAL, [*nodes, ShardMapChanged(shard_map), *brokers, *leases])


def wish(kind: PlanKind, **values: object) -> PlanSlots:
    return PlanSlots(kind, **values)  # type: ignore[arg-type]


def owners_of(state: ClusterState) -> tuple[int, ...]:
    assert state.shard_map is not None, "a cluster of these tests has a map"
    return state.shard_map.table.owners


def leased(state: ClusterState) -> dict[str, int]:
    """Return the units leased of each session."""
    return {account.session_id: account.leased_units for account in state.ledger.accounts.values()}
