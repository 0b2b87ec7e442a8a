"""The names of one home shard that a broker manager follows, on one stream.

    add ──▶ gathered for some milliseconds ──▶ a watch with up to WATCH_NAMES_MAX names
                                                 │ snapshot, then events
    discard ──▶ dead in its watch                ▼
      └─ too many loose watches: their live names go on together, behind their positions

The names of a watch cannot change: a name that is no longer wanted stays in it as a dead one until
the watch is merged with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import structlog

from nextgen.client.log.event_keys import event_keys
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.stream import (
    METADATA_GATHER_MS,
    METADATA_LOOSE_WATCHES_MAX,
    METADATA_WATCH_NAMES_BYTES_MAX,
    METADATA_WATCH_NAMES_MIN,
    METADATA_WATCH_RETRY_MS,
    WATCH_NAMES_MAX,
)
from nextgen.tasks.background import keep
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Item
from shards.ports import Cancellable, Clock, ShardWatching
from shards.sessions.metadata_state import MetadataState, id_of, state_after, state_of
from shards.sessions.pending_deliveries import PendingDeliveries
from shards.sessions.session_metadata import Sent

_TOPIC_KINDS = (KIND_TOPIC,)
_PARENT_KINDS = (KIND_TENANT, KIND_NAMESPACE)

_ANY_POSITION = 1

_logger = structlog.get_logger(__name__)


class WatchedName:
    """One name, the sessions that have an object of that name, and the home shard's version."""

    __slots__ = ("came_at", "holders", "home", "is_topic", "known_at", "name", "state", "watch")

    def __init__(self, home: HomeWatch, holder: Sent) -> None:
        self.home = home
        self.is_topic = holder.kind == KIND_TOPIC
        self.name = holder.name
        self.holders = [holder]
        self.watch: _Watch | None = None
        self.state: MetadataState | None = None
        self.known_at = 0
        """The position of the snapshot or event that ``state`` is from; 0: nothing is known."""
        self.came_at = _ANY_POSITION
        """The first position at which ``state`` may have come about. A snapshot does not say."""

    def __repr__(self) -> str:
        return f"<WatchedName {self.name} holders={len(self.holders)} known_at={self.known_at}>"


OnState = Callable[[WatchedName, str], None]
"""Called with a name whose ``state`` changed, and the id of the deleted object, if there is one. It
is called for a snapshot's items too, which may be older than objects that were read elsewhere."""


class HomeWatch:
    """The followed names of one home shard, for one term. Owned by one event loop."""

    def __init__(self, shard_id: int, stream: ShardWatching, clock: Clock, on_state: OnState):
        self.shard_id = shard_id
        self.stream = stream
        self.on_state = on_state
        self.pending = PendingDeliveries()
        self._clock = clock
        self._gathered: dict[str, WatchedName] = {}
        self._watches: dict[int, _Watch] = {}
        self._timer: Cancellable | None = None
        self._is_closed = False
        self._retries = 0
        """Groups of names whose watch was ended and that are added again in a moment."""
        stream.acknowledge_with(self.pending.in_effect)
        self._runner = keep("metadata_stream", stream.run)

    def __repr__(self) -> str:
        return f"<HomeWatch shard={self.shard_id} watches={len(self._watches)}>"

    @property
    def watch_count(self) -> int:
        return len(self._watches)

    @property
    def has_names(self) -> bool:
        """Whether any name is followed, or about to be."""
        return bool(self._watches or self._gathered or self._retries)

    @property
    def is_complete(self) -> bool:
        """Whether the stream has a watch of every followed name."""
        return not self._gathered and not self._retries

    def close(self) -> None:
        """End all watches at once, without further acknowledgements.

        Pending deliveries end with the leadership. Brokers keep serving and get the missing
        deliveries from the next leader.
        """
        self._is_closed = True
        self.stream.acknowledge_with(lambda _position: 0)
        self.stream.complete_with(lambda: 0)
        if self._timer is not None:
            self._timer.cancel()
        self._runner.cancel()
        self._gathered.clear()
        self._watches.clear()

    def add(self, holder: Sent) -> WatchedName:
        """Follow the name of ``holder``; its state arrives from the home shard later."""
        watched = self._gathered[holder.name] = WatchedName(self, holder)
        if self._timer is None:
            self._schedule()
        return watched

    def discard(self, watched: WatchedName) -> None:
        """Stop following a name."""
        self._gathered.pop(watched.name, None)
        watch, watched.watch = watched.watch, None
        if watch is None:
            return
        del watch.names[watched.name]
        if not watch.names:
            self._remove(watch)

    def synced(self) -> None:
        """Note that a broker has synced more, or that a session has ended."""
        if self.pending:
            self.stream.acknowledge()

    def ended(self, watch: _Watch, error: MetadataError) -> None:
        """Watch the names again, a little later: the home shard ended their watch."""
        _logger.warning("metadata watch ended", shard=self.shard_id, why=str(error))
        if self._watches.pop(watch.watch_id, None) is None:
            return
        names = list(watch.names.values())
        for watched in names:
            watched.watch, watched.known_at = None, 0
        when = self._clock.monotonic() + METADATA_WATCH_RETRY_MS / 1000
        self._retries += 1
        self._clock.call_at(when, lambda: self._gather(names))
        self._schedule()

    def completed(self) -> None:
        """A watch has its snapshot."""
        self._schedule()

    # Inside -----------------------------------------------------------------------------------

    def _gather(self, names: Sequence[WatchedName]) -> None:
        self._retries -= 1
        # A name may have become unwanted while it waited for its retry.
        self._gathered |= {watched.name: watched for watched in names if watched.holders}
        self._schedule()

    def _schedule(self) -> None:
        if self._gathered and self._timer is None and not self._is_closed:
            when = self._clock.monotonic() + METADATA_GATHER_MS / 1000
            self._timer = self._clock.call_at(when, self._flush)

    def _flush(self) -> None:
        self._timer = None
        incomplete = sum(not watch.is_complete for watch in self._watches.values())
        if incomplete >= METADATA_LOOSE_WATCHES_MAX:
            return
        gathered, self._gathered = list(self._gathered.values()), {}
        for is_topic in (False, True):
            names = [watched for watched in gathered if watched.is_topic is is_topic]
            self._watch_all(names, is_topic, from_position=0)
            self._tighten(is_topic)

    def _tighten(self, is_topic: bool) -> None:
        """Merge loose watches, so that their number and the dead names stay bounded."""
        loose = [
            watch
            for watch in self._watches.values()
            if watch.is_topic is is_topic and watch.is_loose
        ]
        if len(loose) <= METADATA_LOOSE_WATCHES_MAX:
            return
        names = [watched for watch in loose for watched in watch.names.values()]
        # An event that one of them gets twice is recognised by its position.
        self._watch_all(names, is_topic, from_position=min(watch.position for watch in loose))
        for watch in loose:
            self._remove(watch)

    def _watch_all(
        self, names: Sequence[WatchedName], is_topic: bool, *, from_position: int
    ) -> None:
        for run in _runs(names):
            watch = _Watch(self, run, is_topic, from_position)
            watch.watch_id = self.stream.add(
                watch,
                kinds=_TOPIC_KINDS if is_topic else _PARENT_KINDS,
                names=list(watch.names),
                from_position=from_position,
                acknowledged=True,
            )
            self._watches[watch.watch_id] = watch

    def _remove(self, watch: _Watch) -> None:
        if self._watches.pop(watch.watch_id, None) is not None:
            self.stream.remove(watch.watch_id)
            self._schedule()


class _Watch:
    """One watch of the stream; see ``WatchListener`` for the order of the calls."""

    def __init__(
        self, home: HomeWatch, names: Sequence[WatchedName], is_topic: bool, position: int
    ) -> None:
        self.watch_id = 0
        self.is_topic = is_topic
        self.names = {watched.name: watched for watched in names}
        """The live ones."""
        self.position = position
        """Position up to which changes were delivered; 0 until the first snapshot is complete."""
        self._names_asked = len(names)
        self._home = home
        self._in_snapshot: set[str] | None = set() if not position else None
        for watched in names:
            watched.watch = self

    @property
    def is_complete(self) -> bool:
        """Whether it has its snapshot."""
        return self._in_snapshot is None

    @property
    def is_loose(self) -> bool:
        """Whether it is small or mostly dead, and may be merged with others."""
        if not self.is_complete:
            return False
        live = len(self.names)
        return live < METADATA_WATCH_NAMES_MIN or 2 * live < self._names_asked

    def on_reset(self) -> None:
        self._in_snapshot = set()
        for watched in self.names.values():
            watched.known_at = 0

    def on_items(self, items: Sequence[Item]) -> None:
        assert self._in_snapshot is not None, "items came outside of a snapshot"
        for item in items:
            watched = self.names.get(item.name)
            if watched is not None:
                self._in_snapshot.add(item.name)
                object_id = watched.holders[0].object_id if watched.holders else ""
                watched.state = state_of(item, name=watched.name, object_id=object_id)

    def on_snapshot_complete(self, position: int) -> None:
        found, self._in_snapshot = self._in_snapshot or set(), None
        self.position = position
        for watched in tuple(self.names.values()):
            if watched.name not in found:
                watched.state = None
            watched.known_at, watched.came_at = position, _ANY_POSITION
            self._home.on_state(watched, "")
        self._home.completed()

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            for key in event_keys(event):
                watched = self.names.get(key)
                if watched is not None and event.position > watched.known_at:
                    self._take(event, watched)

    def _take(self, event: Event, watched: WatchedName) -> None:
        before = watched.state
        watched.state = state_after(before, event)
        watched.known_at = event.position
        if watched.state is not before:
            watched.came_at = event.position
            is_deleted = before is not None and watched.state is None
            self._home.on_state(watched, id_of(before) if is_deleted and before else "")

    def on_position(self, position: int) -> None:
        if self._in_snapshot is None:
            self.position = max(self.position, position)

    def on_ended(self, error: MetadataError) -> None:
        self._home.ended(self, error)


def _runs(names: Sequence[WatchedName]) -> Iterator[list[WatchedName]]:
    """Yield runs of names that fit into one watch."""
    run: list[WatchedName] = []
    size_bytes = 0
    for watched in names:
        name_bytes = len(watched.name.encode())
        is_full = len(run) == WATCH_NAMES_MAX
        if run and (is_full or size_bytes + name_bytes > METADATA_WATCH_NAMES_BYTES_MAX):
            yield run
            run, size_bytes = [], 0
        run.append(watched)
        size_bytes += name_bytes
    if run:
        yield run
