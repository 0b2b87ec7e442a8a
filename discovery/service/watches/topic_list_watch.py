"""One watch of the topics that a pattern describes: a place at a list that many watchers share.

the list, or "the known hash holds" ─▶ changes, each with the hash behind it
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

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
        self._parts: Iterator[TopicListUpdate] = iter(())

    def __repr__(self) -> str:
        return f"<TopicListWatch {self._pattern.text!r}>"

    @property
    def sent(self) -> Mapping[int, int]:
        return NO_POSITIONS

    async def take(self) -> bytes:
        update = next(self._parts, None)
        while update is None:
            self._parts = await self._next_parts()
            update = next(self._parts, None)
        return WatchUpdate(list=update).SerializeToString()

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

    async def _next_parts(self) -> Iterator[TopicListUpdate]:
        """Wait for the list, or its next change, and return the updates that carry it."""
        if self.error is not None:
            raise self.error
        try:
            if self._place is None:
                place = self._place = await self._lists.watch(self._namespace, self._pattern)
                is_known = place.hash == self._known_hash
                names = () if is_known else place.names()
                return _updates(place.hash, names, (), is_whole=not is_known)
            change = await self._place.next_change()
        except MetadataError as error:
            self.fail(error)
            raise self.error or error from error
        return _updates(change.hash, change.created, change.deleted)


def _updates(
    hash_: str, created: Sequence[str], deleted: Sequence[str], *, is_whole: bool = False
) -> Iterator[TopicListUpdate]:
    """Yield the updates of a change, or of the ``whole`` list. The last one has the hash."""
    left = len(created) + len(deleted)
    if not left:
        yield TopicListUpdate(whole=is_whole, hash=hash_)
    for names in _pages(deleted):
        left -= len(names)
        yield TopicListUpdate(deleted=names, more=left > 0, hash="" if left else hash_)
    for names in _pages(created):
        is_first, left = left == len(created), left - len(names)
        yield TopicListUpdate(
            whole=is_whole and is_first,
            created=names,
            more=left > 0,
            hash="" if left else hash_,
        )


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(names), PAGE_ITEMS_MAX):
        yield names[at : at + PAGE_ITEMS_MAX]
