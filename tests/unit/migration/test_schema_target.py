"""Schemas into a cluster over its Admin REST: only what is missing, however many at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from nextgen.kernel.errors import Refused, Unavailable
from nextgen.migration import schema_target
from nextgen.migration.records import SchemaVersion
from nextgen.migration.schema_target import ATTEMPTS, AdminSchemas

VERSIONS = (SchemaVersion("STRING", ""), SchemaVersion("JSON", "{}", {"a": "b"}))
TOPICS = [f"persistent://acme/orders/t{number}" for number in range(5)]


class Node:
    """The Admin REST of a discovery node, with the schemas of topics by path."""

    def __init__(self) -> None:
        self.schemas: dict[str, list[dict[str, Any]]] = {}
        self.status = 200
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.status != 200:
            return web.Response(status=self.status, text="no")
        topic = request.path.rsplit("/", 1)[0]
        present = self.schemas.setdefault(topic, [])
        if request.method == "GET":
            if not present:
                return web.Response(status=404)
            return web.json_response({"getSchemaResponses": present})
        body = await request.json()
        version = {"version": len(present), "type": body["type"], "data": body["schema"]}
        present.append({**version, "properties": body["properties"]})
        return web.json_response({"version": {"version": len(present) - 1}})


def add(node: Node, topics: list[str]) -> list[int]:
    """Add ``VERSIONS`` to all topics at once, through a cluster that is slow to name its nodes."""

    async def scenario() -> list[int]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", node.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]

        async def cluster() -> Any:
            await asyncio.sleep(0)
            shard = SimpleNamespace(kind="shard", http="127.0.0.1:1")
            return SimpleNamespace(
                nodes=[shard, SimpleNamespace(kind="discovery", http=f"{host}:{port}")]
            )

        target = AdminSchemas(SimpleNamespace(cluster=cluster))  # type: ignore[arg-type]
        try:
            return await asyncio.gather(*(target.add_missing(name, VERSIONS) for name in topics))
        finally:
            await target.close()
            await runner.cleanup()

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_target, "PAUSE_S", 0.0)


def test_missing_versions_are_added_in_order_to_many_topics_at_once() -> None:
    node = Node()

    assert add(node, TOPICS) == [2] * 5
    assert add(node, TOPICS) == [0] * 5
    for versions in node.schemas.values():
        assert [each["type"] for each in versions] == ["STRING", "JSON"]
    assert len(node.schemas) == 5


def test_a_schema_that_the_cluster_does_not_allow_is_refused_at_once() -> None:
    node = Node()
    node.status = 409

    with pytest.raises(Refused, match="HTTP 409 no"):
        add(node, TOPICS[:1])
    assert node.asked == 1


def test_a_cluster_that_does_not_answer_ends_the_import() -> None:
    node = Node()
    node.status = 503

    with pytest.raises(Unavailable, match="HTTP 503"):
        add(node, TOPICS[:1])
    assert node.asked == ATTEMPTS
