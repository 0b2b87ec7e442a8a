"""Wires the sidecar of a stock Apache Pulsar broker."""

from __future__ import annotations

from contextlib import AsyncExitStack

from brokers.adapters.cluster.manager_connection import GrpcManagerDialer
from brokers.adapters.cluster.stock_inventory import ShardTopicInventory
from brokers.adapters.cluster.uncontested_locator import UncontestedLocator
from brokers.adapters.plugin.socket_plugin import SocketPluginDialer
from brokers.bootstrap.hello import sidecar_hello
from brokers.config import BrokerConfig
from brokers.ports.plugin import PluginConnection
from brokers.ports.session import Clock, ManagerDialer
from brokers.service.session.agent import BrokerAgent
from brokers.service.sidecar.handover import Handover
from brokers.service.sidecar.plugin_faults import PluginFaults
from brokers.service.sidecar.sidecar import ReportedLoad, Sidecar
from brokers.service.sidecar.stock_topics import StockTopics
from brokers.service.sidecar.topic_removals import TopicRemovals
from brokers.service.topics.idle_units import IdleUnits
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.topic_directory import RoutedTopicDirectory
from nextgen.tasks.background import keep


def new_sidecar(
    config: BrokerConfig,
    agent: BrokerAgent,
    locator: UncontestedLocator,
    link: ClusterLink,
    load: ReportedLoad,
    faults: PluginFaults,
    clock: Clock,
    wall_clock: Clock,
    stack: AsyncExitStack,
) -> Sidecar:
    """Return the sidecar of the broker whose plug-in ``config`` names."""
    assert config.sidecar is not None
    pool = ExchangePool(lambda: link.view.shard_map_version)
    stack.push_async_callback(pool.stop)
    router = ShardRouter(link, pool)
    directory = RoutedTopicDirectory(shards=router, cluster=link, broker_id=config.node_id)
    stack.push_async_callback(directory.stop)
    topics = StockTopics(lambda: agent.session.holding, clock, wall_clock)
    idle = IdleUnits(
        lambda: agent.session.holding,
        topics.get,
        agent.report_idle,
        clock,
        service_ms=lambda: link.view.settings.balance.idle_unload_seconds * 1_000,
        # What Pulsar has still to drop by its age counts as use: the plug-in reports it so.
        has_upkeep=lambda _unit: False,
    )
    stack.callback(keep("idle_stock_units", idle.run).cancel)

    def managers(plugin: PluginConnection) -> ManagerDialer:
        # The addresses of the stock broker are its own: no setting here repeats them.
        locator.urls = plugin.greeting.urls
        return GrpcManagerDialer(sidecar_hello(config, plugin.greeting), clock)

    locator.session_id = lambda: agent.session.session_id

    def kind_of(broker_id: str) -> str | None:
        broker = link.view.brokers.get(broker_id)
        return None if broker is None else broker.kind

    return Sidecar(
        plugins=SocketPluginDialer(
            config.sidecar,
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            faults=faults,
        ),
        managers=managers,
        agent=agent,
        directory=directory,
        kind_of=kind_of,
        load=load,
        topics=topics,
        removals=TopicRemovals(ShardTopicInventory(router)),
        faults=faults,
        clock=clock,
        handover=Handover(directory),
    )
