"""One text for both Pulsar ports of a process, and the fields that clients get."""

from __future__ import annotations

import pytest

from brokers.adapters.pulsar.answers import close_consumer, close_producer
from nextgen.pulsar.lookups import lookup_answer_beginnings
from nextgen.pulsar.service_urls import ServiceUrls, joined_urls, split_urls
from protos.pulsar.PulsarApi_pb2 import BaseCommand

PLAIN, TLS = "pulsar://b:6650", "pulsar+ssl://b:6651"


@pytest.mark.parametrize(
    ("plain", "tls", "text"),
    [
        (None, None, ""),
        ("b:6650", None, PLAIN),
        (None, "b:6651", TLS),
        ("b:6650", "b:6651", f"{PLAIN},{TLS}"),
    ],
)
def test_urls_are_divided_as_they_were_joined(plain: str | None, tls: str | None, text: str):
    assert joined_urls(plain, tls) == text
    assert split_urls(text) == ServiceUrls(PLAIN if plain else "", TLS if tls else "")


@pytest.mark.parametrize("text", [PLAIN, TLS, f"{PLAIN},{TLS}"])
def test_a_client_gets_each_url_in_its_own_field(text: str):
    urls = split_urls(text)
    frame = lookup_answer_beginnings(text)[1] + b"\x07"
    answer = BaseCommand.FromString(frame[8:]).lookupTopicResponse

    assert (answer.brokerServiceUrl, answer.brokerServiceUrlTls, answer.request_id) == (*urls, 7)
    assert answer.HasField("brokerServiceUrl") == bool(urls.plain)
    producer = close_producer(1, text).close_producer
    consumer = close_consumer(1, text).close_consumer
    for closed in (producer, consumer):
        assert (closed.assignedBrokerServiceUrl, closed.assignedBrokerServiceUrlTls) == urls
