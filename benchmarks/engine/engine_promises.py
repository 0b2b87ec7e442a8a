"""Every number that the shard engine promises, measured one after the other beside its bound.

    python benchmarks/engine/engine_promises.py [--only port,create] [--save]

As promises.py, whose rules hold: clusters of their own, default settings, fsync, the generator in
another process, correctness checked in the same run. ``topics`` and ``topics-3m`` take long.
``etcd`` needs etcd in PATH and promises nothing: it is there to be read beside ours.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from benchmarks.cluster.promises import Measurement, Promise, Result, benchmark, keep_promises

LONG_RUN_S = 3_600


def _perf(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "nextgen", "perf", *arguments, "--json")


def _slowdown(rates: Sequence[float]) -> float:
    """Return by what share the last tenth of equal steps was slower than the first ones.

    Several steps at either end: one alone may meet a snapshot, or a neighbour of the machine.
    """
    steps = max(3, len(rates) // 10)
    first, last = statistics.median(rates[:steps]), statistics.median(rates[-steps:])
    return round(1 - last / first, 3)


def _topics_at_end(result: Result) -> float:
    return _slowdown(result["create_per_s"])


MEASUREMENTS = {
    "port": Measurement(
        benchmark("raft_commit", "--callers", "1,256"),
        (
            Promise("serial commit at the port p50, ms", lambda r: r["serial_p50_ms"], "max", 1.0),
            Promise("serial commit at the port p99, ms", lambda r: r["serial_p99_ms"], "max", 5.0),
            Promise("events/s acknowledged in bursts", lambda r: r["burst_rate"], "min", 50_000),
        ),
    ),
    "create": Measurement(
        _perf("create", "--serial", "2000"),
        (
            Promise("creates/s acknowledged, batched", lambda r: r["rate"], "min", 20_000),
            Promise("serial create p50, ms", lambda r: r["serial_p50"], "max", 2.0),
        ),
    ),
    "sustained": Measurement(
        benchmark("create_sustained"),
        (
            Promise("creates/s held for 60 s", lambda r: r["rate"], "min", 9_900),
            Promise(
                "samples of views older than 200 ms meanwhile",
                lambda r: r["view_samples_late"],
                "max",
                0,
            ),
            Promise("creates lost by it", lambda r: r["lost"], "max", 0),
        ),
    ),
    "idle": Measurement(
        benchmark("idle_cost", "--shards", "16", "--brokers", "1", "--discovery", "1"),
        (
            Promise(
                "16 idle shards of 3 replicas in 3 processes, % of one core",
                lambda r: r["shard_nodes_percent_of_one_core"],
                "max",
                15,
            ),
        ),
    ),
    "failover": Measurement(
        _perf("failover"),
        (
            Promise(
                "leader killed to next commit p50, ms",
                lambda r: r["failover_kill_p50_ms"],
                "max",
                100,
            ),
            Promise(
                "leader killed to next commit p99, ms",
                lambda r: r["failover_kill_p99_ms"],
                "max",
                300,
            ),
            Promise(
                "leader frozen to next commit p99, ms",
                lambda r: r["failover_hang_p99_ms"],
                "max",
                2_000,
            ),
        ),
        LONG_RUN_S,
    ),
    "topics": Measurement(
        benchmark("million_topics"),
        (
            Promise(
                "RSS of a node with 1 M topics, MB",
                lambda r: max(r["rss_mb"]),
                "max",
                512 * 1.048576,
            ),
            Promise(
                "disk per topic and replica after compaction, log excluded, bytes",
                lambda r: r["view_bytes_per_topic"],
                "max",
                150,
            ),
            Promise("creates slower at 1 M topics than at 100 k by", _topics_at_end, "max", 0.2),
            Promise(
                "slowest create during a snapshot, ms",
                lambda r: r["commit_stall_ms_max"],
                "max",
                200,
            ),
            Promise(
                "restart with 1 M topics, ms",
                lambda r: max(r[f"restart_ms_at_{r['topics']}"]),
                "max",
                10_000,
            ),
        ),
        LONG_RUN_S,
    ),
    "topics-3m": Measurement(
        benchmark("million_topics", "--topics", "3000000"),
        (Promise("creates slower at 3 M topics than at 100 k by", _topics_at_end, "max", 0.2),),
        LONG_RUN_S,
    ),
    "etcd": Measurement(benchmark("etcd_beside"), ()),
}


def main() -> None:
    keep_promises("engine-", MEASUREMENTS, __doc__)


if __name__ == "__main__":
    main()
