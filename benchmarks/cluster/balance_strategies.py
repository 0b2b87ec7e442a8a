"""Balance by topic beside Pulsar's AvgShedder and TransferShedder, on the same loads.

A simulation, so the machine does not matter: nine workloads (skewed, bursts, a day with tenants in
several time zones, adversaries, a broker that comes, one that returns, unequal brokers) under four
strategies, with the same seeds. The balance is the one that shards run; the two others are written
after Pulsar's rules, with the defaults of 5.0 (benchmarks/support/balance). Some two minutes.
Prints one JSON line last.

    python -m benchmarks.cluster.balance_strategies [--seeds 2] [--only skewed] [--write] [--check]

``--write`` writes the results to benchmarks/results, the table to docs/flows/balance.md and, where
matplotlib is installed (extra ``pipeline``), the plot beside it. ``--check`` fails if the goal is
missed in a workload where it can be reached: an imbalance of 1.15, and no more topics moved than by
the better of the other two.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.support.balance.comparison import GOAL, STRATEGIES, Outcome, compare, shown
from benchmarks.support.balance.page import PAGE, PLOT, RESULTS, SUFFIX, plot, table, with_table
from benchmarks.support.balance.workloads import SHORT, WORKLOADS

BEYOND_REACH = (
    "bursty",
    "hot topic follows the emptiest broker",
    "flapping each round",
    "flapping each four rounds",
)
"""Workloads whose load changes faster than three rounds of reports: no strategy reaches 1.15."""


def verdicts(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return for each workload whether the goal is reached, and beside which strategy."""
    found = []
    for first in range(0, len(outcomes), len(STRATEGIES)):
        ours, avg, transfer = outcomes[first : first + 3]
        better = min(avg, transfer, key=lambda each: each.imbalance)
        found.append(
            {
                "workload": ours.workload,
                "imbalance": ours.imbalance,
                "is_within_goal": ours.imbalance <= max(GOAL, ours.best_possible),
                "better_of_the_others": better.strategy,
                "its_imbalance": better.imbalance,
                "topic_moves": ours.topic_moves,
                "its_topic_moves": better.topic_moves,
                "has_no_more_moves": ours.topic_moves <= better.topic_moves,
            }
        )
    return found


def _write(outcomes: Sequence[Outcome], result: dict[str, Any]) -> None:
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    (RESULTS / f"{day}-{SUFFIX}").write_text(json.dumps(result, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table(result["outcomes"])))
    if importlib.util.find_spec("matplotlib") is None:
        print("the plot is not written: matplotlib is not installed", file=sys.stderr)
    else:
        plot(outcomes, PLOT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="workloads whose names begin so")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    began = time.process_time()
    workloads = [each for each in WORKLOADS if each.name.startswith(given.only)]
    outcomes = compare(range(1, given.seeds + 1), workloads)
    print(table([shown(each) for each in outcomes]))
    judged = verdicts(outcomes)
    result = {
        "benchmark": "balance_strategies",
        "seeds": given.seeds,
        "goal": GOAL,
        "verdicts": judged,
        "outcomes": [shown(each) for each in outcomes],
        "short": [shown(each) for each in compare([1], SHORT)],
    }
    if given.write:
        _write(outcomes, result)
    missed = [
        each["workload"]
        for each in judged
        if each["workload"] not in BEYOND_REACH
        and not (each["is_within_goal"] and each["has_no_more_moves"])
    ]
    result["processor_seconds"] = round(time.process_time() - began, 1)
    print(json.dumps(result))
    if missed and given.check:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
