"""The decider: how every aggregate in this project turns a command into events.

    decide(state, command) -> Accepted(events) | Rejected(code, message)
    evolve(state, event)   -> state

Both are pure: same arguments, same result, on every replica, for ever. They may not read a
clock, draw a random number, log, or await. Whatever they need from outside (the time, a
fresh id) arrives as a field of the command, stamped before ``decide`` is called.

``decide`` runs on the leader only. ``evolve`` runs on every replica, at every restart and in
every consumer that rebuilds state from the log, so it may never refuse an event: by then the
decision has already been made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Generic, TypeVar

S = TypeVar("S")
E = TypeVar("E")


class RejectionCode(StrEnum):
    """Why a command was refused. Stored by callers and shown to operators: never rename."""

    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PARENT_NOT_FOUND = "PARENT_NOT_FOUND"
    NOT_EMPTY = "NOT_EMPTY"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    INVALID_NAME = "INVALID_NAME"
    NOT_ALLOWED = "NOT_ALLOWED"
    PARTITIONED = "PARTITIONED"
    NO_CAPACITY = "NO_CAPACITY"
    NO_BROKER = "NO_BROKER"
    SESSION_EXPIRED = "SESSION_EXPIRED"
    STALE_EPOCH = "STALE_EPOCH"
    SHARE_EXCEEDED = "SHARE_EXCEEDED"
    IN_USE = "IN_USE"
    """The topic has producers, consumers or subscriptions, and its deletion was not forced."""
    JUST_DELETED = "JUST_DELETED"
    """The topic's deletion was forced a moment ago: it is not created on demand yet. Passes."""
    NOT_PARTITIONED = "NOT_PARTITIONED"
    """The topic has no partitions, so it gets no more."""
    SCALABLE = "SCALABLE"
    """The name is that of a scalable topic, in another domain. Clients watch its layout."""
    FEWER_PARTITIONS = "FEWER_PARTITIONS"
    """The topic has more partitions already: their number only grows."""
    PARTITIONS_DIFFER = "PARTITIONS_DIFFER"
    """A shadow has as many partitions as its source, and this one would not."""


@dataclass(frozen=True, slots=True)
class Accepted(Generic[E]):
    """The command is valid. No events means it had already been carried out."""

    events: tuple[E, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The command is refused. Nothing was written and nothing ever will be."""

    code: RejectionCode
    message: str


def fold(evolve: Callable[[S, E], S], state: S, events: Iterable[E]) -> S:
    """Apply ``events`` to ``state`` in order and return the resulting state."""
    return reduce(evolve, events, state)
