"""The state of one shard as its leader decides on it: the view, and what is pending on top.

    load ──▶ decide (pure) ──▶ propose        no await in between: that is the lock

A ``ShardState`` lives for one term: what it proposed and did not commit goes with it, undone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from nextgen.kernel.errors import NotLeader, Overloaded, StaleShardMap
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.events.generations import least_epoch
from nextgen.kernel.events.levels import EVENT_LEVEL_UNSAID
from nextgen.kernel.limits.cluster import SHARD_PENDING_RECORDS_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES, mint_id
from nextgen.replication.ports import Commit, Record, ReplicatedLog
from shards.domain import shard
from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession
from shards.domain.namespace import Namespace
from shards.domain.parent_gate import ParentGate, ParentKind, gate_key
from shards.domain.shard import NO_SLOTS, SHARD_KEY, AdoptSlots, Shard, SlotRanges
from shards.domain.states import State, StateKind, States
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections.evolution import evolve_all
from shards.projections.outcomes import read_forgotten_position
from shards.projections.reading import (
    RecordedOutcome,
    child_ranges,
    has_key_within,
    read_assignments_of,
    read_keys,
    read_outcomes,
    read_present,
    read_sessions,
    read_units_of_session,
    read_usage,
    topic_ranges,
)
from shards.projections.rows import Query, read_states
from shards.state.event_levels import level_of, not_known
from shards.state.outcome_retention import OUTCOME_ORDERS_LEVEL, OutcomeRetention
from shards.state.state_cache import StateCache, TouchedKeys
from shards.wire.event import DomainEvent, encode_decided

S = TypeVar("S")

SETTLE_EVERY_RECORDS = 16
"""Proposals between two looks at how far the view is: looking costs more than remembering."""


@dataclass(frozen=True, slots=True)
class PendingOutcome:
    """The outcome of a command whose record is in flight, or not yet in the view."""

    outcome: bytes
    events: int
    commit: asyncio.Future[Commit]


@dataclass(frozen=True, slots=True)
class _Proposal:
    sequence: int
    commit: asyncio.Future[Commit]
    touched: TouchedKeys
    command_id: bytes
    keeps_states: bool = True


class ShardState:
    """What a shard's leader knows, for one term. Every method runs on the event loop.

    ``query`` reads the view; ``clock_ms`` and ``entropy`` are what the leader stamps commands
    with, and by ``monotonic`` seconds it keeps their outcomes. After leadership was seen to be
    lost every method raises ``NotLeader``.
    """

    def __init__(
        self,
        shard_id: int,
        term: int,
        log: ReplicatedLog,
        query: Query,
        clock_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        monotonic: Callable[[], float],
    ) -> None:
        self.shard_id = shard_id
        self.term = term
        self.least_epoch = least_epoch(term)  # Of assignments and sessions, in this term.
        self.log = log
        self.now_ms = clock_ms
        self._query = query
        self._entropy = entropy
        self._cache = StateCache()
        self._proposals: deque[_Proposal] = deque()
        self._outcomes: dict[bytes, PendingOutcome] = {}
        self._last_commit: asyncio.Future[Commit] | None = None
        self._position = log.status.commit_position
        self._retention = OutcomeRetention(monotonic, self._position)
        self._sequence = 0
        self._is_lost = False
        self._slots_of: Shard | None = None
        self._slots = NO_SLOTS

    def __repr__(self) -> str:
        return (
            f"<ShardState shard={self.shard_id} term={self.term} "
            f"in_flight={len(self._proposals)} lost={self._is_lost}>"
        )

    @property
    def is_lost(self) -> bool:
        """True once the term is over as far as is known here: the object is of no more use."""
        return self._is_lost

    def close(self) -> None:
        """End the term: whoever still holds this object must not decide in the next one."""
        self._is_lost = True

    @property
    def position(self) -> int:
        """The last event position that is known to be committed."""
        return self._position

    # Reading ----------------------------------------------------------------------------------

    def load(self, kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
        """Return the states under ``keys``, pending ones included; at most one view read."""
        self._check_leads()
        found, missing = self._cache.find(kind, keys)
        if missing:
            read = read_states(self._query, kind, missing)
            self._cache.remember(kind, read)
            found.update(read)
        return found

    def load_tenant(self, name: str) -> Tenant | None:
        return self._one(StateKind.TENANT, name, Tenant)

    def load_namespace(self, name: str) -> Namespace | None:
        """Return the namespace ``tenant/namespace``."""
        return self._one(StateKind.NAMESPACE, name, Namespace)

    def load_topic(self, base_text: str) -> Topic | None:
        return self._one(StateKind.TOPIC, base_text, Topic)

    def load_topics(self, base_texts: Sequence[str]) -> list[Topic | None]:
        """Return topics by ``TopicName.base_text``, in the same order."""
        return self._many(StateKind.TOPIC, base_texts, Topic)

    def existing_topics(self, base_texts: Sequence[str]) -> set[str]:
        """Return which of ``base_texts``, ascending and at least one, are names of topics.

        Remembers nothing of them; cheap where they lie close together.
        """
        self._check_leads()
        existing = read_present(self._query, StateKind.TOPIC, base_texts)
        for name, state in self._cache.pending_of(StateKind.TOPIC, base_texts).items():
            (existing.discard if state is None else existing.add)(name)
        return existing

    def load_gate(self, kind: ParentKind, name: str) -> ParentGate | None:
        return self._one(StateKind.PARENT_GATE, gate_key(kind, name), ParentGate)

    def load_assignments(self, keys: Sequence[str]) -> list[Assignment | None]:
        """Return assignments by ``assignment_key``, in the same order."""
        return self._many(StateKind.ASSIGNMENT, keys, Assignment)

    def load_session(self, broker_id: str) -> BrokerSession | None:
        """Return the latest session of a broker whose manager is in this shard."""
        return self._one(StateKind.BROKER_SESSION, broker_id, BrokerSession)

    def sessions(self) -> tuple[BrokerSession, ...]:
        """Return the latest session of each broker of this shard's, ended ones too."""
        self._check_leads()
        sessions = read_sessions(self._query)
        for broker_id, state in self._cache.pending(StateKind.BROKER_SESSION):
            assert isinstance(state, BrokerSession), f"session of {broker_id} went away"
            sessions[broker_id] = state
        return tuple(sessions.values())

    def used_units(self, session_id: str) -> int:
        """Return how many units this shard has assigned to a broker session."""
        return self._one(StateKind.USAGE, session_id, int) or 0

    def tenant_units(self, tenant: str) -> int:
        """Return how many units of a tenant's topics this shard has assigned."""
        return self._one(StateKind.TENANT_USAGE, tenant, int) or 0

    def usage(self) -> dict[str, int]:
        """Return how many units each session has that has any, what is pending included."""
        self._check_leads()
        usage = read_usage(self._query)
        for session_id, units in self._cache.pending(StateKind.USAGE):
            usage.pop(session_id, None)
            if isinstance(units, int):
                usage[session_id] = units
        return usage

    def units_of_session(self, session_id: str, after: str, limit: int) -> list[Assignment]:
        """Return the first ``limit`` units behind the key ``after`` that a session has, by key.

        What is pending is included. At most one view read, of the page and what is pending.
        """
        self._check_leads()
        gone: set[str] = set()
        come: dict[str, Assignment] = {}
        for key, state in self._cache.pending(StateKind.ASSIGNMENT):
            if key <= after:
                continue
            gone.add(key)
            if isinstance(state, Assignment) and state.session_id == session_id:
                come[key] = state
        stored = read_units_of_session(self._query, session_id, after, limit + len(gone))
        units = {unit.key: unit for unit in stored if unit.key not in gone} | come
        return [units[key] for key in sorted(units)[:limit]]

    def total(self, kind: StateKind) -> int:
        """Return how many tenants, namespaces or topics the shard has."""
        return self._one(StateKind.TOTAL, kind.value, int) or 0

    def assignments_of_topic(self, topic_id: str) -> dict[str, Assignment]:
        """Return the assignments of all units of a topic by key."""
        self._check_leads()
        assignments = read_assignments_of(self._query, topic_id)
        prefix = f"{topic_id}/"
        for key, state in self._cache.pending(StateKind.ASSIGNMENT):
            if not key.startswith(prefix):
                continue
            assignments.pop(key, None)
            if isinstance(state, Assignment):
                assignments[key] = state
        return assignments

    def has_children(self, kind: ParentKind, name: str) -> bool:
        """Return whether this shard has a namespace of the tenant, or a topic of the namespace."""
        self._check_leads()
        child_kind, ranges = child_ranges(kind, name)
        for start, end in ranges:
            gone: set[str] = set()
            for key, state in self._cache.pending(child_kind):
                if start < key < end:
                    if state is not None:
                        return True
                    gone.add(key)
            if has_key_within(self._query, child_kind, (start, end), gone):
                return True
        return False

    def count_topics(self, namespace: str) -> int:
        """Return how many topics this shard has of ``tenant/namespace``: reads each of its keys."""
        self._check_leads()
        count = 0
        for start, end in topic_ranges(namespace):
            keys = {key for key in read_keys(self._query, StateKind.TOPIC, (start, end))}
            for key, state in self._cache.pending(StateKind.TOPIC):
                if start < key < end:
                    (keys.discard if state is None else keys.add)(key)
            count += len(keys)
        return count

    def pending_outcome(self, command_id: bytes) -> PendingOutcome | None:
        """Return the outcome of a command whose record the view may not have yet."""
        return self._outcomes.get(command_id)

    def outcomes_of(
        self, command_ids: Iterable[bytes]
    ) -> dict[bytes, PendingOutcome | RecordedOutcome]:
        """Return the first outcomes of those ``command_ids`` that are known; at most one read."""
        self._check_leads()
        known: dict[bytes, PendingOutcome | RecordedOutcome] = {}
        unknown: list[bytes] = []
        for command_id in command_ids:
            pending = self._outcomes.get(command_id)
            if pending is None:
                unknown.append(command_id)
            else:
                known[command_id] = pending
        known.update(read_outcomes(self._query, unknown))
        return known

    def forgotten_position(self) -> int:
        """Return up to which position outcomes may have been forgotten, 0 if none was."""
        self._check_leads()
        return read_forgotten_position(self._query, self.log.status.applied.position)

    # Slots ------------------------------------------------------------------------------------

    def owned_slots(self) -> bytes:
        """Return one byte per slot, 1 for the slots that this shard has."""
        own = self._one(StateKind.SHARD, SHARD_KEY, Shard)
        if own is not self._slots_of:
            self._slots = NO_SLOTS if own is None else own.slot_map()
            self._slots_of = own
        return self._slots

    @property
    def shard_map_version(self) -> int:
        """The version of the shard map that gave this shard its slots, 0 for none."""
        own = self._one(StateKind.SHARD, SHARD_KEY, Shard)
        return 0 if own is None else own.shard_map_version

    def has_slot(self, slot: int) -> bool:
        return self.owned_slots()[slot] == 1

    def check_key(self, routing_key: str) -> None:
        """Check that the slot of ``routing_key`` belongs to this shard.

        Raises:
            StaleShardMap: It does not; the caller routed by another map.
        """
        slot = slot_of(routing_key)
        if not self.has_slot(slot):
            raise StaleShardMap(
                f"shard {self.shard_id} does not have slot {slot}", self.shard_map_version
            )

    def adopt_slots(self, ranges: SlotRanges, version: int) -> asyncio.Future[Commit] | None:
        """Take the slots the shard map gives this shard; None if it has them already.

        To be called at first leadership, before anything else is decided.

        Raises:
            StaleShardMap: The log says that the shard has other slots.
        """
        own = self._one(StateKind.SHARD, SHARD_KEY, Shard)
        decision = shard.decide(own, AdoptSlots(ranges, version))
        if not isinstance(decision, Accepted):
            raise StaleShardMap(f"shard {self.shard_id}: {decision.message}", version)
        return self.propose(decision.events) if decision.events else None

    # Writing ----------------------------------------------------------------------------------

    def mint(self, routing_key: str) -> str:
        """Return a fresh id that carries the slot of ``routing_key``."""
        return mint_id(slot_of(routing_key), self._entropy(ID_ENTROPY_BYTES))

    def mint_all(self, slots: Sequence[int]) -> list[str]:
        """Return one fresh id for each of ``slots``."""
        entropy = self._entropy(ID_ENTROPY_BYTES * len(slots))
        return [
            mint_id(slot, entropy[start : start + ID_ENTROPY_BYTES])
            for slot, start in zip(slots, range(0, len(entropy), ID_ENTROPY_BYTES), strict=True)
        ]

    def propose(
        self,
        events: Sequence[DomainEvent],
        *,
        command_id: bytes = b"",
        outcome: bytes = b"",
        time_ms: int | None = None,
        keeps_states: bool = True,
    ) -> asyncio.Future[Commit]:
        """Propose one record; from here on ``load`` returns the states after ``events``.

        Never blocks. Cancelling the returned future leaves the proposal as it is. ``time_ms`` is
        the time the commands were stamped with, the clock's if not given. Unless ``keeps_states``
        those states do not stay in memory once the view has them: they would be more than it
        keeps, and what is in use would have to go.

        Raises:
            NotLeader, Overloaded, InvalidRequest: At once; nothing was changed.
            Refused: At once; nothing was changed. A replica is not known to know such an event,
                see ``ReplicatedLog.event_level``. Final until that has changed.
            ProposalLost: From the future. Indefinite; this object is of no more use.
        """
        self._check_leads()
        self._check_known(events)
        in_flight = len(self._proposals) + 1
        if in_flight % SETTLE_EVERY_RECORDS == 0 or in_flight > SHARD_PENDING_RECORDS_MAX:
            self._drop_applied()
        if len(self._proposals) >= SHARD_PENDING_RECORDS_MAX:
            raise Overloaded(f"shard {self.shard_id}: the view is too far behind")
        states = evolve_all(events, self.load)
        payload = encode_decided(
            events,
            command_id=command_id,
            outcome=outcome,
            time_ms=self.now_ms() if time_ms is None else time_ms,
            outcomes_kept_from=self._order_of_outcomes() if command_id else 0,
        )
        commit = self.log.propose(Record(payload, len(events)))
        self._track(commit, states, command_id, outcome, len(events), keeps_states)
        outer = asyncio.shield(commit)
        outer.add_done_callback(_retrieve)
        return outer

    async def confirm(self) -> None:
        """Return once everything decided so far is certain: committed, or leadership confirmed.

        What was computed without proposing anything is answered after this.

        Raises:
            NotLeader, ProposalLost: Leadership moved.
        """
        last = self._last_commit
        if last is None or last.done():
            await self.log.read_index()
            return
        # The commit alone does not say who leads: a majority may have acknowledged it before
        # the question came, and a leader that slept in between been replaced.
        outcomes = await asyncio.gather(
            asyncio.shield(last), self.log.read_index(), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    # Inside -----------------------------------------------------------------------------------

    def _check_leads(self) -> None:
        if self._is_lost:
            raise NotLeader(self.shard_id)

    def _order_of_outcomes(self) -> int:
        """Return the order to forget outcomes that goes with the next record, 0 for none."""
        if self.log.event_level < OUTCOME_ORDERS_LEVEL:
            return 0
        return self._retention.order(self._position)

    def _check_known(self, events: Sequence[DomainEvent]) -> None:
        """Keep an event from the log that a member would stop by."""
        level = level_of(events)
        # The members are asked only about an event that came in later: this is the way of all.
        if level > EVENT_LEVEL_UNSAID and level > self.log.event_level:
            behind = self.log.behind_event_level(level)
            raise not_known(self.shard_id, events, self.log.event_level, behind)

    def _one(self, kind: StateKind, key: str, of_type: type[S]) -> S | None:
        state = self.load(kind, (key,))[key]
        assert state is None or isinstance(state, of_type)
        return state

    def _many(self, kind: StateKind, keys: Sequence[str], of_type: type[S]) -> list[S | None]:
        states = self.load(kind, keys)
        found: list[S | None] = []
        for key in keys:
            state = states[key]
            assert state is None or isinstance(state, of_type)
            found.append(state)
        return found

    def _track(
        self,
        commit: asyncio.Future[Commit],
        states: States,
        command_id: bytes,
        outcome: bytes,
        events: int,
        keeps_states: bool,
    ) -> None:
        self._sequence += 1
        touched = self._cache.change(self._sequence, states)
        proposal = _Proposal(self._sequence, commit, touched, command_id, keeps_states)
        self._proposals.append(proposal)
        if command_id:
            self._outcomes[command_id] = PendingOutcome(outcome, events, commit)
        self._last_commit = commit
        commit.add_done_callback(partial(self._on_commit, events))

    def _on_commit(self, events: int, commit: asyncio.Future[Commit]) -> None:
        if commit.cancelled() or commit.exception() is not None:
            self._is_lost = True
        else:
            self._position = max(self._position, commit.result().first_position + events - 1)

    def _drop_applied(self) -> None:
        """Forget the proposals that the view has applied."""
        applied_index = 0
        while self._proposals:
            oldest = self._proposals[0]
            if not oldest.commit.done() or self._is_lost:
                return
            index = oldest.commit.result().index
            if index > applied_index:
                applied_index = self.log.status.applied.index
                if index > applied_index:
                    return
            self._proposals.popleft()
            self._cache.settle(oldest.sequence, oldest.touched, keeps=oldest.keeps_states)
            pending = self._outcomes.get(oldest.command_id)
            if pending is not None and pending.commit is oldest.commit:
                del self._outcomes[oldest.command_id]


def _retrieve(future: asyncio.Future[Commit]) -> None:
    """Mark the outcome as seen: whoever does not wait for it does not want it."""
    if not future.cancelled():
        future.exception()
