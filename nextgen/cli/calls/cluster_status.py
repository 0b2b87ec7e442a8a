"""The state of a whole cluster, requested from every process that discovery knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.console.output import as_dict, print_line, print_table
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import MetadataError, Unauthenticated
from protos.nextgen.v1 import (
    broker_service_pb2,
    cluster_service_pb2,
    discovery_service_pb2,
    events_pb2,
    shard_service_pb2,
)
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceStub
from protos.nextgen.v1.cluster_service_pb2_grpc import ClusterServiceStub
from protos.nextgen.v1.discovery_service_pb2_grpc import DiscoveryServiceStub
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

ANSWER_TIMEOUT_MS = 1_500
"""Time-out for the status of one process; a process that is down must not delay the others."""


async def gather_status(
    discovery_endpoints: Sequence[str], manager_endpoints: Sequence[str] = ()
) -> dict[str, Any]:
    """Return one document with managers, shards, discovery nodes, brokers and nodes.

    Raises:
        MetadataError: No discovery node answers. Any other process may be down: it is shown.
    """
    async with DiscoveryClient(discovery_endpoints, timeout_ms=ANSWER_TIMEOUT_MS) as discovery:
        cluster: cluster_service_pb2.ClusterUpdate = await discovery.call(
            "GetCluster", discovery_service_pb2.GetClusterRequest()
        )
    managers = list(dict.fromkeys((*cluster.manager_endpoints, *manager_endpoints)))
    shard_nodes = [node for node in cluster.nodes if node.kind == "shard"]
    brokers = list(cluster.brokers)
    discovery_nodes = [node for node in cluster.nodes if node.kind == "discovery"]
    manager_answers, node_answers, discovery_answers, broker_answers = await asyncio.gather(
        _ask_all(managers, ClusterServiceStub, "GetManagerStatus", _MANAGER_REQUEST),
        _ask_all([n.grpc for n in shard_nodes], ShardServiceStub, "GetNodeStatus", _NODE_REQUEST),
        _ask_all(
            [n.grpc for n in discovery_nodes], DiscoveryServiceStub, "GetCluster", _CLUSTER_REQUEST
        ),
        _ask_all(
            [b.endpoints.grpc for b in brokers],
            BrokerServiceStub,
            "GetBrokerStatus",
            _BROKER_REQUEST,
        ),
    )
    return {
        "shard_map_version": cluster.shard_map.version,
        "managers": [
            {"grpc": endpoint, **_answer(answer)}
            for endpoint, answer in zip(managers, manager_answers, strict=True)
        ],
        "shards": _shards(cluster, node_answers),
        "sessions": [
            as_dict(session) | {"manager": answer.node_id}
            for answer in node_answers
            if isinstance(answer, shard_service_pb2.NodeStatus)
            for session in answer.sessions
        ],
        "brokers": [
            {
                "is_live": broker.is_live,
                "draining": broker.draining,
                "grpc": broker.endpoints.grpc,
                "pulsar_url": broker.endpoints.pulsar_url,
            }
            | _answer(answer)
            | {"broker_id": broker.broker_id}
            for broker, answer in zip(brokers, broker_answers, strict=True)
        ],
        "discovery": [
            {"node_id": node.node_id, "grpc": node.grpc, "http": node.http, **_knows(answer)}
            for node, answer in zip(discovery_nodes, discovery_answers, strict=True)
        ],
        "nodes": [as_dict(node) for node in cluster.nodes],
    }


def _knows(answer: Any) -> dict[str, Any]:
    """Return what a discovery node knows of the cluster, or its error."""
    if isinstance(answer, MetadataError):
        return {"error": str(answer)}
    return {"shard_map_version": answer.shard_map.version, "leaders_known": len(answer.leaders)}


_CLUSTER_REQUEST = discovery_service_pb2.GetClusterRequest()
_MANAGER_REQUEST = cluster_service_pb2.GetManagerStatusRequest()
_NODE_REQUEST = shard_service_pb2.GetNodeStatusRequest()
_BROKER_REQUEST = broker_service_pb2.GetBrokerStatusRequest()


async def _ask_all(endpoints: Sequence[str], stub: Any, method: str, request: Any) -> list[Any]:
    return list(await asyncio.gather(*[_ask(e, stub, method, request) for e in endpoints]))


async def _ask(endpoint: str, stub: Any, method: str, request: Any) -> Any:
    """Return the answer, or the error as a value.

    Raises:
        Unauthenticated: The cluster secret is missing here, or is another one.
    """
    channel = open_channel(endpoint)
    try:
        return await getattr(stub(channel), method)(request, timeout=ANSWER_TIMEOUT_MS / 1000)
    except grpc.RpcError as error:
        reason = error_of_rpc(error)
        if isinstance(reason, Unauthenticated):
            raise reason from error
        return reason
    finally:
        await close_channel(channel)


def _answer(answer: Any) -> dict[str, Any]:
    if isinstance(answer, MetadataError):
        return {"error": str(answer)}
    return as_dict(answer)


def _shards(
    cluster: cluster_service_pb2.ClusterUpdate, node_answers: Sequence[Any]
) -> list[dict[str, Any]]:
    leaders = {leader.shard_id: leader for leader in cluster.leaders}
    statuses = [a for a in node_answers if isinstance(a, shard_service_pb2.NodeStatus)]
    replicas = {(r.group_id, status.node_id): r for status in statuses for r in status.replicas}
    shards = []
    for placement in cluster.shard_map.shards:
        shard_id = placement.shard_id
        leader = leaders.get(shard_id)
        named = dict.fromkeys((*placement.replicas, *placement.joining, *placement.leaving))
        known = [replicas.get((shard_id, node_id)) for node_id in named]
        committed = max((r.commit_position for r in known if r), default=0)
        shards.append(
            {
                "shard_id": shard_id,
                "leader": leader.node_id if leader else "",
                "term": leader.term if leader else 0,
                "commit_position": committed,
                "replicas": [
                    _replica(node_id, replica, committed) | {"stage": _stage(placement, node_id)}
                    for node_id, replica in zip(named, known, strict=True)
                ],
            }
        )
    return shards


def _replica(
    node_id: str, replica: cluster_service_pb2.ReplicaStatus | None, committed: int
) -> dict[str, Any]:
    if replica is None:
        return {"node_id": node_id, "role": "unreachable"}
    lag = max(0, committed - replica.applied_position)
    return as_dict(replica) | {"node_id": node_id, "lag_positions": lag}


def _stage(placement: events_pb2.ShardPlacement, node_id: str) -> str:
    """Return the stage of a node between joining and leaving."""
    if node_id in placement.leaving:
        return "leaving"
    return "joining" if node_id in placement.joining else "replica"


def print_status(gathered: dict[str, Any], *, wide: bool = False) -> None:
    """Print the document: whether the cluster is well, then its tables."""
    print_line(_verdict(gathered), style="bold")
    print_table(
        "cluster managers",
        ("replica", "address", "role", "term", "position", "elections"),
        [
            (m["node_id"], m["grpc"], m["role"], m["term"], m["applied_position"], m["elections"])
            if "error" not in m
            else ("?", m["grpc"], "unreachable", "", "", "")
            for m in gathered["managers"]
        ],
        extra=("elections",),
        wide=wide,
    )
    print_table(
        f"shards (map version {gathered['shard_map_version']})",
        ("shard", "leader", "term", "position", "replicas"),
        [
            (
                shard["shard_id"],
                shard["leader"] or "none",
                shard["term"],
                shard["commit_position"],
                _replicas(shard["replicas"]),
            )
            for shard in gathered["shards"]
        ],
        extra=("term",),
        wide=wide,
    )
    print_table(
        "discovery nodes",
        ("node", "address", "HTTP", "map version", "leaders known"),
        [
            (d["node_id"], d["grpc"], d["http"], "unreachable", "")
            if "error" in d
            else (d["node_id"], d["grpc"], d["http"], d["shard_map_version"], d["leaders_known"])
            for d in gathered["discovery"]
        ],
        extra=("HTTP",),
        wide=wide,
    )
    synced = {s["session_id"]: s for s in gathered["sessions"]}
    print_table(
        "brokers",
        ("broker", "gRPC", "Pulsar", "live", "session", "epoch", "topics", "applied", "unsynced"),
        [_broker_row(broker, synced) for broker in gathered["brokers"]],
        extra=("gRPC", "session", "applied", "unsynced"),
        wide=wide,
    )


def _verdict(gathered: dict[str, Any]) -> str:
    problems = gathered["problems"]
    if problems:
        return f"{len(problems)} problem{'s' if len(problems) > 1 else ''}: {'; '.join(problems)}"
    parts = (("managers", "cluster managers"), ("shards", "shards"))
    counts = [f"{len(gathered[key])} {noun}" for key, noun in parts]
    counts += [f"{len(gathered['discovery'])} discovery", f"{len(gathered['brokers'])} brokers"]
    return f"healthy: {', '.join(counts)}"


def _replicas(replicas: list[dict[str, Any]]) -> str:
    """Return how many replicas are up to date, and which are not."""
    others = [f"{each['node_id']}: {lag}" for each in replicas if (lag := _lag(each))]
    up_to_date = f"{len(replicas) - len(others)} up to date"
    return ", ".join([up_to_date, *others])


def _lag(replica: dict[str, Any]) -> str:
    """Return what there is to say about a replica, "" if it is up to date and stays."""
    role = replica["role"]
    stage = "" if replica["stage"] == "replica" else f" ({replica['stage']})"
    if role not in ("leader", "follower"):
        return f"{role}{stage}"
    behind = replica["lag_positions"]
    return f"{behind:,} behind{stage}" if behind or stage else ""


def _broker_row(broker: dict[str, Any], sessions: dict[str, dict[str, Any]]) -> tuple[Any, ...]:
    who = (broker["broker_id"], broker["grpc"], broker["pulsar_url"].removeprefix("pulsar://"))
    if "error" in broker:
        return (*who, broker["is_live"], "unreachable", *[""] * 4)
    session = sessions.get(broker["session_id"])
    unsynced = session["sent_sequence"] - session["synced_sequence"] if session else "unknown"
    return (
        *who,
        broker["is_live"],
        broker["session_id"] or "none",
        broker["epoch"],
        broker["topics"],
        broker["applied_sequence"],
        unsynced,
    )
