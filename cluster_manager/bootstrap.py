"""Wires the cluster manager together; the only place that knows every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog
from prometheus_client import REGISTRY

from cluster_manager.adapters.event_log import EventLogServicer
from cluster_manager.adapters.grpc_service import ClusterServicer
from cluster_manager.adapters.loop_clock import LoopClock
from cluster_manager.adapters.metrics import ManagerCollector
from cluster_manager.adapters.shard_grantor import OwnClusterSource, ShardGrantor
from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.config import ManagerConfig
from cluster_manager.domain.cluster import FirstMapPlan
from cluster_manager.service.peer_keeper import PeerKeeper
from cluster_manager.service.replica import ClusterManager
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.client.transport.process_security import ProcessSecurity, security_of
from nextgen.kernel.limits.cluster import JOIN_STREAMS_MAX
from nextgen.replication.host.log_metrics import LogCollector, MeshCollector
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.mesh.handshake import ClusterSecret
from nextgen.replication.ports import (
    CLUSTER_MANAGER_GROUP_ID,
    LogStatus,
    NodeId,
    ReplicatedLog,
    Role,
    RoleChange,
)
from nextgen.replication.view.store import ViewStore
from nextgen.runtime.lifecycle.data_directory import DataDirectory
from nextgen.runtime.lifecycle.process import Shutdown, tune_garbage_collector
from nextgen.runtime.security.cluster_proof import ClusterCredentials
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.runtime.servers.mesh_tls import NodeMeshTls
from nextgen.runtime.servers.ports_check import assert_port_free
from nextgen.runtime.servers.probes import Probes
from nextgen.tasks.background import cancel_and_wait, keep, start
from protos.nextgen.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    shard_service_pb2,
)

COMPONENT = "cluster_manager"

STOP_GRACE_MS = 500
"""Grace for calls in progress when the process stops. Streams were redirected before."""

_logger = structlog.get_logger(__name__)


class ReplicaStopped(Exception):
    """Group 0's replica stopped by itself: its disk or its view cannot be trusted."""


async def serve(
    config: ManagerConfig,
    shutdown: Shutdown,
    *,
    make_host: Callable[..., PySyncObjHost] = PySyncObjHost,
) -> None:
    """Run one replica of the cluster manager until ``shutdown`` is requested.

    ``make_host`` takes the arguments of ``PySyncObjHost``; the simulation adds an environment.

    Raises:
        RefusesToStart: The message has the reason.
        ReplicaStopped: The process must end; a restart recovers or reports the fault.
    """
    security = security_of(config, NodeRole.CLUSTER_MANAGER)
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(
            DataDirectory.open(
                config.data_directory,
                cluster_id=config.cluster_id,
                node_id=config.node_id,
                component=COMPONENT,
            )
        )
        assert_port_free(config.raft_listen.host, config.raft_listen.port, "the Raft mesh")
        host = make_host(
            node_id=NodeId(config.node_id),
            cluster_id=config.cluster_id,
            listen_host=config.raft_listen.host,
            listen_port=config.raft_listen.port,
            data_directory=directory.path,
            secret=_raft_secret(config, security.credentials),
            tls=NodeMeshTls.of(security.tls.nodes),
        )
        await host.start()
        stack.push_async_callback(host.stop)
        for peer in config.peers:
            if peer.node_id != config.node_id:
                await host.set_peer_address(NodeId(peer.node_id), peer.raft.host, peer.raft.port)
        view_path = directory.path / f"group-{CLUSTER_MANAGER_GROUP_ID}" / "view"
        stores: list[ViewStore] = []

        def open_view() -> ViewStore:
            stores.append(open_view_store(view_path))
            return stores[-1]

        members = [NodeId(peer.node_id) for peer in config.peers]
        log = await host.open_group(CLUSTER_MANAGER_GROUP_ID, members, open_view)

        source = OwnClusterSource()
        grantor = ShardGrantor(source)
        stack.push_async_callback(grantor.stop)
        manager = ClusterManager(
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            endpoints=_endpoints(config),
            plan=FirstMapPlan(config.initial_shard_nodes, config.shards, config.replication_factor),
            log=log,
            view=StoredView(stores[0]),
            grantor=grantor,
            clock=LoopClock(),
            on_update=source.apply,
        )
        manager.start()
        stack.callback(manager.stop)
        peers = keep("peers", PeerKeeper(log, members, host.mesh.is_connected).run)
        stack.callback(peers.cancel)
        _register_metrics(config, host, manager, stack)
        await _serve_until_shutdown(config, shutdown, manager, log, security, stack)


def _endpoints(config: ManagerConfig) -> dict[str, str]:
    """Return the gRPC address of each replica, by node id."""
    return {
        peer.node_id: str(config.advertise if peer.node_id == config.node_id else peer.grpc)
        for peer in config.peers
    }


def _raft_secret(
    config: ManagerConfig, credentials: ClusterCredentials | None
) -> ClusterSecret | None:
    key = None if credentials is None else credentials.secret
    return ClusterSecret.of(key, is_required=config.cluster_secret_required)


def _register_metrics(
    config: ManagerConfig, host: PySyncObjHost, manager: ClusterManager, stack: AsyncExitStack
) -> None:
    def logs() -> dict[int, LogStatus]:
        return {CLUSTER_MANAGER_GROUP_ID: manager.status()}

    for collector in (
        ManagerCollector(manager),
        LogCollector(logs, config.data_directory),
        MeshCollector(host.mesh),
    ):
        REGISTRY.register(collector)
        stack.callback(REGISTRY.unregister, collector)


async def _serve_until_shutdown(
    config: ManagerConfig,
    shutdown: Shutdown,
    manager: ClusterManager,
    log: ReplicatedLog,
    security: ProcessSecurity,
    stack: AsyncExitStack,
) -> None:
    probes = Probes(lambda: _readiness(manager))
    await probes.start(config.http_listen.host, config.http_listen.port, security.tls.clients)
    stack.push_async_callback(probes.stop)
    server = _new_grpc_server(manager, log, security)
    await server.start(
        config.listen.host, config.listen.port, "gRPC of the cluster manager", tls=security.grpc
    )
    stack.push_async_callback(server.stop, 0)
    _logger.info(
        "serving",
        grpc=f"{config.listen.host}:{server.port}",
        http=f"{config.http_listen.host}:{probes.port}",
    )
    tune_garbage_collector()
    following = start(
        "role",
        _follow_role(log, manager, server, shutdown),
        on_failure=lambda error: shutdown.request(str(error)),
        expected=ReplicaStopped,
    )
    try:
        await shutdown.wait()
        # Before the streams end, so that nodes see the next leader without a gap.
        await manager.hand_over()
        manager.stop()
        await server.stop(STOP_GRACE_MS)
    finally:
        await cancel_and_wait(following)
    if not following.cancelled() and (error := following.exception()):
        raise error


def _new_grpc_server(
    manager: ClusterManager, log: ReplicatedLog, security: ProcessSecurity
) -> GrpcServer:
    names = [
        module.DESCRIPTOR.services_by_name[name].full_name
        for module, name in (
            (cluster_service_pb2, "ClusterService"),
            (shard_service_pb2, "ShardService"),
        )
    ]
    server = new_server(
        names,
        interceptors=[security.gate, MalformedRequests()],
        concurrent_calls_max=2 * JOIN_STREAMS_MAX,
    )
    cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(
        ClusterServicer(manager), server.server
    )
    EventLogServicer(log).add_to(server.server)
    return server


async def _follow_role(
    log: ReplicatedLog, manager: ClusterManager, server: GrpcServer, shutdown: Shutdown
) -> None:
    """Keep the health service up to date, and end the process when the replica has stopped.

    Raises:
        ReplicaStopped: The replica stopped by itself.
    """
    changed = asyncio.Event()
    roles: list[Role] = []

    def on_role_change(change: RoleChange) -> None:
        roles.append(change.role)
        changed.set()

    unsubscribe: Callable[[], None] = log.on_role_change(on_role_change)
    try:
        while True:
            await changed.wait()
            changed.clear()
            if Role.STOPPED in roles and not shutdown.is_requested:
                raise ReplicaStopped("group 0's replica stopped: see the lines before")
            roles.clear()
            await server.set_serving(manager.has_leader)
    finally:
        unsubscribe()


def _readiness(manager: ClusterManager) -> tuple[bool, list[str]]:
    if manager.has_leader:
        return True, []
    return False, ["no replica of the cluster manager is known to lead"]
