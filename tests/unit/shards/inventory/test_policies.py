"""Policies through the inventory of a shard: commands in, results and items out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
)
from tests.support.shards.world import ShardReplica, World

TOPIC = "persistent://acme/orders/paid"
OBJECTS = [(KIND_TENANT, "acme"), (KIND_NAMESPACE, "acme/orders"), (KIND_TOPIC, TOPIC)]
RACERS = 100


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=1)
    yield made
    made.close()


async def prepare(world: World) -> ShardReplica:
    await world.create_tenant("acme")
    await world.create_namespace("acme/orders")
    await world.create_topic(TOPIC)
    return world.home("acme")


def setting(kind: Kind, name: str, ttl_ms: int, command_id: bytes = b"", **more: object):
    said = policies_pb2.Policies(message_ttl_ms=ttl_ms)
    body = pb.SetPolicies(kind=kind, name=name, policies=said, **more)
    return pb.Command(command_id=command_id, set_policies=body)


async def item(shard: ShardReplica, kind: Kind, name: str) -> Item:
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=kind, name=name)])
    return (await shard.reader.get(wanted)).items[0]


@pytest.mark.parametrize(("kind", "name"), OBJECTS)
async def test_what_was_set_is_read(world: World, kind: Kind, name: str) -> None:
    shard = await prepare(world)

    result = await world.run(shard, setting(kind, name, 60_000))

    found = await item(shard, kind, name)
    value = getattr(found, found.WhichOneof("value"))
    assert value.policies == policies_pb2.Policies(message_ttl_ms=60_000)
    assert (value.policies_version, value.version) == (1, 2)
    assert result.version == 2


@pytest.mark.parametrize(("kind", "name"), OBJECTS)
async def test_of_a_hundred_racers_exactly_one_wins(world: World, kind: Kind, name: str) -> None:
    shard = await prepare(world)
    await world.run(shard, setting(kind, name, 1))

    results = await asyncio.gather(
        *(
            world.run(
                shard, setting(kind, name, racer, racer.to_bytes(16, "big"), expected_version=1)
            )
            for racer in range(1, RACERS + 1)
        )
    )

    codes = [result.rejection_code for result in results]
    assert sorted(codes) == ["", *["VERSION_MISMATCH"] * (RACERS - 1)]
    found = await item(shard, kind, name)
    value = getattr(found, found.WhichOneof("value"))
    assert value.policies.message_ttl_ms == 1 + codes.index("")
    assert value.policies_version == 2


async def test_a_repeated_claim_of_the_winner_is_answered_as_won(world: World) -> None:
    shard = await prepare(world)
    command = setting(KIND_TENANT, "acme", 5, b"i" * 16, expects_none=True)

    first, again = await world.run(shard, command), await world.run(shard, command)

    assert first == again
    assert first.rejection_code == ""


async def test_fields_of_a_later_release_are_stored_and_given_back(world: World) -> None:
    shard = await prepare(world)
    command = setting(KIND_TOPIC, TOPIC, 5)
    command.set_policies.policies.MergeFromString(b"\xa2\x06\x05later")

    await world.run(shard, command)

    found = await item(shard, KIND_TOPIC, TOPIC)
    assert found.topic.policies.SerializeToString() == (
        command.set_policies.policies.SerializeToString()
    )


@pytest.mark.parametrize(
    ("said", "field"),
    [
        (policies_pb2.Policies(schema_compatibility=99), "schema_compatibility"),
        (
            policies_pb2.Policies(auto_creation=policies_pb2.AutoCreation(is_allowed=True)),
            "auto_creation",
        ),
        (
            policies_pb2.Policies(
                placement=policies_pb2.PlacementRules(
                    pinned_brokers=["b"], excluded_brokers=["a", "b"]
                )
            ),
            "placement.pinned_brokers",
        ),
    ],
)
async def test_bad_policies_are_refused_by_their_field(
    world: World, said: policies_pb2.Policies, field: str
) -> None:
    shard = await prepare(world)
    before = await item(shard, KIND_TOPIC, TOPIC)
    body = pb.SetPolicies(kind=KIND_TOPIC, name=TOPIC, policies=said)

    result = await world.run(shard, pb.Command(set_policies=body))

    assert result.rejection_code == RejectionCode.NOT_ALLOWED
    assert result.message.startswith(field)
    assert await item(shard, KIND_TOPIC, TOPIC) == before


async def test_only_three_kinds_have_policies(world: World) -> None:
    shard = await prepare(world)

    with pytest.raises(InvalidRequest, match="have no policies"):
        await world.run(shard, setting(KIND_ASSIGNMENT, TOPIC, 1))


async def test_the_next_leader_knows_them(world: World) -> None:
    shard = await prepare(world)
    await world.run(shard, setting(KIND_NAMESPACE, "acme/orders", 5))

    shard.next_term()

    stale = setting(KIND_NAMESPACE, "acme/orders", 6, expects_none=True)
    assert (await world.run(shard, stale)).rejection_code == RejectionCode.VERSION_MISMATCH


def creating(policies: policies_pb2.Policies) -> pb.Command:
    return pb.Command(create_namespace=pb.CreateNamespace(name="acme/new", policies=policies))


async def test_a_namespace_that_is_created_with_policies_has_them_at_once(world: World) -> None:
    shard = await prepare(world)
    said = policies_pb2.Policies(message_ttl_ms=5, stored={"persistence": "{}"})

    result = await world.run(world.home("acme/new"), creating(said))

    found = (await item(shard, KIND_NAMESPACE, "acme/new")).namespace
    assert (found.policies, found.policies_version) == (said, 1)
    assert (result.rejection_code, result.version) == ("", 2)


async def test_a_namespace_with_a_choice_that_is_not_known_is_not_created(world: World) -> None:
    shard = await prepare(world)

    result = await world.run(
        world.home("acme/new"), creating(policies_pb2.Policies(schema_compatibility=99))
    )

    assert result.rejection_code == RejectionCode.NOT_ALLOWED
    assert not (await item(shard, KIND_NAMESPACE, "acme/new")).WhichOneof("value")
