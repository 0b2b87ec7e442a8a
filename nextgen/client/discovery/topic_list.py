"""The topics that a pattern describes, as they change: watched, or polled at servers that cannot.

watch ─▶ the list ─▶ changes ─▶ the stream ends ─▶ watch with the last hash ─▶ the difference
  │ refused: no list is watched there; or an update without a list: an earlier release
  └─▶ poll: the names page by page, with the pattern matched here
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.discovery.watch import updates_of
from nextgen.client.model import TopicNamesPage
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import NamespaceName
from nextgen.kernel.routing.system_topics import is_system_topic
from nextgen.kernel.routing.unit_names import unit_names
from nextgen.pulsar.topic_lists.hash import sort_key, topics_hash
from nextgen.pulsar.topic_lists.namespace_pattern import parse_namespace_pattern
from nextgen.pulsar.topic_lists.pattern import TopicPattern
from protos.nextgen.v1.discovery_service_pb2 import TopicListUpdate, WatchRequest

_PERSISTENT = "persistent"

ReadPage = Callable[[NamespaceName, str], Awaitable[TopicNamesPage]]
"""Reads a page of the persistent topics of a namespace, behind a page token."""


@dataclass(frozen=True, slots=True)
class TopicListChanged:
    """A change of a list; the first has all that there is. Partitions have names of their own."""

    created: tuple[str, ...]
    deleted: tuple[str, ...]
    hash: str
    """Of the whole list behind the change, as Apache Pulsar computes it."""
    is_polled: bool = False
    """Whether it was found by polling, so that it may be late by the interval."""


class WatchedList:
    """The list as it is known, and its differences."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.hash = ""
        """Empty: nothing is known yet."""

    def replace(self, names: set[str], hash_: str, *, is_polled: bool) -> TopicListChanged | None:
        """Take a whole list; return the difference, None if there is none."""
        is_first, known = not self.hash, self.names
        self.names, self.hash = names, hash_
        if not is_first and known == names:
            return None
        return _changed(names - known, known - names, hash_, is_polled=is_polled)

    def apply(self, created: set[str], deleted: set[str], hash_: str) -> TopicListChanged | None:
        created, deleted = created - self.names, deleted & self.names
        self.names = (self.names | created) - deleted
        self.hash = hash_
        return _changed(created, deleted, hash_) if created or deleted else None


class _Update:
    """The parts of one update that have arrived."""

    def __init__(self) -> None:
        self._is_whole = False
        self._created: set[str] = set()
        self._deleted: set[str] = set()

    def take(self, part: TopicListUpdate, known: WatchedList) -> TopicListChanged | None:
        """Add a part. The last one applies the update: return what that changed, if anything."""
        self._is_whole |= part.whole
        self._created.update(part.created)
        self._deleted.update(part.deleted)
        if part.more:
            return None
        if self._is_whole or not known.hash:
            return known.replace(self._created, part.hash, is_polled=False)
        return known.apply(self._created, self._deleted, part.hash)


async def watch_topic_list(
    nodes: DiscoveryNodes, text: str, read_page: ReadPage, *, poll_ms: int, timeout_ms: int
) -> AsyncGenerator[TopicListChanged]:
    """Yield the list and its changes; see ``Client.watch_topic_list``."""
    namespace, pattern = parse_namespace_pattern(text)
    known = WatchedList()
    arriving = _Update()

    def next_request() -> WatchRequest:
        # Of a stream that broke in the middle of an update nothing counts.
        nonlocal arriving
        arriving = _Update()
        # Earlier releases watch the prefix instead.
        prefix = f"{_PERSISTENT}://{namespace.text}/"
        return WatchRequest(pattern=text, known_hash=known.hash, prefix=prefix)

    try:
        async with aclosing(updates_of(nodes, "WatchTopics", next_request, timeout_ms)) as updates:
            async for update in updates:
                if not update.HasField("list"):
                    break
                change = arriving.take(update.list, known)
                if not update.list.more:
                    arriving = _Update()
                if change is not None:
                    yield change
    except Refused as error:
        if error.code != RejectionCode.NOT_ALLOWED:
            raise
    while True:
        names = await _read(namespace, pattern, read_page)
        change = known.replace(names, topics_hash(names), is_polled=True)
        if change is not None:
            yield change
        await asyncio.sleep(poll_ms / 1_000)


async def _read(namespace: NamespaceName, pattern: TopicPattern, read_page: ReadPage) -> set[str]:
    names: set[str] = set()
    token = ""
    while True:
        page = await read_page(namespace, token)
        for name, partitions in page.partitions.items():
            if not is_system_topic(name) and pattern.matches(name):
                names.update(unit_names(name, partitions))
        token = page.next_page_token
        if not token:
            return names


def _changed(
    created: set[str], deleted: set[str], hash_: str, *, is_polled: bool = False
) -> TopicListChanged:
    return TopicListChanged(
        tuple(sorted(created, key=sort_key)),
        tuple(sorted(deleted, key=sort_key)),
        hash_,
        is_polled,
    )
