"""One watcher's place at a shared list: the changes that it has not taken yet, within a bound."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits.listing import TOPIC_LIST_PENDING_NAMES_MAX
from nextgen.pulsar.topic_lists.hash import sort_key
from nextgen.pulsar.topic_lists.ports import Refresh, TopicListChange


class PresentNames(Protocol):
    """The list that places share, as it is."""

    @property
    def hash(self) -> str: ...

    def sorted_names(self) -> list[str]: ...


class Place:
    """See ``nextgen.pulsar.topic_lists.ports.WatchedTopicList``."""

    __slots__ = ("_error", "_hash", "_is_behind", "_leave", "_names", "_pending", "_pending_names",
                 "_waiter")  # fmt: skip

    def __init__(self, names: PresentNames, leave: Callable[[Place], None]) -> None:
        self._names = names
        self._leave = leave
        self._hash = names.hash
        self._pending: deque[TopicListChange] | None = None
        """Made with the first change: an empty one takes as much as the rest of the place."""
        self._pending_names = 0
        self._is_behind = False
        """Whether changes were dropped: the whole list has to be read."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: MetadataError | None = None

    def __repr__(self) -> str:
        return f"<Place pending_names={self._pending_names} hash={self.hash}>"

    @property
    def hash(self) -> str:
        return self._names.hash if self._is_behind else self._hash

    def names(self) -> Sequence[str]:
        if not self._pending:
            return self._names.sorted_names()
        names = set(self._names.sorted_names())
        for change in reversed(self._pending):
            names.difference_update(change.created)
            names.update(change.deleted)
        return sorted(names, key=sort_key)

    async def next_change(self) -> TopicListChange | Refresh:
        while True:
            if self._error is not None:
                raise self._error
            if self._is_behind:
                self._hash = self._names.hash
                self._is_behind = False
                return Refresh.REFRESH
            if self._pending:
                change = self._pending.popleft()
                self._pending_names -= _count(change)
                self._hash = change.hash
                return change
            self._pending = None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        self.end(Unavailable("the watch was closed"))
        self._leave(self)

    # As the list calls it -----------------------------------------------------------------------

    def put(self, change: TopicListChange) -> None:
        """Queue a change, or the need to read the whole list if there are too many."""
        if self._is_behind:
            return
        count = _count(change)
        if self._pending_names + count > TOPIC_LIST_PENDING_NAMES_MAX:
            self.refresh()
            return
        if self._pending is None:
            self._pending = deque()
        self._pending.append(change)
        self._pending_names += count
        self._wake()

    def refresh(self) -> None:
        """Drop what waits: the watcher has to read the whole list."""
        self._pending, self._pending_names = None, 0
        self._is_behind = True
        self._wake()

    def end(self, error: MetadataError) -> None:
        """Let the watcher know that there are no further changes. The first reason stays."""
        if self._error is None:
            self._error = error
            self._pending, self._pending_names = None, 0
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _count(change: TopicListChange) -> int:
    return len(change.created) + len(change.deleted)
