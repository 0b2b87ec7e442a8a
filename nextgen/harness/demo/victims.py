"""Chooses the process to kill: the most important one at that moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nextgen.kernel.errors import Unavailable


def busiest_shard_leader(status: dict[str, Any]) -> tuple[str, list[int]]:
    """Return the node that leads the most events, and the shards it leads.

    Raises:
        Unavailable: No shard has a leader.
    """
    events: Counter[str] = Counter()
    shards: dict[str, list[int]] = {}
    for shard in status["shards"]:
        if shard["leader"]:
            events[shard["leader"]] += shard["commit_position"]
            shards.setdefault(shard["leader"], []).append(shard["shard_id"])
    if not events:
        raise Unavailable("no shard has a leader at the moment")
    node_id = events.most_common(1)[0][0]
    return node_id, shards[node_id]


def manager_leader(status: dict[str, Any]) -> str:
    """Return the node id of the cluster manager's leader.

    Raises:
        Unavailable: There is none.
    """
    for manager in status["managers"]:
        if manager.get("role") == "leader":
            return str(manager["node_id"])
    raise Unavailable("the cluster manager has no leader at the moment")


def fullest_broker(
    status: dict[str, Any], preferred: Collection[str] = frozenset()
) -> tuple[str, int]:
    """Return the live broker with the most topics, and how many; one of ``preferred`` if it can be.

    Raises:
        Unavailable: No broker is live.
    """
    live = [b for b in status["brokers"] if b["is_live"] and "error" not in b]
    if not live:
        raise Unavailable("no broker is live at the moment")
    broker = max(live, key=lambda one: (one["broker_id"] in preferred, int(one["topics"])))
    return str(broker["broker_id"]), int(broker["topics"])


@dataclass(slots=True)
class ShadowRoles:
    """What a broker's death does to shadows."""

    served: int = 0
    """Shadows that it serves."""
    fed: int = 0
    """Shadows at other brokers whose sources it serves."""

    @property
    def has_both(self) -> bool:
        return self.served > 0 and self.fed > 0


def shadow_roles(places: Mapping[str, str], shadows: Mapping[str, str]) -> dict[str, ShadowRoles]:
    """Return the roles of each broker: ``places`` are the brokers of topics, ``shadows`` have their
    sources."""
    roles = {broker_id: ShadowRoles() for broker_id in places.values()}
    for shadow, source in shadows.items():
        roles[places[shadow]].served += 1
        if places[source] != places[shadow]:
            roles[places[source]].fed += 1
    return roles
