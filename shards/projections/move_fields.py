"""The moves of slots in a shard's record, as one text."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

from shards.domain.shard import Shard
from shards.domain.slots.events import CameSlots, CountedUnits, IncomingSlots, OutgoingSlots

_SETTLED = "settled"

_MOVES: dict[str, type] = {
    "incoming": IncomingSlots,
    "outgoing": OutgoingSlots,
    "came": CameSlots,
}
"""Fields of ``Shard``. Of each move the fields are stored in their order: append only."""


def pack_moves(state: Shard) -> str:
    """Return the moves of ``state`` as text, "" if there are none; equal moves give equal texts."""
    moves: dict[str, Any] = {
        name: [_values(each) for each in getattr(state, name)] for name in _MOVES
    }
    if state.settled_move_id:
        moves[_SETTLED] = state.settled_move_id
    if not any(moves.values()):
        return ""
    return json.dumps(moves, separators=(",", ":"))


def unpack_moves(packed: str) -> dict[str, Any]:
    """Return the fields of ``Shard`` that ``pack_moves`` stored."""
    if not packed:
        return {}
    stored = json.loads(packed)
    moves: dict[str, Any] = {
        name: tuple([made(*map(_read, values)) for values in stored[name]])
        for name, made in _MOVES.items()
    }
    return {**moves, "settled_move_id": stored.get(_SETTLED, 0)}


def _values(value: Any) -> Any:
    if is_dataclass(value):
        return [_values(getattr(value, field.name)) for field in fields(value)]
    return [_values(each) for each in value] if isinstance(value, tuple) else value


def _read(value: Any) -> Any:
    """Return a stored field: its lists are ranges of slots, or counted units."""
    if not isinstance(value, list):
        return value
    return tuple(
        [
            CountedUnits(first, last) if isinstance(first, str) else (first, last)
            for first, last in value
        ]
    )
