"""One watch of the topics that a pattern describes: a place at a list that many watchers share.

the list, or "the known hash holds" ─▶ changes, each with the hash behind it
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from discovery.domain.update_queue import NO_POSITIONS
from discovery.ports import Clock
from discovery.service.watches.public_watch import Stalls
from nextgen.kernel.errors import MetadataError, Overloaded
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.stream import WATCH_STALLED_MS_MAX
from nextgen.pulsar.topic_lists.namespace_pattern import parse_namespace_pattern
from nextgen.pulsar.topic_lists.ports import TopicLists, WatchedTopicList
from protos.nextgen.v1.discovery_service_pb2 import TopicListUpdate, WatchRequest, WatchUpdate


class TopicListWatch:
    """A watch like ``public_watch.Watch``.

    Raises:
        InvalidRequest: The pattern is none, or names no namespace.
    """

    def __init__(self, lists: TopicLists, request: WatchRequest, clock: Clock) -> None:
        self.error: MetadataError | None = None
        self.ended = asyncio.Event()
        self.stalls = Stalls(clock)
        self._lists = lists
        self._namespace, self._pattern = parse_namespace_pattern(request.pattern)
        self._known_hash = request.known_hash
        self._place: WatchedTopicList | None = None
        self._parts: deque[TopicListUpdate] = deque()

    def __repr__(self) -> str:
        return f"<TopicListWatch {self._pattern.text!r}>"

    @property
    def sent(self) -> Mapping[int, int]:
        return NO_POSITIONS

    async def take(self) -> bytes:
        if not self._parts:
            await self._go_on()
        return WatchUpdate(list=self._parts.popleft()).SerializeToString()

    def fail(self, error: MetadataError) -> None:
        if self.error is None:
            self.error = error
            self.ended.set()
            if self._place is not None:
                self._place.close()

    async def close(self) -> None:
        """Give up the place at the list."""
        if self._place is not None:
            self._place.close()

    def tick(self) -> None:
        if self.stalls.is_stalled:
            self.fail(
                Overloaded(f"the watcher has read nothing for {WATCH_STALLED_MS_MAX // 1_000} s")
            )

    async def _go_on(self) -> None:
        """Wait for the list, or its next change, and divide it into updates."""
        if self.error is not None:
            raise self.error
        try:
            if self._place is None:
                self._place = await self._lists.watch(self._namespace, self._pattern)
                is_known = self._place.hash == self._known_hash
                self._put_whole([] if is_known else self._place.names(), is_whole=not is_known)
                return
            change = await self._place.next_change()
        except MetadataError as error:
            self.fail(error)
            raise self.error or error from error
        for names in _pages(change.deleted):
            self._parts.append(TopicListUpdate(deleted=names, more=True))
        for names in _pages(change.created):
            self._parts.append(TopicListUpdate(created=names, more=True))
        self._end(change.hash)

    def _put_whole(self, names: Sequence[str], *, is_whole: bool) -> None:
        assert self._place is not None
        for page in _pages(names) or [()]:
            self._parts.append(TopicListUpdate(created=page, more=True))
        self._parts[0].whole = is_whole
        self._end(self._place.hash)

    def _end(self, hash_: str) -> None:
        self._parts[-1].more = False
        self._parts[-1].hash = hash_


def _pages(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + PAGE_ITEMS_MAX] for at in range(0, len(names), PAGE_ITEMS_MAX)]
