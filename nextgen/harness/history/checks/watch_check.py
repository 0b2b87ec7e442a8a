"""Watches against the log: every event that concerns a watch, in order, each once, none besides.

If the snapshot is the log's state at its position, and exactly the log's events follow, a watcher's
fold equals the log's state at every position up to the last one that it got.

Who reads a log sees a rename as it is. A watch of topics shows it as the deletion of one name and
the creation of the other, each if the watch is about the name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nextgen.audit.verdict import Finding, FindingKind, named
from nextgen.harness.history.log_fold import (
    ASSIGNED,
    RENAMED,
    LogIndex,
    ObjectState,
    kind_of_event,
    new_name_of,
    properties_of,
)
from nextgen.harness.history.model import (
    LogEvent,
    ObjectKind,
    Observation,
    SnapshotItem,
    WatchOpened,
    WatchProgress,
    WatchRecord,
    WatchReset,
    WatchSnapshot,
)

CHECK = "watch order"

Items = Mapping[tuple[str, str], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class _Concern:
    """The events that one filter of one shard matches, by position, and their objects."""

    positions: list[int]
    """Positions of the log, ascending."""
    events: dict[int, LogEvent]
    objects: frozenset[tuple[ObjectKind, str]]


def check_watches(records: Iterable[WatchRecord], index: LogIndex) -> Iterator[Finding]:
    """Judge every watch of every watcher; ``records`` in the order each watcher wrote them."""
    concerns = _Concerns(index)
    watches: dict[tuple[str, int, int], _Watch] = {}
    for record in records:
        key = (record.watcher, record.shard, record.watch)
        watch = watches.get(key)
        if watch is None:
            watch = watches[key] = _Watch(record, index, concerns)
        yield from watch.take(record)


class _Concerns:
    """The events that match a filter, found once for all watches with it."""

    def __init__(self, index: LogIndex) -> None:
        self._index = index
        self._moved = [event for events in index.by_shard.values() for event in events if event.leg]
        self._known: dict[tuple[object, ...], _Concern] = {}

    def of(self, opened: WatchOpened) -> _Concern:
        key = (opened.shard, opened.kinds, opened.prefix, opened.names)
        known = self._known.get(key)
        if known is None:
            lets_through = filter_of(opened)
            events = {
                event.position: event
                for event in self._index.by_shard.get(opened.shard, ())
                if lets_through(event)
            }
            found = [*events.values()]
            # Objects of moved slots may have been born in another shard.
            found += [each for each in self._moved if lets_through(each)]
            is_wanted = names_wanted(opened)
            objects = (
                (kind_of_event(event), name)
                for event in found
                for name in names_of(event)
                if is_wanted(name)
            )
            known = self._known[key] = _Concern(
                sorted(events), events, frozenset((kind, name) for kind, name in objects if kind)
            )
        return known


def filter_of(opened: WatchOpened) -> Callable[[LogEvent], bool]:
    """Return the filter of the watch."""
    kinds = frozenset(opened.kinds)

    def lets_through(event: LogEvent) -> bool:
        kind = kind_of_event(event)
        if kind is None or kind.value not in kinds:
            return False
        return any(is_about(name) for name in names_of(event))

    is_about = names_wanted(opened)
    return lets_through


def names_wanted(opened: WatchOpened) -> Callable[[str], bool]:
    """Return whether the watch is about what is called so."""
    names, prefix = frozenset(opened.names), opened.prefix
    return lambda name: name in names if names else name.startswith(prefix)


def names_of(event: LogEvent) -> tuple[str, ...]:
    """Return the names that an event is about: both of a rename."""
    return (event.key, new_name_of(event)) if event.type == RENAMED else (event.key,)


@dataclass(slots=True)
class _Watch:
    first: WatchRecord
    index: LogIndex
    concerns: _Concerns
    concern: _Concern | None = None
    told_to: int | None = None
    """Position up to which all matching events were delivered; None: not known yet."""
    in_snapshot: bool = False
    has_nothing: bool = False
    """Behind an empty snapshot at position 0."""
    last_position: int = 0
    """The highest position that was mentioned so far. Later records must not go back behind it."""
    items: dict[tuple[str, str], Mapping[str, object]] = field(default_factory=dict)
    is_wanted: Callable[[str], bool] = lambda _name: True
    due: tuple[int, str] | None = None
    """Position and new name of a rename of which the watch got the deletion so far."""

    def take(self, record: WatchRecord) -> Iterator[Finding]:
        if isinstance(record, WatchOpened):
            self._open(record)
            return
        if self.concern is None:
            yield self._finding(f"received {type(record).__name__} before it was opened")
            return
        if self.due is not None:
            position, name = self.due
            self.due = None
            if isinstance(record, Observation) and record.position == position:
                yield from self._compare(record, ("topic_created", name))
                return
            yield self._finding(f"was not sent that {name} came by event {position}", position)
        match record:
            case WatchReset():
                self.in_snapshot, self.items = True, {}
            case SnapshotItem():
                yield from self._take_item(record)
            case WatchSnapshot():
                yield from self._end_snapshot(record)
            case Observation():
                yield from self._take_event(record, self.concern)
            case WatchProgress():
                yield from self._take_progress(record, self.concern)

    def _open(self, opened: WatchOpened) -> None:
        self.concern = self.concerns.of(opened)
        self.is_wanted = names_wanted(opened)
        begins_with_events = opened.without_snapshot or opened.from_beginning
        self.in_snapshot = not opened.from_position and not begins_with_events
        self.told_to = opened.from_position or (0 if opened.from_beginning else None)
        self.last_position = opened.from_position
        self.items = {}
        self.has_nothing = False

    def _take_item(self, item: SnapshotItem) -> Iterator[Finding]:
        self._begin_without_reset()
        if not self.in_snapshot:
            yield self._finding(f"was sent the item {item.key} outside of a snapshot")
            return
        if (item.kind, item.key) in self.items:
            yield self._finding(f"was sent the item {item.key} twice in one snapshot")
        self.items[(item.kind, item.key)] = item.state

    def _begin_without_reset(self) -> None:
        """Let a second snapshot begin without a reset behind an empty one at position 0.

        A new shard sends such an empty snapshot first. The client reports a reset only of a shard
        of which the watcher already has objects or a position.
        """
        if self.has_nothing and not self.last_position:
            self.in_snapshot, self.has_nothing = True, False

    def _end_snapshot(self, snapshot: WatchSnapshot) -> Iterator[Finding]:
        position = snapshot.position
        self._begin_without_reset()
        if not self.in_snapshot:
            yield self._finding(f"received the end of a snapshot at {position} and none had begun")
        if not position and not self.items and self.last_position:
            # The shard has no part in the watch now; should it get one again, a reset comes first.
            self.last_position, self.told_to = 0, None
            return
        if position < self.last_position:
            yield self._finding(f"received a snapshot at {position} after {self.last_position}")
        expected = _items_at(self.index, self.concern, self.first.shard, position)
        for difference in _differences(self.items, expected):
            yield self._finding(f"has a snapshot at {position} in which {difference}")
        self.in_snapshot, self.items = False, {}
        self.told_to = self.last_position = position
        self.has_nothing = not position

    def _take_event(self, seen: Observation, concern: _Concern) -> Iterator[Finding]:
        position = seen.position
        if self.in_snapshot:
            yield self._finding(f"was sent event {position} inside a snapshot", position)
            return
        if self.told_to is not None and position <= self.told_to:
            what = "twice or" if position in concern.events else ""
            yield self._finding(
                f"was sent event {position} {what} behind {self.told_to}".replace("  ", " "),
                position,
            )
            return
        event = concern.events.get(position)
        if event is None:
            yield self._finding(f"was sent event {position}, which does not concern it", position)
        elif event.type == RENAMED and seen.type != RENAMED:
            yield from self._take_rename(seen, event)
        else:
            yield from self._compare(seen, (event.type, event.key), event.epoch)
        yield from self._check_gap(concern, position - 1)
        self.told_to = self.last_position = position

    def _take_rename(self, seen: Observation, event: LogEvent) -> Iterator[Finding]:
        """Take the first change of a rename, of the names that the watch is about."""
        new_name = new_name_of(event)
        is_new_wanted = self.is_wanted(new_name)
        if not self.is_wanted(event.key):
            yield from self._compare(seen, ("topic_created", new_name))
            return
        yield from self._compare(seen, ("topic_deleted", event.key))
        if is_new_wanted:
            self.due = (seen.position, new_name)

    def _compare(
        self, seen: Observation, expected: tuple[str, str], epoch: int = 0
    ) -> Iterator[Finding]:
        if (seen.type, seen.key) != expected or (seen.epoch and seen.epoch != epoch):
            yield self._finding(
                f"was sent event {seen.position} as {seen.type} of {seen.key}, "
                f"it is {expected[0]} of {expected[1]}",
                seen.position,
            )

    def _take_progress(self, progress: WatchProgress, concern: _Concern) -> Iterator[Finding]:
        if self.in_snapshot:
            return  # It is about the watches that are not behind.
        if self.told_to is not None and progress.position < self.told_to:
            yield self._finding(f"received progress {progress.position} after {self.told_to}")
            return
        yield from self._check_gap(concern, progress.position)
        self.told_to = self.last_position = progress.position

    def _check_gap(self, concern: _Concern, up_to: int) -> Iterator[Finding]:
        """Report events behind ``told_to`` up to ``up_to`` that the watch skipped."""
        if self.told_to is None:
            return
        begin = bisect_right(concern.positions, self.told_to)
        missed = concern.positions[begin : bisect_left(concern.positions, up_to + 1)]
        if missed:
            yield self._finding(
                f"missed {len(missed)} events behind {self.told_to}, the first is {missed[0]}",
                *missed,
            )

    def _finding(self, message: str, *positions: int) -> Finding:
        watch = self.first
        events = named([f"{watch.shard}:{position}" for position in positions])
        return Finding(
            FindingKind.WATCH_ERROR,
            CHECK,
            f"watch {watch.watch} of {watch.watcher} at shard {watch.shard} {message}",
            shard=watch.shard,
            events=events,
        )


def _items_at(index: LogIndex, concern: _Concern | None, shard: int, position: int) -> Items:
    """Return the items that a snapshot of ``shard`` at ``position`` must have."""
    assert concern is not None, "a watch that is judged was opened"
    items: dict[tuple[str, str], Mapping[str, object]] = {}
    for kind, key in concern.objects:
        order = index.order_at(key, shard, position)
        if order is None:
            continue
        if kind is ObjectKind.ASSIGNMENT:
            of_unit = index.units[key]
            place = bisect_right(of_unit, order, key=lambda event: event.order)
            if place and of_unit[place - 1].type == ASSIGNED:
                items[(kind.value, key)] = _assignment_of(of_unit[place - 1])
            continue
        state = index.keys[key].at(order, shard)
        if state is not None and state.exists:
            items[(kind.value, key)] = _state_of(state)
    return items


def _assignment_of(event: LogEvent) -> Mapping[str, object]:
    return {
        "topic_id": event.id,
        "epoch": event.epoch,
        "broker_id": event.broker_id,
        "session_id": event.session_id,
    }


def _state_of(state: ObjectState) -> Mapping[str, object]:
    return {"id": state.id, "version": state.version, "properties": state.properties}


def _differences(delivered: Items, expected: Items) -> Iterator[str]:
    for kind, key in expected.keys() - delivered.keys():
        yield f"{kind} {key} is missing"
    for (kind, key), state in delivered.items():
        wanted = expected.get((kind, key))
        if wanted is None:
            # An unassigned unit may be delivered as an assignment without a broker.
            if kind != ObjectKind.ASSIGNMENT or state.get("broker_id"):
                yield f"{kind} {key} is there and should not be"
            continue
        for name, value in state.items():
            given = properties_of(value) if name == "properties" else value
            if name in wanted and wanted[name] != given:
                yield f"{kind} {key} has {name} {value}, by the log it is {wanted[name]}"
