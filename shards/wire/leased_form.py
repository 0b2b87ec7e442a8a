"""Events in the form that leased watches get, and how long each may wait to share an update."""

from __future__ import annotations

from typing import NamedTuple

from nextgen.kernel.limits.cluster import ASSIGNMENT_CREATIONS_MS
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned, TopicUnassigned

_CREATIONS_SECONDS = ASSIGNMENT_CREATIONS_MS / 1000

UNTIL_THE_NEXT_UPDATE = float("inf")
"""``LeasedForm.may_wait_s`` of an event that goes out with the next update that is due."""


class LeasedForm(NamedTuple):
    """An event as leased watches get it."""

    position: int
    event: Event
    """An assignment comes without its placement decision: only answers to lookups are kept."""
    may_wait_s: float
    """How long it may wait to share an update with other events. 0 for an event that outdates an
    answer."""
    is_assignment: bool
    created: str
    """The name of the topic that came into being; "" for other events."""


class LeasedForms:
    """Makes the leased form of an event once for all leased watches of a replica."""

    def __init__(self) -> None:
        self._latest: tuple[Event, LeasedForm] | None = None

    def of(self, event: Event) -> LeasedForm:
        """Return the form of ``event``; repeated calls for the latest event return the same
        object."""
        if self._latest is None or self._latest[0] is not event:
            self._latest = event, _form(event)
        return self._latest[1]


def _form(event: Event) -> LeasedForm:
    position = event.position
    match event.WhichOneof("payload"):
        case "topic_assigned":
            # Nothing but a first assignment can be answered until it arrives.
            is_first = event.topic_assigned.epoch <= 1
            may_wait_s = UNTIL_THE_NEXT_UPDATE if is_first else 0.0
            return LeasedForm(position, _assigned(event), may_wait_s, True, "")
        case "topic_unassigned":
            return LeasedForm(position, _unassigned(event), 0.0, True, "")
        case "topic_created":
            # An update and an acknowledgement for each would cost as much as the creation.
            name = event.topic_created.name
            return LeasedForm(position, event, _CREATIONS_SECONDS, False, name)
        case _:
            return LeasedForm(position, event, 0.0, False, "")


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
