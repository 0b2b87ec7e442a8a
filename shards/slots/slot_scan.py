"""Reads the rows of some slots out of a view, kind by kind, in slices of bounded cost.

Topics are stored by name, so all of them are looked at, and go by the slot in their ids; units lie
together, by the slot that their key begins with. What is read is committed: nothing that is pending
is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nextgen.kernel.limits.cluster import SLOT_COUNT
from shards.domain.slot_moves.keys import (
    MOVING_KINDS,
    is_by_id,
    slot_of_change,
    slot_of_key,
    slot_of_state,
)
from shards.domain.slots.events import SCAN_DONE, SlotRanges, SlotRow
from shards.domain.states import State, StateKind
from shards.projections.rows import MAPPINGS, Query, read_states

KEYS_LOOKED_AT = 1_024
"""Keys in one slice: less than a millisecond. Where all are wanted, most are read again."""

_KEYS_WITH_IDS = "SELECT name, topic_id FROM {} WHERE name > ? ORDER BY name LIMIT ?"


@dataclass(frozen=True, slots=True)
class ScanPlace:
    """Everything of earlier kinds than ``kind``, and of it up to the key ``after``, was read."""

    kind: str = MOVING_KINDS[0].value
    after: str = ""

    @property
    def is_done(self) -> bool:
        return self.kind == SCAN_DONE


@dataclass(frozen=True, slots=True)
class ScanSlice:
    """The keys of one slice, all of ``kind``, and where the next one begins."""

    kind: StateKind
    keys: Sequence[str]
    looked_at: int
    next: ScanPlace


class SlotScan:
    """Scans for the rows of ``ranges`` in one view."""

    def __init__(self, query: Query, ranges: SlotRanges) -> None:
        self._query = query
        self._ranges = ranges
        self._wanted = bytearray(SLOT_COUNT)
        for first, last in ranges:
            self._wanted[first : last + 1] = b"\x01" * (last + 1 - first)

    def wants(self, slot: int | None) -> bool:
        """Return whether the rows of a slot are scanned for; None is no slot."""
        return slot is not None and self._wanted[slot] == 1

    def has(self, kind: StateKind, key: str) -> bool:
        """Return whether the state under ``key`` is of one of the slots, as far as the key says."""
        return self.wants(slot_of_key(kind, key))

    def has_row(self, kind: StateKind, row: SlotRow) -> bool:
        """Return whether a row may be one of the slots: the key of a renamed topic does not say,
        nor does a row without a state."""
        if not is_by_id(kind):
            return self.has(kind, row.key)
        if row.state is None:
            return True
        topic_id = getattr(row.state, "topic_id", "")
        return self.wants(slot_of_change(kind, row.key, topic_id))

    def rows(self, keys: Iterable[tuple[StateKind, str]]) -> list[SlotRow]:
        """Return the committed states under ``keys``, None where there is none of the slots."""
        by_kind: dict[StateKind, list[str]] = {}
        for kind, key in keys:
            by_kind.setdefault(kind, []).append(key)
        return [
            SlotRow(kind, key, self._own(kind, key, state))
            for kind, wanted in by_kind.items()
            for key, state in read_states(self._query, kind, wanted).items()
        ]

    def _own(self, kind: StateKind, key: str, state: State | None) -> State | None:
        """Return ``state`` unless another topic has come to its key since it was of the slots."""
        if state is None or not is_by_id(kind) or self.wants(slot_of_state(kind, key, state)):
            return state
        return None

    def slice(self, place: ScanPlace, keys_max: int) -> ScanSlice:
        """Return up to ``keys_max`` keys behind ``place``, in order; ``place`` is not done."""
        kind = StateKind(place.kind)
        if kind is StateKind.ASSIGNMENT:
            keys = self._units(place.after, keys_max)
            looked_at, is_end = len(keys), len(keys) < keys_max
            after = keys[-1] if keys else ""
        else:
            read = self._keys(kind, place.after)
            looked_at, is_end = len(read), len(read) < KEYS_LOOKED_AT
            keys = [key for key, is_wanted in read if is_wanted]
            after = read[-1][0] if read else ""
            if len(keys) > keys_max:
                keys = keys[:keys_max]
                after, is_end = keys[-1], False
        return ScanSlice(kind, keys, looked_at, _behind(kind) if is_end else _at(kind, after))

    def _keys(self, kind: StateKind, after: str) -> list[tuple[str, bool]]:
        """Return the next keys of a kind that is stored by name, and whether each is wanted."""
        wanted = self._wanted
        mapping = MAPPINGS[kind]
        if is_by_id(kind):
            rows = self._query(_KEYS_WITH_IDS.format(mapping.table), (after, KEYS_LOOKED_AT))
            # The slot in a packed id costs a tenth of what hashing the name does.
            return [
                (name, wanted[packed[0] << 8 | packed[1]] == 1)
                if isinstance(packed, bytes)
                else (name, self.has(kind, name))
                for name, packed in rows
            ]
        statement = f"{mapping.select_keys} WHERE {mapping.key} > ? ORDER BY {mapping.key} LIMIT ?"
        rows = self._query(statement, (after, KEYS_LOOKED_AT))
        return [(key, self.has(kind, key)) for (key,) in rows]

    def _units(self, after: str, keys_max: int) -> list[str]:
        mapping = MAPPINGS[StateKind.ASSIGNMENT]
        statement = (
            f"{mapping.select_keys} WHERE {mapping.key} > ? AND {mapping.key} < ? "
            f"ORDER BY {mapping.key} LIMIT ?"
        )
        keys: list[str] = []
        for first, last in self._ranges:
            start, end = f"{first:04x}", f"{last + 1:04x}"
            if after < end and len(keys) < keys_max:
                rows = self._query(statement, (max(after, start), end, keys_max - len(keys)))
                keys += [key for (key,) in rows]
        return keys


def _at(kind: StateKind, after: str) -> ScanPlace:
    return ScanPlace(kind.value, after)


def _behind(kind: StateKind) -> ScanPlace:
    following = MOVING_KINDS[MOVING_KINDS.index(kind) + 1 :]
    return ScanPlace(following[0].value if following else SCAN_DONE)
