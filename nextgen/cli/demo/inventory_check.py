"""Is everything there that was acknowledged? Listed in its namespace, and found by its name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nextgen.cli.discovery_client import DiscoveryClient
from nextgen.kernel.limits import NAMES_PER_LOOKUP_MAX, PAGE_ITEMS_MAX
from nextgen.kernel.names import parse_topic
from protos.nextgen.v1.discovery_service_pb2 import ListObjectsRequest, LookupRequest


async def missing_topics(client: DiscoveryClient, acknowledged: Sequence[str]) -> list[str]:
    """Return the topics that are not listed, or whose lookup says that they do not exist.

    Raises:
        MetadataError: The cluster does not answer.
    """
    wanted: dict[str, set[str]] = defaultdict(set)
    for name in acknowledged:
        wanted[parse_topic(name).namespace_text].add(name)
    missing: set[str] = set()
    for namespace, names in wanted.items():
        missing |= names - await _listed(client, namespace)
    for start in range(0, len(acknowledged), NAMES_PER_LOOKUP_MAX):
        names_asked = acknowledged[start : start + NAMES_PER_LOOKUP_MAX]
        response = await client.call("Lookup", LookupRequest(topics=names_asked))
        answers = zip(names_asked, response.answers, strict=True)
        missing |= {name for name, answer in answers if answer.rejection_code == "NOT_FOUND"}
    return sorted(missing)


async def _listed(client: DiscoveryClient, namespace: str) -> set[str]:
    names: set[str] = set()
    token = ""
    while True:
        page = await client.call(
            "ListTopics",
            ListObjectsRequest(parent=namespace, page_token=token, page_size=PAGE_ITEMS_MAX),
        )
        names |= {item.name for item in page.items}
        token = page.next_page_token
        if not token:
            return names
