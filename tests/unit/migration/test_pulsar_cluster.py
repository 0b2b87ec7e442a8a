"""Records out of the Admin REST of a Pulsar cluster, which may die, lie, or have more than we."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionAuthMode,
    SubscriptionPermission,
)
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel, Retention
from nextgen.kernel.limits.bulk import SOURCE_REQUESTS_MAX
from nextgen.migration import admin_rest
from nextgen.migration.admin_rest import ATTEMPTS
from nextgen.migration.pulsar_cluster import PulsarCluster, policies_in
from nextgen.migration.records import Record, Remarks, SchemaVersion, SourceFailed

ORDERS = "acme/orders"
EU = "persistent://acme/orders/eu"
DEFAULTS = {
    "auth_policies": {"namespaceAuthentication": {}, "topicAuthentication": {}},
    "replication_clusters": ["standalone"],
    "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
    "backlog_quota_map": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "message_ttl_in_seconds": None,
    "is_allow_auto_update_schema": None,
    "properties": {},
}


class Broker:
    """An Admin REST in memory: a path below ``/admin/v2/`` to its answer, or to a status."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers: dict[str, Any] = {
            "tenants": ["acme"],
            "tenants/acme": {"adminRoles": ["root"], "allowedClusters": ["standalone"]},
            "namespaces/acme": [ORDERS],
            f"namespaces/{ORDERS}": DEFAULTS,
            f"persistent/{ORDERS}": [f"{EU}-partition-0", f"{EU}-partition-1", f"{EU}+ü"],
            f"persistent/{ORDERS}/partitioned": [EU],
            f"persistent/{ORDERS}/eu/partitions": {"partitions": 2, "deleted": False},
            f"persistent/{ORDERS}/eu/properties": {"team": "a"},
            f"persistent/{ORDERS}/eu%2B%C3%BC/properties": {},
            **answers,
        }
        self.asked: Counter[str] = Counter()
        self.fails = 0
        """So many requests are answered with 503."""
        self.under_way = self.under_way_max = 0

    async def answer(self, request: web.Request) -> web.Response:
        path = request.rel_url.raw_path.removeprefix("/admin/v2/")
        self.asked[path] += 1
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.fails:
            self.fails -= 1
            return web.Response(status=503)
        found = self.answers.get(path, 404)
        if isinstance(found, int):
            return web.Response(status=found, text='{"reason": "no"}')
        if isinstance(found, bytes):
            return web.Response(body=found)
        return web.json_response(found)


def read(broker: Broker, remarks: Remarks | None = None, **options: Any) -> list[Record]:
    async def scenario() -> list[Record]:
        application = web.Application()
        application.router.add_get("/{path:.*}", broker.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        source = PulsarCluster(f"http://{host}:{port}/", **options)
        try:
            return [record async for record in source.records(remarks or Remarks())]
        finally:
            await source.close()
            await runner.cleanup()

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_rest, "PAUSE_S", 0.0)


def test_tenants_namespaces_and_topics_are_read_parents_first() -> None:
    records = read(Broker({}))

    assert records == [
        Record(
            PolicyLevel.TENANT,
            "acme",
            {"adminRoles": '["root"]', "allowedClusters": '["standalone"]'},
        ),
        Record(PolicyLevel.NAMESPACE, ORDERS),
        Record(PolicyLevel.TOPIC, EU, {"team": "a"}, partitions=2),
        Record(PolicyLevel.TOPIC, f"{EU}+ü"),
    ]


def test_properties_of_topics_may_be_left_unread() -> None:
    broker = Broker({})

    records = read(broker, properties=False)

    assert [record.properties for record in records if record.level is PolicyLevel.TOPIC] == [
        {},
        {},
    ]
    assert not [path for path in broker.asked if path.endswith("/properties")]


def schemas(*versions: dict[str, Any]) -> dict[str, Any]:
    return {"getSchemaResponses": list(versions)}


def version(number: int, kind: str = "JSON", **fields: Any) -> dict[str, Any]:
    return {"version": number, "type": kind, "data": f"v{number}", "properties": {}, **fields}


def test_all_versions_of_a_schema_are_read_the_oldest_first() -> None:
    path = f"schemas/{ORDERS}/eu/schemas"
    broker = Broker(
        {path: schemas(version(1, properties={"a": "b"}), version(0), version(2, "NONE"))}
    )

    (eu,) = (record for record in read(broker) if record.name == EU)

    assert eu.schemas == (
        SchemaVersion("JSON", "v0"),
        SchemaVersion("JSON", "v1", {"a": "b"}),
    )
    assert broker.asked[f"schemas/{ORDERS}/eu%2B%C3%BC/schemas"] == 1
    before = broker.asked[path]
    assert all(not record.schemas for record in read(broker, schemas=False))
    assert broker.asked[path] == before


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"getSchemaResponses": 7},
        schemas(version(0, "JSON", data=7)),
        schemas(version(0, properties=[1])),
        schemas({"version": "x"}),
    ],
)
def test_a_source_that_lies_about_schemas_ends_the_import(answer: Any) -> None:
    broker = Broker({f"schemas/{ORDERS}/eu/schemas": answer})

    with pytest.raises(SourceFailed, match="the schemas of 'persistent://acme/orders/eu'"):
        read(broker)


def test_a_broker_that_restarts_is_asked_again() -> None:
    broker = Broker({})
    broker.fails = ATTEMPTS - 1

    assert len(read(broker)) == 4


def test_a_broker_that_stays_away_ends_the_import() -> None:
    broker = Broker({})
    broker.fails = ATTEMPTS

    with pytest.raises(SourceFailed, match="/admin/v2/tenants does not answer: HTTP 503"):
        read(broker)


def test_properties_that_were_never_set_are_an_empty_answer() -> None:
    records = read(Broker({f"persistent/{ORDERS}/eu/properties": b""}))

    assert records[2] == Record(PolicyLevel.TOPIC, EU, partitions=2)


def test_what_is_deleted_meanwhile_is_left_out() -> None:
    broker = Broker({f"namespaces/{ORDERS}": 404, f"persistent/{ORDERS}": 404})
    broker.answers[f"persistent/{ORDERS}/partitioned"] = 404

    assert [record.name for record in read(broker)] == ["acme"]


@pytest.mark.parametrize(
    ("path", "lie", "problem"),
    [
        ("tenants", {"acme": 1}, "the names in 'tenants' are answered with {'acme': 1}"),
        ("tenants", 401, "HTTP 401"),
        ("tenants", b"<html>", "does not answer JSON"),
        ("tenants", b"[" * 100_000, "does not answer JSON"),
        ("tenants/acme", ["root"], "tenant 'acme' is answered with"),
        (f"namespaces/{ORDERS}", [], "the policies of 'acme/orders' are answered with"),
        (f"persistent/{ORDERS}", [1], "are answered with [1]"),
        (f"persistent/{ORDERS}/eu/partitions", {"partitions": 0}, "the partitions of"),
        (f"persistent/{ORDERS}/eu/partitions", "two", "the partitions of"),
    ],
)
def test_a_source_that_lies_ends_the_import_with_a_sentence(
    path: str, lie: Any, problem: str
) -> None:
    with pytest.raises(SourceFailed) as failure:
        read(Broker({path: lie}))

    assert problem in str(failure.value)


def test_source_answer_bytes_max_is_accepted_and_one_more_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = b'["acme"]'
    monkeypatch.setattr(admin_rest, "SOURCE_ANSWER_BYTES_MAX", 4_096)
    padded = names + b" " * (4_096 - len(names))

    assert len(read(Broker({"tenants": padded}))) == 4
    with pytest.raises(SourceFailed, match="answers more than 4096 bytes"):
        read(Broker({"tenants": padded + b" "}))


def test_source_requests_max_are_in_flight_and_no_more() -> None:
    names = [f"persistent://acme/orders/t{number:03}" for number in range(100)]
    broker = Broker({f"persistent/{ORDERS}": names})

    records = read(broker)

    assert [record.name for record in records[2:]] == [EU, *names]
    assert 1 < broker.under_way_max <= SOURCE_REQUESTS_MAX


def test_what_cannot_be_carried_is_remarked() -> None:
    remarks = Remarks()
    broker = Broker(
        {
            f"persistent/{ORDERS}": [
                f"{EU}-partition-0",
                "persistent://acme/orders/gone-partition-3",
                "persistent://acme/orders/__change_events",
                "persistent://acme/orders/" + "x" * 2_000,
            ]
        }
    )

    records = read(broker, remarks)

    assert [record.name for record in records[2:]] == [EU]
    assert [remark.partition(": ")[2][:40] for remark in remarks.first] == [
        "a partition without its partitioned topi",
        "no such name is possible here: topic nam",
    ]


def test_shadow_keeps_its_source_and_its_place_in_a_list_is_remarked() -> None:
    remarks = Remarks()
    properties = {"PULSAR.SHADOW_SOURCE": "persistent://acme/orders/paid"}
    broker = Broker({f"persistent/{ORDERS}/eu/properties": properties})

    records = read(broker, remarks)

    assert next(record for record in records if record.name == EU).properties == properties
    assert remarks.first == [f"{EU}: whether its source lists it: see 'nextgen topics set-shadows'"]


def test_policies_of_a_namespace_are_read_as_the_admin_rest_reads_them() -> None:
    remarks = Remarks()

    policies = policies_in(
        ORDERS,
        {
            **DEFAULTS,
            "retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
            "message_ttl_in_seconds": 60,
            "max_consumers_per_topic": 3,
        },
        remarks,
    )

    assert policies == replace(
        NO_POLICIES,
        retention=Retention(600_000, -1),
        message_ttl_ms=60_000,
        stored=(("maxConsumersPerTopic", "3"),),
    )
    assert remarks.count == 0


def test_policies_that_no_namespace_here_can_have_are_remarked_and_the_rest_kept() -> None:
    remarks = Remarks()

    policies = policies_in(
        ORDERS,
        {
            **DEFAULTS,
            "auth_policies": {"namespace_auth": {"app": ["fly"]}},
            "replication_clusters": ["east", "west"],
            "message_ttl_in_seconds": -5,
            "max_consumers_per_topic": "many",
            "deduplicationEnabled": True,
            "a_policy_of_tomorrow": {"x": 1},
        },
        remarks,
    )

    assert policies == replace(NO_POLICIES, deduplication=True)
    assert sorted(remark.partition(": ")[2].partition(":")[0] for remark in remarks.first) == [
        "permissions (auth_policies)",
        "replication to 2 clusters",
        "the policy a_policy_of_tomorrow",
        "the policy max_consumers_per_topic",
        "the policy message_ttl_in_seconds",
    ]


PRODUCE, CONSUME = AuthAction.PRODUCE, AuthAction.CONSUME
PLAIN = f"{EU}+ü"


def permitting(**auth_policies: Any) -> Broker:
    return Broker({f"namespaces/{ORDERS}": {**DEFAULTS, "auth_policies": auth_policies}})


def policies_by_name(records: list[Record]) -> dict[str, Policies]:
    return {record.name: record.policies for record in records}


def test_permissions_come_with_their_namespace_and_their_topics() -> None:
    remarks = Remarks()
    broker = permitting(
        namespace_auth={"app": ["consume", "produce"], "none": []},
        destination_auth={
            EU: {"eu": ["produce"]},
            f"{EU}-partition-0": {"eu": ["produce"]},
            f"{EU}-partition-1": {"eu": ["produce"]},
            PLAIN: {"app": ["functions"], "none": []},
        },
        subscription_auth_roles={"s": ["b", "a"], "all": []},
    )

    found = policies_by_name(read(broker, remarks))

    assert remarks.count == 0
    assert found[ORDERS] == Policies(
        permissions=(Permission("app", (PRODUCE, CONSUME)),),
        subscription_permissions=(SubscriptionPermission("s", ("a", "b")),),
    )
    assert found[EU] == Policies(permissions=(Permission("eu", (PRODUCE,)),))
    assert found[PLAIN] == Policies(permissions=(Permission("app", (AuthAction.FUNCTIONS,)),))


def test_the_mode_of_subscriptions_comes_with_its_namespace() -> None:
    broker = Broker({f"namespaces/{ORDERS}": {**DEFAULTS, "subscription_auth_mode": "Prefix"}})

    found = policies_by_name(read(broker))[ORDERS]

    assert found == Policies(subscription_auth_mode=SubscriptionAuthMode.PREFIX)


def test_permissions_that_nothing_here_can_have_are_remarked_and_nobody_may_more() -> None:
    remarks = Remarks()
    broker = permitting(
        namespace_auth={"app": ["produce"], "a\nb": ["produce"]},
        destination_auth={
            f"{EU}-partition-1": {"one": ["produce"]},
            f"{EU}-gone": {"app": ["consume"]},
            "a b/c": {"app": ["consume"]},
            PLAIN: {" app": ["consume"]},
        },
        subscription_auth_roles={"s": ["a", "b "]},
    )

    found = policies_by_name(read(broker, remarks))

    assert found[ORDERS] == Policies(
        permissions=(Permission("app", (PRODUCE,)),),
        subscription_permissions=(SubscriptionPermission("s", ("a",)),),
    )
    assert found[EU] == found[PLAIN] == NO_POLICIES
    assert sorted(remark.partition(": ")[2][:38] for remark in remarks.first) == [
        "permissions of 'a b/c': topic name 'a ",
        "permissions of a single partition",
        "permissions of a topic that is not lis",
        "the permission of role 'b ' for subscr",
        "the permissions of ' app': the role ha",
        "the permissions of 'a\\nb': the role ha",
    ]


@pytest.mark.parametrize("auth", [{"namespace_auth": {"app": ["fly"]}}, ["x"], "x", 7])
def test_permissions_of_tomorrow_are_remarked_and_nobody_may_anything(auth: Any) -> None:
    remarks = Remarks()
    broker = Broker({f"namespaces/{ORDERS}": {**DEFAULTS, "auth_policies": auth}})

    found = policies_by_name(read(broker, remarks))

    assert set(found.values()) == {NO_POLICIES}
    assert remarks.first == [f"{ORDERS}: permissions (auth_policies)"]
