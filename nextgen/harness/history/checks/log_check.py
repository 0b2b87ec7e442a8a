"""Checks the log by itself: positions, terms, orders of events, epochs; and answers to writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.checks.effects import Effects
from nextgen.harness.history.log_fold import (
    ASSIGNED,
    POLICY_EVENTS,
    RENAMED,
    SESSION_ENDED,
    SESSION_ESTABLISHED,
    UNASSIGNED,
    LogIndex,
    is_inventory_event,
    is_of_slot,
    new_name_of,
    slot_of_event,
)
from nextgen.harness.history.model import LogEvent, Operation, OperationKind
from nextgen.kernel.events.generations import begins_generation

CHECK = "log"

FIRST_LOOKUP = "first_lookup"
BROKER_LOST = "broker_lost"
EPOCH_USED = "epoch_used"
TAKEN_OVER = frozenset(
    {
        BROKER_LOST,
        "broker_full",
        "moved",
        "drained",
        "capacity_lowered",
        "rebalanced",
        "pinned",
        EPOCH_USED,
    }
)
"""Reasons to move an owned unit to another owner."""

TOPIC_DELETED = "topic_deleted"
LEFT = frozenset({TOPIC_DELETED, "idle", "unloaded", "segment_removed", "renamed"})
"""Reasons to unassign a unit."""


def check_log(index: LogIndex, *, is_complete: bool) -> Iterator[Finding]:
    """Judge each shard's log. ``is_complete``: it is there from position 1 on."""
    shard_of_key: dict[str, LogEvent] = {}
    for events in index.by_shard.values():
        yield from _check_places(events, is_complete)
    yield from _check_moves(index)
    for events in index.folded():
        fold = _Fold(index, is_complete)
        for event in events:
            message = fold.take(event)
            if message:
                yield _finding(event, message)
            # A name that a renamed topic has, or had, may be in its shard and in its own.
            if is_inventory_event(event) and event.key not in index.names.first:
                first = shard_of_key.setdefault(event.key, event)
                if first.shard != event.shard and not index.has_moved(event.key):
                    yield _finding(event, f"{event.key} is in shard {first.shard} too", first)


def check_told(
    index: LogIndex, effects: Effects, operations: Iterable[Operation]
) -> Iterator[Finding]:
    """Check that the versions, ids and positions in answers to writes are those in the log."""
    for operation in operations:
        event = effects.events.get(operation.name)
        if event is None or not operation.is_ok:
            continue
        yield from _check_place_told(index, operation, event)
        life = index.life_of(operation.key)
        state = None if life is None else life.at(event.order, event.shard)
        told_id, told_version = operation.value.get("id"), operation.value.get("version")
        made = event.id if operation.kind is not OperationKind.SET_PROPERTIES else ""
        is_change = not made or event.type == RENAMED
        if state is not None and is_change:
            made = state.id
            if told_version and told_version != state.version:
                yield _told(operation, event, f"version {told_version}, it is {state.version}")
        if told_id and told_id != made:
            yield _told(operation, event, f"id {told_id}, it is {made}")


def _check_place_told(index: LogIndex, operation: Operation, event: LogEvent) -> Iterator[Finding]:
    if event.leg and operation.shard != event.shard:
        # It was repeated behind a move: the answer is the first one, or names the other shard.
        return
    if operation.position and operation.position < event.position:
        yield _told(operation, event, f"position {operation.position}, before its effect")
    if operation.shard and operation.shard != event.shard:
        yield _told(operation, event, f"shard {operation.shard}")


def _check_moves(index: LogIndex) -> Iterator[Finding]:
    """Check that a moved slot is decided about by one shard at a time, the one that has it."""
    for move in index.legs.broken:
        yield Finding(
            FindingKind.VIOLATION,
            CHECK,
            f"move {move.move_id} brought slots from shard {move.from_shard}, which had not "
            f"had them at position {move.from_position}",
            shard=move.to_shard,
            events=(f"{move.to_shard}:{move.to_position}",),
        )
    for events in index.by_shard.values() if index.moved else ():
        for event in events:
            if is_of_slot(event) and not event.leg and slot_of_event(event) in index.moved:
                yield _finding(event, f"{event.key} was decided about by a shard without its slot")


def _check_places(events: list[LogEvent], is_complete: bool) -> Iterator[Finding]:
    first = events[0]
    if is_complete and first.position != 1:
        yield _finding(first, f"the log begins at position {first.position}")
    for before, event in pairwise(events):
        if event.position != before.position + 1:
            yield _finding(event, f"position {event.position} follows {before.position}", before)
        if event.term < before.term:
            yield _finding(event, f"term {event.term} follows {before.term}", before)


@dataclass(slots=True)
class _Unit:
    epoch: int = 0
    is_assigned: bool = False
    owner: str = ""
    """Session of its last assignment."""


@dataclass(slots=True)
class _Fold:
    """The fold of a shard's log so far; ``take`` returns the contradiction of an event."""

    index: LogIndex
    is_complete: bool
    objects: dict[str, str] = field(default_factory=dict)
    """Key -> id of each existing object."""
    ids: set[str] = field(default_factory=set)
    """All ids that objects were ever created with."""
    units: dict[tuple[str, str], _Unit] = field(default_factory=dict)
    assigned: dict[str, set[str]] = field(default_factory=dict)
    """Topic id -> its units that have an owner."""
    sessions: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Broker -> epoch and id of its session, "" when that has ended."""
    policies_versions: dict[str, int] = field(default_factory=dict)
    """Key -> version of the policies of each existing object."""
    names: dict[str, str] = field(default_factory=dict)
    """Topic id -> its present name."""

    def take(self, event: LogEvent) -> str:
        """Return the error of ``event`` as a sentence, "" if it is valid."""
        if event.type == ASSIGNED:
            return self._assigned(event)
        if event.type == UNASSIGNED:
            return self._unassigned(event)
        if event.type == SESSION_ESTABLISHED:
            return self._session_established(event)
        if event.type == SESSION_ENDED:
            return self._session_ended(event)
        return self._inventory(event) if is_inventory_event(event) else ""

    def _inventory(self, event: LogEvent) -> str:
        present = self.objects.get(event.key, "")
        if event.type == RENAMED:
            return self._renamed(event, present)
        if event.type.endswith("_created"):
            self.objects[event.key] = event.id
            self.policies_versions[event.key] = 0
            self.names[event.id] = event.key
            if present:
                return f"{event.key} was created and was there already"
            if event.id in self.ids:
                return f"the id {event.id} was given twice"
            self.ids.add(event.id)
            return ""
        if event.type.endswith("_deleted"):
            self.objects.pop(event.key, None)
            left = self.assigned.pop(event.id, None)
            if self.is_complete and present != event.id:
                return f"{event.key} was deleted as {event.id}, it is {present or 'not there'}"
            return f"{event.key} was deleted and has owners: {sorted(left)[:3]}" if left else ""
        if self.is_complete and not present:
            return f"{event.key} has a {event.type} and is not there"
        return self._policies(event, present) if event.type in POLICY_EVENTS else ""

    def _renamed(self, event: LogEvent, present: str) -> str:
        new_name = new_name_of(event)
        other = self.objects.get(new_name, "")
        self.objects.pop(event.key, None)
        self.objects[new_name] = event.id
        self.names[event.id] = new_name
        version = self.policies_versions.pop(event.key, event.policies_version)
        self.policies_versions[new_name] = event.policies_version
        if self.is_complete and present != event.id:
            return f"{event.key} was renamed as {event.id}, it is {present or 'not there'}"
        if other:
            return f"{event.key} was renamed to {new_name}, which is {other}"
        if version != event.policies_version:
            return f"{event.key} had version {version} of policies when it was renamed, not " + (
                str(event.policies_version)
            )
        left = self.assigned.get(event.id)
        return f"{event.key} was renamed and has owners: {sorted(left)[:3]}" if left else ""

    def _policies(self, event: LogEvent, present: str) -> str:
        before = self.policies_versions.get(event.key)
        self.policies_versions[event.key] = event.policies_version
        if self.is_complete and event.id != present:
            return f"{event.key} has the policies of {event.id}, it is {present}"
        if before is None and not self.is_complete:
            return ""
        if event.policies_version != (before or 0) + 1:
            return f"{event.key} got version {event.policies_version} of policies after {before}"
        return ""

    def _assigned(self, event: LogEvent) -> str:
        key = (event.id, event.unit)
        unit = self.units.get(key)
        is_first = unit is None
        if unit is None:
            # The beginning of a log that was cut is not known: any epoch may be its first.
            unit = _Unit(0 if self.is_complete else event.epoch - 1)
            self.units[key] = unit
        before = unit.epoch
        had_owner, unit.is_assigned = unit.is_assigned, True
        owner, unit.owner = unit.owner, event.session_id
        unit.epoch = event.epoch
        self.assigned.setdefault(event.id, set()).add(event.unit)
        is_next = event.epoch == max(before, event.used_epoch) + 1
        if not is_next and not begins_generation(event.epoch, behind=before):
            return f"{event.key} got epoch {event.epoch} after {before}"
        if bool(event.used_epoch) != (event.reason == EPOCH_USED):
            return f"{event.key} was assigned as {event.reason} above epoch {event.used_epoch}"
        if not self.is_complete:
            return ""
        if event.reason == EPOCH_USED and owner != event.session_id:
            return f"the epoch of {event.key} was raised, and it was taken from {owner}"
        if event.reason not in (TAKEN_OVER if had_owner else (FIRST_LOOKUP,)):
            return f"{event.key} was assigned as {event.reason or 'nothing'}, " + (
                "it had an owner" if had_owner else f"it had none{' ever' * is_first}"
            )
        if event.reason == BROKER_LOST and owner not in self.index.ended_sessions:
            return f"{event.key} was taken from {owner} as lost, and that session never ended"
        if self.objects.get(self.names.get(event.id, "")) != event.id:
            return f"{event.key} was assigned as {event.id}, which is not there"
        if self.index.sessions.get(event.session_id) != event.broker_id:
            return f"{event.key} was assigned to {event.broker_id} in a session that it never had"
        return ""

    def _unassigned(self, event: LogEvent) -> str:
        unit = self.units.setdefault((event.id, event.unit), _Unit())
        had_owner, unit.is_assigned = unit.is_assigned, False
        self.assigned.get(event.id, set()).discard(event.unit)
        if self.is_complete and not (had_owner and unit.epoch == event.epoch):
            return f"{event.key} lost its owner of epoch {event.epoch}, it is at {unit.epoch}"
        if event.reason not in LEFT:
            return f"{event.key} lost its owner as {event.reason or 'nothing'}"
        return ""

    def _session_established(self, event: LogEvent) -> str:
        before = self.sessions.get(event.broker_id)
        self.sessions[event.broker_id] = (event.epoch, event.session_id)
        if before is None and not self.is_complete:
            return ""
        epoch = before[0] if before is not None else 0
        if event.epoch != epoch + 1 and not begins_generation(event.epoch, behind=epoch):
            return f"broker {event.broker_id} got session epoch {event.epoch} after {epoch}"
        return ""

    def _session_ended(self, event: LogEvent) -> str:
        before = self.sessions.get(event.broker_id, (event.epoch, ""))
        self.sessions[event.broker_id] = (before[0], "")
        if self.is_complete and before != (event.epoch, event.session_id):
            return f"session {event.session_id} of {event.broker_id} ended and was not the latest"
        return ""


def _told(operation: Operation, event: LogEvent, what: str) -> Finding:
    return Finding(
        FindingKind.VIOLATION,
        "answers",
        f"{operation.kind} of {operation.key} was answered with {what}",
        operation.key,
        event.shard,
        (operation.name,),
        (event.name,),
        operation.returned_ns,
    )


def _finding(event: LogEvent, message: str, *others: LogEvent) -> Finding:
    names = tuple(each.name for each in (event, *others))
    return Finding(FindingKind.VIOLATION, CHECK, message, event.key, event.shard, events=names)
