"""Moves of slots in a told history: each shard records what its leader would."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from sqlalchemy import create_engine

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1 import events_pb2 as e
from shards.domain.assignment import Assignment
from shards.domain.slot_moves.keys import MOVING_KINDS, slot_of_state
from shards.domain.slots.events import SlotRanges, SlotRow, has_slot, united, without
from shards.domain.states import State, StateKind
from shards.projections.fold import fold
from shards.projections.rows import MAPPINGS
from shards.projections.tables import METADATA
from shards.wire.slot_event import from_ranges, to_ranges, to_row
from tests.support.spark.histories import History
from tests.support.spark.rebuilds import States, entries_of_log

MOVE_RULES = frozenset({"decided_elsewhere", "move_from_nowhere"})
"""The audit's rules about slots that moved: broken in a history of their own."""


def move_slots(
    history: History, ranges: SlotRanges, to_shard: int, *, is_adopted: bool = True
) -> None:
    """Move slots, all of one shard, to another; unless ``is_adopted`` they are only released."""
    from_shard = history.table.shard_of(ranges[0][0])
    move_id = 1 + sum(
        event.HasField("slots_incoming") for log in history.logs.values() for event in log
    )
    tail = len(history.logs[from_shard])
    incoming = e.SlotsIncoming(
        move_id=move_id, ranges=to_ranges(ranges), from_shard=from_shard, tail_position=tail
    )
    history.add(to_shard, slots_incoming=incoming)
    rows = rows_within(history.logs[from_shard], ranges)
    sessions: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for row in rows:
        if isinstance(row.state, Assignment) and row.state.is_assigned:
            sessions[row.state.session_id] += 1
            tenants[row.state.tenant] += 1
    units = {"session_units": _counted(sessions), "tenant_units": _counted(tenants)}
    released = e.SlotsReleased(
        move_id=move_id, ranges=to_ranges(ranges), to_shard=to_shard, **units
    )
    history.add(from_shard, slots_released=released)
    if not is_adopted:
        return
    copied = e.SlotRowsCopied(
        move_id=move_id, rows=[*map(to_row, rows)], scanned_kind="done", tail_position=tail
    )
    history.add(to_shard, slot_rows_copied=copied)
    owners = [*history.table.owners]
    for first, last in ranges:
        owners[first : last + 1] = [to_shard] * (last + 1 - first)
    history.table = SlotTable(history.table.version + 1, tuple(owners))
    adopted = e.SlotsAdopted(
        ranges=to_ranges(history.table.ranges_of(to_shard)),
        shard_map_version=history.table.version,
        move_id=move_id,
        came=to_ranges(ranges),
        from_shard=from_shard,
        from_position=len(history.logs[from_shard]),
        **units,
    )
    history.add(to_shard, slots_adopted=adopted)
    keys = [e.SlotKey(kind=row.kind.value, key=row.key) for row in rows]
    removed = e.SlotRowsRemoved(move_id=move_id, keys=keys, is_last=True)
    history.add(from_shard, slot_rows_removed=removed)


def move_some(history: History, rng: random.Random) -> None:
    """Move half of a shard's slots, or a quarter of them, to another shard."""
    from_shard, to_shard = rng.sample(history.shard_ids, 2)
    slots = history.table.slots_of(from_shard)
    if len(slots) < 8:
        return
    start = rng.randrange(len(slots) // 2)
    wanted = slots[start : start + len(slots) // rng.choice([2, 4])]
    move_slots(history, united(tuple((slot, slot) for slot in wanted), ()), to_shard)


def rows_within(log: list[Any], ranges: SlotRanges) -> list[SlotRow]:
    """Return the rows of these slots in the view that ``log`` gives."""
    engine = create_engine("sqlite://")
    rows = []
    with engine.begin() as connection:
        METADATA.create_all(connection)
        for entry in entries_of_log(log):
            fold(connection, [entry])
        for kind in MOVING_KINDS:
            mapping = MAPPINGS[kind]
            for row in connection.exec_driver_sql(mapping.select):
                state = mapping.from_row(tuple(row))
                slot = slot_of_state(kind, row[0], state)
                if slot is not None and has_slot(ranges, slot):
                    rows.append(SlotRow(kind, row[0], state))
    engine.dispose()
    return rows


def owned(states: States, history: History) -> States:
    """Return the states without the rows of slots that their shard does not have.

    Slots that were released and that nobody has adopted count to who released them last.
    """
    ranges = {shard_id: _owned_ranges(history.logs[shard_id]) for shard_id in states}
    homeless: SlotRanges = ((0, SLOT_COUNT - 1),)
    for some in ranges.values():
        homeless = without(homeless, some)
    released = sorted(
        (event.slots_released.move_id, shard_id, from_ranges(event.slots_released.ranges))
        for shard_id in states
        for event in history.logs[shard_id]
        if event.HasField("slots_released")
    )
    for _, shard_id, left in reversed(released):
        on_the_way = without(homeless, without(homeless, left))
        ranges[shard_id] = united(ranges[shard_id], on_the_way)
        homeless = without(homeless, on_the_way)
    return {
        shard_id: {
            kind: [state for state in some if _is_owned(kind, state, ranges[shard_id])]
            for kind, some in held.items()
        }
        for shard_id, held in states.items()
    }


def _owned_ranges(log: list[Any]) -> SlotRanges:
    ranges: SlotRanges = ()
    for event in log:
        if event.HasField("slots_adopted"):
            ranges = from_ranges(event.slots_adopted.ranges)
        elif event.HasField("slots_released"):
            ranges = without(ranges, from_ranges(event.slots_released.ranges))
    return ranges


def _is_owned(kind: StateKind, state: State, ranges: SlotRanges) -> bool:
    key = getattr(state, "key", None) or getattr(state, "broker_id", None)
    slot = slot_of_state(kind, key or state.name, state)
    return slot is not None and has_slot(ranges, slot)


def _counted(units: Counter[str]) -> list[e.CountedUnits]:
    return [e.CountedUnits(of=of, units=count) for of, count in sorted(units.items())]
