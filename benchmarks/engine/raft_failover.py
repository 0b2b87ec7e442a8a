"""How long after kill -9 of a leader does the next one commit, and is anything acked lost?

Three processes on loopback with fsync. Each run kills the leader of one group, idle or under
load, and waits for the first commit of its successor. One JSON line last, times in ms.

    python -m benchmarks.engine.raft_failover [--runs 10] [--load] [--signal KILL|STOP]
"""

from __future__ import annotations

import argparse
import json
import random
import select
import signal
import time
from typing import Any

from benchmarks.support.raft_cluster import NodeProcess, RaftCluster

TAKEOVER_DEADLINE_S = 10.0
LOAD_CALLERS = 256


def fail_over(*, load: bool, signal_name: str) -> dict[str, Any]:
    with RaftCluster() as cluster:
        leader = cluster.leader()
        acked = cluster.directory / "acked"
        acked.touch()
        if load:
            leader.send(do="load", callers=LOAD_CALLERS, seconds=60, warm_up_s=0, acked=str(acked))
        survivors = [node for node in cluster.nodes if node is not leader]
        for node in survivors:
            node.call(do="watch")
        time.sleep(random.uniform(1.0, 1.5))
        killed_at = time.monotonic()
        leader.process.send_signal(getattr(signal, f"SIG{signal_name}"))
        successor, takeover = first_answer(survivors)
        lost = successor.call(do="missing", acked=str(acked))
        return {
            "elected_ms": round((takeover["led_at"] - killed_at) * 1000, 1),
            "committed_ms": round((takeover["committed_at"] - killed_at) * 1000, 1),
            **lost,
        }


def first_answer(nodes: list[NodeProcess]) -> tuple[NodeProcess, dict[str, Any]]:
    pipes = {node.process.stdout: node for node in nodes}
    ready, _, _ = select.select(list(pipes), [], [], TAKEOVER_DEADLINE_S)
    if not ready:
        raise TimeoutError("nobody took over")
    node = pipes[ready[0]]
    return node, node.answer()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL")
    arguments = parser.parse_args()
    runs = []
    for _ in range(arguments.runs):
        runs.append(fail_over(load=arguments.load, signal_name=arguments.signal))
        print(json.dumps(runs[-1]), flush=True)
    times = sorted(run["committed_ms"] for run in runs)
    print(
        json.dumps(
            {
                "benchmark": "raft_failover",
                "signal": arguments.signal,
                "load": arguments.load,
                "runs": len(runs),
                "p50": times[len(times) // 2],
                "max": times[-1],
                "acked": sum(run["acked"] for run in runs),
                "lost": sum(run["lost"] for run in runs),
            }
        )
    )


if __name__ == "__main__":
    main()
