"""Requests of the Pulsar protocol, serialised in advance, and the check of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.pulsar.frames import SIZE_BYTES, encode_command, parse_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse
from protos.pulsar.PulsarApi_pb2 import CommandPartitionedTopicMetadataResponse as PartitionsAnswer

PROTOCOL_VERSION = 20
CLIENT_VERSION = "nextgen-perf"

FIRST_REQUEST_ID = 1 << 21
"""Ids from here up to 2^28 take four bytes each, so all requests for names of one length have the
same length."""


def command_of(frame: bytes) -> BaseCommand:
    """Return the command in a whole frame.

    Raises:
        MalformedFrame: It has no known command.
    """
    return parse_command(frame[2 * SIZE_BYTES :])


def connect_frame() -> bytes:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = CLIENT_VERSION
    command.connect.protocol_version = PROTOCOL_VERSION
    command.connect.auth_method_name = "none"
    return encode_command(command)


def pong_frame() -> bytes:
    command = BaseCommand(type=BaseCommand.PONG)
    command.pong.SetInParent()
    return encode_command(command)


@dataclass(frozen=True, slots=True)
class RequestDeck:
    """One request for each topic; its id is ``FIRST_REQUEST_ID`` plus the topic's number."""

    topics: Sequence[str]
    frames: Sequence[bytes]
    ids: Sequence[int]

    @staticmethod
    def of_lookups(topics: Sequence[str]) -> RequestDeck:
        return RequestDeck._of(topics, BaseCommand(type=BaseCommand.LOOKUP), "lookupTopic")

    @staticmethod
    def of_partition_metadata(topics: Sequence[str]) -> RequestDeck:
        kind = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
        return RequestDeck._of(topics, kind, "partitionMetadata")

    @staticmethod
    def _of(topics: Sequence[str], command: BaseCommand, field: str) -> RequestDeck:
        request: Any = getattr(command, field)
        frames = []
        ids = range(FIRST_REQUEST_ID, FIRST_REQUEST_ID + len(topics))
        for topic, request_id in zip(topics, ids, strict=True):
            request.topic = topic
            request.request_id = request_id
            frames.append(encode_command(command))
        return RequestDeck(topics, frames, list(ids))

    def topic_of(self, request_id: int) -> str | None:
        """Return the topic of the request with this id, None if there is none."""
        number = request_id - FIRST_REQUEST_ID
        return self.topics[number] if 0 <= number < len(self.topics) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A parsed answer. ``complaint`` is empty if the answer is valid."""

    request_id: int
    broker_url: str
    complaint: str


def answer_of(command: BaseCommand) -> Answer | None:
    """Return the answer in a command, None if it answers no lookup and no metadata request."""
    if command.type == BaseCommand.LOOKUP_RESPONSE:
        lookup = command.lookupTopicResponse
        complaint = ""
        if lookup.response != CommandLookupTopicResponse.Connect:
            complaint = f"response {lookup.response}, error {lookup.error}: {lookup.message}"
        elif not lookup.brokerServiceUrl.startswith("pulsar://"):
            complaint = f"Connect to {lookup.brokerServiceUrl!r}"
        return Answer(lookup.request_id, lookup.brokerServiceUrl, complaint)
    if command.type == BaseCommand.PARTITIONED_METADATA_RESPONSE:
        metadata = command.partitionMetadataResponse
        complaint = ""
        if metadata.response != PartitionsAnswer.Success:
            complaint = f"response {metadata.response}, error {metadata.error}: {metadata.message}"
        elif metadata.partitions:
            complaint = f"{metadata.partitions} partitions of a topic that has none"
        return Answer(metadata.request_id, "", complaint)
    return None
