"""Wires a broker process: the only place that joins ports and adapters."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import REGISTRY

from brokers.adapters.broker_service.servicer import BrokerServicer
from brokers.adapters.broker_service.stock_broker import StockBrokerServicer
from brokers.adapters.broker_service.stock_topic_admin import StockTopicAdmin
from brokers.adapters.broker_service.topic_admin import TopicAdminServicer
from brokers.adapters.cluster.locator import ClusterLocator
from brokers.adapters.cluster.manager_connection import GrpcManagerDialer
from brokers.adapters.cluster.neighbours import ClusterNeighbours
from brokers.adapters.cluster.source_streams import GrpcSourceStream, endpoint_of
from brokers.adapters.cluster.uncontested_locator import UncontestedLocator
from brokers.adapters.ledger.memory_ledger import MemoryLedgerStore
from brokers.adapters.ledger.shadow_ledger import FedLedgers
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.adapters.load_meter import ProcessLoadMeter
from brokers.adapters.metrics import BrokerCollector
from brokers.adapters.pulsar.front import Identity, PulsarFront
from brokers.bootstrap.hello import broker_hello, cluster_hello, pulsar_urls
from brokers.bootstrap.sidecar import new_sidecar
from brokers.config import BrokerConfig
from brokers.domain.acknowledgements import Acknowledgements
from brokers.domain.storage_policy import StoragePolicy
from brokers.ports.source_stream import SourceStream
from brokers.service.feeds.source_feeds import OwnersSourceFeeds
from brokers.service.feeds.source_sessions import LocalSourceStream, SourceSessions
from brokers.service.session.agent import BrokerAgent
from brokers.service.session.departure import Departure
from brokers.service.session.segment_loads import SegmentLoads
from brokers.service.sidecar.plugin_faults import PluginFaults
from brokers.service.sidecar.sidecar import ReportedLoad, Sidecar
from brokers.service.topics.idle_units import IdleUnits
from nextgen.client.changes.shard_streams import ShardStreams
from nextgen.client.cluster.link import ClusterLink, ClusterView
from nextgen.client.cluster.membership import run_as_member
from nextgen.client.permissions.table import PermissionTable, permission_streams
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.topic_directory import RoutedTopicDirectory
from nextgen.client.routing.topic_listing import TopicListing
from nextgen.client.routing.topic_owners import TopicOwners
from nextgen.client.scalable_topics.consumers import SharedConsumers
from nextgen.client.scalable_topics.shared_layouts import SharedLayouts
from nextgen.client.topic_lists.shared_lists import SharedTopicLists
from nextgen.client.transport.client_gate import ClientGate
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.client.transport.process_security import ProcessSecurity, security_of
from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX
from nextgen.kernel.limits.pulsar import VOLATILE_BYTES_MAX
from nextgen.pulsar.scalable_topics.consumer_session import ConsumerSessions
from nextgen.pulsar.scalable_topics.stalled_segments import SegmentLooks
from nextgen.pulsar.topic_lists.listed import ListedTopics
from nextgen.runtime.lifecycle.data_directory import DataDirectory
from nextgen.runtime.lifecycle.process import Shutdown, tune_garbage_collector
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import ProcessTls
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.runtime.servers.open_files import ledger_files_max
from nextgen.runtime.servers.probes import Probes
from nextgen.tasks.background import keep, start
from protos.nextgen.v1.broker_service_pb2_grpc import add_BrokerServiceServicer_to_server
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.stock_broker_pb2_grpc import add_StockBrokerServiceServicer_to_server
from protos.nextgen.v1.topic_admin_pb2_grpc import add_TopicAdminServicer_to_server

SERVICE_NAME = "nextgen.v1.BrokerService"
GRPC_GRACE_MS = 500
"""Grace for calls in flight at a stop; each takes microseconds."""

PULSAR_GRACE_MS = 1_000
"""Grace at a stop for clients to read their last frames."""

_logger = structlog.get_logger(__name__)


def now_ms() -> int:
    """Milliseconds of a clock that never goes backwards."""
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    """Unix milliseconds, as in the cluster's records."""
    return time.time_ns() // 1_000_000


async def serve(config: BrokerConfig, shutdown: Shutdown) -> None:
    """Run the broker until ``shutdown`` is requested.

    Raises:
        RefusesToStart: A port is taken, the data directory belongs to another process, or the
            cluster secret cannot be read.
        WrongCluster: The cluster manager belongs to another cluster.
    """
    security = security_of(config, NodeRole.BROKER)
    authenticator = config.authentication.authenticator()
    async with AsyncExitStack() as stack:
        if config.data_dir is not None:
            stack.enter_context(_open_data_directory(config.data_dir, config))
        link = ClusterLink(
            [str(address) for address in config.cluster_managers], cluster_hello(config)
        )
        load_meter = ProcessLoadMeter(now_ms, _wall_ms)
        reported = ReportedLoad(_wall_ms)
        faults = PluginFaults(now_ms)
        locator = UncontestedLocator(
            ClusterLocator(link, config.node_id), link, config.node_id, clock=now_ms, faults=faults
        )
        agent = BrokerAgent(
            dialer=GrpcManagerDialer(broker_hello(config, pulsar_urls(config)), now_ms),
            locator=locator,
            load_meter=load_meter if config.sidecar is None else reported,
            clock=now_ms,
        )
        acknowledgements = Acknowledgements()
        front = await _start_front(
            config, agent, link, stack, acknowledgements, security.tls, authenticator
        )
        load_meter.front = front
        gate = ClientGate(authenticator, config.cluster_id)
        sidecar = None
        if config.sidecar is not None:
            sidecar = new_sidecar(
                config, agent, locator, link, reported, faults, now_ms, _wall_ms, stack
            )
        server = await _start_server(
            config, agent, front, sidecar, acknowledgements, security, gate
        )
        stack.push_async_callback(server.stop, GRPC_GRACE_MS)
        REGISTRY.register(BrokerCollector(agent, front, authenticator, sidecar))
        probes = Probes(lambda: _readiness(agent, link))
        await probes.start(config.http_listen.host, config.http_listen.port, security.tls.clients)
        stack.push_async_callback(probes.stop)
        await link.start()
        stack.push_async_callback(link.stop)
        tune_garbage_collector()
        _logger.info(
            "serving",
            grpc=str(config.advertise),
            pulsar=pulsar_urls(config),
            capacity_units=config.capacity_units,
        )
        departure = Departure(
            agent,
            ClusterNeighbours(link.view, config.node_id, _wall_ms),
            clock=now_ms,
            sleep=asyncio.sleep,
        )
        work = agent.run if sidecar is None else sidecar.run
        await _run_until_left(work, departure, link, shutdown, config.drain_ms_max)


async def _run_until_left(
    work: Callable[[], Coroutine[Any, Any, None]],
    departure: Departure,
    link: ClusterLink,
    shutdown: Shutdown,
    drain_ms_max: int,
) -> None:
    """Carry out ``work`` until the process has to stop and, if possible, its units are gone."""
    shutdown.deadline_ms = SHUTDOWN_MS_MAX + drain_ms_max
    left = Shutdown()

    async def leave() -> None:
        await shutdown.wait()
        # Other reasons to stop, such as a dying parent, leave no time to wait for anything.
        try:
            if shutdown.reason == signal.SIGTERM.name:
                await departure.leave(drain_ms_max)
        finally:
            left.request(shutdown.reason)

    leaving = start("departure", leave())
    try:
        await run_as_member(work(), link, left)
    finally:
        leaving.cancel()


async def _start_front(
    config: BrokerConfig,
    agent: BrokerAgent,
    link: ClusterLink,
    stack: AsyncExitStack,
    acknowledgements: Acknowledgements,
    tls: ProcessTls,
    authenticator: Authenticator | None,
) -> PulsarFront | None:
    """Serve Pulsar clients, if the configuration has an address for it."""
    if config.ledger_dir is None:
        return None
    pool = ExchangePool(lambda: link.view.shard_map_version)
    stack.push_async_callback(pool.stop)
    router = ShardRouter(link, pool)
    directory = RoutedTopicDirectory(shards=router, cluster=link, broker_id=config.node_id)
    stack.push_async_callback(directory.stop)
    authorizer = _permissions(config, link, router, stack)
    streams = ShardStreams(f"{config.node_id}.topic-lists", link)
    stack.push_async_callback(streams.stop)
    lists = _topic_lists(streams, link, router, stack)
    layouts = _layouts(SharedLayouts(streams, router, link, directory.creation), link, stack)
    consumers = SharedConsumers(layouts, router, config.node_id)
    link.on_change(lambda view, _update: consumers.cluster_changed(view.shard_map_version))
    stack.push_async_callback(consumers.stop)
    owners = TopicOwners(lambda name, _is_fresh: directory.look_up(name))
    stack.push_async_callback(owners.stop)
    persistent = DiskLedgerStore(
        config.ledger_dir,
        broker_id=config.node_id,
        files_max=ledger_files_max(),
        acknowledgements=acknowledgements,
    )
    stack.push_async_callback(persistent.close)
    feeds = _source_feeds(config, directory, link, lambda: front.sources)
    stack.push_async_callback(feeds.close)
    front = PulsarFront(
        identity=Identity(config.node_id, pulsar_urls(config)),
        session=lambda: agent.session,
        directory=directory,
        persistent=persistent,
        volatile=MemoryLedgerStore(bytes_max=VOLATILE_BYTES_MAX),
        shadows=FedLedgers(persistent, feeds),
        policy=_storage_policy(config),
        clock=now_ms,
        topic_lists=config.topic_lists,
        lists=lists,
        scalable_lists=lists,
        report_drained=agent.report_drained,
        layouts=layouts,
        consumers=ConsumerSessions(consumers, SegmentLooks(owners)),
        authenticator=authenticator,
        authorizer=authorizer,
        broker_limits=lambda: link.view.settings.broker_limits,
    )
    link.on_change(lambda view, _update: front.use_topic_limits(view.settings.topic_limits))
    agent.listener, drained = front.topics, front.drained
    agent.on_connected, agent.on_drained_settled = drained.connected, drained.settled
    await _listen(front, config, tls, stack)
    stack.callback(keep("idle_units", _idle_units(agent, link, front).run).cancel)
    loads = SegmentLoads(
        lambda: agent.session.holding,
        front.topics.get,
        agent.report_loads,
        lambda: link.view.settings,
        now_ms,
    )
    agent.on_loads_recorded = loads.recorded
    _keep_measuring(loads, link, stack)
    return front


async def _listen(
    front: PulsarFront, config: BrokerConfig, tls: ProcessTls, stack: AsyncExitStack
) -> None:
    """Accept Pulsar clients until ``stack`` ends."""
    if config.pulsar_listen is not None:
        await front.start(config.pulsar_listen.host, config.pulsar_listen.port)
    if config.pulsar_tls_listen is not None:
        assert tls.clients is not None, "the settings were checked"
        address = config.pulsar_tls_listen
        await front.start_tls(address.host, address.port, tls.clients)
    stack.push_async_callback(front.stop, PULSAR_GRACE_MS)


def _keep_measuring(loads: SegmentLoads, link: ClusterLink, stack: AsyncExitStack) -> None:
    """Measure segments until ``stack`` is left, at the interval that the cluster has."""

    def read_settings(_view: ClusterView, update: ClusterUpdate) -> None:
        if update.HasField("configuration"):
            loads.settings_changed()

    link.on_change(read_settings)
    measuring = keep("segment_loads", loads.run)
    stack.callback(measuring.cancel)


def _storage_policy(config: BrokerConfig) -> StoragePolicy:
    return StoragePolicy(
        retention_ms=config.retention_time_ms,
        retention_bytes=config.retention_bytes,
        backlog_bytes_max=config.backlog_bytes_max,
    )


def _idle_units(agent: BrokerAgent, link: ClusterLink, front: PulsarFront) -> IdleUnits:
    return IdleUnits(
        lambda: agent.session.holding,
        front.topics.get,
        agent.report_idle,
        now_ms,
        service_ms=lambda: link.view.settings.balance.idle_unload_seconds * 1_000,
        has_upkeep=front.upkeep.pending.has,
    )


def _source_feeds(
    config: BrokerConfig,
    directory: RoutedTopicDirectory,
    link: ClusterLink,
    sessions: Callable[[], SourceSessions],
) -> OwnersSourceFeeds:
    """Return what feeds this broker's shadows, also those whose source is here."""

    def dial(broker_id: str, session_id: str) -> SourceStream:
        if broker_id == config.node_id:
            return LocalSourceStream(sessions(), broker_id)
        endpoint = partial(endpoint_of, link.view, broker_id, session_id)
        return GrpcSourceStream(config.node_id, endpoint)

    feeds = OwnersSourceFeeds(directory, dial)
    link.on_change(lambda view, _update: feeds.sessions_changed(view.has_session_ended))
    return feeds


def _permissions(
    config: BrokerConfig, link: ClusterLink, router: ShardRouter, stack: AsyncExitStack
) -> PermissionTable | None:
    """Return who decides what clients may do; None: they may do everything."""
    if config.authorization.rules is None:
        return None
    streams = permission_streams(config.node_id, link)
    stack.push_async_callback(streams.stop)
    table = PermissionTable(config.authorization.rules, streams, router)
    link.on_change(lambda view, _update: table.cluster_changed(view.shard_map_version))
    stack.push_async_callback(table.stop)
    return table


def _layouts(layouts: SharedLayouts, link: ClusterLink, stack: AsyncExitStack) -> SharedLayouts:
    """Return the layouts that this broker follows, kept up with the map."""
    link.on_change(lambda _view, _update: layouts.cluster_changed())
    stack.push_async_callback(layouts.stop)
    return layouts


def _topic_lists(
    streams: ShardStreams, link: ClusterLink, router: ShardRouter, stack: AsyncExitStack
) -> SharedTopicLists:
    """Return the topic lists that clients watch at this broker."""
    listed = ListedTopics(TopicListing(router, link))
    lists = SharedTopicLists(streams, router, link, listed.current)
    link.on_change(lambda _view, _update: lists.cluster_changed())
    stack.push_async_callback(lists.stop)
    return lists


async def _start_server(
    config: BrokerConfig,
    agent: BrokerAgent,
    front: PulsarFront | None,
    sidecar: Sidecar | None,
    acknowledgements: Acknowledgements,
    security: ProcessSecurity,
    gate: ClientGate,
) -> GrpcServer:
    gates = [security.gate, gate, MalformedRequests()]
    server = new_server([SERVICE_NAME], interceptors=gates)
    servicer = BrokerServicer(
        agent,
        None if front is None else front.topics,
        broker_id=config.node_id,
        capacity_units=config.capacity_units,
        clock=now_ms,
        acknowledgements=acknowledgements,
        sources=None if front is None else front.sources,
        authorizer=None if front is None else front.shared.authorizer,
    )
    add_BrokerServiceServicer_to_server(servicer, server.server)
    if front is not None:
        add_TopicAdminServicer_to_server(TopicAdminServicer(front.topics), server.server)
    if sidecar is not None:
        elsewhere = StockTopicAdmin(lambda: sidecar.web_urls)
        add_TopicAdminServicer_to_server(elsewhere, server.server)
        steps = StockBrokerServicer(sidecar.handover)
        add_StockBrokerServiceServicer_to_server(steps, server.server)
    await server.start(
        config.listen.host,
        config.listen.port,
        "the broker's gRPC service",
        tls=security.grpc,
    )
    # Its answers are correct even without a session, when the broker serves nothing.
    await server.set_serving(True)
    return server


def _open_data_directory(path: Path, config: BrokerConfig) -> DataDirectory:
    return DataDirectory.open(
        path, cluster_id=config.cluster_id, node_id=config.node_id, component="broker"
    )


def _readiness(agent: BrokerAgent, link: ClusterLink) -> tuple[bool, list[str]]:
    reasons = []
    if not link.has_connected_once:
        reasons.append("no cluster manager was reached yet")
    if not agent.is_registered:
        reasons.append("no session with the broker manager")
    return not reasons, reasons
