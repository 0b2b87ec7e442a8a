"""What each kind of process runs: the ``serve`` of its component, with a configuration."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from brokers.bootstrap import serve as broker
from brokers.config import BrokerConfig
from brokers.service.session import load_reports
from cluster_manager import bootstrap as cluster_manager
from cluster_manager.config import ManagerConfig, Peer
from cluster_manager.service import lease_allocator
from discovery.bootstrap import serve as discovery
from discovery.config import DiscoveryConfig
from nextgen.client.discovery import issued
from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.limits.stream import WATCH_EVENTS_PER_SLICE
from nextgen.runtime.lifecycle.process import Shutdown
from nextgen.runtime.settings import Address
from shards import bootstrap as shards
from shards.assignment import lease_table
from shards.config import ShardNodeConfig
from shards.moves.balance_plans import BalancePlans
from shards.projections import outcomes
from shards.sessions import session_loads
from shards.state import outcome_retention
from shards.watches import change_delivery
from tests.support.cluster_simulation.judges.balance import SHORT_BALANCE, SHORT_REPORT_MS_MAX

CLUSTER_ID = "simulation"
GRPC_PORT, RAFT_PORT, HTTP_PORT, PULSAR_PORT = 7000, 7001, 7002, 6650
DRAIN_MS_MAX = 3_000
"""A broker that is stopped gives its units away for so long."""


SHORT_OUTCOME_WINDOW_MS, SHORT_FRESH_MS = 4_000, 1_000
SHORT_LEASE_MS, SHORT_MARGIN_MS, SHORT_UNUSED_MS = 9_000, 2_000, 3_000

Serve = Callable[[Shutdown], Coroutine[Any, Any, None]]
MakeHost = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """How many processes of each kind there are, and how large brokers are."""

    managers: int = 3
    shard_nodes: int = 3
    discovery_nodes: int = 2
    brokers: int = 3
    shards: int = 2
    broker_units: int = 60
    replication_factor: int = 3
    has_short_leases: bool = False
    """Leases end and are given back within seconds, so that a run sees it."""
    outcome_window_positions: int | None = None
    """Outcomes of commands are forgotten so soon, so that a run sees it; None: as in production."""
    has_secret: bool = False
    """Processes of the cluster know a secret, and calls between them need proof of it."""
    watch_page_events: int = WATCH_EVENTS_PER_SLICE
    """Of the log, for a watch: with small ones a discovery node catches up page by page."""

    @property
    def manager_names(self) -> list[str]:
        return [f"manager-{number}" for number in range(1, self.managers + 1)]

    @property
    def shard_node_names(self) -> list[str]:
        return [f"shard-{number}" for number in range(1, self.shard_nodes + 1)]

    @property
    def discovery_names(self) -> list[str]:
        return [f"discovery-{number}" for number in range(1, self.discovery_nodes + 1)]

    @property
    def broker_names(self) -> list[str]:
        return [f"broker-{number}" for number in range(1, self.brokers + 1)]

    @property
    def manager_addresses(self) -> tuple[Address, ...]:
        return tuple(Address(name, GRPC_PORT) for name in self.manager_names)


@contextmanager
def limits_of(plan: ClusterPlan) -> Iterator[None]:
    """Have leases of capacity and outcomes live as long as ``plan`` says, for a run, and pages of
    the log for watches be as large."""
    with ExitStack() as stack:
        page = "WATCH_EVENTS_PER_SLICE"
        stack.enter_context(patch.object(change_delivery, page, plan.watch_page_events))
        for module, name, value in (
            (BalancePlans, "settings", SHORT_BALANCE),
            (load_reports, "LOAD_REPORT_MS_MAX", SHORT_REPORT_MS_MAX),
            (session_loads, "LOAD_REPORT_MS_MAX", SHORT_REPORT_MS_MAX),
        ):
            stack.enter_context(patch.object(module, name, value))
        if plan.outcome_window_positions is not None:
            for module, name, value in (
                (outcomes, "OUTCOME_WINDOW_POSITIONS", plan.outcome_window_positions),
                (outcome_retention, "OUTCOME_WINDOW_POSITIONS", plan.outcome_window_positions),
                (outcome_retention, "OUTCOME_WINDOW_MS", SHORT_OUTCOME_WINDOW_MS),
                (issued, "ISSUED_POSITIONS_FRESH_MS", SHORT_FRESH_MS),
            ):
                stack.enter_context(patch.object(module, name, value))
        if plan.has_short_leases:
            for module, name, value in (
                (lease_allocator, "CAPACITY_LEASE_TTL_MS", SHORT_LEASE_MS),
                (lease_allocator, "RENEWED_LEFT_MS", SHORT_LEASE_MS * 2 // 3),
                (lease_allocator, "SILENCE_MS", SHORT_LEASE_MS + SHORT_MARGIN_MS),
                (lease_table, "LEASE_UNUSED_MS", SHORT_UNUSED_MS),
            ):
                stack.enter_context(patch.object(module, name, value))
        yield


def serve_of(
    plan: ClusterPlan,
    name: str,
    directory: Path,
    make_host: MakeHost,
    *,
    secret_file: Path | None = None,
) -> Serve:
    """Return what the process ``name`` runs."""
    kind = kind_of(name)
    secret = {"cluster_secret_file": secret_file}
    if kind == "manager":
        manager = replace(_manager_config(plan, name, directory), **secret)
        return partial(cluster_manager.serve, manager, make_host=make_host)
    if kind == "shard":
        shard = replace(_shard_config(plan, name, directory), **secret)
        return partial(shards.serve, shard, make_host=make_host)
    if kind == "discovery":
        return partial(discovery.serve, replace(_discovery_config(plan, name), **secret))
    assert kind == "broker", f"there is no {kind}"
    return partial(broker.serve, replace(_broker_config(plan, name, directory), **secret))


def kind_of(name: str) -> str:
    return name.rpartition("-")[0]


def has_disk(name: str) -> bool:
    return kind_of(name) in ("manager", "shard")


def _addresses(name: str) -> dict[str, Address]:
    grpc = Address(name, GRPC_PORT)
    return {"listen": grpc, "advertise": grpc, "http_listen": Address(name, HTTP_PORT)}


def _manager_config(plan: ClusterPlan, name: str, directory: Path) -> ManagerConfig:
    return ManagerConfig(
        node_id=name,
        cluster_id=CLUSTER_ID,
        **_addresses(name),
        raft_listen=Address(name, RAFT_PORT),
        raft_advertise=Address(name, RAFT_PORT),
        data_directory=directory,
        peers=tuple(
            Peer(peer, Address(peer, RAFT_PORT), Address(peer, GRPC_PORT))
            for peer in plan.manager_names
        ),
        initial_shard_nodes=plan.shard_nodes,
        shards=plan.shards,
        replication_factor=min(plan.replication_factor, plan.shard_nodes),
    )


def _shard_config(plan: ClusterPlan, name: str, directory: Path) -> ShardNodeConfig:
    return ShardNodeConfig(
        node_id=name,
        cluster_id=CLUSTER_ID,
        **_addresses(name),
        raft_listen=Address(name, RAFT_PORT),
        raft_advertise=Address(name, RAFT_PORT),
        cluster_managers=plan.manager_addresses,
        data_directory=directory,
    )


def _discovery_config(plan: ClusterPlan, name: str) -> DiscoveryConfig:
    return DiscoveryConfig(
        node_id=name,
        cluster_id=CLUSTER_ID,
        **_addresses(name),
        cluster_managers=plan.manager_addresses,
        pulsar_listen=None,
        pulsar_advertise=None,
    )


def _broker_config(plan: ClusterPlan, name: str, directory: Path) -> BrokerConfig:
    return BrokerConfig(
        node_id=name,
        cluster_id=CLUSTER_ID,
        **_addresses(name),
        cluster_managers=plan.manager_addresses,
        capacity_units=plan.broker_units,
        zone="",
        data_dir=None,
        pulsar_listen=Address(name, PULSAR_PORT),
        pulsar_advertise=Address(name, PULSAR_PORT),
        ledger_dir=directory,
        retention_time_ms=FOR_EVER,
        retention_bytes=FOR_EVER,
        backlog_bytes_max=2**30,
        drain_ms_max=DRAIN_MS_MAX,
    )
