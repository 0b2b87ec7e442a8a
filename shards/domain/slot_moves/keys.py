"""Which slot a state belongs to."""

from __future__ import annotations

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id
from nextgen.kernel.routing.names import parse_topic
from shards.domain.renames.names import FormerName
from shards.domain.shadows.source import ShadowSource
from shards.domain.slots.events import SlotRanges
from shards.domain.states import State, StateKind
from shards.domain.topic import Topic

_BY_ID_DIGITS = 4
"""Hexadecimal digits of an internal id that are its slot."""

MOVING_KINDS = (
    StateKind.TENANT,
    StateKind.NAMESPACE,
    StateKind.TOPIC,
    StateKind.SCALABLE_TOPIC,
    StateKind.TOPIC_LOADS,
    StateKind.SHADOW_SOURCE,
    StateKind.TOPIC_NAME,
    StateKind.FORMER_NAME,
    StateKind.ASSIGNMENT,
    StateKind.BROKER_SESSION,
)
"""The kinds that go along with their slots, in the order in which they are copied: a topic before
its units."""

_WITH_HOMES = frozenset({StateKind.TOPIC, StateKind.SHADOW_SOURCE, StateKind.FORMER_NAME})
"""Kinds that go by the slot in a topic's id, whatever the topic is called."""

_BY_NAME = frozenset({StateKind.TENANT, StateKind.NAMESPACE, StateKind.BROKER_SESSION})
_BY_TOPIC = frozenset(
    {
        StateKind.TOPIC,
        StateKind.SCALABLE_TOPIC,
        StateKind.TOPIC_LOADS,
        StateKind.SHADOW_SOURCE,
        StateKind.TOPIC_NAME,
        StateKind.FORMER_NAME,
    }
)


def is_of_slots(ranges: SlotRanges, name: str) -> bool:
    """Return whether the name of a broker or of a scalable topic is of one of the slots.

    A classic topic may be of another slot than its name: see ``is_at_home_in``.

    Raises:
        InvalidName: It looks like the name of a topic and is none.
    """
    key = parse_topic(name).routing_key if "://" in name else name
    return _has(ranges, slot_of(key))


def is_at_home_in(ranges: SlotRanges, topic_id: str) -> bool:
    """Return whether a topic with this id, and so each unit of it, is of one of the slots, whatever
    the topic is called."""
    return _has(ranges, slot_of_unit(topic_id))


def slot_of_unit(topic_id: str) -> int | None:
    """Return the slot of a topic's units: the one in the topic's id. None of an id without one."""
    return _slot_of_id(topic_id)


def _has(ranges: SlotRanges, slot: int | None) -> bool:
    return slot is not None and any(first <= slot <= last for first, last in ranges)


def slot_of_state(kind: StateKind, key: str, state: State | None) -> int | None:
    """Return the slot of ``state``, which is under ``key``; None for the shard's own kinds.

    A topic and what goes with it belong to the slot in the topic's id, whatever its name is by now.
    """
    topic_id = state.topic_id if isinstance(state, Topic | FormerName | ShadowSource) else ""
    return slot_of_change(kind, key, topic_id)


def slot_of_change(kind: StateKind, key: str, topic_id: str) -> int | None:
    """Return the slot of the state under ``key`` that an event about ``topic_id`` changes; "" if
    the event says no topic, or is older than renames."""
    if kind in _WITH_HOMES and is_id(topic_id):
        slot = _slot_of_id(topic_id)
        if slot is not None:
            return slot
    return slot_of_key(kind, key)


def is_by_id(kind: StateKind) -> bool:
    """Return whether a key of the kind alone does not say the slot of what is under it."""
    return kind in _WITH_HOMES


def slot_of_key(kind: StateKind, key: str) -> int | None:
    """Return the slot of the state under ``key``; None for kinds that are the shard's own.

    Units go by the slot in the id of their topic, everything else by its name. A topic that was
    renamed, and what goes with it, is of another slot: ``slot_of_state``.
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
