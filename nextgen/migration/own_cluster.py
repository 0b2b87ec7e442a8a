"""The records of a cluster of this project, over its gRPC port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from nextgen.client.client import Client
from nextgen.kernel.governance.policies import PolicyLevel
from nextgen.migration.records import Record, Remarks


class OwnCluster:
    """Everything that ``client`` can list.

    A namespace or topic that is created while this reads may be missing, with its parents or
    alone; an object that exists all the time is yielded once. What is yielded stands behind its
    parents, also if these are deleted meanwhile.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def records(self, remarks: Remarks) -> AsyncIterator[Record]:
        """See ``Source``."""
        tenants = [tenant async for tenant in self._client.list_tenants() if not tenant.is_deleting]
        for tenant in tenants:
            yield await self._parent(PolicyLevel.TENANT, tenant.name, tenant.properties)
        namespaces: list[str] = []
        for tenant in tenants:
            async for namespace in self._client.list_namespaces(tenant.name):
                if namespace.is_deleting:
                    remarks.add(namespace.name, "it is being deleted")
                    continue
                namespaces.append(namespace.name)
                yield await self._parent(
                    PolicyLevel.NAMESPACE, namespace.name, namespace.properties
                )
        for name in namespaces:
            async for topic, policies in self._client.list_topics_and_policies(name):
                yield Record(
                    PolicyLevel.TOPIC, topic.name, topic.properties, policies, topic.partitions
                )

    async def _parent(self, level: PolicyLevel, name: str, properties: Mapping[str, str]) -> Record:
        policies = (await self._client.get_policies(name)).policies
        return Record(level, name, properties, policies)
