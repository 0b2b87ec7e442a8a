"""Which slot a state belongs to."""

from __future__ import annotations

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from shards.domain.slots.events import SlotRanges
from shards.domain.states import StateKind

_BY_ID_DIGITS = 4
"""Hexadecimal digits of an internal id that are its slot."""

MOVING_KINDS = (
    StateKind.TENANT,
    StateKind.NAMESPACE,
    StateKind.TOPIC,
    StateKind.SCALABLE_TOPIC,
    StateKind.TOPIC_LOADS,
    StateKind.SHADOW_SOURCE,
    StateKind.ASSIGNMENT,
    StateKind.BROKER_SESSION,
)
"""The kinds that go along with their slots, in the order in which they are copied: a topic before
its units."""

_BY_NAME = frozenset({StateKind.TENANT, StateKind.NAMESPACE, StateKind.BROKER_SESSION})
_BY_TOPIC = frozenset(
    {StateKind.TOPIC, StateKind.SCALABLE_TOPIC, StateKind.TOPIC_LOADS, StateKind.SHADOW_SOURCE}
)


def is_of_slots(ranges: SlotRanges, name: str) -> bool:
    """Return whether the name of a broker, a topic or a unit is of one of the slots.

    Raises:
        InvalidName: It looks like the name of a topic and is none.
    """
    key = parse_topic(name).routing_key if "://" in name else name
    slot = slot_of(key)
    return any(first <= slot <= last for first, last in ranges)


def slot_of_key(kind: StateKind, key: str) -> int | None:
    """Return the slot of the state under ``key``; None for kinds that are the shard's own.

    Units go by the slot in the id of their topic, everything else by its name.
    """
    if kind in _BY_TOPIC:
        # The routing key of a canonical base text; parsing it would cost thirty times as much.
        return slot_of(key.partition("://")[2])
    if kind is StateKind.ASSIGNMENT:
        return _slot_of_id(key)
    return slot_of(key) if kind in _BY_NAME else None


def _slot_of_id(internal_id: str) -> int | None:
    """Return the slot in which an id was made, None of an id that does not say it."""
    try:
        slot = int(internal_id[:_BY_ID_DIGITS], 16)
    except ValueError:
        return None
    return slot if slot < SLOT_COUNT else None
