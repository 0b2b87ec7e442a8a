"""Puts a discovery node's first process together: lookups, gRPC, the Admin REST and workers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from prometheus_client import REGISTRY, CollectorRegistry

from discovery.adapters.administration.catalogue import AdminServices, all_routes
from discovery.adapters.administration.clusters import LocalCluster
from discovery.adapters.metrics import DiscoveryCollector
from discovery.adapters.rest.frame import RestFrame
from discovery.adapters.servers.discovery_servicer import SERVICE_NAME, DiscoveryServicer
from discovery.adapters.workers.arguments import worker_arguments
from discovery.adapters.workers.pool import WorkerPool
from discovery.bootstrap.lookup_core import (
    GRACE_MS,
    PULSAR_PURPOSE,
    LookupCore,
    pulsar_url_of,
    unix_ms,
)
from discovery.config import DiscoveryConfig
from discovery.service.admin.capacity_shares import CapacityShares
from discovery.service.admin.evacuations import EvacuationService
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.policies import PoliciesService
from discovery.service.admin.positions import PositionService
from discovery.service.report import Report, merged
from discovery.service.scalable.layouts import LayoutService
from discovery.service.status import StatusService
from discovery.service.tenancy.parent_renames import ParentRenames
from nextgen.client.brokers.namespaces import BrokerNamespaces
from nextgen.client.cluster.configuration import LinkConfiguration
from nextgen.client.routing.write_admission import WriteBounds
from nextgen.client.transport.client_gate import ClientGate
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.client.transport.member_gate import MemberGate
from nextgen.client.transport.process_security import ProcessSecurity
from nextgen.kernel.limits.inbound import GRPC_ACCEPT_LINES_MAX
from nextgen.runtime.security.process_tls import PLAIN, ProcessTls
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.runtime.servers.ports_check import assert_port_free
from nextgen.runtime.servers.probes import Probes
from nextgen.runtime.settings import Address
from nextgen.runtime.telemetry.trace_export import version


class DiscoveryNode:
    """One discovery node: the parts, wired. Start it, then stop it once."""

    def __init__(
        self,
        config: DiscoveryConfig,
        registry: CollectorRegistry | None = None,
        security: ProcessSecurity | None = None,
    ) -> None:
        self._config = config
        self._security = security or ProcessSecurity(PLAIN, None, MemberGate(None))
        self.core = core = LookupCore(config, self._security.tls)
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
            core.router, inventory, core.counters, CapacityShares(inventory, listing, unix_ms)
        )
        moves = MoveService(core.router, core.counters)
        renames = ParentRenames(inventory, listing, unix_ms)
        self._servicer = DiscoveryServicer(
            core.lookups,
            inventory,
            renames,
            LayoutService(core.owners, inventory),
            listing,
            policies,
            EvacuationService(core.router, core.link),
            moves,
            self._positions,
            StatusService(core.link, self._refreshed),
            core.watch_registry,
            core.counters,
            lambda: core.link.view.shard_map_version,
            core.authorizer,
        )
        self._registry = registry or REGISTRY
        self._collector = DiscoveryCollector(self._report)
        self._held = BrokerNamespaces()
        self._server: GrpcServer | None = None
        self.workers: WorkerPool | None = None
        services = AdminServices(
            core.topics,
            core.owners,
            core.link,
            self._held,
            inventory,
            renames,
            listing,
            policies,
            moves,
            _local_cluster(config, self._security.tls),
            core.readiness,
            version(),
            LinkConfiguration(core.link),
        )
        self.rest = RestFrame(
            all_routes(services),
            core.dispatcher,
            core.counters,
            core.authenticator,
            core.authorizer,
        )
        self._probes = Probes(core.readiness, self._registry, routes=self.rest.mounted())

    async def start(self) -> None:
        """Listen, and join the cluster in the background.

        Raises:
            RefusesToStart: A port is taken.
        """
        config = self._config
        server = new_server(
            [SERVICE_NAME],
            interceptors=[
                self._security.gate,
                ClientGate(self.core.authenticator, config.cluster_id),
                MalformedRequests(),
            ],
            connection_calls_max=config.fairness.connection_calls_max,
            accept_lines_max=GRPC_ACCEPT_LINES_MAX,
        )
        server.server.add_generic_rpc_handlers((self._servicer.handlers(),))
        clients = self._security.tls.clients
        if config.client_listen is not None:
            assert clients is not None, "the settings were checked"
            server.add_client_port(
                config.client_listen.host,
                config.client_listen.port,
                "clients over gRPC",
                clients.store,
            )
        await server.start(
            config.listen.host,
            config.listen.port,
            "discovery over gRPC",
            tls=self._security.grpc,
        )
        self._server = server
        self._registry.register(self._collector)
        await self._probes.start(
            config.http_listen.host, config.http_listen.port, self._security.tls.clients
        )
        await self._listen_for_clients()
        await self.core.start()

    @property
    def grpc_port(self) -> int:
        """The port that gRPC is bound to, which matters when the configured one is 0."""
        assert self._server is not None, "start comes first"
        return self._server.port

    @property
    def client_grpc_port(self) -> int:
        """The port of gRPC for clients without a certificate; 0 if there is none."""
        assert self._server is not None, "start comes first"
        return self._server.client_port

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
        await self._held.stop()
        await self.core.stop()
        await self._probes.stop()
        with suppress(KeyError):  # It was not registered if start failed early.
            self._registry.unregister(self._collector)

    async def _listen_for_clients(self) -> None:
        config = self._config
        listens = [one for one in (config.pulsar_listen, config.pulsar_tls_listen) if one]
        if not listens:
            return
        # A foreign process on the port would get our clients: detect it BEFORE sharing the port.
        for address in listens:
            assert_port_free(address.host, address.port, PULSAR_PURPOSE)
        await self.core.listen(reuse_port=config.workers > 1)
        if config.workers > 1:
            ports = self.core.pulsar.port, self.core.pulsar.tls_port
            self.workers = WorkerPool(config.workers, worker_arguments(config, *ports))
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


def _local_cluster(config: DiscoveryConfig, tls: ProcessTls) -> LocalCluster:
    http = Address(config.advertise.host, config.http_listen.port)
    return LocalCluster(
        config.cluster_id,
        f"{tls.web_scheme}://{http}",
        pulsar_url_of(config),
        tuple(map(str, config.cluster_managers)),
    )
