"""The state of every object after every event of the log, which reads and watches must match.

Where slots moved between shards, the history of a key is in legs: up to a position in the log of
one shard, from another position on in that of the next (``nextgen.audit.slot_legs``). Events of a
key are ordered by leg, then by position: ``LogEvent.order``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from nextgen.audit.slot_legs import SlotLegs, SlotMove, legs_of
from nextgen.harness.history.model import LogEvent, ObjectKind, object_kind, order_of
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic

Properties = tuple[tuple[str, str], ...]

ASSIGNED = "topic_assigned"
UNASSIGNED = "topic_unassigned"
ASSIGNMENT_EVENTS = frozenset({ASSIGNED, UNASSIGNED})
SESSION_ESTABLISHED = "broker_session_established"
SESSION_ENDED = "broker_session_ended"

POLICY_SET = "policy_set"
POLICY_CLEARED = "policy_cleared"
POLICY_EVENTS = frozenset({POLICY_SET, POLICY_CLEARED})

ADOPTED = "slots_adopted"
_GATES = "parent_gate_"
"""Events of gates concern a shard, whatever slots it has."""

_INVENTORY = frozenset({"tenant", "namespace", "topic"})


def properties_of(given: object) -> Properties:
    """Return a properties map as a value that can be compared: pairs, ascending by key."""
    return tuple(sorted(given.items())) if isinstance(given, Mapping) else ()


@dataclass(frozen=True, slots=True)
class ObjectState:
    """A tenant, namespace or topic behind one event; ``id`` is "" while it is not there.

    ``version`` counts its events since it was created, as the cluster does.
    """

    order: int
    """That of ``event``."""
    id: str
    version: int
    properties: Properties
    event: LogEvent
    policies: str = ""
    policies_version: int = 0

    @property
    def exists(self) -> bool:
        return self.id != ""


@dataclass(slots=True)
class KeyLog:
    """The events and states of one object, in their order. ``shard`` had it first."""

    key: str
    shard: int
    states: list[ObjectState] = field(default_factory=list)

    @property
    def last(self) -> ObjectState | None:
        return self.states[-1] if self.states else None

    def at(self, order: int) -> ObjectState | None:
        """Return the state after the event of ``order``, None before its first event."""
        index = bisect_right(self.states, order, key=lambda state: state.order)
        return self.states[index - 1] if index else None


@dataclass(slots=True)
class LogIndex:
    """The log of all shards, with the indexes that checks need."""

    by_shard: dict[int, list[LogEvent]] = field(default_factory=dict)
    keys: dict[str, KeyLog] = field(default_factory=dict)
    by_causation: dict[str, list[LogEvent]] = field(default_factory=dict)
    topic_names: dict[str, str] = field(default_factory=dict)
    """Topic id -> name."""
    units: dict[str, list[LogEvent]] = field(default_factory=dict)
    """Canonical name of a unit -> its topic_assigned and topic_unassigned, in order."""
    owners: dict[tuple[str, str, int], LogEvent] = field(default_factory=dict)
    """(topic id, canonical name, epoch) -> the event that gave it an owner."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Session id -> broker id."""
    ended_sessions: set[str] = field(default_factory=set)
    """Ids of sessions whose end is in the log of some shard."""
    legs: SlotLegs = field(default_factory=SlotLegs)
    moved: frozenset[int] = frozenset()
    """The slots that ever moved."""

    def order_at(self, key: str, shard: int, position: int) -> int | None:
        """Return the order of a place in a log among the events of ``key``, None if ``shard`` did
        not have the key there."""
        if not self.moved:
            return position
        slot = slot_of_name(key)
        if slot not in self.moved:
            return position
        leg = self.legs.leg_at(slot, shard, position)
        # At its last position the slot was released.
        return (
            None if leg is None or position == leg.last_position else order_of(leg.number, position)
        )

    def has_moved(self, key: str) -> bool:
        """Return whether the slot of ``key`` ever moved."""
        return bool(self.moved) and slot_of_name(key) in self.moved

    def folded(self) -> Iterator[list[LogEvent]]:
        """Yield runs of events to fold, each in order: those of a shard about slots that never
        moved, then all others."""
        moved = []
        for events in self.by_shard.values():
            if not self.moved:
                yield events
                continue
            yield [event for event in events if not event.leg]
            moved += [event for event in events if event.leg]
        if moved:
            yield sorted(moved, key=lambda event: event.order)

    def shard_of(self, key: str) -> int:
        """Return the shard that has ``key``, 0 if the log does not say."""
        known = self.keys.get(key)
        return known.shard if known is not None else 0


def is_inventory_event(event: LogEvent) -> bool:
    """Return whether ``event`` creates, changes or deletes a tenant, namespace or topic, or sets
    its policies."""
    if event.type in POLICY_EVENTS:
        return True
    return event.type.partition("_")[0] in _INVENTORY and event.type not in ASSIGNMENT_EVENTS


def index_log(log: Iterable[LogEvent]) -> LogIndex:
    """Fold ``log`` (each shard's events in order). Impossible events are folded unchanged: the
    check of the log's order reports them."""
    index, log = LogIndex(), [*log]
    index.legs = legs_of(filter(None, map(_move_of, log)))
    index.moved = index.legs.slots
    if index.moved:
        log = [_with_leg(index, event) for event in log]
    for event in log:
        index.by_shard.setdefault(event.shard, []).append(event)
    # The events of a key in their order; all others stay as they came.
    for event in sorted(log, key=lambda event: event.leg) if index.moved else log:
        if event.causation_id:
            index.by_causation.setdefault(event.causation_id, []).append(event)
        if is_inventory_event(event):
            _fold(index, event)
        elif event.type in ASSIGNMENT_EVENTS:
            index.units.setdefault(event.key, []).append(event)
            if event.type == ASSIGNED:
                index.owners.setdefault((event.id, event.key, event.epoch), event)
        elif event.type == SESSION_ESTABLISHED:
            index.sessions[event.session_id] = event.broker_id
        elif event.type == SESSION_ENDED:
            index.ended_sessions.add(event.session_id)
    return index


def kind_of_event(event: LogEvent) -> ObjectKind | None:
    """Return the kind of watch that ``event`` concerns, None if it concerns none."""
    if event.type in ASSIGNMENT_EVENTS:
        return ObjectKind.ASSIGNMENT
    return object_kind(event.key) if is_inventory_event(event) else None


def is_of_slot(event: LogEvent) -> bool:
    """Return whether ``event`` is about something whose slot says which shard decides about it."""
    return event.shard > 0 and event.key != "" and not event.type.startswith(_GATES)


@lru_cache(maxsize=1 << 16)
def slot_of_name(key: str) -> int:
    """Return the slot of what an event or an operation is about."""
    return slot_of(parse_topic(key).routing_key if "://" in key else key)


def _move_of(event: LogEvent) -> SlotMove | None:
    facts: Mapping[str, Any] = event.facts
    if event.type != ADOPTED or not facts.get("move"):
        return None
    return SlotMove(
        facts["move"],
        tuple((first, last) for first, last in facts["came"]),
        facts["from_shard"],
        facts["from_position"],
        event.shard,
        event.position,
    )


def _with_leg(index: LogIndex, event: LogEvent) -> LogEvent:
    if not is_of_slot(event) or not index.has_moved(event.key):
        return event
    leg = index.legs.leg_at(slot_of_name(event.key), event.shard, event.position)
    return event if leg is None else replace(event, leg=leg.number)


def _fold(index: LogIndex, event: LogEvent) -> None:
    known = index.keys.get(event.key)
    if known is None:
        known = index.keys[event.key] = KeyLog(event.key, event.shard)
    before = known.last
    what = event.type.partition("_")[2]
    if what == "created":
        after = ObjectState(event.order, event.id, 1, properties_of(event.properties), event)
        if object_kind(event.key) is ObjectKind.TOPIC:
            index.topic_names[event.id] = event.key
    elif what == "deleted" or before is None:
        after = ObjectState(event.order, "", 0, (), event)
    else:
        after = replace(before, order=event.order, version=before.version + 1, event=event)
        if what == "properties_set":
            after = replace(after, properties=properties_of(event.properties))
        elif event.type in POLICY_EVENTS:
            version = before.policies_version + 1
            after = replace(after, policies=event.policies, policies_version=version)
    known.states.append(after)
