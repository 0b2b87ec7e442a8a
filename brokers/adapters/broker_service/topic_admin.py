"""``TopicAdmin`` over gRPC: operations on the topics that this broker serves."""

from __future__ import annotations

from typing import Any, Protocol

import grpc.aio

from brokers.adapters.broker_service.topic_schemas import (
    check_schema,
    list_schemas,
    schema_of,
    valid_schema,
)
from brokers.adapters.broker_service.topic_statistics import (
    detailed_stats,
    internal_stats,
    wire_position,
)
from brokers.domain.holding import UnitKey
from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import Entry
from brokers.service.storage_refusal import STORAGE_ERRORS
from brokers.service.topics import operations
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.operations import LATEST, Place
from brokers.service.topics.topic import Topic
from brokers.service.topics.upkeep import trim
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    ProposalLost,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import TOPIC_ADMIN_PAYLOAD_BYTES_MAX
from nextgen.kernel.routing.ids import is_id
from nextgen.kernel.routing.names import InvalidName, TopicName, Unit, parse_topic
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.topic_admin_pb2_grpc import TopicAdminServicer as GeneratedServicer

_Context = grpc.aio.ServicerContext[Any, Any]

_REJECTIONS = {
    ServerError.SERVICE_NOT_READY: RejectionCode.STALE_EPOCH,
    ServerError.TOPIC_NOT_FOUND: RejectionCode.NOT_FOUND,
    ServerError.SUBSCRIPTION_NOT_FOUND: RejectionCode.NOT_FOUND,
    ServerError.CONSUMER_BUSY: RejectionCode.NOT_EMPTY,
    ServerError.NOT_ALLOWED: RejectionCode.NOT_ALLOWED,
    ServerError.TOO_MANY_REQUESTS: RejectionCode.LIMIT_EXCEEDED,
    ServerError.TOPIC_TERMINATED: RejectionCode.NOT_ALLOWED,
    ServerError.INCOMPATIBLE_SCHEMA: RejectionCode.NOT_ALLOWED,
}
"""Refusals for a reason of the request. All others are trouble that passes."""

_JAVA_LONG_MAX = 2**63 - 1
_SHOWN_CHARACTERS_MAX = 80


class _WithUnit(Protocol):
    @property
    def unit(self) -> wire.AdminUnit: ...


class TopicAdminServicer(GeneratedServicer):
    """Carries out operations on the units that are assigned to this broker."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def GetStats(
        self, request: wire.GetStatsRequest, context: _Context
    ) -> broker_pb.TopicStats:
        async with self._topic(request, context) as topic:
            return await detailed_stats(topic)

    async def CreateSubscription(
        self, request: wire.CreateSubscriptionRequest, context: _Context
    ) -> wire.CreateSubscriptionResponse:
        async with self._topic(request, context) as topic:
            place = _place(request.start) if request.HasField("start") else LATEST
            await operations.create_subscription(
                topic, request.subscription, place, dict(request.properties)
            )
        return wire.CreateSubscriptionResponse()

    async def DeleteSubscription(
        self, request: wire.DeleteSubscriptionRequest, context: _Context
    ) -> wire.DeleteSubscriptionResponse:
        async with self._topic(request, context) as topic:
            await operations.delete_subscription(
                topic, request.subscription, is_forced=request.is_forced
            )
        return wire.DeleteSubscriptionResponse()

    async def UpdateSubscription(
        self, request: wire.UpdateSubscriptionRequest, context: _Context
    ) -> wire.UpdateSubscriptionResponse:
        async with self._topic(request, context) as topic:
            await operations.update_subscription(
                topic, request.subscription, dict(request.properties)
            )
        return wire.UpdateSubscriptionResponse()

    async def GetInternalStats(
        self, request: wire.GetInternalStatsRequest, context: _Context
    ) -> wire.TopicInternalStats:
        async with self._topic(request, context) as topic:
            return await internal_stats(topic)

    async def SkipMessages(
        self, request: wire.SkipMessagesRequest, context: _Context
    ) -> wire.SkipMessagesResponse:
        async with self._topic(request, context) as topic:
            entries = None if request.is_all else request.entries
            await operations.skip(topic, request.subscription, entries)
        return wire.SkipMessagesResponse()

    async def ResetCursor(
        self, request: wire.ResetCursorRequest, context: _Context
    ) -> wire.ResetCursorResponse:
        async with self._topic(request, context) as topic:
            await operations.reset(topic, request.subscription, _place(request.place))
        return wire.ResetCursorResponse()

    async def ExpireMessages(
        self, request: wire.ExpireMessagesRequest, context: _Context
    ) -> wire.ExpireMessagesResponse:
        async with self._topic(request, context) as topic:
            await operations.expire(topic, request.subscription, _expiry(request, topic.now_ms()))
        return wire.ExpireMessagesResponse()

    async def PeekMessage(
        self, request: wire.PeekMessageRequest, context: _Context
    ) -> wire.StoredEntry:
        async with self._topic(request, context) as topic:
            return _stored(await operations.peek(topic, request.subscription, request.number))

    async def GetMessage(
        self, request: wire.GetMessageRequest, context: _Context
    ) -> wire.StoredEntry:
        async with self._topic(request, context) as topic:
            position = position_of(request.position)
            return _stored(await operations.entry_at(topic, position), request.offset)

    async def ExamineMessage(
        self, request: wire.ExamineMessageRequest, context: _Context
    ) -> wire.StoredEntry:
        async with self._topic(request, context) as topic:
            entry = await operations.examine(
                topic, request.number, is_from_latest=request.from_latest
            )
            return _stored(entry)

    async def GetLastMessageId(
        self, request: wire.GetLastMessageIdRequest, context: _Context
    ) -> wire.LastMessageId:
        async with self._topic(request, context) as topic:
            return await _last_message_id(topic)

    async def Terminate(
        self, request: wire.TerminateRequest, context: _Context
    ) -> wire.LastMessageId:
        async with self._topic(request, context) as topic:
            await operations.terminate(topic)
            last = await _last_message_id(topic)
            last.stored_bytes = topic.ledger.byte_count
            last.subscriptions.extend(sorted(operations.durable_names(topic)))
            return last

    async def Truncate(
        self, request: wire.TruncateRequest, context: _Context
    ) -> wire.TruncateResponse:
        async with self._topic(request, context) as topic:
            await operations.truncate(topic)
        return wire.TruncateResponse()

    async def Trim(self, request: wire.TrimRequest, context: _Context) -> wire.TrimResponse:
        async with self._topic(request, context) as topic:
            operations.check_persistent(topic)
            await trim(topic, topic.policy, topic.now_ms())
        return wire.TrimResponse()

    async def FindByTime(
        self, request: wire.FindByTimeRequest, context: _Context
    ) -> wire.FoundPosition:
        async with self._topic(request, context) as topic:
            place = _place(wire.TopicPlace(publish_time_ms=request.publish_time_ms))
            found = await operations.find_by_time(topic, place.publish_time_ms or 0)
        return wire.FoundPosition(position=wire_position(found))

    async def AnalyzeBacklog(
        self, request: wire.AnalyzeBacklogRequest, context: _Context
    ) -> wire.BacklogAnalysis:
        async with self._topic(request, context) as topic:
            start = position_of(request.start) if request.HasField("start") else None
            found = await operations.analyze_backlog(topic, request.subscription, start)
        return wire.BacklogAnalysis(
            entries=found.entries,
            messages=found.messages,
            is_aborted=found.is_aborted,
            first=None if found.first is None else wire_position(found.first),
            last=None if found.last is None else wire_position(found.last),
        )

    async def EndUnit(
        self, request: wire.EndUnitRequest, context: _Context
    ) -> wire.EndUnitResponse:
        unit = request.unit
        try:
            await self._topics.end_assigned(
                _name_of(unit),
                (unit.topic_id, unit.unit),
                unit.epoch,
                is_forced=request.is_forced,
                is_check_only=request.is_check_only,
            )
        except (Refusal, MetadataError) as error:
            await abort(context, _error_of(error))
        return wire.EndUnitResponse()

    async def RemoveUnit(
        self, request: wire.RemoveUnitRequest, context: _Context
    ) -> wire.RemoveUnitResponse:
        unit = request.unit
        try:
            await self._topics.remove(_name_of(unit), _key_of(unit), unit.epoch)
        except (Refusal, MetadataError) as error:
            await abort(context, _error_of(error))
        return wire.RemoveUnitResponse()

    async def ListSchemas(
        self, request: wire.ListSchemasRequest, context: _Context
    ) -> wire.ListSchemasResponse:
        async with self._topic(request, context) as topic:
            return list_schemas(topic.schemas, request.first_version)

    async def CheckSchema(
        self, request: wire.CheckSchemaRequest, context: _Context
    ) -> wire.CheckSchemaResponse:
        async with self._topic(request, context) as topic:
            schema = schema_of(request.schema)
            return await check_schema(topic.schemas, schema, is_find_only=request.is_find_only)

    async def AddSchema(
        self, request: wire.AddSchemaRequest, context: _Context
    ) -> wire.AddSchemaResponse:
        async with self._topic(request, context) as topic:
            version = await topic.schemas.add(valid_schema(request.schema), by_operator=True)
        return wire.AddSchemaResponse(version=version)

    async def DeleteSchema(
        self, request: wire.DeleteSchemaRequest, context: _Context
    ) -> wire.DeleteSchemaResponse:
        async with self._topic(request, context) as topic:
            following = await topic.schemas.delete(is_forced=request.is_forced)
        return wire.DeleteSchemaResponse(next_version=following)

    def _topic(self, request: _WithUnit, context: _Context) -> _OpenTopic:
        return _OpenTopic(self._topics, request.unit, context)


class _OpenTopic:
    """The unit that a request names. What the block raises ends the call with its error."""

    def __init__(self, topics: Topics, unit: wire.AdminUnit, context: _Context) -> None:
        self._topics = topics
        self._unit = unit
        self._context = context
        self._topic: Topic | None = None

    async def __aenter__(self) -> Topic:
        try:
            self._topic = await self._open()
        except (Refusal, MetadataError) as error:
            await abort(self._context, _error_of(error))
        return self._topic

    async def __aexit__(
        self, _kind: object, error: BaseException | None, _traceback: object
    ) -> None:
        if error is None:
            return
        assert self._topic is not None, "it was opened"
        if isinstance(error, STORAGE_ERRORS):
            self._topic.storage_failed(error)
        if isinstance(error, STORAGE_ERRORS) or isinstance(error.__cause__, STORAGE_ERRORS):
            why = f"storage of {self._unit.name} failed: {error}"
            await abort(self._context, ProposalLost(why))
        if isinstance(error, Refusal | MetadataError):
            await abort(self._context, _error_of(error))

    async def _open(self) -> Topic:
        unit = self._unit
        key = (unit.topic_id, unit.unit)
        return await self._topics.open_assigned(_name_of(unit), key, unit.epoch)


def _name_of(unit: wire.AdminUnit) -> TopicName:
    try:
        return parse_topic(unit.name)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error


def _key_of(unit: wire.AdminUnit) -> UnitKey:
    """Return the key of a unit that need not be assigned here.

    Raises:
        InvalidRequest: There cannot be such a unit.
    """
    if not is_id(unit.topic_id):
        raise InvalidRequest(f"{unit.topic_id[:_SHOWN_CHARACTERS_MAX]!a} is no topic's id")
    try:
        return (unit.topic_id, Unit.parse(unit.unit).text)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error


def _error_of(error: Refusal | MetadataError) -> MetadataError:
    if isinstance(error, MetadataError):
        return error
    code = _REJECTIONS.get(error.code)
    return Unavailable(error.message) if code is None else Refused(code, error.message)


async def _last_message_id(topic: Topic) -> wire.LastMessageId:
    position, messages = await operations.last_message(topic)
    return wire.LastMessageId(
        position=wire_position(position), batch_index=messages - 1 if messages > 1 else -1
    )


def _stored(entry: Entry, offset: int = 0) -> wire.StoredEntry:
    return wire.StoredEntry(
        position=wire_position(entry.position),
        payload=entry.payload[offset : offset + TOPIC_ADMIN_PAYLOAD_BYTES_MAX],
        publish_time_ms=entry.publish_time_ms,
        message_count=entry.message_count,
        payload_bytes=len(entry.payload),
    )


def _expiry(request: wire.ExpireMessagesRequest, now_ms: int) -> Place:
    """Return the place before which everything expires.

    Raises:
        InvalidRequest: The request has neither an age nor a position that can exist.
    """
    match request.WhichOneof("limit"):
        case "older_than_s":
            return Place(publish_time_ms=max(0, now_ms - 1_000 * request.older_than_s))
        case "up_to":
            return _place_of_position(request.up_to, is_excluded=not request.is_excluded)
    raise InvalidRequest("neither an age nor a position was named")


def _place(place: wire.TopicPlace) -> Place:
    """Return the place in a request.

    Raises:
        InvalidRequest: It names none, or a position that cannot exist.
    """
    match place.WhichOneof("place"):
        case "earliest":
            return Place(is_earliest=True)
        case "latest":
            return LATEST
        case "position":
            return _place_of_position(place.position, is_excluded=place.is_excluded)
        case "publish_time_ms":
            if place.publish_time_ms > _JAVA_LONG_MAX:
                raise InvalidRequest(f"{place.publish_time_ms} is no time in milliseconds")
            return Place(publish_time_ms=place.publish_time_ms)
    raise InvalidRequest("no place in the topic was named")


def _place_of_position(given: broker_pb.MessagePosition, *, is_excluded: bool) -> Place:
    position = position_of(given)
    if position == (-1, -1):
        return Place(is_earliest=True)
    if position == (_JAVA_LONG_MAX, _JAVA_LONG_MAX):
        return LATEST
    behind = position if is_excluded else Position(position.ledger_id, position.entry_id - 1)
    return Place(behind=behind)


def position_of(given: broker_pb.MessagePosition) -> Position:
    """Return a position.

    Raises:
        InvalidRequest: Its numbers are negative, unless both are -1.
    """
    position = Position(given.ledger_id, given.entry_id)
    if position != (-1, -1) and min(position) < 0:
        raise InvalidRequest(f"{position} is no position in a topic")
    return position
