"""Permissions as values: granting, revoking, adding up, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionPermission,
    check_permissions,
    check_subscription_permissions,
    granted,
    granted_subscription,
    in_order,
    permitted,
    role_problem,
    subscription_roles,
    union,
)
from nextgen.kernel.governance.policies import (
    Policies,
    PolicyLevel,
    SubscriptionAuthMode,
    check_policies,
    merge,
)
from nextgen.kernel.limits.inbound import ROLE_BYTES_MAX
from nextgen.kernel.limits.placement import (
    PERMISSIONS_PER_OBJECT_MAX,
    SUBSCRIPTION_PERMISSIONS_MAX,
)
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX

ROLES = st.sampled_from(["alice", "bob", "eve*", "*-app", "rôle", "two words"])
PERMISSIONS = st.dictionaries(ROLES, st.sets(st.sampled_from(AuthAction), min_size=1)).map(
    lambda found: tuple(Permission(role, in_order(found[role])) for role in sorted(found))
)
SUBSCRIPTION_PERMISSIONS = st.dictionaries(
    st.sampled_from(["s", "sub-1", "ß"]), st.sets(ROLES, min_size=1), max_size=3
).map(
    lambda found: tuple(
        SubscriptionPermission(name, tuple(sorted(found[name]))) for name in sorted(found)
    )
)


def plain(permissions):
    return {each.role: {*each.actions} for each in permissions}


@given(permissions=PERMISSIONS, role=ROLES, actions=st.sets(st.sampled_from(AuthAction)))
def test_a_grant_replaces_what_one_role_may_do(permissions, role, actions):
    after = granted(permissions, role, actions)

    assert permitted(after, role) == in_order(actions)
    expected = {**plain(permissions), role: actions}
    assert plain(after) == {role: held for role, held in expected.items() if held}
    assert check_permissions(after) is None
    assert [each.role for each in after] == sorted(plain(after))


@given(permissions=PERMISSIONS, role=ROLES)
def test_a_role_without_permission_is_permitted_nothing(permissions, role):
    assert permitted(granted(permissions, role, ()), role) == ()
    assert permitted((), role) == ()


@given(upper=PERMISSIONS, lower=PERMISSIONS)
def test_permissions_of_two_levels_add_up(upper, lower):
    both = plain(
        merge(namespace=Policies(permissions=lower), topic=Policies(permissions=upper)).permissions
    )

    for role in {*plain(upper), *plain(lower)}:
        assert both.pop(role) == plain(upper).get(role, set()) | plain(lower).get(role, set())
    assert not both
    assert union(upper, lower) == union(lower, upper)


@given(held=SUBSCRIPTION_PERMISSIONS, name=st.sampled_from(["s", "t"]), roles=st.sets(ROLES))
def test_a_grant_on_a_subscription_replaces_its_roles(held, name, roles):
    after = granted_subscription(held, name, roles)

    assert subscription_roles(after, name) == tuple(sorted(roles))
    for each in held:
        if each.subscription != name:
            assert subscription_roles(after, each.subscription) == each.roles
    assert check_subscription_permissions(after) is None


def permissions_of(count):
    return tuple(Permission(f"r{number:05d}", (AuthAction.CONSUME,)) for number in range(count))


def test_permissions_per_object_max_are_accepted_and_one_more_refused():
    assert check_permissions(permissions_of(PERMISSIONS_PER_OBJECT_MAX)) is None

    refusal = check_permissions(permissions_of(PERMISSIONS_PER_OBJECT_MAX + 1))

    assert refusal is not None
    assert refusal.code is RejectionCode.LIMIT_EXCEEDED
    assert refusal.message == "permissions has 4001 roles, at most 4000"


@pytest.mark.parametrize("subscriptions", [1, SUBSCRIPTION_PERMISSIONS_MAX])
def test_subscription_permissions_max_are_accepted_and_one_more_refused(subscriptions):
    def pairs(count):
        each = count // subscriptions
        found = [
            SubscriptionPermission(f"s{at:05d}", tuple(f"r{n}" for n in range(each)))
            for at in range(subscriptions)
        ]
        for extra in range(count % subscriptions):
            found.append(SubscriptionPermission(f"x{extra}", ("r",)))
        return tuple(found)

    assert check_subscription_permissions(pairs(SUBSCRIPTION_PERMISSIONS_MAX)) is None

    refusal = check_subscription_permissions(pairs(SUBSCRIPTION_PERMISSIONS_MAX + 1))

    assert refusal is not None
    assert refusal.code is RejectionCode.LIMIT_EXCEEDED
    assert refusal.message.startswith("subscription_permissions has 4001 roles")


def test_role_bytes_max_are_accepted_and_one_more_refused():
    assert role_problem("ö" * (ROLE_BYTES_MAX // 2)) == ""
    assert "more than 256" in role_problem("ö" * (ROLE_BYTES_MAX // 2) + "x")
    assert "more than 256" in role_problem("x" * (ROLE_BYTES_MAX + 1))


@pytest.mark.parametrize("role", ["", " r", "r ", "a\nb", "a\x00", "a\u200bb", "a\u2028b"])
def test_a_role_that_nobody_has_is_refused_with_the_field(role):
    refusals = (
        check_permissions((Permission(role, (AuthAction.PRODUCE,)),)),
        check_subscription_permissions((SubscriptionPermission("s", (role,)),)),
    )

    for refusal, field in zip(refusals, ("permissions", "subscription_permissions"), strict=True):
        assert refusal is not None
        assert refusal.code is RejectionCode.NOT_ALLOWED
        assert refusal.message.startswith(f"{field} has ")


def test_permissions_name_a_role_once_and_an_action():
    may = (AuthAction.PRODUCE,)

    twice = check_permissions((Permission("r", may), Permission("r", may)))
    nothing = check_permissions((Permission("r", ()),))

    assert twice is not None
    assert twice.message == "permissions has 'r' twice"
    assert nothing is not None
    assert nothing.message == "permissions has no action for 'r'"


@pytest.mark.parametrize(
    ("permissions", "complaint"),
    [
        ([("", ("r",))], "a name that is not 1 to"),
        ([("x" * (SUBSCRIPTION_NAME_BYTES_MAX + 1), ("r",))], "a name that is not 1 to"),
        ([("s", ())], "no role for 's'"),
        ([("s", ("r",)), ("s", ("q",))], "'s' twice"),
        ([("s", ("r", "r"))], "a role twice for 's'"),
    ],
)
def test_permissions_on_subscriptions_are_checked(permissions, complaint):
    refusal = check_subscription_permissions(
        tuple(SubscriptionPermission(*each) for each in permissions)
    )

    assert refusal is not None
    assert complaint in refusal.message


def test_the_longest_name_of_a_subscription_is_accepted():
    longest = SubscriptionPermission("x" * SUBSCRIPTION_NAME_BYTES_MAX, ("r",))

    assert check_subscription_permissions((longest,)) is None


@pytest.mark.parametrize(
    ("policies", "levels"),
    [
        (
            Policies(permissions=permissions_of(1)),
            {PolicyLevel.NAMESPACE, PolicyLevel.TOPIC},
        ),
        (
            Policies(subscription_permissions=(SubscriptionPermission("s", ("r",)),)),
            {PolicyLevel.NAMESPACE},
        ),
        (Policies(subscription_auth_mode=SubscriptionAuthMode.NONE), {PolicyLevel.NAMESPACE}),
    ],
)
def test_permissions_are_set_where_something_asks_for_them(policies, levels):
    nothing = Policies()
    field = next(
        name for name in Policies.__slots__ if getattr(policies, name) != getattr(nothing, name)
    )

    for level in PolicyLevel:
        refusal = check_policies(policies, level)
        if level in levels:
            assert refusal is None
        else:
            assert refusal is not None
            assert refusal.message.startswith(f"{field} cannot be set for a {level.value}")
