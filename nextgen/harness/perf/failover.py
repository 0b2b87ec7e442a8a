"""``perf failover``: from killing, freezing or stopping a shard's leader to its next commit.

Several lanes create topics in that shard through the public port, one after the other. The measured
time ends with the first acknowledgement of a create that was sent after the signal. Each lane's
pending create must be acknowledged before that, so the shard's first commit was a little earlier
still. A frozen leader (SIGSTOP) is resumed (SIGCONT) when its successor has committed a request.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nextgen.cli.local.cluster import LocalCluster
from nextgen.harness.load.measure import Latencies
from nextgen.harness.perf.bench import SETUP_TIMEOUT_MS, Bench, note
from nextgen.harness.perf.commit_watch import LANES, CommitWatch, cluster_of, watched
from nextgen.harness.perf.frozen_leader import FrozenLeader
from nextgen.kernel.errors import Unavailable
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import LeaderReport

SETTLE_SECONDS = 3.0
"""Undisturbed commits before each signal, so that the signal before it is not measured."""

AFTERMATH_SECONDS = 1.2
"""Commits are watched for this long after a frozen leader was resumed, or a leader has stopped: a
resumed leader that disturbs its successor does so at once."""

REPLACED_TIMEOUT_MS = 10_000
REPLACED_INTERVAL_MS = 20


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of trials of each kind."""

    kills: int
    hangs: int
    terms: int


async def measure_failover(bench: Bench, counts: Counts, *, topics: int = 0) -> dict[str, Any]:
    """Return the measurement; shards take turns. ``topics`` are created before, over all shards.

    Raises:
        CheckFailed: A shard did not recover.
    """
    cluster = bench.cluster
    assert cluster is not None, "only a cluster of our own is hurt"
    await _fill(bench, topics)
    trials: list[dict[str, Any]] = []
    for kind, count in (("kill", counts.kills), ("hang", counts.hangs), ("term", counts.terms)):
        for number in range(count):
            shard_id = 1 + number % cluster.plan.size.shards
            trial = await _try(bench, cluster, kind, shard_id)
            trials.append(trial)
            note(f"shard {shard_id}: {kind} of {trial['node']}, {trial['ms']:.0f} ms")
    wrong = sum(trial.get("stale_answers", 0) + trial.get("deposed", 0) for trial in trials)
    return {
        "benchmark": "failover",
        **_quantiles(trials),
        "failed_attempts": {
            kind: sum(one["failed_attempts"] for one in trials if one["kind"] == kind)
            for kind in ("kill", "hang", "term")
        },
        "wrong": wrong,
        "trials": trials,
        "run": {
            "kills": counts.kills,
            "hangs": counts.hangs,
            "terms": counts.terms,
            "topics_before": topics,
            "shards": cluster.plan.size.shards,
            "lanes": LANES,
        },
    }


def _quantiles(trials: list[dict[str, Any]]) -> dict[str, float]:
    quantiles: dict[str, float] = {}
    for kind in ("kill", "hang", "term"):
        latencies = Latencies([one["ms"] for one in trials if one["kind"] == kind])
        if latencies.samples_ms:
            summary = latencies.summary()
            quantiles |= {f"failover_{kind}_{name}_ms": summary[name] for name in ("p50", "p99")}
    return quantiles


async def _fill(bench: Bench, topics: int) -> None:
    if not topics:
        return
    filled = bench.topics("filled", topics)
    await bench.create_range(filled, in_flight=8, timeout_ms=max(SETUP_TIMEOUT_MS, topics))


async def _try(bench: Bench, cluster: LocalCluster, kind: str, shard_id: int) -> dict[str, Any]:
    async with watched(bench, shard_id) as (watch, seen):
        await watch.commit_for(SETTLE_SECONDS)
        # Read at the last moment, because leaders change while they are being spread.
        leader = await leader_of(bench, shard_id)
        trial = {"kind": kind, "shard": shard_id, "node": leader.node_id, "term": leader.term}
        if kind == "kill":
            trial |= await _kill(bench, cluster, watch, leader)
        elif kind == "hang":
            trial |= await _hang(bench, cluster, watch, leader)
        else:
            trial |= await _terminate(bench, cluster, watch, leader)
    if seen["refused"]:
        raise CheckFailed(f"{seen['refused']} creates were refused during the failover")
    trial["failed_attempts"] = seen["failed_attempts"]
    if seen["why"]:
        trial["first_failure"] = seen["why"]
    if not cluster.is_running(leader.node_id):
        await cluster.start_node(leader.node_id)
    await cluster.wait_ready([leader.node_id])
    return trial


async def _kill(
    bench: Bench, cluster: LocalCluster, watch: CommitWatch, leader: LeaderReport
) -> dict[str, Any]:
    cluster.strike(leader.node_id)
    killed_at = time.monotonic()
    await cluster.kill(leader.node_id)
    first = await watch.wait_sent_after(killed_at)
    successor = await wait_replaced(bench, leader)
    return {
        "ms": round((first.acknowledged_at - killed_at) * 1000, 1),
        "term_after": successor.term,
        "node_after": successor.node_id,
    }


async def _hang(
    bench: Bench, cluster: LocalCluster, watch: CommitWatch, leader: LeaderReport
) -> dict[str, Any]:
    frozen = FrozenLeader(leader.grpc, leader.shard_id)
    topic = watch.spare_name()
    try:
        await frozen.connect(topic)
        cluster.strike(leader.node_id, signal.SIGSTOP)
        hung_at = time.monotonic()
        try:
            first = await watch.wait_sent_after(hung_at)
            terms = await _terms_without(bench, leader.node_id)
            spread = _transfers_asked_for(cluster)
            await bench.create([topic])
            await frozen.ask(topic)
        finally:
            cluster.strike(leader.node_id, signal.SIGCONT)
        await watch.commit_for(AFTERMATH_SECONDS)
        terms_after = _terms(await cluster_of(bench))
        spread = _transfers_asked_for(cluster) - spread
        verdicts = await frozen.verdicts()
    finally:
        await frozen.close()
    return {
        "ms": round((first.acknowledged_at - hung_at) * 1000, 1),
        "term_after": terms[leader.shard_id],
        # Spreading leaders hands over on purpose, one term each.
        "deposed": sum(
            terms_after[shard_id] - term > spread[shard_id] for shard_id, term in terms.items()
        ),
        **verdicts,
    }


async def _terminate(
    bench: Bench, cluster: LocalCluster, watch: CommitWatch, leader: LeaderReport
) -> dict[str, Any]:
    told_at = time.monotonic()
    await cluster.kill(leader.node_id, signal.SIGTERM)
    gone_at = time.monotonic()
    await watch.commit_for(AFTERMATH_SECONDS)
    successor = await wait_replaced(bench, leader)
    end = gone_at + AFTERMATH_SECONDS
    return {
        "ms": round(watch.longest_gap_ms(told_at, end), 1),
        "slowest_create_ms": round(watch.slowest_ms(told_at, end), 1),
        "exit_ms": round((gone_at - told_at) * 1000, 1),
        "term_after": successor.term,
        "node_after": successor.node_id,
    }


async def leader_of(bench: Bench, shard_id: int) -> LeaderReport:
    cluster = await cluster_of(bench)
    for leader in cluster.leaders:
        if leader.shard_id == shard_id:
            found: LeaderReport = leader
            return found
    raise Unavailable(f"shard {shard_id} has no leader")


async def wait_replaced(bench: Bench, lost: LeaderReport) -> LeaderReport:
    """Return the successor, once a discovery node knows it: another leads in a later term.

    Raises:
        CheckFailed: There is none, so the signal hit a node that did not lead.
    """
    try:
        async with timeout(REPLACED_TIMEOUT_MS / 1000):
            while True:
                leader = await leader_of(bench, lost.shard_id)
                if leader.node_id != lost.node_id and leader.term > lost.term:
                    return leader
                await asyncio.sleep(REPLACED_INTERVAL_MS / 1000)
    except TimeoutError:
        raise CheckFailed(f"shard {lost.shard_id} is still led by {lost.node_id}") from None


async def _terms_without(bench: Bench, node_id: str) -> dict[int, int]:
    """Return the term of each shard once all are led by others than ``node_id``.

    Raises:
        CheckFailed: It took too long.
    """
    try:
        async with timeout(REPLACED_TIMEOUT_MS / 1000):
            while True:
                cluster = await cluster_of(bench)
                if all(leader.node_id != node_id for leader in cluster.leaders):
                    return dict(_terms(cluster))
                await asyncio.sleep(REPLACED_INTERVAL_MS / 1000)
    except TimeoutError:
        raise CheckFailed(f"{node_id} still leads a shard although it is frozen") from None


def _transfers_asked_for(cluster: LocalCluster) -> Counter[int]:
    """Return by shard how often a cluster manager has asked its leader to hand over."""
    asked: Counter[int] = Counter()
    for node in cluster.plan.of_kind("cluster-manager"):
        for line in cluster.log_path(node.node_id).read_text(encoding="utf-8").splitlines():
            if "spreading leaders" in line:
                asked[int(json.loads(line)["shard"])] += 1
    return asked


def _terms(cluster: Any) -> Mapping[int, int]:
    return {leader.shard_id: leader.term for leader in cluster.leaders}
