"""The objects that a write may have changed: what an effective write waits for."""

from __future__ import annotations

from collections.abc import Iterator

from nextgen.client.changes.index import Change
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Domain
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
)
from protos.nextgen.v1.shard_service_pb2 import Command, CommandResult
from shards.domain.slot_moves.keys import slot_of_unit
from shards.wire.command import (
    NewTopic,
    OnNamespace,
    OnNewTopics,
    OnScalable,
    OnTenant,
    OnTopic,
    parse_command,
    slots_of,
    topic_of,
)
from shards.wire.name_orders import OnPoint, OnRename


def changed_by(command: Command) -> Iterator[Change]:
    """Yield the objects that an accepted ``command`` may have changed."""
    parsed = parse_command(command)
    match parsed:
        case OnTenant():
            yield KIND_TENANT, parsed.name
        case OnNamespace():
            yield KIND_NAMESPACE, parsed.name.text
        case OnTopic():
            yield KIND_TOPIC, parsed.name.base_text
            if parsed.name.domain is Domain.TOPIC:
                yield KIND_SCALABLE_TOPIC, parsed.name.base_text
        case OnRename() | OnPoint():
            yield KIND_TOPIC, parsed.name.base_text
            if isinstance(parsed, OnRename):
                yield KIND_TOPIC, parsed.new_name.base_text
        case OnScalable():
            yield KIND_SCALABLE_TOPIC, parsed.name.base_text
        case OnNewTopics():
            yield from _created(parsed)
        case _:
            return


def slots_changed_by(command: Command, result: CommandResult) -> Iterator[int]:
    """Yield the slots of the objects that an accepted ``command`` may have changed.

    A topic that was there, as ``result`` says by its id, is of the slot in the id.
    """
    parsed = parse_command(command)
    home = None if topic_of(parsed) is None else slot_of_unit(result.id)
    if home is None:
        yield from slots_of(parsed)
        return
    yield home
    if isinstance(parsed, OnRename):
        # Caches may keep that the new name is absent, by an answer of its slot's former shard.
        yield slot_of(parsed.new_name.routing_key)


def _created(command: OnNewTopics) -> Iterator[Change]:
    for topic in command.topics:
        if isinstance(topic, NewTopic):
            yield KIND_TOPIC, topic.name.base_text
            if topic.name.domain is Domain.TOPIC:
                yield KIND_SCALABLE_TOPIC, topic.name.base_text
