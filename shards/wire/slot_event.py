"""Events of moves of slots, and the rows that move: a part of ``wire.event``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nextgen.client.wire.fields import REPEATED, Conversion, FieldMap
from protos.nextgen.v1 import events_pb2 as pb
from shards.domain import shard
from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.renames.names import FormerName, OldName, TopicPointer
from shards.domain.shadows.source import ShadowSource
from shards.domain.slots import events as slots
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.wire.scalable import (
    scalable_topic_message,
    scalable_topic_state,
    topic_loads_message,
    topic_loads_state,
)
from shards.wire.session_event import ENDPOINTS


def to_ranges(ranges: slots.SlotRanges) -> list[pb.SlotRange]:
    """Return ranges of slots as they are stored and sent."""
    return [pb.SlotRange(first=first, last=last) for first, last in ranges]


def from_ranges(stored: Sequence[pb.SlotRange]) -> slots.SlotRanges:
    """Return the ranges that ``to_ranges`` made."""
    return tuple([(each.first, each.last) for each in stored])


_RANGES: Conversion = (to_ranges, from_ranges)
UNITS = FieldMap(slots.CountedUnits, pb.CountedUnits)
_UNITS = {"session_units": UNITS.each, "tenant_units": UNITS.each}
_KEY_PROPERTIES: Conversion = (dict, lambda stored: tuple(sorted(stored.items())))
_PARENT: dict[str, Conversion] = {"properties": _KEY_PROPERTIES, "life": (int, Life)}

_TENANT = FieldMap(Tenant, pb.TenantRow, converted=_PARENT)
_NAMESPACE = FieldMap(Namespace, pb.NamespaceRow, converted=_PARENT)
OLD_NAMES = FieldMap(OldName, pb.OldName)
"""Former names of a topic, wherever they are stored or sent."""

_TOPIC = FieldMap(
    Topic,
    pb.TopicRow,
    converted={"properties": _KEY_PROPERTIES, "former_names": OLD_NAMES.each},
)
_POINTER = FieldMap(TopicPointer, pb.TopicNameRow)
_FORMER = FieldMap(FormerName, pb.FormerNameRow)
_SOURCE = FieldMap(ShadowSource, pb.ShadowSourceRow, converted={"shards": REPEATED})
_ASSIGNMENT = FieldMap(Assignment, pb.AssignmentRow)
_SESSION = FieldMap(
    BrokerSession,
    pb.BrokerSessionRow,
    converted={"endpoints": ENDPOINTS.one, "started_at_ms": REPEATED},
)

_STATES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], State]]] = {
    StateKind.TENANT.value: _TENANT.one,
    StateKind.NAMESPACE.value: _NAMESPACE.one,
    StateKind.TOPIC.value: _TOPIC.one,
    StateKind.SCALABLE_TOPIC.value: (scalable_topic_message, scalable_topic_state),
    StateKind.TOPIC_LOADS.value: (topic_loads_message, topic_loads_state),
    StateKind.SHADOW_SOURCE.value: _SOURCE.one,
    StateKind.TOPIC_NAME.value: _POINTER.one,
    StateKind.FORMER_NAME.value: _FORMER.one,
    StateKind.ASSIGNMENT.value: _ASSIGNMENT.one,
    StateKind.BROKER_SESSION.value: _SESSION.one,
}
"""How the states of kinds that move are stored; the field of ``SlotRow`` has the kind's name."""


def to_row(row: slots.SlotRow) -> pb.SlotRow:
    """Return a row as it is stored and sent."""
    stored = pb.SlotRow(kind=row.kind.value, key=row.key)
    if row.state is not None:
        getattr(stored, row.kind.value).CopyFrom(_STATES[row.kind.value][0](row.state))
    return stored


def from_row(stored: pb.SlotRow) -> slots.SlotRow:
    """Return the row that ``to_row`` made."""
    name = stored.WhichOneof("state")
    state = None if name is None else _STATES[name][1](getattr(stored, name))
    return slots.SlotRow(StateKind(stored.kind), stored.key, state)


def _to_rows(rows: Sequence[slots.SlotRow]) -> list[pb.SlotRow]:
    return [to_row(row) for row in rows]


def _from_rows(stored: Sequence[pb.SlotRow]) -> tuple[slots.SlotRow, ...]:
    return tuple([from_row(row) for row in stored])


_KEY = FieldMap(slots.SlotKey, pb.SlotKey, converted={"kind": (lambda kind: kind.value, StateKind)})

SLOT_EVENTS: dict[str, FieldMap[Any, Any]] = {
    "slots_adopted": FieldMap(
        shard.SlotsAdopted,
        pb.SlotsAdopted,
        converted={"ranges": _RANGES, "came": _RANGES, **_UNITS},
    ),
    "slots_incoming": FieldMap(
        slots.SlotsIncoming, pb.SlotsIncoming, converted={"ranges": _RANGES}
    ),
    "slot_rows_copied": FieldMap(
        slots.SlotRowsCopied, pb.SlotRowsCopied, converted={"rows": (_to_rows, _from_rows)}
    ),
    "slots_released": FieldMap(
        slots.SlotsReleased, pb.SlotsReleased, converted={"ranges": _RANGES, **_UNITS}
    ),
    "slots_refused": FieldMap(slots.SlotsRefused, pb.SlotsRefused),
    "slots_reclaimed": FieldMap(slots.SlotsReclaimed, pb.SlotsReclaimed),
    "slot_rows_removed": FieldMap(
        slots.SlotRowsRemoved, pb.SlotRowsRemoved, converted={"keys": _KEY.each}
    ),
}
"""By the name of the payload."""
