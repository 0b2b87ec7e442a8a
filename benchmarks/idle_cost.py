"""What does an idle cluster of `nextgen up` cost? CPU of one core and memory (PSS), in total.

Starts the default cluster (11 processes), waits for it to settle, then measures one minute
without any request. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

import psutil

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _pss_bytes(processes: list[psutil.Process]) -> int:
    return sum(process.memory_full_info().pss for process in processes)


async def measure(settle_s: float, measure_s: float) -> dict[str, object]:
    plan = make_plan_on_free_ports(ClusterSize(), cluster_id="idle")
    with tempfile.TemporaryDirectory() as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            await asyncio.sleep(settle_s)
            processes = {node: psutil.Process(cluster.process_id(node)) for node in cluster.running}
            supervisor = psutil.Process(os.getpid())
            everyone = [*processes.values(), supervisor]
            before = {node: _cpu_s([process]) for node, process in processes.items()}
            total_before = _cpu_s(everyone)
            await asyncio.sleep(measure_s)
            total = _cpu_s(everyone) - total_before
            by_process = {
                node: round((_cpu_s([process]) - before[node]) / measure_s * 100, 2)
                for node, process in processes.items()
            }
            return {
                "benchmark": "idle_cost",
                "processes": len(everyone),
                "cpu_percent_of_one_core": round(total / measure_s * 100, 2),
                "cpu_percent_by_process": by_process,
                "pss_mb": round(_pss_bytes(everyone) / 1e6, 1),
                "pss_mb_by_process": {
                    node: round(_pss_bytes([process]) / 1e6, 1)
                    for node, process in processes.items()
                },
                "measured_s": measure_s,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settle-s", type=float, default=15)
    parser.add_argument("--measure-s", type=float, default=60)
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.settle_s, arguments.measure_s))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
