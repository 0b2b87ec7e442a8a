"""/admin/v2/clusters and /admin/v2/brokers: one cluster, and who serves in it."""

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.pulsar.policies.whole_policies import WHOLE_BUNDLE
from tests.support.discovery.fake_cluster import broker
from tests.support.discovery.rest_world import rest_world

CLUSTERS = "/admin/v2/clusters"
BROKERS = "/admin/v2/brokers"
TEXT = {"Accept": "text/plain"}


@pytest.fixture
async def rest():
    async with rest_world() as world:
        yield world


def kill_all(rest):
    for broker_id in list(rest.link.view.brokers):
        rest.link.view._brokers[broker_id] = broker(broker_id, "s-9", is_live=False)


async def test_this_cluster_is_the_only_one(rest):
    assert await rest.get(CLUSTERS) == (200, ["local"])
    assert await rest.get(f"{CLUSTERS}/local") == (
        200,
        {
            "serviceUrl": "http://d-1:8080",
            "serviceUrlTls": "",
            "brokerServiceUrl": "pulsar://d-1:6650",
            "brokerServiceUrlTls": "",
        },
    )
    assert await rest.get(f"{CLUSTERS}/local/peers") == (200, [])
    assert await rest.get(f"{CLUSTERS}/local/failureDomains") == (200, {})


@pytest.mark.parametrize(
    ("method", "name", "body", "status"),
    [
        ("GET", "other", None, 404),
        ("GET", "other/peers", None, 404),
        ("PUT", "local", {}, 409),
        ("PUT", "other", {"serviceUrl": "http://x"}, 405),
        ("PUT", "o%20ther", {}, 412),
        ("PUT", "other", None, 400),
        ("PUT", "other", {"serviceUrl": 5}, 400),
        ("POST", "local", {}, 405),
        ("POST", "other", {}, 404),
        ("DELETE", "local", None, 412),
        ("DELETE", "other", None, 404),
    ],
)
async def test_clusters_cannot_be_changed(rest, method, name, body, status):
    answer = await rest.call(method, f"{CLUSTERS}/{name}", json=body)

    assert (answer.status, bool(answer.reason)) == (status, True)


async def test_live_brokers_are_listed_and_the_first_stands_for_the_leader(rest):
    assert await rest.get(BROKERS) == (200, ["b-2"])
    assert await rest.get(f"{BROKERS}/local") == (200, ["b-2"])
    assert (await rest.get(f"{BROKERS}/other"))[0] == 404
    assert await rest.get(f"{BROKERS}/leaderBroker") == (
        200,
        {"brokerId": "b-2", "serviceUrl": "http://b-2.example:8080"},
    )
    kill_all(rest)
    assert (await rest.get(f"{BROKERS}/leaderBroker"))[0] == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("health", 200),
        ("health?topicVersion=V2&brokerId=b-2", 200),
        ("health?brokerId=b-1", 503),
        ("health?brokerId=b-7", 404),
        ("ready", 200),
        ("version", 200),
    ],
)
async def test_health_is_a_text(rest, path, status):
    answer = await rest.call("GET", f"{BROKERS}/{path}", headers=TEXT)

    assert answer.status == status
    if status == 200:
        assert answer.body == (b"1.2.3" if path == "version" else b"ok")


async def test_a_node_that_cannot_answer_is_not_ready_and_says_what_is_missing(rest):
    rest.missing.append("no shard map is known")

    for path in ("ready", "health"):
        answer = await rest.call("GET", f"{BROKERS}/{path}", headers=TEXT)
        assert (answer.status, answer.reason) == (503, "no shard map is known")
        assert answer.headers["Retry-After"] == "1"


async def test_without_a_live_broker_nothing_is_healthy(rest):
    kill_all(rest)

    assert (await rest.call("GET", f"{BROKERS}/health")).status == 503


async def test_the_namespaces_at_a_broker_are_those_that_it_holds():
    asked: list[str] = []

    class Held:
        async def at(self, endpoint: str) -> list[str]:
            asked.append(endpoint)
            if len(asked) > 1:
                raise Unavailable("it does not answer")
            return ["acme/orders", "acme/stock"]

    async with rest_world(held=Held()) as rest:
        endpoint = rest.link.view.brokers["b-2"].endpoints.grpc
        code, found = await rest.get(f"{BROKERS}/local/b-2/ownedNamespaces")
        failed = await rest.call("GET", f"{BROKERS}/local/b-2/ownedNamespaces")

    assert (code, set(asked)) == (200, {endpoint})
    assert list(found) == [f"acme/{name}/0x00000000_0xffffffff" for name in ("orders", "stock")]
    assert found[f"acme/orders/{WHOLE_BUNDLE}"] == {
        "broker_assignment": "shared",
        "is_controlled": False,
        "is_active": True,
    }
    assert failed.status == 503


async def test_only_a_live_broker_of_this_cluster_has_namespaces(rest):
    assert await rest.get(f"{BROKERS}/local/b-2/ownedNamespaces") == (200, {})
    assert (await rest.get(f"{BROKERS}/local/b-1/ownedNamespaces"))[0] == 404
    assert (await rest.get(f"{BROKERS}/other/b-2/ownedNamespaces"))[0] == 404


async def test_the_internal_configuration_names_the_cluster_managers(rest):
    status, found = await rest.get(f"{BROKERS}/internal-configuration")

    assert (status, found["metadataStoreUrl"]) == (200, "nextgen:m-1:6700,m-2:6700")
