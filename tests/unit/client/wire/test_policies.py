"""Policies survive the way to the wire and back, also what this release does not know."""

import pytest
from hypothesis import given

from nextgen.client.wire.policies import (
    ACTIONS,
    ANTI_AFFINITIES,
    AUTH_ACTIONS,
    AUTH_MODES,
    COMPATIBILITIES,
    pack_policies,
    policies_from_proto,
    policies_to_proto,
    unknown_choice,
    unpack_policies,
)
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionAuthMode,
    granted,
)
from nextgen.kernel.governance.policies import (
    NO_POLICIES,
    AntiAffinity,
    BacklogAction,
    PlacementRules,
    Policies,
    PolicyLevel,
    SchemaCompatibility,
    check_policies,
)
from nextgen.kernel.limits.placement import PERMISSIONS_UNPACKED_MAX, POLICIES_BYTES_MAX
from protos.nextgen.v1 import policies_pb2 as pb
from tests.unit.kernel.governance.test_policies import POLICIES

LATER_FIELD = b"\xa2\x06\x05later"  # Field 100, text.
LATER_IN_RETENTION = b"\x0a\x08\xa2\x06\x05later"


@given(said=POLICIES)
def test_policies_are_the_same_behind_the_wire(said):
    assert policies_from_proto(policies_to_proto(said)) == said
    assert unpack_policies(pack_policies(said)) == said


def test_every_choice_has_its_number():
    assert set(ACTIONS.values()) == set(BacklogAction)
    assert set(COMPATIBILITIES.values()) == set(SchemaCompatibility)
    assert set(ANTI_AFFINITIES.values()) == set(AntiAffinity)
    assert set(AUTH_ACTIONS.values()) == set(AuthAction)
    assert set(AUTH_MODES.values()) == set(SubscriptionAuthMode)
    numbers = set(pb.BacklogQuota.Action.values()) - {0}
    assert set(ACTIONS) == numbers
    assert set(ANTI_AFFINITIES) == set(pb.PlacementRules.AntiAffinity.values()) - {0}


@pytest.mark.parametrize(
    "stored",
    [
        LATER_FIELD,
        LATER_IN_RETENTION,
        pb.Policies(message_ttl_ms=5).SerializeToString() + LATER_FIELD,
        pb.Policies(backlog_quota=pb.BacklogQuota(size_bytes=1, action=77)).SerializeToString(),
        pb.Policies(schema_compatibility=99, topics_max=3).SerializeToString(),
        pb.Policies(placement=pb.PlacementRules(zones=["z"], anti_affinity=9)).SerializeToString(),
        pb.Policies(subscription_auth_mode=9, topics_max=3).SerializeToString(),
    ],
)
def test_what_a_later_release_said_comes_back(stored):
    message = pb.Policies.FromString(stored)

    said = policies_from_proto(message)

    assert said.unknown
    assert policies_to_proto(said) == message
    assert pb.Policies.FromString(pack_policies(said)) == message


def test_what_is_known_is_not_kept_twice():
    message = pb.Policies(message_ttl_ms=5, placement=pb.PlacementRules(zones=["z"]))

    assert policies_from_proto(message).unknown == b""


def test_nothing_said_is_no_bytes():
    assert pack_policies(NO_POLICIES) == b""
    assert unpack_policies(b"") == NO_POLICIES
    assert policies_from_proto(pb.Policies(placement=pb.PlacementRules())) == NO_POLICIES


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Policies(backlog_quota=pb.BacklogQuota(action=77)), "backlog_quota.action"),
        (pb.Policies(schema_compatibility=99), "schema_compatibility"),
        (pb.Policies(placement=pb.PlacementRules(anti_affinity=9)), "placement.anti_affinity"),
        (pb.Policies(subscription_auth_mode=9), "subscription_auth_mode"),
        (pb.Policies(permissions=[pb.Permission(role="r", actions=[1, 99])]), "permissions"),
    ],
)
def test_a_choice_that_is_not_known_is_named(message, field):
    assert unknown_choice(message).startswith(field)


def test_known_choices_are_fine():
    said = Policies(placement=PlacementRules(anti_affinity=AntiAffinity.ZONE))

    assert unknown_choice(policies_to_proto(said)) == ""


LATER_PERMISSIONS = pb.Policies(
    permissions=[
        pb.Permission.FromString(
            pb.Permission(role="a", actions=[1, 99]).SerializeToString() + LATER_FIELD
        ),
        pb.Permission(role="b", actions=[77]),
    ],
    subscription_permissions=[
        pb.SubscriptionPermission.FromString(
            pb.SubscriptionPermission(subscription="s", roles=["r"]).SerializeToString()
            + LATER_FIELD
        )
    ],
)


def test_what_a_later_release_permitted_comes_back_and_allows_nothing():
    said = policies_from_proto(LATER_PERMISSIONS)

    assert [each.actions for each in said.permissions] == [(AuthAction.PRODUCE,), ()]
    assert policies_to_proto(said) == LATER_PERMISSIONS
    assert check_policies(said, PolicyLevel.NAMESPACE) is None


def test_what_a_later_release_permitted_goes_with_its_role():
    said = policies_from_proto(LATER_PERMISSIONS)

    left = granted(granted(said.permissions, "b", ()), "a", [AuthAction.CONSUME])

    assert policies_to_proto(Policies(permissions=left)) == pb.Policies(
        permissions=[pb.Permission(role="a", actions=[pb.AUTH_ACTION_CONSUME])]
    )


def test_permissions_in_any_order_are_read_in_one():
    message = pb.Policies(
        permissions=[
            pb.Permission(role="b", actions=[2, 1, 2]),
            pb.Permission(role="a", actions=[1]),
        ]
    )

    assert policies_from_proto(message).permissions == (
        Permission("a", (AuthAction.PRODUCE,)),
        Permission("b", (AuthAction.PRODUCE, AuthAction.CONSUME)),
    )


@pytest.mark.parametrize(
    ("stored", "number", "expected"),
    [
        ('"Prefix"', 0, SubscriptionAuthMode.PREFIX),
        ('"None"', 0, SubscriptionAuthMode.NONE),
        ('"Prefix"', pb.SUBSCRIPTION_AUTH_MODE_NONE, SubscriptionAuthMode.NONE),
    ],
)
def test_a_mode_that_an_earlier_release_stored_counts_until_it_is_set(stored, number, expected):
    message = pb.Policies(stored={"subscriptionAuthMode": stored}, subscription_auth_mode=number)

    said = policies_from_proto(message)

    assert (said.subscription_auth_mode, said.stored) == (expected, ())


def test_a_stored_mode_that_is_none_stays_what_it_is():
    message = pb.Policies(stored={"subscriptionAuthMode": "7"})

    assert policies_to_proto(policies_from_proto(message)) == message


def test_permissions_unpacked_max_are_kept_and_the_oldest_is_parsed_again():
    def packed(number):
        roles = [f"{number:03d}-" + str(each).rjust(60, "r") for each in range(400)]
        return pack_policies(
            Policies(permissions=tuple(Permission(role, (AuthAction.CONSUME,)) for role in roles))
        )

    assert len(packed(0)) > POLICIES_BYTES_MAX
    first = unpack_policies(packed(0))
    for number in range(1, PERMISSIONS_UNPACKED_MAX):
        unpack_policies(packed(number))
    assert unpack_policies(packed(0)) is first
    for number in range(1, PERMISSIONS_UNPACKED_MAX + 1):
        unpack_policies(packed(number))

    assert unpack_policies(packed(0)) is not first
    assert unpack_policies(packed(0)) == first
