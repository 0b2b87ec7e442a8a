"""What an export and a check of it tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FINDINGS_TOLD_MAX = 50
"""Sentences in one report; the counts beside them are complete."""


def bytes_per_event(size_bytes: int, events: int) -> float:
    """Return the share of one event, 0 of none."""
    return round(size_bytes / events, 2) if events else 0.0


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What one run added. ``positions`` are the last exported ones by shard."""

    url: str
    events: int
    files: int
    bytes: int
    seconds: float
    positions: Mapping[int, int]
    untyped_events: int
    """Events, or parts of them, that this release has no columns for: kept as bytes."""

    def as_json(self) -> dict[str, Any]:
        """Return it with text keys, rates included."""
        return asdict(self) | {
            "positions": {str(shard): last for shard, last in sorted(self.positions.items())},
            "shards": len(self.positions),
            "bytes_per_event": bytes_per_event(self.bytes, self.events),
            "events_per_second": round(self.events / self.seconds, 1) if self.seconds else 0.0,
        }


@dataclass(slots=True)
class CheckReport:
    """What a check found. ``ok``: nothing that contradicts the manifest, or the log."""

    url: str
    shards: int = 0
    events: int = 0
    files: int = 0
    bytes: int = 0
    gaps: int = 0
    duplicates: int = 0
    differences: int = 0
    """Events that are not those of the log, at least one for each file that differs."""
    accepted_gaps: int = 0
    unfinished_files: int = 0
    """Drafts and files that no manifest names yet: a run is under way, or was killed."""
    untyped_events: int = 0
    compared_events: int = 0
    not_retained_events: int = 0
    """Exported events that the log does not have any more, so that nothing compares them."""
    compared_with_log: bool = False
    digests: dict[int, str] = field(default_factory=dict)
    """By shard: of all exported events in order."""
    problems: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.problems == 0

    def find(self, sentence: str) -> None:
        """Note a contradiction."""
        self.problems += 1
        self.tell(sentence)

    def tell(self, sentence: str) -> None:
        """Note something that is no contradiction."""
        if len(self.findings) < FINDINGS_TOLD_MAX:
            self.findings.append(sentence)

    def as_json(self) -> dict[str, Any]:
        """Return it with text keys."""
        return (
            {"ok": self.ok}
            | asdict(self)
            | {
                "digests": {str(shard): digest for shard, digest in sorted(self.digests.items())},
                "bytes_per_event": bytes_per_event(self.bytes, self.events),
            }
        )
