"""First outcomes of commands, so that a command that is sent again is not carried out again.

proposed ──▶ pending, in memory ──▶ recorded, in the view ──▶ forgotten (``OutcomeRetention``)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nextgen.replication.ports import Commit, ReplicatedLog
from shards.projections.outcomes import read_forgotten_position
from shards.projections.reading import RecordedOutcome, read_outcomes
from shards.projections.rows import Query
from shards.state.outcome_retention import OUTCOME_ORDERS_LEVEL, OutcomeRetention
from shards.state.shard_term import ShardTerm


@dataclass(frozen=True, slots=True)
class PendingOutcome:
    """The outcome of a command whose record is in flight, or not yet in the view."""

    outcome: bytes
    events: int
    commit: asyncio.Future[Commit]


class CommandOutcomes:
    """The outcomes that one shard's leader knows, for one term. ``monotonic`` is in seconds."""

    def __init__(
        self, term: ShardTerm, log: ReplicatedLog, query: Query, monotonic: Callable[[], float]
    ) -> None:
        self._term = term
        self._log = log
        self._query = query
        self._pending: dict[bytes, PendingOutcome] = {}
        self._read_ahead: dict[bytes, RecordedOutcome | None] = {}
        """The outcomes of the last ``read_ahead``, None of unknown commands."""
        self._retention = OutcomeRetention(monotonic, log.commit_position)

    def __len__(self) -> int:
        """Return how many outcomes are pending."""
        return len(self._pending)

    def pending(self, command_id: bytes) -> PendingOutcome | None:
        """Return the outcome of a command whose record the view may not have yet."""
        return self._pending.get(command_id)

    def read_ahead(self, command_ids: Sequence[bytes]) -> None:
        """Read the outcomes of commands that ``find`` will be called with one by one.

        Raises:
            NotLeader: The term is over.
        """
        self._term.check()
        unknown = [each for each in command_ids if each not in self._pending]
        self._read_ahead = {**dict.fromkeys(unknown), **read_outcomes(self._query, unknown)}

    def find(self, command_ids: Iterable[bytes]) -> dict[bytes, PendingOutcome | RecordedOutcome]:
        """Return the first outcomes of those ``command_ids`` that are known; at most one read.

        Raises:
            NotLeader: The term is over.
        """
        self._term.check()
        known: dict[bytes, PendingOutcome | RecordedOutcome] = {}
        unknown: list[bytes] = []
        for command_id in command_ids:
            pending = self._pending.get(command_id)
            if pending is not None:
                known[command_id] = pending
            elif command_id not in self._read_ahead:
                unknown.append(command_id)
            elif (recorded := self._read_ahead[command_id]) is not None:
                known[command_id] = recorded
        if unknown:
            known.update(read_outcomes(self._query, unknown))
        return known

    def forgotten_position(self) -> int:
        """Return up to which position outcomes may have been forgotten, 0 if none was.

        Raises:
            NotLeader: The term is over.
        """
        self._term.check()
        return read_forgotten_position(self._query, self._log.applied_point.position)

    # For the proposer -------------------------------------------------------------------------

    def kept_from(self, position: int) -> int:
        """Return the order to forget outcomes that the next record carries, 0 for none.

        ``position`` is the last that is known to be committed.
        """
        if self._log.event_level < OUTCOME_ORDERS_LEVEL:
            return 0
        return self._retention.order(position)

    def add(self, command_id: bytes, pending: PendingOutcome) -> None:
        """Keep the outcome of a command that was just proposed."""
        self._pending[command_id] = pending
        # Once the view has it, only the view says so.
        self._read_ahead.pop(command_id, None)

    def settle(self, command_id: bytes, commit: asyncio.Future[Commit]) -> None:
        """Forget a pending outcome: the view has applied the record of ``commit``."""
        pending = self._pending.get(command_id)
        # The same command may have been proposed again since: that record is still in flight.
        if pending is not None and pending.commit is commit:
            del self._pending[command_id]
