"""Finding what was acknowledged and is not there."""

from __future__ import annotations

from typing import Any

from nextgen.cli.demo.inventory_check import missing_topics
from protos.nextgen.v1.discovery_service_pb2 import ListObjectsResponse, LookupResponse
from protos.nextgen.v1.inventory_pb2 import Item, LookupAnswer

NAMES = [f"persistent://acme/{namespace}/t-{n}" for namespace in ("a", "b") for n in range(3)]


class FakeClient:
    """A cluster that lists two names a page and knows only some."""

    def __init__(self, listed: list[str], found: list[str]) -> None:
        self._listed = sorted(listed)
        self._found = found

    async def call(self, method: str, request: Any) -> Any:
        if method == "Lookup":
            return LookupResponse(answers=[self._answer(name) for name in request.topics])
        assert method == "ListTopics"
        prefix = f"persistent://{request.parent}/"
        names = [n for n in self._listed if n.startswith(prefix) and n > request.page_token]
        page, more = names[:2], names[2:]
        return ListObjectsResponse(
            items=[Item(name=name) for name in page], next_page_token=page[-1] if more else ""
        )

    def _answer(self, name: str) -> LookupAnswer:
        code = "" if name in self._found else "NOT_FOUND"
        return LookupAnswer(topic=name, rejection_code=code)


async def missing(listed: list[str], found: list[str]) -> list[str]:
    return await missing_topics(FakeClient(listed, found), NAMES)  # type: ignore[arg-type]


async def test_nothing_is_missing_when_all_is_listed_and_found():
    assert await missing(NAMES, NAMES) == []


async def test_a_topic_that_is_not_listed_is_missing():
    assert await missing(NAMES[:-1], NAMES) == NAMES[-1:]


async def test_a_topic_that_is_listed_but_not_found_is_missing():
    assert await missing(NAMES, NAMES[1:]) == NAMES[:1]
