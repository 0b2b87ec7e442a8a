"""What the logs of two shards record of a move of slots from shard A to shard B.

    B  SlotsIncoming ── SlotRowsCopied … ───────────── SlotRowsCopied + SlotsAdopted (one record)
                                            ▲
    A ───────────────────────────── SlotsReleased ───────────────────── SlotRowsRemoved …

Taken back: B records ``SlotsRefused`` and removes the rows; only behind that A, if it has released
the slots, records ``SlotsReclaimed``. In B's log a move has ``SlotsAdopted`` or ``SlotsRefused``,
never both, so the two shards never both decide about a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SlotRanges = tuple[tuple[int, int], ...]
"""Inclusive ranges, ascending, not touching each other."""

SCAN_DONE = "done"
"""``scanned_kind`` once everything was copied at least once."""


@dataclass(frozen=True, slots=True)
class CountedUnits:
    """Assigned units in moving slots: ``of`` a session by its id, or of a tenant."""

    of: str
    units: int


@dataclass(frozen=True, slots=True)
class SlotRow:
    """The ``State`` under a key of a moving slot, None if there is none any more. ``kind`` is a
    ``StateKind``: that module knows the shard's own state and cannot be named here."""

    kind: StrEnum
    key: str
    state: object | None


@dataclass(frozen=True, slots=True)
class SlotKey:
    """A row by its ``StateKind`` and key."""

    kind: StrEnum
    key: str


@dataclass(frozen=True, slots=True)
class SlotsIncoming:
    """In B: the slots are to come. ``tail_position`` is of A's log: changes behind it are copied
    once more."""

    move_id: int
    ranges: SlotRanges
    from_shard: int
    tail_position: int


@dataclass(frozen=True, slots=True)
class SlotRowsCopied:
    """In B: rows of slots that it does not have. Everything up to ``scanned_kind`` and
    ``scanned_after`` was copied at least once, and every change up to ``tail_position`` of A's log.
    """

    move_id: int
    rows: tuple[SlotRow, ...]
    scanned_kind: str
    scanned_after: str
    tail_position: int


@dataclass(frozen=True, slots=True)
class SlotsReleased:
    """In A: it decides nothing about the slots from here on. ``session_units`` and
    ``tenant_units`` are what it has assigned in them."""

    move_id: int
    ranges: SlotRanges
    to_shard: int
    session_units: tuple[CountedUnits, ...]
    tenant_units: tuple[CountedUnits, ...]
    least_epoch: int


@dataclass(frozen=True, slots=True)
class SlotsRefused:
    """In B: it will never adopt the slots of this move."""

    move_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class SlotsReclaimed:
    """In A, behind a committed ``SlotsRefused`` of B: the slots are its own as before."""

    move_id: int


@dataclass(frozen=True, slots=True)
class SlotRowsRemoved:
    """In A behind the move, in B behind a refusal: these rows are gone. ``is_last``: no other is
    left of the move."""

    move_id: int
    keys: tuple[SlotKey, ...]
    is_last: bool


SlotEvent = (
    SlotsIncoming | SlotRowsCopied | SlotsReleased | SlotsRefused | SlotsReclaimed | SlotRowsRemoved
)


@dataclass(frozen=True, slots=True)
class IncomingSlots:
    """State in B of a move that is under way, or was refused and has rows left."""

    move_id: int
    ranges: SlotRanges
    from_shard: int
    scanned_kind: str = ""
    scanned_after: str = ""
    tail_position: int = 0
    is_refused: bool = False

    @property
    def is_scanned(self) -> bool:
        return self.scanned_kind == SCAN_DONE


@dataclass(frozen=True, slots=True)
class OutgoingSlots:
    """State in A of a move whose slots were released, until no row of them is left."""

    move_id: int
    ranges: SlotRanges
    to_shard: int
    session_units: tuple[CountedUnits, ...]
    tenant_units: tuple[CountedUnits, ...]
    least_epoch: int


@dataclass(frozen=True, slots=True)
class CameSlots:
    """State in B of slots that it has adopted: before ``SlotsAdopted`` their history is in the log
    of ``from_shard``, up to ``from_position``."""

    move_id: int
    ranges: SlotRanges
    from_shard: int
    from_position: int


def united(one: SlotRanges, other: SlotRanges) -> SlotRanges:
    """Return the slots of both."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def without(one: SlotRanges, other: SlotRanges) -> SlotRanges:
    """Return the slots of ``one`` that ``other`` does not have.

    Takes time by the number of ranges: a shard's slots may be thousands of them.
    """
    kept: list[tuple[int, int]] = []
    gone = sorted(other)
    at = 0
    for start, last in sorted(one):
        first = start
        while at < len(gone) and gone[at][1] < first:
            at += 1
        while at < len(gone) and gone[at][0] <= last:
            gone_first, gone_last = gone[at]
            if first < gone_first:
                kept.append((first, gone_first - 1))
            first = max(first, gone_last + 1)
            if gone_last > last:
                break  # It may have some of the next range too.
            at += 1
        if first <= last:
            kept.append((first, last))
    return tuple(kept)


def has_slot(ranges: SlotRanges, slot: int) -> bool:
    """Return whether ``slot`` is in ``ranges``."""
    return any(first <= slot <= last for first, last in ranges)


def within(one: SlotRanges, other: SlotRanges) -> bool:
    """Return whether ``other`` has every slot of ``one``."""
    return not without(one, other)


def overlap(one: SlotRanges, other: SlotRanges) -> bool:
    """Return whether there is a slot in both."""
    return without(one, other) != united(one, ())
