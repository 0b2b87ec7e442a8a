"""The summary of a run: one JSON line, and a table. Pure except for printing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nextgen.audit.verdict import Verdict
from nextgen.cli.console.output import print_line, print_table
from nextgen.harness.chaos.load import LoadResult
from nextgen.harness.chaos.schedule import FaultKind
from nextgen.harness.history.model import Fault


@dataclass(slots=True)
class RunReport:
    """The data of the summary."""

    seed: int
    minutes: float
    target: str = ""
    unavailable: dict[FaultKind, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    of_brokers: Counter[FaultKind] = field(default_factory=Counter)
    """The faults of brokers."""
    not_held: int = 0
    left_out: int = 0
    load: LoadResult = field(default_factory=LoadResult)
    verdict: Verdict | None = None
    events: int = 0
    verify_differences: int = 0
    export_equals_log: bool | None = None
    """None: not checked, because the run did not start the cluster."""
    exported_events: int = 0
    invalid: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def layout_changes(self) -> int | None:
        """The number of acknowledged changes of layouts, None without scalable topics."""
        changes = self.load.scalable.get("changes")
        return None if changes is None else sum(changes.values())

    @property
    def is_valid(self) -> bool:
        return not self.invalid

    @property
    def is_ok(self) -> bool:
        """Whether the cluster kept all checked promises."""
        verdict = self.verdict
        is_green = verdict is not None and verdict.is_green
        return (
            is_green
            and self.export_equals_log is not False
            and not (self.verify_differences or self.complaints)
        )


def as_json(report: RunReport) -> dict[str, Any]:
    """Return the JSON line of a run. Milliseconds are null where nothing was measured."""
    kinds = Counter(fault.kind for fault in report.faults)
    verdict = report.verdict
    document: dict[str, Any] = {
        "seed": report.seed,
        "minutes": report.minutes,
        "target": report.target,
        "kills": kinds[FaultKind.KILL],
        "pauses": kinds[FaultKind.PAUSE],
        "partitions": kinds[FaultKind.PARTITION],
        "disk_faults": kinds[FaultKind.DISK_FULL] + kinds[FaultKind.DISK_SLOW],
        "disk_full": kinds[FaultKind.DISK_FULL],
        "disk_slow": kinds[FaultKind.DISK_SLOW],
        "clock_faults": kinds[FaultKind.CLOCK],
        "restarts": kinds[FaultKind.RESTART_ALL],
        "transfers": kinds[FaultKind.TRANSFER],
        "moves": kinds[FaultKind.MOVE],
        "unloads": kinds[FaultKind.UNLOAD],
        "drains": kinds[FaultKind.DRAIN],
        "broker_kills": report.of_brokers[FaultKind.KILL],
        "broker_pauses": report.of_brokers[FaultKind.PAUSE],
        "faults_not_held": report.not_held,
        "faults_left_out": report.left_out,
        "faults_unavailable": {str(kind): why for kind, why in sorted(report.unavailable.items())},
        "events": report.events,
        "renames": report.load.renames,
        "messages": report.load.published,
        **scalable_counts(report),
        "verify_differences": report.verify_differences,
        "export_equals_log": report.export_equals_log,
        "exported_events": report.exported_events,
    }
    if verdict is not None:
        document |= {
            "ops": verdict.operations,
            "acked": verdict.acked,
            "unknown": verdict.unknown,
            "observations": verdict.observations,
            **verdict.counts(),
            "max_unavailable_ms": round(verdict.unavailable_ms_max, 1),
            "failover_kill_p50_ms": failover_ms(verdict, report.faults, FaultKind.KILL, 0.50),
            "failover_kill_p99_ms": failover_ms(verdict, report.faults, FaultKind.KILL, 0.99),
            "failover_hang_p99_ms": failover_ms(verdict, report.faults, FaultKind.PAUSE, 0.99),
            "restart_all_p99_ms": failover_ms(
                verdict, report.faults, FaultKind.RESTART_ALL, 0.99, only_leaders=False
            ),
        }
    return document | {
        "invalid_because": report.invalid,
        "complaints": report.complaints,
        "valid": report.is_valid,
        "ok": report.is_ok,
    }


def scalable_counts(report: RunReport) -> dict[str, Any]:
    """Return what happened on scalable topics, for the JSON line."""
    told = report.load.scalable
    changes: dict[str, int] = told.get("changes", {})
    visits: dict[str, int] = told.get("visits", {})
    return {
        "scalable_messages": told.get("published", 0),
        "scalable_received": told.get("received", 0),
        "splits": changes.get("split", 0),
        "merges": changes.get("merge", 0),
        "rebuckets": changes.get("rebucket", 0),
        "scalable_members": sum(visits.values()),
        "scalable_errors": dict(sorted(told.get("errors", {}).items())),
    }


def failover_ms(
    verdict: Verdict,
    faults: Sequence[Fault],
    kind: FaultKind,
    share: float,
    *,
    only_leaders: bool = True,
) -> float | None:
    """Return a percentile (nearest rank) of the recovery times of shards that lost their leader.

    None if there were none, or if the percentile is of a shard that did not recover in the run.
    """
    began = {
        fault.began_ns
        for fault in faults
        if fault.kind == kind and (fault.shards or not only_leaders)
    }
    taken = sorted(
        math.inf if one.recovered_ms is None else one.recovered_ms
        for one in verdict.recoveries
        if one.kind == kind and one.began_ns in began
    )
    if not taken:
        return None
    found = taken[max(1, math.ceil(share * len(taken))) - 1]
    return None if math.isinf(found) else round(found, 1)


def print_summary(report: RunReport) -> None:
    """Print the table of a run."""
    document = as_json(report)
    rows = [
        (name, _cell(value))
        for name, value in document.items()
        if name not in ("invalid_because", "complaints", "faults_unavailable", "target")
    ]
    where = f" on {report.target}, which is not ours" if report.target else ""
    print_table(f"{report.minutes:g} minutes of chaos{where}, seed {report.seed}", ("", ""), rows)
    for kind, why in report.unavailable.items():
        print_line(f"NO {kind} FAULTS: {why}", style="bold red")
    for sentence in (*report.invalid, *report.complaints):
        print_line(sentence)
    for finding in report.verdict.findings if report.verdict else ():
        print_line(f"{finding.kind}: {finding.message}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count:,}" for name, count in value.items()) or "-"
    return str(value)
