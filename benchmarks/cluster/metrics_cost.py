"""What metrics and traces cost where they are on the way: per commit, per lookup, per span.

    python benchmarks/cluster/metrics_cost.py [--json] [--calls 200000]

Nanoseconds for one call each, the best of five rounds: no network and no disk is involved. Add
the lines of a request up to see its share; a commit takes about a millisecond.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from nextgen.replication.statistics import ReplicaStatistics
from nextgen.runtime.settings import TraceSettings
from nextgen.runtime.telemetry import tracing
from nextgen.runtime.telemetry.trace_export import start_tracing
from shards.metrics import NodeMetrics, ShardMetrics

_ROUNDS = 5


def _best_ns(work: Callable[[], object], calls: int) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter_ns() - began) / calls)
    return best


def _checked() -> None:
    if tracing.active is not None:
        raise AssertionError("off")


def _span() -> None:
    with tracing.span("request", ""):
        pass


def _measured(calls: int) -> dict[str, float]:
    metrics = ShardMetrics(NodeMetrics(CollectorRegistry()), 1)
    statistics = ReplicaStatistics()
    numbers = {
        "loop": _best_ns(lambda: None, calls),
        "commit_histogram": _best_ns(partial(metrics.commit_latency.observe, 0.004), calls),
        "lookup_histogram": _best_ns(partial(metrics.lookups_answered.observe, 0.004), calls),
        "committed_counter": _best_ns(partial(metrics.commits.inc, 3), calls),
        "sync_statistics": _best_ns(partial(statistics.add_sync, 0.004), calls),
        "clock": _best_ns(time.monotonic, calls),
        "trace_off_check": _best_ns(_checked, calls),
        "trace_off_span": _best_ns(_span, calls),
        "trace_off_timed": _best_ns(partial(tracing.timed, "decide", bool), calls),
        "trace_off_traceparent": _best_ns(tracing.traceparent, calls),
    }
    for ratio in (0.0, 1.0):
        with tempfile.TemporaryDirectory() as folder:
            settings = TraceSettings(file=Path(folder) / "spans.jsonl", ratio=ratio)
            stop = start_tracing(settings, component="benchmark", node_id="benchmark")
            numbers[f"trace_on_span_ratio_{ratio:.0f}"] = _best_ns(_span, calls // 20)
            stop()
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calls", type=int, default=200_000)
    arguments = parser.parse_args()
    numbers = _measured(arguments.calls)
    per_commit = numbers["commit_histogram"] + 3 * numbers["clock"] + numbers["trace_off_check"]
    result = {
        **{f"{name}_ns": round(value) for name, value in numbers.items()},
        "added_per_commit_ns": round(per_commit),
        "added_per_lookup_request_ns": round(
            numbers["lookup_histogram"] + 2 * numbers["clock"] + 3 * numbers["trace_off_check"]
        ),
    }
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:32} {value:>9}")


if __name__ == "__main__":
    main()
