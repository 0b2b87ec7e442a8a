"""Pages of names, as discovery nodes of this and of earlier releases answer them."""

from __future__ import annotations

from typing import Any

import pytest

from nextgen.client.discovery.listing import Listings
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item, Topic

PARTITIONS = {"persistent://t/n/a": 0, "persistent://t/n/b": 3}


class OneNode:
    """Answers a page of ``PARTITIONS``; ``packs`` names, or is of a release that did not yet."""

    def __init__(self, *, packs: bool) -> None:
        self._packs = packs

    async def call(
        self, _method: str, request: pb.ListObjectsRequest, *_: Any, **_more: Any
    ) -> pb.ListObjectsResponse:
        response = pb.ListObjectsResponse(next_page_token="more")
        if self._packs and request.packed_names:
            response.names.extend(PARTITIONS)
            response.partitions.extend(PARTITIONS.values())
        else:
            response.items.extend(
                Item(kind=KIND_TOPIC, name=name, topic=Topic(name=name, partitions=count))
                for name, count in PARTITIONS.items()
            )
        return response


@pytest.mark.parametrize("packs", [True, False])
async def test_a_page_of_names_has_their_partitions_also_from_an_earlier_release(packs):
    page = await Listings(OneNode(packs=packs), 1_000).topic_names_page("t/n")

    assert page.partitions == PARTITIONS
    assert page.next_page_token == "more"
