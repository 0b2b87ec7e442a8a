"""A broker's holding: the metadata it was sent, the units it serves, and the units it released.

Everything is keyed by (topic id, unit), which a rename does not change; a second index by canonical
name answers ``serving`` with two dictionary reads. Two rules make repetitions and races harmless:
an epoch below the known one of a unit changes nothing, and only a higher version of an object
replaces the present one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from brokers.domain.former_names import FormerNames, OldName
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, merge
from nextgen.kernel.limits.cluster import BROKER_TOMBSTONE_MS, BROKER_TOMBSTONES_MAX
from nextgen.kernel.limits.placement import PREPARED_MS_MAX, PREPARED_UNITS_MAX
from nextgen.kernel.routing.names import TopicName

UnitKey = tuple[str, str]
"""Topic id and the unit's text form."""


@dataclass(frozen=True, slots=True)
class TenantMetadata:
    """A tenant in the highest version that the broker manager sent."""

    tenant_id: str
    name: str
    properties: Mapping[str, str]
    version: int
    policies: Policies = NO_POLICIES


@dataclass(frozen=True, slots=True)
class NamespaceMetadata:
    """A namespace in the highest version that the broker manager sent.

    ``name`` is ``tenant/namespace``.
    """

    namespace_id: str
    name: str
    properties: Mapping[str, str]
    version: int
    policies: Policies = NO_POLICIES


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic, never a partition of one. ``partitions`` 0: not partitioned."""

    topic_id: str
    name: str
    partitions: int
    properties: Mapping[str, str]
    version: int
    policies: Policies = NO_POLICIES
    former_names: tuple[OldName, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """One unit of a topic that this broker has to serve. ``name`` includes the partition.

    ``topic`` is as of the assignment; ``Holding.topics`` has the present version.
    """

    topic: TopicMetadata
    unit: str
    name: str
    epoch: int
    shard_id: int
    take_over: bool = field(default=False, compare=False)
    """Its clients are being redirected here, so it is opened at once, not by the first of them."""

    @property
    def key(self) -> UnitKey:
        return (self.topic.topic_id, self.unit)


@dataclass(frozen=True, slots=True)
class Release:
    """This broker no longer owns a unit, up to and including ``epoch``."""

    topic_id: str
    unit: str
    name: str
    epoch: int
    new_broker_id: str
    """The unit's next broker, empty if it has none."""
    new_epoch: int
    new_broker_grpc: str
    new_broker_url: str
    is_deleted: bool = False
    """The topic is deleted, durably: its messages may go. No topic has its id again, unless a
    cluster is restored from a backup; its epochs begin in a later generation."""

    @property
    def key(self) -> UnitKey:
        return (self.topic_id, self.unit)

    @property
    def epoch_known(self) -> int:
        """The highest epoch of the unit in this release."""
        return max(self.epoch, self.new_epoch)


@dataclass(frozen=True, slots=True)
class Prepare:
    """A unit may soon be assigned here. The broker MUST NOT serve it because of this step."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Moving:
    """A unit is about to be released. The broker serves it until then."""

    release: Release


class MetadataKind(StrEnum):
    """The kinds of objects with metadata."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class MetadataRemoved:
    """An object was deleted. A later object of the same name has another id."""

    kind: MetadataKind
    name: str
    object_id: str


@dataclass(frozen=True, slots=True)
class UnknownStep:
    """A step of a later broker manager that this release does not know. It counts in the
    sequence."""


Payload = (
    TenantMetadata
    | NamespaceMetadata
    | TopicMetadata
    | MetadataRemoved
    | Assignment
    | Release
    | Prepare
    | Moving
    | UnknownStep
)


@dataclass(frozen=True, slots=True)
class _Tombstone:
    release: Release
    expires_at_ms: int


class MovingNotes:
    """The announced next brokers of units, each for ``PREPARED_MS_MAX`` after its last notice."""

    def __init__(self) -> None:
        self._notes: OrderedDict[UnitKey, tuple[Release, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._notes)

    def note(self, release: Release, now_ms: int) -> None:
        """Add a notice; with more than ``PREPARED_UNITS_MAX`` of them the oldest is dropped."""
        self._notes.pop(release.key, None)
        self._notes[release.key] = release, now_ms + PREPARED_MS_MAX
        if len(self._notes) > PREPARED_UNITS_MAX:
            self._notes.popitem(last=False)

    def get(self, key: UnitKey) -> Release | None:
        found = self._notes.get(key)
        return None if found is None else found[0]

    def drop(self, key: UnitKey) -> None:
        self._notes.pop(key, None)

    def expire(self, now_ms: int) -> None:
        """Drop expired notices."""
        while self._notes:
            key, (_, expires_at_ms) = next(iter(self._notes.items()))
            if expires_at_ms > now_ms:
                return
            del self._notes[key]


class Holding:
    """Everything that one broker session was sent. Discarded with the session.

    ``now_ms`` is any clock that never goes backwards.
    """

    def __init__(self, *, tombstones_max: int = BROKER_TOMBSTONES_MAX) -> None:
        self.tenants: dict[str, TenantMetadata] = {}
        self.namespaces: dict[str, NamespaceMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        """Topics by id, of which a unit is assigned here and that were not deleted."""
        self.assignments: dict[UnitKey, Assignment] = {}
        self._units: dict[str, dict[str, int]] = {}
        self._topic_ids: dict[str, str] = {}
        self._former = FormerNames()
        self._tombstones: OrderedDict[UnitKey, _Tombstone] = OrderedDict()
        self._assigned_by_name: dict[str, Assignment] = {}
        self._released_by_name: dict[str, UnitKey] = {}
        self._tombstones_max = tombstones_max
        self._going = MovingNotes()

    def __repr__(self) -> str:
        return (
            f"<Holding units={len(self.assignments)} tombstones={len(self._tombstones)} "
            f"topics={len(self.topics)} namespaces={len(self.namespaces)} "
            f"tenants={len(self.tenants)}>"
        )

    @property
    def tombstones(self) -> int:
        """Number of units that are remembered as released."""
        return len(self._tombstones)

    def apply(self, payload: Payload, now_ms: int) -> bool:
        """Apply one step of the session's sequence; applying it again changes nothing.

        Returns whether listeners must be notified: for an assignment or a release that no later
        step overtook, for metadata with changed policies, and for a ``Prepare``, although that
        does not change the served units.
        """
        self.expire(now_ms)
        match payload:
            case TenantMetadata():
                return self._learn_tenant(payload)
            case NamespaceMetadata():
                return self._learn_namespace(payload)
            case TopicMetadata():
                return self._learn_topic(payload)
            case MetadataRemoved():
                self._remove(payload)
            case Assignment():
                return self._assign(payload)
            case Release():
                return self._release(payload, now_ms)
            case Moving():
                self._note_moving(payload.release, now_ms)
            case Prepare():
                return True
        return False

    def expire(self, now_ms: int) -> None:
        """Drop expired tombstones and expired notices of moves."""
        self._going.expire(now_ms)
        while self._tombstones:
            key, tombstone = next(iter(self._tombstones.items()))
            if tombstone.expires_at_ms > now_ms:
                return
            self._drop_tombstone(key)

    def assigned(self, name: str) -> Assignment | None:
        """Return the assignment of a canonical name, if it is served here."""
        return self._assigned_by_name.get(name)

    def held(self, name: TopicName, unix_ms: int) -> Assignment | None:
        """Return the assignment of a name, a former one within its grace included."""
        found = self._assigned_by_name.get(name.text)
        if found is not None or not self._former:
            return found
        topic_id = self._former.topic_id(name.base_text, unix_ms)
        return self.assignments.get((topic_id, name.unit.text))

    def released(self, name: str, now_ms: int) -> Release | None:
        """Return the release of a canonical name, while it is remembered."""
        key = self._released_by_name.get(name)
        if key is None:
            return None
        tombstone = self._tombstones[key]
        return tombstone.release if tombstone.expires_at_ms > now_ms else None

    def going_to(self, key: UnitKey, epoch: int) -> str:
        """Return the Pulsar URL of a unit's announced next broker; "" if there is none."""
        note = self._going.get(key)
        return note.new_broker_url if note is not None and note.new_epoch > epoch else ""

    def topic(self, name: str) -> TopicMetadata | None:
        """Return the topic of this name, given without a partition, if a unit of it is held."""
        topic_id = self._topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)

    def units(self, topic_id: str) -> Mapping[str, int]:
        """Return the held units of a topic, each with its epoch."""
        return self._units.get(topic_id, {})

    def has_metadata(self, assignment: Assignment) -> bool:
        """Return whether the tenant, namespace and topic of a held unit are known too."""
        tenant, namespace = _parents_of(assignment)
        return (
            tenant in self.tenants
            and namespace in self.namespaces
            and assignment.topic.topic_id in self.topics
        )

    def policies(self, assignment: Assignment) -> Policies:
        """Return the merged policies of a held unit, from its known metadata."""
        tenant_name, namespace_name = _parents_of(assignment)
        tenant = self.tenants.get(tenant_name)
        namespace = self.namespaces.get(namespace_name)
        topic = self.topics.get(assignment.topic.topic_id)
        return merge(
            NO_POLICIES if tenant is None else tenant.policies,
            NO_POLICIES if namespace is None else namespace.policies,
            NO_POLICIES if topic is None else topic.policies,
        )

    def overrides(self, assignment: Assignment, stored: str) -> tuple[str, str]:
        """Return the policy stored as ``stored`` of a held unit's namespace and of its topic, ""
        where there is none: for policies whose fields are merged by whoever knows them. A
        namespace without one has its tenant's."""
        tenant_name, namespace_name = _parents_of(assignment)
        tenant = self.tenants.get(tenant_name)
        namespace = self.namespaces.get(namespace_name)
        topic = self.topics.get(assignment.topic.topic_id)
        of_tenant, of_namespace, own = (
            "" if each is None else dict(each.policies.stored).get(stored, "")
            for each in (tenant, namespace, topic)
        )
        return of_namespace or of_tenant, own

    def _learn_tenant(self, tenant: TenantMetadata) -> bool:
        held = self.tenants.get(tenant.name)
        if held is None or held.tenant_id != tenant.tenant_id or held.version < tenant.version:
            self.tenants[tenant.name] = tenant
            return tenant.policies != (NO_POLICIES if held is None else held.policies)
        return False

    def _learn_namespace(self, namespace: NamespaceMetadata) -> bool:
        held = self.namespaces.get(namespace.name)
        if (
            held is None
            or held.namespace_id != namespace.namespace_id
            or held.version < namespace.version
        ):
            self.namespaces[namespace.name] = namespace
            return namespace.policies != (NO_POLICIES if held is None else held.policies)
        return False

    def _learn_topic(self, topic: TopicMetadata) -> bool:
        if topic.topic_id not in self._units:
            return False
        held = self.topics.get(topic.topic_id)
        if held is None or held.version < topic.version:
            self._forget_topic(topic.topic_id)
            self.topics[topic.topic_id] = topic
            self._topic_ids[topic.name] = topic.topic_id
            self._former.add(topic.topic_id, topic.former_names)
            return topic.policies != (NO_POLICIES if held is None else held.policies)
        return False

    def _remove(self, removed: MetadataRemoved) -> None:
        match removed.kind:
            case MetadataKind.TENANT:
                tenant = self.tenants.get(removed.name)
                if tenant is not None and tenant.tenant_id == removed.object_id:
                    del self.tenants[removed.name]
            case MetadataKind.NAMESPACE:
                namespace = self.namespaces.get(removed.name)
                if namespace is not None and namespace.namespace_id == removed.object_id:
                    del self.namespaces[removed.name]
            case MetadataKind.TOPIC:
                # The topic's units stay until each is released.
                self._forget_topic(removed.object_id)

    def _assign(self, assignment: Assignment) -> bool:
        key = assignment.key
        held = self.assignments.get(key)
        if held is not None and held.epoch > assignment.epoch:
            return False
        tombstone = self._tombstones.get(key)
        if tombstone is not None:
            if tombstone.release.epoch_known >= assignment.epoch:
                return False
            self._drop_tombstone(key)
        if held is not None:
            # A topic that was renamed may be assigned before its release arrives.
            self._drop_name(held)
        self.assignments[key] = assignment
        self._assigned_by_name[assignment.name] = assignment
        topic = assignment.topic
        self._units.setdefault(topic.topic_id, {})[assignment.unit] = assignment.epoch
        self._learn_topic(topic)
        return True

    def _note_moving(self, release: Release, now_ms: int) -> None:
        held = self.assignments.get(release.key)
        if held is not None and held.epoch == release.epoch:
            self._going.note(release, now_ms)

    def _release(self, release: Release, now_ms: int) -> bool:
        key = release.key
        held = self.assignments.get(key)
        if held is not None:
            if held.epoch > release.epoch:
                return False
            del self.assignments[key]
            self._going.drop(key)
            self._drop_unit(held)
            self._drop_name(held)
        earlier = self._tombstones.get(key)
        if earlier is not None:
            known = earlier.release
            if known.epoch_known >= release.epoch_known:
                if known.is_deleted or not release.is_deleted:
                    return held is not None
                # The unit was released here before its topic was deleted: its messages are here.
                release = replace(release, epoch=known.epoch_known)
            self._drop_tombstone(key)
        self._tombstones[key] = _Tombstone(release, now_ms + BROKER_TOMBSTONE_MS)
        self._released_by_name[release.name] = key
        if len(self._tombstones) > self._tombstones_max:
            self._drop_tombstone(next(iter(self._tombstones)))
        return True

    def _drop_unit(self, assignment: Assignment) -> None:
        topic = assignment.topic
        units = self._units[topic.topic_id]
        del units[assignment.unit]
        if units:
            return
        del self._units[topic.topic_id]
        self._forget_topic(topic.topic_id)

    def _drop_name(self, assignment: Assignment) -> None:
        # A topic that was created again has the same name and another id: it stays.
        if self._assigned_by_name.get(assignment.name) == assignment:
            del self._assigned_by_name[assignment.name]

    def _forget_topic(self, topic_id: str) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is None:
            return
        self._former.drop(topic_id, topic.former_names)
        if self._topic_ids.get(topic.name) == topic_id:
            del self._topic_ids[topic.name]

    def _drop_tombstone(self, key: UnitKey) -> None:
        name = self._tombstones.pop(key).release.name
        if self._released_by_name.get(name) == key:
            del self._released_by_name[name]


def _parents_of(assignment: Assignment) -> tuple[str, str]:
    """Return the names of the tenant and of the namespace of a unit."""
    _, _, path = assignment.name.partition("://")
    tenant, namespace, _ = path.split("/", 2)
    return tenant, f"{tenant}/{namespace}"
