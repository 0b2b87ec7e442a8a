"""One watcher's place at a shared list: the changes that it has not taken yet, within a bound.

    live ── more changes than may wait ─▶ behind ── next_change: the net difference ─▶ live
                                            ▲
                  the list ended ───────────┘ of the place that takes over at the next list

A place that is behind has a snapshot of the list behind its last waiting change, and drops later
ones. Its watcher gets what was created and deleted since then, not the whole list again: a stock
client does not find out by itself what a list no longer has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from nextgen.client.topic_lists.name_snapshot import NameSnapshot, differences
from nextgen.client.topic_lists.turns import Turns
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits.listing import TOPIC_LIST_PENDING_NAMES_MAX
from nextgen.pulsar.topic_lists.hash import sort_key
from nextgen.pulsar.topic_lists.ports import TopicListChange

_NAME_BYTES_OVERHEAD = 2
"""What a name takes in an answer besides itself and one more byte."""


class PresentNames(Protocol):
    """The list that places share, as it is."""

    @property
    def hash(self) -> str: ...

    @property
    def text_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    def snapshot(self) -> NameSnapshot: ...

    def caught_up(self) -> None:
        """Count a watcher that got a net difference."""


class Place:
    """See ``nextgen.pulsar.topic_lists.ports.WatchedTopicList``."""

    __slots__ = ("_behind", "_error", "_hash", "_leave", "_names", "_pending", "_pending_names",
                 "_waiter")  # fmt: skip

    def __init__(
        self, names: PresentNames, leave: Callable[[Place], None], after: Place | None = None
    ) -> None:
        """``after``: a place that ended, whose watcher goes on from where it was."""
        self._names = names
        self._leave = leave
        self._hash = names.hash
        self._pending: deque[TopicListChange] | None = None
        """Made with the first change: an empty one takes as much as the rest of the place."""
        self._pending_names = 0
        self._behind: NameSnapshot | None = None
        """The list behind the pending changes, if later ones were dropped."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: MetadataError | None = None
        if after is not None:
            self._hash, self._pending = after._hash, after._pending
            self._behind = after._behind

    def __repr__(self) -> str:
        return f"<Place pending_names={self._pending_names} hash={self.hash}>"

    @property
    def hash(self) -> str:
        return self._hash

    @property
    def answer_bytes(self) -> int:
        present = self._names if self._behind is None else self._behind
        return present.text_bytes + _NAME_BYTES_OVERHEAD * len(present)

    def names(self) -> Sequence[str]:
        present = self._names.snapshot() if self._behind is None else self._behind
        if not self._pending:
            return list(present)
        names = set(present)
        for change in reversed(self._pending):
            names.difference_update(change.created)
            names.update(change.deleted)
        return sorted(names, key=sort_key)

    async def next_change(self) -> TopicListChange:
        while True:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._behind is not None:
                change = await self._catch_up(self._behind)
                if change is not None:
                    return change
            elif self._pending:
                change = self._pending.popleft()
                self._pending_names -= _count(change)
                self._hash = change.hash
                return change
            else:
                await self._wait()

    async def wait_change(self) -> None:
        while self._error is None and self._behind is None and not self._pending:
            await self._wait()

    async def take_changes(self) -> TopicListChange:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._behind is not None:
            return await self._catch_up(self._behind) or TopicListChange(self._hash)
        changes, self._pending, self._pending_names = self._pending, None, 0
        if not changes:
            return TopicListChange(self._hash)
        self._hash = changes[-1].hash
        return gathered(changes)

    def renew(self) -> NameSnapshot:
        present = self._names.snapshot()
        self._pending, self._pending_names = None, 0
        # The place that takes over goes on from here.
        self._behind = present if self._error is not None else None
        self._hash = present.hash
        return present

    def close(self) -> None:
        self._error = self._error or Unavailable("the watch was closed")
        self._pending, self._behind = None, None
        self._wake()
        self.leave()

    # As the list calls it -----------------------------------------------------------------------

    def put(self, change: TopicListChange) -> None:
        """Queue a change that the list has by now. Beyond the bound the place falls behind."""
        if self._behind is not None:
            return
        count = _count(change)
        if self._pending is None:
            self._pending = deque()
        self._pending.append(change)
        self._pending_names += count
        if self._pending_names > TOPIC_LIST_PENDING_NAMES_MAX:
            self.fall_behind()
        self._wake()

    def fall_behind(self) -> None:
        """Take no changes from here on: the watcher gets the difference."""
        if self._behind is None:
            self._behind = self._names.snapshot()
            self._wake()

    def end(self, error: MetadataError) -> None:
        """Let the watcher know that there are no further changes. The first reason stays."""
        if self._error is None:
            self.fall_behind()
            self._error = error
            self._wake()

    def leave(self) -> None:
        """Take no room at the list any longer. Idempotent."""
        self._leave(self)

    # ------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        self._pending = None
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _catch_up(self, before: NameSnapshot) -> TopicListChange | None:
        """Move to the present; return the difference, None if there is none.

        What the list changes meanwhile is the next difference.
        """
        present = self._names.snapshot()
        change = await net_change(self._pending or (), before, present)
        if self._error is not None:
            raise self._error.with_traceback(None)
        self._pending, self._pending_names = None, 0
        self._hash = present.hash
        self._behind = None if self._names.snapshot() is present else present
        if not _count(change):
            return None
        self._names.caught_up()
        return change


async def net_change(
    changes: Iterable[TopicListChange], before: NameSnapshot, after: NameSnapshot
) -> TopicListChange:
    """Return as one change what ``changes`` do, which lead to ``before``, and what follows up to
    ``after``. A name that comes and goes is in neither part of it."""
    turns = Turns()
    created: dict[str, None] = {}
    deleted: dict[str, None] = {}

    def add(new: Sequence[str], gone: Sequence[str]) -> None:
        for name in new:
            if name in deleted:
                del deleted[name]
            else:
                created[name] = None
        for name in gone:
            if name in created:
                del created[name]
            else:
                deleted[name] = None

    for change in changes:
        add(change.created, change.deleted)
    for new, gone in differences(before, after):
        add(new, gone)
        await turns.end()
    return TopicListChange(after.hash, tuple(created), tuple(deleted))


def gathered(changes: Iterable[TopicListChange]) -> TopicListChange:
    """Return changes that follow one another as one: what is deleted by it goes before what is
    created. A name that came and went is in no part of it, one that went and came in both."""
    hash_ = ""
    created: dict[str, None] = {}
    deleted: dict[str, None] = {}
    for change in changes:
        hash_ = change.hash
        for name in change.deleted:
            if name in created:
                del created[name]
            else:
                deleted[name] = None
        created.update(dict.fromkeys(change.created))
    return TopicListChange(hash_, tuple(created), tuple(deleted))


def _count(change: TopicListChange) -> int:
    return len(change.created) + len(change.deleted)
