"""The rules by which a follower appends entries and keeps acknowledged ones (H1).

Entries are compared term by term. A tail is cut only from the first real conflict and never
at or below the commit index; an entry that is here already stays untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.mesh.frames import Message


class FollowerLog(Protocol):
    """The part of a journal that a follower needs."""

    @property
    def base_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def last_position(self) -> int: ...
    def term_of(self, index: int) -> int: ...
    def append_entry(self, entry: JournalEntry) -> None: ...
    def truncate_from(self, index: int) -> None: ...


class LogDiverged(AssertionError):
    """A leader's log contradicts an entry committed here. Never happens; stops the replica."""


@dataclass(frozen=True, slots=True)
class FollowOutcome:
    """``index`` is the last one that agrees with the leader, or else the next one wanted."""

    success: bool
    index: int
    truncated: int  # Entries that were cut off.


def follow_append(log: FollowerLog, commit_index: int, message: Message) -> FollowOutcome:
    """Bring ``log`` in line with an ``append`` of the present leader.

    Raises:
        LogDiverged: It contradicts a committed entry, or its positions are not dense.
    """
    previous_index = message["previous_index"]
    if previous_index > log.last_index:
        return FollowOutcome(success=False, index=log.last_index + 1, truncated=0)
    if not _agrees_at(log, previous_index, message["previous_term"]):
        if previous_index <= commit_index:
            raise LogDiverged(f"the leader's entry {previous_index} differs from a committed one")
        # Up to the commit index both logs are equal, whatever follows.
        return FollowOutcome(success=False, index=commit_index + 1, truncated=0)
    truncated = 0
    for index, term, first_position, events, payload in message["entries"]:
        if index <= log.base_index:
            continue
        if index <= log.last_index:
            if log.term_of(index) == term:
                continue
            truncated += _cut_conflict(log, index, commit_index)
        if first_position != log.last_position + 1:
            raise LogDiverged(
                f"entry {index} begins at position {first_position}, "
                f"the next one here is {log.last_position + 1}"
            )
        log.append_entry(JournalEntry(index, term, first_position, events, payload))
    agreed = max(previous_index + len(message["entries"]), log.base_index)
    return FollowOutcome(success=True, index=agreed, truncated=truncated)


def _agrees_at(log: FollowerLog, index: int, term: int) -> bool:
    # Entries before the base are committed, so every leader has the same ones.
    return index < log.base_index or log.term_of(index) == term


def _cut_conflict(log: FollowerLog, index: int, commit_index: int) -> int:
    if index <= commit_index:
        raise LogDiverged(
            f"the leader's entry {index} differs from a committed one (commit index {commit_index})"
        )
    truncated = log.last_index - index + 1
    log.truncate_from(index)
    return truncated
