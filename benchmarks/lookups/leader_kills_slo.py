"""Do lookups keep their objective while one shard leader a minute is killed?

The default cluster of 4 shards. Lookups are asked for at a constant rate at both discovery nodes,
a tenth of them of topics that no broker serves. Once a window the leader of another shard is
killed (SIGKILL) with whatever else its node leads, and started again. Each window is judged by the
generator from its own clock: p99 at most 1 s, none over 3 s, at most 1 % failed. Beside it stands
what the cluster itself recorded (`nextgen slo`). One JSON line last; exits with 1 if a window was
bad.

    python -m benchmarks.lookups.leader_kills_slo [--windows 10] [--window-seconds 60] [--rate 200]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.support.constant_lookups import LookupRate, constant_lookups
from nextgen.cli.local.cluster import child_environment
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.bench import Bench, bench
from nextgen.harness.perf.commit_watch import cluster_of
from nextgen.kernel.errors import Unavailable

KILL_AFTER_SHARE = 0.4
"""Of a window: what the kill costs shows in the window it happens in."""

DEAD_S = 3.0
LEADER_TIMEOUT_S = 10.0
LEADER_INTERVAL_S = 0.2
RECORDED_AFTER_S = 6.0
"""A window is recorded some seconds after its end."""


async def leader_of(ready: Bench, shard_id: int) -> str:
    """Return the node that leads the shard, as soon as there is one."""
    ends_at = time.monotonic() + LEADER_TIMEOUT_S
    while time.monotonic() < ends_at:
        for leader in (await cluster_of(ready)).leaders:
            if leader.shard_id == shard_id and leader.node_id:
                return str(leader.node_id)
        await asyncio.sleep(LEADER_INTERVAL_S)
    raise Unavailable(f"shard {shard_id} has no leader")


async def kill_leaders(ready: Bench, windows: int, window_seconds: float) -> list[str]:
    """Kill one leader in each window, of the shards in turn; return the nodes."""
    cluster = ready.cluster
    assert cluster is not None, "the cluster is our own"
    killed: list[str] = []
    began_at = time.monotonic()
    for number in range(windows):
        kill_at = began_at + (number + KILL_AFTER_SHARE) * window_seconds
        await asyncio.sleep(max(0.0, kill_at - time.monotonic()))
        node_id = await leader_of(ready, 1 + number % cluster.plan.size.shards)
        await cluster.kill(node_id)
        killed.append(node_id)
        await asyncio.sleep(min(DEAD_S, window_seconds / 10))
        await cluster.start_node(node_id)
        await cluster.wait_ready([node_id])
    await asyncio.sleep(max(0.0, began_at + windows * window_seconds - time.monotonic()))
    return killed


def recorded_windows(targets: tuple[str, ...], minutes: int) -> dict[str, Any] | str:
    """Return what the cluster says of its own lookups, or why it says nothing."""
    command = [sys.executable, "-m", "nextgen", "slo", "--json"]
    done = subprocess.run(
        [*command, "--minutes", str(minutes), "--target", ",".join(targets)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=child_environment(lifeline=False),
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return done.stderr.strip()[-300:]
    told: dict[str, Any] = json.loads(lines[-1])
    return {name: told[name] for name in ("bad_minutes", "availability_per_cent", "minutes")}


async def measure(windows: int, window_seconds: float, per_second: float) -> dict[str, Any]:
    async with bench(None, ClusterSize(shards=4)) as ready:
        rate = LookupRate(
            per_second,
            window_seconds=window_seconds,
            # What starts and stops beside the windows takes some seconds.
            seconds_max=windows * window_seconds + 30,
        )
        async with constant_lookups(ready, rate) as told:
            killed = await kill_leaders(ready, windows, window_seconds)
        await asyncio.sleep(RECORDED_AFTER_S)
        minutes = 2 + int(windows * window_seconds / 60)
        recorded = await asyncio.to_thread(recorded_windows, ready.targets, minutes)
    # The last one is the remainder behind the last kill's window: cut short, judged all the same.
    return {
        "benchmark": "leader_kills_slo",
        "kills": len(killed),
        "bad_windows": told["bad_windows"],
        "windows": told["windows"],
        "lookups": told["lookups"],
        "errors": told["errors"],
        "cold_lookups": told["cold"],
        "recorded_by_the_cluster": recorded,
        "run": {
            "windows": windows,
            "window_seconds": window_seconds,
            "per_second": per_second,
            "killed": killed,
            "load_average_after": os.getloadavg()[0],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--window-seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="lookups a second")
    options = parser.parse_args()
    result = asyncio.run(measure(options.windows, options.window_seconds, options.rate))
    print(json.dumps(result))
    if result["bad_windows"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
