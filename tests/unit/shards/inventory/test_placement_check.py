"""Placement rules that would leave a topic on no broker: refused before they are stored."""

from __future__ import annotations

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.governance.policies import PlacementRules, Policies
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
    UnitAssignment,
)
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard

TOPIC = f"persistent://{NAMESPACE}/paid"
OBJECTS = [(KIND_TENANT, "acme"), (KIND_NAMESPACE, NAMESPACE), (KIND_TOPIC, TOPIC)]


def rules(*pinned: str, **more: object) -> PlacementRules:
    return PlacementRules(pinned_brokers=pinned, **more)


async def set_rules(
    shard: Harness, kind: Kind, name: str, placement: PlacementRules, command_id: bytes = b""
) -> pb.CommandResult:
    policies = policies_to_proto(Policies(placement=placement))
    body = pb.SetPolicies(kind=kind, name=name, policies=policies)
    return await shard.execute(command_id=command_id, set_policies=body)


async def prepare(shard: Harness) -> None:
    """Have a topic, and two brokers."""
    for name in ("broker-1", "broker-2"):
        await shard.start_broker(name)
    await shard.create_topics("paid")


async def policies_of(shard: Harness, kind: Kind, name: str) -> bytes:
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=kind, name=name)])
    (item,) = (await shard.ask(get=wanted)).get.items
    which = item.WhichOneof("value")
    assert which is not None
    return bytes(getattr(item, which).policies.SerializeToString())


@pytest.mark.parametrize(("kind", "name"), OBJECTS)
@run_by(in_shard)
async def test_rules_that_pin_to_a_broker_that_never_was_are_refused(
    shard: Harness, *, kind: Kind, name: str
) -> None:
    await prepare(shard)

    refused = await set_rules(shard, kind, name, rules("broker-1", "broker-77"))

    assert refused.rejection_code == "NOT_ALLOWED"
    assert refused.message == "no broker is called broker-77; there are broker-1, broker-2"
    assert await policies_of(shard, kind, name) == b""


@run_by(in_shard)
async def test_a_namespace_is_not_created_with_rules_that_name_an_unknown_broker(
    shard: Harness,
) -> None:
    await prepare(shard)
    policies = policies_to_proto(Policies(placement=rules("broker-77")))
    body = pb.CreateNamespace(name="acme/new", policies=policies)

    refused = await shard.execute(create_namespace=body)

    assert refused.rejection_code == "NOT_ALLOWED"
    created = await shard.execute(create_namespace=pb.CreateNamespace(name="acme/new"))
    assert created.rejection_code == ""


@pytest.mark.parametrize(("kind", "name"), OBJECTS)
@run_by(in_shard)
async def test_a_broker_that_ended_may_still_be_named(
    shard: Harness, *, kind: Kind, name: str
) -> None:
    await prepare(shard)
    shard.brokers["broker-2"].vanish()
    await shard.wait_ended("broker-2")

    accepted = await set_rules(shard, kind, name, rules("broker-2"))

    assert accepted.rejection_code == ""


@run_by(in_shard)
async def test_a_repetition_of_a_refused_command_is_checked_anew(shard: Harness) -> None:
    await prepare(shard)
    command_id = b"command-00000001"
    refused = await set_rules(shard, KIND_TOPIC, TOPIC, rules("broker-3"), command_id)
    assert refused.rejection_code == "NOT_ALLOWED"

    await shard.start_broker("broker-3")

    assert not (await set_rules(shard, KIND_TOPIC, TOPIC, rules("broker-3"), command_id)).message


@pytest.mark.parametrize(
    "placement",
    [
        rules("broker-2"),
        rules(excluded_brokers=("broker-1",)),
        rules(zones=("nowhere",)),
    ],
    ids=["pinned to one that ended", "the live one excluded", "a zone without brokers"],
)
@pytest.mark.parametrize("is_served", [True, False])
@run_by(in_shard)
async def test_rules_that_leave_a_served_topic_no_broker_are_refused(
    shard: Harness, *, placement: PlacementRules, is_served: bool
) -> None:
    await prepare(shard)
    shard.brokers["broker-2"].vanish()
    await shard.wait_ended("broker-2")
    await shard.lookup(TOPIC)
    if not is_served:
        units = [UnitAssignment(name=TOPIC)]
        await shard.ask(unassign=pb.UnassignRequest(units=units, reason="unloaded"))

    result = await set_rules(shard, KIND_TOPIC, TOPIC, placement)

    assert result.rejection_code == ("NOT_ALLOWED" if is_served else "")
    assert ("is served, and would be on no broker" in result.message) is is_served
    assert (await policies_of(shard, KIND_TOPIC, TOPIC) == b"") is is_served


@run_by(in_shard)
async def test_rules_of_the_namespace_count_with_those_of_a_served_topic(shard: Harness) -> None:
    await prepare(shard)
    namespace_rules = PlacementRules(excluded_brokers=("broker-2",))
    await set_rules(shard, KIND_NAMESPACE, NAMESPACE, namespace_rules)
    await shard.lookup(TOPIC)

    refused = await set_rules(shard, KIND_TOPIC, TOPIC, rules("broker-2"))
    accepted = await set_rules(shard, KIND_TOPIC, TOPIC, rules("broker-1"))

    assert refused.rejection_code == "NOT_ALLOWED"
    assert "placement.excluded_brokers" in refused.message
    assert accepted.rejection_code == ""


@run_by(in_shard)
async def test_other_policies_of_a_topic_change_while_its_pinned_broker_is_gone(
    shard: Harness,
) -> None:
    await prepare(shard)
    await set_rules(shard, KIND_TOPIC, TOPIC, rules("broker-2"))
    await shard.lookup(TOPIC)
    shard.brokers["broker-2"].vanish()
    await shard.wait_ended("broker-2")

    policies = policies_to_proto(Policies(message_ttl_ms=7, placement=rules("broker-2")))
    body = pb.SetPolicies(kind=KIND_TOPIC, name=TOPIC, policies=policies)
    result = await shard.execute(set_policies=body)

    assert result.rejection_code == ""


@run_by(in_shard)
async def test_brokers_that_rules_named_before_are_not_checked_again(shard: Harness) -> None:
    await prepare(shard)
    await set_rules(shard, KIND_NAMESPACE, NAMESPACE, rules("broker-2"))
    shard.cluster.forget()

    kept = await set_rules(shard, KIND_NAMESPACE, NAMESPACE, rules("broker-2", zones=("z",)))
    added = await set_rules(shard, KIND_NAMESPACE, NAMESPACE, rules("broker-1", "broker-2"))

    assert kept.rejection_code == ""
    assert added.message == "no broker is called broker-1; none is known"
