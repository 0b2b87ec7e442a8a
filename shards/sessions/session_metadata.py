"""The tenants, namespaces and topics that one broker session was sent, with their versions.

A topic is held while a unit of it is; tenants and namespaces while the session lives. A later
leader learns them from the broker, see ``take_report``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Protocol

from nextgen.kernel.errors import MetadataError, Overloaded
from nextgen.kernel.limits.cluster import SESSION_METADATA_MAX
from nextgen.kernel.limits.stream import RELEASED_UNITS_REMEMBERED_MAX
from protos.nextgen.v1.broker_service_pb2 import Delivery, HeldMetadata, HeldObject
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
    Topic,
)
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment, TopicRelease


class DeliverySequence(Protocol):
    """The part of a session's sequence that metadata needs."""

    @property
    def metadata(self) -> SessionMetadata: ...

    @property
    def sequence(self) -> int:
        """Number of the last delivery."""
        ...

    @property
    def acked(self) -> int:
        """Everything up to it was applied by the broker."""
        ...

    @property
    def ended(self) -> MetadataError | None:
        """Why the session ended; None while it lives."""
        ...

    @property
    def unsynced(self) -> int:
        """Number of deliveries that the broker has not synced."""
        ...

    def append(self, delivery: Delivery) -> int: ...


class Sent:
    """One object that is in a session's sequence. Equal to nothing but itself."""

    __slots__ = (
        *("is_gone", "kind", "name", "object_id", "session"),
        *("trace_id", "units", "version"),
    )

    def __init__(
        self, session: DeliverySequence, kind: Kind, name: str, object_id: str, version: int
    ) -> None:
        self.session = session
        self.kind = kind
        self.name = name
        """Of a topic that was renamed the one of ``version``, see ``MetadataWatch.rename``."""
        self.object_id = object_id
        self.version = version
        """The highest that was sent."""
        self.units: dict[str, int] = _NO_UNITS
        """For a topic: the units that the session holds, with their epochs. Change it by
        ``note_unit`` and ``drop_unit``: objects with one unit or none share it."""
        self.trace_id = ""
        """Trace id of the lookup for which it was sent, if that was traced."""
        self.is_gone = False
        """Whether it was deleted, and the broker has not been sent that yet."""

    def __repr__(self) -> str:
        return f"<Sent {self.name} id={self.object_id} version={self.version}>"

    def note_unit(self, unit: str, epoch: int) -> None:
        """Note a unit as held, or that it has a later epoch."""
        if not self.units or (len(self.units) == 1 and unit in self.units):
            self.units = _alone(unit, epoch)
            return
        if len(self.units) == 1:
            self.units = dict(self.units)
        self.units[unit] = epoch

    def drop_unit(self, unit: str) -> None:
        """Note a unit as held no more."""
        if len(self.units) > 2:
            del self.units[unit]
            return
        left = [each for each in self.units.items() if each[0] != unit]
        self.units = _alone(*left[0]) if left else _NO_UNITS


_NO_UNITS: dict[str, int] = {}


@lru_cache(maxsize=1_024)
def _alone(unit: str, epoch: int) -> dict[str, int]:
    """Return one unit with its epoch; all topics that have the same share it. Nearly every topic
    has one unit, and a map of its own would be a third of what is kept of it."""
    return {unit: epoch}


class SessionMetadata:
    """The objects of one session, as its present leader knows them."""

    def __init__(self, session: DeliverySequence) -> None:
        self._session = session
        self._parents: dict[str, Sent] = {}
        self._topics: dict[str, Sent] = {}
        self._released: dict[tuple[str, str], int] = {}
        self._orphans: dict[tuple[str, str], int] = {}
        """Units of topics that were deleted: held, with these epochs, until they are released."""
        self._units = 0
        self.units_unreported: int | None = 0
        """While a report is awaited: the number of units in the broker's hello; None without
        one."""
        self.awaits_report = False
        """Whether the broker's report of its holding was requested and is not complete."""
        self.is_refused = False
        """The session is to end: not everything that its broker reported can be followed."""
        self.behind: dict[Sent, None] = {}
        """Objects whose last change waits until the broker has synced more."""

    def __repr__(self) -> str:
        return f"<SessionMetadata parents={len(self._parents)} topics={len(self._topics)}>"

    def __iter__(self) -> Iterator[Sent]:
        yield from tuple(self._parents.values())
        yield from tuple(self._topics.values())

    def topic(self, topic_id: str) -> Sent | None:
        """Return the topic of an id if the session holds a unit of it."""
        return self._topics.get(topic_id)

    def has_parent(self, name: str, object_id: str = "") -> bool:
        """Return whether the session has the tenant or namespace called ``name``.

        With ``object_id``, whether it has that one and not an earlier one of the name.
        """
        sent = self._parents.get(name)
        if sent is None or sent.is_gone:
            return False
        return object_id in ("", sent.object_id)

    def trace_of(self, name: str) -> str:
        """Return the id of the trace in which a tenant or namespace was sent, "" if of none."""
        sent = self._parents.get(name)
        return "" if sent is None else sent.trace_id

    @property
    def parent_count(self) -> int:
        """Tenants and namespaces of the session."""
        return len(self._parents)

    def has_parent_room(self, names: Iterable[str]) -> bool:
        """Return whether the session may have tenants and namespaces of these names as well."""
        added = sum(name not in self._parents for name in names)
        return len(self._parents) + added <= SESSION_METADATA_MAX

    def note_parent(self, item: Item) -> tuple[Sent, Sent | None]:
        """Note a tenant or namespace as sent; return it and the one of its name that it replaces.

        Raises:
            Overloaded: The session has ``SESSION_METADATA_MAX``; check ``has_parent_room`` before.
        """
        version = item.tenant.version if item.kind == KIND_TENANT else item.namespace.version
        return self._add_parent(Sent(self._session, item.kind, item.name, parent_id(item), version))

    def note_assigned(self, assignment: TopicAssignment) -> Sent | None:
        """Note a unit as held; None if the broker has already released a later epoch."""
        topic = assignment.topic
        if self._released.get((topic.topic_id, assignment.unit), -1) >= assignment.epoch:
            return None
        sent = self._topic(topic)
        sent.version = max(sent.version, topic.version)
        self._note_unit(sent, assignment.unit, assignment.epoch)
        return sent

    def note_released(self, release: TopicRelease) -> Sent | None:
        """Note a unit as released; return its topic if the session has no other unit of it."""
        key = (release.topic_id, release.unit)
        self._released[key] = max(
            release.epoch, release.new_epoch, self._released.pop(key, release.epoch)
        )
        if len(self._released) > RELEASED_UNITS_REMEMBERED_MAX:
            del self._released[next(iter(self._released))]
        if self._orphans.get(key, release.epoch + 1) <= release.epoch:
            del self._orphans[key]
            self._units -= 1
        sent = self._topics.get(release.topic_id)
        if sent is None or sent.units.get(release.unit, release.epoch + 1) > release.epoch:
            return None
        sent.drop_unit(release.unit)
        self._units -= 1
        if sent.units:
            return None
        self.forget(sent)
        return sent

    def forget(self, sent: Sent) -> None:
        """Remove an object that the session no longer has."""
        self.behind.pop(sent, None)
        if self._topics.get(sent.object_id) is sent:
            del self._topics[sent.object_id]
            for unit, epoch in sent.units.items():
                self._orphans[sent.object_id, unit] = epoch
        elif self._parents.get(sent.name) is sent:
            del self._parents[sent.name]

    def take_report(self, held: HeldMetadata) -> list[Sent]:
        """Apply a broker's report of its holding, as of some moment since it reconnected.

        Where they differ, this leader's own deliveries and releases override the report. Returns
        the objects that are new by the report.

        Raises:
            Overloaded: The broker holds more than ``SESSION_METADATA_MAX`` tenants and namespaces.
        """
        learned: list[Sent] = []
        for each in held.objects:
            if each.kind == KIND_TOPIC:
                sent = self._report_topic(each)
            else:
                sent = self._report_parent(each)
            learned += [sent] if sent is not None else []
        if held.complete:
            self.awaits_report = False
            self.units_unreported = 0
        return learned

    def _report_parent(self, held: HeldObject) -> Sent | None:
        if held.kind not in (KIND_TENANT, KIND_NAMESPACE) or held.name in self._parents:
            return None
        sent = Sent(self._session, held.kind, held.name, held.id, held.version)
        return self._add_parent(sent)[0]

    def _report_topic(self, held: HeldObject) -> Sent | None:
        units = {
            each.unit: each.epoch
            for each in held.units
            if self._released.get((held.id, each.unit), -1) < each.epoch
        }
        if not units:
            return None
        is_known = held.id in self._topics
        sent = self._topic(Topic(topic_id=held.id, name=held.name, version=held.version))
        sent.version = max(sent.version, held.version)
        for unit, epoch in units.items():
            self._note_unit(sent, unit, epoch)
        return None if is_known else sent

    @property
    def units(self) -> int | None:
        """Number of units that the broker has. While its report is awaited this is an upper bound,
        because reported units count twice. None if it is unknown before the report is complete."""
        return None if self.units_unreported is None else self._units + self.units_unreported

    def units_added(self, assignments: Iterable[TopicAssignment]) -> int:
        """Return how many of these units the broker is not known to have."""
        return sum(1 for each in assignments if not self._has_unit(each.topic.topic_id, each.unit))

    def _has_unit(self, topic_id: str, unit: str) -> bool:
        sent = self._topics.get(topic_id)
        return (sent is not None and unit in sent.units) or (topic_id, unit) in self._orphans

    def _note_unit(self, sent: Sent, unit: str, epoch: int) -> None:
        if unit not in sent.units and self._orphans.pop((sent.object_id, unit), None) is None:
            self._units += 1
        sent.note_unit(unit, max(epoch, sent.units.get(unit, epoch)))

    def _topic(self, topic: Topic) -> Sent:
        sent = self._topics.get(topic.topic_id)
        if sent is None:
            sent = Sent(self._session, KIND_TOPIC, topic.name, topic.topic_id, topic.version)
            self._topics[topic.topic_id] = sent
        return sent

    def _add_parent(self, sent: Sent) -> tuple[Sent, Sent | None]:
        replaced = self._parents.get(sent.name)
        if replaced is None and len(self._parents) >= SESSION_METADATA_MAX:
            # Forgetting another object would leave the broker with a policy that is no longer
            # updated.
            raise Overloaded(f"a session has {SESSION_METADATA_MAX} tenants and namespaces")
        if replaced is not None:
            self.forget(replaced)
        self._parents[sent.name] = sent
        return sent, replaced


def parent_id(item: Item) -> str:
    """Return the id of a tenant or namespace."""
    return item.tenant.tenant_id if item.kind == KIND_TENANT else item.namespace.namespace_id
