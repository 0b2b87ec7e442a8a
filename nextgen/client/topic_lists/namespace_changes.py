"""Follows one domain's topics of one namespace at every shard, for all lists of this process.

    the shards' streams ─▶ queue ─▶ one worker ─▶ index ─▶ the lists that may match, in slices

One watch per shard, whatever the number of lists and watchers. The worker keeps the order of each
shard. Lists are found by the literal beginning of their patterns: a change costs nothing for the
others. A pattern may be slow to match, so the worker yields; what then waits is bounded: a shard
with too much of it is treated like one whose log was cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from nextgen.client.changes.index import ChangeIndex
from nextgen.client.changes.shard_watch import WatchListener
from nextgen.client.topic_lists.topic_changes import TopicChange, topic_changes
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits.listing import TOPIC_LIST_BACKLOG_EVENTS_MAX
from nextgen.kernel.routing.names import Domain, NamespaceName
from nextgen.tasks.background import cancel_and_wait, keep
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item, Kind


class Streams(Protocol):
    """One change stream to each shard: a ``ShardStreams``."""

    def is_current(self, shard_id: int) -> bool: ...

    def add(
        self,
        shard_id: int,
        listener: WatchListener,
        *,
        kind: Kind,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> int: ...

    def remove(self, shard_id: int, watch_id: int) -> None: ...


class ChangeTaker(Hashable, Protocol):
    """A list that takes the namespace's changes."""

    @property
    def beginning(self) -> str:
        """The beginning of the names of all topics that it may have, scheme included."""

    async def take(self, shard_id: int, changes: Sequence[TopicChange]) -> None:
        """Apply changes of a shard, in order."""

    def lose(self, shard_id: int) -> None:
        """Changes of this shard were missed: its names have to be read again."""


class _Step(NamedTuple):
    shard_id: int
    changes: Sequence[TopicChange]
    position: int
    """0: changes were missed."""


class ShardProgress:
    """How far the lists have followed one shard."""

    def __init__(self) -> None:
        self.position = 0
        """All lists have the changes up to it. 0: where the watch begins is not known yet."""
        self.resets = 0
        self.watch_id = 0
        self.waiting = 0
        """Changes in the queue."""
        self._moved = asyncio.Event()

    def advance(self, position: int) -> None:
        self.position = max(self.position, position)
        self._moved.set()

    def reset(self) -> None:
        self.position = 0
        self.resets += 1
        self._moved.set()

    async def wait_begun(self) -> int:
        """Return the number of resets, once it is known where the watch begins."""
        while not self.position:
            self._moved.clear()
            await self._moved.wait()
        return self.resets

    async def wait_position(self, position: int, resets: int) -> bool:
        """Return whether all changes up to ``position`` were taken, without a reset since there
        were ``resets``."""
        while self.position < position and self.resets == resets:
            self._moved.clear()
            await self._moved.wait()
        return self.resets == resets


class NamespaceChanges:
    """See the module. ``leave`` and ``stop`` it at the end."""

    def __init__(
        self,
        namespace: NamespaceName,
        domain: Domain,
        streams: Streams,
        shard_ids: Iterable[int],
        on_ended: Callable[[MetadataError], None],
    ) -> None:
        self._lists: dict[ChangeTaker, None] = {}
        self._index: ChangeIndex[None, ChangeTaker] = ChangeIndex()
        self.progress = {shard_id: ShardProgress() for shard_id in shard_ids}
        self._namespace = namespace
        self._domain = domain
        self._streams = streams
        self._on_ended = on_ended
        self._queue: deque[_Step] = deque()
        self._has_work = asyncio.Event()
        self._has_left = False
        self._worker = keep("topic_lists", self._work)

    def __repr__(self) -> str:
        return f"<NamespaceChanges {self._prefix} lists={len(self._lists)}>"

    @property
    def _prefix(self) -> str:
        return f"{self._domain}://{self._namespace.text}/"

    def add(self, shared: ChangeTaker) -> None:
        """Pass changes to a list from here on."""
        self._lists[shared] = None
        self._index.add(None, shared, [KIND_TOPIC], prefix=shared.beginning)

    def remove(self, shared: ChangeTaker) -> None:
        """Pass nothing more to a list. Idempotent."""
        self._lists.pop(shared, None)
        self._index.discard(None, shared, [KIND_TOPIC], prefix=shared.beginning)

    @property
    def has_lists(self) -> bool:
        return bool(self._lists)

    def begin(self) -> None:
        """Watch every shard.

        Raises:
            Overloaded: A stream has as many watches as it may have.
        """
        for shard_id, progress in self.progress.items():
            progress.watch_id = self._streams.add(
                shard_id,
                _Listener(self, shard_id),
                kind=KIND_TOPIC,
                prefix=self._prefix,
                names=(),
                from_position=0,
            )

    def leave(self) -> None:
        """End the watches. ``stop`` it afterwards."""
        self._has_left = True
        for shard_id, progress in self.progress.items():
            if progress.watch_id:
                self._streams.remove(shard_id, progress.watch_id)

    async def stop(self) -> None:
        """End the worker."""
        await cancel_and_wait(self._worker)

    @property
    def is_current(self) -> bool:
        """Whether every shard's stream is connected."""
        return all(self._streams.is_current(shard_id) for shard_id in self.progress)

    # As the streams call it ---------------------------------------------------------------------

    def put(self, shard_id: int, changes: Sequence[TopicChange], position: int) -> None:
        progress = self.progress[shard_id]
        if progress.waiting + len(changes) > TOPIC_LIST_BACKLOG_EVENTS_MAX:
            self._drop(shard_id)
            changes = ()
        progress.waiting += len(changes)
        self._queue.append(_Step(shard_id, changes, position))
        self._has_work.set()

    def of_namespace(self, events: Sequence[Event]) -> list[TopicChange]:
        """Return the changes of the namespace's topics. A rename may be half of another one's."""
        prefix = self._prefix
        return [each for each in topic_changes(events) if each.base_name.startswith(prefix)]

    def _drop(self, shard_id: int) -> None:
        """Drop what waits of a shard: it will be read again."""
        kept = [step for step in self._queue if step.shard_id != shard_id]
        self._queue.clear()
        self._queue.extend(kept)
        self._queue.append(_Step(shard_id, (), 0))
        self.progress[shard_id].waiting = 0

    def end(self, error: MetadataError) -> None:
        self._on_ended(error)

    async def _work(self) -> None:
        while True:
            while self._queue:
                try:
                    await self._take(self._queue.popleft())
                except BaseException as error:
                    # What was taken in part cannot be taken again, after a cancellation neither.
                    if not self._has_left:
                        broken = f"the lists of {self._namespace.text} broke: {error!r}"
                        self.end(Unavailable(broken))
                    raise
            self._has_work.clear()
            await self._has_work.wait()

    async def _take(self, step: _Step) -> None:
        progress = self.progress[step.shard_id]
        progress.waiting = max(0, progress.waiting - len(step.changes))
        if not step.position:
            if progress.position:
                progress.reset()
                for shared in tuple(self._lists):
                    shared.lose(step.shard_id)
            return
        for shared, changes in self._by_list(step.changes).items():
            if shared in self._lists:
                await shared.take(step.shard_id, changes)
        progress.advance(step.position)

    def _by_list(self, changes: Sequence[TopicChange]) -> dict[ChangeTaker, list[TopicChange]]:
        """Return by list the changes that it may match."""
        found: dict[ChangeTaker, list[TopicChange]] = {}
        for change in changes:
            for lists in self._index.find((KIND_TOPIC, change.base_name)):
                for shared in lists[None]:
                    found.setdefault(shared, []).append(change)
        return found


class _Listener:
    """The watch of one shard."""

    def __init__(self, owner: NamespaceChanges, shard_id: int) -> None:
        self._owner = owner
        self._shard_id = shard_id

    def on_reset(self) -> None:
        self._owner.put(self._shard_id, (), 0)

    def on_items(self, items: Sequence[Item]) -> None:
        """Do nothing: the watch has no snapshot."""

    def on_snapshot_complete(self, position: int) -> None:
        """Do nothing: the watch has no snapshot."""

    def on_events(self, events: Sequence[Event]) -> None:
        self._owner.put(self._shard_id, self._owner.of_namespace(events), events[-1].position)

    def on_position(self, position: int) -> None:
        self._owner.put(self._shard_id, (), position)

    def on_ended(self, error: MetadataError) -> None:
        self._owner.end(error)
