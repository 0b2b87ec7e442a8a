"""Decides what a shard's log records of a move of slots, and what it refuses for good.

A log has for each move at most one end: ``SlotsAdopted``, ``SlotsRefused``, ``SlotsReclaimed`` or
the last ``SlotRowsRemoved``. ``Shard.settled_move_id`` remembers it, so that a message which was
delayed begins or releases nothing for a move that is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from shards.domain.shard import Shard, ShardSelf, SlotsAdopted
from shards.domain.slots.events import (
    SCAN_DONE,
    CountedUnits,
    IncomingSlots,
    SlotEvent,
    SlotKey,
    SlotRanges,
    SlotRow,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReclaimed,
    SlotsRefused,
    SlotsReleased,
    overlap,
    united,
    within,
)


@dataclass(frozen=True, slots=True)
class BeginIncoming:
    """In B: begin to copy. ``tail_position`` is of A's log, at or before the first row's state."""

    move_id: int
    ranges: SlotRanges
    from_shard: int
    tail_position: int


@dataclass(frozen=True, slots=True)
class CopyRows:
    """In B: take over rows of A, and how far the copy is with them."""

    move_id: int
    rows: tuple[SlotRow, ...]
    scanned_kind: str
    scanned_after: str
    tail_position: int


@dataclass(frozen=True, slots=True)
class ReleaseSlots:
    """In A: decide nothing about the slots from here on."""

    move_id: int
    ranges: SlotRanges
    to_shard: int
    session_units: tuple[CountedUnits, ...]
    tenant_units: tuple[CountedUnits, ...]
    least_epoch: int


@dataclass(frozen=True, slots=True)
class AdoptCame:
    """In B: own the slots. A's release of them is committed at ``from_position``, and ``rows`` are
    what changed there behind what was copied."""

    move_id: int
    rows: tuple[SlotRow, ...]
    from_position: int
    shard_map_version: int
    session_units: tuple[CountedUnits, ...]
    tenant_units: tuple[CountedUnits, ...]
    least_epoch: int


@dataclass(frozen=True, slots=True)
class RefuseSlots:
    """In B: never adopt the slots of this move, whether or not it has begun here."""

    move_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReclaimSlots:
    """In A: have the slots as before, or never release them for this move. B's refusal is
    committed."""

    move_id: int


@dataclass(frozen=True, slots=True)
class RemoveRows:
    """Remove rows of slots that left A, or that B refused."""

    move_id: int
    keys: tuple[SlotKey, ...]
    is_last: bool


SlotCommand = (
    BeginIncoming | CopyRows | ReleaseSlots | AdoptCame | RefuseSlots | ReclaimSlots | RemoveRows
)
Decision = Accepted[SlotEvent | SlotsAdopted] | Rejected


def decide(shard: ShardSelf, command: SlotCommand) -> Decision:
    """Decide what ``command`` means for ``shard``. What is done already is accepted, with no event,
    except for rows, which may be sent again."""
    if shard is None:
        return _refused("the shard has not adopted its slots")
    match command:
        case BeginIncoming():
            return _begin(shard, command)
        case CopyRows():
            return _copy(shard, command)
        case ReleaseSlots():
            return _release(shard, command)
        case AdoptCame():
            return _adopt(shard, command)
        case RefuseSlots():
            return _refuse(shard, command)
        case ReclaimSlots():
            return _reclaim(shard, command)
        case RemoveRows():
            return _remove(shard, command)
        case _:
            assert_never(command)


def incoming_of(shard: Shard, move_id: int) -> IncomingSlots | None:
    """Return the state of a move to this shard that has begun and is not over."""
    return next((each for each in shard.incoming if each.move_id == move_id), None)


def has_adopted(shard: Shard, move_id: int) -> bool:
    """Return whether the move ended with its slots in this shard. One of the last moves only."""
    return any(each.move_id == move_id for each in shard.came)


def has_outgoing(shard: Shard, move_id: int) -> bool:
    """Return whether the slots were released for the move, and rows of them may be left."""
    return any(each.move_id == move_id for each in shard.outgoing)


def moves_under_way(shard: Shard) -> list[int]:
    """Return the ids of moves that have begun here and are not over, or have left rows."""
    return [each.move_id for each in shard.incoming] + [each.move_id for each in shard.outgoing]


def _begin(shard: Shard, command: BeginIncoming) -> Decision:
    if incoming_of(shard, command.move_id) is not None:
        return Accepted(())
    if (refusal := _is_free(shard, command.move_id)) is not None:
        return refusal
    if overlap(command.ranges, shard.ranges):
        return _refused("the shard has slots of the move already")
    return Accepted(
        (SlotsIncoming(command.move_id, command.ranges, command.from_shard, command.tail_position),)
    )


def _copy(shard: Shard, command: CopyRows) -> Decision:
    incoming = incoming_of(shard, command.move_id)
    if incoming is None or incoming.is_refused:
        return _refused(f"move {command.move_id} takes no rows")
    if command.tail_position < incoming.tail_position:
        return _refused("these rows may be older than those that are here")
    return Accepted(
        (
            SlotRowsCopied(
                command.move_id,
                command.rows,
                command.scanned_kind,
                command.scanned_after,
                command.tail_position,
            ),
        )
    )


def _release(shard: Shard, command: ReleaseSlots) -> Decision:
    if has_outgoing(shard, command.move_id):
        return Accepted(())
    if (refusal := _is_free(shard, command.move_id)) is not None:
        return refusal
    if not command.ranges or not within(command.ranges, shard.ranges):
        return _refused("the shard does not have all slots of the move")
    return Accepted(
        (
            SlotsReleased(
                command.move_id,
                command.ranges,
                command.to_shard,
                command.session_units,
                command.tenant_units,
                command.least_epoch,
            ),
        )
    )


def _adopt(shard: Shard, command: AdoptCame) -> Decision:
    if has_adopted(shard, command.move_id):
        return Accepted(())
    incoming = incoming_of(shard, command.move_id)
    if incoming is None or incoming.is_refused:
        return _refused(f"move {command.move_id} has not begun, or was refused")
    if not incoming.is_scanned:
        return _refused(f"not all rows of move {command.move_id} are here")
    if command.from_position <= incoming.tail_position:
        return _refused("the slots were released before they were copied")
    copied = SlotRowsCopied(
        command.move_id, command.rows, SCAN_DONE, "", tail_position=command.from_position
    )
    adopted = SlotsAdopted(
        united(shard.ranges, incoming.ranges),
        max(shard.shard_map_version, command.shard_map_version),
        command.move_id,
        incoming.ranges,
        incoming.from_shard,
        command.from_position,
        command.session_units,
        command.tenant_units,
        command.least_epoch,
    )
    return Accepted((copied, adopted))


def _refuse(shard: Shard, command: RefuseSlots) -> Decision:
    if has_adopted(shard, command.move_id):
        return _refused(f"the slots of move {command.move_id} are adopted already")
    if command.move_id <= shard.settled_move_id:
        return Accepted(())
    return Accepted((SlotsRefused(command.move_id, command.reason),))


def _reclaim(shard: Shard, command: ReclaimSlots) -> Decision:
    if has_outgoing(shard, command.move_id):
        return Accepted((SlotsReclaimed(command.move_id),))
    if command.move_id <= shard.settled_move_id:
        return Accepted(())
    return Accepted((SlotsReclaimed(command.move_id),))


def _remove(shard: Shard, command: RemoveRows) -> Decision:
    incoming = incoming_of(shard, command.move_id)
    is_refused = incoming is not None and incoming.is_refused
    if not is_refused and not has_outgoing(shard, command.move_id):
        return _refused(f"move {command.move_id} has no rows to remove here")
    return Accepted((SlotRowsRemoved(command.move_id, command.keys, command.is_last),))


def _is_free(shard: Shard, move_id: int) -> Rejected | None:
    """Return why the shard takes no part in a further move, None if it may."""
    if move_id <= shard.settled_move_id:
        return _refused(f"move {move_id} is over")
    if shard.is_restoring:
        return _refused("the shard is being restored from a backup")
    under_way = moves_under_way(shard)
    if under_way:
        return _refused(f"move {under_way[0]} has not ended")
    return None


def _refused(message: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, message)
