"""Which states of some slots a shard's log has changed behind a position."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.routing.names import Unit
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.assignment import unit_key
from shards.domain.scalable.events import SegmentStorageRemoved
from shards.domain.slots.events import SlotsReleased
from shards.domain.states import StateKind
from shards.projections.evolution import changes_of
from shards.slots.slot_scan import SlotScan
from shards.wire.event import decode_events

_EVENTS_AT_ONCE = 1_000
_BYTES_AT_ONCE = 1024 * 1024


@dataclass(slots=True)
class TouchedKeys:
    """The keys of a move's slots that the log changed up to ``position``, in that order."""

    position: int
    keys: dict[tuple[StateKind, str], None]
    released_at: int = 0
    """Where the log releases the slots for the move, 0 if it does not up to ``position``."""


class TouchedScan:
    """Follows one log behind ``position``, for the slots of one move."""

    def __init__(self, log: ReplicatedLog, scan: SlotScan, move_id: int, position: int) -> None:
        self._log = log
        self._scan = scan
        self._move_id = move_id
        self.found = TouchedKeys(position, {})

    def read_on(self, to_position: int, keys_max: int) -> bool:
        """Read the next few events up to ``to_position``; return whether there is more to read.

        Stops at the release of the slots, and behind ``keys_max`` keys.

        Raises:
            PositionCompacted: The log was cut behind what was read last.
        """
        found = self.found
        if found.position >= to_position:
            return False
        entries = self._log.read(
            found.position + 1, events_max=_EVENTS_AT_ONCE, bytes_max=_BYTES_AT_ONCE
        )
        read_from = found.position
        for entry in entries:
            position = entry.first_position
            for record in entry.records:
                behind = position + record.events
                if behind - 1 > read_from:
                    self._take(record.payload, position, read_from)
                position = behind
                if found.released_at:
                    # The asker has to find the release behind its own position, and it is the end.
                    found.position = found.released_at - 1
                    return False
                if position - 1 > found.position:
                    # Whole records: what one command changed is answered together.
                    found.position = position - 1
                if len(found.keys) >= keys_max or found.position >= to_position:
                    return False
        return bool(entries)

    def _take(self, payload: bytes, first_position: int, read_from: int) -> None:
        events = decode_events(DecidedCommand.FromString(payload))
        for position, event in enumerate(events, first_position):
            if position <= read_from:
                continue
            if isinstance(event, SlotsReleased):
                if event.move_id == self._move_id:
                    self.found.released_at = position
                continue
            for kind, key, slot in changes_of(event):
                if self._scan.wants(slot):
                    self.found.keys[kind, key] = None
            if isinstance(event, SegmentStorageRemoved):
                # The fold removes the segment's assignment with it.
                key = unit_key(event.topic_id, Unit.segment(event.segment_id).text)
                if self._scan.has(StateKind.ASSIGNMENT, key):
                    self.found.keys[StateKind.ASSIGNMENT, key] = None
