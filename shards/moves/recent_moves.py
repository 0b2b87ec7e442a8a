"""Moves and deletions that the former leader may not have finished, found at the end of the log.

The log says that a unit was moved, taken from its broker, or ended with its topic, not that its old
owner was told. A new leader therefore tells once more: doing it again changes nothing at a broker,
leaving it out would let an owner of the past hold a unit until its session ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nextgen.kernel.limits.cluster import EVENTS_BATCH_BYTES_MAX
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.events_pb2 import DecidedCommand, TopicAssigned, TopicUnassigned
from shards.domain.assignment import (
    MOVE_REASONS,
    REASON_IDLE,
    REASON_TOPIC_DELETED,
    REASON_UNLOADED,
    Assignment,
)

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
_TRACES = tuple(reason.encode() for reason in (*_REASONS, REASON_TOPIC_DELETED))


@dataclass(frozen=True, slots=True)
class RecentMoves:
    """What may be left to do of the end of a log."""

    moved: dict[str, int]
    """Name and epoch of each unit whose latest change is a move or an unassignment."""

    deleted: list[Assignment]
    """What ended with its topic, of nobody: the view has forgotten it, whoever held it has not."""


@dataclass(frozen=True, slots=True)
class _Change:
    epoch: int
    time_ms: int
    term: int


@dataclass(slots=True)
class _Found:
    moved: dict[str, _Change] = field(default_factory=dict)
    deleted: dict[Assignment, _Change] = field(default_factory=dict)


async def recent_moves(log: ReplicatedLog) -> RecentMoves:
    """Return the recent moves, unassignments and deletions, each kind in the order of the log.

    One is old if its own leader wrote something so much later: two times of one clock. This
    process's clock, which may have leapt, is not asked. Deletions of the present term are left
    out: who decides them tells of them.
    """
    status = log.status
    position = max(status.first_position, status.commit_position - RECENT_EVENTS_MAX + 1)
    found = _Found()
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
                if found.moved or any(trace in record.payload for trace in _TRACES):
                    _note_changes(record.payload, entry.term, found)
        position = entries[-1].next_position
        await asyncio.sleep(PAUSE_PARTS * (asyncio.get_running_loop().time() - began))
    last_ms = {
        term: DecidedCommand.FromString(payload).time_ms for term, payload in last_payloads.items()
    }

    def is_recent(change: _Change) -> bool:
        return change.time_ms >= last_ms[change.term] - RECENT_MS

    return RecentMoves(
        {name: move.epoch for name, move in found.moved.items() if is_recent(move)},
        [
            ended
            for ended, change in found.deleted.items()
            if change.term < status.term and is_recent(change)
        ],
    )


def _note_changes(payload: bytes, term: int, found: _Found) -> None:
    decided = DecidedCommand.FromString(payload)
    for event in decided.events:
        changed: TopicAssigned | TopicUnassigned
        if event.HasField("topic_assigned"):
            changed = event.topic_assigned
        elif event.HasField("topic_unassigned"):
            changed = event.topic_unassigned
        else:
            continue
        found.moved.pop(changed.name, None)
        change = _Change(changed.epoch, decided.time_ms, term)
        if changed.reason in _REASONS:
            found.moved[changed.name] = change
        elif changed.reason == REASON_TOPIC_DELETED:
            # Whatever is created of the same name is another: what comes behind changes nothing.
            ended = Assignment(changed.topic_id, changed.unit, changed.name, changed.epoch, "", "")
            found.deleted[ended] = change
