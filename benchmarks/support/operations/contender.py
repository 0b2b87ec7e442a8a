"""A cluster that takes its turn with others: it serves blocks, and each is charged and checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.support.block_generator import Generator, WrongAnswer, generator
from benchmarks.support.node_metrics import metrics_of
from benchmarks.support.operations.callers import MODULE, topic_name
from benchmarks.support.operations.figures import Block, total
from benchmarks.support.process_costs import Processes, SystemCalls, Usage, system_calls
from benchmarks.support.shard_nodes import ShardNodes
from benchmarks.support.tree_cluster import tree_bench
from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client
from nextgen.harness.perf.bench import COUNTER_TOLERANCE, Bench
from nextgen.runtime.lifecycle.exit_code import CheckFailed

PREPARED_PER_S = 2_000
"""Names for a block of first lookups: more than are looked up."""

SETTLE_S = 0.3
"""Behind a block, charged to it: views are applied, acknowledgements follow."""

OTHER_EVENTS_MAX = 20
"""Events that a block's shards may commit beside those of its operations, such as a broker's."""

NUMBERS = 10**7

NOT_OF_OPERATIONS = ("event_loop_lag_seconds_count",)
"""Counters that grow with time alone."""

IDLE_CALLS_S = 4.0


@dataclass
class Contender:
    """One of the clusters that take turns."""

    name: str
    bench: Bench
    processes: Processes
    kinds: Mapping[str, str]
    """The kind of each process."""

    generator: Generator | None = None
    idle: dict[str, Usage] = field(default_factory=dict)
    """Of each process, for a second."""

    blocks: list[Block] = field(default_factory=list)
    names: int = 0
    """Acknowledged creates minus acknowledged deletes: so many topics a listing must have."""

    plain: range = range(0)
    """Numbers of the last block of creates."""

    served: range = range(0)
    """Numbers for lookups, or those of the last block of them."""

    prepared: int = 0
    """First number that no name was prepared with."""

    def idle_of(self, kind: str) -> Usage:
        return total(used for name, used in self.idle.items() if self.kinds[name] == kind)

    async def counters(self) -> dict[str, float]:
        """Return the counters on all pages of metrics, added up by kind of process and name."""
        assert self.bench.cluster is not None
        found: dict[str, float] = {}
        for node in self.bench.cluster.plan.nodes:
            for name, value in (await metrics_of(node.http, "nextgen_", timeout_s=10)).items():
                if name.endswith(("_total", "_count")) and name not in NOT_OF_OPERATIONS:
                    key = f"{node.kind}: {name}"
                    found[key] = found.get(key, 0.0) + value
        return found

    async def committed_events(self) -> int:
        """Return how many events the shards' logs hold, by every replica's own status."""
        assert self.bench.cluster is not None
        plan = self.bench.cluster.plan
        async with ShardNodes([node.grpc for node in plan.of_kind("shard-node")]) as nodes:
            return await nodes.committed_events()

    async def prepare_lookups(self, count: int) -> None:
        """Create names that nobody has looked up, many in a request."""
        self.served = range(self.prepared, self.prepared + count)
        self.prepared += count
        namespace = self.bench.namespace
        await self.bench.create([topic_name(namespace, "served", n) for n in self.served])
        self.names += count

    def numbers(self, operation: str) -> range:
        """Return the numbers that a block may take; it begins with the first."""
        match operation:
            case "create" | "apart":
                return range(self.plain.stop, self.plain.stop + NUMBERS)
            case "change" | "delete":
                return self.plain
            case _:
                return self.served

    def note_done(self, operation: str, done: range) -> None:
        match operation:
            case "create" | "apart":
                self.plain = done
                self.names += len(done)
            case "delete":
                self.names -= len(done)
            case "lookup":
                self.served = done


def grown(before: dict[str, float], after: dict[str, float], units: float) -> dict[str, float]:
    """Return by how much counters grew for each of ``units``, without those that hardly did."""
    growth = {name: (value - before.get(name, 0.0)) / units for name, value in after.items()}
    return {name: round(value, 3) for name, value in growth.items() if value >= 0.01}


async def one_block(
    contender: Contender,
    operation: str,
    callers: int,
    seconds: float,
    *,
    counted_calls: Callable[[Awaitable[None]], Awaitable[None]] | None = None,
) -> Block:
    """Carry out a block, note what it used, and check what the shards say of it.

    ``counted_calls`` awaits the block and counts calls to the system meanwhile.

    Raises:
        CheckFailed: The logs grew by something else.
        WrongAnswer: An answer was wrong, or none came.
    """
    if operation == "lookup":
        await contender.prepare_lookups(int(PREPARED_PER_S * seconds))
    assert contender.generator is not None
    started = contender.generator
    numbers = contender.numbers(operation)
    events = await contender.committed_events()
    counted = await contender.counters()
    result: dict[str, Any] = {}

    async def carry_out() -> None:
        result.update(
            await started.run(
                operation, numbers.start, len(numbers), callers=callers, seconds=seconds
            )
        )
        await asyncio.sleep(SETTLE_S)

    before, began = contender.processes.look(), time.monotonic()
    await (counted_calls(carry_out()) if counted_calls else carry_out())
    after, elapsed = contender.processes.look(), time.monotonic() - began
    done = len(result["latencies_ms"])
    if not done:
        raise WrongAnswer(f"no {operation} was done in {seconds} s")
    contender.note_done(operation, numbers[:done])
    counters = grown(counted, await contender.counters(), done)
    events = await contender.committed_events() - events
    if not done <= events <= done * (1 + COUNTER_TOLERANCE) + OTHER_EVENTS_MAX:
        raise CheckFailed(f"{done} times {operation}, and the shards committed {events} events")
    return Block(
        operation=operation,
        callers=callers,
        seconds=result["seconds"],
        latencies_ms=result["latencies_ms"],
        generator_cpu_s=result["generator_cpu_s"],
        used={
            name: after[name] - before[name] - contender.idle.get(name, Usage()) * elapsed
            for name in before
        },
        counters=counters,
    )


async def warm(contender: Contender) -> None:
    """Open every connection, and the namespace in every shard and at every broker."""
    await contender.bench.create(
        [topic_name(contender.bench.namespace, "first", number) for number in range(100)]
    )
    contender.names += 100
    for operation, callers in (("lookup", 256), ("move", 16), ("apart", 256), ("create", 256)):
        await one_block(contender, operation, callers, 0.5)


async def measure_idle(contender: Contender, seconds: float) -> dict[str, Any]:
    """Measure the cluster without requests, and return what a second of its parts costs."""
    counted = await contender.counters()
    await asyncio.sleep(SETTLE_S)
    before, began = contender.processes.look(), time.monotonic()
    await asyncio.sleep(seconds)
    after, elapsed = contender.processes.look(), time.monotonic() - began
    contender.idle = {name: (after[name] - before[name]) * (1 / elapsed) for name in before}
    assert contender.bench.cluster is not None
    size = contender.bench.cluster.plan.size
    cpu_ms = {
        kind: round(1_000 * contender.idle_of(kind).cpu_s, 2)
        for kind in dict.fromkeys(contender.kinds.values())
    }
    echoed = grown(counted, await contender.counters(), elapsed)
    return {
        "shards": size.shards,
        "cpu_ms_per_second": {"all": round(sum(cpu_ms.values()), 2), **cpu_ms},
        "waits_per_second": round(total(contender.idle.values()).waits),
        "session_second_cpu_ms": round(cpu_ms["broker"] / size.brokers, 3),
        "heartbeats_per_session_second": round(
            echoed.get("broker: broker_heartbeats_echoed_total", 0.0) / size.brokers, 2
        ),
        "shard_second_cpu_ms": round(cpu_ms["shard-node"] / size.shards, 3),
        "counters_per_second": echoed,
    }


async def count_calls(
    contender: Contender, operations: Sequence[str], callers: Sequence[int], seconds: float
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Return the calls to the system of one operation, from blocks apart: by operation, callers
    and kind of process.

    Raises:
        NoCounts: They cannot be counted here.
    """
    groups: dict[str, list[int]] = {}
    for name, kind in contender.kinds.items():
        groups.setdefault(kind, []).extend(contender.processes.trees[name])
    await asyncio.sleep(IDLE_CALLS_S)
    idle = await system_calls(groups, asyncio.sleep(IDLE_CALLS_S))
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for number in callers:
        for operation in operations:
            counted: list[SystemCalls] = []

            async def count(work: Awaitable[None], into: list[SystemCalls] = counted) -> None:
                into.append(await system_calls(groups, work))

            block = await one_block(contender, operation, number, seconds, counted_calls=count)
            calls = counted[0].of_one(block.count, idle)
            found.setdefault(operation, {})[str(number)] = calls
    return found


async def check_names(contender: Contender) -> None:
    """Check that as many names are there as were acknowledged.

    Raises:
        CheckFailed: More or fewer are.
    """
    async with Client(contender.bench.targets, timeout_ms=60_000) as client:
        counted = (await client.count_topics(contender.bench.namespace)).topics
    if counted != contender.names:
        raise CheckFailed(f"{counted} names are counted, {contender.names} were acknowledged")


@asynccontextmanager
async def contending(
    name: str, tree: Path, python: str, secret: Path, callers: int
) -> AsyncIterator[Contender]:
    async with tree_bench(tree, python, ClusterSize(), secret) as bench:
        job = {
            "way": name,
            "target": bench.targets[0],
            "pulsar": bench.pulsar,
            "namespace": bench.namespace,
            "callers": callers,
        }
        async with generator(MODULE, job) as started:
            yield replace(of_bench(name, bench), generator=started)


def of_bench(name: str, bench: Bench) -> Contender:
    """Return a contender that can only be measured idle."""
    assert bench.cluster is not None, "the cluster is our own"
    found = {node: bench.cluster.process_id(node) for node in bench.cluster.running}
    processes = Processes({node: one for node, one in found.items() if one is not None})
    kinds = {node.node_id: node.kind for node in bench.cluster.plan.nodes}
    return Contender(name, bench, processes, kinds)
