"""The gate of one parent in one shard: may children of it be created here?

A parent (tenant, namespace, or the source of shadow topics) and its children live in different
shards. Each shard keeps a gate per parent. It is opened when a child is first created, by a leader
that has just read the parent, and closed by the parent's home shard before the parent is deleted.
Two numbers keep late messages out:

- ``version`` grows with each event of the gate. A leader that reads the parent to open the gate
  notes the version first: if the gate has changed since, the read may be out of date.
- ``attempt`` grows with each attempt to delete a parent of this name, its successors included. A
gate accepts only orders of the latest attempt that it knows, so a delayed order cannot undo a later
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode


class ParentKind(StrEnum):
    """The kind of a gate's parent. Stored: never changes."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class OpenParentGate:
    """The parent was read at its home shard, ACTIVE with this id, after the gate was seen at
    ``expected_version`` (0: never seen)."""

    kind: ParentKind
    name: str
    parent_id: str
    expected_version: int


@dataclass(frozen=True, slots=True)
class CloseParentGate:
    """``has_children`` is whether this shard has children of the parent at this moment."""

    kind: ParentKind
    name: str
    parent_id: str
    attempt: int
    has_children: bool


@dataclass(frozen=True, slots=True)
class ReopenParentGate:
    """The attempt was abandoned: gates that it closed open again, the others stay open."""

    kind: ParentKind
    name: str
    parent_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ParentGateOpened:
    kind: ParentKind
    name: str
    parent_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ParentGateClosed:
    kind: ParentKind
    name: str
    parent_id: str
    attempt: int


ParentGateCommand = OpenParentGate | CloseParentGate | ReopenParentGate
ParentGateEvent = ParentGateOpened | ParentGateClosed


@dataclass(frozen=True, slots=True)
class ParentGate:
    """State of a gate. ``attempt`` is the latest known one, 0 for none."""

    kind: ParentKind
    name: str
    parent_id: str
    is_open: bool
    attempt: int
    version: int

    @property
    def key(self) -> str:
        return gate_key(self.kind, self.name)


ParentGateState = ParentGate | None
INITIAL: ParentGateState = None


def gate_key(kind: ParentKind, name: str) -> str:
    """Return the key a gate is kept under."""
    return f"{kind.value}/{name}"


def decide(
    gate: ParentGateState, command: ParentGateCommand
) -> Accepted[ParentGateEvent] | Rejected:
    """Decide what ``command`` means for ``gate``."""
    match command:
        case OpenParentGate():
            return _decide_open(gate, command)
        case CloseParentGate():
            return _decide_close(gate, command)
        case ReopenParentGate():
            return _decide_reopen(gate, command)
        case _:
            assert_never(command)


def evolve(gate: ParentGateState, event: ParentGateEvent) -> ParentGateState:
    """Return ``gate`` as it is after ``event``."""
    version = 1 if gate is None else gate.version + 1
    is_open = isinstance(event, ParentGateOpened)
    return ParentGate(event.kind, event.name, event.parent_id, is_open, event.attempt, version)


def _decide_open(
    gate: ParentGateState, command: OpenParentGate
) -> Accepted[ParentGateEvent] | Rejected:
    if gate is not None and gate.parent_id == command.parent_id:
        if gate.is_open:
            return Accepted(())
        return Rejected(
            RejectionCode.PARENT_NOT_FOUND, f"{command.kind.value} {command.name} is deleted"
        )
    version = 0 if gate is None else gate.version
    if version != command.expected_version:
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"gate of {command.kind.value} {command.name} is at version {version}, "
            f"command expected {command.expected_version}",
        )
    attempt = 0 if gate is None else gate.attempt
    return Accepted((ParentGateOpened(command.kind, command.name, command.parent_id, attempt),))


def _decide_close(
    gate: ParentGateState, command: CloseParentGate
) -> Accepted[ParentGateEvent] | Rejected:
    if gate is not None and gate.attempt >= command.attempt:
        # An open gate that knows the attempt was reopened by it: the attempt was abandoned.
        if gate.attempt > command.attempt or gate.is_open:
            return _stale(gate, command.attempt)
        # Children may have come since, with slots of another shard.
        return _not_empty(command) if command.has_children else Accepted(())
    if command.has_children:
        return _not_empty(command)
    closed = ParentGateClosed(command.kind, command.name, command.parent_id, command.attempt)
    return Accepted((closed,))


def _decide_reopen(
    gate: ParentGateState, command: ReopenParentGate
) -> Accepted[ParentGateEvent] | Rejected:
    if gate is not None and gate.attempt >= command.attempt:
        if gate.attempt > command.attempt:
            return _stale(gate, command.attempt)
        if gate.is_open:
            return Accepted(())
    # Recorded even if the gate is open: a close of this attempt may still be on its way.
    opened = ParentGateOpened(command.kind, command.name, command.parent_id, command.attempt)
    return Accepted((opened,))


def _not_empty(command: CloseParentGate) -> Rejected:
    return Rejected(RejectionCode.NOT_EMPTY, f"{command.kind.value} {command.name} has children")


def _stale(gate: ParentGate, attempt: int) -> Rejected:
    return Rejected(
        RejectionCode.STALE_EPOCH,
        f"gate of {gate.kind.value} {gate.name} has seen deletion attempt {gate.attempt}, "
        f"command is of attempt {attempt}",
    )
