"""The changes that a watch yields, each with the token to resume behind it, and their fold.

    RESET ─▶ PRESENT, PRESENT, … ─▶ SNAPSHOT_COMPLETE ─▶ CREATED, PROPERTIES_SET, DELETED, …

Each shard has such a sequence of its own; a watch interleaves them. ``WatchedObjects`` folds them
into the present objects. The rename of a topic is DELETED and CREATED, of the same topic id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from nextgen.client.model import (
    Namespace,
    ShardState,
    Tenant,
    Topic,
    namespace_of,
    tenant_of,
    topic_of,
)
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.routing.slots import SHARD_ID_MAX
from protos.nextgen.v1 import inventory_pb2, policies_pb2
from protos.nextgen.v1.events_pb2 import Event, TopicRenamed
from protos.nextgen.v1.inventory_pb2 import Item

POSITION_MAX = 2**63 - 1
"""The highest position of an event in a shard's log."""


class ChangeKind(StrEnum):
    """The kind of a change."""

    RESET = "reset"
    """Forget all objects of this shard: changes were missed. A snapshot follows."""

    PRESENT = "present"
    """Part of the snapshot: this object exists."""

    SNAPSHOT_COMPLETE = "snapshot_complete"
    """The snapshot of this shard was as of ``position``; changes follow."""

    PROGRESS = "progress"
    """The watch has every change up to the positions of the token."""

    CREATED = "created"
    PROPERTIES_SET = "properties_set"
    POLICIES_SET = "policies_set"
    PARTITIONS_GROWN = "partitions_grown"
    DELETION_STARTED = "deletion_started"
    DELETION_ABORTED = "deletion_aborted"
    DELETED = "deleted"
    ASSIGNED = "assigned"
    UNASSIGNED = "unassigned"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owner of a topic or a partition; ``broker_id`` is empty once it has none.

    ``epoch`` grows with each assignment of this unit. ``unit`` is "" for a whole topic.
    """

    name: str
    topic_id: str
    unit: str
    epoch: int
    broker_id: str
    session_id: str


Value = TypeVar("Value", Tenant, Namespace, Topic, Assignment)


@dataclass(frozen=True, slots=True)
class Change(Generic[Value]):
    """One change. A watch resumes behind it with ``token``; "" means from the beginning.

    ``value`` is the whole object with PRESENT, CREATED, ASSIGNED and UNASSIGNED. ``properties``
    are all its properties after PROPERTIES_SET, ``policies`` all its own policies after
    POLICIES_SET: ``NO_POLICIES`` once they are cleared.
    """

    kind: ChangeKind
    token: str
    shard_id: int = 0
    name: str = ""
    value: Value | None = None
    properties: Mapping[str, str] | None = None
    position: int = 0
    time_ms: int = 0
    """The leader's wall clock when the change was proposed; 0 where unknown."""

    policies: Policies | None = None


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The shard map and its leaders, as one discovery node knows them."""

    version: int
    shards: tuple[ShardState, ...]


class WatchedObjects(Generic[Value]):
    """The present objects according to the changes of one watch: ``apply`` each, in order.

    Equal to a listing as of the watch's positions once every shard's snapshot is complete.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, Value]] = {}

    def __repr__(self) -> str:
        return f"<WatchedObjects {len(self._by_name)}>"

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def get(self, name: str) -> Value | None:
        """Return the object of this name, None if there is none."""
        known = self._by_name.get(name)
        return known[1] if known is not None else None

    def by_name(self) -> dict[str, Value]:
        """Return all of them."""
        return {name: value for name, (_, value) in self._by_name.items()}

    def apply(self, change: Change[Value]) -> None:
        """Take in ``change``."""
        match change.kind:
            case ChangeKind.RESET:
                self._forget(change.shard_id)
            case ChangeKind.PRESENT | ChangeKind.CREATED | ChangeKind.ASSIGNED:
                assert change.value is not None, f"{change.kind} carries the whole object"
                self._by_name[change.name] = change.shard_id, change.value
            case ChangeKind.DELETED | ChangeKind.UNASSIGNED:
                known = self._by_name.get(change.name)
                # Another shard may have got the name since, for a topic that was renamed.
                if known is not None and known[0] == change.shard_id:
                    del self._by_name[change.name]
            case ChangeKind.PROPERTIES_SET:
                self._alter(change.name, properties=change.properties)
            case ChangeKind.POLICIES_SET:
                self._alter(change.name)
            case ChangeKind.DELETION_STARTED:
                self._alter(change.name, is_deleting=True)
            case ChangeKind.DELETION_ABORTED:
                self._alter(change.name, is_deleting=False)

    def _alter(self, name: str, **changed: Any) -> None:
        known = self._by_name.get(name)
        if known is None:
            return  # A watch that began without a snapshot does not know it.
        shard_id, value = known
        assert not isinstance(value, Assignment), "assignments are replaced as a whole"
        self._by_name[name] = shard_id, replace(value, version=value.version + 1, **changed)

    def _forget(self, shard_id: int) -> None:
        self._by_name = {
            name: known for name, known in self._by_name.items() if known[0] != shard_id
        }


# Tokens --------------------------------------------------------------------------------------


def token_of(positions: Mapping[int, int]) -> str:
    """Return positions by shard as a token."""
    return ",".join(f"{shard_id}:{position}" for shard_id, position in sorted(positions.items()))


def parse_token(token: str) -> dict[int, int]:
    """Return the positions in a token.

    Raises:
        InvalidRequest: It is malformed.
    """
    positions: dict[int, int] = {}
    for part in token.split(",") if token else ():
        shard, separator, position = part.partition(":")
        if not separator or not _is_number(shard) or not _is_number(position):
            raise InvalidRequest(
                f"{token[:80]!a} is no token of a watch: {part[:40]!a} is not SHARD:POSITION"
            )
        shard_id = int(shard)
        if not 1 <= shard_id <= SHARD_ID_MAX or not 1 <= int(position) <= POSITION_MAX:
            raise InvalidRequest(f"the token of a watch has no such place: {part[:40]!a}")
        if shard_id in positions:
            raise InvalidRequest(f"the token of a watch has shard {shard_id} twice")
        positions[shard_id] = int(position)
    return positions


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(POSITION_MAX))


# From the wire -------------------------------------------------------------------------------


def assignment_of(message: inventory_pb2.UnitAssignment) -> Assignment:
    return Assignment(
        name=message.name,
        topic_id=message.topic_id,
        unit=message.unit,
        epoch=message.epoch,
        broker_id=message.broker_id,
        session_id=message.session_id,
    )


def present(item: Item, shard_id: int, token: str) -> Change[Any] | None:
    """Return the change for an item of a snapshot, None if its kind is unknown here."""
    make = _VALUES.get(item.WhichOneof("value"))
    if make is None:
        return None
    return Change(ChangeKind.PRESENT, token, shard_id, item.name, make(item))


def happened(event: Event, shard_id: int, token: str) -> Change[Any] | None:
    """Return the change for an event, None if its kind is unknown here."""
    payload = event.WhichOneof("payload")
    known = _EVENTS.get(payload) if payload is not None else None
    if payload is None or known is None:
        return None
    kind, make = known
    message = getattr(event, payload)
    return Change(
        kind,
        token,
        shard_id,
        message.name,
        make(message, event) if make is not None else None,
        dict(message.properties) if kind is ChangeKind.PROPERTIES_SET else None,
        event.position,
        event.time_ms,
        _policies_of(payload, message) if kind is ChangeKind.POLICIES_SET else None,
    )


def renamed(
    event: Event, shard_id: int, before: str, token: str, wants: Callable[[str], bool]
) -> list[Change[Topic]]:
    """Return the changes for a rename, those of the names that the watch ``wants``.

    ``token`` resumes behind the event, ``before`` in front of it: whoever has applied the first of
    two changes alone gets both again.
    """
    message = event.topic_renamed
    changes: list[Change[Topic]] = []
    is_created = wants(message.new_name)
    if wants(message.name):
        at = before if is_created else token
        kind = ChangeKind.DELETED
        changes.append(_of_topic(kind, at, event, shard_id, message.name))
    if is_created:
        changes.append(
            _of_topic(
                ChangeKind.CREATED,
                token,
                event,
                shard_id,
                message.new_name,
                _renamed_topic(message),
            )
        )
    return changes


def _of_topic(
    kind: ChangeKind,
    token: str,
    event: Event,
    shard_id: int,
    name: str,
    value: Topic | None = None,
) -> Change[Topic]:
    return Change(
        kind, token, shard_id, name, value, position=event.position, time_ms=event.time_ms
    )


def _renamed_topic(message: TopicRenamed) -> Topic:
    return Topic(
        name=message.new_name,
        topic_id=message.topic_id,
        partitions=message.partitions,
        properties=dict(message.properties),
        version=message.version,
        namespace_id=message.namespace_id,
        created_time_ms=message.created_time_ms,
    )


def _policies_of(payload: str, message: Any) -> Policies:
    if payload == "policy_cleared":
        return NO_POLICIES
    return policies_from_proto(policies_pb2.Policies.FromString(message.policy))


def _created_tenant(message: Any, _event: Event) -> Tenant:
    return Tenant(message.name, message.tenant_id, dict(message.properties), 1, is_deleting=False)


def _created_namespace(message: Any, _event: Event) -> Namespace:
    return Namespace(
        name=message.name,
        namespace_id=message.namespace_id,
        tenant_id=message.tenant_id,
        properties=dict(message.properties),
        version=1,
        is_deleting=False,
    )


def _created_topic(message: Any, event: Event) -> Topic:
    return Topic(
        name=message.name,
        topic_id=message.topic_id,
        partitions=message.partitions,
        properties=dict(message.properties),
        version=1,
        namespace_id=message.namespace_id,
        created_time_ms=event.time_ms,
    )


def _assigned(message: Any, _event: Event) -> Assignment:
    return Assignment(
        name=message.name,
        topic_id=message.topic_id,
        unit=message.unit,
        epoch=message.epoch,
        broker_id=message.broker_id,
        session_id=message.session_id,
    )


def _unassigned(message: Any, _event: Event) -> Assignment:
    return Assignment(
        name=message.name,
        topic_id=message.topic_id,
        unit=message.unit,
        epoch=message.epoch,
        broker_id="",
        session_id="",
    )


_VALUES: Mapping[str | None, Callable[[Item], Any]] = {
    "tenant": lambda item: tenant_of(item.tenant),
    "namespace": lambda item: namespace_of(item.namespace),
    "topic": lambda item: topic_of(item.topic),
    "assignment": lambda item: assignment_of(item.assignment),
}

_Make = Callable[[Any, Event], Any]

_EVENTS: Mapping[str, tuple[ChangeKind, _Make | None]] = {
    "tenant_created": (ChangeKind.CREATED, _created_tenant),
    "tenant_properties_set": (ChangeKind.PROPERTIES_SET, None),
    "tenant_deletion_started": (ChangeKind.DELETION_STARTED, None),
    "tenant_deletion_aborted": (ChangeKind.DELETION_ABORTED, None),
    "tenant_deleted": (ChangeKind.DELETED, None),
    "namespace_created": (ChangeKind.CREATED, _created_namespace),
    "namespace_properties_set": (ChangeKind.PROPERTIES_SET, None),
    "namespace_deletion_started": (ChangeKind.DELETION_STARTED, None),
    "namespace_deletion_aborted": (ChangeKind.DELETION_ABORTED, None),
    "namespace_deleted": (ChangeKind.DELETED, None),
    "topic_created": (ChangeKind.CREATED, _created_topic),
    "topic_properties_set": (ChangeKind.PROPERTIES_SET, None),
    "topic_deleted": (ChangeKind.DELETED, None),
    "topic_partitions_grown": (ChangeKind.PARTITIONS_GROWN, None),
    "policy_set": (ChangeKind.POLICIES_SET, None),
    "policy_cleared": (ChangeKind.POLICIES_SET, None),
    "topic_assigned": (ChangeKind.ASSIGNED, _assigned),
    "topic_unassigned": (ChangeKind.UNASSIGNED, _unassigned),
}
