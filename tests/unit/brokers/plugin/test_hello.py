"""What a broker process says of itself, or a sidecar of its broker, to the broker manager."""

from __future__ import annotations

import pytest

from brokers.bootstrap.hello import broker_hello, sidecar_hello
from brokers.config import parse_config
from brokers.ports.plugin import PluginGreeting
from nextgen.pulsar.service_urls import ServiceUrls, urls_of_listener
from protos.nextgen.v1.events_pb2 import BrokerEndpoints

CONFIG = parse_config(
    [
        *("--node-id", "stock-1", "--cluster-id", "c", "--cluster-managers", "a:1"),
        *("--listen", "127.0.0.1:7080", "--http-listen", "127.0.0.1:7081"),
        *("--sidecar", "/run/nextgen.sock"),
    ],
    {},
)
URLS = "pulsar://b1:6650"
LISTENERS = (
    "pulsar://b:6650,pulsar+ssl://b:6651"
    ";inside=pulsar://10.0.0.7:6650;outside=pulsar://b.example:80,pulsar+ssl://b.example:443"
)


@pytest.mark.parametrize(
    ("web", "http"),
    [
        ("http://b1:8080", "b1:8080"),
        ("http://b1:8080,https://b1:8443", "b1:8080"),
        ("https://b1:8443", "b1:8443"),
        ("", "127.0.0.1:7081"),
    ],
)
def test_a_stock_broker_has_its_own_addresses_and_its_sidecars_grpc(web: str, http: str) -> None:
    hello = sidecar_hello(CONFIG, PluginGreeting("b1:8080", URLS, "5.0.0-M1", web))

    assert hello.endpoints == BrokerEndpoints(pulsar_url=URLS, grpc="127.0.0.1:7080", http=http)


def test_clients_are_told_the_addresses_of_a_stock_broker_for_tls_and_for_each_listener() -> None:
    told = sidecar_hello(CONFIG, PluginGreeting("b:8080", LISTENERS, "5.0.0-M1")).endpoints

    found = {name: urls_of_listener(told.pulsar_url, name) for name in ("", "inside", "outside")}
    assert found == {
        "": ServiceUrls("pulsar://b:6650", "pulsar+ssl://b:6651"),
        "inside": ServiceUrls("pulsar://10.0.0.7:6650", ""),
        "outside": ServiceUrls("pulsar://b.example:80", "pulsar+ssl://b.example:443"),
    }


def test_a_sidecars_broker_is_of_another_kind_than_one_that_serves_topics_itself() -> None:
    assert sidecar_hello(CONFIG, PluginGreeting("b1:8080", URLS, "5.0.0-M1")).kind == "stock"
    assert broker_hello(CONFIG, URLS).kind == ""
