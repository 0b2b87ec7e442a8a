"""Parses commands about names of topics: renames, and the orders that shards send for them."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1.shard_service_pb2 import PointName, RenameTopic


@dataclass(frozen=True, slots=True)
class OnRename:
    """A command to give a topic another name. ``slot`` is that of the present one."""

    command_id: bytes
    body: RenameTopic
    name: TopicName
    slot: int
    new_name: TopicName


@dataclass(frozen=True, slots=True)
class OnPoint:
    """An order to keep a name for a topic, from the topic's home shard."""

    command_id: bytes
    body: PointName
    name: TopicName
    slot: int


def names_part(name: TopicName) -> Rejected | None:
    """Return why ``name`` is not that of a topic; None if it is."""
    if name.partition is None and name.segment is None:
        return None
    part = "segment" if name.partition is None else "partition"
    return Rejected(RejectionCode.INVALID_NAME, f"{name.text} names a {part}, not a topic")


def parse_rename(command_id: bytes, body: RenameTopic) -> OnRename | Rejected:
    """Return a rename with its names parsed, or why it is refused.

    Raises:
        InvalidName: One is no topic's name.
    """
    name, new_name = parse_topic(body.name), parse_topic(body.new_name)
    refused = names_part(name) or names_part(new_name)
    return refused or OnRename(command_id, body, name, slot_of(name.routing_key), new_name)


def parse_point(command_id: bytes, body: PointName) -> OnPoint:
    """Return an order with its name parsed.

    Raises:
        InvalidName: It is no topic's name.
        InvalidRequest: It is not spelled out, or the topic has no id.
    """
    name = parse_topic(body.name)
    if name.text != body.name or names_part(name) is not None:
        raise InvalidRequest(f"{body.name[:200]!a} is not the name of a topic as it is spelled out")
    if not is_id(body.topic_id):
        raise InvalidRequest("a name is kept for a topic with an id")
    return OnPoint(command_id, body, name, slot_of(name.routing_key))
