"""The cluster manager's metrics for Prometheus, computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster_manager.domain.cluster import ClusterState
from cluster_manager.domain.membership import NodeState
from cluster_manager.domain.slot_moves.driver import left_of
from cluster_manager.domain.slot_moves.ranges import count_of
from cluster_manager.service.replica import ClusterManager
from protos.nextgen.v1.cluster_service_pb2 import ReplicaPlan


class ManagerCollector(Collector):
    """Nodes, brokers and capacity are shown by the replica that leads; the others show none."""

    def __init__(self, manager: ClusterManager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        leader_term = self._manager.leader_term
        yield _gauge("is_leader", "1 while this replica leads.", float(leader_term is not None))
        if leader_term is None:
            return
        state = leader_term.committed
        accounts = [account for account in state.ledger.accounts.values() if account.is_live]
        shard_map_version = state.shard_map.version if state.shard_map else 0
        yield _gauge("connected_nodes", "Open Join streams.", len(leader_term.connections))
        yield _gauge("known_leaders", "Shards with a known leader.", len(leader_term.endpoints))
        yield _gauge("shard_map_version", "Version of the shard map.", shard_map_version)
        yield _gauge("live_brokers", "Brokers with a live session.", len(state.directory.live()))
        balancer = self._manager.balancer
        plan = balancer.plan() if balancer is not None else ReplicaPlan()
        out = sum(node.state != NodeState.ACTIVE for node in plan.nodes)
        yield _gauge("replicas_to_move", "Replicas to move, not begun.", len(plan.moves))
        yield _gauge("replicas_moving", "Replicas joining or leaving.", len(plan.under_way))
        yield _gauge("inactive_shard_nodes", "Shard nodes drained, lost or removed.", out)
        yield from _slots(state)
        yield _gauge(
            "granted_units", "Capacity granted.", sum(account.granted_units for account in accounts)
        )
        yield _gauge(
            "leased_units", "Capacity leased.", sum(account.leased_units for account in accounts)
        )


def _slots(state: ClusterState) -> Iterator[Metric]:
    plan, shard_map = state.plans.present, state.shard_map
    left = 0 if plan is None or shard_map is None else left_of(plan, shard_map, {}).slots
    moving = sum(count_of(move.ranges) for move in state.slot_moves.under_way)
    yield _gauge("plan_running", "1 while a plan of moves runs or stops.", float(plan is not None))
    yield _gauge("slots_to_move", "Slots that the plan has yet to bring where it says.", left)
    yield _gauge("slots_moving", "Slots in the moves under way.", moving)


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"nextgen_cluster_manager_{name}", documentation, value=value)
