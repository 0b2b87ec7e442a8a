"""Places in a topic, as paths and bodies of the admin libraries name them."""

from __future__ import annotations

from pydantic import BaseModel

from discovery.adapters.rest.answer import RestFailure
from discovery.adapters.rest.request import RestRequest, shown
from nextgen.kernel.limits.stream import POSITION_MAX
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.broker_service_pb2 import MessagePosition

_LATEST_ID = POSITION_MAX
"""Ledger and entry of Pulsar's ``MessageId.latest``; those of ``earliest`` are -1."""


class Place(BaseModel):
    """A message id, as the admin libraries send it."""

    ledgerId: int = -1
    entryId: int = -1
    partitionIndex: int = -1
    batchIndex: int = -1
    isExcluded: bool = False
    excluded: bool = False
    properties: dict[str, str] | None = None


def topic_place(body: Place | str | None) -> admin_pb.TopicPlace:
    """Return the place that a body names, the end of the topic if there is none.

    Raises:
        RestFailure: 412, no entry can have its ledger and entry.
    """
    if isinstance(body, Place):
        if body.ledgerId == body.entryId == _LATEST_ID:
            return admin_pb.TopicPlace(latest=admin_pb.Latest())
        if body.ledgerId < 0 or body.entryId < 0:
            return admin_pb.TopicPlace(earliest=admin_pb.Earliest())
        is_excluded = body.isExcluded or body.excluded
        return admin_pb.TopicPlace(position=position_of(body), is_excluded=is_excluded)
    if body == "earliest":
        return admin_pb.TopicPlace(earliest=admin_pb.Earliest())
    return admin_pb.TopicPlace(latest=admin_pb.Latest())


def names_a_message(place: Place) -> bool:
    """Return whether it is a message's id, not one of an end of the topic."""
    return min(place.ledgerId, place.entryId) >= 0 and place.ledgerId != _LATEST_ID


def position_of(place: Place) -> MessagePosition:
    """Return a message id's ledger and entry.

    Raises:
        RestFailure: 412, no entry can have these.
    """
    numbers = (place.ledgerId, place.entryId)
    if min(numbers) < 0 or max(numbers) > POSITION_MAX:
        raise RestFailure(412, "no message can have this ledger and entry")
    return MessagePosition(ledger_id=place.ledgerId, entry_id=place.entryId)


def path_number(request: RestRequest, name: str) -> int:
    """Return the number that a part of the path is.

    Raises:
        RestFailure: 412, it is none, or too large.
    """
    text = request.parts[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > POSITION_MAX:
        raise RestFailure(412, f"{name} is {shown(text)}, it must be a number")
    return int(text)
