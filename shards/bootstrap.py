"""Puts a shard node together: the only place that joins ports and adapters."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import structlog
from prometheus_client import REGISTRY

from nextgen.client.brokers.channels import BrokerChannels
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.membership import run_as_member
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.write_admission import WriteBounds
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.client.transport.process_security import ProcessSecurity, security_of
from nextgen.replication.config import RaftConfig
from nextgen.replication.host.log_metrics import LogCollector, MeshCollector
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.mesh.handshake import ClusterSecret
from nextgen.replication.ports import LogStatus, NodeId
from nextgen.runtime.lifecycle.data_directory import DataDirectory
from nextgen.runtime.lifecycle.process import Shutdown, tune_garbage_collector
from nextgen.runtime.security.cluster_proof import ClusterCredentials
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.runtime.servers.mesh_tls import NodeMeshTls
from nextgen.runtime.servers.ports_check import assert_port_free
from nextgen.runtime.servers.probes import Probes
from nextgen.runtime.settings import Address
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import Hello
from shards.adapters import broker_session_servicer, shard_servicer
from shards.adapters.broker_session_servicer import BrokerSessionServicer
from shards.adapters.cluster import LinkCapacity, LinkDirectory, LinkQuotas, LinkReports
from shards.adapters.joined_reads import JoinedReads
from shards.adapters.loop_clock import LoopClock
from shards.adapters.node_collector import NodeCollector
from shards.adapters.raft_groups import RaftGroups
from shards.adapters.routed import (
    LinkedHomes,
    RoutedBrokerManagers,
    RoutedMetadata,
    RoutedParents,
    RoutedTopicControllers,
)
from shards.adapters.segment_brokers import CalledSegmentBrokers
from shards.adapters.shard_servicer import ShardServicer
from shards.adapters.slot_moves import LinkedSlotMoves
from shards.config import ShardNodeConfig
from shards.metrics import NodeMetrics
from shards.moves.balance_plans import BalancePlans
from shards.node.replica import Replica
from shards.node.request_dispatcher import RequestDispatcher
from shards.node.shard_leader import LeaderDependencies
from shards.node.shard_node import SHARD_NODE, ShardNode
from shards.watches.subscriber_ids import topic_controllers_id

GRPC_GRACE_MS = 200
"""Milliseconds for calls in flight at a stop, after leadership has moved: only answers are left."""

HAND_OVER_MS_MAX = 3_000
"""Milliseconds for handing over every shard that is led here; the rest are left to elections."""

_logger = structlog.get_logger(__name__)


async def serve(
    config: ShardNodeConfig,
    shutdown: Shutdown,
    *,
    make_host: Callable[..., PySyncObjHost] = PySyncObjHost,
) -> None:
    """Run the shard node until ``shutdown`` is requested.

    ``make_host`` takes the arguments of ``PySyncObjHost``; the simulation adds an environment.

    Raises:
        RefusesToStart: A port is taken, the cluster secret cannot be read, the data directory is
            another node's, a journal is damaged, or the cluster manager belongs to another
            cluster.
    """
    security = security_of(config, NodeRole.SHARD_NODE)
    async with AsyncExitStack() as stack:
        stack.enter_context(
            DataDirectory.open(
                config.data_directory,
                cluster_id=config.cluster_id,
                node_id=config.node_id,
                component="shard",
            )
        )
        assert_port_free(config.raft_listen.host, config.raft_listen.port, "the Raft mesh")
        host = make_host(
            node_id=NodeId(config.node_id),
            cluster_id=config.cluster_id,
            listen_host=config.raft_listen.host,
            listen_port=config.raft_listen.port,
            data_directory=config.data_directory,
            config=RaftConfig(snapshot_journal_bytes=config.snapshot_journal_bytes),
            secret=_raft_secret(config, security.credentials),
            tls=NodeMeshTls.of(security.tls.nodes),
        )
        groups = RaftGroups(host, config.data_directory)
        link = ClusterLink(
            [str(address) for address in config.cluster_managers],
            _hello(config),
            view=_remembered(groups),
        )
        metrics = NodeMetrics()
        replicas: dict[int, Replica] = {}
        dispatcher = RequestDispatcher(replicas, link.view)
        pool = ExchangePool(lambda: link.view.shard_map_version)
        stack.push_async_callback(pool.stop)
        router = ShardRouter(link, pool, dispatcher.local)
        dependencies = _leader_dependencies(config, link, router, _channels(stack), metrics)
        node = ShardNode(
            config.node_id, str(config.advertise), link, groups, dependencies, metrics, replicas
        )
        server = await _start_server(config, dispatcher, link.view, node, metrics, groups, security)
        stack.push_async_callback(server.stop, GRPC_GRACE_MS)
        _register_metrics(config, host, replicas)
        probes = Probes(node.readiness)
        await probes.start(config.http_listen.host, config.http_listen.port, security.tls.clients)
        stack.push_async_callback(probes.stop)
        await host.start()
        stack.push_async_callback(host.stop)
        stack.push_async_callback(_hand_over, node)
        await node.open_known()
        await link.start()
        stack.push_async_callback(link.stop)
        await server.set_serving(True)
        tune_garbage_collector()
        _logger.info("serving", grpc=str(config.advertise), replicas=sorted(replicas))
        await run_as_member(node.run(), link, shutdown)
        await server.set_serving(False)


def _raft_secret(
    config: ShardNodeConfig, credentials: ClusterCredentials | None
) -> ClusterSecret | None:
    key = None if credentials is None else credentials.secret
    return ClusterSecret.of(key, is_required=config.cluster_secret_required)


def _register_metrics(
    config: ShardNodeConfig, host: PySyncObjHost, replicas: Mapping[int, Replica]
) -> None:
    def logs() -> dict[int, LogStatus]:
        return {shard_id: replica.log.status for shard_id, replica in replicas.items()}

    REGISTRY.register(NodeCollector(replicas))
    REGISTRY.register(LogCollector(logs, config.data_directory))
    REGISTRY.register(MeshCollector(host.mesh))


async def _hand_over(node: ShardNode) -> None:
    try:
        async with timeout(HAND_OVER_MS_MAX / 1000):
            await node.stop()
    except TimeoutError:
        _logger.warning("leadership not handed over in time", after_ms=HAND_OVER_MS_MAX)


async def _start_server(
    config: ShardNodeConfig,
    dispatcher: RequestDispatcher,
    view: ClusterView,
    node: ShardNode,
    metrics: NodeMetrics,
    groups: RaftGroups,
    security: ProcessSecurity,
) -> GrpcServer:
    names = [shard_servicer.SERVICE_NAME, broker_session_servicer.SERVICE_NAME]
    server = new_server(names, interceptors=[security.gate, MalformedRequests()])
    ShardServicer(dispatcher, node.status, metrics, groups.verify).add_to(server.server)
    BrokerSessionServicer(config.cluster_id, dispatcher, view, metrics).add_to(server.server)
    await server.start(
        config.listen.host, config.listen.port, "the shard service", tls=security.grpc
    )
    return server


def _channels(stack: AsyncExitStack) -> BrokerChannels:
    """Return channels to brokers, which ``stack`` closes."""
    channels = BrokerChannels()
    stack.push_async_callback(channels.stop)
    return channels


def _leader_dependencies(
    config: ShardNodeConfig,
    link: ClusterLink,
    router: ShardRouter,
    channels: BrokerChannels,
    metrics: NodeMetrics,
) -> LeaderDependencies:
    choices = random.Random()
    directory, clock = LinkDirectory(link), LoopClock()
    controllers_id = topic_controllers_id(config.node_id, os.urandom(4).hex())
    homes, metadata = LinkedHomes(link, controllers_id), RoutedMetadata(router)
    return LeaderDependencies(
        node_id=config.node_id,
        directory=directory,
        managers=RoutedBrokerManagers(router, metrics),
        controllers=RoutedTopicControllers(router),
        capacity=LinkCapacity(link, metrics),
        quotas=LinkQuotas(link),
        metadata=metadata,
        tenancy=JoinedReads(metadata, homes),
        homes=homes,
        controllers_id=controllers_id,
        parents=RoutedParents(router, link.view),
        reports=LinkReports(link),
        segments=CalledSegmentBrokers(channels),
        clock=clock,
        entropy=os.urandom,
        draw=lambda: (choices.getrandbits(32), choices.getrandbits(32)),
        write_bounds=WriteBounds(config.writes_in_flight_max, config.tenant_writes_waiting_max),
        consumer_grace_ms=config.scalable_consumer_grace_ms,
        balance=BalancePlans(directory, clock, metrics),
        slot_moves=LinkedSlotMoves(link, router),
    )


def _remembered(groups: RaftGroups) -> ClusterView:
    view = ClusterView()
    stored = groups.stored()
    if stored is not None:
        view.apply(stored)
    return view


def _hello(config: ShardNodeConfig) -> Hello:
    return Hello(
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        kind=SHARD_NODE,
        grpc=str(config.advertise),
        raft_host=config.raft_advertise.host,
        raft_port=config.raft_advertise.port,
        http=str(Address(config.advertise.host, config.http_listen.port)),
        zone=config.zone,
    )
