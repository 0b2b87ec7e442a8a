"""Blocks of single operations with what they used, and the figures made of them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.support.process_costs import Usage
from nextgen.harness.load.measure import quantile


@dataclass(frozen=True, slots=True)
class Block:
    """Operations of one kind, carried out by so many callers."""

    operation: str
    callers: int
    seconds: float
    latencies_ms: list[float]
    generator_cpu_s: float
    used: Mapping[str, Usage]
    """By process, without what it uses when idle."""

    counters: Mapping[str, float] = field(default_factory=dict)
    """Growth of the servers' own counters for each operation, by kind of process and name."""

    @property
    def count(self) -> int:
        return len(self.latencies_ms)

    @property
    def cpu_ms(self) -> float:
        """Processor time of all servers for one operation."""
        return 1_000 * total(self.used.values()).cpu_s / self.count


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, start=Usage())


def figures_of(blocks: Sequence[Block], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of blocks of one operation and one number of callers.

    ``kinds``: of each process.
    """
    count = sum(each.count for each in blocks)
    latencies = sorted(latency for each in blocks for latency in each.latencies_ms)
    by_process = {name: total(each.used[name] for each in blocks) for name in blocks[0].used}
    by_kind = {
        kind: total(used for name, used in by_process.items() if kinds.get(name, name) == kind)
        for kind in dict.fromkeys(kinds.get(name, name) for name in by_process)
    }
    counters: dict[str, float] = {}
    for each in blocks:
        for name, value in each.counters.items():
            counters[name] = counters.get(name, 0.0) + value * each.count / count
    return {
        "operations": count,
        "per_second": round(statistics.median(each.count / each.seconds for each in blocks)),
        "p50_ms": quantile(latencies, 0.5),
        "p99_ms": quantile(latencies, 0.99),
        **_of_one(total(by_process.values()), count),
        "cpu_ms_of_blocks": sorted(round(each.cpu_ms, 3) for each in blocks),
        "by_kind": {kind: _of_one(used, count) for kind, used in by_kind.items()},
        "by_process": {name: _of_one(used, count) for name, used in by_process.items()},
        "counters": {name: round(value, 2) for name, value in sorted(counters.items())},
        "generator_cpu_ms": round(1_000 * sum(b.generator_cpu_s for b in blocks) / count, 3),
    }


def _of_one(used: Usage, count: int) -> dict[str, float]:
    return {
        "cpu_ms": round(1_000 * used.cpu_s / count, 3),
        "user_ms": round(1_000 * used.user_s / count, 3),
        "system_ms": round(1_000 * used.system_s / count, 3),
        "waits": round(used.waits / count, 1),
        "preemptions": round(used.preemptions / count, 1),
    }


def ratios_of(ours: Sequence[Block], others: Sequence[Block]) -> dict[str, Any]:
    """Return our processor time, rate and latency beside others' of the same rounds.

    The ratio is the median of the rounds' own ratios: two blocks of a round follow each other, and
    meet the same load of the machine.
    """

    def ratio(of: Any) -> float:
        pairs = zip(ours, others, strict=True)
        return round(statistics.median(of(one) / of(other) for one, other in pairs), 3)

    return {
        "cpu": ratio(lambda block: block.cpu_ms),
        "cpu_of_rounds": [
            round(one.cpu_ms / other.cpu_ms, 3) for one, other in zip(ours, others, strict=True)
        ],
        "rate": ratio(lambda block: block.count / block.seconds),
        "p50": ratio(lambda block: quantile(block.latencies_ms, 0.5)),
    }


def table_of(
    named: Mapping[str, Mapping[str, Mapping[str, Any]]], calls: Mapping[str, Any]
) -> list[str]:
    """Return the lines of a table of ``figures_of``: by name of a cluster, operation and callers.

    ``calls``: to the system, likewise, or why there are none. Several clusters stand in one cell,
    in their order.
    """
    first = next(iter(named.values()))
    lines = [
        "| operation | callers | per second | p50 · p99, ms | processor time, ms: all (discovery, "
        "shard nodes, brokers) | switches: waits · preemptions | system calls: all, futex, "
        "fdatasync |",
        "|---|---|---|---|---|---|---|",
    ]
    for operation, by_callers in first.items():
        for callers in by_callers:
            found = [
                each[operation][callers]
                for each in named.values()
                if callers in each.get(operation, {})
            ]
            cells = (
                [f"{one['per_second']:,}" for one in found],
                [f"{one['p50_ms']:.1f} · {one['p99_ms']:.1f}" for one in found],
                [_cpu_cell(one) for one in found],
                [f"{one['waits']:.0f} · {one['preemptions']:.1f}" for one in found],
                [_calls_cell(calls.get(name), operation, callers) for name in named],
            )
            row = " | ".join("; ".join(cell) for cell in cells)
            lines.append(f"| {operation} | {callers} | {row} |")
    return lines


def _cpu_cell(found: Mapping[str, Any]) -> str:
    parts = [
        f"{found['by_kind'][kind]['cpu_ms']:.2f}"
        for kind in ("discovery", "shard-node", "broker")
        if kind in found["by_kind"]
    ]
    return f"{found['cpu_ms']:.2f} ({', '.join(parts)})"


def _calls_cell(calls: Any, operation: str, callers: str) -> str:
    if not isinstance(calls, Mapping):
        return "not counted"
    of_all = calls[operation][callers]["all processes"]
    return ", ".join(f"{of_all[name]:.1f}" for name in ("all", "futex", "fdatasync"))
