"""The results of checks: findings, and the verdict that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nextgen.kernel.limits.stream import HISTORY_FINDINGS_KEPT_MAX, HISTORY_NAMED_MAX


class FindingKind(StrEnum):
    """The kinds of broken promises; each is a column of the verdict."""

    LOST = "lost"
    PHANTOM = "phantom"
    VIOLATION = "violation"
    OWNER_OVERLAP = "owner_overlap"
    WATCH_ERROR = "watch_error"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. ``operations`` and ``events`` name its evidence, the most important first, at
    most ``HISTORY_NAMED_MAX`` of each."""

    kind: FindingKind
    check: str
    message: str
    key: str = ""
    shard: int = 0
    operations: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    at_ns: int | None = None
    """Time of the violation, if known: the place on a timeline."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long writes of one shard waited after a fault began.

    ``recovered_ms``: from its beginning to the first acknowledgement of a write that was requested
    after it; None if there was none before the run ended.
    """

    kind: str
    target: str
    shard: int
    began_ns: int
    recovered_ms: float | None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The longest time in which a shard acknowledged no write although one was pending."""

    shard: int
    began_ns: int
    ended_ns: int

    @property
    def duration_ms(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of all checks. The numbers are complete, ``findings`` is bounded."""

    operations: int
    acked: int
    """Acknowledged writes and acknowledged messages."""
    unknown: int
    reads: int
    events: int
    observations: int
    keys: int
    lost: int
    phantom: int
    violations: int
    owner_overlaps: int
    watch_errors: int
    undecided: int
    findings: tuple[Finding, ...]
    unavailable: tuple[Unavailable, ...]
    recoveries: tuple[Recovery, ...]
    faults: Mapping[str, int]

    @property
    def is_green(self) -> bool:
        """Whether there is no finding and no undecided check. The run decides whether there was
        enough load for that to be meaningful."""
        return not any(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Return the number of findings of each kind, by the kind's displayed name."""
        return {
            "lost": self.lost,
            "phantom": self.phantom,
            "violations": self.violations,
            "owner_overlaps": self.owner_overlaps,
            "watch_errors": self.watch_errors,
            "undecided": self.undecided,
        }

    @property
    def unavailable_ms_max(self) -> float:
        return max((each.duration_ms for each in self.unavailable), default=0.0)


class FindingList:
    """Counts findings by kind and keeps the first of each."""

    def __init__(self) -> None:
        self.counts: Counter[FindingKind] = Counter()
        self._kept: dict[FindingKind, list[Finding]] = {}

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.counts[finding.kind] += 1
            kept = self._kept.setdefault(finding.kind, [])
            if len(kept) < HISTORY_FINDINGS_KEPT_MAX:
                kept.append(finding)

    def kept(self) -> tuple[Finding, ...]:
        return tuple(finding for kind in FindingKind for finding in self._kept.get(kind, ()))


def named(names: Sequence[str]) -> tuple[str, ...]:
    """Return the first of ``names``, as many as a finding may name."""
    return tuple(names[:HISTORY_NAMED_MAX])
