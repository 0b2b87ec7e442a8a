"""The demo's topics: creates them before the load, and finds the brokers that serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.harness.demo import names
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1.discovery_service_pb2 import (
    CreateNamespaceRequest,
    CreateTenantRequest,
    CreateTopicsRequest,
    GetClusterRequest,
    LookupRequest,
    SetPoliciesRequest,
)
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import TopicSpec


@dataclass(frozen=True, slots=True)
class DemoTopics:
    """Canonical names. Partitioned ones all have ``partitions`` partitions."""

    plain: tuple[str, ...]
    partitioned: tuple[str, ...]
    partitions: int
    shadows: Mapping[str, str] = field(default_factory=dict)
    """Shadows of some plain ones, with their sources."""

    @staticmethod
    def choose(*, plain: int, partitioned: int, partitions: int, shadows: int = 0) -> DemoTopics:
        chosen = names.topics(plain + partitioned)
        sources = chosen[:plain][:shadows]
        return DemoTopics(
            tuple(chosen[:plain]),
            tuple(chosen[plain:]),
            partitions,
            {f"{source}-shadow": source for source in sources},
        )

    @property
    def all(self) -> list[str]:
        return [*self.plain, *self.partitioned]

    @property
    def unit_count(self) -> int:
        """Number of units that brokers serve: topics, or partitions of topics."""
        return len(self.plain) + len(self.partitioned) * self.partitions + len(self.shadows)

    async def create(self, client: DiscoveryClient) -> None:
        """Create the topics with their tenants and namespaces.

        Raises:
            InvalidRequest: One was refused.
            MetadataError: The cluster does not answer.
        """
        for tenant in names.tenants():
            await client.call(
                "CreateTenant", CreateTenantRequest(command_id=new_command_id(), name=tenant)
            )
        for namespace in names.namespaces():
            await client.call(
                "CreateNamespace",
                CreateNamespaceRequest(command_id=new_command_id(), name=namespace),
            )
        specs = [TopicSpec(name=name) for name in self.plain]
        specs += [TopicSpec(name=name, partitions=self.partitions) for name in self.partitioned]
        await _create(client, specs)
        if self.shadows:
            await _create_shadows(client, self.shadows)


async def _create_shadows(client: DiscoveryClient, shadows: Mapping[str, str]) -> None:
    """Create shadows, and have their sources list them."""
    await _create(
        client,
        [
            TopicSpec(name=shadow, properties={SHADOW_SOURCE_PROPERTY: source})
            for shadow, source in shadows.items()
        ],
    )
    for shadow, source in shadows.items():
        request = SetPoliciesRequest(
            command_id=new_command_id(), name=source, policies=Policies(shadow_topics=[shadow])
        )
        await client.call("SetPolicies", request)


async def _create(client: DiscoveryClient, specs: Sequence[TopicSpec]) -> None:
    response = await client.call(
        "CreateTopics", CreateTopicsRequest(command_id=new_command_id(), topics=specs)
    )
    for spec, outcome in zip(specs, response.topics, strict=True):
        if outcome.rejection_code:
            raise InvalidRequest(f"{spec.name} was refused: {outcome.message}")


async def served_by(client: DiscoveryClient, broker_id: str, topics: Sequence[str]) -> list[str]:
    """Return which of the topics, none of them partitioned, a broker serves at the moment."""
    return [topic for topic, at in (await places_of(client, topics)).items() if at == broker_id]


async def places_of(client: DiscoveryClient, topics: Sequence[str]) -> dict[str, str]:
    """Return the brokers that serve the topics, none of them partitioned, at the moment."""
    response = await client.call("Lookup", LookupRequest(topics=topics))
    answers = zip(topics, response.answers, strict=True)
    return {topic: answer.broker_id for topic, answer in answers}


async def homed_in(
    client: DiscoveryClient, shard_ids: Sequence[int], topics: Sequence[str]
) -> list[str]:
    """Return which of the topics have their metadata in one of these shards."""
    shard_map = (await client.call("GetCluster", GetClusterRequest())).shard_map
    table = SlotTable.from_bytes(shard_map.version, shard_map.slot_owners)
    return [
        topic
        for topic in topics
        if table.shard_for_key(parse_topic(topic).routing_key) in shard_ids
    ]
