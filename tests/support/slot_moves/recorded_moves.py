"""Moves slots between the shards of a ``World`` by events in both logs, without keepers or copies.

``World.table`` follows at once, as a map would.
"""

from __future__ import annotations

import itertools
from collections import Counter

from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotRun
from shards.domain.assignment import Assignment
from shards.domain.shard import SlotsAdopted
from shards.domain.slots.events import (
    SCAN_DONE,
    CountedUnits,
    SlotKey,
    SlotRanges,
    SlotRow,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReleased,
    united,
)
from shards.domain.states import StateKind
from shards.projections.tables import (
    ASSIGNMENTS,
    BROKER_SESSIONS,
    NAMESPACES,
    SCALABLE_TOPICS,
    SHADOW_SOURCES,
    TENANTS,
    TOPIC_LOADS,
    TOPICS,
)
from tests.support.shards.world import ShardReplica, World

_TABLES = (
    (StateKind.TENANT, TENANTS),
    (StateKind.NAMESPACE, NAMESPACES),
    (StateKind.TOPIC, TOPICS),
    (StateKind.SCALABLE_TOPIC, SCALABLE_TOPICS),
    (StateKind.TOPIC_LOADS, TOPIC_LOADS),
    (StateKind.SHADOW_SOURCE, SHADOW_SOURCES),
    (StateKind.ASSIGNMENT, ASSIGNMENTS),
    (StateKind.BROKER_SESSION, BROKER_SESSIONS),
)

_move_ids = itertools.count(1)


async def move_key(world: World, routing_key: str, target: int) -> None:
    """Move the slot of ``routing_key`` to the shard ``target``, unless it is there."""
    slot = slot_of(routing_key)
    source = world.table.shard_of(slot)
    if source != target:
        await move_slots(world, ((slot, slot),), source, target)


async def move_slots(world: World, ranges: SlotRanges, source: int, target: int) -> None:
    """Move ``ranges`` from one shard to another; return once both logs have it."""
    giving, taking = world.shards[source], world.shards[target]
    move_id = next(_move_ids)
    await taking.state.proposer.propose(
        [SlotsIncoming(move_id, ranges, source, giving.log.status.commit_position)]
    )
    rows = rows_of(giving, ranges)
    sessions, tenants = _units(rows)
    released = SlotsReleased(move_id, ranges, target, sessions, tenants, 0)
    commit = await giving.state.proposer.propose([released])
    position = commit.first_position
    own = taking.state.reads.load_shard()
    assert own is not None
    await taking.state.proposer.propose(
        [
            SlotRowsCopied(move_id, rows, SCAN_DONE, "", position),
            SlotsAdopted(
                united(own.ranges, ranges),
                world.table.version + 1,
                move_id,
                ranges,
                source,
                position,
                sessions,
                tenants,
            ),
        ]
    )
    keys = tuple([SlotKey(row.kind, row.key) for row in rows])
    await giving.state.proposer.propose([SlotRowsRemoved(move_id, keys, True)])
    runs = [SlotRun(first, last, target) for first, last in ranges]
    world.table = world.table.with_runs(world.table.version + 1, runs)


def rows_of(shard: ShardReplica, ranges: SlotRanges) -> tuple[SlotRow, ...]:
    """Return the rows of ``shard`` in ``ranges``."""
    rows: list[SlotRow] = []
    for kind, table in _TABLES:
        keys = {row[0] for row in shard.query(f"SELECT * FROM {table.name}")}
        keys |= {key for key, _ in shard.state.cache.pending(kind)}
        for key, state in shard.state.reads.load(kind, keys).items():
            if state is None:
                continue
            slot = _slot_of(kind, key, state)
            if any(first <= slot <= last for first, last in ranges):
                rows.append(SlotRow(kind, key, state))
    return tuple(rows)


def _slot_of(kind: StateKind, key: str, state: object) -> int:
    if isinstance(state, Assignment):
        return slot_of(parse_topic(state.name).routing_key)
    return slot_of(parse_topic(key).routing_key if "://" in key else key)


def _units(
    rows: tuple[SlotRow, ...],
) -> tuple[tuple[CountedUnits, ...], tuple[CountedUnits, ...]]:
    sessions: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for row in rows:
        if isinstance(row.state, Assignment) and row.state.session_id:
            sessions[row.state.session_id] += 1
            tenants[parse_topic(row.state.name).tenant] += 1
    return _counted(sessions), _counted(tenants)


def _counted(units: Counter[str]) -> tuple[CountedUnits, ...]:
    return tuple([CountedUnits(of, count) for of, count in sorted(units.items())])
