"""Fields of policies as they are typed."""

import json

import pytest

from nextgen.cli.topics.policy_fields import explicit_fields, field_paths, set_field, unset_field
from nextgen.kernel.errors import InvalidRequest
from protos.nextgen.v1.policies_pb2 import (
    SCHEMA_COMPATIBILITY_FULL,
    BacklogQuota,
    Permission,
    PlacementRules,
    Policies,
    RetentionPolicy,
    SubscriptionPermission,
)


def policies_with(*assignments):
    policies = Policies()
    for assignment in assignments:
        set_field(policies, assignment)
    return policies


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("retention.time_ms=-1", Policies(retention=RetentionPolicy(time_ms=-1))),
        ("message_ttl_ms=0", Policies(message_ttl_ms=0)),
        ("deduplication=False", Policies(deduplication=False)),
        ("schema_compatibility=full", Policies(schema_compatibility=SCHEMA_COMPATIBILITY_FULL)),
        (
            "backlog_quota.action=PRODUCER_EXCEPTION",
            Policies(backlog_quota=BacklogQuota(action=2)),
        ),
        (
            "placement.pinned_brokers=b-1, b-2",
            Policies(placement=PlacementRules(pinned_brokers=["b-1", "b-2"])),
        ),
        ("placement.affinity_group=g=1", Policies(placement=PlacementRules(affinity_group="g=1"))),
        ("placement.anti_affinity=zone", Policies(placement=PlacementRules(anti_affinity=3))),
    ],
)
def test_a_field_is_set_by_its_path(assignment, expected):
    assert policies_with(assignment) == expected


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ("message_ttl_ms", "is not FIELD=VALUE"),
        ("ttl=5", "have no field"),
        ("retention=5", "have no field"),
        ("retention.days=5", "have no field"),
        ("message_ttl_ms.x=5", "have no field"),
        ("message_ttl_ms=-1", "number in range"),
        ("message_ttl_ms=soon", "number in range"),
        ("topics_max=4294967296", "number in range"),
        ("deduplication=1", "true or false"),
        ("schema_compatibility=unspecified", "it may be"),
        ("schema_compatibility=99", "it may be"),
    ],
)
def test_a_field_that_cannot_be_set_is_named(assignment, why):
    with pytest.raises(InvalidRequest, match=why):
        policies_with(assignment)


def test_a_field_or_a_group_is_unset():
    policies = policies_with("retention.time_ms=1", "retention.size_bytes=2", "topics_max=3")

    unset_field(policies, "retention.size_bytes")
    assert explicit_fields(policies) == [("retention.time_ms", "1"), ("topics_max", "3")]
    unset_field(policies, "retention")
    assert explicit_fields(policies) == [("topics_max", "3")]


def test_a_list_is_replaced():
    policies = policies_with("placement.zones=a,b", "placement.zones=c")

    assert explicit_fields(policies) == [("placement.zones", "c")]


def test_what_is_said_can_be_typed_again():
    policies = policies_with(
        "retention.time_ms=-1",
        "backlog_quota.action=consumer_backlog_eviction",
        "deduplication=true",
        "schema_compatibility=forward_transitive",
        "placement.racks=r-1,r-2",
        "placement.anti_affinity=broker",
        "placement.units_per_broker_max=3",
    )

    again = policies_with(*(f"{path}={value}" for path, value in explicit_fields(policies)))

    assert again == policies


def test_permissions_are_shown_by_role_and_subscription_and_typed_elsewhere():
    policies = Policies(
        permissions=[Permission(role="app", actions=[1, 2, 99])],
        subscription_permissions=[SubscriptionPermission(subscription="s", roles=["a", "b"])],
    )

    assert explicit_fields(policies) == [
        ("permissions.app", "produce,consume,99"),
        ("subscription_permissions.s", "a,b"),
    ]
    assert not [path for path in field_paths() if "permission" in path]
    for path in ("permissions", "permissions.role", "permissions.app"):
        with pytest.raises(InvalidRequest):
            set_field(policies, f"{path}=produce")


def test_every_leaf_of_the_contract_can_be_typed():
    paths = field_paths()

    assert {"idle_time_ms", "auto_creation.default_partitions", "placement.zones"} <= set(paths)
    assert not {"retention", "placement"} & set(paths)


def test_a_stored_policy_is_set_shown_and_unset_by_its_name():
    policies = policies_with('stored.persistence={"a":1,"b":2}', "stored.antiAffinity=null")

    assert explicit_fields(policies) == [
        ("stored.antiAffinity", "null"),
        ("stored.persistence", '{"a":1,"b":2}'),
    ]
    unset_field(policies, "stored.persistence")
    assert dict(policies.stored) == {"antiAffinity": "null"}
    unset_field(policies, "stored")
    assert not policies.stored


def test_fields_of_the_policy_of_splits_and_merges_are_set_one_by_one():
    policies = policies_with(
        "auto_scale.maxSegments=8", "auto_scale.enabled=False", "auto_scale.maxSegments=9"
    )
    name = "scalableTopicAutoScalePolicy"
    assert json.loads(policies.stored[name]) == {"enabled": False, "maxSegments": 9}

    unset_field(policies, "auto_scale.enabled")
    assert json.loads(policies.stored[name]) == {"maxSegments": 9}
    unset_field(policies, "auto_scale.maxSegments")
    assert policies == Policies()


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ("auto_scale.segments=3", "none of enabled, maxSegments"),
        ("auto_scale.minSegments=0", r"auto_scale\.minSegments is 0, at least 1"),
        ("auto_scale.minSegments=many", "no number"),
        ("auto_scale.enabled=1", "neither true nor false"),
        ("auto_scale.splitMsgRateInThreshold=NaN", "no number"),
    ],
)
def test_absurd_fields_of_it_are_refused_as_they_are_typed(assignment, why):
    with pytest.raises(InvalidRequest, match=why):
        policies_with(assignment)


def test_limits_of_clients_are_set_one_by_one():
    policies = policies_with(
        "limits.publishRate.publishThrottlingRateInMsg=100",
        "limits.publishRate.publishThrottlingRateInByte=5000",
        "limits.maxProducersPerTopic=7",
        "limits.dispatchRate.relativeToPublishRate=True",
        "limits.tenantLimits.maxConnections=9",
    )

    assert json.loads(policies.stored["publishRate"]) == {
        "publishThrottlingRateInMsg": 100,
        "publishThrottlingRateInByte": 5000,
    }
    assert policies.stored["maxProducersPerTopic"] == "7"
    assert json.loads(policies.stored["dispatchRate"]) == {"relativeToPublishRate": True}
    assert json.loads(policies.stored["tenantLimits"]) == {"maxConnections": 9}

    unset_field(policies, "limits.publishRate.publishThrottlingRateInMsg")
    assert json.loads(policies.stored["publishRate"]) == {"publishThrottlingRateInByte": 5000}
    unset_field(policies, "limits.publishRate.publishThrottlingRateInByte")
    unset_field(policies, "limits.maxProducersPerTopic")
    unset_field(policies, "limits.tenantLimits")
    assert set(policies.stored) == {"dispatchRate"}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("limits.publishRates=3", "is followed by publishRate, dispatchRate"),
        ("limits.publishRate=3", "FIELD one of publishThrottlingRateInMsg"),
        ("limits.publishRate.rate=3", "FIELD one of publishThrottlingRateInMsg"),
        ("limits.maxProducersPerTopic.x=3", "is not limits.maxProducersPerTopic"),
        ("limits.maxProducersPerTopic=-1", "maxProducersPerTopic is not 0 to"),
        ("limits.maxProducersPerTopic=null", "maxProducersPerTopic is no whole number"),
        ("limits.maxProducersPerTopic=many", "is 'many', no number"),
        ("limits.publishRate.publishThrottlingRateInMsg=-2", "InMsg is not -1 to"),
        ("limits.dispatchRate.ratePeriodInSecond=0", "ratePeriodInSecond is not 1 to 86400"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(assignment, message):
    with pytest.raises(InvalidRequest, match=message):
        policies_with(assignment)
