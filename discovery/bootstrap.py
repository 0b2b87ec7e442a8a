"""Puts a discovery process together: the only place that joins ports and adapters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from discovery.adapters.administration.catalogue import AdminServices, all_routes
from discovery.adapters.administration.clusters import LocalCluster
from discovery.adapters.metrics import DiscoveryCollector
from discovery.adapters.rest.frame import RestFrame
from discovery.adapters.servers.discovery_servicer import SERVICE_NAME, DiscoveryServicer
from discovery.adapters.servers.pulsar_connection import ClientServices, DiscoveryConnection
from discovery.adapters.shard_changes.catch_up_stream import CatchUpStreams
from discovery.adapters.shard_changes.shard_streams import ShardStreams
from discovery.adapters.shard_changes.watches import CacheWatches
from discovery.adapters.workers.arguments import worker_arguments
from discovery.adapters.workers.line import WorkerEnd
from discovery.adapters.workers.pool import WorkerPool
from discovery.config import DiscoveryConfig
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.domain.partition_counts import PartitionCounts
from discovery.service.admin.capacity_shares import CapacityShares
from discovery.service.admin.evacuations import EvacuationService
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.policies import PoliciesService
from discovery.service.admin.positions import PositionService
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from discovery.service.lookups.lookup import LookupService
from discovery.service.lookups.meter import FIRST_PROCESS, LookupMeter
from discovery.service.lookups.topic_directory import DiscoveryTopicDirectory, KnownTopics
from discovery.service.report import ProcessReporter, Report, merged
from discovery.service.status import StatusService
from discovery.service.watches.registry import WatchRegistry
from discovery.wire import encoded_answer_facts
from nextgen.client.brokers.live_urls import LiveBrokerUrls
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.topic_creation import TopicCreation
from nextgen.client.routing.topic_listing import TopicListing
from nextgen.client.routing.topic_owners import TopicOwners
from nextgen.client.routing.topic_schemas import TopicSchemas
from nextgen.client.routing.write_admission import WriteBounds
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.client.transport.member_gate import MemberGate
from nextgen.kernel.limits.cluster import (
    DISCOVERY_CACHE_ALIASES_MAX,
    DISCOVERY_CACHE_ANSWERS_MAX,
    RECENT_DELTAS_MAX,
)
from nextgen.kernel.limits.discovery import (
    ABSENT_ANSWER_BYTES_MAX,
    ABSENT_NAME_MS_MAX,
    ABSENT_NAMES_MAX,
)
from nextgen.kernel.limits.pulsar import PARTITION_COUNTS_MAX
from nextgen.pulsar.lookups import lookup_answer_beginnings
from nextgen.pulsar.metadata_commands import MetadataCommands
from nextgen.pulsar.server import PulsarServer
from nextgen.runtime.lifecycle.process import Shutdown, tune_garbage_collector
from nextgen.runtime.security.cluster_proof import credentials_of_node
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.runtime.servers.ports_check import assert_port_free
from nextgen.runtime.servers.probes import Probes
from nextgen.runtime.settings import Address
from nextgen.runtime.telemetry.trace_export import version
from nextgen.tasks.background import cancel_and_wait, join
from protos.nextgen.v1.cluster_service_pb2 import Hello

GRACE_MS: Final = 2_000
"""Time at a stop to answer requests that arrived before."""

PULSAR_PURPOSE: Final = "discovery over the Pulsar protocol"

_logger = structlog.get_logger(__name__)


class LookupCore:
    """The parts of each process of a discovery node: link, caches, watches, the Pulsar port."""

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config
        clock = asyncio.get_running_loop().time
        self._clock = clock
        endpoints = [str(address) for address in config.cluster_managers]
        self.link = ClusterLink(endpoints, _hello(config))
        self._pool = ExchangePool(lambda: self.link.view.shard_map_version)
        self.router = ShardRouter(self.link, self._pool)
        self.cache = AnswerCache(
            encoded_answer_facts,
            answers_max=DISCOVERY_CACHE_ANSWERS_MAX,
            aliases_max=DISCOVERY_CACHE_ALIASES_MAX,
            deltas_max=RECENT_DELTAS_MAX,
            route_of=lookup_answer_beginnings,
        )
        self.absent = AbsentNames(
            names_max=ABSENT_NAMES_MAX,
            answer_bytes_max=ABSENT_ANSWER_BYTES_MAX,
            ttl_ms=ABSENT_NAME_MS_MAX,
        )
        self.partition_counts = PartitionCounts(counts_max=PARTITION_COUNTS_MAX)
        self.counters = DiscoveryCounters()
        self.streams = ShardStreams(config.node_id, self.link)
        self.watches = CacheWatches(
            self.streams, self.link, self.cache, self.absent, self.partition_counts
        )
        self.watch_registry = WatchRegistry(
            self.link, self.streams, CatchUpStreams(config.node_id, self.link), clock
        )
        self.link.on_change(lambda _view, _update: self.watch_registry.cluster_changed())
        self.lookups = LookupService(
            self.router,
            self.link,
            self.cache,
            self.absent,
            self.counters,
            clock,
            config.fairness.tenant_lookups_waiting_max,
        )
        self._creation = TopicCreation(self.router, self.absent.created_here)
        self._schemas = TopicSchemas(self.lookups.locate)
        self.owners = TopicOwners(self.lookups.locate)
        known = KnownTopics(
            self.cache, self.partition_counts, self.absent, LiveBrokerUrls(self.link).any
        )
        self.topics = DiscoveryTopicDirectory(
            self.lookups,
            self._creation,
            TopicListing(self.router, self.link),
            self._schemas,
            known,
            self.partition_counts,
            self.counters,
            clock,
        )
        self.dispatcher = CommandDispatcher(MetadataCommands(self.topics), self.counters)
        services = ClientServices(known, self.dispatcher, self.counters, config.fairness)
        self.pulsar = PulsarServer(lambda keep_alive: DiscoveryConnection(keep_alive, services))
        self._meter = _lookup_meter(config, self.counters, self.link)
        self.link.on_connected(self._meter.connected)
        self._reporter = ProcessReporter(
            self.counters, self.cache, self.router.statistics, self._gauges, self._watch_states
        )

    async def start(self) -> None:
        """Join the cluster in the background, and begin the windows of lookups."""
        await self.link.start()
        self._meter.start()

    async def listen(self, *, reuse_port: bool) -> None:
        """Accept Pulsar clients. Until the cluster is known, lookups are refused as retryable.

        Raises:
            RefusesToStart: The port is taken.
        """
        address = self._config.pulsar_listen
        if address is not None:
            await self.pulsar.start(
                address.host, address.port, PULSAR_PURPOSE, reuse_port=reuse_port
            )

    def report(self) -> Report:
        """Return the report of this process."""
        self.counters.pulsar_connections_refused = self.pulsar.refused_connections
        self.counters.pulsar_connections_dropped = self.pulsar.dropped_connections
        report = self._reporter.report()
        report.counts.update(self.watch_registry.counts())
        report.counts["answers_absent"] = self.absent.answered
        report.counts["lookup_windows_good"] = self._meter.good
        report.counts["lookup_windows_bad"] = self._meter.bad
        report.gauges.update(self.watch_registry.gauges())
        return report

    async def wait_ready(self) -> None:
        """Return once any topic can be answered.

        Raises:
            WrongCluster: The cluster manager will never accept this node.
        """
        await self.link.wait_ready()
        await self.link.wait_until(lambda _view: self.readiness()[0])

    def readiness(self) -> tuple[bool, list[str]]:
        """Return whether any topic can be answered, and what is missing."""
        view = self.link.view
        reasons = []
        if not self.link.has_connected_once:
            reasons.append("no cluster manager was reached yet")
        if view.slot_table is None:
            reasons.append("no shard map is known")
        reasons += [
            f"no leader of shard {shard_id} is known"
            for shard_id in view.shard_ids
            if view.leader_endpoint(shard_id) is None
        ]
        return not reasons, reasons

    def created_here(self, shard_id: int, position: int, names: Iterable[str]) -> None:
        """See ``Created``: of topics and partitions that came into being through this process."""
        # Nearly always nothing is remembered: then not even the names are decoded.
        names = tuple(names) if self.absent or self.partition_counts else ()
        self.absent.created_here(shard_id, position, names)
        self.partition_counts.forget(names)

    async def make_default_namespace(self) -> None:
        """Create ``public/default`` unless it is there."""
        await self._creation.make_default_namespace()

    async def drain(self) -> None:
        """Answer the pending requests of Pulsar clients, and close their connections."""
        for connection in self.pulsar.connections():
            connection.hold_reading()
        await self.dispatcher.drain(GRACE_MS)
        await self.pulsar.stop(GRACE_MS)

    async def stop(self) -> None:
        """Close everything, once no request can arrive any more."""
        await self._creation.stop()
        await self.owners.stop()
        await self._schemas.stop()
        await self.lookups.stop()
        self._meter.stop()
        await self.watch_registry.stop()
        await self.watches.stop()
        await self.streams.stop()
        await self._pool.stop()
        await self.link.stop()

    def _gauges(self) -> dict[str, int]:
        return {
            "pulsar_connections": self.pulsar.connection_count,
            "pulsar_unfinished_bytes": self.pulsar.unfinished_bytes,
            "pulsar_commands_waiting": self.dispatcher.waiting,
            "absent_names": len(self.absent),
            "processes": int(bool(self.pulsar.port)),
        }

    def _watch_states(self) -> Iterable[tuple[int, float, int]]:
        now = self._clock()
        for shard_id, watch in self.watches.by_shard.items():
            yield shard_id, now - watch.heard_at, watch.resets


class DiscoveryNode:
    """One discovery node: the parts, wired. Start it, then stop it once."""

    def __init__(
        self,
        config: DiscoveryConfig,
        registry: CollectorRegistry | None = None,
        gate: MemberGate | None = None,
    ) -> None:
        self._config = config
        self._gate = gate or MemberGate(None)
        self.core = core = LookupCore(config)
        inventory = InventoryService(
            core.router,
            core.link,
            core.counters,
            core.make_default_namespace,
            core.created_here,
            WriteBounds(config.fairness.writes_sent_max, config.fairness.tenant_writes_waiting_max),
            core.owners,
        )
        listing = ListingService(core.router, core.link, core.counters)
        self._positions = PositionService(core.router, core.link, asyncio.get_running_loop().time)
        policies = PoliciesService(
            core.router, inventory, core.counters, CapacityShares(inventory, listing, _unix_ms)
        )
        moves = MoveService(core.router, core.counters)
        self._servicer = DiscoveryServicer(
            core.lookups,
            inventory,
            listing,
            policies,
            EvacuationService(core.router, core.link),
            moves,
            self._positions,
            StatusService(core.link, self._refreshed),
            core.watch_registry,
            core.counters,
            lambda: core.link.view.shard_map_version,
        )
        self._registry = registry or REGISTRY
        self._collector = DiscoveryCollector(self._report)
        self._server: GrpcServer | None = None
        self.workers: WorkerPool | None = None
        services = AdminServices(
            core.topics,
            core.owners,
            core.link,
            inventory,
            listing,
            policies,
            moves,
            _local_cluster(config),
            core.readiness,
            version(),
        )
        self.rest = RestFrame(all_routes(services), core.dispatcher, core.counters)
        self._probes = Probes(core.readiness, self._registry, routes=self.rest.mounted())

    async def start(self) -> None:
        """Listen, and join the cluster in the background.

        Raises:
            RefusesToStart: A port is taken.
        """
        config = self._config
        server = new_server(
            [SERVICE_NAME],
            interceptors=[self._gate, MalformedRequests()],
            connection_calls_max=config.fairness.connection_calls_max,
        )
        server.server.add_generic_rpc_handlers((self._servicer.handlers(),))
        await server.start(config.listen.host, config.listen.port, "discovery over gRPC")
        self._server = server
        self._registry.register(self._collector)
        await self._probes.start(config.http_listen.host, config.http_listen.port)
        await self._listen_for_clients()
        await self.core.start()

    @property
    def grpc_port(self) -> int:
        """The port that gRPC is bound to, which matters when the configured one is 0."""
        assert self._server is not None, "start comes first"
        return self._server.port

    @property
    def http_port(self) -> int:
        """The port of metrics, probes and lookups over HTTP."""
        return self._probes.port

    @property
    def pulsar_port(self) -> int:
        """The port of the Pulsar protocol; 0 if it is not spoken."""
        return self.core.pulsar.port

    async def set_serving(self) -> None:
        """Tell the health service's callers that lookups can be answered."""
        assert self._server is not None, "start comes first"
        await self._server.set_serving(True)

    async def stop(self) -> None:
        """Answer pending requests, within ``GRACE_MS``, and close everything."""
        if self._server is not None:
            await self._server.set_serving(False)
            self._servicer.drain()
            await asyncio.gather(
                self._server.stop(GRACE_MS), self.core.drain(), self._stop_workers()
            )
        await self._positions.stop()
        await self.core.stop()
        await self._probes.stop()
        with suppress(KeyError):  # It was not registered if start failed early.
            self._registry.unregister(self._collector)

    async def _listen_for_clients(self) -> None:
        config = self._config
        if config.pulsar_listen is None:
            return
        # A foreign process on the port would get our clients: detect it BEFORE sharing the port.
        assert_port_free(config.pulsar_listen.host, config.pulsar_listen.port, PULSAR_PURPOSE)
        await self.core.listen(reuse_port=config.workers > 1)
        if config.workers > 1:
            self.workers = WorkerPool(config.workers, worker_arguments(config, self.pulsar_port))
            self.workers.start()

    async def _stop_workers(self) -> None:
        if self.workers is not None:
            await self.workers.stop(2 * GRACE_MS)

    def _report(self) -> Report:
        own = self.core.report()
        if self.workers is None:
            return own
        own.counts["worker_restarts"] = self.workers.restarts
        return merged([own, self.workers.report()])

    async def _refreshed(self) -> Report:
        if self.workers is not None:
            await self.workers.refresh()
        return self._report()


async def serve(config: DiscoveryConfig, shutdown: Shutdown) -> None:
    """Run the discovery node, or a worker of one, until ``shutdown`` is requested.

    Raises:
        RefusesToStart: A port is taken, or the cluster secret cannot be read.
        WrongCluster: The cluster manager belongs to another cluster.
    """
    credentials = credentials_of_node(config.cluster_id, config.cluster_secret_file)
    if config.worker is not None:
        await _serve_worker(config, config.worker.descriptor, shutdown)
        return
    async with AsyncExitStack() as stack:
        gate = MemberGate(credentials, is_required=config.cluster_secret_required)
        node = DiscoveryNode(config, gate=gate)
        stack.push_async_callback(node.stop)
        await node.start()
        tune_garbage_collector()
        _logger.info(
            "listening",
            grpc=str(config.advertise),
            http=str(config.http_listen),
            pulsar=str(config.pulsar_advertise or ""),
        )
        if await _ready_before_stop(node.core, shutdown):
            await node.set_serving()
            _logger.info("serving", shards=len(node.core.link.view.shard_ids))
            await shutdown.wait()


async def _serve_worker(config: DiscoveryConfig, descriptor: int, shutdown: Shutdown) -> None:
    """Share a discovery node's Pulsar port, once any topic can be answered here too."""
    core = LookupCore(config)
    line = await WorkerEnd.open(descriptor, core.report)
    try:
        await core.start()
        tune_garbage_collector()
        if await _ready_before_stop(core, shutdown):
            await core.listen(reuse_port=True)
            _logger.info("serving", pulsar=str(config.pulsar_listen or ""))
            await shutdown.wait()
    finally:
        await core.drain()
        await core.stop()
        line.close()


def _lookup_meter(
    config: DiscoveryConfig, counters: DiscoveryCounters, link: ClusterLink
) -> LookupMeter:
    number = FIRST_PROCESS if config.worker is None else config.worker.number
    return LookupMeter(
        counters.tally,
        node_id=config.node_id.removesuffix(f".w{number}"),
        number=number,
        send=link.send,
        unix_ms=_unix_ms,
    )


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


async def _ready_before_stop(core: LookupCore, shutdown: Shutdown) -> bool:
    """Return True when any topic can be answered, False if the process has to stop before."""
    becoming_ready = join(core.wait_ready())
    stopping = join(shutdown.wait())
    try:
        done, _ = await asyncio.wait(
            {becoming_ready, stopping}, return_when=asyncio.FIRST_COMPLETED
        )
        if becoming_ready in done:
            # Raises if the cluster manager will never accept this node.
            becoming_ready.result()
        return becoming_ready in done
    finally:
        await cancel_and_wait(becoming_ready, stopping)


def _local_cluster(config: DiscoveryConfig) -> LocalCluster:
    http = Address(config.advertise.host, config.http_listen.port)
    pulsar = config.pulsar_advertise
    return LocalCluster(
        config.cluster_id,
        f"http://{http}",
        f"pulsar://{pulsar}" if pulsar is not None else "",
        tuple(map(str, config.cluster_managers)),
    )


def _hello(config: DiscoveryConfig) -> Hello:
    # A worker is no node of its own: it is a guest of the cluster that only listens.
    return Hello(
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        kind="discovery" if config.worker is None else "client",
        grpc=str(config.advertise),
        http=str(Address(config.advertise.host, config.http_listen.port)),
    )
