"""The names of topics in requests: where they lead, and answers under the names asked for.

A request by a former name is carried out under the present one. A request with names that this
shard does not answer for comes back with the slots to ask by.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from nextgen.kernel.errors import NotLeader, StaleShardMap
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import Command, ShardRequest, ShardResponse
from shards.inventory.renames.pointers import NamePointers
from shards.state.topic_names import TopicNames

_Place = tuple[Any, str | int]
"""A message and its field, or a list and its index."""

_OF_A_TOPIC = {
    "set_topic_properties": "name",
    "delete_topic": "name",
    "grow_topic": "name",
    "unlist_shadow": "source",
}
"""By the field of a command's body: that with the name of a topic that should be there."""

_AS_ASKED = {"rename_topic": "name", "admit_shadow": "source"}
"""The same, of commands that are decided under the name asked for."""


async def carried_out(
    request: ShardRequest,
    names: TopicNames,
    pointers: NamePointers,
    carry_out: Callable[[ShardRequest], Awaitable[ShardResponse]],
) -> ShardResponse:
    """Have ``carry_out`` answer ``request`` under the present names of its topics; return the
    answer under the names asked for.

    Raises:
        StaleShardMap: It says of all names for which this shard does not answer where to ask.
        MetadataError: As of ``carry_out``. A name may lead elsewhere, and it is not known.
    """
    try:
        if not names.have_pointers and not names.have_renamed:
            return await carry_out(request)
        admitted = await _admit(request, names, pointers)
        response = await carry_out(admitted)
    except StaleShardMap as refusal:
        with suppress(NotLeader):
            _say_what_lacks(request, names, refusal)
        raise
    if admitted is not request:
        _answer_as_asked(request, response)
    return response


async def _admit(request: ShardRequest, names: TopicNames, pointers: NamePointers) -> ShardRequest:
    """Return ``request`` with the present names of topics that it has former names of.

    Raises:
        StaleShardMap: A name may lead to a topic whose home is another shard.
        MetadataError: See ``NamePointers.check``.
    """
    if names.have_pointers:
        await pointers.check(list(_names(request)))
    if not names.have_renamed or not any(map(names.was_renamed, _names(request, as_asked=False))):
        return request
    admitted = ShardRequest()
    admitted.CopyFrom(request)
    for place in _places(admitted, as_asked=False):
        name = _parsed(place)
        if name is not None and (current := names.current(name)) is not name:
            _set(place, current.text)
    return admitted


def _answer_as_asked(asked: ShardRequest, response: ShardResponse) -> None:
    """Have ``response`` answer under the names in ``asked``, of which some are former ones."""
    for unit, outcome in zip(asked.unassign.units, response.unassign.outcomes, strict=True):
        outcome.name = unit.name
    for name, item in zip(asked.get.names, response.get.items, strict=True):
        item.name = name.name
    wanted = [*asked.lookup.topics, *(move.topic for move in asked.move.moves)]
    answers = [*response.lookup.answers, *response.move.answers]
    for topic, answer in zip(wanted, answers, strict=True):
        if answer.topic != topic:
            answer.topic, answer.is_former = topic, True


def _say_what_lacks(request: ShardRequest, names: TopicNames, refusal: StaleShardMap) -> None:
    """Add to ``refusal`` the hash slot of each name in ``request`` that this shard does not serve.

    A router that had learned another slot for such a name forgets it."""
    for routing_key, slot in names.lacking(_names(request)).items():
        refusal.moved_names.setdefault(routing_key, slot)
    for command in request.execute.commands:
        for spec in command.create_topics.topics:
            name = _parsed((spec, "name"))
            if name is not None and not names.has_slot(name):
                refusal.moved_names.setdefault(name.routing_key, slot_of(name.routing_key))


def _names(request: ShardRequest, *, as_asked: bool = True) -> Iterator[TopicName]:
    for place in _places(request, as_asked=as_asked):
        name = _parsed(place)
        if name is not None:
            yield name


def _places(request: ShardRequest, *, as_asked: bool) -> Iterator[_Place]:
    """Yield where ``request`` has names of topics that should be there. ``as_asked``: also where
    former ones stay as they are."""
    # Only one of these bodies is there.
    yield from _items(request.lookup.topics)
    yield from _items(request.use_topics.names)
    for used in request.lookup.used:
        yield used, "topic"
    for move in request.move.moves:
        yield move, "topic"
    for unit in request.unassign.units:
        yield unit, "name"
    for each in request.get.names:
        if each.kind == KIND_TOPIC:
            yield each, "name"
    if request.HasField("topic_units"):
        yield request.topic_units, "name"
    for command in request.execute.commands:
        yield from _of_command(command, as_asked=as_asked)


def _of_command(command: Command, *, as_asked: bool) -> Iterator[_Place]:
    body = command.WhichOneof("body")
    if body in _OF_A_TOPIC:
        yield getattr(command, body), _OF_A_TOPIC[body]
    elif body == "set_policies" and command.set_policies.kind == KIND_TOPIC:
        yield command.set_policies, "name"
    elif body in _AS_ASKED and as_asked:
        yield getattr(command, body), _AS_ASKED[body]


def _items(texts: Any) -> Iterator[_Place]:
    for index in range(len(texts)):
        yield texts, index


def _parsed(place: _Place) -> TopicName | None:
    """Return the name at a place, None if it is none: the answer says so."""
    holder, key = place
    text = holder[key] if isinstance(key, int) else getattr(holder, key)
    try:
        return parse_topic(text)
    except InvalidName:
        return None


def _set(place: _Place, text: str) -> None:
    holder, key = place
    if isinstance(key, int):
        holder[key] = text
    else:
        setattr(holder, key, text)
