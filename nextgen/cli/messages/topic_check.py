"""Whether a topic exists, found out over Pulsar's protocol and without creating it."""

from __future__ import annotations

from nextgen.kernel.errors import MetadataError
from nextgen.pulsar.client import PulsarClientConnection, usual_greeting
from nextgen.runtime.security.client_token import token_in_use
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    TopicNotFound,
)

ANSWER_TIMEOUT_MS = 1_000
"""Time-out at one address. Without an answer the stock client finds out, and takes its time."""


async def is_absent(service_url: str, topic: str) -> bool:
    """Return whether a server of ``service_url`` denies that ``topic`` exists.

    False also if no server answers, or one of a release that ignores the request not to create.
    """
    for address in service_url.partition("://")[2].split(","):
        host, _, port = address.rpartition(":")
        try:
            async with await PulsarClientConnection.open(
                host.strip("[]"),
                int(port),
                connect=usual_greeting(token_in_use()),
                timeout_ms=ANSWER_TIMEOUT_MS,
            ) as connection:
                answer = await connection.request(_question(topic), timeout_ms=ANSWER_TIMEOUT_MS)
        except MetadataError:
            continue
        found = answer.partitionMetadataResponse
        has_failed = found.response == CommandPartitionedTopicMetadataResponse.Failed
        return has_failed and found.error == TopicNotFound
    return False


def _question(topic: str) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA,
        partitionMetadata=CommandPartitionedTopicMetadata(
            topic=topic, metadata_auto_creation_enabled=False
        ),
    )
