"""What watchers received, compared with what was created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nextgen.harness.load.measure import quantile


@dataclass(frozen=True, slots=True)
class Delivered:
    """One create at its watcher; moments of the machine's monotonic clock."""

    sent_at: float
    acknowledged_at: float
    arrived_at: float

    @property
    def took_ms(self) -> float:
        return (self.arrived_at - self.sent_at) * 1_000


@dataclass(slots=True)
class Findings:
    """The events that watchers received."""

    delivered: list[Delivered] = field(default_factory=list)
    wrong: int = 0
    first_wrong: str = ""

    def note(self, what: str) -> None:
        self.wrong += 1
        self.first_wrong = self.first_wrong or what

    def from_send_ms(self, fraction: float) -> float:
        return quantile(sorted(one.took_ms for one in self.delivered), fraction)

    def from_acknowledgement_ms(self, fraction: float) -> float:
        behind = [(one.arrived_at - one.acknowledged_at) * 1_000 for one in self.delivered]
        return quantile(sorted(behind), fraction)


def compare(
    findings: Findings,
    seen: Mapping[int, Sequence[tuple[str, int, float]]],
    acknowledged: Mapping[str, Sequence[float]],
) -> None:
    """Check that each watcher received exactly the topics of its prefix, in order."""
    wanted: dict[int, set[str]] = {watcher: set() for watcher in seen}
    for name in acknowledged:
        wanted[watcher_of(name)].add(name)
    for watcher, events in seen.items():
        results = [name for name, _, _ in events]
        if len(results) != len(set(results)):
            findings.note(f"watcher {watcher} received a topic twice")
        if set(results) != wanted[watcher]:
            findings.note(
                f"watcher {watcher} received {len(results)} topics, {len(wanted[watcher])} are its"
            )
        positions = [position for _, position, _ in events]
        if any(later <= earlier for earlier, later in pairwise(positions)):
            findings.note(f"watcher {watcher} received topics out of order")
        for name, _, arrived_at in events:
            sent_at, acknowledged_at = acknowledged.get(name, (arrived_at, arrived_at))
            findings.delivered.append(Delivered(sent_at, acknowledged_at, arrived_at))


def watcher_of(name: str) -> int:
    """Return the watcher of a created topic."""
    return int(name.rsplit("-", 2)[1])
