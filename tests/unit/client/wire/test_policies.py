"""Policies survive the way to the wire and back, also what this release does not know."""

import pytest
from hypothesis import given

from nextgen.client.wire.policies import (
    ACTIONS,
    ANTI_AFFINITIES,
    COMPATIBILITIES,
    pack_policies,
    policies_from_proto,
    policies_to_proto,
    unknown_choice,
    unpack_policies,
)
from nextgen.kernel.governance.policies import (
    NO_POLICIES,
    AntiAffinity,
    BacklogAction,
    PlacementRules,
    Policies,
    SchemaCompatibility,
)
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
    ],
)
def test_a_choice_that_is_not_known_is_named(message, field):
    assert unknown_choice(message).startswith(field)


def test_known_choices_are_fine():
    said = Policies(placement=PlacementRules(anti_affinity=AntiAffinity.ZONE))

    assert unknown_choice(policies_to_proto(said)) == ""
