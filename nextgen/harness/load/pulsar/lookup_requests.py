"""Requests of the Pulsar protocol, serialised in advance, and the check of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.pulsar.frames import SIZE_BYTES, encode_command, parse_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError
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


FIRST_ABSENT_STEM = "absent-00000"
"""Beginning of the local names of absent topics, with the number of the round."""


def absent_stem(number: int) -> str:
    """Return the stem of the names of one round: as long as every other one."""
    return f"absent-{number:05d}"


@dataclass(frozen=True, slots=True)
class RequestDeck:
    """One request for each topic; its id is ``FIRST_REQUEST_ID`` plus the topic's number."""

    topics: Sequence[str]
    frames: Sequence[bytes]
    ids: Sequence[int]
    absent: frozenset[str] = frozenset()
    """The topics that do not exist."""

    @staticmethod
    def of_lookups(topics: Sequence[str], absent: Iterable[str] = ()) -> RequestDeck:
        command = BaseCommand(type=BaseCommand.LOOKUP)
        return RequestDeck._of(topics, absent, command, "lookupTopic")

    @staticmethod
    def of_partition_metadata(topics: Sequence[str], absent: Iterable[str] = ()) -> RequestDeck:
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
        return RequestDeck._of(topics, absent, command, "partitionMetadata")

    @staticmethod
    def _of(
        topics: Sequence[str], absent: Iterable[str], command: BaseCommand, field: str
    ) -> RequestDeck:
        request: Any = getattr(command, field)
        frames = []
        ids = range(FIRST_REQUEST_ID, FIRST_REQUEST_ID + len(topics))
        for topic, request_id in zip(topics, ids, strict=True):
            request.topic = topic
            request.request_id = request_id
            frames.append(encode_command(command))
        return RequestDeck(topics, frames, list(ids), frozenset(absent))

    def renamed(self, part: slice, number: int) -> list[bytes]:
        """Return the frames of a part, with the names of absent topics of another round."""
        first, other = FIRST_ABSENT_STEM.encode(), absent_stem(number).encode()
        return [frame.replace(first, other) for frame in self.frames[part]]

    def complaint(self, answer: Answer) -> str:
        """Return what is wrong with an answer; empty if it is as expected."""
        if self.topic_of(answer.request_id) not in self.absent:
            return answer.complaint
        if answer.is_not_found or answer.broker_url:
            # A lookup of an absent topic leads to any broker.
            return ""
        return answer.complaint or "an absent topic was found"

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
    is_not_found: bool = False


def answer_of(command: BaseCommand) -> Answer | None:
    """Return the answer in a command, None if it answers no lookup and no metadata request."""
    if command.type == BaseCommand.LOOKUP_RESPONSE:
        lookup = command.lookupTopicResponse
        complaint = ""
        if lookup.response != CommandLookupTopicResponse.Connect:
            complaint = f"response {lookup.response}, error {lookup.error}: {lookup.message}"
        url = lookup.brokerServiceUrl or lookup.brokerServiceUrlTls
        if not complaint and not url.startswith(("pulsar://", "pulsar+ssl://")):
            complaint = f"Connect to {url!r}"
        return Answer(lookup.request_id, url, complaint)
    if command.type == BaseCommand.PARTITIONED_METADATA_RESPONSE:
        metadata = command.partitionMetadataResponse
        complaint = ""
        if metadata.response != PartitionsAnswer.Success:
            complaint = f"response {metadata.response}, error {metadata.error}: {metadata.message}"
        elif metadata.partitions:
            complaint = f"{metadata.partitions} partitions of a topic that has none"
        return Answer(
            metadata.request_id, "", complaint, metadata.error == ServerError.TopicNotFound
        )
    return None
