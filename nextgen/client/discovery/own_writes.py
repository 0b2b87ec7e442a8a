"""The positions of one client's recent writes, which its lookups carry.

A discovery process caches that a topic is absent. It answers a lookup from no such cache entry that
is older than the positions in the lookup, so a client finds the topics it has created (ADR 0061).
"""

from __future__ import annotations

import asyncio

from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition

_CARRIED_S = 2 * LOOKUP_STALENESS_MS_MAX / 1_000
"""Seconds for which lookups carry the position of a write. No cache entry in use is older than
``LOOKUP_STALENESS_MS_MAX`` when a lookup begins; the factor allows for clock drift."""


class OwnWrites:
    """Positions by shard. One for each client; used on one event loop."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._carried_until = float("-inf")

    def __repr__(self) -> str:
        return f"<OwnWrites shards={len(self._positions)}>"

    def note(self, shard_id: int, position: int) -> None:
        """Note that a write of this client was committed at ``position`` of its shard."""
        self._positions[shard_id] = max(position, self._positions.get(shard_id, 0))
        self._carried_until = asyncio.get_running_loop().time() + _CARRIED_S

    def recent(self) -> list[ShardPosition]:
        """Return the positions for a lookup that begins now, none without a recent write."""
        if not self._positions:
            return []
        if asyncio.get_running_loop().time() > self._carried_until:
            self._positions.clear()
            return []
        return [
            ShardPosition(shard_id=shard_id, position=position)
            for shard_id, position in self._positions.items()
        ]
