"""The client's watcher by pattern: differences over reconnects, and polling at older nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from nextgen.client.discovery import topic_list
from nextgen.client.discovery.topic_list import watch_topic_list
from nextgen.client.model import TopicNamesPage
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import TopicListUpdate, WatchUpdate

A, B, C = (f"persistent://t/n/{local}" for local in "abc")


class Server:
    """Streams of updates, one behind the other, and pages for pollers."""

    def __init__(self, *streams: list[WatchUpdate] | Refused) -> None:
        self.streams = streams
        self.hashes: list[str] = []
        self.pages = [TopicNamesPage({}, "")]

    async def updates(
        self, _nodes: Any, method: str, next_request: Any, _timeout_ms: int
    ) -> AsyncGenerator[WatchUpdate]:
        assert method == "WatchTopics"
        for stream in self.streams:
            self.hashes.append(next_request().known_hash)
            if isinstance(stream, Refused):
                raise stream
            for update in stream:
                yield update
        await asyncio.Event().wait()

    async def page(self, _namespace: Any, _token: str) -> TopicNamesPage:
        return self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]

    def watch(self) -> Any:
        nodes: Any = None
        return watch_topic_list(nodes, "t/n/.*", self.page, poll_ms=0, timeout_ms=1_000)


def update(*created: str, deleted: tuple[str, ...] = (), of: tuple[str, ...], **more: bool) -> Any:
    hash_ = "" if more.get("more") else topics_hash(of)
    part = TopicListUpdate(created=created, deleted=deleted, hash=hash_, **more)
    return WatchUpdate(list=part)


async def take(watch: Any, count: int) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    changes = []
    async with timeout(30):
        while len(changes) < count:
            change = await anext(watch)
            changes.append((change.created, change.deleted))
    return changes


@pytest.fixture
def serve(monkeypatch):
    def serve(*streams: list[WatchUpdate] | Refused) -> Server:
        server = Server(*streams)
        monkeypatch.setattr(topic_list, "updates_of", server.updates)
        return server

    return serve


async def test_a_list_in_parts_and_its_changes_are_yielded(serve):
    server = serve(
        [
            update(B, of=(), whole=True, more=True),
            update(A, of=(A, B)),
            update(C, of=(A, B, C)),
            update(deleted=(A,), of=(B, C)),
        ]
    )
    watch = server.watch()
    assert await take(watch, 3) == [((A, B), ()), ((C,), ()), ((), (A,))]
    await watch.aclose()


async def test_another_stream_brings_the_difference_or_nothing(serve):
    server = serve(
        [update(A, B, of=(A, B), whole=True), update(C, of=(), more=True)],
        [update(of=(A, B))],
        [update(B, C, of=(B, C), whole=True)],
    )
    watch = server.watch()
    assert await take(watch, 2) == [((A, B), ()), ((C,), (A,))]
    assert server.hashes == ["", topics_hash([A, B]), topics_hash([A, B])]
    await watch.aclose()


async def test_a_whole_list_that_broke_off_does_not_make_the_next_answer_a_whole_one(serve):
    """1. The list is known. 2. A node with another list begins to send it, and dies. 3. The next
    node has the list that is known, and says so without names."""
    server = serve(
        [update(A, B, of=(A, B), whole=True)],
        [update(C, of=(), whole=True, more=True)],
        [update(of=(A, B)), update(C, of=(A, B, C))],
    )
    watch = server.watch()
    assert await take(watch, 2) == [((A, B), ()), ((C,), ())]
    await watch.aclose()


async def test_an_empty_list_is_yielded_once(serve):
    server = serve([update(of=(), whole=True), update(A, of=(A,))])
    watch = server.watch()
    assert await take(watch, 2) == [((), ()), ((A,), ())]
    await watch.aclose()


async def test_a_node_without_such_watches_is_polled(serve):
    server = serve([WatchUpdate(shard_id=1, reset=True)])
    server.pages = [
        TopicNamesPage({A: 0}, "more"),
        TopicNamesPage({B: 2, "persistent://t/n/__change_events": 0}, ""),
        TopicNamesPage({B: 2}, ""),
    ]
    watch = server.watch()
    first = await anext(watch)
    partitions = (f"{B}-partition-0", f"{B}-partition-1")
    assert first.created == (A, *partitions)
    assert first.is_polled
    assert first.hash == topics_hash(first.created)
    assert await take(watch, 1) == [((), (A,))]
    await watch.aclose()


async def test_a_node_where_no_list_is_watched_is_polled(serve):
    server = serve(Refused(RejectionCode.NOT_ALLOWED, "not here"))
    server.pages = [TopicNamesPage({A: 0}, ""), TopicNamesPage({B: 0}, "")]
    watch = server.watch()
    assert await take(watch, 2) == [((A,), ()), ((B,), (A,))]
    await watch.aclose()


async def test_another_refusal_ends_the_watch(serve):
    server = serve(Refused(RejectionCode.LIMIT_EXCEEDED, "too many topics"))
    with pytest.raises(Refused, match="too many"):
        await anext(server.watch())


async def test_a_pattern_without_a_namespace_is_refused():
    nodes: Any = None
    watch = watch_topic_list(nodes, "orders.*", Server().page, poll_ms=0, timeout_ms=1)
    with pytest.raises(InvalidRequest):
        await anext(watch)
