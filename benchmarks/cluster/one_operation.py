"""What does one operation cost: processor time, switches of threads, calls to the system?

A cluster (that of `nextgen up`: 4 shards of 3 replicas, fsync) serves blocks of single operations
of 1, 16, 64 and 256 callers in another process: creates, changes of properties, deletes, first
lookups over the Pulsar protocol, moves. A block is charged with what all servers use from its
beginning until a moment after its end, without what the idle cluster uses. The idle cluster is
measured by itself: a second of a broker's session, and of a shard.

``--beside TREE`` serves the same blocks in turns from another checkout of the sources: the speed of
a machine changes from minute to minute, so compare only what was measured in turns.
``--beside-python`` takes another interpreter for these servers. etcd and a stock broker, where they
can run, make keys and topics behind it. A fixed loop in Python is timed as well, to compare days.

Each block is checked: the shards' logs grow by what was acknowledged, and a count of all names ends
the run. Prints a table, then one JSON line; exits with 1 if something is wrong.

    python -m benchmarks.cluster.one_operation [--quick] [--beside TREE] [--stock 5.0.0-M1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import uvloop

from benchmarks.support.block_generator import WrongAnswer
from benchmarks.support.operations.contender import (
    Contender,
    check_names,
    contending,
    count_calls,
    measure_idle,
    of_bench,
    one_block,
    warm,
)
from benchmarks.support.operations.figures import Block, figures_of, ratios_of, table_of
from benchmarks.support.operations.peers import etcd_puts, stock_creates
from benchmarks.support.process_costs import NoCounts
from benchmarks.support.tree_cluster import OWN_TREE, tree_bench
from nextgen.cli.local.plan import ClusterSize
from nextgen.runtime.lifecycle.exit_code import CheckFailed

OPERATIONS = ("apart", "create", "change", "delete", "lookup", "move")
"""``apart`` is a create by callers with a client each, which share nothing. ``change`` and
``delete`` take the names of the last creates, ``move`` those of the last ``lookup``."""

CALLERS = (1, 16, 64, 256)
QUIET_S = 8.0
"""Before an idle cluster is measured: replicas elect, watches open, connections settle."""

CALIBRATION_ROUNDS = 1_000_000


async def turns(
    contenders: Sequence[Contender], options: argparse.Namespace, calibrations: list[float]
) -> None:
    """Carry out all blocks; note what the fixed loop took in each round, in milliseconds."""
    for number in range(options.rounds):
        calibrations.append(calibration_ms())
        for callers in options.callers:
            for operation in options.only:
                for contender in contenders[:: 1 if number % 2 else -1]:
                    block = await one_block(contender, operation, callers, options.seconds)
                    contender.blocks.append(block)
                    note(f"round {number}, {contender.name}: {operation} x {callers}")


def calibration_ms() -> float:
    """Return the processor time of a fixed loop: how fast this machine is at the moment."""
    began, added = time.process_time(), 0
    for number in range(CALIBRATION_ROUNDS):
        added += number % 7
    return round((time.process_time() - began) * 1_000, 1)


def report_of(contenders: Sequence[Contender], options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of each cluster, and ratios of the first to the second."""

    def chosen(contender: Contender, operation: str, callers: int) -> list[Block]:
        sought = (operation, callers)
        return [each for each in contender.blocks if (each.operation, each.callers) == sought]

    figures: dict[str, Any] = {contender.name: {} for contender in contenders}
    ratios: dict[str, Any] = {}
    for operation, callers in product(options.only, options.callers):
        blocks = [chosen(contender, operation, callers) for contender in contenders]
        for contender, mine in zip(contenders, blocks, strict=True):
            if mine:
                of_operation = figures[contender.name].setdefault(operation, {})
                of_operation[str(callers)] = figures_of(mine, contender.kinds)
        if len(contenders) > 1 and all(blocks):
            ratios.setdefault(operation, {})[str(callers)] = ratios_of(*blocks)
    return {"operations": figures, "ratios_to_beside": ratios}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    wanted = {"here": (OWN_TREE, options.python)}
    if options.beside or options.beside_python:
        wanted["beside"] = (
            (options.beside or OWN_TREE).resolve(),
            options.beside_python or sys.executable,
        )
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="nextgen-perf-"))
        secret = Path(directory) / "secret"
        contenders = [
            await stack.enter_async_context(
                contending(name, tree, python, secret, max(options.callers))
            )
            for name, (tree, python) in wanted.items()
        ]
        for contender in contenders:
            await warm(contender)
        await asyncio.sleep(QUIET_S)
        idle = {
            contender.name: await measure_idle(contender, options.idle_seconds)
            for contender in contenders
        }
        calibrations: list[float] = []
        wrong = ""
        calls: dict[str, Any] = {}
        try:
            await turns(contenders, options, calibrations)
            for contender in contenders:
                await check_names(contender)
                if not options.quick:
                    calls[contender.name] = await calls_of(contender, options)
        except (WrongAnswer, CheckFailed) as error:
            # What was measured before it is worth its minutes.
            wrong = str(error)
        report = report_of(contenders, options)
    for name, (tree, python) in wanted.items() if options.idle_shards else ():
        idle[name]["with_more_shards"] = await idle_with_shards(tree, python, options)
    return {
        "wrong": wrong,
        "calibration_ms": calibrations,
        "idle": idle,
        "system_calls": calls,
        **report,
    }


async def calls_of(contender: Contender, options: argparse.Namespace) -> dict[str, Any] | str:
    """Return the calls to the system by operation and callers, or why they are not counted."""
    try:
        return await count_calls(contender, options.only, options.callers, options.seconds)
    except NoCounts as reason:
        return f"not counted: {reason}"


async def idle_with_shards(tree: Path, python: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what an idle cluster costs that has more shards."""
    with tempfile.TemporaryDirectory(prefix="nextgen-perf-") as directory:
        size = ClusterSize(shards=options.idle_shards)
        async with tree_bench(tree, python, size, Path(directory) / "secret") as bench:
            await asyncio.sleep(2 * QUIET_S)
            return await measure_idle(of_bench("idle", bench), options.idle_seconds)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    load_before = os.getloadavg()[0]
    report = await measure(options)
    return {
        "benchmark": "one_operation",
        **report,
        "etcd": await etcd_puts(options),
        "stock_broker": await stock_creates(options),
        "run": {
            **{name: str(value) for name, value in vars(options).items()},
            "processors": psutil.cpu_count(),
            "load_average": [load_before, os.getloadavg()[0]],
        },
    }


def note(text: str) -> None:
    print(json.dumps({"done": text, "load": os.getloadavg()[0]}), file=sys.stderr, flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a block")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two short rounds without calls to the system: two minutes",
    )
    parser.add_argument("--callers", type=int, nargs="+", default=list(CALLERS))
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers")
    parser.add_argument("--beside", type=Path, help="another checkout, served in turns")
    parser.add_argument("--beside-python", default="", help="interpreter of its servers")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--idle-shards", type=int, default=64, help="0: no second idle cluster")
    parser.add_argument("--stock", default="", help="version of org.apache.pulsar:pulsar-broker")
    parser.add_argument("--java", default="java", help="to run it with")
    parser.add_argument("--heap", default="2g")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 1.0
        options.idle_seconds, options.idle_shards = 5.0, 0
    options.only = [operation for operation in OPERATIONS if operation in options.only]
    return options


def main() -> int:
    options = parsed()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            result = runner.run(run(options))
        except (WrongAnswer, CheckFailed) as wrong:
            print(json.dumps({"benchmark": "one_operation", "wrong": str(wrong)}))
            return 1
    print("\n".join(table_of(result["operations"], result["system_calls"])))
    for operation, by_callers in result["ratios_to_beside"].items():
        for callers, ratios in by_callers.items():
            print(f"{operation} x {callers}, here to beside: {json.dumps(ratios)}")
    print(json.dumps(result))
    return int(bool(result["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
