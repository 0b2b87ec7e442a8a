"""The state of every object after every event of the log, which reads and watches must match."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nextgen.harness.history.model import LogEvent, ObjectKind, object_kind

Properties = tuple[tuple[str, str], ...]

ASSIGNED = "topic_assigned"
UNASSIGNED = "topic_unassigned"
ASSIGNMENT_EVENTS = frozenset({ASSIGNED, UNASSIGNED})
SESSION_ESTABLISHED = "broker_session_established"
SESSION_ENDED = "broker_session_ended"

POLICY_SET = "policy_set"
POLICY_CLEARED = "policy_cleared"
POLICY_EVENTS = frozenset({POLICY_SET, POLICY_CLEARED})

_INVENTORY = frozenset({"tenant", "namespace", "topic"})


def properties_of(given: object) -> Properties:
    """Return a properties map as a value that can be compared: pairs, ascending by key."""
    return tuple(sorted(given.items())) if isinstance(given, Mapping) else ()


@dataclass(frozen=True, slots=True)
class ObjectState:
    """A tenant, namespace or topic at one position; ``id`` is "" while it is not there.

    ``version`` counts its events since it was created, as the cluster does.
    """

    position: int
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
    """The events and states of one object, in order of position."""

    key: str
    shard: int
    states: list[ObjectState] = field(default_factory=list)

    @property
    def last(self) -> ObjectState | None:
        return self.states[-1] if self.states else None

    def at(self, position: int) -> ObjectState | None:
        """Return the state after the event at ``position``, None before its first event."""
        index = bisect_right(self.states, position, key=lambda state: state.position)
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
    index = LogIndex()
    for event in log:
        index.by_shard.setdefault(event.shard, []).append(event)
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


def _fold(index: LogIndex, event: LogEvent) -> None:
    known = index.keys.get(event.key)
    if known is None:
        known = index.keys[event.key] = KeyLog(event.key, event.shard)
    before = known.last
    what = event.type.partition("_")[2]
    if what == "created":
        after = ObjectState(event.position, event.id, 1, properties_of(event.properties), event)
        if object_kind(event.key) is ObjectKind.TOPIC:
            index.topic_names[event.id] = event.key
    elif what == "deleted" or before is None:
        after = ObjectState(event.position, "", 0, (), event)
    else:
        after = replace(before, position=event.position, version=before.version + 1, event=event)
        if what == "properties_set":
            after = replace(after, properties=properties_of(event.properties))
        elif event.type in POLICY_EVENTS:
            version = before.policies_version + 1
            after = replace(after, policies=event.policies, policies_version=version)
    known.states.append(after)
