"""Finds in a shard's own log where it adopted the slots of a move, and what came along."""

from __future__ import annotations

import asyncio

from nextgen.replication.ports import PositionCompacted, ReplicatedLog
from protos.nextgen.v1.events_pb2 import DecidedCommand, SlotsAdopted

_EVENTS_AT_ONCE = 2_000
_BYTES_AT_ONCE = 1024 * 1024


async def find_adoption(log: ReplicatedLog, move_id: int) -> tuple[int, SlotsAdopted]:
    """Return the position and the event of the adoption, looked for from the end of the log.

    If the log was cut since, the last position that was cut away and an event without units: it was
    there or before.
    """
    end = log.commit_position
    while end > 0:
        start = max(1, end - _EVENTS_AT_ONCE + 1)
        try:
            found = _within(log, start, end, move_id)
        except PositionCompacted as cut:
            if cut.oldest > end:
                break
            found = _within(log, cut.oldest, end, move_id)
            start = cut.oldest
        if found is not None:
            return found
        end = start - 1
        await asyncio.sleep(0)
    return end, SlotsAdopted(move_id=move_id)


def _within(
    log: ReplicatedLog, start: int, end: int, move_id: int
) -> tuple[int, SlotsAdopted] | None:
    position = start
    while position <= end:
        entries = log.read(position, events_max=_EVENTS_AT_ONCE, bytes_max=_BYTES_AT_ONCE)
        for entry in entries:
            at = entry.first_position
            for record in entry.records:
                for event in DecidedCommand.FromString(record.payload).events:
                    adopted = event.slots_adopted
                    if event.HasField("slots_adopted") and adopted.move_id == move_id:
                        return at, adopted
                    at += 1
            position = max(position, entry.next_position)
        if not entries:
            break
    return None
