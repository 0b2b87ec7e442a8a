"""``perf watch``, its last part: updates at watchers while the leader of their shard is killed."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from nextgen.harness.perf.bench import Bench, note
from nextgen.harness.perf.failover import leader_of, wait_replaced
from nextgen.harness.perf.watch_findings import Findings
from nextgen.kernel.errors import Unavailable
from nextgen.tasks.background import cancel_and_wait, join

LANES = 4
PAUSE_MS = 10
SECONDS = 8.0
"""Of creates, the start of their process included."""

KILL_AFTER_S = 3.5
WINDOW_S = 3.0
"""Creates that were sent up to then after a kill, or pending at that moment, are its effect."""


class Changes(Protocol):
    """A ``WatchRun``."""

    shard_id: int
    changing: asyncio.Event

    async def change_watched(self, findings: Findings, **options: Any) -> dict[str, Any]: ...


async def measure_kills(bench: Bench, run: Changes, kills: int) -> dict[str, Any]:
    """Kill the shard's leader some times while topics are created and watched.

    Raises:
        CheckFailed: The shard did not recover.
        MetadataError: A watcher or a create failed.
    """
    assert bench.cluster is not None, "only a cluster of our own is hurt"
    longest: list[float] = []
    findings = Findings()
    for _ in range(kills):
        one = Findings()
        changing = join(
            run.change_watched(one, in_flight=LANES, pause_ms=PAUSE_MS, seconds=SECONDS)
        )
        try:
            killed_at = await _kill(bench, run)
            await changing
        finally:
            await cancel_and_wait(changing)
        hit = [
            each.took_ms
            for each in one.delivered
            if each.arrived_at >= killed_at and each.sent_at <= killed_at + WINDOW_S
        ]
        if not hit:
            raise Unavailable("no topic was created while the leader was killed")
        longest.append(round(max(hit), 1))
        note(f"leader killed: the slowest of {len(hit)} updates took {longest[-1]:.0f} ms")
        findings.delivered += one.delivered
        findings.wrong += one.wrong
        findings.first_wrong = findings.first_wrong or one.first_wrong
    return {
        "kill_update_max_ms": max(longest),
        "kill_longest_ms": longest,
        "kill_delivered": len(findings.delivered),
        "kill_wrong": findings.wrong,
        "kill_first_wrong": findings.first_wrong,
    }


async def _kill(bench: Bench, run: Changes) -> float:
    """Kill the leader in the middle of the changes, start it again, and return when it died."""
    cluster = bench.cluster
    assert cluster is not None
    await run.changing.wait()
    await asyncio.sleep(KILL_AFTER_S)
    leader = await leader_of(bench, run.shard_id)
    cluster.strike(leader.node_id)
    killed_at = time.monotonic()
    await cluster.kill(leader.node_id)
    await wait_replaced(bench, leader)
    await cluster.start_node(leader.node_id)
    await cluster.wait_ready([leader.node_id])
    return killed_at
