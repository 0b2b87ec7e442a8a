"""One text for both Pulsar ports of a process, and the fields that clients get."""

from __future__ import annotations

import pytest

from brokers.adapters.pulsar.answers import close_consumer, close_producer
from nextgen.kernel.errors import InvalidRequest
from nextgen.pulsar.lookups import lookup_answer_beginnings
from nextgen.pulsar.service_urls import (
    ServiceUrls,
    joined_urls,
    parse_listeners,
    split_urls,
    urls_of_listener,
    with_listeners,
)
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


# Listeners --------------------------------------------------------------------------------------

LISTENERS = {
    "internal": ServiceUrls("pulsar://10.0.0.1:6650", "pulsar+ssl://10.0.0.1:6651"),
    "external": ServiceUrls("", "pulsar+ssl://b.example:6651"),
    "out": ServiceUrls("pulsar://[::1]:6650", ""),
}
NAMED = with_listeners(f"{PLAIN},{TLS}", LISTENERS)


def test_each_listener_has_its_own_urls_and_no_name_means_the_first():
    assert split_urls(NAMED) == urls_of_listener(NAMED, "") == ServiceUrls(PLAIN, TLS)
    assert {name: urls_of_listener(NAMED, name) for name in LISTENERS} == LISTENERS
    assert lookup_answer_beginnings(NAMED) == lookup_answer_beginnings(f"{PLAIN},{TLS}")


@pytest.mark.parametrize("name", ["outside", "ext", "external=pulsar", "=", ";", ",", PLAIN])
@pytest.mark.parametrize("text", ["", PLAIN, TLS, NAMED])
def test_another_name_is_refused_in_pulsars_words(text: str, name: str):
    with pytest.raises(InvalidRequest, match=r"the broker do not have .+ listener"):
        urls_of_listener(text, name)


def test_a_name_of_any_length_is_refused_in_a_short_sentence():
    with pytest.raises(InvalidRequest) as refused:
        urls_of_listener(NAMED, "x" * 100_000)

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("closed", [close_producer, close_consumer])
def test_a_client_that_may_have_named_a_listener_is_sent_to_look_up_again(closed):
    command = closed(1, NAMED)
    (_, close) = command.ListFields()[1]

    assert not close.HasField("assignedBrokerServiceUrl")
    assert not close.HasField("assignedBrokerServiceUrlTls")


def test_listeners_are_given_as_to_pulsar():
    given = (
        "internal:pulsar://10.0.0.1:6650, internal:pulsar+ssl://10.0.0.1:6651,"
        "external:pulsar+ssl://b.example:6651,out:pulsar://[::1]:6650"
    )

    assert parse_listeners(given) == LISTENERS
    assert list(parse_listeners(given)) == ["internal", "external", "out"], "their order counts"
    assert parse_listeners("") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pulsar://a:1", "is not NAME:"),
        ("a:http://b:1", "is not NAME:"),
        ("a:pulsar://b", "is not NAME:"),
        ("a:pulsar://:1", "is not NAME:"),
        ("a:pulsar://b:0", "is not NAME:"),
        ("a:pulsar://b:65536", "is not NAME:"),
        ("a:pulsar://b:1;c=pulsar://d:1", "is not NAME:"),
        ("a=b:pulsar://b:1", "is not NAME:"),
        (f"{'a' * 65}:pulsar://b:1", "is not NAME:"),
        ("a:pulsar://b:1,a:pulsar://c:1", "more than one pulsar://"),
        ("a:pulsar://b:1,c:pulsar+ssl://b:1", "that of two listeners, a and c"),
    ],
)
def test_malformed_listeners_are_refused(text: str, problem: str):
    with pytest.raises(ValueError, match=problem):
        parse_listeners(text)
