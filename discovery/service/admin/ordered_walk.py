"""A walk through the objects of all shards in the order of their names.

Each shard lists its own objects in order. The walk keeps a cursor for each: the listed entries that
were not taken yet. Everything up to the earliest end of a cursor whose shard has more may be taken,
as no shard can have anything before it that was not listed.

An object that is created or deleted during the walk may be listed or not, one that is renamed by
either name, by both or by none. Every other object is
listed once: a cursor begins with a linearizable read at the shard's leader and goes on at any
replica, which must have reached the position of that first read (ADR 0079).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from operator import itemgetter

from discovery.ports import Shards
from discovery.service.admin.deadline import all_of
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.listing import LIST_WALK_BYTES_MAX
from nextgen.kernel.routing.slots import have_all_slots
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ListResponse, ShardRequest

Entry = tuple[str, int, Item | None]
"""A name, how many partitions it has, and the object unless only names are listed."""

_name = itemgetter(0)

_DEVIATIONS = 4
"""Standard deviations by which a shard's share of a page may exceed the mean: then one answer of
each shard makes the whole page, all but a few times in ten thousand."""


_RESTARTS_MAX = 20
"""Times that a batch is read again because slots moved, before the request fails."""

_RESTART_PAUSE_S = 0.05
"""A slot is between two shards for some milliseconds, and longer when one is behind."""


class ShardCursor:
    """Listed entries of one shard that were not taken yet. ``position`` 0: nothing was read yet."""

    def __init__(self, shard_id: int, after: str, position: int) -> None:
        self.shard_id = shard_id
        self.position = position
        self.entries: list[Entry] = []
        self.has_more = True
        self.digests: set[int | None] = set()
        """Of the slots that the shard had for the answers whose entries are here."""
        self._after = after
        self._answer_entries = 0
        """Entries in the shard's last answer, which its bytes may have made shorter than its
        limit."""

    def __repr__(self) -> str:
        return f"<ShardCursor {self.shard_id} entries={len(self.entries)} more={self.has_more}>"

    @property
    def is_low(self) -> bool:
        """Whether at most half of the shard's last answer is left, and the shard has more."""
        return self.has_more and len(self.entries) <= self._answer_entries // 2

    async def read(self, shards: Shards, request: ListRequest, timeout_ms: int) -> None:
        """Read on. ``request`` is the walk's, for this cursor to fill in and to keep.

        Raises:
            MetadataError: Nothing was read.
        """
        request.after = self._after
        request.min_position = self.position
        message = ShardRequest(list=request)
        if self.position:
            response = await shards.call_any(self.shard_id, message, timeout_ms=timeout_ms)
        else:
            response = await shards.call(self.shard_id, message, timeout_ms=timeout_ms)
            self.position = response.position
        if not self.entries:
            self.digests.clear()
        has_digest = response.list.HasField("slots_digest")
        self.digests.add(response.list.slots_digest if has_digest else None)
        listed = _entries(response.list)
        if listed:
            self._after = listed[-1][0]
        elif response.list.more_items:
            raise Unavailable(f"shard {self.shard_id} has more objects and names none")
        self.has_more = response.list.more_items
        self._answer_entries = len(listed)
        # A shard node of an earlier release lists names with other prefixes too.
        matching = [entry for entry in listed if _matches(request, entry[0])]
        self.entries += matching

    def begin_again(self, after: str) -> None:
        """Forget what was read behind the name ``after``."""
        self.entries, self.has_more, self._after, self._answer_entries = [], True, after, 0

    def take(self, end: str | None) -> Sequence[Entry]:
        """Remove and return the entries up to the name ``end``, None: all of them."""
        count = len(self.entries)
        if end is not None:
            count = bisect_right(self.entries, end, key=_name)
        taken, self.entries = self.entries[:count], self.entries[count:]
        return taken


class OrderedWalk:
    """Lists what ``request`` describes, about ``batch_items`` at a time, behind ``after``.

    ``positions`` are those of a walk that this one continues. Holds at most
    ``LIST_WALK_BYTES_MAX``, and one object of each shard. One caller at a time.
    """

    def __init__(
        self,
        shards: Shards,
        shard_ids: Sequence[int],
        request: ListRequest,
        *,
        batch_items: int,
        after: str = "",
        positions: Mapping[int, int] | None = None,
    ) -> None:
        known = positions or {}
        self._shards = shards
        self._cursors = [
            ShardCursor(shard_id, after, known.get(shard_id, 0)) for shard_id in shard_ids
        ]
        self._taken_to = after
        """The last name that was taken."""
        self._request = request
        self._request.limit = _share(batch_items, len(shard_ids))
        self._request.bytes_max = max(1, LIST_WALK_BYTES_MAX // (2 * len(shard_ids)))

    @property
    def is_done(self) -> bool:
        """Whether everything was taken."""
        return not any(cursor.entries or cursor.has_more for cursor in self._cursors)

    @property
    def positions(self) -> dict[int, int]:
        """The position of each shard when the walk, or the one it continues, began."""
        return {cursor.shard_id: cursor.position for cursor in self._cursors if cursor.position}

    async def next_batch(self, timeout_ms: int) -> list[Entry]:
        """Return the next entries in the order of their names; none: the walk is done.

        May be called again after an error: entries that were read are kept.

        Raises:
            MetadataError: A shard did not answer in time.
        """
        restarts = 0
        while not self.is_done:
            await self._read_ahead(timeout_ms)
            if not self._is_whole:
                restarts += 1
                await self._begin_again(restarts)
                continue
            if any(cursor.has_more and not cursor.entries for cursor in self._cursors):
                continue  # Nothing of what that shard listed has the prefix.
            ends = [cursor.entries[-1][0] for cursor in self._cursors if cursor.has_more]
            end = min(ends, default=None)
            batch = [entry for cursor in self._cursors for entry in cursor.take(end)]
            if batch:
                batch.sort(key=_name)
                self._taken_to = batch[-1][0]
                return _each_once(batch)
        return []

    @property
    def _is_whole(self) -> bool:
        """Whether the answers that are here are of all slots, each at one shard. A slot that moved
        between two answers would have its names in both, or in none. Answers of one shard with
        different slots add up to too much."""
        return have_all_slots(digest for cursor in self._cursors for digest in cursor.digests)

    async def _begin_again(self, restarts: int) -> None:
        if restarts > _RESTARTS_MAX:
            raise Unavailable("slots move between shards: list again")
        for cursor in self._cursors:
            cursor.begin_again(self._taken_to)
        if restarts > 1:
            await asyncio.sleep(_RESTART_PAUSE_S)

    async def _read_ahead(self, timeout_ms: int) -> None:
        """Read on at the shards of low cursors.

        A cursor then holds two answers at most, the older one in part: together the cursors hold
        at most ``LIST_WALK_BYTES_MAX``.
        """
        low = [cursor for cursor in self._cursors if cursor.is_low]
        await all_of([self._read(cursor, timeout_ms) for cursor in low])

    async def _read(self, cursor: ShardCursor, timeout_ms: int) -> None:
        request = ListRequest()
        request.CopyFrom(self._request)
        await cursor.read(self._shards, request, timeout_ms)


def _each_once(batch: list[Entry]) -> list[Entry]:
    """Leave out names that come again. One shard may have listed a name that it then gave up, and
    another the renamed topic that got it since: both were true."""
    return [
        entry for place, entry in enumerate(batch) if not place or entry[0] != batch[place - 1][0]
    ]


def _share(items: int, shards: int) -> int:
    """Return how many items to request of each shard to get ``items`` in all."""
    mean = items / shards
    return min(items if shards == 1 else ceil(mean + _DEVIATIONS * sqrt(mean)) + 1, PAGE_ITEMS_MAX)


def _entries(response: ListResponse) -> list[Entry]:
    if response.names:
        return [
            (name, partitions, None)
            for name, partitions in zip(response.names, response.partitions, strict=True)
        ]
    return [(item.name, item.topic.partitions, item) for item in response.items]


def _matches(request: ListRequest, name: str) -> bool:
    prefix = request.prefix
    if not prefix:
        return True
    if request.kind == KIND_TOPIC:
        return name.partition(f"://{request.parent}/")[2].startswith(prefix)
    return name.startswith(f"{request.parent}/{prefix}" if request.parent else prefix)
