"""How many records a second does one Raft group commit, and how long does a commit take?

Three processes on loopback with fsync; the callers run in the leader's process, so this is
the port's own number, without gRPC. One JSON line per number of callers; the last one sums
up. Also measures what an idle cluster costs.

    python -m benchmarks.raft_commit [--seconds 3] [--callers 1,16,256,2000] [--groups 1]
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.support.raft_cluster import RaftCluster


def measure(callers: int, seconds: float) -> dict[str, object]:
    with RaftCluster() as cluster:
        leader = cluster.leader()
        before = leader.call(do="status")
        result = leader.call(do="load", callers=callers, seconds=seconds, warm_up_s=1.0)
        after = leader.call(do="status")
        return {
            "callers": callers,
            **result,
            "syncs": after["syncs"] - before["syncs"],
            "entries": after["entries"] - before["entries"],
            "truncations": sum(n.call(do="status")["truncations"] for n in cluster.nodes),
        }


def measure_idle(groups: int, seconds: float) -> dict[str, object]:
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
    parser.add_argument("--idle-groups", type=int, default=4)
    arguments = parser.parse_args()
    rows = []
    for callers in map(int, arguments.callers.split(",")):
        rows.append(measure(callers, arguments.seconds))
        print(json.dumps(rows[-1]), flush=True)
    idle = measure_idle(arguments.idle_groups, arguments.seconds * 3)
    print(json.dumps({"benchmark": "raft_commit", "rows": rows, **idle}))


if __name__ == "__main__":
    main()
