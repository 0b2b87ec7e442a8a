"""All topic lists of one process: made once per namespace and pattern, kept while there is memory.

current ─┬─ the caller's hash is that of a live list ─▶ "unchanged", nothing is read
         ├─ another hash ─▶ the list's names
         └─ no hash, other domains, properties ─▶ the shards are asked
watch ───── a place at the list
watch_scalable ── the same for scalable topics by their properties
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from nextgen.client.cluster.view import ClusterView
from nextgen.client.topic_lists.namespace_changes import NamespaceChanges, Streams
from nextgen.client.topic_lists.place import Place
from nextgen.client.topic_lists.selection import (
    PatternSelection,
    PropertySelection,
    Selection,
)
from nextgen.client.topic_lists.shard_names import Shards
from nextgen.client.topic_lists.shared_list import NoRoom, SharedList
from nextgen.kernel.errors import MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.listing import (
    FILTERED_LISTS_READ_MAX,
    TOPIC_LIST_KEPT_MS,
    TOPIC_LIST_OVERHEAD_BYTES,
    TOPIC_LIST_WATCHER_BYTES,
    TOPIC_LISTS_BYTES_MAX,
    TOPIC_LISTS_GROWN_BYTES_MAX,
)
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.routing.names import Domain, NamespaceName
from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.kernel.routing.slots import SlotTable
from nextgen.pulsar.scalable_topics.ports import WatchedNames
from nextgen.pulsar.topic_lists.pattern import EVERYTHING, TopicPattern, compile_pattern
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicList, WatchedTopicList
from nextgen.tasks.background import cancel_and_wait, keep, start

_NAME_BYTES_OVERHEAD = 2
"""What a name takes in an answer besides itself and one more byte."""

_Key = tuple[str, Hashable]
"""A namespace, and the key of a selection."""


class KnownCluster(Protocol):
    """A ``ClusterLink``, as far as lists need it."""

    @property
    def view(self) -> ClusterView: ...


class SharedTopicLists:
    """See ``nextgen.pulsar.topic_lists.ports.TopicLists``. Owned by one event loop; ``stop`` it.

    ``listed`` reads a list from the shards.
    """

    def __init__(
        self,
        streams: Streams,
        shards: Shards,
        cluster: KnownCluster,
        listed: Callable[[ListQuestion], Awaitable[TopicList]],
        *,
        bytes_max: int = TOPIC_LISTS_BYTES_MAX,
        grown_bytes_max: int = TOPIC_LISTS_GROWN_BYTES_MAX,
    ) -> None:
        self._streams = streams
        self._shards = shards
        self._cluster = cluster
        self._listed = listed
        self._bytes_max = bytes_max
        self._grown_bytes_max = grown_bytes_max
        self._clock = asyncio.get_running_loop().time
        self._lists: OrderedDict[_Key, SharedList] = OrderedDict()
        """The least recently used first."""
        self._namespaces: dict[tuple[str, Domain], NamespaceChanges] = {}
        self._reads = asyncio.Semaphore(FILTERED_LISTS_READ_MAX)
        self._table: SlotTable | None = None
        self._used_bytes = 0
        self._watchers = 0
        self._unchanged = 0
        self._refused = 0
        self._refreshes = 0
        self._stopping: set[asyncio.Task[None]] = set()
        self._expiring: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SharedTopicLists lists={len(self._lists)} watchers={self._watchers}>"

    @property
    def has_room(self) -> bool:
        """See ``TopicLists.has_room``."""
        needed_bytes = TOPIC_LIST_OVERHEAD_BYTES + TOPIC_LIST_WATCHER_BYTES
        return self._used_bytes + needed_bytes <= self._bytes_max or any(
            not shared.places for shared in self._lists.values()
        )

    async def current(self, question: ListQuestion) -> TopicList:
        """See ``TopicLists.current``.

        A caller without a hash gets what the shards have when it asks. One with a hash compares
        with the kept list, which is behind the shards by the time that an update takes.
        """
        is_kept = question.domain == Domain.PERSISTENT.value and not question.properties
        if not question.known_hash or not is_kept:
            return await self._listed(question)
        pattern = question.pattern or compile_pattern(EVERYTHING)
        try:
            selection = PatternSelection(question.namespace, pattern)
            shared = await self._loaded(question.namespace, selection)
        except MetadataError:
            return await self._listed(question)
        if not shared.is_live:
            return await self._listed(question)
        if shared.hash == question.known_hash:
            self._unchanged += 1
            return TopicList(shared.hash, None)
        if shared.text_bytes + _NAME_BYTES_OVERHEAD * len(shared) > TOPIC_LIST_BYTES_MAX:
            raise Refused(
                RejectionCode.LIMIT_EXCEEDED,
                f"namespace {question.namespace.text} has more matching topics than fit into one "
                f"answer of {TOPIC_LIST_BYTES_MAX} bytes; a listing over HTTP has no limit: "
                f"GET /admin/v2/namespaces/{question.namespace.text}/topics",
            )
        return TopicList(shared.hash, shared.sorted_names())

    async def watch(
        self,
        namespace: NamespaceName,
        pattern: TopicPattern,
        after: WatchedTopicList | None = None,
    ) -> WatchedTopicList:
        """See ``TopicLists.watch``."""
        return await self._place(namespace, PatternSelection(namespace, pattern), after)

    async def watch_scalable(
        self,
        namespace: NamespaceName,
        properties: PropertyFilter,
        after: WatchedNames | None = None,
    ) -> WatchedNames:
        """See ``ScalableTopicLists.watch_scalable``."""
        selection = PropertySelection(namespace, properties)
        if not selection.properties or (namespace.text, selection.key) in self._lists:
            return await self._place(namespace, selection, after)
        # Objects are many times as large as names, and anybody may send any number of filters.
        async with self._reads:
            return await self._place(namespace, selection, after)

    async def _place(
        self, namespace: NamespaceName, selection: Selection, after: object | None
    ) -> Place:
        self._make_room_for(TOPIC_LIST_WATCHER_BYTES)
        shared = await self._loaded(namespace, selection)
        self._make_room_for(TOPIC_LIST_WATCHER_BYTES, shared)

        def leave(place: Place) -> None:
            if shared.places.pop(place, 0) is None:
                self._watchers -= 1
                self._used_bytes -= TOPIC_LIST_WATCHER_BYTES
                shared.used_at = self._clock()

        assert after is None or isinstance(after, Place), "it is one of these lists'"
        place = shared.place(leave, after)
        self._watchers += 1
        self._used_bytes += TOPIC_LIST_WATCHER_BYTES
        return place

    def cluster_changed(self) -> None:
        """Note that the view of the cluster changed. If slots moved, every list begins again."""
        table = self._cluster.view.slot_table
        if self._table is not None and table is not None and table.owners != self._table.owners:
            for changes in tuple(self._namespaces.values()):
                changes.end(Unavailable("the shard map changed"))
        self._table = table

    def make_room(self, shared: SharedList) -> None:
        """See ``Charge.make_room``."""
        grown = shared.size_bytes - shared.charged_bytes
        if grown > 0:
            self._make_room_for(grown, shared)
        self.account(shared)

    def account(self, shared: SharedList) -> None:
        """See ``Charge.account``."""
        if self._lists.get((shared.namespace.text, shared.selection.key)) is shared:
            size_bytes = shared.size_bytes
            self._used_bytes += size_bytes - shared.charged_bytes
            shared.charged_bytes = size_bytes
            if self._used_bytes > self._grown_bytes_max:
                self._end_largest()

    def caught_up(self) -> None:
        """See ``Charge.caught_up``."""
        self._refreshes += 1

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return {
            "topic_list_refreshes": self._refreshes,
            "topic_lists_unchanged": self._unchanged,
            "topic_lists_refused": self._refused,
        }

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {
            "topic_lists": len(self._lists),
            "topic_list_watchers": self._watchers,
            "topic_list_names": sum(map(len, self._lists.values())),
            "topic_list_bytes": self._used_bytes,
        }

    async def stop(self) -> None:
        """End every list."""
        for changes in tuple(self._namespaces.values()):
            changes.end(Unavailable("this node stops"))
        if self._expiring is not None:
            await cancel_and_wait(self._expiring)
        await asyncio.gather(*self._stopping, return_exceptions=True)

    # ------------------------------------------------------------------------------------------

    async def _loaded(self, namespace: NamespaceName, selection: Selection) -> SharedList:
        key = namespace.text, selection.key
        shared = self._lists.get(key)
        if shared is None:
            shared = self._lists[key] = self._begin(namespace, selection)
        self._lists.move_to_end(key)
        shared.used_at = self._clock()
        try:
            await shared.load()
        except MetadataError as error:
            # By the time that its last caller is here, another list may have the place of this one.
            if self._lists.get(key) is shared:
                self._remove(key, error)
            raise
        return shared

    def _begin(self, namespace: NamespaceName, selection: Selection) -> SharedList:
        watched = namespace.text, selection.domain
        changes = self._namespaces.get(watched)
        if changes is None:
            view = self._cluster.view
            if not view.shard_ids:
                raise Unavailable("no shard map is known here yet")
            self._table = self._table or view.slot_table
            changes = NamespaceChanges(
                namespace,
                selection.domain,
                self._streams,
                view.shard_ids,
                lambda error: self._end_namespace(watched, error),
            )
            self._namespaces[watched] = changes
            try:
                changes.begin()
            except MetadataError as error:
                self._end_namespace(watched, error)
                raise
        if self._expiring is None:
            self._expiring = keep("topic_lists_kept", self._expire)
        table = self._table
        assert table is not None, "there are shards, by a map"
        shared = SharedList(namespace, selection, changes, self._shards, self, table.shard_for_key)
        changes.add(shared)
        return shared

    def _end_namespace(self, watched: tuple[str, Domain], error: MetadataError) -> None:
        for key, shared in tuple(self._lists.items()):
            if (shared.namespace.text, shared.selection.domain) == watched:
                self._remove(key, error)
        self._leave(watched)

    def _leave(self, watched: tuple[str, Domain]) -> None:
        changes = self._namespaces.pop(watched, None)
        if changes is not None:
            changes.leave()
            start("topic_lists_end", changes.stop(), self._stopping)

    def _remove(self, key: _Key, error: MetadataError) -> None:
        shared = self._lists.pop(key, None)
        if shared is None:
            return
        shared.end(error)
        for place in tuple(shared.places):
            place.leave()
        self._used_bytes -= shared.charged_bytes
        shared.charged_bytes = 0
        shared.changes.remove(shared)
        start("topic_list_end", shared.stop(), self._stopping)
        if not shared.changes.has_lists:
            self._leave((key[0], shared.selection.domain))

    def _make_room_for(self, size_bytes: int, wanted_by: SharedList | None = None) -> None:
        """Remove lists without watchers, the least recently used first, until there is room.

        Raises:
            NoRoom: There is none.
        """
        if not self._remove_unwatched(self._bytes_max - size_bytes, wanted_by):
            self._refused += 1
            raise NoRoom(
                f"topic lists take {self._used_bytes} bytes here, {size_bytes} more are not allowed"
            )

    def _remove_unwatched(self, bytes_max: int, but: SharedList | None = None) -> bool:
        """Remove lists without watchers until no more than ``bytes_max`` are used; return whether
        that is so."""
        for key, shared in tuple(self._lists.items()):
            if self._used_bytes <= bytes_max:
                return True
            if shared.is_loaded and not shared.places and shared is not but:
                self._remove(key, NoRoom("its memory is needed for other topic lists"))
        return self._used_bytes <= bytes_max

    def _end_largest(self) -> None:
        """End the largest lists until the rest fits. Their watchers are refused with ``NoRoom``."""
        while not self._remove_unwatched(self._grown_bytes_max) and self._lists:
            key, largest = max(self._lists.items(), key=lambda each: each[1].charged_bytes)
            self._refused += 1
            self._remove(
                key,
                NoRoom(
                    f"topic lists have grown to {self._used_bytes} bytes here, "
                    f"{largest.charged_bytes} of them are of this one"
                ),
            )

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(TOPIC_LIST_KEPT_MS / 10_000)
            before = self._clock() - TOPIC_LIST_KEPT_MS / 1_000
            for key, shared in tuple(self._lists.items()):
                if not shared.places and shared.used_at < before:
                    self._remove(key, Unavailable("it was not used"))
