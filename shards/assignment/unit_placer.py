"""Chooses brokers for one shard's units: collects the input of the pure rules and counts units.

    begin ──▶ the live sessions as they are at this moment ──▶ place, place, place ──▶ end

A round is used without an await in between. Each placement counts for those after it, and the
caller proposes the placements before another decision is made: that is the lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import cached_property

from nextgen.client.wire.broker_load import rate_of, report_permille
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.policies import AntiAffinity, PlacementRules, Policies
from nextgen.kernel.limits.placement import REFUSAL_REMEMBERED_MS, REFUSALS_REMEMBERED_MAX
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from shards.assignment.broker_sync import BrokerSync
from shards.assignment.lease_keeper import LeaseKeeper
from shards.assignment.parent_policies import rules_for
from shards.domain.assignment import Assignment, unit_key
from shards.domain.placement.choice import (
    Choice,
    PlacementDecision,
    even_parts,
    place,
    place_at,
)
from shards.domain.placement.rules import NO_PEERS, Candidate, Peers, forbids
from shards.domain.topic import Topic
from shards.ports import BrokerDirectory, Clock
from shards.state.state_reads import StateReads


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a unit goes, and why."""

    broker_id: str
    session_id: str
    decision: PlacementDecision


class UnitPlacer:
    """Placements of one shard's units, for one term."""

    def __init__(
        self,
        reads: StateReads,
        sync: BrokerSync,
        leases: LeaseKeeper,
        directory: BrokerDirectory,
        clock: Clock,
        draw: Callable[[], tuple[int, int]],
    ) -> None:
        self._reads = reads
        self._sync = sync
        self._leases = leases
        self._directory = directory
        self._clock = clock
        self._draw = draw
        self._full_until: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<UnitPlacer refused_by={len(self._full_until)}>"

    def note_full(self, session_id: str) -> None:
        """Note that a broker manager refused units for lack of room, in spite of a lease.

        The session gets no units for ``REFUSAL_REMEMBERED_MS``.
        """
        self._full_until.pop(session_id, None)
        until = self._clock.monotonic() + REFUSAL_REMEMBERED_MS / 1000
        self._full_until[session_id] = until
        if len(self._full_until) > REFUSALS_REMEMBERED_MAX:
            del self._full_until[next(iter(self._full_until))]

    def begin(self, *, is_plan: bool = False) -> PlacementRound:
        """Return a round over the live sessions.

        With ``is_plan`` a session has the room that it may come to have, not only its lease. The
        caller MUST NOT propose the placements of such a round, and does not end it.
        """
        now = self._clock.monotonic()
        wall_ms = self._clock.wall_ms()
        leased = {each.session_id: each for each in self._leases.candidates()}
        live = [
            each
            for each in self._directory.live()
            if not self._sync.has_ended(each.broker_id, each.session_id)
        ]
        # A quarantine is to spare other brokers. If there are none, it does not count (ADR 0083).
        open_kinds = {
            each.kind for each in live if not each.draining and each.quarantined_until_ms <= wall_ms
        }
        candidates = []
        for broker in live:
            lease = leased.get(broker.session_id)
            load = self._directory.load(broker.session_id)
            units_reported = -1 if load is None else load.topics
            units_leased = 0 if lease is None else lease.units_leased
            units_used = 0 if lease is None else lease.units_used
            if is_plan:
                units_leased = self._leases.units_in_reach(broker, units_reported)
                units_used = self._reads.used_units(broker.session_id)
            candidates.append(
                Candidate(
                    broker.broker_id,
                    broker.session_id,
                    units_used,
                    units_leased,
                    broker.zone,
                    broker.rack,
                    broker.capacity_units,
                    units_reported,
                    0 if load is None else report_permille(load),
                    self._why_closed(broker, now, wall_ms if broker.kind in open_kinds else None),
                    kind=broker.kind,
                )
            )
        traffic = [self._traffic(broker.session_id) for broker in live]
        parts = even_parts(
            traffic,
            units_used=sum(each.units_used for each in candidates),
            units_reported=sum(max(0, each.units_reported) for each in candidates),
        )
        candidates = [
            replace(each, traffic=rate, traffic_here=part) if rate else each
            for each, rate, part in zip(candidates, traffic, parts, strict=True)
        ]
        return PlacementRound(
            candidates, self._reads, self._sync, self._leases, self._directory, self._draw
        )

    def _traffic(self, session_id: str) -> int:
        load = self._directory.load(session_id)
        return 0 if load is None else rate_of(load)

    def _why_closed(self, broker: BrokerRecorded, now: float, wall_ms: int | None) -> str:
        """Return why a broker gets no units, "" if it may.

        Without ``wall_ms`` a quarantine is no reason.
        """
        if broker.draining:
            return "is draining"
        if wall_ms is not None and broker.quarantined_until_ms > wall_ms:
            return "is in quarantine"
        until = self._full_until.get(broker.session_id)
        if until is None:
            return ""
        if now < until:
            return "has just refused a unit, it has no capacity left"
        del self._full_until[broker.session_id]
        return ""


class PlacementRound:
    """One round of placements, made by ``UnitPlacer.begin``. Use it at once, then end it."""

    def __init__(
        self,
        candidates: list[Candidate],
        reads: StateReads,
        sync: BrokerSync,
        leases: LeaseKeeper,
        directory: BrokerDirectory,
        draw: Callable[[], tuple[int, int]],
    ) -> None:
        self._candidates = candidates
        self._reads = reads
        self._sync = sync
        self._leases = leases
        self._directory = directory
        self._draw = draw
        self._spreads: dict[str, _Spread] = {}

    @cached_property
    def _units_leased(self) -> int:
        """Units that the shard has leased on open brokers, in all."""
        return sum(each.units_leased for each in self._candidates if not each.closed)

    @property
    def may_get_room(self) -> bool:
        """Whether a request may bring more capacity."""
        return self._leases.may_grow

    @property
    def has_brokers(self) -> bool:
        """Whether any broker lives, with room or without."""
        return bool(self._candidates)

    def has_session(self, session_id: str) -> bool:
        """Whether this session lives, with room or without."""
        return any(candidate.session_id == session_id for candidate in self._candidates)

    def room_at(self, broker_id: str) -> int:
        """Return how many more units a broker may get, 0 if it is closed or unknown."""
        for candidate in self._candidates:
            if candidate.broker_id == broker_id and candidate.has_room:
                return candidate.units_leased - candidate.units_used
        return 0

    def place(
        self,
        topic: Topic,
        assignment: Assignment | None,
        parents: Policies,
        *,
        target: str = "",
        prefer: str = "",
        avoid: Container[str] = (),
        asked_by: str = "",
        may_use_reserve: Callable[[int], Rejected | None] | None = None,
    ) -> Placement | Rejected:
        """Choose a broker for one unit of ``topic``, or return why there is none, with the rule.

        Args:
            assignment: The unit's present assignment; anti-affinity does not count it.
            parents: The policies of namespace and tenant, from ``PlacementPolicies``.
            target: The requested broker; "" for any.
            prefer: The broker that is chosen if rules and room allow it; "" for none.
            avoid: Sessions that the unit must not go to.
            asked_by: The origin of a move.
            may_use_reserve: Is called, with the units leased in all, if the chosen broker has only
                its reserve left; returns why the unit may not use it. Without it, it may.
        """
        rules, kind = rules_for(parents, topic), topic.broker_kind
        spread = self._spread_of(topic, rules)
        peers = NO_PEERS if spread is None else spread.peers_of(assignment, rules)
        if target:
            choice = place_at(
                self._candidates,
                target,
                rules,
                peers=peers,
                avoid=avoid,
                asked_by=asked_by,
                kind=kind,
            )
        else:
            choice = place(
                self._candidates,
                rules,
                self._draw(),
                peers=peers,
                prefer=prefer,
                avoid=avoid,
                asked_by=asked_by,
                kind=kind,
            )
            if may_use_reserve is not None and not isinstance(choice, Rejected):
                choice = self._spare_reserve(choice, may_use_reserve, rules, peers, avoid, kind)
        if isinstance(choice, Rejected):
            return choice
        chosen = self._candidates[choice.place]
        self._candidates[choice.place] = replace(chosen, units_used=chosen.units_used + 1)
        if spread is not None:
            spread.move(assignment, chosen.session_id)
        return Placement(chosen.broker_id, chosen.session_id, choice.decision)

    def forbids(
        self, topic: Topic, assignment: Assignment | None, parents: Policies, broker_id: str
    ) -> str:
        """Return the rule that forbids a unit at a broker, "" if none does.

        If a rule forbids it at its own broker, the unit has to leave.
        """
        rules = rules_for(parents, topic)
        spread = self._spread_of(topic, rules)
        peers = NO_PEERS if spread is None else spread.peers_of(assignment, rules)
        for candidate in self._candidates:
            if candidate.broker_id == broker_id:
                return forbids(candidate, rules, peers, topic.broker_kind)
        return "no such broker"

    def note_move(
        self, topic: Topic, assignment: Assignment, parents: Policies, broker_id: str
    ) -> None:
        """Count a unit at the broker that it will move to, for the placements after it."""
        spread = self._spread_of(topic, rules_for(parents, topic))
        if spread is None:
            return
        for candidate in self._candidates:
            if candidate.broker_id == broker_id:
                spread.move(assignment, candidate.session_id)

    def end(self) -> None:
        """Request more capacity if the placements have used up most of it."""
        self._leases.note_use([each for each in self._candidates if each.units_leased])

    def _spare_reserve(
        self,
        choice: Choice,
        may_use_reserve: Callable[[int], Rejected | None],
        rules: PlacementRules,
        peers: Peers,
        avoid: Container[str],
        kind: str,
    ) -> Choice | Rejected:
        """Return ``choice``, another broker with room beside its reserve, or a refusal."""
        if self._candidates[choice.place].has_idle_room:
            return choice
        refusal = may_use_reserve(self._units_leased)
        if refusal is None:
            return choice
        elsewhere = place(
            self._candidates,
            rules,
            self._draw(),
            peers=peers,
            avoid=avoid,
            keeps_reserve=True,
            kind=kind,
        )
        return refusal if isinstance(elsewhere, Rejected) else elsewhere

    def _spread_of(self, topic: Topic, rules: PlacementRules) -> _Spread | None:
        """Return where the topic's partitions are, None if no rule depends on it."""
        if topic.partitions < 2:
            return None
        if rules.anti_affinity is AntiAffinity.NONE and not rules.units_per_broker_max:
            return None
        spread = self._spreads.get(topic.topic_id)
        if spread is None:
            spread = self._spreads[topic.topic_id] = self._read_spread(topic)
        return spread

    def _read_spread(self, topic: Topic) -> _Spread:
        keys = [unit_key(topic.topic_id, f"p{number}") for number in range(topic.partitions)]
        spread = _Spread(self._zone_of)
        for assignment in self._reads.load_assignments(keys):
            if assignment is None or not assignment.is_assigned:
                continue
            if not self._sync.has_ended(assignment.broker_id, assignment.session_id):
                spread.add(assignment.session_id)
        return spread

    def _zone_of(self, session_id: str) -> str:
        broker = self._directory.session(session_id)
        return "" if broker is None else broker.zone


class _Spread:
    """The number of partitions of one topic at each session."""

    def __init__(self, zone_of: Callable[[str], str]) -> None:
        self._zone_of = zone_of
        self._units: Counter[str] = Counter()

    def add(self, session_id: str) -> None:
        self._units[session_id] += 1

    def peers_of(self, assignment: Assignment | None, rules: PlacementRules) -> Peers:
        """Return where the other partitions are, without the unit of ``assignment``."""
        own = "" if assignment is None else assignment.session_id
        if not self._units[own]:
            units = self._units
        else:
            units = self._units.copy()
            units[own] -= 1
        if rules.anti_affinity is not AntiAffinity.ZONE:
            return Peers(units)
        return Peers(
            units, frozenset([self._zone_of(each) for each, count in units.items() if count])
        )

    def move(self, assignment: Assignment | None, session_id: str) -> None:
        """Note that the unit goes to another session."""
        if assignment is not None and self._units[assignment.session_id]:
            self._units[assignment.session_id] -= 1
        self._units[session_id] += 1
