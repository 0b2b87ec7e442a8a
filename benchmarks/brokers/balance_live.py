"""How soon are brokers even by themselves, with how many moves, and what do producers notice?

A cluster with three brokers. A process of its own sends to 300 topics with the stock client, few of
which have most of the load, and the busiest ones are all at one broker. The traffic is measured by
the brokers' own counters, window by window. Even means that the busiest broker has at most 1.15
times the mean in two windows, one after the other. Then, with ``--join``, a fourth broker joins,
and the time until all four are even is measured. One JSON line last; exits with 1 if the brokers
were not even in time, or a message was lost.

    python -m benchmarks.brokers.balance_live [--topics 300] [--rate 600] [--skew 1.0] [--join]
                                              [--interval-seconds 15]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.callers.stock_client import ClusterSize, PulsarSystem, running_system

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=3, shards=4)
NAMESPACE = "balance/live"
EVEN = 1.15
EVEN_WINDOWS = 2
WINDOW_S = 5.0
TIMEOUT_S = 120.0
SKEWED_PART = 0.2
"""The busiest of the topics that are all at one broker first."""

_BYTES_IN = "nextgen_broker_bytes_in_total"
_EVACUATED = "nextgen_shard_evacuated_units_total"


def traffic(system: PulsarSystem, brokers: list[str]) -> list[float]:
    """Return the bytes that each broker takes within a window."""
    before = [system.metric(broker, _BYTES_IN) for broker in brokers]
    time.sleep(WINDOW_S)
    return [
        system.metric(broker, _BYTES_IN) - was for broker, was in zip(brokers, before, strict=True)
    ]


def imbalance(loads: list[float]) -> float:
    return max(loads) * len(loads) / max(1.0, sum(loads))


def until_even(system: PulsarSystem, brokers: list[str]) -> dict[str, Any]:
    """Return after how many seconds the brokers were even, and the course until then."""
    began, course, even = time.monotonic(), [], 0
    while even < EVEN_WINDOWS and time.monotonic() - began < TIMEOUT_S:
        found = imbalance(traffic(system, brokers))
        even = even + 1 if found <= EVEN else 0
        course.append([round(time.monotonic() - began, 1), round(found, 3)])
    return {
        "seconds": course[-1][0] if even == EVEN_WINDOWS else None,
        "imbalance": course[-1][1],
        "course": course,
        "moves": round(system.metric("shard-node-1", _EVACUATED)),
    }


def prepare(system: PulsarSystem, options: argparse.Namespace, stem: str) -> None:
    """Create the topics, have all assigned, and the busiest ones all at one broker."""
    minutes = options.interval_seconds / 60
    system.command("brokers", "settings", "set", f"loadBalancerSheddingIntervalMinutes={minutes}")
    system.create_namespace(NAMESPACE, {})
    names = [f"{stem}{number}" for number in range(options.topics)]
    system.create_topics(names)
    owners = system.owners(names)
    for name, owner in list(zip(names, owners, strict=True))[: int(SKEWED_PART * len(names))]:
        if owner != "broker-1":
            system.repeated_command("move", name, "--to", "broker-1")


def start_load(
    system: PulsarSystem, options: argparse.Namespace, stem: str
) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "benchmarks.support.balance.zipf_producers"),
        *("--service-url", system.service_url, "--stem", stem),
        *("--topics", str(options.topics), "--rate", str(options.rate)),
        *("--skew", str(options.skew)),
    ]
    load = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    opened = load.stdout.readline()
    assert opened, "the load process ended"
    return load


def measure(options: argparse.Namespace) -> dict[str, Any]:
    stem = f"persistent://{NAMESPACE}/t-"
    brokers = [f"broker-{number}" for number in (1, 2, 3)]
    with (
        tempfile.TemporaryDirectory(prefix="balance-live-") as directory,
        running_system(Path(directory), SIZE) as system,
    ):
        prepare(system, options, stem)
        load = start_load(system, options, stem)
        first = until_even(system, brokers)
        joined = None
        if options.join:
            brokers.append(system.add_broker())
            joined = until_even(system, brokers)
        said, _ = load.communicate()
    return {
        "benchmark": "balance_live",
        "even": first,
        "joined": joined,
        "producers": json.loads(said.splitlines()[-1]),
        "run": {**vars(options), "load_average_after": os.getloadavg()[0]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--rate", type=float, default=600.0, help="messages a second, in all")
    parser.add_argument("--skew", type=float, default=1.0)
    parser.add_argument("--join", action="store_true", help="have a fourth broker join then")
    parser.add_argument("--interval-seconds", type=int, default=15, help="of the balance")
    result = measure(parser.parse_args())
    print(json.dumps(result))
    even = [each["seconds"] is not None for each in (result["even"], result["joined"]) if each]
    if not all(even) or result["producers"]["lost"] or result["producers"]["failed"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
