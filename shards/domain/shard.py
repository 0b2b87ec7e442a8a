"""A shard's own record: the slots that it has."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import SLOT_COUNT

SlotRanges = tuple[tuple[int, int], ...]
"""Inclusive ranges, ascending, not touching each other."""


@dataclass(frozen=True, slots=True)
class AdoptSlots:
    """Adopt the slots that the shard map gives this shard. Once: slots do not move yet."""

    ranges: SlotRanges
    shard_map_version: int


@dataclass(frozen=True, slots=True)
class SlotsAdopted:
    ranges: SlotRanges
    shard_map_version: int


ShardCommand = AdoptSlots
ShardEvent = SlotsAdopted


@dataclass(frozen=True, slots=True)
class Shard:
    """The slots of the shard, and the version of the map that gave them."""

    ranges: SlotRanges
    shard_map_version: int

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
    for first, last in command.ranges:
        if not 0 <= first <= last < SLOT_COUNT:
            return Rejected(RejectionCode.LIMIT_EXCEEDED, f"{first}-{last} is no range of slots")
    if shard is None:
        return Accepted((SlotsAdopted(command.ranges, command.shard_map_version),))
    if shard.ranges == command.ranges:
        return Accepted(())
    return Rejected(
        RejectionCode.NOT_ALLOWED,
        f"the shard has had its slots since map version {shard.shard_map_version}",
    )


def evolve(shard: ShardSelf, event: ShardEvent) -> ShardSelf:
    """Return ``shard`` as it is after ``event``."""
    return Shard(event.ranges, event.shard_map_version)
