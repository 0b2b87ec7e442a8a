"""The soft state of the cluster manager's leader: the endpoints of shard leaders.

Endpoints and connections are in the memory of one leader, for one term. A new leader starts with
none: every node reconnects and every shard leader reports itself again. So after a failover of the
cluster manager the endpoints are complete as soon as the nodes are back, about a heartbeat later.
Until then nodes use the endpoints that they know.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster_manager.domain.leader_spread import Leadership


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """The address of a shard's leader."""

    shard_id: int
    term: int
    node_id: str
    grpc: str


class LeaderEndpoints:
    """The leader of each shard, as reported with the highest term."""

    def __init__(self) -> None:
        self._endpoints: dict[int, LeaderEndpoint] = {}
        self._since_ms: dict[int, int] = {}

    def __repr__(self) -> str:
        shown = " ".join(f"{key}:{end.node_id}" for key, end in sorted(self._endpoints.items()))
        return f"<LeaderEndpoints {shown or 'none'}>"

    def __len__(self) -> int:
        return len(self._endpoints)

    def offer(self, endpoint: LeaderEndpoint, now_ms: int) -> bool:
        """Record ``endpoint`` if it is newer than the known one; return whether it was.

        Within one term there is one leader; only its address may change.
        """
        known = self._endpoints.get(endpoint.shard_id)
        if known is not None:
            if endpoint.term < known.term or endpoint == known:
                return False
            if endpoint.term == known.term and endpoint.node_id != known.node_id:
                return False
        self._endpoints[endpoint.shard_id] = endpoint
        if known is None or endpoint.term > known.term:
            self._since_ms[endpoint.shard_id] = now_ms
        return True

    def get(self, shard_id: int) -> LeaderEndpoint | None:
        return self._endpoints.get(shard_id)

    def all(self) -> tuple[LeaderEndpoint, ...]:
        return tuple(self._endpoints.values())

    def leaderships(self) -> dict[int, Leadership]:
        """Return, by shard, the leader and when this manager learned of it."""
        return {
            shard_id: Leadership(endpoint.node_id, self._since_ms[shard_id])
            for shard_id, endpoint in self._endpoints.items()
        }
