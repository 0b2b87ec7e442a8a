"""The watches of one subscriber at one shard: their listeners and positions.

A watch first gets updates of its own, until one carries nothing but a position. From then on the
watch is live: it gets the updates of the whole stream, until the stream breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import structlog

from nextgen.client.changes.index import ChangeIndex, changes_in
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.stream import WATCH_PROGRESS_MS, WATCHES_PER_STREAM_MAX
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import Item, Kind
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchShardUpdate

LeaseListener = Callable[[int, int], None]
"""Called with ``confirmed_at_ms`` and ``ttl_ms`` after each update of a leased watch was applied.
Cached data may be used for ``ttl_ms`` from ``confirmed_at_ms`` on, a time of this event loop's
clock in milliseconds. The position is acknowledged when the call has returned."""

CreationListener = Callable[[Sequence[str] | None], None]
"""Called with each update of a leased watch, before its position takes effect: with the names of
the created topics, or None if the shard's leader does not name them."""

_PROGRESS_SECONDS = WATCH_PROGRESS_MS / 1_000

_logger = structlog.get_logger(__name__)


class WatchListener(Protocol):
    """Receives the changes of one watch. Called on the event loop, in order, never concurrently.

    A listener that raises ends its own watch, by ``on_ended``, and no other watch.
    """

    def on_reset(self) -> None:
        """Discard everything received so far: a snapshot follows, or the present without one."""

    def on_items(self, items: Sequence[Item]) -> None:
        """Receive a part of the snapshot."""

    def on_snapshot_complete(self, position: int) -> None:
        """All items of the snapshot, which is as of ``position``, were delivered."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Receive the next events, in order of position, each event once."""

    def on_position(self, position: int) -> None:
        """All matching events up to ``position`` were delivered."""

    def on_ended(self, error: MetadataError) -> None:
        """The watch ended for good. No method is called afterwards."""


class _Place:
    """One watch: its filter, its listener, its position."""

    __slots__ = (
        "add",
        "has_begun",
        "is_caught_up",
        "listener",
        "on_caught_up",
        "on_created",
        "on_lease",
        "position",
        "told_position",
    )

    def __init__(
        self,
        add: WatchAdd,
        listener: WatchListener,
        on_lease: LeaseListener | None,
        on_created: CreationListener | None,
        on_caught_up: Callable[[], None] | None,
    ) -> None:
        self.on_caught_up = on_caught_up
        self.add = add
        self.listener = listener
        self.on_lease = on_lease
        self.on_created = on_created
        self.position = add.from_position
        """Position up to which updates of its own brought its events, or position of its last
        event."""
        self.is_caught_up = False
        self.has_begun = bool(add.from_position)
        """False if the next update starts anew: the listener must discard everything before it."""
        self.told_position = 0
        """The position of the last ``on_position``."""

    def begin_again(self) -> None:
        """Start the watch anew: everything that was delivered is void."""
        self.position = self.told_position = 0
        self.is_caught_up = self.has_begun = False

    def __repr__(self) -> str:
        return f"<watch {self.add.watch_id} position={self.position} caught_up={self.is_caught_up}>"


class WatchPlaces:
    """Delivers the updates of successive streams to the listeners of their watches."""

    def __init__(self) -> None:
        self.resets = 0
        """Number of resets of watches since the start."""
        self.position = 0
        """Position up to which every live watch has its events, by the newest stream with one."""
        self.leased_id = 0
        """The leased watch, 0 without one."""
        self._stream_position = 0
        """The same, of the present stream."""
        self._last_id = 0
        self._places: dict[int, _Place] = {}
        self._index: ChangeIndex[None, _Place] = ChangeIndex()
        self._ttl_ms = 0
        self._failed: list[int] = []
        self._acknowledged: set[int] = set()
        self._positions_at = float("-inf")

    def __repr__(self) -> str:
        return f"<WatchPlaces watches={len(self._places)} position={self.position}>"

    @property
    def leased_position(self) -> int | None:
        """The position up to which the leased watch was applied, None without a leased watch."""
        place = self._places.get(self.leased_id)
        return None if place is None else place.position

    @property
    def has_acknowledged(self) -> bool:
        """Whether effective writes wait for acknowledgements of these watches."""
        return bool(self._acknowledged)

    def taken_in(self) -> tuple[int, list[int]]:
        """Return the position up to which acknowledged watches have their events, and the ids of
        watches that are behind it."""
        behind = [each for each in self._acknowledged if not self._places[each].is_caught_up]
        return self._stream_position, sorted(behind)

    def add(
        self,
        listener: WatchListener,
        *,
        kinds: Sequence[Kind],
        prefix: str,
        names: Sequence[str],
        from_position: int,
        without_snapshot: bool,
        leased: bool,
        on_lease: LeaseListener | None,
        on_created: CreationListener | None = None,
        on_caught_up: Callable[[], None] | None = None,
        acknowledged: bool = False,
    ) -> int:
        """Add a watch and return its id; ids count up from 1.

        Raises:
            Overloaded: There are ``WATCHES_PER_STREAM_MAX`` already.
        """
        if len(self._places) >= WATCHES_PER_STREAM_MAX:
            raise Overloaded(f"this stream has {WATCHES_PER_STREAM_MAX} watches")
        self._last_id += 1
        add = WatchAdd(
            watch_id=self._last_id,
            kinds=kinds,
            prefix=prefix,
            names=names,
            from_position=from_position,
            without_snapshot=without_snapshot,
            leased=leased,
            acknowledged=acknowledged,
            creations=on_created is not None,
        )
        place = self._places[self._last_id] = _Place(
            add, listener, on_lease, on_created, on_caught_up
        )
        if acknowledged:
            self._acknowledged.add(self._last_id)
        if leased:
            self.leased_id = self._last_id
        else:
            self._index.add(None, place, add.kinds, prefix=add.prefix, names=add.names)
        return self._last_id

    def remove(self, watch_id: int) -> bool:
        """Forget a watch; return whether there was one."""
        place = self._places.pop(watch_id, None)
        if place is None:
            return False
        self._acknowledged.discard(watch_id)
        if watch_id == self.leased_id:
            self.leased_id = 0
        add = place.add
        self._index.discard(None, place, add.kinds, prefix=add.prefix, names=add.names)
        return True

    def end(self, watch_id: int, error: MetadataError) -> None:
        """Remove a watch and pass ``error`` to its listener."""
        place = self._places.get(watch_id)
        if place is not None and self.remove(watch_id):
            _call(place, lambda: place.listener.on_ended(error))

    def position_of(self, watch_id: int) -> int:
        """Return the position up to which a watch has its events, 0 during its snapshot."""
        place = self._places.get(watch_id)
        return 0 if place is None else self._position(place)

    def is_caught_up(self, watch_id: int) -> bool:
        """Return whether a watch has all the events that its stream delivered."""
        place = self._places.get(watch_id)
        return place is not None and place.is_caught_up

    def request(self, watch_id: int) -> WatchAdd:
        """Return the request that adds a watch from its present position on."""
        place = self._places[watch_id]
        add = WatchAdd()
        add.CopyFrom(place.add)
        add.from_position = place.position
        return add

    def requests(self) -> Iterator[WatchAdd]:
        """Yield the requests for all watches, in the order in which they were added."""
        for watch_id in self._places:
            yield self.request(watch_id)

    def disconnected(self) -> None:
        """Note that the stream broke: each watch keeps its position."""
        for place in self._places.values():
            place.position = self._position(place)
            place.is_caught_up = False
            if not place.position:
                # The items of an unfinished snapshot are void: the next stream sends another one.
                place.begin_again()
        self._stream_position = 0
        self._ttl_ms = 0

    def take(self, update: WatchShardUpdate, now: float) -> Sequence[int]:
        """Deliver an update without an error; return the ids of watches that ended by it.

        ``now`` is in seconds of any clock that never goes back.
        """
        self._failed = []
        if not update.watch_id:
            self._take_stream_update(update, now)
        else:
            place = self._places.get(update.watch_id)
            if place is not None:
                self._take_own(place, update)
        return self._failed

    # Inside -----------------------------------------------------------------------------------

    def _take_stream_update(self, update: WatchShardUpdate, now: float) -> None:
        concerned: dict[_Place, list[Event]] = {}
        for event in update.events:
            for place in self._index.find_of(None, changes_in(event)):
                if place.is_caught_up and place.position < event.position:
                    concerned.setdefault(place, []).append(event)
        self._stream_position = max(self._stream_position, update.position)
        self.position = max(self.position, self._stream_position)
        for place, events in concerned.items():
            place.position = events[-1].position
            if self._notify(place, lambda p=place, e=events: p.listener.on_events(e)):  # type: ignore[misc]
                self._notify_position(place)
        if now - self._positions_at >= _PROGRESS_SECONDS:
            self._positions_at = now
            for place in tuple(self._places.values()):
                if place.is_caught_up:
                    self._notify_position(place)

    def _take_own(self, place: _Place, update: WatchShardUpdate) -> None:
        if update.reset:
            self.resets += place.has_begun
            place.begin_again()
        is_told = bool(update.items or update.snapshot_complete or update.events)
        if update.reset and not is_told and not update.position:
            return
        if not self._deliver_own(place, update):
            return
        place.position = max(place.position, update.position)
        if not self._notify_position(place):
            return
        if place.add.leased:
            if len(self._places) == 1:
                # The shard sends no other updates to such a stream.
                self.position = max(self.position, update.position)
            self._take_lease(place, update)
        elif not is_told and not place.is_caught_up:
            place.is_caught_up = True
            if place.on_caught_up is not None:
                self._notify(place, place.on_caught_up)

    def _deliver_own(self, place: _Place, update: WatchShardUpdate) -> bool:
        """Deliver an update of one watch to its listener; return whether the watch continues."""
        listener = place.listener
        calls: list[Callable[[], None]] = []
        if not place.has_begun:
            place.has_begun = True
            calls.append(listener.on_reset)
        if update.items:
            calls.append(lambda: listener.on_items(update.items))
        if update.snapshot_complete:
            calls.append(lambda: listener.on_snapshot_complete(update.position))
        if update.events:
            calls.append(lambda: listener.on_events(update.events))
        on_created = place.on_created
        if on_created is not None:
            created = update.created if update.names_creations else None
            calls.append(lambda: on_created(created))
        return all(self._notify(place, call) for call in calls)

    def _take_lease(self, place: _Place, update: WatchShardUpdate) -> None:
        self._ttl_ms = update.ttl_ms or self._ttl_ms
        on_lease = place.on_lease
        if on_lease is not None and update.confirmed_at_ms:
            self._notify(place, lambda: on_lease(update.confirmed_at_ms, self._ttl_ms))

    def _position(self, place: _Place) -> int:
        return max(place.position, self._stream_position) if place.is_caught_up else place.position

    def _notify_position(self, place: _Place) -> bool:
        position = self._position(place)
        if position <= place.told_position:
            return True
        place.told_position = position
        return self._notify(place, lambda: place.listener.on_position(position))

    def _notify(self, place: _Place, call: Callable[[], None]) -> bool:
        """Call a listener; return whether its watch continues."""
        if self._places.get(place.add.watch_id) is not place:
            # Another listener removed it.
            return False
        failure = _call(place, call)
        if failure is not None:
            watch_id = place.add.watch_id
            self._failed.append(watch_id)
            self.end(watch_id, Unavailable(f"the listener of the watch failed: {failure!r}"))
        # It may have removed itself.
        return self._places.get(place.add.watch_id) is place


def _call(place: _Place, call: Callable[[], None]) -> Exception | None:
    """Call a listener; return its exception, which must not end the other watches' stream."""
    try:
        call()
    except Exception as error:
        _logger.exception("a listener of a watch failed", watch=repr(place))
        return error
    return None
