"""Moves that the former leader may not have finished, found at the end of the log.

The log says that a unit was moved, not that its old owner was told. A new leader therefore tells
once more: doing it again changes nothing at a broker, leaving it out would let an owner of the
past hold a unit until its session ends.
"""

from __future__ import annotations

import asyncio

from nextgen.kernel.limits import EVENTS_BATCH_BYTES_MAX
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.assignment import REASON_MOVED

RECENT_MS = 30_000
"""A move ends well within it: sync and release have deadlines of 5 s, the caches one of 2 s."""

RECENT_EVENTS_MAX = 50_000
"""Events at the end of the log that are looked through: some ten seconds of hard moving."""

EVENTS_PER_TURN_MAX = 200
"""Events looked through between two turns of the loop: about a millisecond."""


async def recent_moves(log: ReplicatedLog) -> dict[str, int]:
    """Return name and epoch of each unit whose latest assignment is a recent move.

    Recent is measured from the last record of the log, not by this process's clock, which may
    have leapt: a leader that took over at once finds what its predecessor left.
    """
    status = log.status
    position = max(status.first_position, status.commit_position - RECENT_EVENTS_MAX + 1)
    moved: dict[str, tuple[int, int]] = {}
    latest_ms = 0
    while position <= status.commit_position:
        entries = log.read(
            position, events_max=EVENTS_PER_TURN_MAX, bytes_max=EVENTS_BATCH_BYTES_MAX
        )
        if not entries:
            break
        for entry in entries:
            for record in entry.records:
                decided = DecidedCommand.FromString(record.payload)
                latest_ms = max(latest_ms, decided.time_ms)
                _note_moves(decided, moved)
        position = entries[-1].next_position
        # The first lookups of the term must not wait for all of it.
        await asyncio.sleep(0)
    since_ms = latest_ms - RECENT_MS
    return {name: epoch for name, (epoch, time_ms) in moved.items() if time_ms >= since_ms}


def _note_moves(decided: DecidedCommand, moved: dict[str, tuple[int, int]]) -> None:
    for event in decided.events:
        if event.HasField("topic_assigned"):
            assigned = event.topic_assigned
            if assigned.reason == REASON_MOVED:
                moved[assigned.name] = (assigned.epoch, decided.time_ms)
            else:
                moved.pop(assigned.name, None)
        elif event.HasField("topic_unassigned"):
            moved.pop(event.topic_unassigned.name, None)
