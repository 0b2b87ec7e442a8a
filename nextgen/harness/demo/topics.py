"""The demo's topics: creates them before the load, and finds the brokers that serve them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.harness.demo import names
from nextgen.kernel.errors import InvalidRequest
from protos.nextgen.v1.discovery_service_pb2 import (
    CreateNamespaceRequest,
    CreateTenantRequest,
    CreateTopicsRequest,
    LookupRequest,
)
from protos.nextgen.v1.shard_service_pb2 import TopicSpec


@dataclass(frozen=True, slots=True)
class DemoTopics:
    """Canonical names. Partitioned ones all have ``partitions`` partitions."""

    plain: tuple[str, ...]
    partitioned: tuple[str, ...]
    partitions: int

    @staticmethod
    def choose(*, plain: int, partitioned: int, partitions: int) -> DemoTopics:
        chosen = names.topics(plain + partitioned)
        return DemoTopics(tuple(chosen[:plain]), tuple(chosen[plain:]), partitions)

    @property
    def all(self) -> list[str]:
        return [*self.plain, *self.partitioned]

    @property
    def unit_count(self) -> int:
        """Number of units that brokers serve: topics, or partitions of topics."""
        return len(self.plain) + len(self.partitioned) * self.partitions

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
        response = await client.call(
            "CreateTopics", CreateTopicsRequest(command_id=new_command_id(), topics=specs)
        )
        for spec, outcome in zip(specs, response.topics, strict=True):
            if outcome.rejection_code:
                raise InvalidRequest(f"{spec.name} was refused: {outcome.message}")


async def served_by(client: DiscoveryClient, broker_id: str, topics: Sequence[str]) -> list[str]:
    """Return which of the topics, none of them partitioned, a broker serves at the moment."""
    response = await client.call("Lookup", LookupRequest(topics=topics))
    answers = zip(topics, response.answers, strict=True)
    return [topic for topic, answer in answers if answer.broker_id == broker_id]
