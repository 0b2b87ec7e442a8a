"""The Admin REST of a stock cluster, as an adoption uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web

from nextgen.kernel.governance.policies import PolicyLevel
from nextgen.kernel.routing.names import parse_namespace
from nextgen.migration import admin_rest
from nextgen.migration.admin_rest import AdminAccess
from nextgen.migration.adoption.plan import PulsarNamespace
from nextgen.migration.adoption.stock_cluster import StockCluster
from nextgen.migration.records import Remarks, SourceFailed

ORDERS = "acme/orders"
EU = f"persistent://{ORDERS}/eu"
LONG = f"persistent://{ORDERS}/" + "x" * 2_000
PROPERTY = f"namespaces/{ORDERS}/property/nextgen.placement"
T = TypeVar("T")


class Broker:
    """An Admin REST in memory: a path below ``/admin/v2/`` to its answer, or to a status."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "tenants": ["acme", "other"],
            "tenants/acme": {"adminRoles": [], "allowedClusters": ["standalone"]},
            "namespaces/acme": [ORDERS, "acme/more"],
            f"namespaces/{ORDERS}": {
                "replication_clusters": ["standalone"],
                "deleted": False,
                "properties": {"team": "a", "nextgen.placement": "topic"},
            },
            f"persistent/{ORDERS}": [f"{EU}-partition-0", f"{EU}-partition-1", LONG, f"{EU}2"],
            f"persistent/{ORDERS}/partitioned": [EU],
            f"persistent/{ORDERS}/eu/partitions": {"partitions": 2},
            "brokers": ["b2:8080", "b1:8080"],
            "brokers/configuration/runtime": {"transactionCoordinatorEnabled": "true", "n": 3},
            **answers,
        }
        self.changes: list[tuple[str, str]] = []
        self.change_status = 204
        self.tokens: set[str | None] = set()
        self.asked: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        path = request.rel_url.raw_path.removeprefix("/admin/v2/")
        self.tokens.add(request.headers.get("Authorization"))
        if request.method != "GET":
            if request.content_type != "application/json":
                return web.Response(status=415)
            self.changes.append((request.method, path))
            return web.Response(status=self.change_status)
        self.asked.add(path)
        found = self.answers.get(path, 404)
        if isinstance(found, int):
            return web.Response(status=found, text="no")
        return web.json_response(found)


def at(broker: Broker, work: Callable[[StockCluster], Awaitable[T]]) -> T:
    """Return what ``work`` returns of the cluster with this Admin REST."""

    async def scenario() -> T:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", broker.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        access = AdminAccess("secret")
        cluster = StockCluster(f"http://{host}:{port}", parse_namespace(ORDERS), access=access)
        try:
            return await work(cluster)
        finally:
            await cluster.close()
            await runner.cleanup()

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_rest, "PAUSE_S", 0.0)


def test_a_namespace_is_read_with_its_topics_and_names_that_are_refused_here() -> None:
    found = at(Broker(), lambda cluster: cluster.namespace())

    assert found is not None
    assert found.topics == {EU: 2, f"{EU}2": 0}
    assert (found.replication_clusters, found.is_deleted) == (("standalone",), False)
    assert found.properties["nextgen.placement"] == "topic"
    (refused,) = found.refused_names
    assert refused.startswith(LONG[:300])
    assert "no such name is possible here" in refused


@pytest.mark.parametrize(
    ("policy", "creates_partitioned"),
    [
        (None, None),
        ({"allowAutoTopicCreation": True, "topicType": "partitioned"}, True),
        ({"allowAutoTopicCreation": True, "topicType": "non-partitioned"}, False),
        ({"allowAutoTopicCreation": False, "topicType": "partitioned"}, False),
    ],
)
def test_the_policy_of_a_namespace_says_whether_new_topics_get_partitions(
    policy: object, creates_partitioned: bool | None
) -> None:
    body = {"autoTopicCreationOverride": policy}
    broker = Broker(**{f"namespaces/{ORDERS}": body, f"persistent/{ORDERS}": []})

    found = at(broker, lambda cluster: cluster.namespace())

    assert found is not None
    assert found.creates_partitioned is creates_partitioned


def test_an_absent_namespace_is_none() -> None:
    broker = Broker(**{f"namespaces/{ORDERS}": 404})

    assert at(broker, lambda cluster: cluster.namespace()) is None


def test_a_namespace_without_properties_is_not_adopted() -> None:
    broker = Broker(**{f"namespaces/{ORDERS}": {"deleted": True}, f"persistent/{ORDERS}": []})

    found = at(broker, lambda cluster: cluster.namespace())

    assert found == PulsarNamespace({}, (), is_deleted=True, topics={})


def test_only_the_namespace_is_imported_without_the_property_that_hands_it_over() -> None:
    broker = Broker()

    async def read(cluster: StockCluster) -> list[Any]:
        return [record async for record in cluster.records(Remarks())]

    records = at(broker, read)

    assert [(each.level, each.name) for each in records] == [
        (PolicyLevel.TENANT, "acme"),
        (PolicyLevel.NAMESPACE, ORDERS),
        (PolicyLevel.TOPIC, EU),
        (PolicyLevel.TOPIC, f"{EU}2"),
    ]
    assert records[1].properties == {"team": "a", "nextgen.brokers": "stock"}
    assert not [path for path in broker.asked if "properties" in path or "schemas" in path]
    assert broker.tokens == {"Bearer secret"}


def test_topics_that_are_here_are_left_out() -> None:
    async def read(cluster: StockCluster) -> list[str]:
        cluster.left_out = {EU: 2}
        return [record.name async for record in cluster.records(Remarks())]

    assert at(Broker(), read) == ["acme", ORDERS, f"{EU}2"]


def test_the_brokers_and_their_settings_are_read() -> None:
    broker = Broker()

    assert at(broker, lambda cluster: cluster.brokers()) == ("b1:8080", "b2:8080")
    assert at(broker, lambda cluster: cluster.settings()) == {
        "transactionCoordinatorEnabled": "true",
        "n": "3",
    }


@pytest.mark.parametrize("answer", [401, 403, 404, ["no map"]])
def test_settings_that_may_not_be_read_are_unknown(answer: Any) -> None:
    broker = Broker(**{"brokers/configuration/runtime": answer})

    assert at(broker, lambda cluster: cluster.settings()) is None


@pytest.mark.parametrize("answer", [404, 401, {}, [1]])
def test_brokers_that_cannot_be_read_end_it(answer: Any) -> None:
    with pytest.raises(SourceFailed):
        at(Broker(brokers=answer), lambda cluster: cluster.brokers())


def test_the_property_is_set_and_removed() -> None:
    broker = Broker()

    at(broker, lambda cluster: cluster.set_by_topic(ORDERS, by_topic=True))
    at(broker, lambda cluster: cluster.set_by_topic(ORDERS, by_topic=False))

    assert broker.changes == [("PUT", f"{PROPERTY}/topic"), ("DELETE", PROPERTY)]


@pytest.mark.parametrize("status", [401, 404, 409, 500])
def test_a_property_that_is_not_set_is_an_error(status: int) -> None:
    broker = Broker()
    broker.change_status = status

    with pytest.raises(SourceFailed):
        at(broker, lambda cluster: cluster.set_by_topic(ORDERS, by_topic=True))
