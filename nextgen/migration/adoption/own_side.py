"""The namespace in this cluster. See ``ports.Cluster``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from nextgen.client.client import Client
from nextgen.client.watch_model import Assignment, ChangeKind, WatchedObjects
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY, BrokerKind
from nextgen.kernel.limits.bulk import IMPORT_WRITES_MAX
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.names import NamespaceName
from nextgen.migration.adoption.plan import OwnNamespace
from nextgen.migration.adoption.ports import Outcome

_DOMAINS = ("persistent", "non-persistent")


class OwnSide:
    """See ``Cluster``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def namespace(self, name: NamespaceName) -> OwnNamespace:
        """Return what there is of a namespace."""
        tenant = await self._client.get_tenant(name.tenant)
        found = None if tenant is None else await self._client.get_namespace(name.text)
        if tenant is None or found is None:
            return OwnNamespace(tenant is not None, exists=False, is_deleting=False)
        topics = {each.name: each.partitions async for each in self._client.list_topics(name.text)}
        return OwnNamespace(
            has_tenant=True,
            exists=True,
            is_deleting=tenant.is_deleting or found.is_deleting,
            is_embedded=found.properties.get(BROKER_KIND_PROPERTY) != BrokerKind.STOCK,
            topics=topics,
        )

    async def move(self, moves: Mapping[str, str]) -> list[Outcome]:
        located = await self._client.move_topics(moves)
        return [
            Outcome(each.topic, each.broker_id, each.rejection_code, each.message)
            for each in located
        ]

    async def assigned(self, namespace: str) -> list[str]:
        shards = {each.shard_id for each in (await self._client.cluster()).shards}
        names: list[str] = []
        for domain in _DOMAINS:
            assignments = WatchedObjects[Assignment]()
            incomplete = set(shards)
            watch = self._client.watch_assignments(prefix=f"{domain}://{namespace}/")
            async with aclosing(watch) as changes:
                async for change in changes:
                    assignments.apply(change)
                    if change.kind is ChangeKind.SNAPSHOT_COMPLETE:
                        incomplete.discard(change.shard_id)
                    if not incomplete:
                        break
            names += [
                name for name, assignment in assignments.by_name().items() if assignment.broker_id
            ]
        return sorted(names)

    async def unload(self, topics: Sequence[str]) -> None:
        await self._client.unload_topics(topics)

    async def create(self, topics: Sequence[str]) -> None:
        for start in range(0, len(topics), TOPICS_PER_CREATE_MAX):
            await self._client.create_topics(topics[start : start + TOPICS_PER_CREATE_MAX])

    async def forget(self, name: NamespaceName) -> int:
        """Delete the namespace with its topics; return how many of them there were.

        Raises:
            Refused: It has something else by now.
        """
        topics = [each.name async for each in self._client.list_topics(name.text)]
        for start in range(0, len(topics), IMPORT_WRITES_MAX):
            some = topics[start : start + IMPORT_WRITES_MAX]
            await asyncio.gather(*(self._client.delete_topic(each, force=True) for each in some))
        if await self._client.get_namespace(name.text) is not None:
            await self._client.delete_namespace(name.text)
        return len(topics)
