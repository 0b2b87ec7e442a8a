"""Events in the form that leased watches get, and how long each may wait to share an update.

A watch that names creations gets the names of adjacent creations as one ``Creations``, shared by
all such watches. A bulk create has thousands of them, and few subscribers need any. A topic that
grew is named among them: its new partitions came into being. So are the names of a renamed topic,
and a name that leads to a topic elsewhere: whatever is remembered of them is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from nextgen.client.log.event_keys import event_keys
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_CREATIONS_MS,
    EVENTS_BATCH_BYTES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
)
from nextgen.kernel.limits.stream import WATCH_EVENTS_PER_SLICE
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned, TopicUnassigned

CREATIONS_SECONDS = ASSIGNMENT_CREATIONS_MS / 1000
"""How long creations wait to share an update, where they may end something that is remembered. An
update and an acknowledgement for each would cost as much as the creation."""

UNTIL_THE_NEXT_UPDATE = float("inf")
"""``LeasedEvent.may_wait_s`` of an event that goes out with the next update that is due."""

# An update with one ``Creations`` needs no splitting, even if all of its events have two names.
assert 2 * WATCH_EVENTS_PER_SLICE * TOPIC_TEXT_CHARACTERS_MAX <= EVENTS_BATCH_BYTES_MAX


class LeasedEvent(NamedTuple):
    """An event as leased watches get it."""

    position: int
    event: Event
    """An assignment comes without its placement decision: only answers to lookups are kept."""
    may_wait_s: float
    """How long it may wait to share an update with other events. 0 for an event that outdates an
    answer."""


class Creations(NamedTuple):
    """The names of topics that were created, grew or were renamed at adjacent positions, of at most
    ``WATCH_EVENTS_PER_SLICE`` events."""

    first_position: int
    position: int
    """The position of the last creation."""
    names: tuple[str, ...]


LeasedForm = LeasedEvent | Creations

_CREATIONS = frozenset(
    {"topic_created", "topic_partitions_grown", "topic_name_pointed", "topic_renamed"}
)
"""Events behind which a name may stand for a topic for which it did not stand before."""


class LeasedForms:
    """Makes the leased form of an event once for all leased watches of a replica."""

    def __init__(self) -> None:
        self._latest: tuple[Event, LeasedEvent] | None = None

    def of(self, event: Event) -> LeasedEvent:
        """Return the form of ``event``; repeated calls for the latest event return the same
        object."""
        if self._latest is None or self._latest[0] is not event:
            self._latest = event, _form(event)
        return self._latest[1]


def is_release(event: Event) -> bool:
    """Return whether slots leave the shard with ``event``: every leased watch gets it, for what it
    knows of these slots is not kept true here any more."""
    return event.HasField("slots_released")


def creations_apart(
    events: Iterable[Event],
) -> Iterator[tuple[Sequence[Event], Creations | None]]:
    """Yield ``events``, which have adjacent positions, in runs of creations and runs of others.

    A run of creations comes with its ``Creations``.
    """
    for are_creations, run in groupby(events, key=_is_creation):
        while some := tuple(islice(run, WATCH_EVENTS_PER_SLICE)):
            yield some, _creations(some) if are_creations else None


def _is_creation(event: Event) -> bool:
    return event.WhichOneof("payload") in _CREATIONS


def _creations(events: Sequence[Event]) -> Creations:
    names = tuple([name for event in events for name in _created_names(event)])
    return Creations(events[0].position, events[-1].position, names)


def _created_names(event: Event) -> tuple[str, ...]:
    # Nearly always it is this one.
    name = event.topic_created.name
    return (name,) if name else event_keys(event)


def _form(event: Event) -> LeasedEvent:
    position = event.position
    match event.WhichOneof("payload"):
        case "topic_assigned":
            # Nothing but a first assignment can be answered until it arrives.
            is_first = event.topic_assigned.epoch <= 1
            may_wait_s = UNTIL_THE_NEXT_UPDATE if is_first else 0.0
            return LeasedEvent(position, _assigned(event), may_wait_s)
        case "topic_unassigned":
            return LeasedEvent(position, _unassigned(event), 0.0)
        case "topic_created":
            return LeasedEvent(position, event, CREATIONS_SECONDS)
        case _:
            return LeasedEvent(position, event, 0.0)


def _assigned(event: Event) -> Event:
    assigned = event.topic_assigned
    kept = TopicAssigned(
        topic_id=assigned.topic_id,
        unit=assigned.unit,
        name=assigned.name,
        epoch=assigned.epoch,
        broker_id=assigned.broker_id,
        session_id=assigned.session_id,
    )
    return Event(position=event.position, shard_id=event.shard_id, topic_assigned=kept)


def _unassigned(event: Event) -> Event:
    ended = event.topic_unassigned
    kept = TopicUnassigned(
        topic_id=ended.topic_id, unit=ended.unit, name=ended.name, epoch=ended.epoch
    )
    return Event(position=event.position, shard_id=event.shard_id, topic_unassigned=kept)
