"""Decides what each unit of a lookup needs. Planning reads and decides, and awaits nothing.

names ──plan──┬─ settled   has its answer (no such topic, partitioned, no quota left, or synced)
              ├─ resent    assigned, but this leader has not seen the broker acknowledge it
              ├─ unread    needs a broker, and the policies of its namespace must be read first
              ├─ placed    a broker was chosen and the event decided
              └─ starved   no leased capacity yet: waits a little, then is planned again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.cluster import LEASE_WAIT_MS, RECORD_BYTES_MAX
from nextgen.kernel.routing.names import Domain
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from shards.assignment.broker_sync import BrokerSync, Placed
from shards.assignment.placement_policies import PlacementPolicies
from shards.assignment.shard_units import ShardUnits
from shards.assignment.tenant_quotas import TenantQuotas
from shards.assignment.unit_flight import Flight
from shards.assignment.unit_placer import Placement, PlacementRound, UnitPlacer
from shards.domain import assignment as assignments
from shards.domain.assignment import (
    Assignment,
    AssignTopic,
    RaiseEpoch,
    TopicAssigned,
)
from shards.domain.lookup import check_kept, check_listed, check_served
from shards.domain.placement.tenant_share import check_share
from shards.domain.states import StateKind
from shards.domain.topic import Topic, taken_by_twin, twin_of
from shards.metrics import ShardMetrics
from shards.ports import Clock
from shards.state.shard_state import ShardState

_EVENT_OVERHEAD_BYTES = 384
"""A ``TopicAssigned`` without names of users and brokers: ids, numbers and framing, rounded up."""

_SEEN_OVERHEAD_BYTES = 24
"""One broker of a decision without its id."""

Decided = tuple[Flight, Topic, TopicAssigned]
"""A unit that gets a broker, and the event that assigns it."""

_Cold = tuple[Flight, Topic, Assignment | None, Policies]


@dataclass(slots=True)
class Plan:
    """The next steps of some units; each unit is in one of the lists."""

    settled: list[tuple[Flight, LookupAnswer]] = field(default_factory=list)
    resent: list[tuple[Flight, Placed]] = field(default_factory=list)
    unread: list[Flight] = field(default_factory=list)
    placed: list[Decided] = field(default_factory=list)
    starved: list[Flight] = field(default_factory=list)

    @property
    def units_in_flight(self) -> int:
        return len(self.resent) + len(self.unread) + len(self.placed) + len(self.starved)


class UnitPlanner:
    """Plans lookups of one shard's units, for one term. It changes nothing but the flights."""

    def __init__(
        self,
        state: ShardState,
        units: ShardUnits,
        sync: BrokerSync,
        placer: UnitPlacer,
        policies: PlacementPolicies,
        quotas: TenantQuotas,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._reads = state.reads
        self._proposer = state.proposer
        self._state = state
        self._units = units
        self._sync = sync
        self._placer = placer
        self._policies = policies
        self._quotas = quotas
        self._clock = clock
        self._metrics = metrics

    def plan(self, flights: Sequence[Flight]) -> Plan:
        """Decide what the units need. The caller MUST propose the events of ``placed`` at once."""
        plan = Plan()
        cold: list[_Cold] = []
        known: dict[str, Policies | None] = {}
        loaded = self._units.reads.load([flight.name for flight in flights])
        for flight, (topic, assignment) in zip(flights, loaded, strict=True):
            refusal = self._check_served(flight, topic)
            if refusal is not None:
                partitions = topic.partitions if topic is not None else 0
                answer = self._units.answers.refused(flight.text, refusal, partitions)
                plan.settled.append((flight, answer))
                continue
            assert topic is not None, "an absent topic is refused"
            if assignment is not None and not self._is_lost(flight, assignment):
                if not self._raise_epoch(flight, topic, assignment, plan):
                    self._look_at_owner(flight, topic, assignment, plan)
                continue
            namespace = flight.name.namespace_text
            if namespace not in known:
                known[namespace] = self._policies.known(namespace)
            parents = known[namespace] or flight.parents
            if parents is None:
                plan.unread.append(flight)
            else:
                cold.append((flight, topic, assignment, parents))
        cold = self._kept(cold, plan)
        if cold:
            self._place(cold, plan)
        return plan

    def _check_served(self, flight: Flight, topic: Topic | None) -> Rejected | None:
        """Return why no broker may serve the unit of a flight, None if one may."""
        name = flight.name
        if topic is None and self._state.names.was_renamed(name):
            # It was the topic's name when the lookup began. The next one finds the present one.
            return Rejected(RejectionCode.NO_BROKER, f"topic {name.base_text} was just renamed")
        refusal = check_served(name, topic)
        if refusal is None and name.segment is not None:
            layout = self._reads.load_scalable(name.base_text)
            return check_listed(name, layout, may_be_planned=flight.may_be_planned)
        if topic is None and name.domain is Domain.PERSISTENT and self._has_scalable():
            twin = self._reads.load_topic(twin_of(name))
            return refusal if twin is None else taken_by_twin(name)
        return refusal

    def _kept(self, cold: list[_Cold], plan: Plan) -> list[_Cold]:
        """Return the units that may be assigned: none that was of a topic which became scalable and
        has left its layout."""
        if not cold or not self._has_scalable():
            return cold
        twins = [twin_of(each[0].name) for each in cold]
        present = iter(self._reads.load_topics([twin for twin in twins if twin]))
        kept: list[_Cold] = []
        for each, twin in zip(cold, twins, strict=True):
            flight = each[0]
            gone = None
            if twin and next(present) is not None and flight.name.domain is Domain.PERSISTENT:
                gone = check_kept(flight.name, self._reads.load_scalable(twin))
            if gone is not None:
                plan.settled.append((flight, self._units.answers.refused(flight.text, gone)))
            else:
                kept.append(each)
        return kept

    def _has_scalable(self) -> bool:
        return self._reads.total(StateKind.SCALABLE_TOPIC) > 0

    def _look_at_owner(
        self, flight: Flight, topic: Topic, assignment: Assignment, plan: Plan
    ) -> None:
        broker = self._units.owners.known(assignment)
        if broker is not None and self._sync.is_synced(assignment):
            plan.settled.append((flight, self._units.answers.served(assignment, broker)))
        else:
            plan.resent.append((flight, Placed(topic, assignment, self._proposer.position)))

    def _raise_epoch(
        self, flight: Flight, topic: Topic, assignment: Assignment, plan: Plan
    ) -> bool:
        """Decide on the epoch that the owner found in its ledger.

        Return False if that epoch concerns another topic of the name, or needs no event.
        """
        used, flight.used = flight.used, None
        if used is None or used.topic_id != assignment.topic_id:
            return False
        decision = assignments.decide(
            assignment,
            RaiseEpoch(
                assignment.topic_id,
                assignment.unit,
                assignment.name,
                fenced_epoch=used.epoch,
                used_epoch=used.used_epoch,
                least_epoch=self._state.least_epoch,
            ),
        )
        if isinstance(decision, Rejected):
            plan.settled.append((flight, self._units.answers.refused(flight.text, decision)))
            return True
        for event in decision.events:
            assert isinstance(event, TopicAssigned), f"an epoch was raised by {event}"
            plan.placed.append((flight, topic, event))
        return bool(decision.events)

    def _is_lost(self, flight: Flight, assignment: Assignment) -> bool:
        return (
            not assignment.is_assigned
            or assignment.session_id in flight.refused_by
            or self._sync.has_ended(assignment.broker_id, assignment.session_id)
        )

    def _place(self, cold: Sequence[_Cold], plan: Plan) -> None:
        """Choose a broker for each unit and decide its assignment."""
        now = self._clock.monotonic()
        placements = self._placer.begin()
        added: Counter[str] = Counter()
        for flight, topic, assignment, parents in cold:
            # The quota already counts a unit whose broker was lost.
            is_more = assignment is None or not assignment.is_assigned
            tenant = flight.name.tenant
            full = self._quotas.check(tenant, added[tenant]) if is_more else None
            if full is not None:
                plan.settled.append((flight, self._units.answers.refused(flight.text, full)))
                continue
            chosen = placements.place(
                topic,
                assignment,
                parents,
                prefer=flight.preferred_broker_id,
                avoid=flight.refused_by,
                may_use_reserve=self._share_check(flight, parents, added) if is_more else None,
            )
            if not isinstance(chosen, Rejected):
                event = _assign(flight, topic, assignment, chosen, self._state.least_epoch)
                plan.placed.append((flight, topic, event))
                added[tenant] += is_more
                continue
            if self._may_come(chosen, placements) and flight.waits_on(now, LEASE_WAIT_MS):
                flight.refusal = chosen
                plan.starved.append(flight)
            else:
                if chosen.code is RejectionCode.SHARE_EXCEEDED:
                    self._metrics.share_refusals.inc()
                plan.settled.append((flight, self._units.answers.refused(flight.text, chosen)))
        placements.end()

    def _share_check(
        self, flight: Flight, parents: Policies, added: Counter[str]
    ) -> Callable[[int], Rejected | None]:
        """Return a check whether a new unit may use the reserve for tenants below their share.

        ``added`` counts units by tenant that are decided with it and not proposed yet.
        """
        tenant = flight.name.tenant

        def check(units_leased: int) -> Rejected | None:
            return check_share(
                tenant,
                units_assigned=self._reads.tenant_units(tenant) + added[tenant],
                units_leased=units_leased,
                percent=parents.capacity_share_percent,
            )

        return check

    @staticmethod
    def _may_come(refusal: Rejected, placements: PlacementRound) -> bool:
        """Return whether waiting may help.

        It does not where a rule forbids the unit, or where the tenant is beyond its share and no
        more capacity can be leased: both are answered at once.
        """
        if refusal.code is RejectionCode.SHARE_EXCEEDED:
            return placements.may_get_room
        return refusal.code is RejectionCode.NO_CAPACITY or not placements.has_brokers


def batches(placed: Sequence[Decided]) -> Iterator[list[Decided]]:
    """Yield what goes into one record each: nearly always all of it."""
    batch: list[Decided] = []
    size = 0
    for decided in placed:
        event_size = _size_bytes_max(decided[2])
        if batch and size + event_size > RECORD_BYTES_MAX // 2:
            yield batch
            batch, size = [], 0
        batch.append(decided)
        size += event_size
    if batch:
        yield batch


def _size_bytes_max(event: TopicAssigned) -> int:
    """Return what the event takes in a record at most."""
    size = _EVENT_OVERHEAD_BYTES + len(event.name.encode()) + len(event.broker_id.encode())
    if event.decision is not None:
        for seen in event.decision.compared:
            size += _SEEN_OVERHEAD_BYTES + len(seen.broker_id.encode())
    return size


def _assign(
    flight: Flight,
    topic: Topic,
    assignment: Assignment | None,
    chosen: Placement,
    least_epoch: int,
) -> TopicAssigned:
    decision = assignments.decide(
        assignment,
        AssignTopic(
            topic.topic_id,
            flight.name.unit.text,
            flight.text,
            chosen.broker_id,
            chosen.session_id,
            is_owner_live=False,
            is_owner_full=assignment is not None and assignment.session_id in flight.refused_by,
            decision=chosen.decision,
            least_epoch=least_epoch,
        ),
    )
    assert not isinstance(decision, Rejected), f"a lost unit was refused: {decision}"
    event = decision.events[0]
    assert isinstance(event, TopicAssigned), f"an assignment decided {event}"
    return event
