"""The only way into a shard's log: one proposal is one record of events.

    propose ──▶ pending on top of the view ──▶ committed ──▶ applied by the view, settled here

``propose`` awaits nothing: the caller loads, decides and proposes in one step of the event loop,
and no other decision comes in between. Slots may leave the shard between a request's check of them
and its decision; so ``propose`` looks at the slot of every event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from nextgen.kernel.errors import Overloaded, StaleShardMap
from nextgen.kernel.events.levels import EVENT_LEVEL_UNREPORTED
from nextgen.kernel.limits.cluster import SHARD_PENDING_RECORDS_MAX
from nextgen.replication.ports import Commit, Record, ReplicatedLog
from shards.domain.states import StateKind, States
from shards.projections.evolution import evolve_all, slot_of
from shards.state.command_outcomes import CommandOutcomes, PendingOutcome
from shards.state.event_levels import level_of, not_known
from shards.state.shard_slots import ShardSlots
from shards.state.shard_term import ShardTerm
from shards.state.state_cache import StateCache, TouchedKeys
from shards.state.state_reads import StateReads
from shards.wire.event import DomainEvent, encode_decided

SETTLE_EVERY_RECORDS = 16
"""Proposals between two checks of how far the view is: a check costs more than remembering."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Proposal:
    sequence: int
    commit: asyncio.Future[Commit]
    touched: TouchedKeys
    command_id: bytes
    keeps_states: bool = True


class Proposer:
    """Proposes records of one shard, for one term. ``clock_ms`` stamps them."""

    def __init__(
        self,
        term: ShardTerm,
        log: ReplicatedLog,
        cache: StateCache,
        reads: StateReads,
        slots: ShardSlots,
        outcomes: CommandOutcomes,
        clock_ms: Callable[[], int],
    ) -> None:
        self._term = term
        self._log = log
        self._cache = cache
        self._reads = reads
        self._slots = slots
        self._outcomes = outcomes
        self._clock_ms = clock_ms
        self._in_flight: deque[_Proposal] = deque()
        self._last_commit: asyncio.Future[Commit] | None = None
        self._position = log.commit_position
        self._sequence = 0
        self.refused_for_slots = 0
        """Proposals refused because a slot was not the shard's any more, or not yet."""

    def __repr__(self) -> str:
        return f"<Proposer {self._term!r} in_flight={len(self._in_flight)}>"

    @property
    def position(self) -> int:
        """The last event position that is known to be committed."""
        return self._position

    @property
    def records_in_flight(self) -> int:
        """Records that are not committed, or that the view is not known to have applied."""
        return len(self._in_flight)

    def propose(
        self,
        events: Sequence[DomainEvent],
        *,
        command_id: bytes = b"",
        outcome: bytes = b"",
        time_ms: int | None = None,
        keeps_states: bool = True,
    ) -> asyncio.Future[Commit]:
        """Propose one record; from here on ``StateReads.load`` returns the states after ``events``.

        Never blocks. Cancelling the returned future leaves the proposal as it is. ``time_ms`` is
        the time the commands were stamped with, the clock's if not given. Unless ``keeps_states``
        those states do not stay in memory once the view has them: a large load would push out what
        is in use.

        Raises:
            NotLeader, Overloaded, InvalidRequest: At once; nothing was changed.
            StaleShardMap: At once; nothing was changed. An event is about a slot that is not the
                shard's: it left since the request began, or comes.
            Refused: At once; nothing was changed. A replica is not known to know such an event,
                see ``ReplicatedLog.event_level``. Final until that has changed.
            ProposalLost: From the future. Indefinite; the term is over.
        """
        self._term.check()
        self._check_known(events)
        self._check_slots(events)
        in_flight = len(self._in_flight) + 1
        if in_flight % SETTLE_EVERY_RECORDS == 0 or in_flight > SHARD_PENDING_RECORDS_MAX:
            self._settle_applied()
        if len(self._in_flight) >= SHARD_PENDING_RECORDS_MAX:
            raise Overloaded(f"shard {self._term.shard_id}: the view is too far behind")
        states = evolve_all(events, self._reads.load)
        payload = encode_decided(
            events,
            command_id=command_id,
            outcome=outcome,
            time_ms=self._clock_ms() if time_ms is None else time_ms,
            outcomes_kept_from=self._outcomes.kept_from(self._position) if command_id else 0,
        )
        commit = self._log.propose(Record(payload, len(events)))
        self._track(commit, states, command_id, len(events), keeps_states)
        if StateKind.SHARD in states:
            self._slots.note_changed()
        if command_id:
            self._outcomes.add(command_id, PendingOutcome(outcome, len(events), commit))
        outer = asyncio.shield(commit)
        outer.add_done_callback(_retrieve)
        return outer

    async def confirm(self) -> None:
        """Return once everything decided so far is certain: committed, or leadership confirmed.

        An answer that was computed without a proposal is sent after this.

        Raises:
            NotLeader, ProposalLost: Leadership moved.
        """
        last = self._last_commit
        if last is None or last.done():
            await self._log.read_index()
            return
        # The commit alone does not prove leadership: a majority may have acknowledged it before
        # the request came, and a leader that was paused since then may have been replaced.
        outcomes = await asyncio.gather(
            asyncio.shield(last), self._log.read_index(), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _check_known(self, events: Sequence[DomainEvent]) -> None:
        """Refuse an event that some member's program does not know: it would stop that member."""
        level = level_of(events)
        # Nearly all events have the first level, which every member knows.
        if level > EVENT_LEVEL_UNREPORTED and level > self._log.event_level:
            behind = self._log.behind_event_level(level)
            raise not_known(self._term.shard_id, events, self._log.event_level, behind)

    def _check_slots(self, events: Sequence[DomainEvent]) -> None:
        """Refuse events about slots that are not the shard's."""
        try:
            self._slots.check_all(map(slot_of, events))
        except StaleShardMap as refusal:
            self.refused_for_slots += 1
            _logger.warning("not decided here", shard=self._term.shard_id, why=str(refusal))
            raise

    def _track(
        self,
        commit: asyncio.Future[Commit],
        states: States,
        command_id: bytes,
        events: int,
        keeps_states: bool,
    ) -> None:
        self._sequence += 1
        touched = self._cache.change(self._sequence, states)
        self._in_flight.append(_Proposal(self._sequence, commit, touched, command_id, keeps_states))
        self._last_commit = commit
        commit.add_done_callback(partial(self._on_commit, events))

    def _on_commit(self, events: int, commit: asyncio.Future[Commit]) -> None:
        if commit.cancelled() or commit.exception() is not None:
            self._term.end()
        else:
            self._position = max(self._position, commit.result().first_position + events - 1)

    def _settle_applied(self) -> None:
        """Forget the proposals that the view has applied."""
        applied_index = 0
        while self._in_flight:
            oldest = self._in_flight[0]
            if not oldest.commit.done() or self._term.is_over:
                return
            index = oldest.commit.result().index
            if index > applied_index:
                applied_index = self._log.applied_point.index
                if index > applied_index:
                    return
            self._in_flight.popleft()
            self._cache.settle(oldest.sequence, oldest.touched, keeps=oldest.keeps_states)
            self._outcomes.settle(oldest.command_id, oldest.commit)


def _retrieve(future: asyncio.Future[Commit]) -> None:
    """Mark the exception as retrieved: the proposer's caller need not await the future."""
    if not future.cancelled():
        future.exception()
