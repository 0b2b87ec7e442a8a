"""Listings and counts at discovery nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.model import (
    Namespace,
    Tenant,
    Topic,
    TopicCount,
    TopicNamesPage,
    namespace_of,
    tenant_of,
    topic_of,
)
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item


class Listings:
    """The listings of a ``Client``: a listing has one page in memory at a time."""

    def __init__(self, nodes: DiscoveryNodes, timeout_ms: int) -> None:
        self._nodes = nodes
        self._timeout_ms = timeout_ms

    async def list_tenants(self) -> AsyncIterator[Tenant]:
        """Yield all tenants by name."""
        async for item in self._items("ListTenants", pb.ListObjectsRequest()):
            yield tenant_of(item.tenant)

    async def list_namespaces(self, tenant: str) -> AsyncIterator[Namespace]:
        """Yield the namespaces of a tenant by name."""
        async for item in self._items("ListNamespaces", pb.ListObjectsRequest(parent=tenant)):
            yield namespace_of(item.namespace)

    async def list_topics(
        self, namespace: str, *, domain: str = "", prefix: str = ""
    ) -> AsyncIterator[Topic]:
        """Yield the topics of ``tenant/namespace`` by name, of one domain or all.

        Of all, or of those whose local names begin with ``prefix``. A topic that exists all the
        time is yielded once.
        """
        request = pb.ListObjectsRequest(parent=namespace, domain=domain, prefix=prefix)
        async for item in self._items("ListTopics", request):
            yield topic_of(item.topic)

    async def list_topics_and_policies(
        self, namespace: str
    ) -> AsyncIterator[tuple[Topic, Policies]]:
        """Yield what ``list_topics`` yields, each with the policies that are its own."""
        request = pb.ListObjectsRequest(parent=namespace)
        async for item in self._items("ListTopics", request):
            topic = item.topic
            policies = NO_POLICIES
            if topic.HasField("policies"):
                policies = policies_from_proto(topic.policies)
            yield topic_of(topic), policies

    async def topic_names_page(
        self,
        namespace: str,
        *,
        domain: str = "",
        prefix: str = "",
        page_size: int = PAGE_ITEMS_MAX,
        page_token: str = "",
    ) -> TopicNamesPage:
        """Return one page of what ``list_topics`` yields, for callers that go on later."""
        request = pb.ListObjectsRequest(
            parent=namespace,
            domain=domain,
            prefix=prefix,
            page_size=page_size,
            page_token=page_token,
            names_only=True,
            packed_names=True,
        )
        page = await self._page("ListTopics", request)
        partitions = dict(zip(page.names, page.partitions, strict=True))
        if page.items:  # A discovery node of an earlier release packs no names.
            partitions = {item.name: item.topic.partitions for item in page.items}
        return TopicNamesPage(partitions, page.next_page_token)

    async def count_topics(
        self, namespace: str, *, domain: str = "", prefix: str = ""
    ) -> TopicCount:
        """Return how many topics ``list_topics`` would yield. Exact; reads all of the names."""
        request = pb.CountTopicsRequest(parent=namespace, domain=domain, prefix=prefix)
        count = await self._nodes.call(
            "CountTopics", request, pb.CountTopicsResponse, timeout_ms=self._timeout_ms
        )
        return TopicCount(count.topics, count.units)

    async def _items(self, method: str, request: pb.ListObjectsRequest) -> AsyncIterator[Item]:
        request.page_size = PAGE_ITEMS_MAX
        while True:
            page = await self._page(method, request)
            for item in page.items:
                yield item
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _page(self, method: str, request: pb.ListObjectsRequest) -> pb.ListObjectsResponse:
        return await self._nodes.call(
            method, request, pb.ListObjectsResponse, timeout_ms=self._timeout_ms
        )
