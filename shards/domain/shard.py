"""A shard's own record: the slots that it has, and the last restore from a backup."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar, assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.events.generations import EPOCHS_MAX
from nextgen.kernel.limits.cluster import SLOT_COUNT
from shards.domain.slots.events import (
    CameSlots,
    CountedUnits,
    IncomingSlots,
    OutgoingSlots,
    SlotEvent,
    SlotRanges,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReclaimed,
    SlotsRefused,
    SlotsReleased,
    united,
    without,
)

MOVES_REMEMBERED_MAX = 64
"""The last adoptions that a shard's record has: by them retries find first outcomes elsewhere."""


@dataclass(frozen=True, slots=True)
class AdoptSlots:
    """Adopt the first slots of the shard, those that the shard map gives it; maybe none.

    Only a log that has never adopted any decides by a map, and any map will do: slots come to a
    shard later by an event of its own log alone, so no map has others for it before.
    """

    ranges: SlotRanges
    shard_map_version: int


class RestorePhase(StrEnum):
    BEGUN = "begun"
    ENDED = "ended"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class MarkRestore:
    """Begin, end or give up the restore ``restore_id``.

    ``objects`` is the number of tenants, namespaces and topics in the shard: a restore is begun and
    given up in an empty shard alone.
    """

    restore_id: str
    phase: RestorePhase
    objects: int
    least_epoch: int = 0


@dataclass(frozen=True, slots=True)
class SlotsAdopted:
    """The shard has ``ranges`` from here on, all of them. ``move_id`` 0: of no move; else ``came``
    are the slots that came from ``from_shard``, which released them at ``from_position``."""

    ranges: SlotRanges
    shard_map_version: int
    move_id: int = 0
    came: SlotRanges = ()
    from_shard: int = 0
    from_position: int = 0
    session_units: tuple[CountedUnits, ...] = ()
    tenant_units: tuple[CountedUnits, ...] = ()
    least_epoch: int = 0


@dataclass(frozen=True, slots=True)
class RestoreMarked:
    restore_id: str
    phase: RestorePhase
    least_epoch: int


ShardCommand = AdoptSlots | MarkRestore
ShardEvent = SlotsAdopted | RestoreMarked | SlotEvent


@dataclass(frozen=True, slots=True)
class Shard:
    """The slots of the shard, and the version of the map that gave them.

    ``restore_id`` and ``restore_phase`` are of the last restore, "" if there was none.
    """

    ranges: SlotRanges
    shard_map_version: int
    restore_id: str = ""
    restore_phase: str = ""
    least_epoch: int = 0
    """No unit or broker session gets an earlier epoch."""

    incoming: tuple[IncomingSlots, ...] = ()
    outgoing: tuple[OutgoingSlots, ...] = ()
    came: tuple[CameSlots, ...] = ()
    """The last adoptions, oldest first."""

    settled_move_id: int = 0
    """Moves up to this one are over here: no message begins them or releases slots for them. Ids
    ascend, and a shard takes part in one move at a time."""

    @property
    def has_moved(self) -> bool:
        """Whether slots ever came to the shard or left it, or are about to."""
        return bool(self.settled_move_id or self.incoming or self.outgoing)

    @property
    def is_restoring(self) -> bool:
        return self.restore_phase == RestorePhase.BEGUN

    def slot_map(self) -> bytes:
        """Return one byte per slot, 1 for the slots of the shard."""
        slots = bytearray(SLOT_COUNT)
        for first, last in self.ranges:
            slots[first : last + 1] = b"\x01" * (last + 1 - first)
        return bytes(slots)


NO_SLOTS = bytes(SLOT_COUNT)
"""The slot map of a shard that has not adopted any."""

SHARD_KEY = "shard"
"""Each log has one such record."""

ShardSelf = Shard | None
INITIAL: ShardSelf = None


def decide(shard: ShardSelf, command: ShardCommand) -> Accepted[ShardEvent] | Rejected:
    """Decide what ``command`` means for ``shard``."""
    match command:
        case AdoptSlots():
            return _decide_adopt(shard, command)
        case MarkRestore():
            return _decide_mark(shard, command)
        case _:
            assert_never(command)


def evolve(shard: ShardSelf, event: ShardEvent) -> ShardSelf:
    """Return ``shard`` as it is after ``event``."""
    match event:
        case SlotsAdopted():
            return _after_adoption(shard, event)
        case RestoreMarked():
            assert shard is not None, "slots are adopted before anything else"
            return replace(
                shard,
                restore_id=event.restore_id,
                restore_phase=event.phase.value,
                least_epoch=max(shard.least_epoch, event.least_epoch),
            )
        case _:
            assert shard is not None, "slots are adopted before anything else"
            return _after_move(shard, event)


def _after_adoption(shard: ShardSelf, event: SlotsAdopted) -> Shard:
    if shard is None or not event.move_id:
        before = shard or Shard((), 0)
        return replace(before, ranges=event.ranges, shard_map_version=event.shard_map_version)
    came = CameSlots(event.move_id, event.came, event.from_shard, event.from_position)
    return replace(
        shard,
        ranges=event.ranges,
        shard_map_version=event.shard_map_version,
        least_epoch=max(shard.least_epoch, event.least_epoch),
        incoming=_other_moves(shard.incoming, event.move_id),
        came=(*shard.came, came)[-MOVES_REMEMBERED_MAX:],
        settled_move_id=max(shard.settled_move_id, event.move_id),
    )


def _after_move(shard: Shard, event: SlotEvent) -> Shard:
    match event:
        case SlotsIncoming():
            incoming = IncomingSlots(
                event.move_id, event.ranges, event.from_shard, tail_position=event.tail_position
            )
            return replace(shard, incoming=(*shard.incoming, incoming))
        case SlotRowsCopied():
            return _with_incoming(
                shard,
                event.move_id,
                scanned_kind=event.scanned_kind,
                scanned_after=event.scanned_after,
                tail_position=event.tail_position,
            )
        case SlotsReleased():
            outgoing = OutgoingSlots(
                event.move_id,
                event.ranges,
                event.to_shard,
                event.session_units,
                event.tenant_units,
                event.least_epoch,
            )
            return replace(
                shard,
                ranges=without(shard.ranges, event.ranges),
                outgoing=(*shard.outgoing, outgoing),
            )
        case SlotsRefused():
            return _settled(_with_incoming(shard, event.move_id, is_refused=True), event.move_id)
        case SlotsReclaimed():
            back = [each.ranges for each in shard.outgoing if each.move_id == event.move_id]
            return replace(
                _settled(shard, event.move_id),
                # None: they were not released, and never will be for this move.
                ranges=united(shard.ranges, back[0]) if back else shard.ranges,
                outgoing=_other_moves(shard.outgoing, event.move_id),
            )
        case SlotRowsRemoved():
            if not event.is_last:
                return shard
            return replace(
                _settled(shard, event.move_id),
                incoming=_other_moves(shard.incoming, event.move_id),
                outgoing=_other_moves(shard.outgoing, event.move_id),
            )
        case _:
            assert_never(event)


def _settled(shard: Shard, move_id: int) -> Shard:
    return replace(shard, settled_move_id=max(shard.settled_move_id, move_id))


_Move = TypeVar("_Move", IncomingSlots, OutgoingSlots)


def _other_moves(moves: tuple[_Move, ...], move_id: int) -> tuple[_Move, ...]:
    return tuple([each for each in moves if each.move_id != move_id])


def _with_incoming(shard: Shard, move_id: int, **changes: Any) -> Shard:
    incoming = [
        replace(each, **changes) if each.move_id == move_id else each for each in shard.incoming
    ]
    return replace(shard, incoming=tuple(incoming))


def _decide_adopt(shard: ShardSelf, command: AdoptSlots) -> Accepted[ShardEvent] | Rejected:
    for first, last in command.ranges:
        if not 0 <= first <= last < SLOT_COUNT:
            return Rejected(RejectionCode.LIMIT_EXCEEDED, f"{first}-{last} is no range of slots")
    if shard is not None:
        return Accepted(())
    return Accepted((SlotsAdopted(command.ranges, command.shard_map_version),))


def _decide_mark(shard: ShardSelf, command: MarkRestore) -> Accepted[ShardEvent] | Rejected:
    if shard is None:
        return Rejected(RejectionCode.NOT_ALLOWED, "the shard has not adopted its slots")
    if not 0 <= command.least_epoch < EPOCHS_MAX:
        return Rejected(RejectionCode.LIMIT_EXCEEDED, f"{command.least_epoch} is no epoch")
    is_own = shard.restore_id == command.restore_id
    if is_own and shard.restore_phase in (command.phase.value, RestorePhase.ENDED):
        return Accepted(())
    if command.phase is RestorePhase.ENDED:
        refusal = "" if is_own and shard.is_restoring else "it was not begun"
    elif shard.is_restoring and not is_own:
        refusal = f"the restore of backup {shard.restore_id} has not ended"
    elif command.objects:
        refusal = f"the shard has {command.objects} tenants, namespaces and topics"
    elif command.phase is RestorePhase.ABANDONED and not is_own:
        return Accepted(())
    else:
        refusal = ""
    if refusal:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"the restore of backup {command.restore_id} cannot be {command.phase}: {refusal}",
        )
    return Accepted((RestoreMarked(command.restore_id, command.phase, command.least_epoch),))
