"""What a sidecar says of its broker to the broker manager."""

from __future__ import annotations

import pytest

from brokers.bootstrap.hello import sidecar_hello
from brokers.config import parse_config
from brokers.ports.plugin import PluginGreeting
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
