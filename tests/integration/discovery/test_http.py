"""Lookups over HTTP: the paths and the JSON that stock clients and tools rely on."""

import asyncio
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL as Address

from nextgen.kernel.errors import Unavailable
from nextgen.pulsar.metadata_commands import StoredSchema
from nextgen.tasks.timeouts import timeout
from tests.integration.discovery.conftest import WAIT_S, directory, pulsar_broker
from tests.integration.discovery.test_pulsar import add_namespace, add_topic

TOPIC = "persistent://acme/orders/paid"
BROKER = "pulsar://broker-1.example:6650"
OUTSIDE = "pulsar://outside.example:7650"


async def fetched(site, path: str, **more) -> tuple[int, object]:
    """Return status and JSON; ``path`` is sent as it is."""
    address = Address(f"http://127.0.0.1:{site.node.http_port}{path}", encoded=True)
    async with aiohttp.ClientSession() as session, session.get(address, **more) as response:
        return response.status, await response.json(content_type=None)


def reason(answer: tuple[int, object]) -> str:
    assert isinstance(answer[1], dict)
    return answer[1]["reason"]


async def test_a_lookup_has_every_key_that_clients_need(site):
    site.assign(TOPIC)

    assert await fetched(site, "/lookup/v2/topic/persistent/acme/orders/paid") == (
        200,
        {
            "brokerId": "broker-1",
            "brokerUrl": BROKER,
            "brokerUrlTls": "",
            "httpUrl": "http://broker-1.example:8080",
            "httpUrlTls": "",
            "nativeUrl": BROKER,
            "brokerUrlSsl": "",
        },
    )


@pytest.mark.parametrize(
    ("query", "headers", "expected"),
    [
        ("", {}, BROKER),
        ("?listenerName=outside", {}, OUTSIDE),
        ("", {"X-Pulsar-ListenerName": "outside"}, OUTSIDE),
        ("?listenerName=outside", {"X-Pulsar-ListenerName": "moon"}, OUTSIDE),
    ],
)
async def test_a_lookup_that_names_a_listener_gets_its_addresses(
    site, query: str, headers: dict[str, str], expected: str
):
    site.shard_of(TOPIC).listeners = f";outside={OUTSIDE}"
    site.assign(TOPIC)

    path = f"/lookup/v2/topic/persistent/acme/orders/paid{query}"
    status, body = await fetched(site, path, headers=headers)

    assert (status, body["brokerUrl"], body["nativeUrl"]) == (200, expected, expected)


async def test_a_listener_that_the_broker_does_not_have_is_a_bad_request(site):
    site.assign(TOPIC)

    answer = await fetched(site, "/lookup/v2/topic/persistent/acme/orders/paid?listenerName=moon")

    assert answer == (400, {"reason": "the broker do not have moon listener"})


async def test_a_lookup_of_an_absent_topic_is_not_found_and_creates_nothing(site):
    answer = await fetched(site, "/lookup/v2/topic/persistent/acme/orders/absent")

    assert answer[0] == 404
    assert "no such topic" in reason(answer)
    assert not any(shard.executed for shard in site.server.shards.values())


@pytest.mark.parametrize(
    "local",
    [
        "a:b",
        "a=b",
        "a+b",
        "a@b",
        "a#b",
        "a b",
        "caf\u00e9",
        "100%",
        "a?b",
        "a%2Fb",
        "a&b;c",
        "a\\b",
    ],
)
async def test_a_topics_name_may_have_any_character(site, local):
    name = f"persistent://acme/orders/{local}"
    site.assign(name)
    add_topic(site, name, 3)
    sent = quote(local, safe="")

    looked_up = await fetched(site, f"/lookup/v2/topic/persistent/acme/orders/{sent}")
    counted = await fetched(site, f"/admin/v2/persistent/acme/orders/{sent}/partitions")

    assert looked_up[0] == 200
    assert counted == (200, {"partitions": 0})  # It is assigned: the inventory is not asked.


async def test_a_character_that_need_not_be_encoded_may_be(site):
    site.assign(TOPIC)

    assert (await fetched(site, "/lookup/v2/topic/persistent/acme/orders/p%61id"))[0] == 200


async def test_partitions_are_answered(site):
    add_topic(site, TOPIC, 12)

    path = "/admin/v2/persistent/acme/orders/paid/partitions"
    assert await fetched(site, path) == (200, {"partitions": 12})
    assert await fetched(site, f"{path}?checkAllowAutoCreation=true") == (200, {"partitions": 12})


async def test_a_topic_is_created_only_if_the_client_asks_for_that(site):
    add_namespace(
        site, "acme/orders", autoTopicCreationType="partitioned", defaultNumPartitions="3"
    )
    path = "/admin/v2/persistent/acme/orders/paid/partitions"

    assert (await fetched(site, path))[0] == 404
    assert (await fetched(site, f"{path}?checkAllowAutoCreation=false"))[0] == 404
    assert not any(shard.executed for shard in site.server.shards.values())
    assert await fetched(site, f"{path}?checkAllowAutoCreation=true") == (200, {"partitions": 3})


async def test_topics_of_a_namespace_are_listed_by_mode(site):
    add_namespace(site, "acme/orders")
    add_topic(site, "persistent://acme/orders/a")
    add_topic(site, "persistent://acme/orders/b", 2)

    status, topics = await fetched(site, "/admin/v2/namespaces/acme/orders/topics")

    assert status == 200
    assert topics == [
        "persistent://acme/orders/a",
        "persistent://acme/orders/b-partition-0",
        "persistent://acme/orders/b-partition-1",
    ]
    for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        path = f"/admin/v2/namespaces/acme/orders/topics?mode={mode}"
        assert (await fetched(site, path))[0] == 200
    answer = await fetched(site, "/admin/v2/namespaces/acme/orders/topics?mode=SOME")
    assert answer[0] == 400
    assert "SOME" in reason(answer)


async def test_schemas_are_answered_by_version(site, monkeypatch):
    asked = []

    async def schema(name, version):
        asked.append((name.text, version))
        if version == (9).to_bytes(8, "big"):
            return None
        return StoredSchema((2).to_bytes(8, "big"), "paid", 4, b'{"type":"record"}', {"a": "b"})

    monkeypatch.setattr(site.node.core.topics, "schema", schema)
    path = "/admin/v2/schemas/acme/orders/paid/schema"

    assert await fetched(site, path) == (
        200,
        {
            "version": 2,
            "type": "AVRO",
            "timestamp": 0,
            "data": '{"type":"record"}',
            "properties": {"a": "b"},
        },
    )
    assert (await fetched(site, f"{path}/2"))[0] == 200
    assert (await fetched(site, f"{path}/9"))[0] == 404
    assert (await fetched(site, f"{path}/latest"))[0] == 400
    assert (await fetched(site, f"{path}/18446744073709551616"))[0] == 400
    assert asked == [
        (TOPIC, None),
        (TOPIC, (2).to_bytes(8, "big")),
        (TOPIC, (9).to_bytes(8, "big")),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/lookup/v2/topic/bad/acme/orders/paid",
        "/lookup/v2/topic/persistent/ac%20me/orders/paid",
        "/lookup/v2/topic/persistent/acme/orders/%ff%fe",
        "/lookup/v2/topic/persistent/acme/orders/%00",
        "/admin/v2/persistent/acme/%2E%2E/paid/partitions",
        "/admin/v2/namespaces/ac%2Fme/orders/topics",
    ],
)
async def test_a_bad_name_is_a_failed_precondition_with_its_reason(site, path):
    answer = await fetched(site, path)

    assert answer[0] == 412  # As Pulsar answers.
    assert reason(answer)


async def test_trouble_that_passes_is_service_unavailable(site):
    async def refuse(_request):
        raise Unavailable("no capacity anywhere")

    site.server.hook = refuse
    answer = await fetched(site, "/lookup/v2/topic/persistent/acme/orders/paid")

    assert answer[0] == 503
    assert "no capacity anywhere" in reason(answer)


async def test_a_topic_with_partitions_is_looked_up_at_any_broker_and_without_one_not_at_all(site):
    async def partitioned(_request):
        response = site.server._answer_from_dictionaries(_request)
        for answer in response.lookup.answers:
            answer.rejection_code = "PARTITIONED"
        return response

    site.server.hook = partitioned
    path = "/lookup/v2/topic/persistent/acme/orders/paid"

    assert (await fetched(site, path))[1]["brokerUrl"] == BROKER
    site.manager.push(directory(pulsar_broker("broker-1", "s-1", is_live=False)))
    await site.until(lambda: site.node.core.link.view.has_session_ended("broker-1", "s-1"))
    assert (await fetched(site, path))[0] == 503


async def test_lines_headers_and_other_methods_are_bounded(site):
    site.assign(TOPIC)
    path = "/lookup/v2/topic/persistent/acme/orders/paid"

    long_line = await raw(site, f"GET /{'a' * 9_000} HTTP/1.1\r\nHost: x\r\n\r\n")
    long_header = await raw(site, f"GET {path} HTTP/1.1\r\nHost: x\r\nA: {'a' * 9_000}\r\n\r\n")
    other_method = await raw(site, f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")

    assert long_line.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert long_header.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert other_method.startswith(b"HTTP/1.1 405 ")
    assert (await fetched(site, path))[0] == 200


async def raw(site, text: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.node.http_port)
    writer.write(text.encode())
    async with timeout(WAIT_S):
        answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_requests_are_counted(site):
    await fetched(site, "/lookup/v2/topic/persistent/acme/orders/paid")
    await fetched(site, "/admin/v2/persistent/acme/orders/paid/partitions")

    assert (await site.client.counters())["http_requests"] == 2
