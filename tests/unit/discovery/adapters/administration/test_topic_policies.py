"""Policies of single topics: every row of the table is set, read and removed."""

import json

import pytest

from discovery.adapters.administration.topic_policies import TOPIC_POLICIES
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.placement import STORED_POLICIES_MAX, STORED_POLICY_NAME_BYTES_MAX
from nextgen.pulsar.policies.policy_table import POLICIES, UNSET
from nextgen.pulsar.policies.policy_values import IDLE_UNLOAD as IDLE
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from tests.support.discovery.policy_samples import sample
from tests.support.discovery.rest_world import rest_world

NAMESPACE = "/admin/v2/namespaces/acme/orders"
AT = "/admin/v2/persistent/acme/orders/plain"
NAME = "persistent://acme/orders/plain"
RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


@pytest.fixture
async def rest():
    async with rest_world() as world:
        await world.world.create_tenant("acme")
        await world.world.create_namespace("acme/orders")
        await world.call("PUT", AT)
        await world.call("PUT", "/admin/v2/persistent/acme/orders/parted/partitions", json=2)
        yield world


async def put(rest, policy, value, at=AT):
    """Set a policy as Java's library does."""
    path = f"{at}/{policy.name}"
    if policy.is_in_query:
        headers = {"Content-Type": "application/json"}
        done = await rest.call("POST", f"{path}?{policy.name}={value}", data="", headers=headers)
    elif policy.set_without_body is not UNSET:
        done = await rest.call(policy.set_by, path)
    else:
        done = await rest.call(policy.set_by, path, json=value)
    return done.status


async def read(rest, path):
    answer = await rest.call("GET", path)
    if answer.status == 204:
        return UNSET
    assert answer.status == 200, (path, answer.body)
    return json.loads(answer.body)


async def test_every_policy_of_a_topic_is_set_read_and_removed(rest):
    for policy in TOPIC_POLICIES:
        path, value = f"{AT}/{policy.name}", sample(policy)
        before = await read(rest, path)

        assert await put(rest, policy, value) == 204, policy.name
        after = await read(rest, path)
        removed = await rest.call("DELETE", path)

        assert (before, after) == (policy.unset, value), policy.name
        if policy.removed_at is None:
            assert removed.status == 405, policy.name
            assert await put(rest, policy, policy.unset) == 204, policy.name
        else:
            assert removed.status == 204, policy.name
        assert await read(rest, path) == policy.unset, policy.name


async def test_applied_reads_the_namespaces_value_where_the_topic_has_none(rest):
    of_namespaces = {policy.name: policy for policy in POLICIES}
    for policy in TOPIC_POLICIES:
        above = of_namespaces.get(policy.stored_as)
        if above is None:
            continue
        path, value = f"{AT}/{policy.name}", sample(policy)
        if above.set_without_body is UNSET:
            set_above = await rest.call(above.set_by, f"{NAMESPACE}/{above.name}", json=value)
        else:
            set_above = await rest.call(above.set_by, f"{NAMESPACE}/{above.name}")

        assert set_above.status == 204, policy.name
        assert await read(rest, path) == policy.unset, policy.name
        assert await read(rest, f"{path}?applied=false") == policy.unset, policy.name
        assert await read(rest, f"{path}?applied=true") == value, policy.name


async def test_a_topics_value_wins_over_its_namespaces(rest):
    await rest.call("POST", f"{NAMESPACE}/messageTTL", json=60)
    await rest.call("POST", f"{NAMESPACE}/maxProducersPerTopic", json=3)
    await rest.call("POST", f"{AT}/messageTTL?messageTTL=10")
    await rest.call("POST", f"{AT}/maxProducers", json=7)

    assert await read(rest, f"{AT}/messageTTL?applied=true") == 10
    assert await read(rest, f"{AT}/maxProducers?applied=true") == 7
    assert await read(rest, f"{NAMESPACE}/messageTTL") == 60


async def test_enforced_policies_of_a_topic_get_fields_of_their_own(rest):
    kept = {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}
    quota = {"limitSize": 5, "policy": "consumer_backlog_eviction"}
    await rest.call("POST", f"{AT}/retention", json=kept)
    await rest.call("POST", f"{AT}/messageTTL?messageTTL=60")
    await rest.call("POST", f"{AT}/deduplicationEnabled", json=False)
    await rest.call("PUT", f"{AT}/schemaCompatibilityStrategy", json="FORWARD")
    await rest.call("POST", f"{AT}/backlogQuota", json=quota)

    wanted = pb.GetRequest(names=[pb.ObjectName(kind=KIND_TOPIC, name=NAME)])
    found = await rest.world.home_of_topic(NAME).reader.get(wanted)
    assert found.items[0].topic.policies == policies_pb2.Policies(
        retention=policies_pb2.RetentionPolicy(time_ms=600_000, size_bytes=-1),
        message_ttl_ms=60_000,
        deduplication=False,
        schema_compatibility=policies_pb2.SCHEMA_COMPATIBILITY_FORWARD,
        backlog_quota=policies_pb2.BacklogQuota(
            size_bytes=5, action=policies_pb2.BacklogQuota.ACTION_CONSUMER_BACKLOG_EVICTION
        ),
    )


async def test_all_policies_fit_into_one_topic(rest):
    for policy in TOPIC_POLICIES:
        assert await put(rest, policy, sample(policy)) == 204, policy.name

    stored = [policy for policy in TOPIC_POLICIES if policy.enforced is None]
    assert len(stored) < STORED_POLICIES_MAX
    assert max(len(policy.stored_as) for policy in stored) <= STORED_POLICY_NAME_BYTES_MAX
    assert len({policy.name for policy in TOPIC_POLICIES}) == len(TOPIC_POLICIES)


async def test_a_partition_has_no_policies_and_neither_has_an_absent_topic(rest):
    at = "/admin/v2/persistent/acme/orders"
    for name in ("retention", "backlogQuotaMap", "sub/dispatchRate"):
        of_partition = await rest.call("GET", f"{at}/parted-partition-0/{name}")
        of_absent = await rest.call("GET", f"{at}/absent/{name}")
        of_whole = await rest.call("GET", f"{at}/parted/{name}")

        assert (of_partition.status, of_absent.status) == (405, 404), name
        assert of_whole.status in (200, 204), name


REFUSED = [
    ("POST", "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, 412),
    ("POST", "messageTTL?messageTTL=-1", None, 412),
    ("POST", "messageTTL?messageTTL=ten", None, 400),
    ("POST", "messageTTL", 60, 400),
    ("POST", "maxMessageSize", -1, 412),
    ("POST", "maxProducers", "3", 400),
    ("PUT", "schemaCompatibilityStrategy", "SOME", 400),
    ("POST", "replication", ["elsewhere"], 403),
    ("POST", "replication", [], 400),
    ("POST", "backlogQuota", {"limitSize": -2}, 412),
    ("POST", "sub/dispatchRate", {"ratePeriodInSecond": "1"}, 400),
]


async def test_a_topics_value_that_makes_no_sense_has_its_code(rest):
    for method, path, value, status in REFUSED:
        answer = await rest.call(method, f"{AT}/{path}", json=value)

        assert (path, answer.status, bool(answer.reason)) == (path, status, True)


async def test_an_undefined_compatibility_is_none(rest):
    path = f"{AT}/schemaCompatibilityStrategy"
    await rest.call("PUT", path, json="FORWARD")

    done = await rest.call("PUT", path, json="UNDEFINED")

    assert (done.status, await read(rest, path)) == (204, UNSET)


async def test_quotas_of_a_topic_are_its_own_unless_applied_is_wanted(rest):
    size = {"limitSize": 10, "policy": "producer_exception"}
    age = {"limitTime": 5, "policy": "producer_exception"}
    await rest.call("POST", f"{NAMESPACE}/backlogQuota", json=size)
    await rest.call("POST", f"{AT}/backlogQuota?backlogQuotaType=message_age", json=age)

    own = await read(rest, f"{AT}/backlogQuotaMap")
    applied = await read(rest, f"{AT}/backlogQuotaMap?applied=true")
    await rest.call("DELETE", f"{AT}/backlogQuota?backlogQuotaType=message_age")

    assert set(own) == {"message_age"}
    assert {kind: quota["limitSize"] for kind, quota in applied.items()} == {
        "destination_storage": 10,
        "message_age": -1,
    }
    assert await read(rest, f"{AT}/backlogQuotaMap") == {}


async def test_a_topic_is_in_this_cluster_only(rest):
    assert (await rest.call("POST", f"{AT}/replication", json=["local"])).status == 204
    assert await read(rest, f"{AT}/replication") == ["local"]
    assert (await rest.call("DELETE", f"{AT}/replication")).status == 204
    assert await read(rest, f"{AT}/replication") is UNSET


async def test_single_subscriptions_have_rates_before_that_of_all(rest):
    of_all = {**RATE, "dispatchThrottlingRateInMsg": 9}
    await rest.call("POST", f"{AT}/subscriptionDispatchRate", json=of_all)
    for name in ("a", "b%2Fc"):
        done = await rest.call("POST", f"{AT}/{name}/dispatchRate", json=RATE)
        assert done.status == 204

    assert await read(rest, f"{AT}/a/dispatchRate") == RATE
    assert await read(rest, f"{AT}/other/dispatchRate") is UNSET
    assert await read(rest, f"{AT}/other/dispatchRate?applied=true") == of_all
    assert (await rest.call("DELETE", f"{AT}/a/dispatchRate")).status == 204
    assert (await rest.call("DELETE", f"{AT}/a/dispatchRate")).status == 204
    assert await read(rest, f"{AT}/a/dispatchRate") is UNSET
    assert await read(rest, f"{AT}/b%2Fc/dispatchRate") == RATE


async def test_a_topics_idle_time_wins_over_its_namespaces_and_is_the_policy_of_grpc(rest):
    await rest.call("POST", f"{NAMESPACE}/idleUnloadSeconds", json=60)
    assert await read(rest, f"{AT}/idleUnloadSeconds?applied=true") == 60
    await rest.call("POST", f"{AT}/idleUnloadSeconds", json=0)

    assert await read(rest, f"{AT}/idleUnloadSeconds?applied=true") == 0, "never"
    assert await read(rest, f"{NAMESPACE}/idleUnloadSeconds") == 60
    assert IDLE.read(IDLE.write(NO_POLICIES, 60)) == 60
    assert IDLE.write(NO_POLICIES, 60).idle_time_ms == 60_000
    assert IDLE.read(Policies(idle_time_ms=1)) == 1, "rounded up"
