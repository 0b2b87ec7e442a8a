"""Judging a history: every check, one verdict."""

from __future__ import annotations

from collections import Counter

from nextgen.audit.verdict import FindingKind, FindingList, Verdict
from nextgen.harness.history.availability import recoveries, unavailable_intervals, writes_by_shard
from nextgen.harness.history.checks.effects import Effects, match_effects
from nextgen.harness.history.checks.group_check import check_groups
from nextgen.harness.history.checks.inventory_checks import (
    check_effects,
    check_final,
    check_parents,
    check_reads,
    check_view_hashes,
)
from nextgen.harness.history.checks.layout_check import check_layouts
from nextgen.harness.history.checks.linear_check import Budget, check_linearizability
from nextgen.harness.history.checks.log_check import check_log, check_told
from nextgen.harness.history.checks.message_check import check_messages
from nextgen.harness.history.checks.name_check import check_names
from nextgen.harness.history.checks.owner_check import (
    check_lookups,
    check_publish_epochs,
    check_publishes,
)
from nextgen.harness.history.checks.segment_check import check_segments
from nextgen.harness.history.checks.watch_check import check_watches
from nextgen.harness.history.log_fold import LogIndex, index_log
from nextgen.harness.history.model import READS, WRITES, History, Observation


def check(history: History, *, budget: Budget | None = None) -> Verdict:
    """Judge ``history`` by all of its records.

    Without a log, checks that need it are left out: acknowledged writes are then compared only with
    reads and listings. The verdict depends on the history alone.
    """
    findings = FindingList()
    index = index_log(history.log)
    effects: Effects | None = None
    if history.log:
        effects = match_effects(
            index,
            history.operations,
            history.run.scopes,
            is_log_complete=history.run.is_log_complete,
        )
        _check_against_log(findings, history, index, effects)
    findings.extend(check_parents(history.operations))
    findings.extend(check_reads(history))
    findings.extend(check_linearizability(history.operations, effects, budget))
    findings.extend(check_publishes(history.publishes))
    findings.extend(check_lookups(history.operations, index if history.log else None))
    findings.extend(check_names(history.operations))
    findings.extend(check_messages(history))
    findings.extend(check_groups(history))
    findings.extend(check_view_hashes(history))
    return _verdict(history, index, findings)


def _check_against_log(
    findings: FindingList, history: History, index: LogIndex, effects: Effects
) -> None:
    is_complete = history.run.is_log_complete
    findings.extend(check_log(index, is_complete=is_complete))
    findings.extend(check_effects(effects))
    findings.extend(check_told(index, effects, history.operations))
    findings.extend(check_final(history, index))
    findings.extend(check_watches(history.watch_records, index))
    findings.extend(check_segments(index))
    findings.extend(check_layouts(history, index))
    if is_complete:
        findings.extend(check_publish_epochs(history.publishes, index))


def _verdict(history: History, index: LogIndex, findings: FindingList) -> Verdict:
    operations = history.operations
    writes = writes_by_shard(operations, index)
    counts = findings.counts
    acked = sum(op.is_ok and op.kind in WRITES for op in operations)
    return Verdict(
        operations=len(operations) + len(history.publishes),
        acked=acked + sum(publish.acked_ns is not None for publish in history.publishes),
        unknown=sum(op.is_unknown for op in operations)
        + sum(publish.acked_ns is None for publish in history.publishes),
        reads=sum(op.is_ok and op.kind in READS for op in operations),
        events=len(history.log),
        observations=sum(isinstance(each, Observation) for each in history.watch_records),
        keys=len({op.key for op in operations}),
        lost=counts[FindingKind.LOST],
        phantom=counts[FindingKind.PHANTOM],
        violations=counts[FindingKind.VIOLATION],
        owner_overlaps=counts[FindingKind.OWNER_OVERLAP],
        watch_errors=counts[FindingKind.WATCH_ERROR],
        undecided=counts[FindingKind.UNDECIDED],
        findings=findings.kept(),
        unavailable=unavailable_intervals(writes, history.run.ended_ns),
        recoveries=recoveries(history.faults, writes),
        faults=Counter(fault.kind for fault in history.faults),
    )
