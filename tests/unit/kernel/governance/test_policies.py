"""Policies as values: what makes sense, and which of three wins."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.permissions import SubscriptionAuthMode
from nextgen.kernel.governance.policies import (
    COUNT_MAX,
    FOR_EVER,
    NO_POLICIES,
    AntiAffinity,
    AutoCreation,
    BacklogAction,
    BacklogQuota,
    PlacementRules,
    Policies,
    PolicyLevel,
    Retention,
    SchemaCompatibility,
    check_policies,
    merge,
)
from nextgen.kernel.limits.cluster import (
    NAME_PART_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    STORED_INTEGER_MAX,
)
from nextgen.kernel.limits.placement import (
    PLACEMENT_NAMES_MAX,
    STORED_POLICIES_MAX,
    STORED_POLICY_NAME_BYTES_MAX,
)
from nextgen.kernel.limits.shadow import SHADOWS_PER_TOPIC_MAX
from tests.unit.kernel.governance.test_permissions import PERMISSIONS, SUBSCRIPTION_PERMISSIONS

NUMBERS = st.none() | st.integers(0, STORED_INTEGER_MAX)
FLAGS = st.none() | st.booleans()
NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=3, unique=True).map(tuple)
POLICIES = st.builds(
    Policies,
    retention=st.builds(Retention, NUMBERS, NUMBERS),
    message_ttl_ms=NUMBERS,
    backlog_quota=st.builds(BacklogQuota, NUMBERS, st.none() | st.sampled_from(BacklogAction)),
    auto_creation=st.builds(AutoCreation, FLAGS, FLAGS, st.none() | st.integers(1, 9)),
    deduplication=FLAGS,
    schema_compatibility=st.none() | st.sampled_from(SchemaCompatibility),
    schema_auto_update=FLAGS,
    topics_max=st.none() | st.integers(0, COUNT_MAX),
    placement=st.builds(
        PlacementRules,
        pinned_brokers=NAMES,
        excluded_brokers=NAMES,
        zones=NAMES,
        racks=NAMES,
        affinity_group=st.sampled_from(["", "g"]),
        anti_affinity=st.none() | st.sampled_from(AntiAffinity),
        units_per_broker_max=st.integers(0, 3),
    ),
    idle_time_ms=NUMBERS,
    capacity_share_percent=st.none() | st.integers(0, 100),
    shadow_topics=st.lists(
        st.sampled_from(["persistent://t/n/a", "persistent://t/n/b", "persistent://o/n/a"]),
        unique=True,
    ).map(tuple),
    shadow_backlog_keep=FLAGS,
    shadow_backlog_reset_entries=NUMBERS,
    permissions=PERMISSIONS,
    subscription_permissions=SUBSCRIPTION_PERMISSIONS,
    subscription_auth_mode=st.none() | st.sampled_from(SubscriptionAuthMode),
    stored=st.dictionaries(st.sampled_from(["persistence", "publishRate"]), st.just("1")).map(
        lambda stored: tuple(sorted(stored.items()))
    ),
)
GROUPS = ("retention", "backlog_quota", "auto_creation", "placement")
NOT_SAID = (None, (), "", 0)


def leaves(policies):
    """Return every field that can be said, by its path."""
    found = {}
    for field in fields(Policies):
        value = getattr(policies, field.name)
        if field.name in GROUPS:
            found |= {
                f"{field.name}.{each.name}": getattr(value, each.name) for each in fields(value)
            }
        elif field.name not in {"unknown", "stored", "permissions"}:
            found[field.name] = value
    return found


def is_said(path, value):
    """Only where 0 is no value of its own it is nothing said."""
    if path == "placement.units_per_broker_max":
        return value != 0
    return value is not None and value not in ((), "")


@given(tenant=POLICIES, namespace=POLICIES, topic=POLICIES)
def test_the_nearest_object_that_says_something_wins_field_by_field(tenant, namespace, topic):
    merged = leaves(merge(tenant, namespace, topic))

    for path, value in merged.items():
        said = [leaves(each)[path] for each in (topic, namespace, tenant)]
        expected = next((each for each in said if is_said(path, each)), said[-1])
        assert value == expected


@given(said=POLICIES)
def test_merging_nothing_changes_nothing(said):
    assert merge(said) == merge(NO_POLICIES, said) == merge(NO_POLICIES, NO_POLICIES, said) == said
    assert merge(said, said, said) == said


def test_what_is_not_known_is_merged_by_nobody():
    later = Policies(unknown=b"later")

    assert merge(later, later, later).unknown == b""
    assert merge(later) == NO_POLICIES


def test_stored_policies_are_merged_name_by_name():
    tenant = Policies(stored=(("a", "1"), ("b", "1")))
    namespace = Policies(stored=(("b", "2"), ("c", "2")))

    assert merge(tenant, namespace).stored == (("a", "1"), ("b", "2"), ("c", "2"))
    assert merge(tenant).stored == merge(NO_POLICIES, tenant).stored == tenant.stored


def stored_policies(count, name="policy-{}"):
    return Policies(stored=tuple((name.format(number), "1") for number in range(count)))


def test_stored_policies_max_are_accepted_and_one_more_refused():
    assert check_policies(stored_policies(STORED_POLICIES_MAX), PolicyLevel.NAMESPACE) is None
    refusal = check_policies(stored_policies(STORED_POLICIES_MAX + 1), PolicyLevel.NAMESPACE)
    assert refusal is not None
    assert refusal.code is RejectionCode.LIMIT_EXCEEDED


def test_stored_policy_name_bytes_max_are_accepted_and_one_more_or_none_refused():
    longest = "\u00e9" * (STORED_POLICY_NAME_BYTES_MAX // 2)

    assert check_policies(stored_policies(1, longest), PolicyLevel.TENANT) is None
    assert check_policies(stored_policies(1, longest + "a"), PolicyLevel.TENANT) is not None
    assert check_policies(stored_policies(1, ""), PolicyLevel.TENANT) is not None


def with_placement(**said):
    return Policies(placement=PlacementRules(**said))


TOO_MUCH = STORED_INTEGER_MAX + 1
LONG = "x" * NAME_PART_BYTES_MAX
MANY = tuple(f"b-{number}" for number in range(PLACEMENT_NAMES_MAX))


@pytest.mark.parametrize(
    ("policies", "field", "code"),
    [
        (Policies(retention=Retention(time_ms=-2)), "retention.time_ms", "LIMIT_EXCEEDED"),
        (Policies(retention=Retention(size_bytes=-2)), "retention.size_bytes", "LIMIT_EXCEEDED"),
        (Policies(message_ttl_ms=TOO_MUCH), "message_ttl_ms", "LIMIT_EXCEEDED"),
        (
            Policies(backlog_quota=BacklogQuota(size_bytes=TOO_MUCH)),
            "backlog_quota.size_bytes",
            "LIMIT_EXCEEDED",
        ),
        (Policies(topics_max=COUNT_MAX + 1), "topics_max", "LIMIT_EXCEEDED"),
        (Policies(idle_time_ms=TOO_MUCH), "idle_time_ms", "LIMIT_EXCEEDED"),
        (Policies(capacity_share_percent=101), "capacity_share_percent", "LIMIT_EXCEEDED"),
        (
            Policies(shadow_backlog_reset_entries=TOO_MUCH),
            "shadow_backlog_reset_entries",
            "LIMIT_EXCEEDED",
        ),
        (
            Policies(auto_creation=AutoCreation(default_partitions=0)),
            "auto_creation.default_partitions",
            "LIMIT_EXCEEDED",
        ),
        (
            Policies(auto_creation=AutoCreation(default_partitions=PARTITIONS_PER_TOPIC_MAX + 1)),
            "auto_creation.default_partitions",
            "LIMIT_EXCEEDED",
        ),
        (
            Policies(auto_creation=AutoCreation(is_partitioned=False, default_partitions=2)),
            "auto_creation.default_partitions",
            "NOT_ALLOWED",
        ),
        (
            with_placement(pinned_brokers=("a", "b"), excluded_brokers=("b",)),
            "placement.pinned_brokers",
            "NOT_ALLOWED",
        ),
        (with_placement(zones=("a", "a")), "placement.zones", "NOT_ALLOWED"),
        (with_placement(racks=(" a",)), "placement.racks", "NOT_ALLOWED"),
        (with_placement(racks=("",)), "placement.racks", "LIMIT_EXCEEDED"),
        (
            with_placement(excluded_brokers=(*MANY, "one-more")),
            "placement.excluded_brokers",
            "LIMIT_EXCEEDED",
        ),
        (with_placement(affinity_group=f"{LONG}x"), "placement.affinity_group", "LIMIT_EXCEEDED"),
        (with_placement(affinity_group="a\nb"), "placement.affinity_group", "NOT_ALLOWED"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_its_field(policies, field, code):
    refusal = check_policies(policies, PolicyLevel.NAMESPACE)

    assert refusal is not None
    assert refusal.message.startswith(field)
    assert refusal.code == RejectionCode(code)


@pytest.mark.parametrize(
    "policies",
    [
        NO_POLICIES,
        Policies(retention=Retention(FOR_EVER, FOR_EVER), message_ttl_ms=STORED_INTEGER_MAX),
        Policies(auto_creation=AutoCreation(True, True, PARTITIONS_PER_TOPIC_MAX)),
        with_placement(pinned_brokers=MANY, affinity_group=LONG),
        Policies(unknown=b"later"),
    ],
)
def test_what_makes_sense_is_accepted_up_to_every_limit(policies):
    assert check_policies(policies, PolicyLevel.NAMESPACE) is None


@pytest.mark.parametrize(
    ("policies", "field"),
    [
        (Policies(auto_creation=AutoCreation(is_allowed=True)), "auto_creation"),
        (Policies(topics_max=0), "topics_max"),
    ],
)
def test_what_is_about_topics_that_are_not_there_yet_cannot_be_said_of_one(policies, field):
    refusal = check_policies(policies, PolicyLevel.TOPIC)

    assert refusal is not None
    assert refusal.message.startswith(field)
    assert check_policies(policies, PolicyLevel.NAMESPACE) is None
    assert check_policies(policies, PolicyLevel.TENANT) is None


@pytest.mark.parametrize("level", [PolicyLevel.NAMESPACE, PolicyLevel.TOPIC])
def test_a_share_of_capacity_is_accepted_for_tenants_only(level):
    for percent in (0, 100):
        policies = Policies(capacity_share_percent=percent)
        assert check_policies(policies, PolicyLevel.TENANT) is None

        refusal = check_policies(policies, level)

        assert refusal is not None
        assert refusal.code == RejectionCode.NOT_ALLOWED
        assert refusal.message.startswith("capacity_share_percent")


def shadows(count):
    return Policies(
        shadow_topics=tuple(f"persistent://tenant/space/s-{number}" for number in range(count))
    )


def test_shadows_per_topic_max_are_accepted_and_one_more_refused():
    assert check_policies(shadows(SHADOWS_PER_TOPIC_MAX), PolicyLevel.TOPIC) is None

    refusal = check_policies(shadows(SHADOWS_PER_TOPIC_MAX + 1), PolicyLevel.TOPIC)

    assert refusal == Rejected(
        RejectionCode.LIMIT_EXCEEDED, "shadow_topics has 1001 names, at most 1000"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b/c",
        "persistent://t/n/",
        "persistent://t/n/" + "x" * 1_025,
        "short",
        "t/n/without-domain",
        "non-persistent://t/n/volatile",
        "topic://t/n/scalable",
        "PERSISTENT://t/n/not-canonical",
        "persistent://t/n/s-partition-0",
    ],
)
def test_a_shadow_is_listed_by_the_full_name_of_a_persistent_topic(text):
    refusal = check_policies(Policies(shadow_topics=(text,)), PolicyLevel.TOPIC)

    assert refusal is not None
    assert refusal.code is RejectionCode.NOT_ALLOWED
    assert refusal.message.startswith("shadow_topics")


def test_a_shadow_is_listed_once():
    twice = Policies(shadow_topics=("persistent://t/n/a", "persistent://t/n/a"))

    refusal = check_policies(twice, PolicyLevel.TOPIC)

    assert refusal == Rejected(
        RejectionCode.NOT_ALLOWED, "shadow_topics has 'persistent://t/n/a' twice"
    )


@pytest.mark.parametrize("level", [PolicyLevel.TENANT, PolicyLevel.NAMESPACE])
def test_shadows_are_listed_by_topics_only(level):
    refusal = check_policies(shadows(1), level)

    assert refusal is not None
    assert refusal.code is RejectionCode.NOT_ALLOWED
    assert refusal.message.startswith("shadow_topics")
    for rule in (Policies(shadow_backlog_keep=True), Policies(shadow_backlog_reset_entries=0)):
        assert check_policies(rule, level) is None


@given(said=POLICIES)
def test_checking_never_raises_and_ignores_what_is_not_known(said):
    for level in PolicyLevel:
        assert check_policies(said, level) == check_policies(replace(said, unknown=b"x"), level)
