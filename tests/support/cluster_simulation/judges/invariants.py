"""What may never be seen, checked at the moment it would be.

OneLeaderPerTerm             Raft paper 5.2, for every group
CommittedEntriesNeverChange  Raft paper 5.4.3, on every replica
EpochsAreDense               each assignment of a unit has the epoch after the one before
OneOwnerPerEpoch             log, answers and brokers name the same session for a unit's epoch
LeasesFitCapacity            leases <= grant <= capacity, and a shard assigns within its lease
OneOutcomePerCommand         a command id is decided once in a shard
AnswerImpliesCommitted       what a client was told is committed when it is told
OnlyOwnersAcknowledge        a broker answers producers in epochs that were committed as its own
NamesRest                    behind a forced deletion no name comes back on demand at once
UnforcedSparesClients        a topic is deleted without force when no producer is connected to it
PartitionsOnlyGrow           and none is assigned that its topic does not have
SegmentsAreListed            a segment is assigned only while a layout or an operation has it
OpenTopicsObey               an open topic acts on the policies that its broker holds
EffectiveIsEverywhere        no broker with a session has less than what is effective
BalancedUnitsRest            see ``balance``, with what else such moves promise
LookupsAreRecent             see ``freshness``, with what else lookups promise
MetadataConverges            in the end a broker holds the latest version of everything it holds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brokers.domain.storage_policy import effective
from nextgen.client import TopicLocation
from nextgen.kernel.limits.pulsar import FORCED_DELETION_PAUSE_MS
from nextgen.kernel.routing.slots import SlotRun, SlotTable
from nextgen.replication.ports import Entry, Role, RoleChange
from protos.nextgen.v1.events_pb2 import DecidedCommand, Event, ShardPlacement
from tests.support.cluster_simulation.judges.balance import Balanced
from tests.support.cluster_simulation.judges.freshness import Freshness
from tests.support.cluster_simulation.judges.layouts import Layouts
from tests.support.cluster_simulation.raft_environment import Witness

Violate = Callable[[str], None]


NO_OFFSETS: Mapping[str, int] = {}

TENDED_TENANT = "tended"
"""In it each name is created by name once, and then on demand only. See ``tender``."""

_CLOCK_STEP_MS = 2
"""The clocks of a decision and of a pause are read one after the other, in milliseconds."""


@dataclass(slots=True)
class Session:
    """One broker session as the logs have it. Leases by shard, as group 0 has them."""

    broker_id: str
    capacity_units: int
    shard_id: int
    """Of its broker manager."""
    granted_units: int = 0
    leases: dict[int, int] = field(default_factory=dict)
    lapsed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Units of the last lease that group 0 took back, and when it was to end, by the true time."""
    expiries_ms: dict[int, int] = field(default_factory=dict)
    assigned: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rest:
    """When the deletion of a name was forced, by the true time and as it was seen, and how far
    clocks were off then."""

    decided_at_ms: int
    seen_at: float
    wall_offsets_ms: Mapping[str, int]


@dataclass(slots=True)
class Unit:
    """One topic or partition that was ever assigned."""

    shard_id: int
    epoch: int = 0
    session_id: str = ""


class Invariants(Layouts, Witness):
    """Folds what all replicas of all groups commit, each entry when it is first seen."""

    def __init__(
        self,
        violate: Violate,
        clock: Callable[[], float] = lambda: 0.0,
        wall_offsets_ms: Mapping[str, int] = NO_OFFSETS,
    ) -> None:
        """``wall_offsets_ms`` has, by node, how far its wall clock is ahead of the true time."""
        super().__init__()
        self._violate = violate
        self._wall_offsets_ms = wall_offsets_ms
        self._offset_ms = 0
        """Of the leader that decided what is being folded."""
        self.freshness = Freshness(violate, clock)
        self.balanced = Balanced(violate, clock, wall_offsets_ms)
        self.leaders: dict[tuple[int, int], str] = {}
        self.roles: dict[tuple[str, int], Role] = {}
        self.entries: dict[int, dict[int, Entry]] = {}
        self._folded: dict[int, int] = {}
        self._commands: dict[tuple[int, bytes], bytes] = {}
        self._decided_at_ms = 0
        """When what is being folded was decided, by the true time."""
        self.sessions: dict[str, Session] = {}
        self.units: dict[tuple[str, str], Unit] = {}
        self.owners: dict[tuple[str, str, int], tuple[str, str]] = {}
        """(topic id, canonical name, epoch) -> (broker, session)."""
        self.topics: dict[str, str] = {}
        self.deleted_topics: dict[str | tuple[str, str], float] = {}
        """Ids of deleted topics, and segments that left layouts, with when that was seen."""
        self.partitions: dict[str, int] = {}
        """By the id of a topic that there ever was; 0 of one without partitions."""
        self.spares_clients: Callable[[str], None] = lambda topic_id: None
        """Called with the id of a topic that was deleted without force."""
        self._resting: dict[str, Rest] = {}
        self.created_on_demand = 0
        """Names of tended topics that came back after a forced deletion."""
        self.namespaces: dict[str, str] = {}
        self.tenants: dict[str, str] = {}
        self.ever_created: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        """By id, of the tenants, namespaces and topics that there are."""
        self.policies: dict[str, tuple[int, int]] = {}
        """By id, of objects that ever had some: version of the policies, and the object's."""
        self.units_returned = 0
        """Leased units that others could have from then on."""
        self.ended: dict[str, None] = {}
        """Sessions that are over."""
        self.placements: dict[int, ShardPlacement] = {}
        """By shard, of the newest map that is committed."""
        self.slot_table: SlotTable | None = None
        """Of the same map."""
        self.events = 0

    # What replicas do -------------------------------------------------------------------------

    def saw_role(self, node_id: str, group_id: int, change: RoleChange) -> None:
        self.roles[(node_id, group_id)] = change.role
        if change.role is Role.LEADER:
            leader = self.leaders.setdefault((group_id, change.term), node_id)
            if leader != node_id:
                self._violate(f"{leader} and {node_id} lead term {change.term} of {group_id}")

    def saw_committed(self, node_id: str, group_id: int, entries: Sequence[Entry]) -> None:
        known = self.entries.setdefault(group_id, {})
        for entry in entries:
            before = known.setdefault(entry.index, entry)
            if before != entry:
                self._violate(f"{node_id} committed another entry {entry.index} of {group_id}")
        index = self._folded.get(group_id, 0)
        while (entry_here := known.get(index + 1)) is not None:
            index += 1
            self._folded[group_id] = index
            self._fold_entry(group_id, entry_here)

    def leader_of(self, group_id: int) -> str | None:
        """Return the node that led a group last, None if it is known to lead no more."""
        terms = [term for group, term in self.leaders if group == group_id]
        if not terms:
            return None
        node_id = self.leaders[(group_id, max(terms))]
        return node_id if self.roles.get((node_id, group_id)) is Role.LEADER else None

    def has_gap(self) -> bool:
        return any(
            max(known, default=0) != self._folded.get(group_id, 0)
            for group_id, known in self.entries.items()
        )

    def _fold_entry(self, group_id: int, entry: Entry) -> None:
        for record in entry.records:
            decided = DecidedCommand.FromString(record.payload)
            if decided.command_id and decided.outcome:
                key = (group_id, decided.command_id)
                before = self._commands.get(key)
                if before is not None:
                    self._violate(
                        f"command {decided.command_id.hex()} was decided twice: "
                        f"{before!r}, then {decided.outcome!r}"
                    )
                self._commands[key] = decided.outcome
            leader = self.leaders.get((group_id, entry.term), "")
            # Each leader stamps by its own clock, and these are compared with one another.
            self._offset_ms = self._wall_offsets_ms.get(leader, 0)
            self._decided_at_ms = decided.time_ms - self._offset_ms
            for event in decided.events:
                self.events += 1
                self._fold(group_id, event)

    def _fold(self, group_id: int, event: Event) -> None:
        name = event.WhichOneof("payload") or ""
        fold = getattr(self, f"_{name}", None)
        if fold is not None:
            fold(group_id, getattr(event, name))

    # Inventory --------------------------------------------------------------------------------

    def _tenant_created(self, _shard: int, event: Any) -> None:
        self._add(self.tenants, event.name, event.tenant_id)

    def _tenant_deleted(self, _shard: int, event: Any) -> None:
        self.tenants.pop(event.name, None)
        self.versions.pop(event.tenant_id, None)

    def _tenant_changed(self, _shard: int, event: Any) -> None:
        self.versions[self.tenants[event.name]] += 1

    _tenant_properties_set = _tenant_deletion_started = _tenant_deletion_aborted = _tenant_changed

    def _namespace_changed(self, _shard: int, event: Any) -> None:
        self.versions[self.namespaces[event.name]] += 1

    _namespace_properties_set = _namespace_changed
    _namespace_deletion_started = _namespace_deletion_aborted = _namespace_changed

    def _topic_properties_set(self, _shard: int, event: Any) -> None:
        self.versions[self.topics[event.name]] += 1

    def _topic_partitions_grown(self, _shard: int, event: Any) -> None:
        before = self.partitions[event.topic_id]
        if not 0 < before < event.partitions:
            self._violate(f"{event.name} grew from {before} to {event.partitions} partitions")
        self.partitions[event.topic_id] = event.partitions
        self.versions[event.topic_id] += 1

    def _namespace_created(self, _shard: int, event: Any) -> None:
        self._add(self.namespaces, event.name, event.namespace_id)
        if self.tenants.get(event.name.partition("/")[0]) != event.tenant_id:
            self._violate(f"namespace {event.name} was created without its tenant")

    def _namespace_deleted(self, _shard: int, event: Any) -> None:
        self.namespaces.pop(event.name, None)
        self.versions.pop(event.namespace_id, None)
        orphan = next((t for t in self.topics if _namespace_of(t) == event.name), None)
        if orphan is not None:
            self._violate(f"{event.name} was deleted and {orphan} is in it")

    def _topic_created(self, _shard: int, event: Any) -> None:
        self._add(self.topics, event.name, event.topic_id)
        self.freshness.created(event.name)
        self.ever_created[event.name] = event.topic_id
        self.partitions[event.topic_id] = event.partitions
        self._check_rested(event.name)
        if self.namespaces.get(_namespace_of(event.name)) != event.namespace_id:
            self._violate(f"topic {event.name} was created without its namespace")

    def _topic_deleted(self, _shard: int, event: Any) -> None:
        self.versions.pop(event.topic_id, None)
        self.freshness.deleted(event.name)
        self.deleted_topics[event.topic_id] = self.freshness.now()
        if self.topics.pop(event.name, None) != event.topic_id:
            self._violate(f"topic {event.name} was deleted and was not there")
        if event.forced:
            offsets = dict(self._wall_offsets_ms)
            self._resting[event.name] = Rest(self._decided_at_ms, self.freshness.now(), offsets)
        else:
            self.spares_clients(event.topic_id)

    def _check_rested(self, name: str) -> None:
        """NamesRest, where whatever is created again is created on demand.

        Two times are compared only if no clock was set in between.
        """
        rest = self._resting.pop(name, None)
        if rest is None or not name.startswith(f"persistent://{TENDED_TENANT}/"):
            return
        self.created_on_demand += 1
        decided_ms = self._decided_at_ms - rest.decided_at_ms
        seen_ms = (self.freshness.now() - rest.seen_at) * 1_000
        pause_ms = FORCED_DELETION_PAUSE_MS - _CLOCK_STEP_MS
        is_early = 0 <= decided_ms < pause_ms and seen_ms < pause_ms
        if is_early and rest.wall_offsets_ms == self._wall_offsets_ms:
            self._violate(f"{name} was created on demand {decided_ms} ms after a forced deletion")

    def _add(self, where: dict[str, str], name: str, object_id: str) -> None:
        if name in where:
            self._violate(f"{name} was created and was there already")
        where[name] = object_id
        self.versions[object_id] = 1

    def _policy_set(self, _shard: int, event: Any) -> None:
        version, _ = self.policies.get(event.object_id, (0, 0))
        if event.version != version + 1:
            self._violate(f"policies {event.version} of {event.name} came after {version}")
        self.versions[event.object_id] += 1
        self.policies[event.object_id] = (event.version, self.versions[event.object_id])

    _policy_cleared = _policy_set

    # Assignments and capacity -----------------------------------------------------------------

    def _topic_assigned(self, shard_id: int, event: Any) -> None:
        unit = self.units.setdefault((event.topic_id, event.unit), Unit(shard_id))
        if not self._has_unit(event.topic_id, event.unit):
            known = self.segments.get(event.topic_id)
            has = f"{self.partitions.get(event.topic_id, 0)} partitions" if known is None else known
            self._violate(f"{event.name} was assigned, the topic has {has}")
        if event.epoch != max(unit.epoch, event.used_epoch) + 1:
            self._violate(f"{event.name} got epoch {event.epoch} after {unit.epoch}")
        self._let_go(unit)
        unit.epoch, unit.session_id = event.epoch, event.session_id
        self.freshness.assigned(event.topic_id, event.name, event.epoch)
        self.balanced.assigned(event, self._decided_at_ms)
        self.owners[(event.topic_id, event.name, event.epoch)] = (
            event.broker_id,
            event.session_id,
        )
        session = self.sessions.get(event.session_id)
        if session is None or session.broker_id != event.broker_id:
            self._violate(f"{event.name} was assigned to {event.session_id}, which is no session")
            return
        assigned = session.assigned[shard_id] = session.assigned.get(shard_id, 0) + 1
        units, ends_at_ms = session.lapsed.get(shard_id, (0, 0))
        if assigned > session.leases.get(shard_id, 0) and not (
            # Decided within a lease, and without a leader to commit it until that was over: the
            # broker, which refuses what it has no room for, has the last word.
            self._decided_at_ms < ends_at_ms and assigned <= units
        ):
            self._violate(
                f"shard {shard_id} has {assigned} units at {event.session_id}, "
                f"its lease is {session.leases.get(shard_id, 0)}"
            )

    def _has_unit(self, topic_id: str, unit: str) -> bool:
        if topic_id in self.segments:
            return unit in self.segments[topic_id]
        return not unit or int(unit.removeprefix("p")) < self.partitions.get(topic_id, 0)

    def _topic_unassigned(self, _shard: int, event: Any) -> None:
        self._let_go(self.units[(event.topic_id, event.unit)])
        self.freshness.unassigned(event.topic_id, event.name, event.epoch)

    def _let_go(self, unit: Unit) -> None:
        session = self.sessions.get(unit.session_id)
        if session is not None:
            session.assigned[unit.shard_id] -= 1
        unit.session_id = ""

    def _shard_map_changed(self, _group: int, event: Any) -> None:
        self.placements = {placement.shard_id: placement for placement in event.shards}
        self.slot_table = SlotTable.from_bytes(event.version, event.slot_owners)

    def _shard_changed(self, _group: int, event: Any) -> None:
        self.placements.update((placement.shard_id, placement) for placement in event.changed)
        for shard_id in event.removed:
            del self.placements[shard_id]
        runs = [SlotRun(run.first, run.last, run.shard_id) for run in event.slots]
        assert self.slot_table is not None, "a difference came before the first map"
        self.slot_table = self.slot_table.with_runs(event.version, runs)

    def _broker_session_established(self, shard_id: int, event: Any) -> None:
        self.sessions[event.session_id] = Session(event.broker_id, event.capacity_units, shard_id)

    def _broker_session_ended(self, _shard: int, event: Any) -> None:
        self.ended[event.session_id] = None

    def _capacity_lease_released(self, _group: int, event: Any) -> None:
        session = self.sessions.get(event.session_id)
        if session is not None:
            units = session.leases.pop(event.shard_id, 0)
            session.lapsed[event.shard_id] = units, session.expiries_ms.get(event.shard_id, 0)
            self.units_returned += units

    def _capacity_granted(self, group_id: int, event: Any) -> None:
        session = self.sessions.get(event.session_id)
        if session is None:
            self._violate(f"group {group_id} granted units of {event.session_id}: no session")
            return
        session.granted_units = max(session.granted_units, event.units)
        self._check_capacity(event.session_id, session)

    def _capacity_leased(self, _group: int, event: Any) -> None:
        session = self.sessions.get(event.session_id)
        if session is None:
            self._violate(f"units of {event.session_id} were leased: no session")
            return
        self.units_returned += max(0, session.leases.get(event.shard_id, 0) - event.units)
        session.leases[event.shard_id] = event.units
        session.expiries_ms[event.shard_id] = event.expires_at_ms - self._offset_ms
        self._check_capacity(event.session_id, session)

    def _check_capacity(self, session_id: str, session: Session) -> None:
        leased = sum(session.leases.values())
        if not leased <= session.granted_units <= session.capacity_units:
            self._violate(
                f"session {session_id}: leased {leased}, granted {session.granted_units}, "
                f"capacity {session.capacity_units}"
            )

    def complain(self, what: str) -> None:
        """Record a violation that an observer saw."""
        self._violate(what)

    # What clients and brokers see -------------------------------------------------------------

    def check_created(self, name: str, topic_id: str) -> None:
        """AnswerImpliesCommitted, for a topic."""
        if self.ever_created.get(name) != topic_id:
            self._violate(f"a client was told of {name} as {topic_id}, which is not committed")

    def check_location(self, location: TopicLocation) -> None:
        """AnswerImpliesCommitted and OneOwnerPerEpoch, for an answer to a lookup or a move."""
        key = (location.topic_id, location.topic, location.epoch)
        told = (location.broker_id, location.session_id)
        if self.owners.get(key) != told:
            self._violate(f"{key} was said to be at {told}, committed is {self.owners.get(key)}")

    def check_holding(self, broker_id: str, session: Any) -> None:
        """OneOwnerPerEpoch, at the broker: it holds nothing that was not assigned to it.

        Nor more than it can: whatever leases say, its manager sees to that.
        """
        known = self.sessions.get(session.session_id)
        held_units = len(session.holding.assignments)
        if known is not None and held_units > known.capacity_units:
            self._violate(f"{broker_id} holds {held_units} units, it has {known.capacity_units}")
        for held in session.holding.assignments.values():
            key = (held.topic.topic_id, held.name, held.epoch)
            if self.owners.get(key) != (broker_id, session.session_id):
                self._violate(
                    f"{broker_id} holds {key} in {session.session_id}, "
                    f"committed is {self.owners.get(key)}"
                )

    def check_acknowledged(
        self, unit: tuple[str, str], name: str, epoch: int, broker_id: str
    ) -> None:
        """OnlyOwnersAcknowledge."""
        owner, _ = self.owners.get((unit[0], name, epoch), ("nobody", ""))
        if owner != broker_id:
            self._violate(f"{broker_id} acknowledges in epoch {epoch} of {name}: it is {owner}'s")

    def check_open_topics(self, broker_id: str, session: Any, front: Any) -> None:
        """OpenTopicsObey: what is open and held acts on what is held of it."""
        for topic in front.topics:
            assignment = session.holding.assigned(topic.unit.name)
            if (
                assignment is None
                or assignment.key != topic.unit.key
                or not session.holding.has_metadata(assignment)
            ):
                continue
            said = effective(session.holding.policies(assignment), topic._dependencies.policy)
            if topic.policy != said:
                self._violate(f"{broker_id} acts on {topic.policy} for {assignment.name}: {said}")

    def goes_on(self, session_id: str) -> bool:
        """Return whether a session began and has not ended."""
        return session_id in self.sessions and session_id not in self.ended

    def check_effective(
        self, broker_id: str, session: Any, name: str, object_id: str, version: int
    ) -> None:
        """EffectiveIsEverywhere: at a broker whose session continues."""
        holding = session.holding
        held = holding.tenants.get(name) or holding.namespaces.get(name) or holding.topic(name)
        if held is None or object_id not in (
            getattr(held, "tenant_id", ""),
            getattr(held, "namespace_id", ""),
            getattr(held, "topic_id", ""),
        ):
            return
        if held.version < version:
            self._violate(
                f"version {version} of {name} was said to be effective, "
                f"{broker_id} has {held.version}"
            )

    def stale_metadata(self, broker_id: str, session: Any) -> list[str]:
        """Return the metadata of a broker that differs from the committed one."""
        holding = session.holding
        held = [
            *((each.tenant_id, each) for each in holding.tenants.values()),
            *((each.namespace_id, each) for each in holding.namespaces.values()),
            *((each.topic_id, each) for each in holding.topics.values()),
        ]
        return [
            f"{broker_id} holds {each.name} {object_id} in version {each.version}, "
            f"committed is {self.versions.get(object_id)}"
            for object_id, each in held
            if each.version != self.versions.get(object_id)
        ]


def _namespace_of(topic: str) -> str:
    return topic.partition("://")[2].rpartition("/")[0]
