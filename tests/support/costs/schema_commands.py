"""Every Pulsar command that states a schema, as a client of a broker sends it."""

from __future__ import annotations

from collections.abc import Callable

from nextgen.pulsar.client import PulsarClientConnection
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandProducer,
    CommandSubscribe,
    Schema,
)
from tests.support.costs.pulsar import ANSWER_S_MAX, Target

_COMMANDS: dict[str, Callable[[str, Schema], BaseCommand]] = {
    "getOrCreateSchema": lambda topic, schema: BaseCommand(
        type=BaseCommand.GET_OR_CREATE_SCHEMA,
        getOrCreateSchema=CommandGetOrCreateSchema(topic=topic, schema=schema),
    ),
    "producer": lambda topic, schema: BaseCommand(
        type=BaseCommand.PRODUCER,
        producer=CommandProducer(topic=topic, producer_id=1, schema=schema),
    ),
    "subscribe": lambda topic, schema: BaseCommand(
        type=BaseCommand.SUBSCRIBE,
        subscribe=CommandSubscribe(
            topic=topic,
            subscription="s",
            subType=CommandSubscribe.Shared,
            consumer_id=1,
            schema=schema,
        ),
    ),
    "getSchema": lambda topic, schema: BaseCommand(
        type=BaseCommand.GET_SCHEMA, getSchema=CommandGetSchema(topic=topic)
    ),
}


async def register(target: Target, schema: Schema) -> None:
    """Make ``schema`` a version of the topic; it is accepted."""
    answer = await is_accepted(target, schema)
    assert answer, schema


async def is_accepted(target: Target, schema: Schema) -> bool:
    """Return whether ``schema`` is a version of the topic now."""
    answer = await _answer(target, _COMMANDS["getOrCreateSchema"](target.topic, schema))
    return not answer.getOrCreateSchemaResponse.HasField("error_code")


async def state_schema(target: Target, schema: Schema, how: str) -> None:
    """Send the command that states ``schema``; return when it is answered, mostly refused."""
    await _answer(target, _COMMANDS[how](target.topic, schema))


async def _answer(target: Target, command: BaseCommand) -> BaseCommand:
    timeout_ms = ANSWER_S_MAX * 1_000
    client = await PulsarClientConnection.open(target.host, target.port, timeout_ms=timeout_ms)
    async with client:
        return await client.request(command, timeout_ms=timeout_ms)
