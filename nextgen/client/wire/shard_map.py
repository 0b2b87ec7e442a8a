"""What a stored shard map says beyond its fields."""

from __future__ import annotations

from nextgen.kernel.routing.slots import FIRST_VERSION
from protos.nextgen.v1.events_pb2 import ShardMapChanged


def led_shards(stored: ShardMapChanged) -> frozenset[int]:
    """Return the shards that have had a leader, by a map as it is stored and sent.

    Earlier releases do not write ``has_led``. Their maps leave the first version when every shard
    has had a leader, and the maps of this release have ``has_led`` of some shard from then on.
    """
    led = frozenset(each.shard_id for each in stored.shards if each.has_led)
    if led or stored.version <= FIRST_VERSION:
        return led
    return frozenset(each.shard_id for each in stored.shards)
