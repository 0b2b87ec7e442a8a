"""The same blocks of creates at other systems: puts in etcd, REST creates at a stock broker."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.inventory import admin_rest
from benchmarks.support.block_generator import Generator, WrongAnswer, generator
from benchmarks.support.etcd_cluster import EtcdCluster
from benchmarks.support.operations.callers import MODULE
from benchmarks.support.operations.figures import Block, figures_of
from benchmarks.support.process_costs import Processes
from benchmarks.support.stock.standalone import NoPeer, StockBroker
from nextgen.runtime.lifecycle.exit_code import CheckFailed

STOCK_WARM_S = 30.0
"""For its compiler; ours needs none."""

NUMBERS = 10**7


async def etcd_puts(options: argparse.Namespace) -> dict[str, Any] | str:
    """Return what puts of one key cost in etcd, by number of callers, or why there is none."""
    if shutil.which("etcd") is None:
        return "no etcd: there is none in PATH"
    async with EtcdCluster() as cluster:
        leader = await cluster.leader()
        processes = Processes({f"etcd-{n}": one for n, one in enumerate(cluster.process_ids)})
        job = {"way": "etcd", "target": leader.endpoint, "callers": max(options.callers)}
        async with generator(MODULE, job) as started:
            found, count = await peer_blocks(started, processes, options)
        counted = await leader.count(b"persistent://")
        version = await leader.version()
        await leader.close()
    if counted != count:
        raise CheckFailed(f"etcd counts {counted} keys, {count} were acknowledged")
    return {"version": version, "put": found}


async def stock_creates(options: argparse.Namespace) -> dict[str, Any] | str:
    """Return what a stock broker's creates over REST cost, by number of callers, or why not."""
    if not options.stock:
        return "no peer: none was asked for with --stock"
    try:
        with tempfile.TemporaryDirectory(prefix="nextgen-peer-") as directory:
            async with (
                StockBroker(
                    Path(directory), version=options.stock, java=options.java, heap=options.heap
                ) as broker,
                admin_rest.generator(
                    "rest", broker.http, "public/default", max(options.callers)
                ) as started,
            ):
                warm_s = 5.0 if options.quick else STOCK_WARM_S
                await started.run("create", 0, NUMBERS, seconds=warm_s, callers=32)
                processes = Processes({"broker": broker.process_id})
                found, _ = await peer_blocks(started, processes, options, first=NUMBERS)
    except (NoPeer, WrongAnswer) as reason:
        return f"no peer: {reason}"
    return {"version": options.stock, "create": found}


async def peer_blocks(
    started: Generator, processes: Processes, options: argparse.Namespace, first: int = 0
) -> tuple[dict[str, Any], int]:
    """Return the figures of creates, by number of callers, and how many there were.

    What the peer uses when idle is not taken off.
    """
    found = {}
    for callers in options.callers:
        blocks = []
        for _ in range(options.rounds):
            before = processes.look()
            result = await started.run(
                "create", first, NUMBERS, callers=callers, seconds=options.seconds
            )
            after = processes.look()
            used = {name: after[name] - before[name] for name in before}
            result.pop("wrong")
            blocks.append(Block(operation="create", callers=callers, used=used, **result))
            first += blocks[-1].count
        found[str(callers)] = figures_of(blocks, {})
    return found, first
