"""The consistent cut: a position for each shard, so that every object's parents are in it. Pure.

    snapshot of shard s as of p(s)          for every s
    tail of shard s: its events up to q(s)  q(s) was read after every snapshot had its position

A parent and its children live in different shards, so the positions p(s) alone are no cut. The
least cut at or behind them is found by advancing shards along their tails:

- a child's parent that is not there yet: its shard advances to the parent's creation;
- a child's parent that is gone: the child's shard advances to the closing of that parent's gate,
  before which the last child went (docs/flows/inventory.md).

Parents are tenants and namespaces, by their ids, and sources of shadows, by their names. A source
may be missing for no reason that the log has: its shadow is then as it is in the cluster.

What a shard advances to happened before something that the cut has already. All of it had happened
when the last snapshot got its position, so it lies within the tails. Nothing advances for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from nextgen.backup.errors import CutNotFound


class Change(Enum):
    """What an event does to parents and their children."""

    BORN = "born"  # The parent exists.
    GONE = "gone"  # It does not any more.
    NEEDED = "needed"  # This shard has a child of it.
    CLOSED = "closed"  # This shard has no child of it.


@dataclass(frozen=True, slots=True)
class TailEvent:
    """An event as far as the cut is concerned. Events with one ``group`` are of one record."""

    position: int
    group: object
    changes: tuple[tuple[Change, str], ...] = ()
    """With the ids of the parents, or the names of sources."""


@dataclass(slots=True)
class ShardTail:
    """A shard's snapshot, as far as the cut is concerned, and the events behind it."""

    position: int
    """The snapshot's."""
    born: set[str] = field(default_factory=set)
    """Ids of the tenants and namespaces in the snapshot, and names of the sources."""
    needed: set[str] = field(default_factory=set)
    """Ids of the parents of what is in the snapshot, and names of the sources of its shadows."""
    events: Sequence[TailEvent] = ()


def consistent_cut(shards: Mapping[int, ShardTail]) -> dict[int, int]:
    """Return the position of each shard in the least consistent cut behind the snapshots.

    Raises:
        CutNotFound: The tails end too early.
    """
    wanted = needed_in(shards.values())
    walks = {shard_id: _Walk(tail, wanted) for shard_id, tail in shards.items()}
    births = {
        parent_id: (shard_id, event.position)
        for shard_id, tail in shards.items()
        for event in tail.events
        for change, parent_id in event.changes
        if change is Change.BORN and parent_id in wanted
    }
    is_closed = False
    while not is_closed:
        is_closed = True
        for walk in walks.values():
            present = set().union(*(each.born for each in walks.values()))
            for parent_id in sorted(walk.needed - present):
                is_closed = False
                home, position = births.get(parent_id, (0, 0))
                if home and position > walks[home].position:
                    walks[home].advance(position)
                elif parent_id in walk.needed and not (home and parent_id in walks[home].born):
                    walk.advance_to_closing(parent_id)
    return {shard_id: walk.position for shard_id, walk in walks.items()}


def needed_in(tails: Iterable[ShardTail]) -> set[str]:
    """Return all parents that are needed at any position."""
    needed: set[str] = set()
    for tail in tails:
        needed |= tail.needed
        needed.update(
            parent_id
            for event in tail.events
            for change, parent_id in event.changes
            if change is Change.NEEDED
        )
    return needed


def is_source(parent: str) -> bool:
    """Return whether a parent is a source of shadows, which is known by its name."""
    return "://" in parent


class _Walk:
    """One shard on its way along its tail."""

    def __init__(self, tail: ShardTail, wanted: Set[str]) -> None:
        self.position = tail.position
        self.born = set(tail.born)
        self.needed = set(tail.needed)
        self._wanted = wanted
        self._events = tail.events
        self._next = 0

    def advance(self, position: int) -> None:
        """Apply the events up to ``position``, and the rest of that record."""
        events = self._events
        while self._next < len(events) and (
            events[self._next].position <= position
            or (self._next and events[self._next].group == events[self._next - 1].group)
        ):
            event = events[self._next]
            self._next += 1
            self.position = event.position
            for change, parent_id in event.changes:
                self._apply(change, parent_id)

    def advance_to_closing(self, parent_id: str) -> None:
        """Apply the events up to where the gate of a parent is closed next."""
        for event in self._events[self._next :]:
            if (Change.CLOSED, parent_id) in event.changes:
                self.advance(event.position)
                return
        if is_source(parent_id):
            self.needed.discard(parent_id)
            return
        raise CutNotFound(
            f"the parent {parent_id} of an object is not in the cut, and the log does not say why"
        )

    def _apply(self, change: Change, parent_id: str) -> None:
        if change is Change.BORN:
            if parent_id in self._wanted:
                self.born.add(parent_id)
        elif change is Change.GONE:
            self.born.discard(parent_id)
        elif change is Change.NEEDED:
            self.needed.add(parent_id)
        else:
            self.needed.discard(parent_id)
