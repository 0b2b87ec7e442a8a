"""One watch of a change stream: its filter and its position.

    SNAPSHOTTING ──▶ CATCHING_UP ──(log, up to the commit position)──▶ LIVE ──▶ ENDED
         ▲                                                               │
         └──────────────────────── the log was cut ──────────────────────┘

The updates of its stream's delivery carry the events of a LIVE watch; before that, updates of its
own do. A leased watch has no snapshot and is LIVE from the start, in a delivery of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from nextgen.client.changes.index import WATCHED_KINDS, Change
from nextgen.kernel.errors import InvalidRequest, Overloaded
from nextgen.kernel.limits.cluster import TOPIC_TEXT_CHARACTERS_MAX
from nextgen.kernel.limits.stream import WATCH_NAMES_MAX, WATCHES_PER_STREAM_MAX
from nextgen.kernel.routing.names import Domain
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, KIND_TOPIC, Kind
from protos.nextgen.v1.shard_service_pb2 import WatchAdd

_SCALABLE = f"{Domain.TOPIC}://"
_SEGMENTS = f"{Domain.SEGMENT}://"


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a watch: ``names``, or without names all that begin with ``prefix``."""

    kinds: tuple[Kind, ...]
    prefix: str
    names: tuple[str, ...]
    """Ascending, each once."""

    def may_depend_on(self, change: Change) -> bool:
        """Return whether ``change``, of any kind, may affect the selected objects.

        False only where that is certain at little cost. An assignment affects only itself; a topic
        affects its units, whose names are its own with or without a suffix; segments have another
        domain than their topic.
        """
        kind, name = change
        if kind == KIND_ASSIGNMENT:
            return kind in self.kinds and self._selects(name)
        if kind == KIND_TOPIC and not self.names:
            names = [name]
            if name.startswith(_SCALABLE):
                names.append(_SEGMENTS + name[len(_SCALABLE) :])
            return any(
                each.startswith(self.prefix) or self.prefix.startswith(each) for each in names
            )
        return True

    def _selects(self, name: str) -> bool:
        if not self.names:
            return name.startswith(self.prefix)
        at = bisect_left(self.names, name)
        return at < len(self.names) and self.names[at] == name


class EventSink(Protocol):
    """Takes the events of live watches. Implemented by ``Delivery``."""

    def offer(self, event: Event) -> None:
        """Apply the next event; an event that was offered before is ignored."""


class Stage(Enum):
    """The stage of a watch; see the module."""

    SNAPSHOTTING = auto()
    CATCHING_UP = auto()
    LIVE = auto()
    ENDED = auto()


class ChangeWatch:
    """A watch as its stream keeps it. Made by ``checked_watch``."""

    __slots__ = (
        "acked",
        "delivery",
        "from_position",
        "has_snapshot",
        "is_acknowledged",
        "is_leased",
        "names_creations",
        "selection",
        "since",
        "stage",
        "watch_id",
    )

    def __init__(self, watch_id: int, selection: Selection, add: WatchAdd) -> None:
        self.watch_id = watch_id
        self.selection = selection
        self.from_position = add.from_position
        self.has_snapshot = not add.without_snapshot
        """Whether it begins again with a snapshot when its events are no longer in the log."""
        self.is_leased = add.leased
        self.names_creations = add.creations
        """Whether, leased, it names the topics that come into being."""
        self.is_acknowledged = add.acknowledged
        self.acked = 0
        """Everything up to it that concerns the watch has taken effect at the subscriber."""
        self.stage = Stage.SNAPSHOTTING
        self.delivery: EventSink | None = None
        """What takes its events in while it is LIVE."""
        self.since = add.from_position
        """Everything up to it that concerns the watch was sent, by whatever updates."""

    def __repr__(self) -> str:
        return f"<ChangeWatch {self.watch_id} {self.stage.name} since={self.since}>"


def checked_watch(add: WatchAdd) -> ChangeWatch:
    """Return the watch that ``add`` requests.

    Raises:
        InvalidRequest: It is malformed; the message says how.
    """
    _check_kinds(add)
    if add.prefix and add.names:
        raise InvalidRequest(
            f"watch {add.watch_id} has names and a prefix: it may have one of them"
        )
    if len(add.names) > WATCH_NAMES_MAX:
        raise InvalidRequest(
            f"watch {add.watch_id} has {len(add.names)} names, at most {WATCH_NAMES_MAX} "
            "are allowed: add another watch"
        )
    for name in (add.prefix, *add.names):
        if len(name) > TOPIC_TEXT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"watch {add.watch_id} has a name of {len(name)} characters, "
                f"at most {TOPIC_TEXT_CHARACTERS_MAX} are allowed"
            )
    if "" in add.names:
        raise InvalidRequest(f"watch {add.watch_id} has an empty name")
    if add.creations:
        _check_creations(add)
    if add.leased and add.acknowledged:
        raise InvalidRequest(f"watch {add.watch_id} is leased: that it acknowledges goes with it")
    selection = Selection(tuple(dict.fromkeys(add.kinds)), add.prefix, tuple(sorted({*add.names})))
    return ChangeWatch(add.watch_id, selection, add)


def _check_kinds(add: WatchAdd) -> None:
    if not add.kinds:
        raise InvalidRequest(f"watch {add.watch_id} has no kinds: it needs at least one")
    for kind in add.kinds:
        if kind not in WATCHED_KINDS:
            raise InvalidRequest(f"watch {add.watch_id} has a kind {kind} that cannot be watched")


def _check_creations(add: WatchAdd) -> None:
    """Check that a watch with creations selects every topic whose units it selects."""
    if not add.leased:
        raise InvalidRequest(f"watch {add.watch_id} is not leased: creations are named to those")
    is_whole = not add.names and (not add.prefix or add.prefix.endswith("/"))
    if not is_whole or KIND_TOPIC in add.kinds:
        raise InvalidRequest(
            f"watch {add.watch_id} cannot have creations named: that is for all names, or a prefix "
            "that ends with a slash, and for watches that have no topics' events"
        )


def changes_of(watch: ChangeWatch) -> Iterator[Change]:
    """Yield the objects that a watch of names selects."""
    for kind in watch.selection.kinds:
        for name in watch.selection.names:
            yield kind, name


class UsedIds:
    """The watch ids of one stream: each may be used once. Those that count up cost nothing."""

    def __init__(self) -> None:
        self._floor = 0
        """Every id up to it was used."""
        self._above: set[int] = set()

    def take(self, watch_id: int) -> bool:
        """Note that an id is used; return whether it is new.

        Raises:
            InvalidRequest: It is 0.
            Overloaded: The ids leave too many gaps to be remembered.
        """
        if not watch_id:
            raise InvalidRequest("the ids of watches begin at 1")
        if watch_id <= self._floor or watch_id in self._above:
            return False
        if len(self._above) >= WATCHES_PER_STREAM_MAX:
            raise Overloaded("the watch ids of this stream leave too many gaps: count up from 1")
        self._above.add(watch_id)
        while self._floor + 1 in self._above:
            self._floor += 1
            self._above.discard(self._floor)
        return True
