"""The rows of a view that are not the shard's own: of slots on the way to it, or away from it.

Such rows are in the tables of the shard's own rows, and nobody who reads those may see them. The
shard's record says which slots they are of. Nearly always there are none, and a read costs nothing
more. Sums that the fold keeps need no filter: units are counted with the slots that the shard has,
and objects where they are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

from nextgen.kernel.limits.cluster import SLOT_COUNT
from shards.domain.shard import NO_SLOTS, SHARD_KEY, Shard, ShardSelf
from shards.domain.slot_moves.keys import is_by_id, slot_of_key, slot_of_state
from shards.domain.slots.events import SlotRanges, united, without
from shards.domain.states import State, StateKind
from shards.projections.rows import Query, read_states
from shards.projections.tables import SHARD_META

_PACKED_SLOT = "lower(hex(substr(topic_id, 1, 2)))"
_SLOT_OF_ROW: Final = {
    StateKind.TENANT: "substr(tenant_id, 1, 4)",
    StateKind.NAMESPACE: "substr(namespace_id, 1, 4)",
    StateKind.TOPIC: _PACKED_SLOT,
    StateKind.SHADOW_SOURCE: _PACKED_SLOT,
    StateKind.FORMER_NAME: _PACKED_SLOT,
    StateKind.ASSIGNMENT: "substr(key, 1, 4)",
}
"""The slot of a row as four digits: an internal id begins with the slot it was made in."""


@dataclass(frozen=True, slots=True)
class ForeignSlots:
    """Slots of which a view has rows, or may have, that are not its shard's own."""

    ranges: SlotRanges

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def condition(self, kind: StateKind) -> tuple[str, tuple[str, ...]]:
        """Return a condition that leaves out foreign rows of ``kind``, to stand behind others in a
        WHERE, and its parameters. Both are empty while nothing moves."""
        if not self.ranges:
            return "", ()
        slots = "(SELECT value FROM json_each(?))"
        return f" AND {_SLOT_OF_ROW[kind]} NOT IN {slots}", (_digits_of(self.ranges),)

    def has(self, kind: StateKind, key: str) -> bool:
        """Return whether the row under ``key`` is foreign, of a kind whose keys say their slots."""
        assert not is_by_id(kind), f"the slot of a {kind.value} is in its row"
        return bool(self.ranges) and self._has(slot_of_key(kind, key))

    def has_state(self, kind: StateKind, key: str, state: State | None) -> bool:
        """Return whether ``state``, which is under ``key``, is of a foreign row. That there is
        nothing under a topic's name is foreign to nobody."""
        if not self.ranges or (state is None and is_by_id(kind)):
            return False
        return self._has(slot_of_state(kind, key, state))

    def without(self, kind: StateKind, keys: Iterable[str]) -> list[str]:
        """Return those of ``keys`` whose rows are not foreign, in their order; as ``has``."""
        return [key for key in keys if not self.has(kind, key)]

    def _has(self, slot: int | None) -> bool:
        return slot is not None and _map_of(self.ranges)[slot] == 1


NONE_FOREIGN: Final = ForeignSlots(())


class ViewSlots:
    """Which slots a view's shard has, as of the last look; read anew when the record changed."""

    def __init__(self) -> None:
        self.own: ShardSelf = None
        self.owned = NO_SLOTS
        """One byte per slot, 1 for the slots of the shard."""
        self.foreign = NONE_FOREIGN
        self._record: tuple[object, ...] = ()

    def look(self, query: Query) -> None:
        """Read the shard's record. ``query`` MUST see the same state as what is read by it."""
        rows = query(f"SELECT slot_ranges, shard_map_version, slot_moves FROM {SHARD_META.name}")
        record = tuple(rows[0]) if rows else ()
        if record == self._record:
            return
        own = read_states(query, StateKind.SHARD, (SHARD_KEY,))[SHARD_KEY]
        assert isinstance(own, Shard), "a record was there"
        self.own, self._record = own, record
        self.owned, self.foreign = own.slot_map(), foreign_slots(own)


def foreign_slots(own: ShardSelf) -> ForeignSlots:
    """Return the foreign slots of a shard by its record."""
    if own is None or not (own.incoming or own.outgoing):
        return NONE_FOREIGN
    moving: list[SlotRanges] = [each.ranges for each in own.incoming]
    moving += [each.ranges for each in own.outgoing]
    return ForeignSlots(without(united(tuple(chain.from_iterable(moving)), ()), own.ranges))


def read_foreign(query: Query) -> ForeignSlots:
    """Return the foreign slots of a view. ``query`` MUST see the same state as what is filtered."""
    rows = query(f"SELECT slot_moves FROM {SHARD_META.name}")
    if not rows or not rows[0][0]:
        return NONE_FOREIGN
    own = read_states(query, StateKind.SHARD, (SHARD_KEY,))[SHARD_KEY]
    assert isinstance(own, Shard), "a shard with moves has a record"
    return foreign_slots(own)


@lru_cache(maxsize=64)
def _digits_of(ranges: SlotRanges) -> str:
    return json.dumps([f"{slot:04x}" for first, last in ranges for slot in range(first, last + 1)])


@lru_cache(maxsize=64)
def _map_of(ranges: SlotRanges) -> bytes:
    slots = bytearray(SLOT_COUNT)
    for first, last in ranges:
        slots[first : last + 1] = b"\x01" * (last + 1 - first)
    return bytes(slots)
