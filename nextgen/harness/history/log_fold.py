"""The state of every object after every event of the log, which reads and watches must match.

Where slots moved between shards, the history of a key is in legs: up to a position in the log of
one shard, from another position on in that of the next (``nextgen.audit.slot_legs``). Events of a
key are ordered by leg, then by position: ``LogEvent.order``.

A renamed topic stays in the slot of its id. There are two folds of it: by name, in which a rename
deletes the topic under one name and creates it under the other, as watches and listings show it;
and its whole life, in which a rename is a change of the topic like others.
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
from nextgen.kernel.routing.ids import is_id, slot_of_id
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

RENAMED = "topic_renamed"
POINTERS = frozenset({"topic_name_pointed", "topic_name_freed"})
"""Events that set or remove a name's pointer in the shard of its slot; topics do not change."""

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
    """The events and states of one object, in their order. ``shard`` had it first.

    The name of a renamed topic may be another topic's before or afterwards, in another shard:
    then the order of events is one by shard.
    """

    key: str
    shard: int
    states: list[ObjectState] = field(default_factory=list)
    ends: dict[int, ObjectState] = field(default_factory=dict)
    """The last state in each shard; 0: of slots that moved."""

    @property
    def last(self) -> ObjectState | None:
        """The state behind all events, None if there are none."""
        living = (state for state in self.ends.values() if state.exists)
        return next(living, self.states[-1] if self.states else None)

    def before(self, event: LogEvent) -> ObjectState | None:
        """Return the state that ``event``, the next of its shard, changes."""
        return self.ends.get(_home(event))

    def add(self, state: ObjectState) -> None:
        """Add the state behind the next event."""
        self.states.append(state)
        self.ends[_home(state.event)] = state

    def at(self, order: int, shard: int = 0) -> ObjectState | None:
        """Return the state after the event of ``order``, None before its first event. ``shard``
        is needed if several shards had topics of that name."""
        states = self.states
        if len(self.ends) > 1:
            states = [each for each in states if _home(each.event) in (0, shard)]
        index = bisect_right(states, order, key=lambda state: state.order)
        return states[index - 1] if index else None


@dataclass(slots=True)
class TopicNames:
    """The names of topics that were renamed, each with one of its topic's that stands for all: by
    the log the one that the topic had first."""

    first: dict[str, str] = field(default_factory=dict)

    def first_of(self, name: str) -> str:
        """Return the name that stands for the topic called ``name``, of other objects ``name``."""
        return self.first.get(name, name)

    def first_of_unit(self, name: str) -> str:
        """Return the first name of a topic, or of the same part of it."""
        base = parse_topic(name).base_text
        return self.first_of(base) + name.removeprefix(base)

    def learn(self, name: str, new_name: str) -> None:
        """Learn that the topic called ``name`` got another name."""
        first = self.first.setdefault(name, name)
        others = self.first.setdefault(new_name, first)
        if others != first:
            # It was used before it was known whose name it is.
            self.first |= {each: first for each, of in self.first.items() if of == others}


@dataclass(slots=True)
class LogIndex:
    """The log of all shards, with the indexes that checks need."""

    by_shard: dict[int, list[LogEvent]] = field(default_factory=dict)
    keys: dict[str, KeyLog] = field(default_factory=dict)
    """By name."""
    lives: dict[str, KeyLog] = field(default_factory=dict)
    """The whole lives of renamed topics, by their first names."""
    names: TopicNames = field(default_factory=TopicNames)
    renamed: dict[str, str] = field(default_factory=dict)
    """Topic id -> first name, of renamed topics."""
    home_slots: dict[str, int] = field(default_factory=dict)
    """Name -> the slot of its topic, which was renamed to it."""
    by_causation: dict[str, list[LogEvent]] = field(default_factory=dict)
    units: dict[str, list[LogEvent]] = field(default_factory=dict)
    """Canonical name of a unit -> its topic_assigned and topic_unassigned, in order."""
    owners: dict[tuple[str, str, int], LogEvent] = field(default_factory=dict)
    """(topic id, unit, epoch) -> the event that gave it an owner."""
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
        slot = self.slot_of(key)
        if slot not in self.moved:
            return position
        leg = self.legs.leg_at(slot, shard, position)
        # At its last position the slot was released.
        return (
            None if leg is None or position == leg.last_position else order_of(leg.number, position)
        )

    def has_moved(self, key: str) -> bool:
        """Return whether the slot of ``key`` ever moved."""
        return bool(self.moved) and self.slot_of(key) in self.moved

    def slot_of(self, key: str) -> int:
        """Return the slot of what is called ``key``."""
        if self.home_slots and "://" in key:
            known = self.home_slots.get(parse_topic(key).base_text)
            if known is not None:
                return known
        return slot_of_name(key)

    def life_of(self, name: str) -> KeyLog | None:
        """Return the log of an object by any of its names."""
        first = self.names.first_of(name)
        return self.lives.get(first) or self.keys.get(first)

    def all_lives(self) -> Iterator[KeyLog]:
        """Yield the log of every object once, whatever it was called."""
        yield from (known for key, known in self.keys.items() if key not in self.names.first)
        yield from self.lives.values()

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
    if event.type in POINTERS:
        return False
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
    ordered = sorted(log, key=lambda event: event.leg) if index.moved else log
    for event in (event for event in ordered if event.type == RENAMED):
        _learn_names(index, event)
    for event in ordered:
        _take(index, event)
    return index


def kind_of_event(event: LogEvent) -> ObjectKind | None:
    """Return the kind of watch that ``event`` concerns, None if it concerns none."""
    if event.type in ASSIGNMENT_EVENTS:
        return ObjectKind.ASSIGNMENT
    return object_kind(event.key) if is_inventory_event(event) else None


def is_of_slot(event: LogEvent) -> bool:
    """Return whether ``event`` is about something whose slot says which shard decides about it."""
    return event.shard > 0 and event.key != "" and not event.type.startswith(_GATES)


def slot_of_event(event: LogEvent) -> int:
    """Return the slot of what an event is about: of a topic that in its id."""
    is_by_id = "://" in event.key and event.type not in POINTERS and is_id(event.id)
    return slot_of_id(event.id) if is_by_id else slot_of_name(event.key)


@lru_cache(maxsize=1 << 16)
def slot_of_name(key: str) -> int:
    """Return the slot of what an event or an operation is about."""
    return slot_of(parse_topic(key).routing_key if "://" in key else key)


def _take(index: LogIndex, event: LogEvent) -> None:
    if event.causation_id:
        index.by_causation.setdefault(event.causation_id, []).append(event)
    if is_inventory_event(event):
        _fold(index, event)
    elif event.type in ASSIGNMENT_EVENTS:
        index.units.setdefault(event.key, []).append(event)
        if event.type == ASSIGNED:
            index.owners.setdefault((event.id, event.unit, event.epoch), event)
    elif event.type == SESSION_ESTABLISHED:
        index.sessions[event.session_id] = event.broker_id
    elif event.type == SESSION_ENDED:
        index.ended_sessions.add(event.session_id)


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
    if not is_of_slot(event):
        return event
    slot = slot_of_event(event)
    if slot not in index.moved:
        return event
    leg = index.legs.leg_at(slot, event.shard, event.position)
    return event if leg is None else replace(event, leg=leg.number)


def _home(event: LogEvent) -> int:
    """Return the shard in whose log the events of an object are in order, 0 of slots that moved."""
    return 0 if event.leg else event.shard


def _learn_names(index: LogIndex, event: LogEvent) -> None:
    new_name = new_name_of(event)
    index.names.learn(event.key, new_name)
    index.renamed.setdefault(event.id, index.names.first_of(event.key))
    if is_id(event.id):
        index.home_slots[new_name] = slot_of_id(event.id)


def new_name_of(event: LogEvent) -> str:
    """Return the name that a rename gave."""
    return str(event.facts["new_name"])


def _fold(index: LogIndex, event: LogEvent) -> None:
    if event.type == RENAMED:
        _log_of(index.keys, event.key, event).add(_absent(event))
        _log_of(index.keys, new_name_of(event), event).add(_renamed(event))
    else:
        known = _log_of(index.keys, event.key, event)
        known.add(_after(known.before(event), event))
    first = index.renamed.get(event.id)
    if first is not None:
        life = _log_of(index.lives, first, event)
        life.add(_after(life.before(event), event))


def _log_of(logs: dict[str, KeyLog], key: str, event: LogEvent) -> KeyLog:
    known = logs.get(key)
    if known is None:
        known = logs[key] = KeyLog(key, event.shard)
    return known


def _absent(event: LogEvent) -> ObjectState:
    return ObjectState(event.order, "", 0, (), event)


def _renamed(event: LogEvent) -> ObjectState:
    """Return the topic behind a rename, as the event has it."""
    version = event.facts["version"]
    assert isinstance(version, int)
    return ObjectState(
        event.order,
        event.id,
        version,
        properties_of(event.properties),
        event,
        event.policies,
        event.policies_version,
    )


def _after(before: ObjectState | None, event: LogEvent) -> ObjectState:
    """Return the state behind an event about one object."""
    what = event.type.partition("_")[2]
    if what == "created":
        return ObjectState(event.order, event.id, 1, properties_of(event.properties), event)
    if what == "deleted" or before is None:
        return _absent(event)
    after = replace(before, order=event.order, version=before.version + 1, event=event)
    if what == "properties_set":
        return replace(after, properties=properties_of(event.properties))
    if event.type in POLICY_EVENTS:
        version = before.policies_version + 1
        return replace(after, policies=event.policies, policies_version=version)
    return after
