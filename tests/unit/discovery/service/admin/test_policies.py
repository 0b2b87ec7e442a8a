"""Policies through discovery: whose they are, where they are set, what they come to together."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.service.admin.capacity_shares import CapacityShares
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.policies import PoliciesService, holder_of
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Item
from protos.nextgen.v1.policies_pb2 import Policies, RetentionPolicy
from tests.support.discovery.fake_cluster import StaticLink, full_update

TOPIC = "persistent://acme/orders/paid"
COMMAND_ID = b"c" * 16


class Shards:
    """One shard that has what is in ``items`` and accepts every command, or refuses it."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.requests: list[shard_pb.ShardRequest] = []
        self.keys: list[str] = []
        self.refusal = ""

    def add(self, kind: Any, name: str, policies: Policies | None = None, version: int = 0) -> None:
        item = self.items[name] = Item(kind=kind, name=name)
        field = {KIND_TENANT: "tenant", KIND_NAMESPACE: "namespace", KIND_TOPIC: "topic"}[kind]
        value = getattr(item, field)
        value.name = name
        value.policies_version = version
        if policies is not None:
            value.policies.CopyFrom(policies)

    def shard_of_key(self, routing_key: str) -> int:
        return 1

    async def call(
        self, shard_id: int, request: shard_pb.ShardRequest, *, timeout_ms: int, **_: Any
    ) -> shard_pb.ShardResponse:
        return await self.call_key("", request, timeout_ms=timeout_ms)

    async def call_key(
        self, routing_key: str, request: shard_pb.ShardRequest, *, timeout_ms: int, **_: Any
    ) -> shard_pb.ShardResponse:
        self.keys.append(routing_key)
        self.requests.append(request)
        request.shard_id = 1
        response = shard_pb.ShardResponse(position=77)
        if request.HasField("get"):
            for name in request.get.names:
                response.get.items.append(self.items.get(name.name, Item(name=name.name)))
        else:
            result = shard_pb.CommandResult(
                id="id", version=4, position=77, rejection_code=self.refusal
            )
            response.execute.results.append(result)
        return response


@pytest.fixture
def shards() -> Shards:
    return Shards()


@pytest.fixture
def service(shards: Shards) -> PoliciesService:
    counters = DiscoveryCounters()
    link = StaticLink(full_update({1: "node-1:1"}))

    async def nothing() -> None:
        return None

    made: Any = shards
    inventory = InventoryService(made, link, counters, nothing, lambda *_created: None)
    return PoliciesService(made, inventory, counters, CapacityShares(inventory, made, lambda: 0))


@pytest.mark.parametrize(
    ("name", "kind", "canonical", "routing_key"),
    [
        ("acme", KIND_TENANT, "acme", "acme"),
        ("acme/orders", KIND_NAMESPACE, "acme/orders", "acme/orders"),
        ("acme/orders/paid", KIND_TOPIC, TOPIC, "acme/orders/paid"),
        ("non-persistent://a/b/c", KIND_TOPIC, "non-persistent://a/b/c", "a/b/c"),
    ],
)
@pytest.mark.parametrize("consistency", [0, 1])
async def test_policies_are_set_at_the_home_of_the_object(
    service: PoliciesService,
    shards: Shards,
    name: str,
    kind: Any,
    canonical: str,
    routing_key: str,
    consistency: Any,
) -> None:
    said = Policies(message_ttl_ms=5)
    request = pb.SetPoliciesRequest(
        command_id=COMMAND_ID,
        name=name,
        policies=said,
        expected_version=3,
        consistency=consistency,
    )

    response = await service.set_policies(request, 1_000)

    assert shards.keys == [routing_key]
    execute = shards.requests[0].execute
    body = shard_pb.SetPolicies(kind=kind, name=canonical, policies=said, expected_version=3)
    assert execute.commands[0] == shard_pb.Command(command_id=COMMAND_ID, set_policies=body)
    assert execute.consistency == consistency
    assert (response.version, response.position, response.shard_id) == (4, 77, 1)


async def test_no_policies_clear_them(service: PoliciesService, shards: Shards) -> None:
    await service.set_policies(pb.SetPoliciesRequest(name="acme", expects_none=True), 1_000)

    body = shards.requests[0].execute.commands[0].set_policies
    assert not body.HasField("policies")
    assert body.expects_none


async def test_a_refusal_is_the_callers(service: PoliciesService, shards: Shards) -> None:
    shards.refusal = "VERSION_MISMATCH"

    with pytest.raises(Refused) as refused:
        await service.set_policies(pb.SetPoliciesRequest(name="acme"), 1_000)

    assert refused.value.code == "VERSION_MISMATCH"


@pytest.mark.parametrize("name", ["", "a//b", "a/b/c/d/e", f"{TOPIC}-partition-0", "a b"])
async def test_what_is_no_name_has_no_policies(service: PoliciesService, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await service.set_policies(pb.SetPoliciesRequest(name=name), 1_000)
    with pytest.raises(InvalidRequest):
        await service.get_policies(pb.GetPoliciesRequest(name=name), 1_000)


async def test_what_is_said_of_an_object_is_read(service: PoliciesService, shards: Shards) -> None:
    shards.add(KIND_TOPIC, TOPIC, Policies(message_ttl_ms=5), 3)

    found = await service.get_policies(pb.GetPoliciesRequest(name="acme/orders/paid"), 1_000)

    assert found == pb.GetPoliciesResponse(
        policies=Policies(message_ttl_ms=5), version=3, shard_id=1, position=77
    )
    assert shards.keys == ["acme/orders/paid"], "what is not asked for is not read"


async def test_merged_it_is_what_counts(service: PoliciesService, shards: Shards) -> None:
    shards.add(KIND_TENANT, "acme", Policies(message_ttl_ms=1, topics_max=9))
    kept = RetentionPolicy(time_ms=7)
    shards.add(KIND_NAMESPACE, "acme/orders", Policies(message_ttl_ms=2, retention=kept))
    shards.add(KIND_TOPIC, TOPIC)

    async def merged(name: str) -> Policies:
        request = pb.GetPoliciesRequest(name=name, merged=True)
        return (await service.get_policies(request, 1_000)).merged

    assert await merged("acme") == Policies(message_ttl_ms=1, topics_max=9)
    expected = Policies(message_ttl_ms=2, topics_max=9, retention=kept)
    assert await merged("acme/orders") == expected
    assert await merged(TOPIC) == expected


async def test_an_object_without_policies_has_none_and_an_absent_one_is_not_found(
    service: PoliciesService, shards: Shards
) -> None:
    shards.add(KIND_TENANT, "acme")

    found = await service.get_policies(pb.GetPoliciesRequest(name="acme"), 1_000)

    assert (found.HasField("policies"), found.version) == (False, 0)
    with pytest.raises(Refused) as refused:
        await service.get_policies(pb.GetPoliciesRequest(name="other"), 1_000)
    assert refused.value.code == "NOT_FOUND"


def test_a_topic_in_any_spelling_is_the_same_holder() -> None:
    assert holder_of("acme/orders/paid") == holder_of(TOPIC)


SHADOWS = [f"persistent://acme/orders/shadow-{number}" for number in range(3)]


def add_shadow(shards: Shards, name: str, source: str = TOPIC) -> None:
    shards.add(KIND_TOPIC, name)
    shards.items[name].topic.properties[SHADOW_SOURCE_PROPERTY] = source


async def test_shadows_of_the_source_are_listed(service: PoliciesService, shards: Shards) -> None:
    shards.add(KIND_TOPIC, TOPIC)
    for name in SHADOWS:
        add_shadow(shards, name)
    wanted = Policies(shadow_topics=SHADOWS)

    response = await service.set_policies(pb.SetPoliciesRequest(name=TOPIC, policies=wanted), 1_000)

    assert response.version == 4
    assert shards.requests[-1].execute.commands[0].set_policies.policies == wanted


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (TOPIC, "the topic itself"),
        ("persistent://acme/orders/absent", "does not exist"),
        ("persistent://acme/orders/plain", "is no shadow"),
        ("persistent://acme/orders/foreign", "is a shadow of persistent://acme/orders/other"),
        ("acme/orders/shadow-0", "no persistent topic's full name"),
    ],
)
async def test_a_topic_that_is_no_shadow_of_the_source_is_not_listed(
    service: PoliciesService, shards: Shards, name: str, why: str
) -> None:
    shards.add(KIND_TOPIC, TOPIC)
    shards.add(KIND_TOPIC, "persistent://acme/orders/plain")
    add_shadow(shards, SHADOWS[0])
    add_shadow(shards, "persistent://acme/orders/foreign", "persistent://acme/orders/other")
    wanted = Policies(shadow_topics=[SHADOWS[0], name])

    with pytest.raises(Refused, match=f"^shadow_topics .*{why}"):
        await service.set_policies(pb.SetPoliciesRequest(name=TOPIC, policies=wanted), 1_000)

    assert not any(request.HasField("execute") for request in shards.requests)


async def test_shadows_that_are_listed_already_are_not_read_again(
    service: PoliciesService, shards: Shards
) -> None:
    """So a shadow that is gone hinders no other change."""
    shards.add(KIND_TOPIC, TOPIC, Policies(shadow_topics=SHADOWS[:2]), 3)
    add_shadow(shards, SHADOWS[2])
    wanted = Policies(shadow_topics=SHADOWS, message_ttl_ms=5)

    await service.set_policies(pb.SetPoliciesRequest(name=TOPIC, policies=wanted), 1_000)

    read = [name.name for request in shards.requests for name in request.get.names]
    assert read == [TOPIC, SHADOWS[2]]


async def test_an_absent_source_lists_no_shadows(service: PoliciesService, shards: Shards) -> None:
    wanted = Policies(shadow_topics=SHADOWS)

    with pytest.raises(Refused) as refused:
        await service.set_policies(pb.SetPoliciesRequest(name=TOPIC, policies=wanted), 1_000)

    assert refused.value.code == "NOT_FOUND"
