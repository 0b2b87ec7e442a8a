"""Checks that a unit has one owner at a time, by brokers' reports of when they acknowledged.

    epoch 3 at a   |---------|
    epoch 4 at b                |------|        good
    epoch 5 at a             |----|             an overlap: two owners at a time

An epoch owns a unit once its broker may acknowledge, and the epochs before it acknowledge nothing
from then on. So of two epochs of one unit the lower one's interval ends before the higher one's
begins. ``tolerance_ns`` is the largest difference of the machines' clocks, 0 on one machine. A
broker that acknowledges under an epoch must also have that assignment in the log.

Pure; events and intervals may come in any order, and repeatedly.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.kernel.limits.placement import AUDIT_EPOCHS_PER_UNIT_MAX

AUDIT_UNITS_MAX = 1_000_000
"""Units that an auditor follows: one gigabyte. Beyond it the units without a report for longest are
dropped."""

CHECK = "acknowledgement intervals"

UnitKey = tuple[str, str]
"""Topic id and unit."""


@dataclass(frozen=True, slots=True)
class AcknowledgedInterval:
    """The first and the last time at which a broker acknowledged under an epoch."""

    broker_id: str
    topic: str
    topic_id: str
    unit: str
    epoch: int
    first_ns: int
    last_ns: int
    """Unix time by the broker's clock."""
    acknowledged: int

    @property
    def key(self) -> UnitKey:
        return (self.topic_id, self.unit)

    @property
    def is_possible(self) -> bool:
        return 0 < self.first_ns <= self.last_ns and self.epoch > 0 and self.acknowledged > 0


@dataclass(frozen=True, slots=True)
class Grant:
    """An assignment in the log: a unit, its broker and its epoch."""

    topic_id: str
    unit: str
    epoch: int
    broker_id: str
    place: str
    """The place of its event in the log: ``shard:position``."""

    @property
    def key(self) -> UnitKey:
        return (self.topic_id, self.unit)


@dataclass(slots=True)
class _UnitRecord:
    """The latest epochs of one unit."""

    grants: dict[int, Grant] = field(default_factory=dict)
    intervals: dict[tuple[int, str], AcknowledgedInterval] = field(default_factory=dict)
    """Intervals by epoch and broker."""


class IntervalAudit:
    """Judges intervals against each other and against the log.

    Of each unit the latest ``AUDIT_EPOCHS_PER_UNIT_MAX`` epochs are remembered, and at most
    ``units_max`` units; beyond it the least recently reported ones are dropped.
    """

    def __init__(self, tolerance_ns: int = 0, units_max: int = AUDIT_UNITS_MAX) -> None:
        self._tolerance_ns = tolerance_ns
        self._units_max = units_max
        self._units: OrderedDict[UnitKey, _UnitRecord] = OrderedDict()
        self._reported: set[tuple[UnitKey, int, int, str]] = set()
        self._unknown: dict[tuple[UnitKey, int, str], tuple[int, AcknowledgedInterval]] = {}
        self.intervals = 0
        """Reports of intervals that were looked at."""
        self.grants = 0
        self.unjudged = 0
        """Epochs that are older than what is left of the log, or remembered of it."""
        self._has_forgotten = False
        """Whether a unit went to make room: what the log said of it is not known any more."""
        self.has_whole_log = True
        """Whether every shard's log was read from its first event on."""

    def __repr__(self) -> str:
        return f"<IntervalAudit units={len(self._units)} unknown={len(self._unknown)}>"

    @property
    def units(self) -> int:
        return len(self._units)

    @property
    def unknown(self) -> int:
        """Epochs that brokers reported and whose assignment was not read from the log yet."""
        return len(self._unknown)

    def granted(self, grant: Grant) -> list[Finding]:
        """Add an event of the log; return the findings that it causes."""
        self.grants += 1
        record = self._record(grant.key)
        before = record.grants.get(grant.epoch)
        record.grants[grant.epoch] = grant
        _forget_lowest(record.grants)
        findings = []
        if before is not None and before.broker_id != grant.broker_id:
            findings.append(_granted_twice(before, grant))
        for epoch, broker_id in tuple(record.intervals):
            if epoch == grant.epoch:
                self._unknown.pop((grant.key, epoch, broker_id), None)
                interval = record.intervals[epoch, broker_id]
                findings += self._check_owner(interval, grant)
        return findings

    def heard(self, interval: AcknowledgedInterval) -> list[Finding]:
        """Add a broker's report; return the findings that it causes, each once."""
        self.intervals += 1
        if not interval.is_possible:
            return self._once(interval, interval.epoch, _impossible(interval))
        record = self._record(interval.key)
        key = (interval.epoch, interval.broker_id)
        interval = _joined(record.intervals.get(key), interval)
        record.intervals[key] = interval
        _forget_lowest(record.intervals)
        findings = []
        for other in tuple(record.intervals.values()):
            if self._overlap(interval, other):
                findings += self._once(interval, other.epoch, _overlap_of(interval, other))
        grant = record.grants.get(interval.epoch)
        if grant is not None:
            findings += self._check_owner(interval, grant)
        else:
            unknown = (interval.key, *key)
            first_heard, _ = self._unknown.get(unknown, (self.intervals, interval))
            self._unknown[unknown] = (first_heard, interval)
        return findings

    def log_is_read(self, heard: int | None = None) -> list[Finding]:
        """Return the intervals of epochs that are not in the log.

        Call it once the logs were read up to a moment after all reports, or after the reports of
        ``intervals``.
        """
        findings = []
        for key, (first_heard, interval) in tuple(self._unknown.items()):
            if heard is not None and first_heard > heard:
                continue
            del self._unknown[key]
            record = self._units.get(interval.key)
            known = sorted(record.grants) if record is not None else []
            is_cut_off = (
                not self.has_whole_log
                or self._has_forgotten
                or len(known) >= AUDIT_EPOCHS_PER_UNIT_MAX
            )
            if is_cut_off and (not known or interval.epoch < known[0]):
                self.unjudged += 1
                continue
            findings += self._once(interval, 0, _not_granted(interval))
        return findings

    def _overlap(self, one: AcknowledgedInterval, other: AcknowledgedInterval) -> bool:
        if one.epoch == other.epoch:
            return one.broker_id != other.broker_id
        lower, higher = sorted((one, other), key=lambda each: each.epoch)
        return lower.last_ns > higher.first_ns + self._tolerance_ns

    def _check_owner(self, interval: AcknowledgedInterval, grant: Grant) -> list[Finding]:
        if interval.broker_id == grant.broker_id:
            return []
        return self._once(interval, 0, _anothers(interval, grant))

    def _once(
        self, interval: AcknowledgedInterval, other_epoch: int, finding: Finding
    ) -> list[Finding]:
        low, high = sorted((interval.epoch, other_epoch))
        # Both epochs of a pair find the overlap, again with each report: report it once.
        broker_id = interval.broker_id if low in (0, high) else ""
        pair = (interval.key, low, high, broker_id)
        if pair in self._reported:
            return []
        self._reported.add(pair)
        return [finding]

    def _record(self, key: UnitKey) -> _UnitRecord:
        record = self._units.get(key)
        if record is None:
            record = self._units[key] = _UnitRecord()
            if len(self._units) > self._units_max:
                self._units.popitem(last=False)
                self._has_forgotten = True
        self._units.move_to_end(key)
        return record


def _joined(
    before: AcknowledgedInterval | None, later: AcknowledgedInterval
) -> AcknowledgedInterval:
    """Merge two reports of one interval: a restarted broker reports only the part since its
    start."""
    if before is None:
        return later
    return AcknowledgedInterval(
        later.broker_id,
        later.topic,
        later.topic_id,
        later.unit,
        later.epoch,
        min(before.first_ns, later.first_ns),
        max(before.last_ns, later.last_ns),
        max(before.acknowledged, later.acknowledged),
    )


def _forget_lowest(known: dict[int, Grant] | dict[tuple[int, str], AcknowledgedInterval]) -> None:
    if len(known) > AUDIT_EPOCHS_PER_UNIT_MAX:
        del known[min(known)]  # type: ignore[arg-type]


def _shown(interval: AcknowledgedInterval) -> str:
    return f"broker {interval.broker_id} under epoch {interval.epoch}"


def _overlap_of(one: AcknowledgedInterval, other: AcknowledgedInterval) -> Finding:
    lower, higher = sorted((one, other), key=lambda each: (each.epoch, each.first_ns))
    if lower.epoch == higher.epoch:
        what = f"{_shown(lower)} and broker {higher.broker_id} under the same"
    else:
        by_ms = (lower.last_ns - higher.first_ns) / 1e6
        what = f"{_shown(lower)} until {by_ms:.3f} ms after {_shown(higher)} had begun"
    return _finding(f"{one.topic} was acknowledged by {what}", one, other)


def _not_granted(interval: AcknowledgedInterval) -> Finding:
    message = f"{interval.topic} was acknowledged by {_shown(interval)}, which is not in the log"
    return _finding(message, interval)


def _anothers(interval: AcknowledgedInterval, grant: Grant) -> Finding:
    message = (
        f"{interval.topic} was acknowledged by {_shown(interval)}, which the log gave to "
        f"{grant.broker_id} at {grant.place}"
    )
    return _finding(message, interval)


def _impossible(interval: AcknowledgedInterval) -> Finding:
    message = (
        f"{interval.topic}: {_shown(interval)} is an impossible interval: {interval.first_ns}"
        f" to {interval.last_ns}, {interval.acknowledged} entries"
    )
    return _finding(message, interval)


def _granted_twice(before: Grant, after: Grant) -> Finding:
    return Finding(
        FindingKind.OWNER_OVERLAP,
        CHECK,
        f"epoch {after.epoch} of unit {after.topic_id} {after.unit} was given to "
        f"{before.broker_id} at {before.place} and to {after.broker_id} at {after.place}",
        after.topic_id,
    )


def _finding(message: str, *intervals: AcknowledgedInterval) -> Finding:
    at_ns = max(interval.last_ns for interval in intervals)
    return Finding(FindingKind.OWNER_OVERLAP, CHECK, message, intervals[0].topic, at_ns=at_ns)
