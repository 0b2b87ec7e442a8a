"""Single messages of a topic: peeked at, by id, examined. A body with its metadata in headers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import Answer, RestFailure
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import TEXT_VALUE, Route, Work
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.rest import REST_MESSAGE_HEADERS_BYTES_MAX
from nextgen.kernel.limits.stream import POSITION_MAX
from nextgen.kernel.routing.names import Domain, TopicName
from nextgen.pulsar.compression import NotDecompressed, decompressed
from nextgen.pulsar.payload import open_payload
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.pulsar.PulsarApi_pb2 import MessageMetadata

_OCTETS = "application/octet-stream"
_PEEKED_MAX = 2**32 - 1
_INITIAL = {"type": "string", "enum": ["latest", "earliest"]}


class Messages:
    """Answers as a Pulsar does: a batch is one entry, and the admin libraries take it apart."""

    def __init__(self, operations: TopicOperations) -> None:
        self._operations = operations

    def routes(self) -> list[Route]:
        return [
            _route(
                "subscription/{subscription}/position/{number}",
                self._peek,
                "Peek at a message that a subscription has before it",
            ),
            _route("ledger/{ledger}/entry/{entry}", self._by_id, "A message by its id"),
            _route(
                "examinemessage",
                self._examine,
                "A message by its number from one end of the topic",
                query={"initialPosition": _INITIAL, "messagePosition": TEXT_VALUE},
            ),
        ]

    async def _peek(self, request: RestRequest) -> Answer:
        number = _number(request.parts["number"], _PEEKED_MAX)
        wanted = admin_pb.PeekMessageRequest(
            subscription=request.parts["subscription"], number=max(1, number)
        )
        return await self._entry(request, wanted)

    async def _by_id(self, request: RestRequest) -> Answer:
        position = MessagePosition(
            ledger_id=_number(request.parts["ledger"], POSITION_MAX),
            entry_id=_number(request.parts["entry"], POSITION_MAX),
        )
        return await self._entry(request, admin_pb.GetMessageRequest(position=position))

    async def _examine(self, request: RestRequest) -> Answer:
        initial = request.query.get("initialPosition", "") or "latest"
        if initial not in _INITIAL["enum"]:
            raise RestFailure(412, f"initialPosition is {shown(initial)}, not latest or earliest")
        number = _number(request.query.get("messagePosition", "") or "1", POSITION_MAX)
        wanted = admin_pb.ExamineMessageRequest(
            from_latest=initial == "latest", number=max(1, number)
        )
        return await self._entry(request, wanted)

    async def _entry(self, request: RestRequest, wanted: Any) -> Answer:
        name = request.topic()
        if name.domain is not Domain.PERSISTENT:
            raise RestFailure(405, f"topic {name.text} is not persistent: it stores no message")
        if await self._operations.units(name, request.timeout_ms) != [name]:
            raise RestFailure(405, f"topic {name.text} has partitions: name one of them")
        with refused_as({RejectionCode.NOT_ALLOWED: 405}):
            return _answer(name, await self._operations.entry(name, wanted))


def _answer(name: TopicName, entry: admin_pb.StoredEntry) -> Answer:
    opened = open_payload(entry.payload)
    metadata = opened.metadata
    body = _decompressed(name, metadata, entry.payload[opened.metadata_end :])
    return Answer(200, body, _OCTETS, headers=_headers(entry, metadata, len(body)))


def _decompressed(name: TopicName, metadata: MessageMetadata, body: bytes) -> bytes:
    """Return a payload as it was before its client compressed it, or as it is if it is encrypted.

    Raises:
        RestFailure: 422, it is not what its metadata says.
    """
    if metadata.encryption_keys:
        return body  # Its client compressed it first, and nobody here has the key.
    try:
        return decompressed(metadata.compression, body, metadata.uncompressed_size)
    except NotDecompressed as error:
        raise RestFailure(422, f"a message of {name.text} cannot be opened: {error}") from error


def _headers(
    entry: admin_pb.StoredEntry, metadata: MessageMetadata, body_bytes: int
) -> dict[str, str]:
    """Return what the admin libraries read. Headers beyond the bound are left out."""
    headers: dict[str, str] = {}
    size = 0
    for key, value in _metadata_headers(entry, metadata, body_bytes):
        text = _printable(value)
        size += len(key) + len(text.encode())
        if size > REST_MESSAGE_HEADERS_BYTES_MAX:
            size -= len(key) + len(text.encode())
            continue
        headers[key] = text
    return headers


def _metadata_headers(
    entry: admin_pb.StoredEntry, metadata: MessageMetadata, body_bytes: int
) -> Iterator[tuple[str, str]]:
    yield "X-Pulsar-Message-ID", f"{entry.position.ledger_id}:{entry.position.entry_id}"
    yield "X-Pulsar-batch-size", str(body_bytes)
    if metadata.HasField("num_messages_in_batch"):
        yield "X-Pulsar-num-batch-message", str(metadata.num_messages_in_batch)
    yield "X-Pulsar-publish-time", _date(metadata.publish_time)
    if metadata.event_time:
        yield "X-Pulsar-event-time", _date(metadata.event_time)
    if metadata.deliver_at_time:
        yield "X-Pulsar-deliver-at-time", _date(metadata.deliver_at_time)
    yield "X-Pulsar-producer-name", metadata.producer_name
    yield "X-Pulsar-sequence-id", str(metadata.sequence_id)
    yield "X-Pulsar-Is-Encrypted", str(bool(metadata.encryption_keys)).lower()
    yield "X-Pulsar-uncompressed-size", str(metadata.uncompressed_size)
    if metadata.HasField("partition_key"):
        yield "X-Pulsar-partition-key", metadata.partition_key
        yield "X-Pulsar-partition-key-b64-encoded", str(metadata.partition_key_b64_encoded).lower()
    if metadata.HasField("schema_version"):
        yield "X-Pulsar-schema-version-b64encoded", b64encode(metadata.schema_version).decode()
    if metadata.HasField("null_value"):
        yield "X-Pulsar-null-value", str(metadata.null_value).lower()
    properties = {_text(each.key): _text(each.value) for each in metadata.properties}
    if properties and sum(map(len, properties)) <= REST_MESSAGE_HEADERS_BYTES_MAX:
        yield "X-Pulsar-PROPERTY", json.dumps(properties, separators=(",", ":"))
    # Libraries of earlier lines read a header for each. A name that no header can have is left out.
    for key, value in properties.items():
        if key.isascii() and key.isprintable() and not set(key) & set(' ()<>@,;:\\"/[]?={}'):
            yield f"X-Pulsar-PROPERTY-{key}", value


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _date(unix_ms: int) -> str:
    """Return a time as Java's library reads it."""
    try:
        date = datetime.fromtimestamp(unix_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(unix_ms)  # A producer may have said anything.
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > most:
        raise RestFailure(412, f"{shown(text)} is no number up to {most}")
    return int(text)


def _route(path: str, work: Work, summary: str, **more: Any) -> Route:
    answers = {
        200: "Its payload, as bytes.",
        405: "Not of such a topic.",
        422: "It is damaged.",
    }
    # Java's admin library accepts JSON only, and takes the bytes all the same.
    return Route("GET", f"{TOPIC}/{path}", work, summary, Action.CONSUME, answers=answers, **more)
