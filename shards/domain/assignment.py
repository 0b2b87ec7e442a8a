"""The assignment of one unit (a topic, or one partition of it) to one broker session.

``epoch`` grows by 1 with each assignment of the unit and fences its earlier owners. It jumps where
the unit's ledger knows later epochs than the log, as after a backup was restored (ADR 0054), and
where the shard's last survivor was promoted (ADR 0049).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.placement import EPOCH_JUMP_MAX
from shards.domain.placement.choice import PlacementDecision

REASON_FIRST_LOOKUP = "first_lookup"
REASON_BROKER_LOST = "broker_lost"
REASON_BROKER_FULL = "broker_full"
REASON_MOVED = "moved"
REASON_DRAINED = "drained"
REASON_CAPACITY_LOWERED = "capacity_lowered"
REASON_REBALANCED = "rebalanced"
REASON_PINNED = "pinned"
REASON_EPOCH_USED = "epoch_used"
REASON_TOPIC_DELETED = "topic_deleted"
REASON_IDLE = "idle"
REASON_UNLOADED = "unloaded"
REASON_SEGMENT_REMOVED = "segment_removed"
REASON_RENAMED = "renamed"

ASKED_BY_LAYOUT = "layout_change"
ASKED_BY_REBALANCE = "rebalance"
ASKED_BY_BALANCE = "balance"

MOVE_REASONS = MappingProxyType(
    {
        "": REASON_MOVED,
        "operator": REASON_MOVED,
        "drain": REASON_DRAINED,
        "shrink": REASON_CAPACITY_LOWERED,
        ASKED_BY_REBALANCE: REASON_REBALANCED,
        ASKED_BY_BALANCE: REASON_REBALANCED,
        "pin": REASON_PINNED,
        ASKED_BY_LAYOUT: REASON_MOVED,
    }
)
"""The reason in a move's event, by the origin of the move (``asked_by``)."""


@dataclass(frozen=True, slots=True)
class AssignTopic:
    """Assign the unit to a live session, unless a live one has it.

    ``unit`` is a ``Unit.text``, ``name`` the canonical name, partition included.
    ``is_owner_live`` is whether the session that has the unit lives; it is ignored if the unit has
    no owner.
    """

    topic_id: str
    unit: str
    name: str
    broker_id: str
    session_id: str
    is_owner_live: bool
    is_owner_full: bool = False
    """The owner lives, but its broker's manager refused the unit for lack of room."""

    decision: PlacementDecision | None = None
    """Why this broker was chosen. Stored with the event, here and in ``MoveTopic``."""
    least_epoch: int = 1
    """The least epoch that may be assigned: see ``nextgen.kernel.events.generations``."""


@dataclass(frozen=True, slots=True)
class MoveTopic:
    """Assign the unit to another session although a live one has it.

    ``expected_epoch`` is the epoch of the assignment to end, 0 for the present one.
    """

    topic_id: str
    unit: str
    name: str
    broker_id: str
    session_id: str
    expected_epoch: int = 0
    reason: str = REASON_MOVED
    decision: PlacementDecision | None = None
    least_epoch: int = 1


@dataclass(frozen=True, slots=True)
class UnassignTopic:
    topic_id: str
    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class RaiseEpoch:
    """Assign the unit to its owner again, above an epoch that the unit's ledger knows.

    ``fenced_epoch`` is the epoch of the assignment whose owner found itself fenced, ``used_epoch``
    the highest epoch in which the ledger was ever claimed.
    """

    topic_id: str
    unit: str
    name: str
    fenced_epoch: int
    used_epoch: int
    least_epoch: int = 1


@dataclass(frozen=True, slots=True)
class TopicAssigned:
    topic_id: str
    unit: str
    name: str
    epoch: int
    broker_id: str
    session_id: str
    reason: str
    decision: PlacementDecision | None = None
    """None in a log from before decisions were stored, and where no candidates were compared."""
    used_epoch: int = 0
    """The epoch that the ledger had seen already, above which the epoch jumped; 0: no jump."""

    @property
    def key(self) -> str:
        return unit_key(self.topic_id, self.unit)


@dataclass(frozen=True, slots=True)
class TopicUnassigned:
    """``epoch`` is the one that ended."""

    topic_id: str
    unit: str
    name: str
    epoch: int
    reason: str

    @property
    def key(self) -> str:
        return unit_key(self.topic_id, self.unit)


AssignmentCommand = AssignTopic | MoveTopic | UnassignTopic | RaiseEpoch
AssignmentEvent = TopicAssigned | TopicUnassigned


@dataclass(frozen=True, slots=True)
class Assignment:
    """State of a unit that was ever assigned. ``broker_id`` is "" while it has no owner.

    It is kept for its epoch as long as the topic exists. A deleted topic's id is never reused.
    """

    topic_id: str
    unit: str
    name: str
    epoch: int
    broker_id: str
    session_id: str

    @property
    def key(self) -> str:
        return unit_key(self.topic_id, self.unit)

    @property
    def is_assigned(self) -> bool:
        return self.broker_id != ""

    @property
    def tenant(self) -> str:
        return tenant_of(self.name)


AssignmentState = Assignment | None
INITIAL: AssignmentState = None


def tenant_of(name: str) -> str:
    """Return the tenant in a canonical name, ``domain://tenant/namespace/...``."""
    return name.partition("://")[2].partition("/")[0]


def unit_key(topic_id: str, unit: str) -> str:
    """Return ``nextgen.kernel.routing.names.assignment_key`` of a unit given by its text."""
    return f"{topic_id}/{unit}"


def decide(
    assignment: AssignmentState, command: AssignmentCommand
) -> Accepted[AssignmentEvent] | Rejected:
    """Decide what ``command`` means for ``assignment``."""
    match command:
        case AssignTopic():
            return _decide_assign(assignment, command)
        case MoveTopic():
            return _decide_move(assignment, command)
        case UnassignTopic():
            return _decide_unassign(assignment, command)
        case RaiseEpoch():
            return _decide_raise(assignment, command)
        case _:
            assert_never(command)


def evolve(assignment: AssignmentState, event: AssignmentEvent) -> AssignmentState:
    """Return ``assignment`` as it is after ``event``."""
    match event:
        case TopicAssigned():
            return Assignment(
                event.topic_id,
                event.unit,
                event.name,
                event.epoch,
                event.broker_id,
                event.session_id,
            )
        case TopicUnassigned():
            assert assignment is not None, f"{event.key} unassigned, was never assigned"
            return replace(assignment, broker_id="", session_id="")
        case _:
            assert_never(event)


def _decide_assign(
    assignment: AssignmentState, command: AssignTopic
) -> Accepted[AssignmentEvent] | Rejected:
    reason = REASON_FIRST_LOOKUP
    if assignment is not None and assignment.is_assigned:
        if assignment.session_id == command.session_id:
            return Accepted(())
        if command.is_owner_live:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"{command.name} is assigned to broker {assignment.broker_id}, which lives",
            )
        reason = REASON_BROKER_FULL if command.is_owner_full else REASON_BROKER_LOST
    return Accepted((_assigned(assignment, command, reason),))


def _decide_move(
    assignment: AssignmentState, command: MoveTopic
) -> Accepted[AssignmentEvent] | Rejected:
    if assignment is None or not assignment.is_assigned:
        return Rejected(RejectionCode.NOT_FOUND, f"{command.name} is not assigned")
    if assignment.session_id == command.session_id:
        return Accepted(())
    if command.expected_epoch not in (0, assignment.epoch):
        return Rejected(
            RejectionCode.STALE_EPOCH,
            f"{command.name} is at epoch {assignment.epoch}, "
            f"command expected {command.expected_epoch}",
        )
    return Accepted((_assigned(assignment, command, command.reason),))


def _decide_unassign(
    assignment: AssignmentState, command: UnassignTopic
) -> Accepted[AssignmentEvent] | Rejected:
    if assignment is None or not assignment.is_assigned:
        return Accepted(())
    unassigned = TopicUnassigned(
        assignment.topic_id, assignment.unit, assignment.name, assignment.epoch, command.reason
    )
    return Accepted((unassigned,))


def _decide_raise(
    assignment: AssignmentState, command: RaiseEpoch
) -> Accepted[AssignmentEvent] | Rejected:
    if assignment is None or not assignment.is_assigned:
        return Accepted(())
    before, used = assignment.epoch, command.used_epoch
    if before != command.fenced_epoch or used < before:
        # It has another owner by now, or none.
        return Accepted(())
    if used - before > EPOCH_JUMP_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"the ledger of {command.name} was claimed in epoch {used}, the shard is at {before}: "
            f"more than {EPOCH_JUMP_MAX} in between are taken for damage",
        )
    raised = TopicAssigned(
        assignment.topic_id,
        assignment.unit,
        assignment.name,
        max(used + 1, command.least_epoch),
        assignment.broker_id,
        assignment.session_id,
        REASON_EPOCH_USED,
        used_epoch=used,
    )
    return Accepted((raised,))


def next_epoch(assignment: AssignmentState, least_epoch: int) -> int:
    """Return the epoch of the unit's next assignment."""
    return max(least_epoch, 1 if assignment is None else assignment.epoch + 1)


def _assigned(
    assignment: AssignmentState, command: AssignTopic | MoveTopic, reason: str
) -> TopicAssigned:
    return TopicAssigned(
        command.topic_id,
        command.unit,
        command.name,
        next_epoch(assignment, command.least_epoch),
        command.broker_id,
        command.session_id,
        reason,
        command.decision,
    )
