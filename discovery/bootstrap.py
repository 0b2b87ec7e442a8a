"""Puts a discovery process together: the only place that joins ports and adapters."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from discovery.adapters.discovery_servicer import SERVICE_NAME, DiscoveryServicer
from discovery.adapters.metrics import DiscoveryCollector
from discovery.adapters.watches import CacheWatches
from discovery.config import DiscoveryConfig
from discovery.domain.answer_cache import AnswerCache
from discovery.service.counters import DiscoveryCounters
from discovery.service.inventory import InventoryService
from discovery.service.lookup import LookupService
from discovery.service.status import StatusService
from discovery.wire import encoded_answer_facts
from nextgen.client.cluster_link import ClusterLink
from nextgen.client.exchange import ExchangePool
from nextgen.client.malformed_requests import MalformedRequests
from nextgen.client.routing import ShardRouter
from nextgen.kernel.limits import (
    DISCOVERY_CACHE_ALIASES_MAX,
    DISCOVERY_CACHE_ANSWERS_MAX,
    RECENT_DELTAS_MAX,
)
from nextgen.runtime.grpc_server import GrpcServer, new_server
from nextgen.runtime.probes import Probes
from nextgen.runtime.process import Shutdown, tune_garbage_collector
from nextgen.runtime.settings import Address
from protos.nextgen.v1.cluster_service_pb2 import Hello

GRPC_GRACE_MS = 2_000
"""What was asked before a stop is answered within it."""

_logger = structlog.get_logger(__name__)


class DiscoveryNode:
    """One discovery node: the parts, wired. Start it, then stop it once."""

    def __init__(self, config: DiscoveryConfig, registry: CollectorRegistry | None = None) -> None:
        self._config = config
        clock = asyncio.get_running_loop().time
        self.link = ClusterLink(
            [str(address) for address in config.cluster_managers], _hello(config)
        )
        self._pool = ExchangePool(lambda: self.link.view.shard_map_version)
        self.router = ShardRouter(self.link, self._pool)
        self.cache = AnswerCache(
            encoded_answer_facts,
            answers_max=DISCOVERY_CACHE_ANSWERS_MAX,
            aliases_max=DISCOVERY_CACHE_ALIASES_MAX,
            deltas_max=RECENT_DELTAS_MAX,
        )
        self.counters = DiscoveryCounters()
        self.watches = CacheWatches(config.node_id, self.link, self.cache)
        self._lookups = LookupService(self.router, self.link, self.cache, self.counters, clock)
        statistics = self.router.statistics
        self._servicer = DiscoveryServicer(
            self._lookups,
            InventoryService(self.router, self.link, self.counters),
            StatusService(self.link, self.cache, self.counters, statistics),
            self.counters,
            lambda: self.link.view.shard_map_version,
        )
        self._registry = registry or REGISTRY
        self._collector = DiscoveryCollector(
            self.counters, self.cache, statistics, self.watches.by_shard, clock
        )
        self._server: GrpcServer | None = None
        self._probes = Probes(self.readiness, self._registry)

    async def start(self) -> None:
        """Listen, and join the cluster in the background.

        Raises:
            RefusesToStart: A port is taken.
        """
        config = self._config
        server = new_server([SERVICE_NAME], interceptors=[MalformedRequests()])
        server.server.add_generic_rpc_handlers((self._servicer.handlers(),))
        await server.start(config.listen.host, config.listen.port, "discovery over gRPC")
        self._server = server
        self._registry.register(self._collector)
        await self._probes.start(config.http_listen.host, config.http_listen.port)
        await self.link.start()

    @property
    def grpc_port(self) -> int:
        """The port that gRPC is bound to, which matters when the configured one is 0."""
        assert self._server is not None, "start comes first"
        return self._server.port

    @property
    def http_port(self) -> int:
        """The port of metrics and probes."""
        return self._probes.port

    async def set_serving(self) -> None:
        """Tell the health service's callers that lookups can be answered."""
        assert self._server is not None, "start comes first"
        await self._server.set_serving(True)

    async def stop(self) -> None:
        """Answer what was asked, within ``GRPC_GRACE_MS``, and close everything."""
        if self._server is not None:
            await self._server.set_serving(False)
            self._servicer.drain()
            await self._server.stop(GRPC_GRACE_MS)
        await self._lookups.stop()
        await self.watches.stop()
        await self._pool.stop()
        await self.link.stop()
        await self._probes.stop()
        with suppress(KeyError):  # It was not registered if start failed early.
            self._registry.unregister(self._collector)

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


async def serve(config: DiscoveryConfig, shutdown: Shutdown) -> None:
    """Run the discovery node until it is asked to stop.

    Raises:
        RefusesToStart: A port is taken.
        WrongCluster: The cluster manager belongs to another cluster.
    """
    async with AsyncExitStack() as stack:
        node = DiscoveryNode(config)
        stack.push_async_callback(node.stop)
        await node.start()
        tune_garbage_collector()
        _logger.info("listening", grpc=str(config.advertise), http=str(config.http_listen))
        await _run(node, shutdown)


async def _run(node: DiscoveryNode, shutdown: Shutdown) -> None:
    """Report serving once ready; return when asked to stop."""
    becoming_ready = asyncio.create_task(_become_ready(node))
    stopping = asyncio.create_task(shutdown.wait())
    try:
        done, _ = await asyncio.wait(
            {becoming_ready, stopping}, return_when=asyncio.FIRST_COMPLETED
        )
        if becoming_ready in done:
            # Raises if the cluster manager will never accept this node.
            becoming_ready.result()
            await stopping
    finally:
        becoming_ready.cancel()
        stopping.cancel()
        await asyncio.gather(becoming_ready, stopping, return_exceptions=True)


async def _become_ready(node: DiscoveryNode) -> None:
    await node.link.wait_ready()
    await node.link.wait_until(lambda _view: node.readiness()[0])
    await node.set_serving()
    _logger.info("serving", shards=len(node.link.view.shard_ids))


def _hello(config: DiscoveryConfig) -> Hello:
    return Hello(
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        kind="discovery",
        grpc=str(config.advertise),
        http=str(Address(config.advertise.host, config.http_listen.port)),
    )
