"""Every promise about speed, measured one after the other beside what was promised.

    python benchmarks/cluster/promises.py [--only create,lookup] [--save]

Runs the `nextgen perf` commands and other benchmarks, each on a cluster of its own with
default settings (3 replicas, fsync, leaders spread), the generator in another process. Prints the
JSON line of each, and one last line with measured and promised side by side. ``--save`` writes that
line to benchmarks/results/ under today's date.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 600

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Promise:
    """One number: where it stands in a result, and its bound ("max" or "min")."""

    name: str
    value_of: Callable[[Result], float]
    bound: str
    promised: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One command and what it shows."""

    command: tuple[str, ...]
    promises: tuple[Promise, ...]
    timeout_s: int = RUN_TIMEOUT_S


def _perf(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "nextgen", "perf", *arguments, "--json")


def benchmark(name: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs the benchmark ``name``, whatever folder it is in."""
    (script,) = (ROOT / "benchmarks").glob(f"*/{name}.py")
    return (sys.executable, str(script), *arguments)


def _misdelivered(result: Result) -> int:
    return sum(int(result[name]) for name in ("lost", "duplicated", "out_of_order", "unanswered"))


MEASUREMENTS = {
    "create": Measurement(
        _perf("create"),
        (
            Promise("create 100,000 topics batched, s", lambda r: r["seconds"], "max", 10),
            Promise("serial create p50, ms", lambda r: r["serial_p50"], "max", 4),
        ),
    ),
    "lookup": Measurement(
        _perf("lookup"),
        (
            Promise("LookupStream, names/s", lambda r: r["rate"], "min", 80_000),
            Promise("wrong answers", lambda r: r["wrong"], "max", 0),
            Promise(
                "discovery RSS with 100,000 answers, MB",
                lambda r: r["discovery_rss_mb"],
                "max",
                200,
            ),
        ),
    ),
    "lookup-moving": Measurement(
        _perf("lookup", "--moving-percent", "1"),
        (Promise("wrong answers while 1 % move every second", lambda r: r["wrong"], "max", 0),),
    ),
    "assign": Measurement(
        _perf("assign"),
        (
            Promise("cold lookup p50, ms", lambda r: r["p50"], "max", 5),
            Promise("cold lookup p99, ms", lambda r: r["p99"], "max", 25),
            Promise("10,000 cold lookups at once, /s", lambda r: r["rate"], "min", 3_000),
            Promise(
                "messages per unit in it, controller to manager and manager to broker",
                lambda r: max(
                    r["messages_per_unit"]["controller_to_manager"],
                    r["messages_per_unit"]["manager_to_broker"],
                ),
                "max",
                0.1,
            ),
            Promise(
                "cluster manager calls in it, renewals apart",
                lambda r: r["messages_per_unit"]["cluster_manager_calls"],
                "max",
                10,
            ),
            Promise("units per broker, max/mean", lambda r: r["units_max_by_mean"], "max", 1.1),
            Promise(
                "assignments of 1,000 concurrent first lookups",
                lambda r: r["one_topic"]["assignments"],
                "max",
                1,
            ),
        ),
    ),
    "failover": Measurement(
        _perf("failover"),
        (
            Promise(
                "kill -9 of a leader to next commit p50, ms",
                lambda r: r["failover_kill_p50_ms"],
                "max",
                100,
            ),
            Promise(
                "kill -9 of a leader to next commit p99, ms",
                lambda r: r["failover_kill_p99_ms"],
                "max",
                300,
            ),
            Promise(
                "frozen leader to next commit p99, ms",
                lambda r: r["failover_hang_p99_ms"],
                "max",
                2_000,
            ),
            Promise(
                "SIGTERM of a leader, longest gap p99, ms",
                lambda r: r["failover_term_p99_ms"],
                "max",
                100,
            ),
            Promise("requests failed by it", lambda r: r["failed_attempts"]["term"], "max", 0),
            Promise(
                "stale answers and depositions by leaders that were frozen",
                lambda r: r["wrong"],
                "max",
                0,
            ),
        ),
    ),
    "pulsar-lookup": Measurement(
        _perf("pulsar-lookup"),
        (
            Promise(
                "Pulsar LOOKUP at one discovery process, /s", lambda r: r["rate"], "min", 200_000
            ),
            Promise("Pulsar LOOKUP p99, ms", lambda r: r["p99"], "max", 10),
            Promise("wrong Pulsar answers", lambda r: r["wrong"], "max", 0),
        ),
    ),
    "pulsar-lookup-moving": Measurement(
        _perf("pulsar-lookup", "--moving-percent", "1"),
        (
            Promise(
                "wrong Pulsar answers while 1 % move every second", lambda r: r["wrong"], "max", 0
            ),
        ),
    ),
    "produce": Measurement(
        _perf("produce"),
        (
            Promise("stock client in, batched, messages/s", lambda r: r["rate"], "min", 20_000),
            Promise("produced messages read again wrongly", lambda r: r["wrong"], "max", 0),
        ),
    ),
    "consume": Measurement(
        _perf("consume"),
        (
            Promise("stock client out, messages/s", lambda r: r["rate"], "min", 100_000),
            Promise("consumed messages lost or twice", lambda r: r["wrong"], "max", 0),
        ),
    ),
    "send-latency": Measurement(
        _perf("produce", "--messages", "2000", "--serial", "5000"),
        (Promise("send to ack unbatched, p50, ms", lambda r: r["serial_p50"], "max", 3),),
    ),
    "broker-kill": Measurement(
        _perf("broker-kill"),
        (
            Promise(
                "kill -9 of the broker of 100 producers, publish gap p99, ms",
                lambda r: r["gap_p99_ms"],
                "max",
                1_000,
            ),
            Promise(
                "frozen broker to lookups that name another, max, ms",
                lambda r: r["stop_elsewhere_max_ms"],
                "max",
                5_000,
            ),
            Promise("messages lost, twice or out of order by it", _misdelivered, "max", 0),
        ),
    ),
    "idle-connections": Measurement(
        benchmark("idle_connections"),
        (
            Promise(
                "discovery RSS with 10,000 idle connections, MB",
                lambda r: max(r["rss_mb"], r["rss_mb_after_ping"]),
                "max",
                300,
            ),
        ),
    ),
    "idle": Measurement(
        benchmark("idle_cost"),
        (
            Promise(
                "idle cluster, % of one core", lambda r: r["cpu_percent_of_one_core"], "max", 15
            ),
            Promise("idle cluster PSS, MB", lambda r: r["pss_mb"], "max", 1_500),
        ),
    ),
}


def run(measurement: Measurement) -> Result:
    """Run one command and return its last line, which must be JSON."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        measurement.command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=measurement.timeout_s,
        check=False,
        env=environment,
        cwd=ROOT,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    if not last.startswith("{"):
        raise SystemExit(f"{' '.join(measurement.command)} printed no result: {done.stdout}")
    result: Result = json.loads(last)
    return result


def judge(promise: Promise, result: Result) -> Result:
    measured = promise.value_of(result)
    kept = measured <= promise.promised if promise.bound == "max" else measured >= promise.promised
    return {
        "promise": promise.name,
        promise.bound: promise.promised,
        "measured": measured,
        "kept": kept,
    }


def keep_promises(title: str, measurements: dict[str, Measurement], description: str) -> None:
    """Run what the command line asks for, one after the other, and print the report."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default=",".join(measurements))
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    verdicts: list[Result] = []
    results: dict[str, Result] = {}
    for name in arguments.only.split(","):
        measurement = measurements[name]
        results[name] = run(measurement)
        print(json.dumps(results[name]), flush=True)
        verdicts += [judge(promise, results[name]) for promise in measurement.promises]
    report: Result = {
        "benchmark": f"{title}promises".replace("-", "_"),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}",
        "load_average_after": os.getloadavg()[0],
        "promises": verdicts,
    }
    if arguments.save:
        path = ROOT / "benchmarks" / "results" / f"{report['date']}-{title}promises.json"
        path.parent.mkdir(exist_ok=True)
        saved = {**report, "results": results}
        path.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report))


def main() -> None:
    keep_promises("", MEASUREMENTS, __doc__)


if __name__ == "__main__":
    main()
