"""Wires the sidecar of a stock Apache Pulsar broker."""

from __future__ import annotations

from contextlib import AsyncExitStack

from brokers.adapters.cluster.manager_connection import GrpcManagerDialer
from brokers.adapters.plugin.socket_plugin import SocketPluginDialer
from brokers.bootstrap.hello import broker_hello
from brokers.config import BrokerConfig
from brokers.ports.plugin import PluginConnection
from brokers.ports.session import Clock, ManagerDialer
from brokers.service.session.agent import BrokerAgent
from brokers.service.sidecar.sidecar import ReportedLoad, Sidecar
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.topic_directory import RoutedTopicDirectory


def new_sidecar(
    config: BrokerConfig,
    agent: BrokerAgent,
    link: ClusterLink,
    load: ReportedLoad,
    clock: Clock,
    stack: AsyncExitStack,
) -> Sidecar:
    """Return the sidecar of the broker whose plug-in ``config`` names."""
    assert config.sidecar is not None
    pool = ExchangePool(lambda: link.view.shard_map_version)
    stack.push_async_callback(pool.stop)
    directory = RoutedTopicDirectory(
        shards=ShardRouter(link, pool), cluster=link, broker_id=config.node_id
    )
    stack.push_async_callback(directory.stop)

    def managers(plugin: PluginConnection) -> ManagerDialer:
        # The addresses of the stock broker are its own: no setting here repeats them.
        return GrpcManagerDialer(broker_hello(config, plugin.greeting.urls), clock)

    return Sidecar(
        plugins=SocketPluginDialer(config.sidecar, config.node_id),
        managers=managers,
        agent=agent,
        directory=directory,
        load=load,
    )
