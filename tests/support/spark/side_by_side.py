"""Many histories as the log of one cluster, so that one audit judges them all.

History k has the shards from k * ``SHARDS_APART`` + 1 on, and names and ids of its own: each name
is changed so that its slot belongs to the shard that took the place of the one it had. Shard 0 has
the events of all cluster managers, by their times, and one map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable, initial_table
from protos.nextgen.v1 import events_pb2 as e
from tests.support.spark.histories import History

SHARDS_APART = 3

_NAMES = frozenset({"name", "new_name", "parent_name", "broker_id", "node_id"})
_LISTED_NAMES = frozenset({"former_names", "dropped_names"})
_IDS = frozenset({"topic_id", "tenant_id", "namespace_id", "parent_id", "object_id", "session_id"})

Place = tuple[int, int]
"""Shard and position."""


@dataclass(slots=True)
class SideBySide:
    """``logs`` by shard, and where the events of the histories went in them."""

    logs: dict[int, list[Any]] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    """By ``id`` of the event."""
    managers: dict[int, int] = field(default_factory=dict)
    """Number of the history, counted from 0, by position in shard 0."""

    def place_of(self, event: Any) -> Place | None:
        """Return where an event of a history went, None of none."""
        return None if event is None else self.places[id(event)]

    def history_at(self, place: Place) -> int:
        """Return the number of the history that an event is of."""
        shard_id, position = place
        return (shard_id - 1) // SHARDS_APART if shard_id else self.managers[position]


def side_by_side(histories: Sequence[History]) -> SideBySide:
    """Return the histories as one log. Each begins its shard 0 with the map of its slots."""
    table = initial_table(range(1, len(histories) * SHARDS_APART + 1))
    moved: dict[int, list[tuple[Any, Any]]] = {0: []}
    for number, history in enumerate(histories):
        mover = _Mover(history.table, table, number)
        for shard_id, log in sorted(history.logs.items()):
            target = mover.shard(shard_id) if shard_id else 0
            moved.setdefault(target, []).extend((event, mover.copy(event, target)) for event in log)
    maps = [pair for pair in moved[0] if _is_first_map(pair[1])]
    others = [pair for pair in moved[0] if not _is_first_map(pair[1])]
    moved[0] = [maps[0], *sorted(others, key=lambda pair: pair[1].time_ms)]
    told = SideBySide(places={id(event): (0, 1) for event, _ in maps})
    for shard_id, pairs in moved.items():
        told.logs[shard_id] = [copy for _, copy in pairs]
        for position, (event, copy) in enumerate(pairs, start=1):
            copy.position = position
            told.places[id(event)] = (shard_id, position)
    for number, history in enumerate(histories):
        told.managers |= {told.places[id(event)][1]: number for event in history.logs[0]}
    return told


def _is_first_map(event: Any) -> bool:
    return event.position == 1 and event.WhichOneof("payload") == "shard_map_changed"


@dataclass(slots=True)
class _Mover:
    """Moves one history into the shards of ``table``."""

    before: SlotTable
    table: SlotTable
    number: int
    names: dict[str, str] = field(default_factory=dict)

    def shard(self, shard_id: int) -> int:
        return self.number * SHARDS_APART + shard_id

    def copy(self, event: Any, target: int) -> Any:
        copied = e.Event()
        copied.CopyFrom(event)
        copied.shard_id, copied.term = target, copied.term if target else 1
        kind = copied.WhichOneof("payload")
        if kind == "slots_adopted":
            self._adopt(copied.slots_adopted, event.shard_id)
        elif kind == "shard_map_changed":
            copied.shard_map_changed.slot_owners = self.table.to_bytes()
        else:
            self._rename(copied)
        return copied

    def _adopt(self, adopted: Any, shard_id: int) -> None:
        """Give the shard its slots, and one of each other shard of which it had adopted any."""
        owners = {
            self.before.shard_of(slot)
            for each in adopted.ranges
            for slot in range(each.first, each.last + 1)
        }
        ranges = [*self.table.ranges_of(self.shard(shard_id))]
        for owner in owners - {shard_id}:
            slot = self.table.slots_of(self.shard(owner))[0]
            ranges.append((slot, slot))
        del adopted.ranges[:]
        adopted.ranges.extend(e.SlotRange(first=first, last=last) for first, last in ranges)

    def _rename(self, message: Any) -> None:
        for each, value in message.ListFields():
            if each.name in _NAMES:
                setattr(message, each.name, self._name(value))
            elif each.name in _LISTED_NAMES:
                self._rename_all(value)
            elif each.name in _IDS:
                setattr(message, each.name, f"{value}-{self.number}")
            elif each.message_type is not None and not each.is_repeated:
                self._rename(value)

    def _rename_all(self, listed: Any) -> None:
        """Rename in a list of names, or of messages with names."""
        for number, each in enumerate(listed):
            if isinstance(each, str):
                listed[number] = self._name(each)
            else:
                self._rename(each)

    def _name(self, name: str) -> str:
        if "://" not in name:
            return self._key(name)
        topic = parse_topic(name)
        moved = self._key(topic.routing_key)
        # A partition's number or a segment stands behind the key.
        rest = name.removeprefix(f"{topic.domain.value}://{topic.routing_key}")
        return f"{topic.domain.value}://{moved}{rest}"

    def _key(self, key: str) -> str:
        """Return a name for a routing key whose slot is in the shard that took its shard's place.

        What it has in common with others stays in common: a tenant, a namespace.
        """
        if key not in self.names:
            parent, slash, _ = key.rpartition("/")
            last = key.removeprefix(f"{parent}{slash}")
            begin = f"{self._key(parent)}/{last}" if slash else last
            target = self.shard(self.before.shard_for_key(key))
            tried = (f"{begin}-{self.number}-{attempt}" for attempt in count())
            self.names[key] = next(
                each for each in tried if self.table.shard_for_key(each) == target
            )
        return self.names[key]
