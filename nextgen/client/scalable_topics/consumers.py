"""Consumers of scalable topics that clients of this process registered.

    join ─▶ attached to this process ─▶ registered in the topic's shard ─▶ the layout has it
                                                                                │
    next_assignment ◀─ each that differs ◀─ the shared layout ◀─────────────────╯

Assignments are read from the layout that the process follows anyway: nothing is asked of the shard
for them. If the shard removed a consumer whose client is connected here, it is registered again.
What fails meanwhile is tried again for as long as the client is connected: it cannot ask itself.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from nextgen.client.routing.shard_calls import Shards, call_home
from nextgen.client.scalable_topics.attached import AttachedConsumers, Attachment
from nextgen.kernel.errors import MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.scalable import LAYOUT_READ_MS_MAX
from nextgen.pulsar.scalable_topics.ports import (
    ConsumerAssignment,
    JoinRequest,
    ScalableTopics,
    WatchedLayout,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.layouts_pb2 import ConsumerSegments, ScalableTopic, TopicSegment

_RETRY_SECONDS = 0.5

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Index:
    """One state of a topic, by the keys that consumers look for."""

    topic: ScalableTopic
    segments: Mapping[int, TopicSegment]
    assigned: Mapping[tuple[str, str], ConsumerSegments]
    """By subscription and consumer."""


class SharedConsumers:
    """See ``nextgen.pulsar.scalable_topics.ports.ScalableConsumers``. ``stop`` it at the end."""

    def __init__(self, layouts: ScalableTopics, shards: Shards, node_id: str) -> None:
        self._layouts = layouts
        self._shards = shards
        self._attached = AttachedConsumers(shards, node_id)
        self._indexes: dict[str, _Index] = {}
        """The latest state of each topic that was looked at, by name."""
        self._joined: Counter[str] = Counter()
        """Joined consumers by their topic's name."""

    def __repr__(self) -> str:
        return f"<SharedConsumers joined={self._joined.total()}>"

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {"consumers_attached": len(self._attached)}

    def cluster_changed(self, shard_map_version: int) -> None:
        """Attach consumers at the shards that have their topics by the present map."""
        self._attached.cluster_changed(shard_map_version)

    async def stop(self) -> None:
        """Give all consumers up: they stay registered for a grace."""
        await self._attached.stop()

    async def join(self, request: JoinRequest) -> _Joined:
        """See ``ScalableConsumers.join``."""
        place = await self.watch(request)
        try:
            member = (request.topic.text, request.subscription, request.consumer)
            attachment = await self._attached.attach(member, request.topic.routing_key)
        except BaseException:
            place.close()
            raise
        joined = _Joined(self, request, place, attachment)
        self._joined[request.topic.text] += 1
        try:
            await joined.register()
        except BaseException:
            joined.close()
            raise
        return joined

    # As the joined consumers call it ----------------------------------------------------------

    async def watch(self, request: JoinRequest) -> WatchedLayout:
        return await self._layouts.watch(request.topic, create=False, may_be_absent=False)

    async def execute(self, key: str, command: pb.Command) -> pb.CommandResult:
        """Carry out a command in the shard that has ``key``.

        Raises:
            Refused: The rules forbid it.
            MetadataError: It may not have been carried out.
        """
        command.command_id = secrets.token_bytes(COMMAND_ID_BYTES)
        request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
        response = await call_home(
            self._shards, key, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
        )
        if len(response.execute.results) != 1:
            raise Unavailable("a shard answered a command without a result")
        result = response.execute.results[0]
        if result.rejection_code:
            raise Refused(result.rejection_code, result.message)
        return result

    def index(self, topic: ScalableTopic) -> _Index:
        """Return the segments and assignments of ``topic`` by key.

        The index of one state of the topic is made once, for all sessions.
        """
        known = self._indexes.get(topic.name)
        if known is None or known.topic is not topic:
            known = self._indexes[topic.name] = _Index(
                topic,
                {each.segment_id: each for each in topic.segments},
                {
                    (group.name, each.consumer_name): each
                    for group in topic.subscriptions
                    for each in group.assigned
                },
            )
        return known

    async def confirm(self, attachment: Attachment) -> None:
        """See ``AttachedConsumers.confirm``."""
        await self._attached.confirm(attachment)

    def left(self, topic: str, attachment: Attachment, *, has_left: bool) -> None:
        self._attached.detach(attachment, has_left=has_left)
        self._joined[topic] -= 1
        if not self._joined[topic]:
            del self._joined[topic]
            self._indexes.pop(topic, None)


class _Joined:
    """A ``JoinedConsumer``."""

    __slots__ = (
        "_attachment",
        "_consumers",
        "_is_closed",
        "_is_leaving",
        "_is_lost",
        "_last",
        "_place",
        "_request",
        "_topic_id",
        "_version",
    )

    def __init__(
        self,
        consumers: SharedConsumers,
        request: JoinRequest,
        place: WatchedLayout,
        attachment: Attachment,
    ) -> None:
        self._consumers = consumers
        self._request = request
        self._place = place
        self._attachment = attachment
        self._topic_id = ""
        self._version = 0
        """Of the topic when the consumer was registered."""
        self._last: ConsumerAssignment | None = None
        self._is_closed = False
        self._is_leaving = False
        self._is_lost = False
        """Whether its place at the layout may have ended."""

    def __repr__(self) -> str:
        return f"<_Joined {self._attachment.member}>"

    def on_replaced(self, listener: Callable[[], None]) -> None:
        """See ``JoinedConsumer.on_replaced``."""
        self._attachment.on_replaced(listener)

    async def register(self) -> None:
        """Register the consumer; return once the layout that is followed here has it.

        Raises:
            MetadataError: It may not be registered.
        """
        request = self._request
        body = pb.RegisterScalableConsumer(
            name=request.topic.text,
            subscription=request.subscription,
            consumer_name=request.consumer,
            type=request.type,
            takes_buckets=request.takes_buckets,
        )
        command = pb.Command(register_scalable_consumer=body)
        result = await self._consumers.execute(request.topic.routing_key, command)
        self._topic_id, self._version = result.id, result.version
        try:
            async with timeout(LAYOUT_READ_MS_MAX / 1_000):
                while self._is_behind():
                    await self._place.next_change()
        except TimeoutError:
            raise Unavailable(
                f"the layout of {request.topic.text} did not come within {LAYOUT_READ_MS_MAX} ms"
            ) from None

    async def next_assignment(self) -> ConsumerAssignment:
        """See ``JoinedConsumer.next_assignment``."""
        while True:
            try:
                return await self._next()
            except Refused:
                raise
            except MetadataError as error:
                # Its client has no way to ask again: the protocol has no word for such an end.
                if self._attachment.is_replaced or self._is_closed or self._is_leaving:
                    raise
                _logger.info(
                    "assignments are followed anew",
                    consumer=self._attachment.member,
                    why=str(error),
                )
                await asyncio.sleep(_RETRY_SECONDS)
                self._is_lost = True

    async def _next(self) -> ConsumerAssignment:
        if self._is_lost:
            await self._watch_again()
            self._is_lost = False
        while True:
            present = self._present()
            if present is None and not self._is_leaving:
                _logger.info("consumer registers again", consumer=self._attachment.member)
                # Its client may have come back by another node, and have left there.
                await self._consumers.confirm(self._attachment)
                await self.register()
                continue
            if present is not None and present != self._last:
                self._last = present
                return present
            await self._place.next_change()

    async def _watch_again(self) -> None:
        place = await self._consumers.watch(self._request)
        if self._is_closed:
            place.close()
        else:
            self._place.close()
            self._place = place

    async def leave(self) -> None:
        """See ``JoinedConsumer.leave``."""
        if self._is_closed:
            return
        self._is_leaving = True
        request = self._request
        body = pb.RemoveScalableConsumer(
            name=request.topic.text,
            subscription=request.subscription,
            consumer_name=request.consumer,
            reason="left",
        )
        try:
            command = pb.Command(remove_scalable_consumer=body)
            await self._consumers.execute(request.topic.routing_key, command)
        except Refused as error:
            if error.code != RejectionCode.NOT_FOUND:  # Else its topic is gone, and it, too.
                self.close()
                raise
        except BaseException:
            self.close()
            raise
        self._close(has_left=True)

    def close(self) -> None:
        """See ``JoinedConsumer.close``."""
        self._close(has_left=False)

    def _close(self, *, has_left: bool) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._place.close()
            topic = self._request.topic.text
            self._consumers.left(topic, self._attachment, has_left=has_left)

    def _is_behind(self) -> bool:
        """Whether the layout is older than the registration."""
        known = self._place.layout()
        if known is None:
            raise _deleted(self._request)
        if known.topic.topic_id != self._topic_id:
            # It is that of an earlier topic of this name, or of a later one.
            return True
        return known.topic.version < self._version

    def _present(self) -> ConsumerAssignment | None:
        """Return the present assignment; None if the consumer is not registered any more.

        It has none if its subscription was deleted.
        """
        known = self._place.layout()
        if known is None or known.topic.topic_id != self._topic_id:
            raise _deleted(self._request)
        topic = known.topic
        index = self._consumers.index(topic)
        found = index.assigned.get((self._request.subscription, self._request.consumer))
        if found is None:
            return self._without(topic)
        shared = set(found.shared)
        segments = [
            (index.segments[each], each in shared)
            for each in found.segments
            if each in index.segments  # Else it was pruned, which the next event says.
        ]
        return ConsumerAssignment(topic.epoch, tuple(segments))

    def _without(self, topic: ScalableTopic) -> ConsumerAssignment | None:
        """Return the assignment of a consumer that the layout assigns nothing."""
        for group in topic.subscriptions:
            if group.name == self._request.subscription and group.phase != "deleting":
                if any(each.name == self._request.consumer for each in group.consumers):
                    # It is registered, and the event with the assignments comes next.
                    return self._last or ConsumerAssignment(topic.epoch)
                return None
        return ConsumerAssignment(topic.epoch)


def _deleted(request: JoinRequest) -> Refused:
    return Refused(RejectionCode.NOT_FOUND, f"topic {request.topic.text} was deleted")
