"""The replicas of every shard, by the map, by their leader and by their own reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode


async def gather_replicas(
    discovery_endpoints: Sequence[str], shard_id: int | None = None
) -> dict[str, Any]:
    """Return the map's version and, by shard, its replicas.

    ``stage`` is by the map (replica, joining, leaving), ``role`` by the node's own report
    (unreachable without one). ``lag_positions`` is the distance of its view to the highest commit
    position of any replica; ``lag_entries`` and ``is_connected`` are reports of the shard's leader.
    Unknown values are None.

    Raises:
        Refused: There is no such shard.
        MetadataError: No discovery node answers.
    """
    status = await gather_status(discovery_endpoints)
    shards = [
        described(shard) for shard in status["shards"] if shard_id in (None, shard["shard_id"])
    ]
    if shard_id is not None and not shards:
        raise Refused(RejectionCode.NOT_FOUND, f"there is no shard {shard_id} in the shard map")
    return {"shard_map_version": status["shard_map_version"], "shards": shards}


def described(shard: dict[str, Any]) -> dict[str, Any]:
    """Return one shard of ``gather_status`` as its replicas and their progress."""
    leader: dict[str, Any] = next(
        (replica for replica in shard["replicas"] if replica["role"] == "leader"), {}
    )
    progress = {member["node_id"]: member for member in leader.get("progress", ())}
    return {
        "shard_id": shard["shard_id"],
        "leader": shard["leader"],
        "term": shard["term"],
        "configuration_index": leader.get("configuration_index", 0),
        "voters": leader.get("voters", []),
        "learners": leader.get("learners", []),
        "replicas": [
            {
                "node_id": replica["node_id"],
                "stage": replica["stage"],
                "role": replica["role"],
                "applied_position": replica.get("applied_position"),
                "lag_positions": replica.get("lag_positions"),
                "disk_trouble": replica.get("disk_trouble", ""),
                **_seen_by_leader(replica["node_id"], leader, progress),
            }
            for replica in shard["replicas"]
        ],
    }


def _seen_by_leader(
    node_id: str, leader: dict[str, Any], progress: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    if leader and node_id == leader["node_id"]:
        return {"lag_entries": 0, "is_connected": True, "gets_snapshot": False}
    member = progress.get(node_id)
    if member is None:
        return {"lag_entries": None, "is_connected": None, "gets_snapshot": False}
    return {
        "lag_entries": max(0, leader["last_index"] - member["match_index"]),
        "is_connected": member["is_connected"],
        "gets_snapshot": member["gets_snapshot"],
    }
