"""Conversion between messages and the service's values: encoded answers, names, pages, checks of
limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError

from discovery.domain.answer_cache import AnswerFacts, Delta, HasLeft
from discovery.domain.page import InvalidPageToken, PageToken, parse_page_token
from nextgen.client.transport.request_fields import RequestFields
from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import (
    COMMAND_ID_BYTES,
    NAMES_PER_LOOKUP_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    TRACE_ID_CHARACTERS_MAX,
)
from nextgen.kernel.limits.listing import LIST_PREFIX_BYTES_MAX
from nextgen.kernel.routing.ids import is_id, slot_of_id
from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1.discovery_service_pb2 import (
    ListObjectsRequest,
    LookupRequest,
    LookupResponse,
)
from protos.nextgen.v1.events_pb2 import Event, SlotsReleased
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import CommandResult, TopicOutcome, TopicSpec

Parsed = TypeVar("Parsed")

_ANSWERS_TAG = bytes([LookupResponse.ANSWERS_FIELD_NUMBER << 3 | 2])
_CONTINUED = 0x80


def encoded_answer(answer: LookupAnswer) -> bytes:
    """Return ``answer`` as one element of ``LookupResponse.answers``: tag, length, message.

    A protobuf message is the concatenation of its fields, so a response is made of these by
    joining them.
    """
    payload = answer.SerializeToString()
    return _ANSWERS_TAG + _varint(len(payload)) + payload


def decoded_answer(encoded: bytes) -> LookupAnswer:
    """Return the answer that ``encoded_answer`` made."""
    return LookupResponse.FromString(encoded).answers[0]


def answer_facts(answer: LookupAnswer) -> AnswerFacts:
    """Return the facts of an answer that the cache needs."""
    return AnswerFacts(
        answer.topic,
        answer.topic_id,
        answer.epoch,
        answer.broker_id,
        answer.session_id,
        answer.position,
        answer.broker_url,
    )


def encoded_answer_facts(encoded: bytes) -> AnswerFacts:
    """Return the facts of an encoded answer."""
    return answer_facts(decoded_answer(encoded))


def delta_of_event(event: Event) -> Delta | None:
    """Return the assignment change in ``event``, None if it is another event."""
    match event.WhichOneof("payload"):
        case "topic_assigned":
            assigned = event.topic_assigned
            return Delta(
                position=event.position,
                topic=assigned.name,
                topic_id=assigned.topic_id,
                epoch=assigned.epoch,
                broker_id=assigned.broker_id,
                session_id=assigned.session_id,
            )
        case "topic_unassigned":
            ended = event.topic_unassigned
            return Delta(
                position=event.position,
                topic=ended.name,
                topic_id=ended.topic_id,
                epoch=ended.epoch,
                broker_id="",
                session_id="",
            )
    return None


def leaving_with(released: SlotsReleased) -> HasLeft:
    """Return whose answers end with a release of slots: a topic's id carries its slot."""
    ranges = [(each.first, each.last) for each in released.ranges]

    def has_left(facts: AnswerFacts) -> bool:
        if not is_id(facts.topic_id):
            return True
        slot = slot_of_id(facts.topic_id)
        return any(first <= slot <= last for first, last in ranges)

    return has_left


def trouble_answer(topic: str, error: MetadataError) -> bytes:
    """Return the encoded, retryable answer to a failed lookup."""
    answer = LookupAnswer(
        topic=topic,
        rejection_code=error.reason,
        message=str(error),
        retryable=True,
        retry_after_ms=error.retry_after_ms,
    )
    return encoded_answer(answer)


def refused_answer(topic: str, code: str, message: str) -> bytes:
    """Return the encoded, final answer to a failed lookup."""
    return encoded_answer(LookupAnswer(topic=topic, rejection_code=code, message=message))


_LOOKUP_FIELDS = RequestFields(LookupRequest)


def parse_lookup(data: bytes) -> LookupRequest:
    """Return the request in ``data``.

    Raises:
        InvalidRequest: It is malformed, or has no name or too many.
    """
    _LOOKUP_FIELDS.check(data)
    try:
        request = LookupRequest.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"not a LookupRequest: {error}") from error
    check_lookup(request)
    return request


def check_lookup(request: LookupRequest) -> None:
    """Check the number of names and the length of the trace id.

    Raises:
        InvalidRequest: There is no name, or there are too many, or the id is too long.
    """
    count = len(request.topics)
    if not 1 <= count <= NAMES_PER_LOOKUP_MAX:
        raise InvalidRequest(
            f"a lookup has {count} topics, 1 to {NAMES_PER_LOOKUP_MAX} are allowed"
        )
    if len(request.trace_id) > TRACE_ID_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a trace id has {len(request.trace_id)} characters, "
            f"at most {TRACE_ID_CHARACTERS_MAX} are allowed"
        )


def demanded_epochs(request: LookupRequest) -> dict[int, int]:
    """Return the least demanded epoch by the place of its name; places without a demand are left
    out.

    Raises:
        InvalidRequest: There are epochs for some of the names only.
    """
    epochs = request.min_epochs
    if len(epochs) not in {0, len(request.topics)}:
        raise InvalidRequest(
            f"a lookup of {len(request.topics)} topics has {len(epochs)} min_epochs"
        )
    return {place: epoch for place, epoch in enumerate(epochs) if epoch}


def known_positions(request: LookupRequest) -> dict[int, int]:
    """Return the positions of shards that the caller knows, by shard id."""
    return {each.shard_id: each.position for each in request.positions}


def parse_name(parse: Callable[[str], Parsed], text: str) -> Parsed:
    """Return ``parse(text)``.

    Raises:
        InvalidRequest: It is not such a name; the message is the parser's.
    """
    try:
        return parse(text)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error


def check_command_id(command_id: bytes) -> None:
    """Check the length of a command id.

    Raises:
        InvalidRequest: It is neither empty nor ``COMMAND_ID_BYTES`` long.
    """
    if len(command_id) not in {0, COMMAND_ID_BYTES}:
        raise InvalidRequest(
            f"a command id has {len(command_id)} bytes, {COMMAND_ID_BYTES} are needed"
        )


def check_prefix(prefix: str) -> None:
    """Check the length of the prefix of a listing.

    Raises:
        InvalidRequest: No name is that long.
    """
    if len(prefix.encode()) > LIST_PREFIX_BYTES_MAX:
        raise InvalidRequest(f"a prefix has at most {LIST_PREFIX_BYTES_MAX} bytes")


def page_bounds(request: ListObjectsRequest) -> tuple[PageToken, int]:
    """Return where the page begins, and how many items it may have.

    Raises:
        InvalidRequest: The token is not ours, the page is too big, or the prefix too long.
    """
    check_prefix(request.prefix)
    if request.page_size > PAGE_ITEMS_MAX:
        raise InvalidRequest(
            f"a page of {request.page_size} items, at most {PAGE_ITEMS_MAX} are allowed"
        )
    try:
        token = parse_page_token(request.page_token)
    except InvalidPageToken as error:
        raise InvalidRequest(str(error)) from error
    return token, request.page_size or PAGE_ITEMS_DEFAULT


def check_accepted(result: CommandResult) -> CommandResult:
    """Return ``result`` if the command was accepted.

    Raises:
        Refused: A rule rejected it.
    """
    if result.rejection_code:
        raise Refused(result.rejection_code, result.message)
    return result


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _CONTINUED:
        encoded.append(value & (_CONTINUED - 1) | _CONTINUED)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def parsed_topics(
    topics: Sequence[TopicSpec],
) -> tuple[dict[int, TopicOutcome], dict[int, str]]:
    """Return, by place, the outcomes of malformed names, and the routing keys of the others, whose
    names are canonical from here on."""
    refused: dict[int, TopicOutcome] = {}
    routing_keys: dict[int, str] = {}
    for place, spec in enumerate(topics):
        try:
            name = parse_topic(spec.name)
        except InvalidName as error:
            refused[place] = TopicOutcome(
                rejection_code=RejectionCode.INVALID_NAME, message=str(error)
            )
            continue
        spec.name = name.text
        routing_keys[place] = name.routing_key
    return refused, routing_keys
