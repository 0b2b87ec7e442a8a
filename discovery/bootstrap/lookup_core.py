"""Puts together the parts that each process of a discovery node has, workers included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from discovery.adapters.servers.pulsar_connection import ClientServices, DiscoveryConnection
from discovery.adapters.shard_changes.catch_up_stream import CatchUpStreams
from discovery.adapters.shard_changes.watches import CacheWatches
from discovery.config import DiscoveryConfig
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.domain.partition_counts import PartitionCounts
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from discovery.service.lookups.lookup import LookupService
from discovery.service.lookups.meter import FIRST_PROCESS, LookupMeter
from discovery.service.lookups.topic_directory import DiscoveryTopicDirectory, KnownTopics
from discovery.service.report import ProcessReporter, Report
from discovery.service.watches.registry import WatchRegistry
from discovery.wire import encoded_answer_facts
from nextgen.client.brokers.live_urls import LiveBrokerUrls
from nextgen.client.changes.shard_streams import ShardStreams
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.client.permissions.table import PermissionTable, permission_streams
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.topic_creation import TopicCreation
from nextgen.client.routing.topic_listing import TopicListing
from nextgen.client.routing.topic_owners import TopicOwners
from nextgen.client.routing.topic_schemas import TopicSchemas
from nextgen.client.scalable_topics.consumers import SharedConsumers
from nextgen.client.scalable_topics.shared_layouts import SharedLayouts
from nextgen.client.topic_lists.shared_lists import SharedTopicLists
from nextgen.kernel.limits.cluster import (
    DISCOVERY_CACHE_ALIASES_MAX,
    DISCOVERY_CACHE_ANSWERS_MAX,
    RECENT_DELTAS_MAX,
)
from nextgen.kernel.limits.discovery import (
    ABSENT_ANSWER_BYTES_MAX,
    ABSENT_NAME_MS_MAX,
    ABSENT_NAMES_MAX,
    ABSENT_SHARD_IDLE_MS,
)
from nextgen.kernel.limits.pulsar import PARTITION_COUNTS_MAX
from nextgen.pulsar.lookups import lookup_answer_beginnings
from nextgen.pulsar.metadata_commands import MetadataCommands
from nextgen.pulsar.scalable_topics.consumer_session import ConsumerSessions
from nextgen.pulsar.scalable_topics.layout_session import LayoutWatches
from nextgen.pulsar.scalable_topics.namespace_session import NamespaceWatches
from nextgen.pulsar.scalable_topics.session import ScalableServices
from nextgen.pulsar.scalable_topics.stalled_segments import SegmentLooks
from nextgen.pulsar.server import PulsarServer
from nextgen.pulsar.service_urls import joined_urls
from nextgen.pulsar.topic_lists.listed import ListedTopics
from nextgen.pulsar.topic_lists.placement import WatcherPlaces
from nextgen.pulsar.topic_lists.session import TopicWatches
from nextgen.runtime.security.process_tls import PLAIN, ProcessTls
from nextgen.runtime.settings import Address
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, Hello

GRACE_MS: Final = 2_000
"""Time at a stop to answer requests that arrived before."""

PULSAR_PURPOSE: Final = "discovery over the Pulsar protocol"


class LookupCore:
    """The parts of each process of a discovery node: link, caches, watches, the Pulsar port."""

    def __init__(self, config: DiscoveryConfig, tls: ProcessTls = PLAIN) -> None:
        self._config = config
        self._tls = tls
        self.authenticator = config.authentication.authenticator()
        """Who checks the clients of all listeners; None: nobody."""
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
            idle_ms=ABSENT_SHARD_IDLE_MS,
        )
        self.partition_counts = PartitionCounts(counts_max=PARTITION_COUNTS_MAX)
        self.counters = DiscoveryCounters()
        self.streams = ShardStreams(config.node_id, self.link)
        self._permission_streams, self.authorizer = self._permissions()
        self.watches = self._cache_watches()
        self.watch_registry = WatchRegistry(
            self.link, self.streams, CatchUpStreams(config.node_id, self.link), clock
        )
        self.link.on_change(self._cluster_changed)
        self.lookups = LookupService(
            self.router,
            self.link,
            self.cache,
            self.absent,
            self.counters,
            clock,
            config.fairness.tenant_lookups_waiting_max,
        )
        self.lookups.on_asked(self.watches.wake)
        self._creation = TopicCreation(self.router, self.absent.created_here)
        self._schemas = _topic_schemas(self.lookups)
        self.owners = TopicOwners(self.lookups.locate)
        listing = TopicListing(self.router, self.link)
        self.topic_lists = SharedTopicLists(
            self.streams, self.router, self.link, ListedTopics(listing).current
        )
        if config.topic_lists.are_watchers_on:
            self.watch_registry.topic_lists = self.topic_lists
        self.topic_watches = TopicWatches(self.topic_lists, config.topic_lists)
        known = self._known_topics()
        self.topics = DiscoveryTopicDirectory(
            self.lookups,
            self._creation,
            listing,
            self._schemas,
            known,
            self.partition_counts,
            self.counters,
            clock,
        )
        self._make_pulsar(known)
        self._meter = _lookup_meter(config, self.counters, self.link)
        self.link.on_connected(self._meter.connected)
        self._reporter = ProcessReporter(
            self.counters, self.cache, self.router.statistics, self._gauges, self._watch_states
        )

    def _permissions(self) -> tuple[ShardStreams, PermissionTable | None]:
        """Return who decides what clients may do, on all listeners; None: they may do everything.

        Its streams do not begin before it needs them.
        """
        streams = permission_streams(self._config.node_id, self.link)
        rules = self._config.authorization.rules
        return streams, None if rules is None else PermissionTable(rules, streams, self.router)

    def _cache_watches(self) -> CacheWatches:
        return CacheWatches(
            self.streams,
            self.link,
            self.cache,
            self.absent,
            self.partition_counts,
            lambda: self.counters.names_read,
        )

    def _make_pulsar(self, known: KnownTopics) -> None:
        """Create the services of the Pulsar port, and the port."""
        self.dispatcher = CommandDispatcher(self._commands(), self.counters)
        self.layouts = SharedLayouts(self.streams, self.router, self.link, self._creation)
        partitions = partial(self.topics.partitions, create=False)
        url = pulsar_url_of(self._config)
        self.consumers = SharedConsumers(self.layouts, self.router, self._config.node_id)
        self.scalable = ScalableServices(
            LayoutWatches(self.layouts, partitions, url),
            ConsumerSessions(self.consumers, SegmentLooks(self.owners)),
            NamespaceWatches(self.topic_lists, self.topic_watches.permits),
        )
        services = ClientServices(
            known,
            self.dispatcher,
            self.counters,
            self._config.fairness,
            self.topic_watches,
            self.scalable,
            self.authenticator,
            self.authorizer,
        )
        self.pulsar = PulsarServer(lambda keep_alive: DiscoveryConnection(keep_alive, services))

    def _known_topics(self) -> KnownTopics:
        url = pulsar_url_of(self._config)
        urls = LiveBrokerUrls(self.link)
        places = WatcherPlaces(
            url, self.topic_watches, urls.any, lambda: self.scalable.layouts.has_room
        )
        return KnownTopics(self.cache, self.partition_counts, self.absent, places.url)

    def _commands(self) -> MetadataCommands:
        watches = self.topic_watches
        return MetadataCommands(self.topics, watches.lists, watches.settings, watches.permits)

    def _cluster_changed(self, view: ClusterView, _update: ClusterUpdate) -> None:
        self.watch_registry.cluster_changed()
        self.topic_lists.cluster_changed()
        self.layouts.cluster_changed()
        self.consumers.cluster_changed(view.shard_map_version)
        if self.authorizer is not None:
            self.authorizer.cluster_changed(view.shard_map_version)

    async def start(self) -> None:
        """Join the cluster in the background, and begin the windows of lookups."""
        await self.link.start()
        self._meter.start()

    async def listen(self, *, reuse_port: bool) -> None:
        """Accept Pulsar clients. Until the cluster is known, lookups are refused as retryable.

        Raises:
            RefusesToStart: The port is taken.
        """
        address, secured = self._config.pulsar_listen, self._config.pulsar_tls_listen
        if address is not None:
            await self.pulsar.start(
                address.host, address.port, PULSAR_PURPOSE, reuse_port=reuse_port
            )
        if secured is not None:
            assert self._tls.clients is not None, "the settings were checked"
            await self.pulsar.start_tls(
                secured.host,
                secured.port,
                PULSAR_PURPOSE,
                self._tls.clients,
                reuse_port=reuse_port,
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
        report.counts.update(self.topic_watches.counts() | self.topic_lists.counts())
        report.gauges.update(self.topic_watches.gauges() | self.topic_lists.gauges())
        report.counts.update(self.scalable.counts())
        if self.authenticator is not None:
            report.counts.update(self.authenticator.counts)
        report.gauges.update(self.scalable.gauges() | self.layouts.gauges())
        report.gauges.update(self.consumers.gauges())
        if self.authorizer is not None:
            report.counts.update(self.authorizer.counts())
            report.gauges.update(self.authorizer.gauges())
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
        await self.topic_lists.stop()
        await self.consumers.stop()
        await self.layouts.stop()
        await self.watch_registry.stop()
        await self.watches.stop()
        if self.authorizer is not None:
            await self.authorizer.stop()
        await self._permission_streams.stop()
        await self.streams.stop()
        await self._pool.stop()
        await self.link.stop()

    def _gauges(self) -> dict[str, int]:
        return {
            "pulsar_connections": self.pulsar.connection_count,
            "pulsar_unfinished_bytes": self.pulsar.unfinished_bytes,
            "pulsar_commands_waiting": self.dispatcher.waiting,
            "absent_names": len(self.absent),
            "processes": int(bool(self.pulsar.port or self.pulsar.tls_port)),
        }

    def _watch_states(self) -> Iterable[tuple[int, float, int]]:
        now = self._clock()
        for shard_id, watch in self.watches.by_shard.items():
            yield shard_id, watch.age_s(now), watch.resets


def _lookup_meter(
    config: DiscoveryConfig, counters: DiscoveryCounters, link: ClusterLink
) -> LookupMeter:
    number = FIRST_PROCESS if config.worker is None else config.worker.number
    return LookupMeter(
        counters.tally,
        node_id=config.node_id.removesuffix(f".w{number}"),
        number=number,
        send=link.send,
        unix_ms=unix_ms,
    )


def _topic_schemas(lookups: LookupService) -> TopicSchemas:
    return TopicSchemas(lookups.locate, partial(lookups.locate, is_fresh=True))


def pulsar_url_of(config: DiscoveryConfig) -> str:
    """Return where Pulsar clients reach this node; empty if it does not speak Pulsar."""
    return joined_urls(config.pulsar_advertise, config.pulsar_tls_advertise)


def unix_ms() -> int:
    """Return the wall clock's Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _hello(config: DiscoveryConfig) -> Hello:
    # A worker is no node of its own: it is a guest of the cluster that only listens.
    return Hello(
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        kind="discovery" if config.worker is None else "client",
        grpc=str(config.advertise),
        http=str(Address(config.advertise.host, config.http_listen.port)),
    )
