"""The summary of an export, and the report of a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FINDINGS_TOLD_MAX = 50
"""Sentences in one report; the counts beside them are complete."""


def bytes_per_event(size_bytes: int, events: int) -> float:
    """Return the mean size of an event, 0 if there is none."""
    return round(size_bytes / events, 2) if events else 0.0


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The events and files that one run added. ``positions``: last exported ones by shard."""

    url: str
    events: int
    files: int
    bytes: int
    seconds: float
    positions: Mapping[int, int]
    untyped_events: int
    """Events, or parts of them, that this release has no columns for: kept as bytes."""

    def as_json(self) -> dict[str, Any]:
        """Return the summary as a JSON object, with rates."""
        return asdict(self) | {
            "positions": {str(shard): last for shard, last in sorted(self.positions.items())},
            "shards": len(self.positions),
            "bytes_per_event": bytes_per_event(self.bytes, self.events),
            "events_per_second": round(self.events / self.seconds, 1) if self.seconds else 0.0,
        }


@dataclass(slots=True)
class CheckReport:
    """The result of a check. ``ok``: nothing contradicts the manifest or the log."""

    url: str
    shards: int = 0
    events: int = 0
    files: int = 0
    bytes: int = 0
    gaps: int = 0
    duplicates: int = 0
    differences: int = 0
    """Events that differ from the log, at least one for each file that differs."""
    accepted_gaps: int = 0
    unfinished_files: int = 0
    """Drafts and files that the manifest does not name yet: a run is active, or was killed."""
    untyped_events: int = 0
    compared_events: int = 0
    not_retained_events: int = 0
    """Exported events that the log no longer has, so that they are not compared."""
    compared_with_log: bool = False
    digests: dict[int, str] = field(default_factory=dict)
    """By shard, the digest of all its exported events in order."""
    problems: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.problems == 0

    def find(self, sentence: str) -> None:
        """Note a contradiction."""
        self.problems += 1
        self.note(sentence)

    def note(self, sentence: str) -> None:
        """Add a remark that is not a contradiction."""
        if len(self.findings) < FINDINGS_TOLD_MAX:
            self.findings.append(sentence)

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return (
            {"ok": self.ok}
            | asdict(self)
            | {
                "digests": {str(shard): digest for shard, digest in sorted(self.digests.items())},
                "bytes_per_event": bytes_per_event(self.bytes, self.events),
            }
        )
