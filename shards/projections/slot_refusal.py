"""Why a shard does not answer for a slot, by its own record."""

from __future__ import annotations

from nextgen.kernel.errors import StaleShardMap
from shards.domain.shard import ShardSelf
from shards.domain.slots.events import has_slot


class SlotsComing(StaleShardMap):
    """The slot is on its way to this shard, which may have it in a moment."""


def slot_refusal(shard_id: int, own: ShardSelf, slot: int) -> StaleShardMap:
    """Return the refusal of ``slot``, which the shard with the record ``own`` does not have.

    It says where the slot went, if it left by a move of which this shard still has rows.
    """
    message = f"shard {shard_id} does not have slot {slot}"
    if own is None:
        return StaleShardMap(message)
    for out in own.outgoing:
        if has_slot(out.ranges, slot):
            return StaleShardMap(
                f"{message}: it went to shard {out.to_shard}",
                own.shard_map_version,
                moved_to=out.to_shard,
                moved_slots=out.ranges,
            )
    for coming in own.incoming:
        if not coming.is_refused and has_slot(coming.ranges, slot):
            return SlotsComing(f"{message} yet", own.shard_map_version)
    return StaleShardMap(message, own.shard_map_version)
