"""What a broker process says of itself to the cluster manager and to its broker manager."""

from __future__ import annotations

from brokers.config import BrokerConfig
from brokers.ports.plugin import PluginGreeting
from nextgen.kernel.governance.broker_kind import BrokerKind
from nextgen.pulsar.service_urls import joined_urls
from nextgen.runtime.settings import Address
from protos.nextgen.v1.broker_service_pb2 import BrokerHello
from protos.nextgen.v1.cluster_service_pb2 import Hello
from protos.nextgen.v1.events_pb2 import BrokerEndpoints


def cluster_hello(config: BrokerConfig) -> Hello:
    return Hello(
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        kind="broker",
        grpc=str(config.advertise),
        http=_advertised_http(config),
    )


def broker_hello(config: BrokerConfig, pulsar_urls: str) -> BrokerHello:
    return BrokerHello(
        cluster_id=config.cluster_id,
        broker_id=config.node_id,
        endpoints=BrokerEndpoints(
            pulsar_url=pulsar_urls,
            grpc=str(config.advertise),
            http=_advertised_http(config),
        ),
        capacity_units=config.capacity_units,
        zone=config.zone,
        rack=config.rack,
        skips_unknown=True,
    )


def sidecar_hello(config: BrokerConfig, greeting: PluginGreeting) -> BrokerHello:
    """Return the hello of a stock broker, whose addresses are its own."""
    hello = broker_hello(config, greeting.urls)
    hello.kind = BrokerKind.STOCK
    if web := greeting.web.split(",")[0]:
        hello.endpoints.http = web.partition("://")[2]
    return hello


def pulsar_urls(config: BrokerConfig) -> str:
    """Return the address that clients connect to; empty if this broker serves no clients."""
    if config.advertised_urls:
        return config.advertised_urls
    return joined_urls(config.pulsar_advertise, config.pulsar_tls_advertise)


def _advertised_http(config: BrokerConfig) -> str:
    return str(Address(config.advertise.host, config.http_listen.port))
