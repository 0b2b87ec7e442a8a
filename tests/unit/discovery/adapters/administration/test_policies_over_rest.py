"""Single policies of a namespace: every row of the table is set, read and removed."""

import json

import pytest

from nextgen.kernel.limits.placement import STORED_POLICIES_MAX, STORED_POLICY_NAME_BYTES_MAX
from nextgen.pulsar.policies.policy_table import POLICIES, UNSET
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE
from tests.support.discovery.policy_samples import sample
from tests.support.discovery.rest_world import rest_world

AT = "/admin/v2/namespaces/acme/orders"

BY_NAME = {policy.name: policy for policy in POLICIES}
COMPATIBILITY = {"schemaCompatibilityStrategy", "schemaAutoUpdateCompatibilityStrategy"}
"""Two names of one policy."""


@pytest.fixture
async def rest():
    async with rest_world() as world:
        await world.world.create_tenant("acme")
        await world.world.create_namespace("acme/orders")
        yield world


def as_sent(policy, value):
    """As Java's library sends it: a text of its own kind has no quotes."""
    data = value if policy.is_text else json.dumps(value)
    return {"data": data, "headers": {"Content-Type": "application/json"}}


def as_read(answer):
    if answer.status == 204:
        return UNSET
    assert answer.status == 200, answer.reason
    try:
        return json.loads(answer.body)
    except ValueError:
        return answer.body.decode()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
async def test_a_policy_is_set_read_and_removed(rest, policy):
    path, value = f"{AT}/{policy.name}", sample(policy)
    same = COMPATIBILITY if policy.name in COMPATIBILITY else {policy.name}
    others = {each.field for each in POLICIES if each.name not in same}

    before = await rest.call("GET", path)
    whole = (await rest.get(AT))[1]
    done = await rest.call(policy.set_by, path, **as_sent(policy, value))
    after = await rest.call("GET", path)
    whole_after = (await rest.get(AT))[1]

    assert as_read(before) is UNSET if policy.unset is UNSET else as_read(before) == policy.unset
    assert (done.status, as_read(after)) == (204, value)
    in_whole = {"local": value} if policy.is_by_cluster else value
    assert whole_after[policy.field] == in_whole
    assert {each: whole_after[each] for each in others} == {each: whole[each] for each in others}
    if policy.removed_at is not None:
        removed = await rest.call("DELETE", f"{AT}/{policy.removed_at or policy.name}")
        assert removed.status == 204
        assert as_read(await rest.call("GET", path)) == as_read(before)
    else:
        removed = await rest.call("DELETE", path)
        assert removed.status == 405


@pytest.mark.parametrize(
    ("name", "body", "stored"),
    [
        ("encryptionRequired", b'"true"', True),  # Go
        ("persistence", b'{"managedLedgerMaxMarkDeleteRate": -1.0}', None),  # Java 4.2
        ("deduplicationSnapshotInterval", b"", UNSET),  # Java, to remove it
    ],
)
async def test_what_the_admin_libraries_send_for_a_policy_is_understood(rest, name, body, stored):
    path = f"{AT}/{name}"
    set_before = await rest.call("POST", path, **as_sent(BY_NAME[name], sample(BY_NAME[name])))

    done = await rest.call("POST", path, data=body, headers={"Content-Type": "application/json"})

    assert (set_before.status, done.status) == (204, 204)
    read = as_read(await rest.call("GET", path))
    assert read == stored if stored is not None else read["managedLedgerMaxMarkDeleteRate"] == -1


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
async def test_an_absent_namespace_has_no_policies(rest, policy):
    path = f"/admin/v2/namespaces/acme/absent/{policy.name}"

    assert (await rest.call("GET", path)).status == 404
    set_absent = await rest.call(policy.set_by, path, **as_sent(policy, sample(policy)))
    assert (set_absent.status, bool(set_absent.reason)) == (404, True)


async def test_all_policies_fit_into_one_namespace(rest):
    for policy in POLICIES:
        done = await rest.call(
            policy.set_by, f"{AT}/{policy.name}", **as_sent(policy, sample(policy))
        )
        assert done.status == 204, (policy.name, done.reason)

    stored = [policy for policy in POLICIES if policy.enforced is None]
    assert len(stored) < STORED_POLICIES_MAX
    assert max(len(policy.name) for policy in stored) <= STORED_POLICY_NAME_BYTES_MAX


async def test_enforced_policies_get_fields_of_their_own(rest):
    for name in ("retention", "messageTTL", "deduplication", "autoTopicCreation"):
        policy = next(each for each in POLICIES if each.name == name)
        await rest.call(policy.set_by, f"{AT}/{name}", **as_sent(policy, sample(policy)))
    await rest.call("PUT", f"{AT}/schemaCompatibilityStrategy", json="FORWARD")
    await rest.call("POST", f"{AT}/isAllowAutoUpdateSchema", json=False)
    await rest.call(
        "POST",
        f"{AT}/backlogQuota",
        json={"limitSize": 5, "policy": "consumer_backlog_eviction"},
    )

    wanted = pb.GetRequest(names=[pb.ObjectName(kind=KIND_NAMESPACE, name="acme/orders")])
    found = await rest.world.home("acme/orders").reader.get(wanted)
    assert found.items[0].namespace.policies == policies_pb2.Policies(
        retention=policies_pb2.RetentionPolicy(time_ms=600_000, size_bytes=-1),
        message_ttl_ms=60_000,
        deduplication=False,
        auto_creation=policies_pb2.AutoCreation(
            is_allowed=True, is_partitioned=True, default_partitions=3
        ),
        schema_compatibility=policies_pb2.SCHEMA_COMPATIBILITY_FORWARD,
        schema_auto_update=False,
        backlog_quota=policies_pb2.BacklogQuota(
            size_bytes=5, action=policies_pb2.BacklogQuota.ACTION_CONSUMER_BACKLOG_EVICTION
        ),
    )


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}, 412),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, 412),
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2**43}, 400),
        ("retention", {"retentionTimeInMinutes": 2**31, "retentionSizeInMB": 1}, 400),
        ("retention", [], 400),
        ("messageTTL", -1, 412),
        ("idleUnloadSeconds", -1, 412),
        ("idleUnloadSeconds", 0.5, 400),
        ("messageTTL", "60", 400),
        ("messageTTL", None, 400),
        ("deduplication", 1, 400),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "some"}, 406),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 406),
        (
            "autoTopicCreation",
            {
                "allowAutoTopicCreation": True,
                "topicType": "partitioned",
                "defaultNumPartitions": 10_001,
            },
            406,
        ),
        (
            "autoTopicCreation",
            {
                "allowAutoTopicCreation": True,
                "topicType": "non-partitioned",
                "defaultNumPartitions": 2,
            },
            406,
        ),
        ("persistence", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2}, 412),
        ("persistence", {"managedLedgerMaxMarkDeleteRate": -1.5}, 412),
        ("encryptionRequired", [1], 400),
        ("encryptionRequired", {"a": 1}, 400),
        ("encryptionRequired", "maybe", 400),
        ("inactiveTopicPolicies", {"maxInactiveDurationSeconds": -1}, 412),
        ("delayedDelivery", {"tickTime": -1}, 412),
        ("antiAffinity", " ", 412),
        ("subscriptionTypesEnabled", ["Sharing"], 400),
        ("schemaCompatibilityStrategy", "SOME", 400),
        ("offloadThreshold", -2, 412),
        ("offloadPolicies", {"a": "x" * 17_000}, 412),
        ("scalableTopicAutoScalePolicy", {"minSegments": 0}, 412),
        ("scalableTopicAutoScalePolicy", {"minSegments": 3, "maxSegments": 2}, 412),
        ("scalableTopicAutoScalePolicy", {"maxSegments": 0}, 412),
        ("scalableTopicAutoScalePolicy", {"maxDagDepth": -1}, 412),
        ("scalableTopicAutoScalePolicy", {"mergeWindowSeconds": -1}, 412),
        ("scalableTopicAutoScalePolicy", {"splitMsgRateInThreshold": 0}, 412),
        (
            "scalableTopicAutoScalePolicy",
            {"splitMsgRateInThreshold": 5, "mergeMsgRateInThreshold": 5.0},
            412,
        ),
        ("scalableTopicAutoScalePolicy", {"maxSegments": "4"}, 400),
        ("backlogQuota", {"limitSize": -2}, 412),
        ("backlogQuota?backlogQuotaType=some", {"limitSize": 2}, 412),
        ("backlogQuota", {"policy": "some"}, 400),
    ],
)
async def test_a_value_that_makes_no_sense_has_its_code_and_is_not_set(rest, name, value, status):
    before = await rest.get(AT)
    policy = next((each for each in POLICIES if each.name == name), None)
    method = "POST" if policy is None else policy.set_by

    answer = await rest.call(method, f"{AT}/{name}", json=value)

    assert (answer.status, bool(answer.reason)) == (status, True)
    assert await rest.get(AT) == before


async def test_backlog_quotas_are_two_and_do_not_touch_each_other(rest):
    size = {"limitSize": 10, "policy": "producer_exception"}
    age = {"limitTime": 5, "policy": "consumer_backlog_eviction"}
    await rest.call("POST", f"{AT}/backlogQuota?backlogQuotaType=destination_storage", json=size)
    await rest.call("POST", f"{AT}/backlogQuota?backlogQuotaType=message_age", json=age)

    both = (await rest.get(f"{AT}/backlogQuotaMap"))[1]
    await rest.call("DELETE", f"{AT}/backlogQuota?backlogQuotaType=message_age")
    one = (await rest.get(f"{AT}/backlogQuotaMap"))[1]
    await rest.call("DELETE", f"{AT}/backlogQuota")

    assert {kind: (q["limitSize"], q["limitTime"], q["policy"]) for kind, q in both.items()} == {
        "destination_storage": (10, -1, "producer_exception"),
        "message_age": (-1, 5, "consumer_backlog_eviction"),
    }
    assert set(one) == {"destination_storage"}
    assert await rest.get(f"{AT}/backlogQuotaMap") == (200, {})


async def test_a_backlog_must_fit_into_what_is_kept(rest):
    kept = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 1}
    await rest.call("POST", f"{AT}/retention", json=kept)

    fits = await rest.call("POST", f"{AT}/backlogQuota", json={"limitSize": 2**20 - 1})
    beyond = await rest.call("POST", f"{AT}/backlogQuota", json={"limitSize": 2**20})
    await rest.call("DELETE", f"{AT}/retention")
    await rest.call("POST", f"{AT}/backlogQuota", json={"limitSize": 2**20})
    less = await rest.call("POST", f"{AT}/retention", json=kept)

    assert (fits.status, beyond.status, less.status) == (204, 412, 412)


async def test_an_undefined_compatibility_is_unset(rest):
    path = f"{AT}/schemaCompatibilityStrategy"
    await rest.call("PUT", path, json="FULL")

    await rest.call("PUT", path, json="UNDEFINED")

    assert await rest.get(path) == (200, "UNDEFINED")
    assert await rest.get(f"{AT}/schemaAutoUpdateCompatibilityStrategy") == (200, "Full")


async def test_setting_the_same_again_changes_nothing(rest):
    await rest.call("POST", f"{AT}/messageTTL", json=5)
    set_once = []
    rest.shards.before = lambda request: set_once.append(request.WhichOneof("body"))

    again = await rest.call("POST", f"{AT}/messageTTL", json=5)

    assert (again.status, set_once) == (204, ["get"])
