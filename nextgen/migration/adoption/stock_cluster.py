"""The namespace in its stock cluster, over the Admin REST."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Mapping
from dataclasses import replace
from typing import Any

from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY, BrokerKind
from nextgen.kernel.governance.policies import PolicyLevel
from nextgen.kernel.routing.names import NamespaceName
from nextgen.migration.admin_rest import OPEN, AdminAccess, AdminRest, path_of
from nextgen.migration.adoption.plan import BY_TOPIC, PLACEMENT, PulsarNamespace
from nextgen.migration.pulsar_cluster import IMPOSSIBLE_NAME, PulsarCluster
from nextgen.migration.records import Record, Remarks, SourceFailed


class StockCluster:
    """Reads one namespace, and says how it is placed. Close it.

    It is a ``Source`` of the namespace, its tenant and its topics, without what is kept in Pulsar:
    properties and schemas of topics, and the property that hands the namespace over. It is for
    stock brokers.
    """

    def __init__(self, url: str, namespace: NamespaceName, *, access: AdminAccess = OPEN) -> None:
        self._namespace = namespace
        self.left_out: Container[str] = ()
        """Topics that are no records: they are here, and what they have is not compared."""
        self._admin = AdminRest(url, access)
        self._cluster = PulsarCluster(url, properties=False, schemas=False, access=access)

    async def close(self) -> None:
        """Close all connections."""
        await self._admin.close()
        await self._cluster.close()

    async def records(self, remarks: Remarks) -> AsyncIterator[Record]:
        """See ``Source``."""
        async for record in self._cluster.records_of(self._namespace.text, remarks):
            if record.level is PolicyLevel.NAMESPACE:
                kept = {key: text for key, text in record.properties.items() if key != PLACEMENT}
                # Its messages are in BookKeeper, whatever brokers this cluster has besides.
                kept[BROKER_KIND_PROPERTY] = BrokerKind.STOCK
                yield replace(record, properties=kept)
            elif record.name not in self.left_out:
                yield record

    async def namespace(self) -> PulsarNamespace | None:
        """Return the namespace with the names of its topics, None if it is absent.

        Raises:
            SourceFailed: The Admin REST does not answer.
        """
        path = f"namespaces/{path_of(self._namespace.text)}"
        body = await self._admin.get(path)
        if body is None:
            return None
        if not isinstance(body, dict):
            raise SourceFailed(f"{path} is answered with {body!r:.200}")
        remarks = Remarks()
        topics = {
            record.name: record.partitions
            async for record in self._cluster.records_of(self._namespace.text, remarks)
            if record.level is PolicyLevel.TOPIC
        }
        return PulsarNamespace(
            properties=body.get("properties") or {},
            replication_clusters=tuple(body.get("replication_clusters") or ()),
            is_deleted=bool(body.get("deleted")),
            topics=topics,
            refused_names=tuple(each for each in remarks.first if IMPOSSIBLE_NAME in each),
            creates_partitioned=_creates_partitioned(body.get("autoTopicCreationOverride")),
        )

    async def brokers(self) -> tuple[str, ...]:
        """Return the ids of the brokers of the cluster.

        Raises:
            SourceFailed: The Admin REST does not answer.
        """
        found = await self._admin.get("brokers")
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise SourceFailed(f"the brokers are answered with {found!r:.200}")
        return tuple(sorted(found))

    async def settings(self) -> Mapping[str, str] | None:
        """Return the configuration of the broker that answers, None if it may not be read."""
        try:
            found = await self._admin.get("brokers/configuration/runtime")
        except SourceFailed:
            return None
        if not isinstance(found, dict):
            return None
        return {name: str(value) for name, value in found.items()}

    async def set_by_topic(self, namespace: str, *, by_topic: bool) -> None:
        """See ``ports.Placement``."""
        path = f"namespaces/{path_of(namespace)}/property/{PLACEMENT}"
        if by_topic:
            found = await self._admin.change("PUT", f"{path}/{BY_TOPIC}")
        else:
            found = await self._admin.change("DELETE", path)
        if not found:
            raise SourceFailed(f"Pulsar has no namespace {namespace}, or it is being changed")


def _creates_partitioned(policy: Any) -> bool | None:
    """Return whether topics get partitions by a namespace's own policy, None if it has none."""
    if not isinstance(policy, dict):
        return None
    is_allowed = policy.get("allowAutoTopicCreation")
    return bool(is_allowed) and policy.get("topicType") == "partitioned"
