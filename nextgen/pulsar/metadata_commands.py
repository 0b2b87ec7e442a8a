"""The commands about topics and their brokers: the same at discovery and at brokers.

    PARTITIONED_METADATA      how many partitions? may create the topic
    LOOKUP                    which broker? assigns what exists, creates nothing
    GET_TOPICS_OF_NAMESPACE   which topics?
    GET_SCHEMA                which schema?

Answers come from a ``TopicDirectory``. A failure that may pass is always ``MetadataError``: the one
code that every stock client retries on the connection it has. ``ServiceNotReady`` in a lookup's
answer costs Java clients the connection, ``TooManyRequests`` is fatal to C++ clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import structlog

from nextgen.kernel.errors import MetadataError, Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.listing import TOPIC_LIST_FREE_BYTES
from nextgen.kernel.routing.names import (
    Domain,
    InvalidName,
    TopicName,
    parse_namespace,
    parse_topic,
    scalable_name,
)
from nextgen.pulsar.admission.refusals import Code, refusal_of, schema_failed, shown
from nextgen.pulsar.errors import server_error_of
from nextgen.pulsar.frames import FIELD_OF_TYPE
from nextgen.pulsar.service_urls import urls_of_listener
from nextgen.pulsar.topic_lists.answers import TopicListAnswers, needed_of_listing
from nextgen.pulsar.topic_lists.listed import ListedTopics
from nextgen.pulsar.topic_lists.permits import MemoryPermits
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicLists
from nextgen.pulsar.topic_lists.session import Client
from nextgen.pulsar.topic_lists.settings import TopicListSettings
from nextgen.tasks.background import start
from protos.pulsar import PulsarApi_pb2 as pulsar

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Located:
    """Where a topic, or one partition of it, is served."""

    name: str
    """Canonical, partition included."""
    broker_id: str
    session_id: str
    """The broker's session that the assignment belongs to."""
    broker_url: str
    """As in ``service_urls``; empty if the broker does not speak the protocol."""
    topic_id: str
    unit: str
    """Empty for a whole topic, else like ``p3``."""
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version of a topic's schema."""

    version: bytes
    """8 bytes, big-endian."""
    name: str
    kind: int
    """A number of ``Schema.Type``."""
    data: bytes
    properties: Mapping[str, str]


class TopicDirectory(Protocol):
    """Reads, and on demand creates, topics. Every method raises ``MetadataError`` kinds only."""

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """Return how many partitions the topic has; 0 if it is not partitioned.

        The name of an existing partition has 0. With ``create`` an absent topic is created if its
        namespace allows it.

        Raises:
            Refused: ``NOT_FOUND``: there is no such topic, and none was created.
        """

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        """Return the broker that serves the topic, after assigning the topic if it is idle.

        With ``create`` an absent topic is created if its namespace allows it.

        Raises:
            Refused: ``NOT_FOUND``: there is no such topic, and none was created; ``PARTITIONED``:
                the topic has partitions, and ``name`` is none of them; ``SCALABLE``: ``name`` is
                that of a scalable topic, in its own domain or as a persistent one.
        """

    def any_broker_url(self, topic: str) -> str | None:
        """Return the URL of a live broker that speaks Pulsar; None if there is none.

        It depends on ``topic``, a canonical name: all first users of an absent name get the same
        broker, which may create and serve the topic.
        """

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        """Return canonical names, sorted; of a partitioned topic those of its partitions.

        Pulsar's own topics are left out: see ``is_system_topic``.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: the names exceed the size of one answer.
        """

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        """Return this version of the topic's schema, or the latest; None if there is none."""


Answerer = Callable[[pulsar.BaseCommand], Awaitable[pulsar.BaseCommand]]

_TOPICS_ANSWER = pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE

_ELSEWHERE = frozenset({RejectionCode.NOT_FOUND, RejectionCode.PARTITIONED, RejectionCode.SCALABLE})
"""A lookup of a name that no broker serves is answered with any broker."""


class MetadataCommands:
    """Answers the four commands, many at a time."""

    def __init__(
        self,
        directory: TopicDirectory,
        lists: TopicLists | None = None,
        settings: TopicListSettings | None = None,
        permits: MemoryPermits | None = None,
    ) -> None:
        """Lists of topics come from ``lists``; without them, from the directory."""
        self.permits = permits or MemoryPermits()
        self._sending: set[asyncio.Task[None]] = set()
        self._directory = directory
        self._lists = TopicListAnswers(lists or ListedTopics(directory), settings)
        self._answerers: dict[int, Answerer] = {
            pulsar.BaseCommand.PARTITIONED_METADATA: self._partitions,
            pulsar.BaseCommand.LOOKUP: self._lookup,
            pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE: self._topics,
            pulsar.BaseCommand.GET_SCHEMA: self._schema,
        }

    def handles(self, command_type: int) -> bool:
        """Return whether ``answer`` handles commands of this ``BaseCommand.Type``."""
        return command_type in self._answerers

    async def answer(self, command: pulsar.BaseCommand) -> pulsar.BaseCommand:
        """Return the answer to a command that ``handles`` is true for. Never raises."""
        try:
            return await self._answerers[command.type](command)
        except InvalidName as error:
            return self._failed(command, pulsar.InvalidTopicName, str(error))
        except MetadataError as error:
            return self.failure(command, error)
        except Exception as error:
            # The client must get an answer even if this is a bug.
            _logger.exception("a metadata command failed", type=command.type)
            return self._failed(command, pulsar.MetadataError, repr(error))

    def send(self, client: Client, answer: pulsar.BaseCommand) -> None:
        """Send what ``answer`` returned. A long list of topics waits for memory permits first, and
        has them until the client has read it."""
        size_bytes = len(answer.SerializeToString()) if answer.type == _TOPICS_ANSWER else 0
        if size_bytes < TOPIC_LIST_FREE_BYTES:
            client.send_command(answer)
        else:
            start("topic_list_reply", self._send(client, answer, size_bytes), self._sending)

    async def _send(self, client: Client, answer: pulsar.BaseCommand, size_bytes: int) -> None:
        try:
            async with self.permits.hold(size_bytes):
                client.send_command(answer)
                await client.until_writable()
        except Overloaded as error:
            request_id = answer.getTopicsOfNamespaceResponse.request_id
            client.send_error(request_id, pulsar.TooManyRequests, str(error))

    def failure(self, command: pulsar.BaseCommand, error: MetadataError) -> pulsar.BaseCommand:
        """Return the answer to a command that failed because of ``error``."""
        return self._failed(command, server_error_of(error), str(error))

    def _failed(self, command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand:
        failed = refusal_of(command, code, message)
        assert failed is not None, "all four have a request id"
        return failed

    async def _partitions(self, command: pulsar.BaseCommand) -> pulsar.BaseCommand:
        request = command.partitionMetadata
        name = parse_topic(request.topic)
        # A segment has no partitions, and clients know that.
        count = 0
        if name.domain is not Domain.SEGMENT:
            create = request.metadata_auto_creation_enabled
            count = await self._directory.partitions(name, create=create)
        return pulsar.BaseCommand(
            type=pulsar.BaseCommand.PARTITIONED_METADATA_RESPONSE,
            partitionMetadataResponse=pulsar.CommandPartitionedTopicMetadataResponse(
                partitions=count,
                request_id=request.request_id,
                response=pulsar.CommandPartitionedTopicMetadataResponse.Success,
            ),
        )

    async def _lookup(self, command: pulsar.BaseCommand) -> pulsar.BaseCommand:
        request = command.lookupTopic
        name = parse_topic(request.topic)
        url = await broker_url_of(self._directory, name)
        urls = urls_of_listener(url, request.advertised_listener_name)
        return pulsar.BaseCommand(
            type=pulsar.BaseCommand.LOOKUP_RESPONSE,
            lookupTopicResponse=pulsar.CommandLookupTopicResponse(
                brokerServiceUrl=urls.plain or None,
                brokerServiceUrlTls=urls.tls or None,
                response=pulsar.CommandLookupTopicResponse.Connect,
                request_id=request.request_id,
                authoritative=True,
            ),
        )

    async def _topics(self, command: pulsar.BaseCommand) -> pulsar.BaseCommand:
        request = command.getTopicsOfNamespace
        namespace = parse_namespace(request.namespace)
        return pulsar.BaseCommand(
            type=pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            getTopicsOfNamespaceResponse=await self._lists.answer(namespace, request),
        )

    async def _schema(self, command: pulsar.BaseCommand) -> pulsar.BaseCommand:
        request = command.getSchema
        version = request.schema_version if request.HasField("schema_version") else None
        if version == b"":
            return schema_failed(
                request.request_id, pulsar.IncompatibleSchema, "a schema version has no bytes"
            )
        name = parse_topic(request.topic)
        stored = await self._directory.schema(name, version)
        if stored is None:
            message = shown(f"topic {name.text} has no such schema")
            return schema_failed(request.request_id, pulsar.TopicNotFound, message)
        return pulsar.BaseCommand(
            type=pulsar.BaseCommand.GET_SCHEMA_RESPONSE,
            getSchemaResponse=pulsar.CommandGetSchemaResponse(
                request_id=request.request_id,
                schema=schema_message(stored),
                schema_version=stored.version,
            ),
        )


_NEEDED_FIELDS = {
    pulsar.BaseCommand.PARTITIONED_METADATA: (
        "topic",
        "request_id",
        "metadata_auto_creation_enabled",
    ),
    pulsar.BaseCommand.LOOKUP: ("topic", "request_id"),
    pulsar.BaseCommand.GET_SCHEMA: ("topic", "schema_version", "request_id"),
}


def needed_of(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    """Return a command with only the fields that ``answer`` reads, to keep while it is answered.

    A command may be as large as a frame, and thousands may be pending.
    """
    if command.type == pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE:
        return needed_of_listing(command)
    needed = pulsar.BaseCommand(type=command.type)
    field = FIELD_OF_TYPE[command.type]
    given, kept = getattr(command, field), getattr(needed, field)
    for name in _NEEDED_FIELDS[command.type]:
        if given.HasField(name):
            setattr(kept, name, getattr(given, name))
    return needed


async def broker_url_of(directory: TopicDirectory, name: TopicName) -> str:
    """Return the URL that a lookup of ``name`` is answered with. Creates nothing.

    Raises:
        Unavailable: No live broker speaks Pulsar, or the one that has the topic does not.
        MetadataError: The shards could not be reached.
    """
    whose = name
    try:
        located = await directory.locate(name, create=False)
    except Refused as error:
        if error.code not in _ELSEWHERE:
            raise
        if error.code == RejectionCode.SCALABLE:
            # Wherever the layout is watched, by whichever of its names it was looked up.
            whose = scalable_name(name)
    else:
        if located.broker_url:
            return located.broker_url
        raise Unavailable(f"broker {located.broker_id} has {name.text} and does not speak Pulsar")
    url = directory.any_broker_url(whose.text)
    if url is None:
        raise Unavailable("there is no live broker that speaks Pulsar")
    return url


def schema_message(stored: StoredSchema) -> pulsar.Schema:
    """Return a schema as a protobuf message for clients."""
    schema = pulsar.Schema(
        name=stored.name,
        schema_data=stored.data,
        type=cast("pulsar.Schema.Type", stored.kind),
    )
    for key, value in stored.properties.items():
        schema.properties.add(key=key, value=value)
    return schema
