"""SCALABLE_TOPIC_SUBSCRIBE, ..._UNSUBSCRIBE and the assignments: one connection's consumers.

    SUBSCRIBE ─▶ joined: registered, attached to this node ─▶ RESPONSE: the first assignment
                      │ next assignment                  ▲
                      ▼                                  │
               the client has read all ──▶ UPDATE ───────╯

    UNSUBSCRIBE ─▶ the consumer leaves at once ─▶ SUCCESS
    the connection ends ─▶ the consumer stays registered for a grace

Every update has the whole assignment. One is in flight: what changes meanwhile comes with the next.
A sealed segment whose consumer is stuck (``stalled_segments``) is left out of one update more.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.scalable import (
    CONSUMER_SESSIONS_MAX,
    CONSUMER_SESSIONS_PER_CONNECTION_MAX,
)
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic, scalable_name
from nextgen.kernel.scalable.ranges import HASH_MAX
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.admission.refusals import shown
from nextgen.pulsar.errors import server_error_of
from nextgen.pulsar.scalable_topics.ports import (
    ConsumerAssignment,
    JoinedConsumer,
    JoinRequest,
    ScalableConsumers,
)
from nextgen.pulsar.scalable_topics.stalled_segments import SegmentLooks, StalledSegments
from nextgen.pulsar.topic_lists.session import Client
from nextgen.tasks.background import start
from protos.nextgen.v1.layouts_pb2 import TopicSegment
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

CONSUMER_COMMANDS = frozenset(
    {BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE}
)
"""The commands that a session handles."""

_TYPES = {pulsar.STREAM: "stream", pulsar.CHECKPOINT: "checkpoint"}

_WITHOUT_BUCKETS = re.compile(r"5\.0\.0-M1\b")
"""Versions of clients that know no entry buckets: each would read a shared segment alone."""

_logger = structlog.get_logger(__name__)


class ConsumerClient(Client, Protocol):
    """A connection to a client: a ``PulsarConnection``."""

    @property
    def client_version(self) -> str: ...


@dataclass(slots=True)
class ConsumerSessions:
    """What the sessions of one process share."""

    consumers: ScalableConsumers
    looks: SegmentLooks | None = None
    """None: stalled segments are not looked for."""
    sessions_max: int = CONSUMER_SESSIONS_MAX
    sessions: int = 0
    """Consumers of all connections."""
    assignments: int = 0
    refused: int = 0
    replaced: int = 0
    renewed: int = 0
    """Segments that were given to their consumers anew."""

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return {
            "consumer_assignments": self.assignments,
            "consumer_sessions_refused": self.refused,
            "consumer_sessions_replaced": self.replaced,
            "consumer_segments_renewed": self.renewed,
        }

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {"consumer_sessions": self.sessions}


class _Stopped(Exception):
    """A consumer cannot join. ``code`` is for the client."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Consumer:
    """One consumer of a connection. ``joined`` has None if it could not join."""

    __slots__ = ("assigned", "joined", "stalled", "task")

    def __init__(self) -> None:
        self.joined: asyncio.Future[JoinedConsumer | None]
        self.joined = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.assigned = ConsumerAssignment(0)
        """As the client was last told."""
        self.stalled: StalledSegments | None = None


class ConsumerSession:
    """The registered consumers of one connection. ``close`` it with the connection."""

    __slots__ = ("_client", "_consumers", "_leaving", "_shared")

    def __init__(self, client: ConsumerClient, shared: ConsumerSessions) -> None:
        self._client = client
        self._shared = shared
        self._consumers: dict[int, _Consumer] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def handle(self, command: BaseCommand) -> None:
        """Carry out one of ``CONSUMER_COMMANDS``."""
        if command.type == BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE:
            self._unsubscribe(command.scalableTopicUnsubscribe)
            return
        request = command.scalableTopicSubscribe
        # A client that uses an id again has given the earlier consumer up.
        self._drop(request.consumer_id)
        try:
            self._begin(command, request)
        except _Stopped as error:
            self._refuse(request.request_id, error.code, str(error))

    def close(self) -> None:
        """Give all consumers up, without a word to the client. One that is leaving leaves."""
        for consumer_id in list(self._consumers):
            self._drop(consumer_id)

    def _begin(self, command: BaseCommand, request: pulsar.CommandScalableTopicSubscribe) -> None:
        name = _consumed_name(request.topic)
        shared = self._shared
        if len(self._consumers) >= CONSUMER_SESSIONS_PER_CONNECTION_MAX:
            raise _Stopped(
                ServerError.TooManyRequests,
                f"this connection has {len(self._consumers)} registered consumers",
            )
        if shared.sessions >= shared.sessions_max:
            raise _Stopped(
                ServerError.TooManyRequests,
                f"{shared.sessions} consumers of scalable topics are connected to this node",
            )
        shared.sessions += 1
        join = JoinRequest(
            name,
            request.subscription,
            request.consumer_name,
            _TYPES[request.consumer_type],
            takes_buckets(self._client.client_version),
        )
        consumer_id, consumer = request.consumer_id, _Consumer()
        self._consumers[consumer_id] = consumer
        work = self._serve(request.request_id, consumer_id, consumer, join)
        consumer.task = start("scalable_consumer", work)
        kept = self._client.keep(command)
        consumer.task.add_done_callback(lambda _: self._ended(consumer_id, consumer, kept))

    def _drop(self, consumer_id: int) -> None:
        consumer = self._consumers.pop(consumer_id, None)
        if consumer is not None and consumer.task is not None:
            consumer.task.cancel()

    def _ended(self, consumer_id: int, consumer: _Consumer, kept: Kept) -> None:
        kept.release()
        self._shared.sessions -= 1
        if not consumer.joined.done():
            consumer.joined.set_result(None)  # It was cancelled before it began.
        if self._consumers.get(consumer_id) is consumer:
            del self._consumers[consumer_id]

    def _refuse(self, request_id: int, code: ServerError, message: str) -> None:
        self._shared.refused += 1
        self._respond(
            pulsar.CommandScalableTopicSubscribeResponse(
                request_id=request_id, error=code, message=shown(message)
            )
        )

    def _respond(self, response: pulsar.CommandScalableTopicSubscribeResponse) -> None:
        self._client.send_command(
            BaseCommand(
                type=BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
                scalableTopicSubscribeResponse=response,
            )
        )

    # Assignments ------------------------------------------------------------------------------

    async def _serve(
        self, request_id: int, consumer_id: int, consumer: _Consumer, join: JoinRequest
    ) -> None:
        """Join, answer, and send assignments until the consumer is dropped or replaced."""
        joined: JoinedConsumer | None = None
        try:
            joined = await self._shared.consumers.join(join)
            joined.on_replaced(lambda: self._replaced(consumer_id, consumer, join))
            consumer.joined.set_result(joined)
            assigned = await joined.next_assignment()
            first = assignment_of(assigned, join.topic)
            self._respond(
                pulsar.CommandScalableTopicSubscribeResponse(
                    request_id=request_id, assignment=first
                )
            )
            self._watch_stalled(consumer_id, consumer, join)
            self._told(consumer, assigned, join.topic)
        except MetadataError as error:
            self._refuse(request_id, server_error_of(error), str(error))
        except Exception as error:
            # The client must get an answer even if this is a bug.
            _logger.exception("a consumer could not join", topic=join.topic.text)
            self._refuse(request_id, ServerError.UnknownError, repr(error))
        else:
            await self._follow(consumer_id, consumer, joined, join.topic)
        finally:
            if consumer.stalled is not None:
                consumer.stalled.close()
            if joined is not None:
                joined.close()

    async def _follow(
        self, consumer_id: int, consumer: _Consumer, joined: JoinedConsumer, topic: TopicName
    ) -> None:
        while True:
            self._shared.assignments += 1
            await self._client.until_writable()
            try:
                assigned = await joined.next_assignment()
            except MetadataError as error:
                # The protocol has no word for the end: the consumer is left with no segments, and
                # learns from its watch of the layout, or when it subscribes again.
                _logger.info("assignments end", topic=topic.text, why=str(error))
                self._update(consumer_id, ConsumerAssignment(consumer.assigned.epoch), topic)
                return
            self._update(consumer_id, assigned, topic)
            self._told(consumer, assigned, topic)

    def _update(self, consumer_id: int, assigned: ConsumerAssignment, topic: TopicName) -> None:
        self._client.send_command(
            BaseCommand(
                type=BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
                scalableTopicAssignmentUpdate=pulsar.CommandScalableTopicAssignmentUpdate(
                    consumer_id=consumer_id, assignment=assignment_of(assigned, topic)
                ),
            )
        )

    def _watch_stalled(self, consumer_id: int, consumer: _Consumer, join: JoinRequest) -> None:
        """Look for stalled segments of a consumer; others than streams acknowledge nothing."""
        looks = self._shared.looks
        if looks is None or join.type != _TYPES[pulsar.STREAM]:
            return

        async def give_anew(segment_id: int) -> None:
            await self._client.until_writable()
            assigned = consumer.assigned
            others = [each for each in assigned.segments if each[0].segment_id != segment_id]
            if len(others) < len(assigned.segments):
                self._shared.renewed += 1
                self._update(consumer_id, replace(assigned, segments=tuple(others)), join.topic)
                self._update(consumer_id, assigned, join.topic)

        consumer.stalled = StalledSegments(looks, join.subscription, give_anew)

    def _told(self, consumer: _Consumer, assigned: ConsumerAssignment, topic: TopicName) -> None:
        consumer.assigned = assigned
        if consumer.stalled is not None:
            consumer.stalled.watch(
                {
                    each.segment_id: parse_topic(_name_of(each, topic))
                    for each, is_shared in assigned.segments
                    if each.is_sealed and not is_shared
                }
            )

    def _replaced(self, consumer_id: int, consumer: _Consumer, join: JoinRequest) -> None:
        """The client came back by another connection: this one gets no more assignments."""
        _logger.info(
            "consumer came back by another connection",
            topic=join.topic.text,
            subscription=shown(join.subscription),
            consumer=shown(join.consumer),
        )
        self._shared.replaced += 1
        if self._consumers.get(consumer_id) is consumer:
            self._drop(consumer_id)

    # Leaving ----------------------------------------------------------------------------------

    def _unsubscribe(self, request: pulsar.CommandScalableTopicUnsubscribe) -> None:
        consumer = self._consumers.pop(request.consumer_id, None)
        if consumer is None:
            _logger.info("an unknown consumer leaves", consumer_id=request.consumer_id)
            self._succeed(request.request_id)
            return
        start("scalable_consumer_leaves", self._leave(request.request_id, consumer), self._leaving)

    async def _leave(self, request_id: int, consumer: _Consumer) -> None:
        joined = await consumer.joined
        try:
            if joined is not None:
                await joined.leave()
        except MetadataError as error:
            self._client.send_error(request_id, server_error_of(error), shown(str(error)))
        else:
            self._succeed(request_id)
        finally:
            if consumer.task is not None:
                consumer.task.cancel()

    def _succeed(self, request_id: int) -> None:
        success = pulsar.CommandSuccess(request_id=request_id)
        self._client.send_command(BaseCommand(type=BaseCommand.SUCCESS, success=success))


def takes_buckets(client_version: str) -> bool:
    """Return whether a client of this version can share a segment by entry buckets.

    ``client_version`` is that of its CONNECT.
    """
    return _WITHOUT_BUCKETS.search(client_version) is None


def assignment_of(
    assigned: ConsumerAssignment, topic: TopicName
) -> pulsar.ScalableConsumerAssignment:
    """Return an assignment as a message. A shared segment has the full list of its buckets."""
    made = pulsar.ScalableConsumerAssignment(layout_epoch=assigned.epoch)
    for segment, is_shared in assigned.segments:
        one = made.segments.add(
            segment_id=segment.segment_id,
            hash_start=segment.hash_start,
            hash_end=segment.hash_end,
            segment_topic=_name_of(segment, topic),
        )
        if is_shared:
            starts = [0, *segment.bucket_starts]
            ends = [*[each - 1 for each in segment.bucket_starts], HASH_MAX]
            for first, last in zip(starts, ends, strict=True):
                one.bucket_ranges.add(start=first, end=last)
    return made


def _name_of(segment: TopicSegment, topic: TopicName) -> str:
    if segment.legacy_topic_name:
        return segment.legacy_topic_name
    descriptor = f"{segment.hash_start:04x}-{segment.hash_end:04x}-{segment.segment_id}"
    return f"{Domain.SEGMENT}://{topic.routing_key}/{descriptor}"


def _consumed_name(topic: str) -> TopicName:
    """Return the name of a request.

    Raises:
        _Stopped: No consumer of that name can be registered.
    """
    try:
        name = parse_topic(topic)
    except InvalidName as error:
        raise _Stopped(ServerError.InvalidTopicName, str(error)) from error
    if name.domain not in (Domain.TOPIC, Domain.PERSISTENT):
        raise _Stopped(ServerError.NotAllowedError, f"{name.text} is no scalable topic")
    if name.partition is not None or name.segment is not None:
        raise _Stopped(ServerError.NotAllowedError, f"{name.text} is a part of a topic")
    return scalable_name(name)
