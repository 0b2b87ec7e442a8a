"""Policies of tenants, namespaces and topics: one rule for the three of them."""

from dataclasses import replace

import pytest

from nextgen.client.wire.policies import pack_policies
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    granted,
    granted_subscription,
)
from nextgen.kernel.governance.policies import NO_POLICIES, PlacementRules, Policies
from nextgen.kernel.limits.placement import (
    NAMESPACE_POLICIES_BYTES_MAX,
    PERMISSIONS_PER_OBJECT_MAX,
    PERMITTED_TOPIC_POLICIES_BYTES_MAX,
    POLICIES_BYTES_MAX,
)
from nextgen.kernel.limits.shadow import SOURCE_POLICIES_BYTES_MAX
from shards.domain import namespace, tenant, topic
from shards.domain.life import Life
from shards.domain.policies import NO_PACKED_POLICIES, SetPolicies

TIME_MS = 1_700_000_000_000
TENANT = tenant.Tenant("id-1", "x", (), 3, Life.ACTIVE)
NAMESPACE = namespace.Namespace("id-1", "x", "t-1", (), 3, Life.ACTIVE)
TOPIC = topic.Topic("id-1", "x", 0, 3, "ns-1", TIME_MS, ())

AGGREGATES = pytest.mark.parametrize(
    ("module", "state", "happened"),
    [
        pytest.param(tenant, TENANT, tenant.TenantPoliciesSet, id="tenant"),
        pytest.param(namespace, NAMESPACE, namespace.NamespacePoliciesSet, id="namespace"),
        pytest.param(topic, TOPIC, topic.TopicPoliciesSet, id="topic"),
    ],
)
PARENTS = pytest.mark.parametrize(
    ("module", "state"),
    [pytest.param(tenant, TENANT, id="tenant"), pytest.param(namespace, NAMESPACE, id="namespace")],
)


def order(said=NO_POLICIES, **condition):
    return SetPolicies("x", pack_policies(said), said, **condition)


ONE_MINUTE = order(Policies(message_ttl_ms=60_000))


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def after(module, state, *orders):
    for each in orders:
        decision = module.decide(state, each)
        assert isinstance(decision, Accepted), decision
        state = fold(module.evolve, state, decision.events)
    return state


@AGGREGATES
def test_setting_policies_moves_both_versions(module, state, happened):
    decision = module.decide(state, ONE_MINUTE)

    assert decision == Accepted((happened("x", "id-1", ONE_MINUTE.packed, 1),))
    assert fold(module.evolve, state, decision.events) == replace(
        state, policies=ONE_MINUTE.packed, policies_version=1, version=4
    )


@AGGREGATES
def test_clearing_policies_is_a_version_too(module, state, happened):
    said = after(module, state, ONE_MINUTE)

    decision = module.decide(said, order())

    assert decision == Accepted((happened("x", "id-1", NO_PACKED_POLICIES, 2),))
    assert fold(module.evolve, said, decision.events).policies_version == 2


@AGGREGATES
def test_a_repeated_order_makes_no_event(module, state, happened):
    said = after(module, state, ONE_MINUTE)

    assert module.decide(said, ONE_MINUTE) == Accepted(())
    assert module.decide(state, order()) == Accepted(())


@AGGREGATES
def test_a_stale_version_is_refused(module, state, happened):
    said = after(module, state, ONE_MINUTE, order(Policies(topics_max=None, message_ttl_ms=7)))

    for expected in (1, 3):
        stale = order(NO_POLICIES, expected_version=expected)
        assert code_of(module.decide(said, stale)) is RejectionCode.VERSION_MISMATCH
    assert after(module, said, order(expected_version=2)).policies_version == 3


@AGGREGATES
def test_of_many_that_expect_the_same_one_wins_even_if_all_say_the_same(module, state, happened):
    said = after(module, state, ONE_MINUTE)
    again = replace(ONE_MINUTE, expected_version=1)

    winner = after(module, said, again)

    assert winner.policies_version == 2
    assert code_of(module.decide(winner, again)) is RejectionCode.VERSION_MISMATCH


@AGGREGATES
def test_that_there_are_none_can_be_expected(module, state, happened):
    first = replace(ONE_MINUTE, expects_none=True)

    said = after(module, state, first)

    assert said.policies_version == 1
    assert code_of(module.decide(said, first)) is RejectionCode.VERSION_MISMATCH
    cleared = after(module, said, order())
    assert code_of(module.decide(cleared, first)) is RejectionCode.VERSION_MISMATCH


@AGGREGATES
def test_absent_objects_are_not_reported(module, state, happened):
    assert code_of(module.decide(None, ONE_MINUTE)) is RejectionCode.NOT_FOUND


@AGGREGATES
def test_contradicting_rules_are_refused_and_nothing_changes(module, state, happened):
    said = Policies(placement=PlacementRules(pinned_brokers=("b",), excluded_brokers=("b",)))

    decision = module.decide(state, order(said))

    assert code_of(decision) is RejectionCode.NOT_ALLOWED
    assert decision.message.startswith("placement.pinned_brokers")


@AGGREGATES
@pytest.mark.parametrize("excess", [0, 1])
def test_the_largest_policies_are_stored_and_larger_ones_refused(module, state, happened, excess):
    packed = b"\xa2\x06" + bytes(POLICIES_BYTES_MAX + excess - 2)
    large = replace(order(), packed=packed)

    decision = module.decide(state, large)

    if excess:
        assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED
    else:
        assert decision == Accepted((happened("x", "id-1", packed, 1),))


@pytest.mark.parametrize("excess", [0, 1])
def test_source_policies_bytes_max_are_stored_for_a_source_and_more_refused(excess):
    said = Policies(shadow_topics=("persistent://acme/orders/shadow",))
    packed = b"\xa2\x06" + bytes(SOURCE_POLICIES_BYTES_MAX + excess - 2)

    decision = topic.decide(TOPIC, replace(order(said), packed=packed))

    if excess:
        assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED
    else:
        assert isinstance(decision, Accepted)


A_ROLE = Policies(permissions=granted((), "app", [AuthAction.CONSUME]))
A_READER = Policies(subscription_permissions=granted_subscription((), "s", ["app"]))


@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("said", [A_ROLE, A_READER])
def test_namespace_policies_bytes_max_are_stored_for_one_that_permits(said, excess):
    packed = b"\xa2\x06" + bytes(NAMESPACE_POLICIES_BYTES_MAX + excess - 2)

    decision = namespace.decide(NAMESPACE, replace(order(said), packed=packed))

    if excess:
        assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED
        assert str(NAMESPACE_POLICIES_BYTES_MAX) in decision.message
    else:
        assert isinstance(decision, Accepted)


@pytest.mark.parametrize("excess", [0, 1])
def test_permitted_topic_policies_bytes_max_are_stored_for_one_that_permits(excess):
    packed = b"\xa2\x06" + bytes(PERMITTED_TOPIC_POLICIES_BYTES_MAX + excess - 2)

    decision = topic.decide(TOPIC, replace(order(A_ROLE), packed=packed))

    if excess:
        assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED
    else:
        assert isinstance(decision, Accepted)


def test_as_many_roles_as_are_allowed_fit_into_a_namespaces_policies():
    roles = [f"{number:05d}".ljust(53, "r") for number in range(PERMISSIONS_PER_OBJECT_MAX)]
    may = (AuthAction.PRODUCE, AuthAction.CONSUME)
    said = Policies(permissions=tuple(Permission(role, may) for role in roles))

    assert isinstance(namespace.decide(NAMESPACE, order(said)), Accepted)


@PARENTS
def test_what_is_being_deleted_keeps_its_policies(module, state):
    deleting = replace(state, life=Life.DELETING)

    assert code_of(module.decide(deleting, ONE_MINUTE)) is RejectionCode.NOT_ALLOWED


def test_what_is_created_again_has_none():
    created = tenant.TenantCreated("id-2", "x")
    said = after(tenant, TENANT, ONE_MINUTE)

    again = fold(tenant.evolve, said, [tenant.TenantDeleted("x", "id-1"), created])

    assert (again.policies, again.policies_version) == (NO_PACKED_POLICIES, 0)


NEW = namespace.CreateNamespace("id-1", "x", "t-1", (), ONE_MINUTE)


def test_a_namespace_is_created_with_its_policies_by_one_decision():
    decision = namespace.decide(None, NEW)

    assert decision == Accepted(
        (
            namespace.NamespaceCreated("id-1", "x", "t-1", ()),
            namespace.NamespacePoliciesSet("x", "id-1", ONE_MINUTE.packed, 1),
        )
    )
    made = fold(namespace.evolve, None, decision.events)
    assert (made.policies, made.policies_version, made.version) == (ONE_MINUTE.packed, 1, 2)


def test_a_namespace_whose_policies_are_refused_is_not_created():
    refused = replace(NEW, policies=order(Policies(message_ttl_ms=2**63)))

    assert code_of(namespace.decide(None, refused)) is RejectionCode.LIMIT_EXCEEDED


def test_a_namespace_that_is_there_keeps_its_policies_when_it_is_created_again():
    assert namespace.decide(NAMESPACE, NEW) == Accepted(())
    other = replace(NEW, namespace_id="id-2")
    assert code_of(namespace.decide(NAMESPACE, other)) is RejectionCode.ALREADY_EXISTS


def test_a_namespace_created_with_empty_policies_has_none():
    decision = namespace.decide(None, replace(NEW, policies=order()))

    assert decision == Accepted((namespace.NamespaceCreated("id-1", "x", "t-1", ()),))
