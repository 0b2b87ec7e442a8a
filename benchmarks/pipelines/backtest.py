"""How long does a backtest of many scalable topics over days take, with and without another policy?

    python -m benchmarks.pipelines.backtest [--topics 10000] [--days 7] [--check]

Generates a history of scalable topics with loads, consumers, policies and the operations that the
shards' decision made of them, or takes the one at ``--export``. Then ``pipeline backtest`` runs in
a process of its own, as people run it: once without ``--policy`` and once with one. Prints one JSON
line last:

- ``generate_s``; ``backtest_s``: only what happened; ``what_if_s``: the same and two simulations
- ``load_records``, ``records``: events with loads of segments, and all events of the export
- ``decisions``, ``actions``, ``differences``: of the run with the policy
- ``peak_mib``: the most memory of the JVM and Python's workers together, looked at each second
- ``load_average``: of the machine, at the end

With ``--check`` it exits with 1 if the slower one takes more than ``SECONDS_MAX``, or if there is a
difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

SECONDS_MAX = 600
POLICY = {"splitMsgRateInThreshold": 5_000, "mergeMsgRateInThreshold": 500}
MIB = 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--export", type=Path, help="one that exists, or where to generate it")
    parser.add_argument("--report", type=Path, help="keep the page of the run with the policy")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backtest-") as name:
        result = measured(asked, Path(name))
    print(json.dumps(result))
    slowest_s = max(result["backtest_s"], result["what_if_s"])
    is_fine = slowest_s <= SECONDS_MAX and not result["differences"]
    return 1 if asked.check and not is_fine else 0


def measured(asked: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return the numbers of one run."""
    export: Path = asked.export or directory / "export"
    generate_s = 0.0
    if not export.exists():
        arguments = ["generate", str(export), "--auto-scaled", "100", "--seed", str(asked.seed)]
        size = ["--topics", str(asked.topics), "--days", str(asked.days)]
        _, generate_s, _ = run([*arguments, *size, "--heap", asked.heap])
    policy = directory / "policy.json"
    policy.write_text(json.dumps(POLICY))
    job = ["backtest", str(export), "--heap", asked.heap]
    _, backtest_s, first_bytes = run([*job, "--out", str(directory / "alone")])
    what_if = ["--out", str(directory / "what-if"), "--policy", str(policy)]
    what_if += ["--report", str(asked.report or directory / "page.html")]
    told, what_if_s, second_bytes = run([*job, *what_if])
    loads = told["rows_accounted"]["loads_of_segments"]
    return {
        "topics": told["topics"],
        "days": asked.days,
        "records": told["rows_read"],
        "load_records": loads,
        "load_records_per_topic": round(loads / max(1, told["topics"]), 1),
        "decisions": told["decisions"],
        "actions": told["actions"],
        "differences": told["differences"],
        "generate_s": round(generate_s, 1),
        "backtest_s": round(backtest_s, 1),
        "what_if_s": round(what_if_s, 1),
        "peak_mib": round(max(first_bytes, second_bytes) / MIB),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def run(arguments: list[str]) -> tuple[dict[str, Any], float, int]:
    """Run a job; return its summary, its seconds, and the most memory that its processes had."""
    command = [sys.executable, "-m", "pipelines", *arguments, "--json"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watch = MemoryWatch(process.pid)
        watch.start()
        output, _ = process.communicate()
        watch.stop()
    took_s = time.monotonic() - began
    if not output.strip():
        raise SystemExit(f"{arguments[0]} ended with {process.returncode} and told nothing")
    return json.loads(output.strip().splitlines()[-1]), took_s, watch.peak_bytes


class MemoryWatch(threading.Thread):
    """Looks once a second at the memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._root = psutil.Process(pid)
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(1.0):
            self.peak_bytes = max(self.peak_bytes, self._used())

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def _used(self) -> int:
        used = 0
        try:
            for process in (self._root, *self._root.children(recursive=True)):
                try:
                    # Forked workers share pages: what each has for itself is counted.
                    used += process.memory_full_info().uss
                except psutil.Error:
                    continue
        except psutil.Error:
            return 0
        return used


if __name__ == "__main__":
    sys.exit(main())
