"""Moves that the former leader may not have finished, found at the end of the log.

The log says that a unit was moved, or taken from its broker, not that its old owner was told. A new
leader therefore tells once more: doing it again changes nothing at a broker, leaving it out would
let an owner of the past hold a unit until its session ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nextgen.kernel.limits import EVENTS_BATCH_BYTES_MAX
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.events_pb2 import DecidedCommand, TopicAssigned, TopicUnassigned
from shards.domain.assignment import MOVE_REASONS, REASON_IDLE, REASON_UNLOADED

RECENT_MS = 30_000
"""A move ends well within it: sync and release have deadlines of 5 s, the caches one of 2 s."""

RECENT_EVENTS_MAX = 50_000
"""Events at the end of the log that are looked through: some ten seconds of hard moving."""

EVENTS_PER_TURN_MAX = 50
"""Events looked through at a time: about a millisecond."""

PAUSE_PARTS = 9
"""The loop is left to others for so many times as long: the first requests of a term matter more,
and nobody answers with what was moved while the caches' time-to-live runs."""

_REASONS = frozenset({*MOVE_REASONS.values(), REASON_IDLE, REASON_UNLOADED})
_TRACES = tuple(reason.encode() for reason in _REASONS)


@dataclass(frozen=True, slots=True)
class _Move:
    epoch: int
    time_ms: int
    term: int


async def recent_moves(log: ReplicatedLog) -> dict[str, int]:
    """Return name and epoch of each unit whose latest change is a recent move or unassignment.

    A move is old if its own leader wrote something so much later: two times of one clock. This
    process's clock, which may have leapt, is not asked.
    """
    status = log.status
    position = max(status.first_position, status.commit_position - RECENT_EVENTS_MAX + 1)
    moved: dict[str, _Move] = {}
    last_payloads: dict[int, bytes] = {}
    while position <= status.commit_position:
        began = asyncio.get_running_loop().time()
        entries = log.read(
            position, events_max=EVENTS_PER_TURN_MAX, bytes_max=EVENTS_BATCH_BYTES_MAX
        )
        if not entries:
            break
        for entry in entries:
            for record in entry.records:
                last_payloads[entry.term] = record.payload
                # Nearly all of a log is something else, and not worth decoding.
                if moved or any(trace in record.payload for trace in _TRACES):
                    _note_moves(record.payload, entry.term, moved)
        position = entries[-1].next_position
        await asyncio.sleep(PAUSE_PARTS * (asyncio.get_running_loop().time() - began))
    last_ms = {
        term: DecidedCommand.FromString(payload).time_ms for term, payload in last_payloads.items()
    }
    return {
        name: move.epoch
        for name, move in moved.items()
        if move.time_ms >= last_ms[move.term] - RECENT_MS
    }


def _note_moves(payload: bytes, term: int, moved: dict[str, _Move]) -> None:
    decided = DecidedCommand.FromString(payload)
    for event in decided.events:
        changed: TopicAssigned | TopicUnassigned
        if event.HasField("topic_assigned"):
            changed = event.topic_assigned
        elif event.HasField("topic_unassigned"):
            changed = event.topic_unassigned
        else:
            continue
        moved.pop(changed.name, None)
        if changed.reason in _REASONS:
            moved[changed.name] = _Move(changed.epoch, decided.time_ms, term)
