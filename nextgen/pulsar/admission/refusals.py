"""Refusals of commands, each in the kind of answer that its command has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from nextgen.kernel.limits.cluster import ERROR_MESSAGE_CHARACTERS_MAX
from nextgen.pulsar.frames import request_id_of
from protos.pulsar import PulsarApi_pb2 as pulsar

Code: TypeAlias = "pulsar.ServerError"


def shown(message: str) -> str:
    """Return ``message`` cut to its limit, without characters that UTF-8 cannot encode."""
    text = message[:ERROR_MESSAGE_CHARACTERS_MAX]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def refusal_of(command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand | None:
    """Return the answer to a command that is refused; None where the protocol has none."""
    own = _OWN.get(command.type)
    if own is not None:
        return own(command, code, shown(message))
    request_id = request_id_of(command)
    return None if request_id is None else error_of(request_id, code, shown(message))


def lookup_failed(request_id: int, code: Code, message: str) -> pulsar.BaseCommand:
    """Return the answer to a LOOKUP that failed with a ``ServerError``."""
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=pulsar.CommandLookupTopicResponse(
            response=pulsar.CommandLookupTopicResponse.Failed,
            request_id=request_id,
            error=code,
            message=message,
        ),
    )


def partitions_failed(request_id: int, code: Code, message: str) -> pulsar.BaseCommand:
    """As ``lookup_failed``, of a PARTITIONED_METADATA."""
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=pulsar.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            response=pulsar.CommandPartitionedTopicMetadataResponse.Failed,
            error=code,
            message=message,
        ),
    )


def schema_failed(request_id: int, code: Code, message: str) -> pulsar.BaseCommand:
    """As ``lookup_failed``, of a GET_SCHEMA."""
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.GET_SCHEMA_RESPONSE,
        getSchemaResponse=pulsar.CommandGetSchemaResponse(
            request_id=request_id,
            error_code=code,
            error_message=message,
        ),
    )


def error_of(request_id: int, code: Code, message: str) -> pulsar.BaseCommand:
    """Return the ERROR that answers a request whose command has no refusal of its own."""
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.ERROR,
        error=pulsar.CommandError(
            request_id=request_id,
            error=code,
            message=message,
        ),
    )


def _new_schema(command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        getOrCreateSchemaResponse=pulsar.CommandGetOrCreateSchemaResponse(
            request_id=command.getOrCreateSchema.request_id,
            error_code=code,
            error_message=message,
        ),
    )


def _layout(command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.SCALABLE_TOPIC_UPDATE,
        scalableTopicUpdate=pulsar.CommandScalableTopicUpdate(
            session_id=command.scalableTopicLookup.session_id, error=code, message=message
        ),
    )


def _scalable_consumer(command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        scalableTopicSubscribeResponse=pulsar.CommandScalableTopicSubscribeResponse(
            request_id=command.scalableTopicSubscribe.request_id, error=code, message=message
        ),
    )


def _scalable_topics(command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
        watchScalableTopicsUpdate=pulsar.CommandWatchScalableTopicsUpdate(
            watch_id=command.watchScalableTopics.watch_id, error=code, message=message
        ),
    )


def _coordinators(command: pulsar.BaseCommand, code: Code, message: str) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
        watchTcAssignmentsUpdate=pulsar.CommandWatchTcAssignmentsUpdate(
            watch_id=command.watchTcAssignments.watch_id, error=code, message=message
        ),
    )


_Refuse = Callable[[pulsar.BaseCommand, Code, str], pulsar.BaseCommand]

_OWN: Mapping[int, _Refuse] = MappingProxyType(
    {
        pulsar.BaseCommand.LOOKUP: lambda command, code, message: lookup_failed(
            command.lookupTopic.request_id, code, message
        ),
        pulsar.BaseCommand.PARTITIONED_METADATA: lambda command, code, message: partitions_failed(
            command.partitionMetadata.request_id, code, message
        ),
        pulsar.BaseCommand.GET_SCHEMA: lambda command, code, message: schema_failed(
            command.getSchema.request_id, code, message
        ),
        pulsar.BaseCommand.GET_OR_CREATE_SCHEMA: _new_schema,
        pulsar.BaseCommand.SCALABLE_TOPIC_LOOKUP: _layout,
        pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: _scalable_consumer,
        pulsar.BaseCommand.WATCH_SCALABLE_TOPICS: _scalable_topics,
        pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS: _coordinators,
    }
)
"""Commands whose refusal is not an ERROR."""
