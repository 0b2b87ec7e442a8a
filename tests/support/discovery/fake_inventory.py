"""A cluster's inventory in memory, with the calls of ``Client`` that an import makes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from nextgen.client.model import CreatedTopic, Namespace, NewTopic, ObjectPolicies, Tenant, Topic
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.routing.names import parse_topic


class FakeInventory:
    """Parents are checked, names are not. ``writes`` counts what changed something."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[int, Mapping[str, str]]] = {}
        self.policies: dict[str, tuple[Policies, int]] = {}
        self.writes = 0
        self.batches: list[int] = []
        self.writes_left: int | None = None
        """So many writes succeed before the cluster answers no more; None: all."""
        self.calls: Counter[str] = Counter()
        self.calls_max: Counter[str] = Counter()
        """The most calls of one kind in flight."""

    async def create_tenant(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        self._create(name, 0, properties or {})

    create_namespace = create_tenant

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        self.batches.append(len(topics))
        async with self._in_flight("create_topics"):
            return self._created(topics)

    def _created(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        outcomes = []
        for topic in topics:
            code = ""
            if parse_topic(topic.name).namespace_text not in self.objects:
                code = RejectionCode.PARENT_NOT_FOUND
            else:
                try:
                    self._create(topic.name, topic.partitions, topic.properties)
                except Refused as refusal:
                    code = refusal.code
            outcomes.append(CreatedTopic(topic.name, "id", code, "refused" if code else ""))
        return outcomes

    async def set_policies(
        self, name: str, policies: Policies, *, expected_version: int | None = None
    ) -> None:
        async with self._in_flight("set_policies"):
            version = self.policies.get(name, (NO_POLICIES, 0))[1]
        if expected_version not in (None, version):
            raise Refused(RejectionCode.VERSION_MISMATCH, "another version")
        self._count()
        self.policies[name] = (policies, version + 1)

    async def get_policies(self, name: str) -> ObjectPolicies:
        return ObjectPolicies(*self.policies.get(name, (NO_POLICIES, 0)))

    async def get_tenant(self, name: str) -> Tenant | None:
        found = self.objects.get(name)
        return found and Tenant(name, "id", found[1], 1, is_deleting=False)

    async def get_namespace(self, name: str) -> Namespace | None:
        found = self.objects.get(name)
        return found and Namespace(name, "id", "id", found[1], 1, is_deleting=False)

    async def get_topic(self, name: str) -> Topic | None:
        found = self.objects.get(name)
        return found and Topic(name, "id", *found, 1, "id", 0)

    async def list_tenants(self) -> AsyncIterator[Tenant]:
        for name, (_, properties) in sorted(self.objects.items()):
            if "/" not in name:
                yield Tenant(name, "id", properties, 1, is_deleting=False)

    async def list_namespaces(self, tenant: str) -> AsyncIterator[Namespace]:
        for name, (_, properties) in sorted(self.objects.items()):
            if name.count("/") == 1 and name.startswith(f"{tenant}/"):
                yield Namespace(name, "id", "id", properties, 1, is_deleting=False)

    async def list_topics_and_policies(
        self, namespace: str
    ) -> AsyncIterator[tuple[Topic, Policies]]:
        for name, (partitions, properties) in sorted(self.objects.items()):
            if f"://{namespace}/" in name:
                policies = self.policies.get(name, (NO_POLICIES, 0))[0]
                yield Topic(name, "id", partitions, properties, 1, "id", 0), policies

    @asynccontextmanager
    async def _in_flight(self, call: str) -> AsyncIterator[None]:
        self.calls[call] += 1
        self.calls_max[call] = max(self.calls_max[call], self.calls[call])
        await asyncio.sleep(0)
        self.calls[call] -= 1
        yield

    def _create(self, name: str, partitions: int, properties: Mapping[str, str]) -> None:
        if name in self.objects:
            raise Refused(RejectionCode.ALREADY_EXISTS, "it exists")
        self._count()
        self.objects[name] = (partitions, dict(properties))

    def _count(self) -> None:
        if self.writes_left is not None:
            if not self.writes_left:
                raise Unavailable("no leader")
            self.writes_left -= 1
        self.writes += 1
