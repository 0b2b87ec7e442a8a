"""/admin/v2/namespaces: create, read, delete, unload, properties; one bundle and one cluster."""

import pytest

from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.discovery.rest_world import rest_world

NAMESPACES = "/admin/v2/namespaces"
AT = f"{NAMESPACES}/acme/orders"
WHOLE = "0x00000000_0xffffffff"

JAVA_DEFAULTS = {
    "auth_policies": {"namespaceAuthentication": {}, "topicAuthentication": {}},
    "replication_clusters": [],
    "bundles": None,
    "backlog_quota_map": {},
    "topicDispatchRate": {},
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}


@pytest.fixture
async def rest():
    async with rest_world() as world:
        await world.world.create_tenant("acme")
        yield world


def stored_policies(rest):
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=2, name="acme/orders")])
    return rest.world.home("acme/orders").reader.get(wanted)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"json": {}},
        {"json": None, "headers": {"Content-Type": "application/json"}},
        {"json": {"bundles": {"boundaries": None, "numBundles": 64}}},
        {"json": {"numBundles": 4}},
        {"json": JAVA_DEFAULTS},
        {"json": {"replication_clusters": ["local"]}},
    ],
)
async def test_a_namespace_is_created_without_policies(rest, body):
    created = await rest.call("PUT", AT, **body)

    assert (created.status, created.body) == (204, b"")
    found = (await stored_policies(rest)).items[0].namespace
    assert (found.HasField("policies"), found.version) == (False, 1)
    assert await rest.get(f"{NAMESPACES}/acme") == (200, ["acme/orders"])
    status, whole = await rest.get(AT)
    assert (status, whole["replication_clusters"], whole["retention_policies"]) == (
        200,
        ["local"],
        None,
    )
    assert whole["bundles"] == {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}


async def test_a_namespace_is_created_with_its_policies_at_once(rest):
    body = {
        **JAVA_DEFAULTS,
        "message_ttl_in_seconds": 5,
        "topicDispatchRate": {"local": {"dispatchThrottlingRateInMsg": 9}},
        "backlog_quota_map": {"destination_storage": {"limitSize": 3}},
        "persistence": {"bookkeeperEnsemble": 3},
        "properties": {"a": "b"},
    }

    created = await rest.call("PUT", AT, json=body)

    whole = (await rest.get(AT))[1]
    assert created.status == 204
    assert (whole["message_ttl_in_seconds"], whole["persistence"]["bookkeeperEnsemble"]) == (5, 3)
    assert whole["topicDispatchRate"]["local"]["dispatchThrottlingRateInMsg"] == 9
    assert whole["backlog_quota_map"]["destination_storage"]["limitSize"] == 3
    assert whole["properties"] == {"a": "b"}
    assert (await stored_policies(rest)).items[0].namespace.policies_version == 1


async def test_a_choice_that_the_go_library_sends_empty_is_none(rest):
    body = {
        "bundles": {"numBundles": 16},
        "schema_compatibility_strategy": "",
        "schema_auto_update_compatibility_strategy": "",
        "subscription_auth_mode": "",
    }

    created = await rest.call("PUT", AT, json=body)

    assert created.status == 204
    assert (await rest.get(AT))[1]["schema_compatibility_strategy"] == "UNDEFINED"


async def test_what_was_read_as_a_whole_can_be_created_elsewhere(rest):
    await rest.call("PUT", AT, json={"message_ttl_in_seconds": 5, "max_producers_per_topic": 2})
    whole = (await rest.get(AT))[1]

    created = await rest.call("PUT", f"{NAMESPACES}/acme/copy", json=whole)

    assert created.status == 204
    assert (await rest.get(f"{NAMESPACES}/acme/copy"))[1] == whole


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("acme/there", None, 409),
        ("nobody/orders", None, 404),
        ("acme/a%20b", None, 412),
        ("acme/new", {"replication_clusters": ["elsewhere"]}, 412),
        ("acme/new", {"bundles": {"numBundles": -1}}, 412),
        ("acme/new", {"message_ttl_in_seconds": -1}, 412),
        ("acme/new", {"message_ttl_in_seconds": "5"}, 400),
        ("acme/new", {"backlog_quota_map": {"some": {"limitSize": 3}}}, 412),
        (
            "acme/new",
            {
                "backlog_quota_map": {"destination_storage": {"limitSize": 2**30}},
                "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
            },
            412,
        ),
        ("acme/new", {"properties": {"k": "v" * 5_000}}, 412),
        ("acme/new", [], 400),
    ],
)
async def test_what_cannot_be_created_has_its_code(rest, path, body, status):
    await rest.world.create_namespace("acme/there")

    answer = await rest.call("PUT", f"{NAMESPACES}/{path}", json=body)

    assert (answer.status, bool(answer.reason)) == (status, True)
    assert await rest.get(f"{NAMESPACES}/acme") == (200, ["acme/there"])


async def test_a_tenant_that_does_not_allow_this_cluster_gets_no_namespace(rest):
    properties = {"allowedClusters": '["elsewhere"]'}
    command = pb.Command(create_tenant=pb.CreateTenant(name="far", properties=properties))
    await rest.world.run(rest.world.home("far"), command)

    assert (await rest.call("PUT", f"{NAMESPACES}/far/orders")).status == 412


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("acme/orders", 204),
        ("acme/orders?force=true", 405),
        ("acme/full", 409),
        ("acme/absent", 404),
        (f"acme/orders/{WHOLE}", 405),
        ("acme/orders/0x00000000_0x40000000", 412),
    ],
)
async def test_only_an_empty_namespace_is_deleted(rest, path, status):
    await rest.world.create_namespace("acme/orders")
    await rest.world.create_namespace("acme/full")
    await rest.world.create_topic("persistent://acme/full/t")

    assert (await rest.call("DELETE", f"{NAMESPACES}/{path}")).status == status


async def test_the_namespaces_of_an_absent_tenant_are_404(rest):
    assert (await rest.get(f"{NAMESPACES}/nobody"))[0] == 404
    assert await rest.get(f"{NAMESPACES}/acme") == (200, [])


async def test_there_is_one_bundle_that_is_never_split(rest):
    await rest.world.create_namespace("acme/orders")

    bundles = await rest.get(f"{AT}/bundles")
    positions = await rest.get(f"{AT}/{WHOLE}/topicHashPositions")
    split = await rest.call("PUT", f"{AT}/{WHOLE}/split?unload=true")
    largest = await rest.call("PUT", f"{AT}/LARGEST/split")

    assert bundles == (200, {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1})
    assert positions[0] == 200
    assert (split.status, largest.status) == (412, 412)


@pytest.fixture
async def topics(rest):
    await rest.world.create_namespace("acme/orders")
    await rest.world.create_topic("persistent://acme/orders/a")
    await rest.world.create_topic("persistent://acme/orders/b", partitions=2)
    await rest.world.create_topic("non-persistent://acme/orders/c")
    return [
        "non-persistent://acme/orders/c",
        "persistent://acme/orders/a",
        "persistent://acme/orders/b-partition-0",
        "persistent://acme/orders/b-partition-1",
    ]


@pytest.mark.parametrize("path", ["unload", f"{WHOLE}/unload", f"{WHOLE}/unload?authoritative=x"])
async def test_an_unload_takes_every_unit_of_every_topic(rest, topics, path):
    assert (await rest.call("PUT", f"{AT}/{path}")).status == 204
    assert (sorted(rest.shards.unloaded), rest.shards.moved) == (topics, [])


async def test_an_unload_to_a_broker_moves_every_unit(rest, topics):
    done = await rest.call("PUT", f"{AT}/{WHOLE}/unload?destinationBroker=b-2")
    dead = await rest.call("PUT", f"{AT}/{WHOLE}/unload?destinationBroker=b-1")
    other = await rest.call("PUT", f"{AT}/0x00000000_0x40000000/unload")

    assert (done.status, dead.status, other.status) == (204, 412, 412)
    assert sorted(rest.shards.moved) == [(topic, "b-2") for topic in topics]
    assert rest.shards.unloaded == []


async def test_an_unload_that_may_not_have_happened_is_to_be_repeated(rest, topics):
    rest.shards.unload_outcome = pb.UnassignOutcome(message="lost", under_way=True, failed=True)

    answer = await rest.call("PUT", f"{AT}/unload")

    assert (answer.status, "4 topics" in answer.reason) == (503, True)
    assert answer.headers["Retry-After"] == "1"


async def test_an_absent_namespace_is_not_unloaded(rest):
    assert (await rest.call("PUT", f"{AT}/unload")).status == 404


async def test_properties_are_added_read_and_removed(rest):
    await rest.world.create_namespace("acme/orders")

    await rest.call("PUT", f"{AT}/properties", json={"a": "1", "b": "2"})
    await rest.call("PUT", f"{AT}/property/c/x+y")
    one = await rest.call("GET", f"{AT}/property/c", headers={"Accept": "text/plain"})
    absent = await rest.call("GET", f"{AT}/property/z")
    removed = await rest.call("DELETE", f"{AT}/property/a")
    all_left = await rest.get(f"{AT}/properties")
    await rest.call("DELETE", f"{AT}/properties")

    assert (one.body, absent.status, removed.body) == (b"x y", 204, b"1")
    assert all_left == (200, {"b": "2", "c": "x y"})
    assert await rest.get(f"{AT}/properties") == (200, {})
    too_long = await rest.call("PUT", f"{AT}/properties", json={"a": "v" * 5_000})
    assert too_long.status == 412


async def test_a_namespace_is_in_this_cluster(rest):
    await rest.world.create_namespace("acme/orders")

    here = await rest.call("POST", f"{AT}/replication", json=["local"])
    none = await rest.call("POST", f"{AT}/replication", json=[])
    elsewhere = await rest.call("POST", f"{AT}/replication", json=["local", "elsewhere"])

    assert (here.status, none.status, elsewhere.status) == (204, 412, 403)
    assert await rest.get(f"{AT}/replication") == (200, ["local"])


TOPIC = "/admin/v2/persistent/acme/orders/a"
ABSENT = (
    ("GET", f"{TOPIC}/compaction", 200),
    ("PUT", f"{TOPIC}/compaction", 501),
    ("GET", "/admin/v3/functions/acme/orders", 409),
    ("POST", "/admin/v3/functions/acme/orders/f", 409),
    ("GET", "/admin/v3/functions/connectors", 409),
    ("GET", "/admin/v3/functions/acme/orders/f/0/status", 409),
    ("POST", "/admin/v3/functions/acme/orders/f/trigger", 409),
    ("POST", "/admin/v3/sinks/acme/orders/s", 409),
    ("GET", "/admin/v3/sinks/builtinsinks", 409),
    ("GET", "/admin/v3/sink/builtinsinks", 409),
    ("GET", "/admin/v3/source/builtinsources/kafka/configdefinition", 409),
    ("POST", "/admin/v3/sources/reloadBuiltInSources", 409),
    ("POST", "/admin/v3/sources/acme/orders/s/restart", 409),
    ("GET", "/admin/v2/worker/cluster", 409),
    ("GET", "/admin/v3/packages/function/acme/orders/p/1", 503),
    ("GET", "/admin/v3/packages/function/acme/orders", 503),
    ("GET", "/admin/v3/transactions/coordinatorStats", 503),
    ("GET", "/admin/v3/transactions/slowTransactions/1000", 503),
    ("GET", "/admin/v2/resourcegroups/group", 404),
    ("PUT", "/admin/v2/resourcegroups/group", 501),
    ("POST", f"{AT}/resourcegroup/group", 412),
    ("DELETE", f"{AT}/resourcegroup", 204),
    ("GET", "/admin/v2/bookies/all", 200),
    ("GET", "/admin/v2/resourcegroups", 200),
    ("GET", "/admin/v2/resource-quotas", 200),
    ("POST", "/admin/v2/resource-quotas/acme/orders/bundle", 501),
    ("GET", "/admin/v2/broker-stats/topics", 200),
    ("GET", "/admin/v2/clusters/local/namespaceIsolationPolicies/brokers", 200),
    ("POST", "/admin/v2/clusters/local/namespaceIsolationPolicies/policy", 501),
    ("GET", "/admin/v2/namespaces/local/antiAffinity/group", 501),
    ("POST", "/admin/v2/brokers/shutdown", 501),
    ("GET", "/admin/v2/brokers/backlog-quota-check", 204),
    ("GET", "/admin/v2/nothing/of/it", 404),
)


async def test_what_is_not_here_is_answered(rest):
    answered = [
        (method, path, (await rest.call(method, path)).status) for method, path, _ in ABSENT
    ]

    assert answered == list(ABSENT)


@pytest.mark.parametrize("kind", ["packages/function/acme/orders", "transactions/coordinators"])
async def test_what_is_turned_off_does_not_invite_to_repeat_the_request(rest, kind):
    reply = await rest.call("GET", f"/admin/v3/{kind}")

    assert (reply.status, reply.headers.get("Retry-After")) == (503, None)
    assert "is not enabled" in reply.json["reason"]
