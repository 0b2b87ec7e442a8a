"""The result of an audit for people: counts, sentences, notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Row

from pipelines.audit.export_files import AuditInput
from pipelines.audit.finding import RULES
from pipelines.audit.transform import Clocks
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID
from pipelines.running.summary import Summary

FINDINGS_COLLECTED = 200
"""Findings that come to the driver; all of them are in the folder that the job writes."""

NOTES_MAX = 100
"""Notes in the summary."""


@dataclass(slots=True)
class AuditResult:
    """``shown`` has at most ``FINDINGS_COLLECTED`` findings, the certain ones first."""

    source: AuditInput
    clocks: Clocks = Clocks(0, 0)  # noqa: RUF009 - frozen.
    shards: list[Row] = field(default_factory=list)
    """One row per shard: rows, first and last time, by how much time goes back, and where."""
    by_rule: dict[str, int] = field(default_factory=dict)
    """Findings by rule, without the doubtful ones."""
    doubtful: dict[str, int] = field(default_factory=dict)
    """Findings by rule that missing or repeated events could explain."""
    shown: list[Row] = field(default_factory=list)
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    """Type and object of the events in ``shown``, by shard and position."""
    unknown_rows: int = 0
    troubles: dict[int, int] = field(default_factory=dict)
    """By shard the first missing position, or one near the first repeated position."""

    def add_trouble(self, shard_id: int, position: int) -> None:
        self.troubles[shard_id] = min(position, self.troubles.get(shard_id, position))

    def name_of(self, shard_id: int | None, position: int | None) -> str:
        """Return type and name of an event of ``shown``, "" for any other event."""
        if shard_id is None or position is None:
            return ""
        return self.names.get((shard_id, position), "")

    def notes(self) -> list[str]:
        """Return remarks that a reader needs and that are not findings."""
        notes = list(self.source.notes)
        if self.unknown_rows:
            notes.append(f"{self.unknown_rows} events are of types that this release does not know")
        notes += [
            f"shard {row.shard_id}: times go back by {row.time_back_ms} ms before "
            f"{row.shard_id}:{row.back_at}"
            for row in self.shards
            if row.time_back_ms
        ]
        notes += [
            f"{shard_id}:{first} to {shard_id}:{last} had been cut from the log before they were "
            "exported; an operator accepted the gap"
            for shard_id, first, last in self.source.gaps
        ]
        if CLUSTER_MANAGER_SHARD_ID not in self.source.positions:
            notes.append(
                f"shard {CLUSTER_MANAGER_SHARD_ID} is not in the export: slots were not compared "
                "with the shard map, and leases, windows and versions were not checked"
            )
        if self.doubtful:
            notes.append(
                f"{sum(self.doubtful.values())} findings are not counted: missing or repeated "
                "events could explain them"
            )
        return notes


def sentence_of(row: Row, name: str = "") -> str:
    """Return a finding as a sentence; events are named shard:position."""
    event = f"{row.shard_id}:{row.position}" + (f" ({name})" if name else "")
    sentence = f"{row.rule}: {event} {RULES[row.rule][1]}"
    if row.other_position is not None:
        sentence += f", see {row.other_shard_id}:{row.other_position}"
    if row.expected is not None:
        sentence += f", {row.found} instead of {row.expected}"
    elif row.found is not None:
        sentence += f", {row.found} in all"
    return sentence


def conclude(summary: Summary, result: AuditResult) -> None:
    """Add the findings to ``summary``: those of files first, then those of events."""
    for file_finding in result.source.findings:
        summary.find(str(file_finding))
    certain = [row for row in result.shown if not row.is_doubtful]
    for row in certain:
        summary.find(sentence_of(row, result.name_of(row.shard_id, row.position)))
    summary.findings_total = len(result.source.findings) + sum(result.by_rule.values())
    summary.numbers |= {
        "files": len(result.source.files),
        "shards": len(result.source.positions),
        "by_rule": dict(sorted(result.by_rule.items())),
        "doubtful": dict(sorted(result.doubtful.items())),
        "clock_back_ms": max((row.time_back_ms for row in result.shards), default=0),
        "judged_until_ms": result.clocks.settled_ms,
        "notes": result.notes()[:NOTES_MAX],
    }
