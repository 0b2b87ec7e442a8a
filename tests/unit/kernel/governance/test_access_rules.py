"""The rules of access: laws that hold for any facts, and the table in the documentation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.governance.access_rules import (
    NEEDS,
    NO_FACTS,
    NOTHING,
    AccessFacts,
    AccessRules,
    Need,
    matches,
    may,
    needs,
)
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionAuthMode,
    SubscriptionPermission,
    granted,
)
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from tests.support.permissions.cases import PAGE, allowed, page_with_table

ROLES = st.sampled_from(["ada", "adam", "bob", "root", "gate"])
PATTERNS = st.one_of(ROLES, st.sampled_from(["*", "ad*", "*a", "b*", "*t", "ada*"]))
KINDS, ACTIONS = st.sampled_from(list(ResourceKind)), st.sampled_from(list(Action))
AUTH_ACTIONS = st.sets(st.sampled_from(list(AuthAction)), min_size=1)
SUBSCRIPTIONS = st.sampled_from(["", "audit", "ada-1", "adam-1", "x"])
SUPERUSERS = AccessRules(frozenset({"root"}))


@st.composite
def policies(draw):
    permissions = ()
    for role, actions in draw(st.dictionaries(PATTERNS, AUTH_ACTIONS, max_size=4)).items():
        permissions = granted(permissions, role, actions)
    kept = draw(st.dictionaries(st.just("audit"), st.sets(ROLES, min_size=1), max_size=1))
    return Policies(
        permissions=permissions,
        subscription_permissions=tuple(
            SubscriptionPermission(name, tuple(sorted(roles))) for name, roles in kept.items()
        ),
        subscription_auth_mode=draw(st.sampled_from([None, *SubscriptionAuthMode])),
    )


FACTS = st.builds(
    AccessFacts,
    admins=st.none() | st.frozensets(ROLES, max_size=2),
    namespace=st.none() | policies(),
    topic=st.none() | policies(),
)
RULES = st.builds(AccessRules, st.frozensets(ROLES, max_size=2), st.booleans())


def known(facts):
    """Return ``facts`` with nothing where they say nothing."""
    return AccessFacts(
        facts.admins or frozenset(), facts.namespace or NO_POLICIES, facts.topic or NO_POLICIES
    )


@given(KINDS, ACTIONS, FACTS, SUBSCRIPTIONS)
def test_a_superuser_may_do_everything(kind, action, facts, subscription):
    assert may(SUPERUSERS, ["root"], action, kind, facts, subscription) is True


@given(KINDS, ACTIONS, ROLES.filter(lambda role: role != "root"), SUBSCRIPTIONS)
def test_nothing_granted_is_nothing_allowed(kind, action, role, subscription):
    expected = (kind, action) == (ResourceKind.CLUSTER, Action.CONNECT)
    assert may(SUPERUSERS, [role], action, kind, NOTHING, subscription) is expected


@given(RULES, FACTS, KINDS, ACTIONS, SUBSCRIPTIONS)
def test_nobody_without_a_role_may_do_anything(rules, facts, kind, action, subscription):
    for roles in ([], [""], ["root", ""]):
        assert may(rules, roles, action, kind, facts, subscription) is False


@given(RULES, FACTS.map(known), ROLES, KINDS, ACTIONS, SUBSCRIPTIONS, PATTERNS, AUTH_ACTIONS)
def test_a_grant_takes_nothing_from_anybody(
    rules, facts, role, kind, action, subscription, to, actions
):
    def may_with(more):
        return may(rules, [role], action, kind, more, subscription)

    def more(of):
        had = next((each.actions for each in of.permissions if each.role == to), ())
        return replace(of, permissions=granted(of.permissions, to, {*had, *actions}))

    before = may_with(facts)
    for after in (
        replace(facts, namespace=more(facts.namespace)),
        replace(facts, topic=more(facts.topic)),
        replace(facts, admins=facts.admins | {to}),
    ):
        assert may_with(after) or not before


@given(RULES, FACTS, st.lists(ROLES, min_size=2, max_size=2), KINDS, ACTIONS, SUBSCRIPTIONS)
def test_behind_a_proxy_both_roles_must_be_allowed(rules, facts, roles, kind, action, subscription):
    alone = [may(rules, [role], action, kind, facts, subscription) for role in roles]
    both = may(rules, roles, action, kind, facts, subscription)
    assert both is (False if False in alone else None if None in alone else True)


@given(RULES, FACTS, ROLES, KINDS, ACTIONS, SUBSCRIPTIONS, FACTS.map(known))
def test_what_is_learned_later_never_changes_an_answer(
    rules, facts, role, kind, action, subscription, later
):
    whole = AccessFacts(
        later.admins if facts.admins is None else facts.admins,
        later.namespace if facts.namespace is None else facts.namespace,
        later.topic if facts.topic is None else facts.topic,
    )
    answer = may(rules, [role], action, kind, facts, subscription)
    final = may(rules, [role], action, kind, whole, subscription)
    assert final is not None
    assert answer in (None, final)


@given(FACTS.map(known), ROLES, KINDS, ACTIONS, SUBSCRIPTIONS)
def test_without_wildcards_only_the_role_itself_counts(facts, role, kind, action, subscription):
    def only(of):
        return replace(of, permissions=tuple(each for each in of.permissions if each.role == role))

    own = replace(facts, namespace=only(facts.namespace), topic=only(facts.topic))
    rules = AccessRules()
    assert may(rules, [role], action, kind, facts, subscription) is may(
        rules, [role], action, kind, own, subscription
    )


@pytest.mark.parametrize(
    ("pattern", "role", "is_match"),
    [
        ("ad*", "ada", True),
        ("ad*", "bad", False),
        ("*da", "ada", True),
        ("*da", "adam", False),
        ("*", "anybody", True),
        ("ada", "ada", False),
        ("a*a", "ada", False),
    ],
)
def test_a_wildcard_stands_at_one_end(pattern, role, is_match):
    assert matches(pattern, role) is is_match


def test_wildcards_count_for_namespaces_and_topics_where_they_are_allowed():
    given_by_pattern = Policies(permissions=(Permission("ad*", (AuthAction.PRODUCE,)),))
    for facts in (
        AccessFacts(frozenset(), given_by_pattern, NO_POLICIES),
        AccessFacts(frozenset(), NO_POLICIES, given_by_pattern),
    ):
        for wildcards in (True, False):
            rules = AccessRules(wildcards=wildcards)
            question = (Action.PRODUCE, ResourceKind.TOPIC, facts)
            assert may(rules, ["ada"], *question) is wildcards
            assert may(rules, ["bob"], *question) is False
            assert may(rules, ["ada"], Action.CONSUME, ResourceKind.TOPIC, facts) is False


@pytest.mark.parametrize(
    ("mode", "kept_for", "subscription", "expected"),
    [
        (None, (), "any", True),
        (SubscriptionAuthMode.NONE, (), "any", True),
        (SubscriptionAuthMode.PREFIX, (), "any", False),
        (SubscriptionAuthMode.PREFIX, (), "ada-1", True),
        (SubscriptionAuthMode.PREFIX, ("ada",), "audit", False),
        (None, ("bob",), "audit", False),
        (None, ("ada", "bob"), "audit", True),
        (None, ("bob",), "other", True),
    ],
)
@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_who_may_use_a_subscription(level, mode, kept_for, subscription, expected):
    consume = (Permission("ada", (AuthAction.CONSUME,)),)
    namespace = Policies(
        permissions=consume if level == "namespace" else (),
        subscription_permissions=(SubscriptionPermission("audit", kept_for),) if kept_for else (),
        subscription_auth_mode=mode,
    )
    topic = Policies(permissions=consume if level == "topic" else ())
    facts = AccessFacts(frozenset(), namespace, topic)
    rules = AccessRules()
    question = (Action.CONSUME, ResourceKind.TOPIC)
    assert may(rules, ["ada"], *question, facts, subscription) is expected
    assert may(rules, ["ada"], *question, replace(facts, admins=frozenset({"ada"})), subscription)
    assert may(rules, ["ada"], Action.LOOK_UP, ResourceKind.TOPIC, facts) is True


def test_a_topics_own_grants_do_not_list_its_namespace():
    consume = Policies(permissions=(Permission("ada", (AuthAction.CONSUME,)),))
    facts = AccessFacts(frozenset(), NO_POLICIES, consume)
    assert may(AccessRules(), ["ada"], Action.LIST, ResourceKind.NAMESPACE, facts) is False


def test_what_the_table_does_not_name_is_for_superusers():
    for kind in ResourceKind:
        for action in Action:
            if (kind, action) not in NEEDS:
                assert needs(kind, action) is Need.SUPERUSER
                assert allowed(kind, action) == []


def test_what_roles_decide_alone_needs_no_facts():
    rules = AccessRules()
    for action in Action:
        answer = may(rules, ["ada"], action, ResourceKind.CLUSTER, NO_FACTS)
        assert answer is (action is Action.CONNECT)
    assert may(rules, ["ada"], Action.PRODUCE, ResourceKind.TOPIC, NO_FACTS) is None


def test_the_documented_table_is_what_the_rules_say():
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_table(page), (
        "write it: python -m tests.support.permissions.cases --write"
    )
