"""Every route of topics with hostile names, numbers, queries and bodies: no answer is 500."""

from __future__ import annotations

import re
from typing import Any

import pytest

from discovery.adapters.resources.topic_catalogue import topic_routes
from nextgen.kernel.limits.rest import REST_BODY_BYTES_MAX
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import RestClient, serving

VALUES = (
    "%00",
    "%ff",
    "..",
    "%2e%2e",
    "%2F",
    "%0d%0aSet-Cookie:x",
    "%F0%9F%98%80",
    "%ED%A0%80",
    "+",
    "-1",
    "1.5",
    "9" * 30,
    "x" * 1_200,
    "x-partition-99999999999",
    "null",
    "%7B%7D",
)
BODIES = (
    b"",
    b"null",
    b"{}",
    b"[]",
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b'"latest"',
    b'"\\ud800"',
    b'{"ledgerId": 99999999999999999999999, "entryId": -9}',
    b'{"ledgerId": "1", "entryId": []}',
    b'{"partitions": 99999999999999999999}',
    b'{"a": null}',
    b'{"\\u0000": "\\r\\n"}',
    b"[" * 2_000,
    b"\xff\xfe",
    b"{" + b'"k":"v",' * 5_000 + b'"k":"v"}',
)
GOOD = {"tenant": "acme", "namespace": "orders", "topic": "plain", "subscription": "s"}
QUERY = "force=maybe&mode=%00&key=%ff&initialPosition=&messagePosition=-1&perPartition=2"


@pytest.fixture
async def client():
    inventory: Any = FakeInventory()
    inventory.add("persistent://acme/orders/plain")
    async with serving(topic_routes(FakeOwners(), inventory, inventory, inventory)) as client:
        yield client


def filled(path: str, other: str | None = None) -> str:
    """Return the path with good variables, or all of them ``other``."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "domain":
            return "persistent"
        return GOOD.get(match[1], "1") if other is None else other

    return re.sub(r"{([-\w]+)}", value, path)


async def wrong(client: RestClient, method: str, path: str, body: bytes | None = None) -> list[str]:
    """Return the request if its answer is a mistake of ours, or has no reason."""
    reply = await client.call(method, path, data=body)
    if reply.status == 500 or (reply.status >= 400 and not (reply.json or {}).get("reason")):
        return [f"{method} {path} {body!r:.60}: {reply.status} {reply.body!r:.200}"]
    return []


async def test_hostile_names_and_numbers_are_refused_with_a_reason(client):
    found: list[str] = []
    for route in client.frame.table.routes:
        for value in VALUES:
            found += await wrong(client, route.method, filled(route.path, value))

    assert found == []


async def test_hostile_queries_are_refused_with_a_reason(client):
    found: list[str] = []
    for route in client.frame.table.routes:
        found += await wrong(client, route.method, f"{filled(route.path)}?{QUERY}")
        found += await wrong(client, route.method, f"{filled(route.path)}?{'a=b&' * 500}")

    assert found == []


async def test_hostile_bodies_are_refused_with_a_reason(client):
    found: list[str] = []
    for route in client.frame.table.routes:
        for body in (*BODIES, b" " * (REST_BODY_BYTES_MAX + 1)):
            found += await wrong(client, route.method, filled(route.path), body)

    assert found == []
