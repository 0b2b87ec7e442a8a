"""What is wrong with a cluster, judged by the document of ``cluster_status``. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

UNREACHABLE = "unreachable"
"""The role of a replica whose node does not answer."""


def assessed(gathered: Mapping[str, Any], planned: Collection[str] | None) -> dict[str, Any]:
    """Return the document with what is wrong, and without nodes that were removed for good.

    ``planned`` are the node ids of a local cluster: others that are gone were removed. Of any
    cluster a broker that was drained before it went was removed.
    """
    present = dict(gathered)
    present["brokers"] = [
        each
        for each in gathered["brokers"]
        if each["is_live"]
        or (not each["draining"] and (planned is None or each["broker_id"] in planned))
    ]
    present["discovery"] = [
        each
        for each in gathered["discovery"]
        if "error" not in each or planned is None or each["node_id"] in planned
    ]
    problems = problems_of(present)
    return {"healthy": not problems, "problems": problems, **present}


def problems_of(gathered: Mapping[str, Any]) -> list[str]:
    """Return a sentence about each thing that is wrong; a cluster without one is healthy."""
    return [
        *_of_managers(gathered["managers"]),
        *_of_shards(gathered["shards"]),
        *_of_discovery(gathered["discovery"]),
        *_of_brokers(gathered["brokers"]),
    ]


def _of_managers(managers: list[dict[str, Any]]) -> Iterator[str]:
    for each in managers:
        if "error" in each:
            yield f"the cluster manager at {each['grpc']} does not answer"
    if not any(each.get("role") == "leader" for each in managers):
        yield "no cluster manager leads"


def _of_shards(shards: list[dict[str, Any]]) -> Iterator[str]:
    if not shards:
        yield "there is no shard map"
    away: dict[str, list[str]] = {}
    for shard in shards:
        if not shard["leader"]:
            yield f"shard {shard['shard_id']} has no leader"
        for replica in shard["replicas"]:
            if replica["role"] == UNREACHABLE:
                away.setdefault(replica["node_id"], []).append(str(shard["shard_id"]))
            for trouble in ("divergence", "disk_trouble"):
                if replica.get(trouble):
                    yield f"shard {shard['shard_id']} at {replica['node_id']}: {replica[trouble]}"
    for node_id, shard_ids in sorted(away.items()):
        yield f"{node_id} does not answer for its replicas of shard {', '.join(shard_ids)}"


def _of_discovery(nodes: list[dict[str, Any]]) -> Iterator[str]:
    for each in nodes:
        if "error" in each:
            yield f"{each['node_id']} does not answer"


def _of_brokers(brokers: list[dict[str, Any]]) -> Iterator[str]:
    for each in brokers:
        if not each["is_live"]:
            yield f"{each['broker_id']} has no session"
        elif "error" in each:
            yield f"{each['broker_id']} does not answer"
    if not any(each["is_live"] for each in brokers):
        yield "no broker has a session"
