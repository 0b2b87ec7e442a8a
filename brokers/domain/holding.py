"""What a broker holds: metadata it was sent, units it serves, and what it let go of.

Everything is keyed by (topic id, unit); a second index by canonical name answers ``serving``
with two dictionary reads. The rule that makes repeats and races harmless: an epoch that is
lower than one already known for the same unit changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from nextgen.kernel.limits import BROKER_TOMBSTONE_MS, BROKER_TOMBSTONES_MAX

UnitKey = tuple[str, str]
"""Topic id and the unit's text form."""


@dataclass(frozen=True, slots=True)
class TenantMetadata:
    """A tenant as the broker manager last sent it."""

    tenant_id: str
    name: str
    properties: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class NamespaceMetadata:
    """A namespace as the broker manager last sent it. ``name`` is ``tenant/namespace``."""

    namespace_id: str
    name: str
    properties: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as it was when the unit was assigned. ``partitions`` 0: not partitioned."""

    topic_id: str
    name: str
    partitions: int
    properties: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """One unit of a topic that this broker is to serve. ``name`` includes the partition."""

    topic: TopicMetadata
    unit: str
    name: str
    epoch: int
    shard_id: int

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
    """Where the unit went, empty when it went nowhere."""
    new_epoch: int
    new_broker_grpc: str
    new_broker_url: str

    @property
    def key(self) -> UnitKey:
        return (self.topic_id, self.unit)

    @property
    def epoch_known(self) -> int:
        """The highest epoch of the unit that this release speaks of."""
        return max(self.epoch, self.new_epoch)


Payload = TenantMetadata | NamespaceMetadata | Assignment | Release


@dataclass(frozen=True, slots=True)
class _Tombstone:
    release: Release
    expires_at_ms: int


class Holding:
    """Everything one broker session was given. Thrown away with the session.

    ``now_ms`` is any clock that never goes backwards.
    """

    def __init__(self, *, tombstones_max: int = BROKER_TOMBSTONES_MAX) -> None:
        self.tenants: dict[str, TenantMetadata] = {}
        self.namespaces: dict[str, NamespaceMetadata] = {}
        self.assignments: dict[UnitKey, Assignment] = {}
        self._tombstones: OrderedDict[UnitKey, _Tombstone] = OrderedDict()
        self._assigned_by_name: dict[str, Assignment] = {}
        self._released_by_name: dict[str, UnitKey] = {}
        self._tombstones_max = tombstones_max

    def __repr__(self) -> str:
        return (
            f"<Holding units={len(self.assignments)} tombstones={len(self._tombstones)} "
            f"namespaces={len(self.namespaces)} tenants={len(self.tenants)}>"
        )

    @property
    def tombstones(self) -> int:
        """How many units are remembered as released."""
        return len(self._tombstones)

    def apply(self, payload: Payload, now_ms: int) -> bool:
        """Take in one step of the session's sequence; applying it again changes nothing.

        Returns whether it was an assignment or a release that nothing later had overtaken.
        """
        self.expire(now_ms)
        match payload:
            case TenantMetadata():
                self.tenants[payload.name] = payload
            case NamespaceMetadata():
                self.namespaces[payload.name] = payload
            case Assignment():
                return self._assign(payload)
            case Release():
                return self._release(payload, now_ms)
        return False

    def expire(self, now_ms: int) -> None:
        """Forget the tombstones whose time is over."""
        while self._tombstones:
            key, tombstone = next(iter(self._tombstones.items()))
            if tombstone.expires_at_ms > now_ms:
                return
            self._drop_tombstone(key)

    def assigned(self, name: str) -> Assignment | None:
        """Return what is served under a canonical name."""
        return self._assigned_by_name.get(name)

    def released(self, name: str, now_ms: int) -> Release | None:
        """Return how a canonical name was let go of, while that is remembered."""
        key = self._released_by_name.get(name)
        if key is None:
            return None
        tombstone = self._tombstones[key]
        return tombstone.release if tombstone.expires_at_ms > now_ms else None

    def has_metadata(self, assignment: Assignment) -> bool:
        """Return whether tenant and namespace of a held unit are here as well."""
        _, _, path = assignment.name.partition("://")
        tenant, namespace, _ = path.split("/", 2)
        return tenant in self.tenants and f"{tenant}/{namespace}" in self.namespaces

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
        self.assignments[key] = assignment
        self._assigned_by_name[assignment.name] = assignment
        return True

    def _release(self, release: Release, now_ms: int) -> bool:
        key = release.key
        held = self.assignments.get(key)
        if held is not None:
            if held.epoch > release.epoch:
                return False
            del self.assignments[key]
            # A topic deleted and created again has the name but another id: it stays.
            if self._assigned_by_name.get(held.name) == held:
                del self._assigned_by_name[held.name]
        earlier = self._tombstones.get(key)
        if earlier is not None:
            if earlier.release.epoch_known >= release.epoch_known:
                return held is not None
            self._drop_tombstone(key)
        self._tombstones[key] = _Tombstone(release, now_ms + BROKER_TOMBSTONE_MS)
        self._released_by_name[release.name] = key
        if len(self._tombstones) > self._tombstones_max:
            self._drop_tombstone(next(iter(self._tombstones)))
        return True

    def _drop_tombstone(self, key: UnitKey) -> None:
        name = self._tombstones.pop(key).release.name
        if self._released_by_name.get(name) == key:
            del self._released_by_name[name]
