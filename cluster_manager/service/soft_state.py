"""What the cluster manager's leader knows but never writes down.

Leader endpoints and connections live in the memory of one leader, for one term. A new leader
starts with none: every node connects anew and every shard leader reports itself again, so after a
failover of the cluster manager the endpoints are complete as soon as the nodes are back, about a
heartbeat later. Until then nodes go on with the endpoints they know.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster_manager.domain.leader_spread import Leadership


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """Where a shard's leader answers."""

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
        """Take ``endpoint`` if it is news, and return whether it was.

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
        """Return, by shard, who leads and since when this manager knows of it."""
        return {
            shard_id: Leadership(endpoint.node_id, self._since_ms[shard_id])
            for shard_id, endpoint in self._endpoints.items()
        }
