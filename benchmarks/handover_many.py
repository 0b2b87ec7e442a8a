"""How does the gap of one topic's producer grow with the number of topics that move with it?

`nextgen perf handover`, once for each number of topics: stock clients on all of them, moves of one
topic at a time, then of all in one request. A gap is between two acknowledged sends. What is
promised: with 1,000 topics at most twice the gap of one. One JSON line last; exits with 1 if a
message was lost or out of order, or the promise is broken.

    python -m benchmarks.handover_many [--topics 10,100,1000] [--moves 40] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUN_TIMEOUT_S = 900
TIMES_MAX = 2.0
TOLD = (
    "p50_ms",
    "p99_ms",
    "max_ms",
    "many_p50_ms",
    "many_p99_ms",
    "many_max_ms",
    "many_to_one",
    "many_own_p50_ms",
    "many_own_p99_ms",
    "many_own_max_ms",
    "many_own_to_one",
    "lookups",
    "many_lookups",
    "many_move_ms",
    "lost",
    "out_of_order",
    "duplicated",
    "errors",
    "first_error",
)


def run(topics: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what was measured with so many topics."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nextgen", "perf", "handover", "--json"),
            *("--topics", str(topics), "--probes", str(min(topics, arguments.probes))),
            *("--moves", str(arguments.moves), "--rounds", str(arguments.rounds)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise SystemExit(f"perf handover with {topics} topics printed no result: {done.stdout}")
    result: dict[str, Any] = json.loads(lines[-1])
    return {"topics": topics, **{name: result[name] for name in TOLD}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", default="10,100,1000", help="numbers of topics, ascending")
    parser.add_argument("--probes", type=int, default=10)
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    results = [run(int(topics), arguments) for topics in arguments.topics.split(",")]
    wrong = sum(one["lost"] + one["out_of_order"] + one["duplicated"] for one in results)
    times = results[-1]["many_to_one"]
    print(
        json.dumps(
            {
                "benchmark": "handover_many",
                "times_the_gap_of_one": times,
                "times_max": TIMES_MAX,
                "wrong": wrong,
                "by_topics": results,
                "load_average_after": os.getloadavg()[0],
            }
        )
    )
    if wrong or times is None or times > TIMES_MAX:
        sys.exit(1)


if __name__ == "__main__":
    main()
