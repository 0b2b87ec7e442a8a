"""Windows of warm Pulsar lookups at one discovery process, and what they cost that process."""

from __future__ import annotations

import argparse
from typing import Any

import psutil

from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.process import run_job
from nextgen.harness.perf.bench import Bench


async def ask(
    bench: Bench,
    process_id: int,
    address: str,
    arguments: argparse.Namespace,
    in_flight: int,
    *,
    ca_file: str = "",
) -> dict[str, Any]:
    """Return the counts of one window of one generator, and the CPU seconds of the process.

    ``address`` is a Pulsar port of the process ``process_id``, over TLS if ``ca_file`` is given.
    ``arguments`` has the numbers of topics, connections and seconds.
    """
    process = psutil.Process(process_id)
    cpu_s: dict[str, float] = {}

    def hear(message: dict[str, Any]) -> None:
        if "event" in message:
            cpu_s[message["event"]] = sum(process.cpu_times()[:2])

    job = {
        "kind": "pulsar_lookup",
        "pulsar": address,
        "ca_file": ca_file,
        "brokers": [],
        "topics": bench.topics("topic", arguments.topics).as_json(),
        "is_partition_metadata": False,
        "connections": arguments.connections,
        "in_flight": in_flight,
        "warm_seconds": 1,
        "seconds": arguments.seconds,
        "check_every": 0,
    }
    result = await run_job(job, hear, timeout_ms=int(60_000 + arguments.seconds * 1_000))
    return {
        "answers": result["answers"],
        "seconds": result["seconds"],
        "cpu_seconds": cpu_s["measured"] - cpu_s["measuring"],
        "latency_us": result["latency_us"],
        "errors": result["errors"],
    }


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rates and latencies of several windows together."""
    answers, cpu_s = (sum(part[name] for part in parts) for name in ("answers", "cpu_seconds"))
    return {
        "rate": round(answers / sum(part["seconds"] for part in parts)),
        "answers_per_core_second": round(answers / cpu_s),
        "errors": sum(part["errors"] for part in parts),
        **summary_of_counts([part["latency_us"] for part in parts]),
    }
