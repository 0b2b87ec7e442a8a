"""Reading the namespaces at a broker, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from nextgen.client.brokers.namespaces import BrokerNamespaces
from nextgen.kernel.errors import Unavailable
from protos.nextgen.v1 import broker_service_pb2 as pb

PAGES = {"": (["a/a", "a/b"], True), "a/b": (["a/c"], False)}


class Channels:
    """Answers as a broker does whose pages have two names."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []

    async def call(self, endpoint: str, path: str, request: Any, _type: Any, **_more: Any) -> Any:
        self.read.append((endpoint, request.after))
        assert path == "/nextgen.v1.BrokerService/ListHeldNamespaces"
        names, more = PAGES[request.after]
        return pb.ListHeldNamespacesResponse(names=names, more=more)


async def test_all_pages_are_read_each_behind_the_last_name_of_the_one_before() -> None:
    brokers = BrokerNamespaces()
    channels = Channels()
    brokers._channels = channels  # type: ignore[assignment]

    assert await brokers.at("b-1:9") == ["a/a", "a/b", "a/c"]
    assert channels.read == [("b-1:9", ""), ("b-1:9", "a/b")]


async def test_a_broker_without_an_address_is_not_reached() -> None:
    with pytest.raises(Unavailable, match="no address"):
        await BrokerNamespaces().at("")
