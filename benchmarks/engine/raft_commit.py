"""How many records a second does one Raft group commit, and how long does a commit take?

Three processes on loopback with fsync; the callers run in the leader's process, so this is
the port's own number, without gRPC. First in a closed loop, one JSON line per number of
callers, then in bursts: so many records proposed at once, until the last is acknowledged.
Also measures what idle groups cost. The last line sums up.

Each run is checked: what was acknowledged is what the leader counted, and the views of all
three replicas hold each of these records.

    python -m benchmarks.engine.raft_commit [--seconds 3] [--callers 1,16,256,2000] [--burst 10000]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.support.raft_cluster import NodeProcess, RaftCluster

BURSTS = 20
WARM_UP_S = 1.0
Result = dict[str, Any]


def measure(load: Callable[[NodeProcess], Result]) -> Result:
    """Run ``load`` at the leader of a fresh group and check what it says.

    Raises:
        SystemExit: A replica lacks a record, or the counters differ.
    """
    with RaftCluster() as cluster:
        leader = cluster.leader()
        before = leader.call(do="status")
        result = load(leader)
        after = leader.call(do="status")
        counted = after["commits"] - before["commits"]
        held = [node.call(do="holds", position=result["position"]) for node in cluster.nodes]
        found = {counted, *(view["count"] for view in held), *(view["largest"] for view in held)}
        if result["errors"] or found != {result["acknowledged"]}:
            raise SystemExit(f"{result} was acknowledged, {counted} counted, {held} is there")
        return {
            **result,
            "counted_by_leader": counted,
            "syncs": after["syncs"] - before["syncs"],
            "entries": after["entries"] - before["entries"],
            "truncations": sum(n.call(do="status")["truncations"] for n in cluster.nodes),
        }


def measure_callers(callers: int, seconds: float) -> Result:
    def load(leader: NodeProcess) -> Result:
        return leader.call(do="load", callers=callers, seconds=seconds, warm_up_s=WARM_UP_S)

    return {"callers": callers, **measure(load)}


def measure_burst(records: int) -> Result:
    def load(leader: NodeProcess) -> Result:
        return leader.call(do="burst", records=records, bursts=BURSTS)

    return {"burst": records, "bursts": BURSTS, **measure(load)}


def measure_idle(groups: int, seconds: float) -> Result:
    with RaftCluster(groups) as cluster:
        cluster.leader()
        time.sleep(1.0)
        before = [node.call(do="status") for node in cluster.nodes]
        time.sleep(seconds)
        after = [node.call(do="status") for node in cluster.nodes]
        shares = [
            (b["cpu_s"] - a["cpu_s"]) / (b["at"] - a["at"])
            for a, b in zip(before, after, strict=True)
        ]
        return {
            "idle_groups": groups,
            "idle_core_percent": [round(share * 100, 2) for share in shares],
            "rss_mb": [round(status["rss"] / 1e6) for status in after],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--callers", default="1,16,256,2000")
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--idle-groups", type=int, default=16)
    arguments = parser.parse_args()
    rows = []
    for callers in map(int, arguments.callers.split(",")):
        rows.append(measure_callers(callers, arguments.seconds))
        print(json.dumps(rows[-1]), flush=True)
    burst = measure_burst(arguments.burst)
    print(json.dumps(burst), flush=True)
    serial = next((row for row in rows if row["callers"] == 1), {})
    report = {
        "benchmark": "raft_commit",
        "serial_p50_ms": serial.get("p50"),
        "serial_p99_ms": serial.get("p99"),
        "rate_max": max(row["rate"] for row in rows),
        "burst_rate": burst["rate"],
        "burst_rate_min": burst["rate_min"],
        "rows": rows,
        **measure_idle(arguments.idle_groups, arguments.seconds * 3),
        "load_average": os.getloadavg()[0],
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
