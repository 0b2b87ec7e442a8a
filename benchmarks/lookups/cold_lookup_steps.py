"""Where does the time of a cold lookup go?

Looks topics up that no broker serves, one by one, on a cluster whose processes trace, and reads
their spans: the way of a lookup is cut where one of its 23 steps, or a part of its commit, ends.
Parts follow each other; ``fsync`` and ``heard`` are within ``replicate``. Tracing costs time of
its own: compare parts with each other, and the whole with ``nextgen perf assign``. Prints a table,
then one JSON line.

    python -m benchmarks.lookups.cold_lookup_steps [--topics 500] [--shards 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nextgen.cli.local.plan import ClusterSize
from nextgen.cli.observability.trace_command import Span, read_spans
from nextgen.harness.load.measure import quantile
from nextgen.harness.perf.bench import Bench, bench
from nextgen.kernel.limits.trace import TRACE_FLUSH_MS
from nextgen.runtime.telemetry.lookup_steps import STEP

TRACE_VARIABLE = "NEXTGEN_TRACE_FILE"
WARM_TOPICS = 30
"""Looked up before: every connection is open then, and every broker has tenant and namespace."""

PARTS = (
    ("client to discovery", "sent", "step 9"),
    ("discovery to controller", "step 9", "step 10"),
    ("controller decides", "step 10", "commit begins"),
    ("commit: queue", "commit begins", "appended"),
    ("commit: replicate", "appended", "committed"),
    ("commit to manager", "committed", "step 11"),
    ("manager gives it a place", "step 11", "step 19"),
    ("manager to broker", "step 19", "arrived"),
    ("broker applies", "arrived", "step 20"),
    ("broker to manager", "step 20", "step 21"),
    ("manager to controller", "step 21", "step 22"),
    ("controller to discovery", "step 22", "step 23"),
    ("discovery to client", "step 23", "answered"),
    ("of these, within replicate: fsync of the leader", "appended", "durable"),
    ("all", "sent", "answered"),
)
"""Name, beginning and end of each part, in the order of the way."""

Moments = Mapping[str, int]
"""Of one lookup: nanoseconds of the wall clock, by name."""


async def look_up(cluster: Bench, count: int) -> None:
    """Create topics, and look each of them up once, one by one."""
    for stem, number in (("first", WARM_TOPICS), ("cold", count)):
        topics = cluster.topics(stem, number)
        await cluster.create_range(topics, in_flight=1)
        told = await cluster.run(
            "lookup_serial", "cold, one by one", number, topics=topics.as_json()
        )
        if told["errors"]:
            raise SystemExit(f"lookups failed: {told['first_error']}")
    await asyncio.sleep(4 * TRACE_FLUSH_MS / 1000)


def spans_by_trace(directory: Path) -> dict[str, list[Span]]:
    """Return the spans that processes wrote, by trace."""
    found: dict[str, list[Span]] = {}
    for span in read_spans(directory):
        found.setdefault(span.trace_id, []).append(span)
    return found


def moments_of(spans: Sequence[Span]) -> Moments | None:
    """Return what happened when, None for what is no whole cold lookup."""
    found: dict[str, int] = {}
    for span in spans:
        match span.name:
            case "discovery.Lookup":
                found |= {"sent": span.start_ns, "answered": span.end_ns}
            case "commit":
                found |= {"commit begins": span.start_ns, "committed": span.end_ns}
            case "queue":
                found["appended"] = span.end_ns
            case "fsync":
                found["durable"] = span.end_ns
            case "broker.apply":
                found["arrived"] = span.start_ns
        if STEP in span.attributes:
            found[f"step {span.attributes[STEP]}"] = span.start_ns
    needed = {moment for _, begin, end in PARTS for moment in (begin, end)} - {"durable"}
    return found if needed <= found.keys() else None


def rows_of(lookups: Sequence[Moments]) -> Iterator[tuple[str, float, float, float, int]]:
    """Yield name, median, mean, p99 (milliseconds) and number of lookups of each part."""
    for name, begin, end in PARTS:
        took_ms = sorted(
            (moments[end] - moments[begin]) / 1e6
            for moments in lookups
            if begin in moments and end in moments
        )
        if took_ms:
            mean = round(statistics.fmean(took_ms), 3)
            yield name, quantile(took_ms, 0.5), mean, quantile(took_ms, 0.99), len(took_ms)


async def measure(topics: int, shards: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="nextgen-traces-") as directory:
        os.environ[TRACE_VARIABLE] = directory
        async with bench(None, ClusterSize(shards=shards)) as cluster:
            await look_up(cluster, topics)
        traces = spans_by_trace(Path(directory))
    lookups = [found for spans in traces.values() if (found := moments_of(spans)) is not None]
    # The first lookups of all open connections and read tenant and namespace.
    lookups = sorted(lookups, key=lambda moments: moments["sent"])[WARM_TOPICS:]
    rows = list(rows_of(lookups))
    print(f"{'part':48} {'p50 ms':>8} {'mean':>8} {'p99':>8}")
    for name, p50, mean, p99, _ in rows:
        print(f"{name:48} {p50:8.3f} {mean:8.3f} {p99:8.3f}")
    return {
        "benchmark": "cold_lookup_steps",
        "lookups": len(lookups),
        "parts_ms": {
            name: {"p50": p50, "mean": mean, "p99": p99, "count": count}
            for name, p50, mean, p99, count in rows
        },
        "load_average_after": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--shards", type=int, default=4)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.topics, arguments.shards))))


if __name__ == "__main__":
    main()
