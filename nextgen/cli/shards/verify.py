"""``shards verify``: every replica rebuilds its view, and the digests are compared.

A replica compares three digests: of the view rebuilt from its log, of its rows on disk, and the one
stored in its view. Replicas are compared with each other at one position.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1.shard_service_pb2 import VerifyReplicaRequest, VerifyReplicaResponse
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

VERIFY_TIMEOUT_MS = 900_000
"""Time-out for one replica, which replays a log of millions of events with half a core."""

ATTEMPTS_MAX = 3
"""Attempts: a snapshot that a replica takes meanwhile may remove the common position from its
log."""


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """The result of one replica's verification, or why there is none."""

    shard_id: int
    node_id: str
    answer: VerifyReplicaResponse | None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"shard_id": self.shard_id, "node_id": self.node_id}
        if self.answer is None:
            return shown | {"error": self.error}
        answer = self.answer
        return shown | {
            "from_position": answer.from_position,
            "position": answer.position,
            "events_replayed": answer.events_replayed,
            "rebuilt_digest": f"{answer.rebuilt_digest:016x}",
            "stored_digest": f"{answer.stored_digest:016x}",
            "scanned_digest": f"{answer.scanned_digest:016x}",
        }


@dataclass(slots=True)
class VerifyReport:
    """The results of all replicas that were verified."""

    results: list[ReplicaResult] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def add_shard(self, results: Sequence[ReplicaResult], at_position: int) -> None:
        """Add the replicas of one shard, which were compared at ``at_position``."""
        self.results += results
        for result in results:
            self.differences += differences_inside(result)
        self.differences += differences_between(results, at_position)

    def as_json(self) -> dict[str, Any]:
        events: Counter[int] = Counter()
        for result in self.results:
            position = result.answer.position if result.answer else 0
            events[result.shard_id] = max(events[result.shard_id], position)
        return {
            "events": events.total(),
            "replicas": len(self.results),
            "shards": len(events),
            "differences": len(self.differences),
            "found": self.differences,
            "verified": [result.as_json() for result in self.results],
        }


def differences_inside(result: ReplicaResult) -> list[str]:
    """Return the differences within one replica."""
    name = f"shard {result.shard_id}, {result.node_id}"
    answer = result.answer
    if answer is None:
        return [f"{name} was not verified: {result.error}"]
    wrong = []
    at = f"at event {answer.position}"
    if answer.scanned_digest != answer.rebuilt_digest:
        wrong.append(f"{name}: the rows of its view are not what its log gives {at}")
    if answer.stored_digest != answer.rebuilt_digest:
        wrong.append(f"{name}: the digest of its view is not what its log gives {at}")
    return wrong


def differences_between(results: Sequence[ReplicaResult], at_position: int) -> list[str]:
    """Return the replicas whose log gives another view than the others' logs."""
    digests = {r.node_id: r.answer.digest_at_position for r in results if covers(r) and r.answer}
    if len(set(digests.values())) <= 1:
        return []
    shard_id = results[0].shard_id
    (right, votes), *_ = Counter(digests.values()).most_common()
    if votes * 2 <= len(digests):
        names = ", ".join(sorted(digests))
        return [f"shard {shard_id}: {names} differ at event {at_position}, without a majority"]
    return [
        f"shard {shard_id}, {node_id}: its log gives another view than the others' "
        f"at event {at_position}"
        for node_id, digest in sorted(digests.items())
        if digest != right
    ]


def covers(result: ReplicaResult) -> bool:
    """Return whether a replica gave its digest at the common position."""
    return result.answer is not None and result.answer.covers_at_position


async def verify_shards(endpoints: Sequence[str], shard_id: int | None = None) -> VerifyReport:
    """Verify every replica of every shard, or of one; shard by shard, its replicas together.

    Raises:
        Refused: There is no such shard.
        MetadataError: No discovery node answers.
    """
    status = await gather_status(endpoints)
    shard_ids = [shard["shard_id"] for shard in status["shards"]]
    if shard_id is not None and shard_id not in shard_ids:
        raise Refused(RejectionCode.NOT_FOUND, f"there is no shard {shard_id} in the shard map")
    report = VerifyReport()
    for wanted in shard_ids if shard_id is None else [shard_id]:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            results, at_position = await _verify_shard(endpoints, wanted)
            if not at_position or all(map(covers, results)):
                break
            if attempt == ATTEMPTS_MAX:
                report.differences += _not_compared(results, at_position)
        report.add_shard(results, at_position)
    return report


def _not_compared(results: Iterable[ReplicaResult], at_position: int) -> list[str]:
    return [
        f"shard {result.shard_id}, {result.node_id} was not compared with the others: its log "
        f"begins behind event {at_position}"
        for result in results
        if result.answer is not None and not covers(result)
    ]


async def _verify_shard(endpoints: Sequence[str], shard_id: int) -> tuple[list[ReplicaResult], int]:
    """Return the results of a shard's replicas, and the position of their comparison."""
    status = await gather_status(endpoints)
    (shard,) = (each for each in status["shards"] if each["shard_id"] == shard_id)
    addresses = {node["node_id"]: node["grpc"] for node in status["nodes"]}
    replicas = [each for each in shard["replicas"] if each["stage"] != "joining"]
    positions = [each["applied_position"] for each in replicas if "applied_position" in each]
    # The last event that all of them have folded: logs and snapshots of all reach it.
    at_position = min(positions, default=0)
    results = await asyncio.gather(
        *(
            _verify_replica(
                addresses.get(each["node_id"], ""), shard_id, each["node_id"], at_position
            )
            for each in replicas
        )
    )
    return list(results), at_position


async def _verify_replica(
    endpoint: str, shard_id: int, node_id: str, at_position: int
) -> ReplicaResult:
    request = VerifyReplicaRequest(shard_id=shard_id, at_position=at_position)
    channel = open_channel(endpoint)
    try:
        stub: Any = ShardServiceStub(channel)
        answer = await stub.VerifyReplica(request, timeout=VERIFY_TIMEOUT_MS / 1000)
    except grpc.RpcError as error:
        return ReplicaResult(shard_id, node_id, None, str(error_of_rpc(error)))
    finally:
        await close_channel(channel)
    if answer.HasField("error"):
        return ReplicaResult(shard_id, node_id, None, str(from_detail(answer.error)))
    return ReplicaResult(shard_id, node_id, answer)
