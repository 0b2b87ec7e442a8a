"""The positions that one client has written to lately, for the lookups that follow.

A discovery process may answer that a topic is absent because it was so a moment ago. A lookup that
carries the positions of its caller's own writes is not answered so from before them (ADR 0061).
"""

from __future__ import annotations

import asyncio

from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition

_TOLD_S = 2 * LOOKUP_STALENESS_MS_MAX / 1_000
"""How long lookups carry the position of a write. No answer rests on what is older than
``LOOKUP_STALENESS_MS_MAX`` when its lookup begins; twice that covers clocks of other speeds."""


class OwnWrites:
    """Positions by shard. One for each client; used on one event loop."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._told_until = float("-inf")

    def __repr__(self) -> str:
        return f"<OwnWrites shards={len(self._positions)}>"

    def note(self, shard_id: int, position: int) -> None:
        """A write of this client was answered from this position of its shard."""
        self._positions[shard_id] = max(position, self._positions.get(shard_id, 0))
        self._told_until = asyncio.get_running_loop().time() + _TOLD_S

    def recent(self) -> list[ShardPosition]:
        """Return what a lookup that begins now has to carry: nothing, if nothing was written."""
        if not self._positions:
            return []
        if asyncio.get_running_loop().time() > self._told_until:
            self._positions.clear()
            return []
        return [
            ShardPosition(shard_id=shard_id, position=position)
            for shard_id, position in self._positions.items()
        ]
