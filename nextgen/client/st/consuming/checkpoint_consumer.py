"""A consumer that keeps its own place: it reads all segments, and gives checkpoints.

Nothing is stored at the server. Children of a split are read behind their parents' ends, so the
messages of a key come in order. The consumers of a group share the segments: each waits for those
parents that it reads itself.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.receiving import Receiving
from nextgen.client.st.consuming.segment_consumer import SegmentConsumer
from nextgen.client.st.consuming.settings import ConsumerSettings, InitialPosition
from nextgen.client.st.consuming.subscribing import Place, SegmentSubscription
from nextgen.client.st.domain.assignment import Assignment
from nextgen.client.st.domain.checkpoints import Checkpoint, Edge, Mark, readable_segments
from nextgen.client.st.domain.layout import Layout, LayoutSegment
from nextgen.client.st.domain.positions import NO_BATCH, Position
from nextgen.client.st.errors import InvalidCheckpoint, ScalableTopicError
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.watching.registration import Registration
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")

_NOTHING = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ReadingStart:
    """Where reading begins: at a checkpoint, a time, or an end of the topic."""

    position: InitialPosition = InitialPosition.LATEST
    checkpoint: Checkpoint | None = None
    timestamp_ms: int | None = None


class CheckpointConsumer(Receiving[Value]):
    """Comes from ``PulsarClient.checkpoint_consumer`` or ``PulsarClient.reader``."""

    def __init__(
        self,
        topic: str,
        schema: Schema[Value],
        settings: ConsumerSettings,
        reading_start: ReadingStart,
        *,
        brokers: Brokers,
        timeout_ms: int,
        group: str = "",
    ) -> None:
        super().__init__(
            topic,
            schema,
            brokers=brokers,
            timeout_ms=timeout_ms,
            create_if_missing=settings.create_if_missing,
        )
        self._settings = settings
        self._start = reading_start
        self._subscription = f"reader-{secrets.token_hex(5)}"
        self._ended: set[str] = set()
        self._marks: dict[str, Mark] = {}
        self._has_begun = False
        self._progress = asyncio.Event()
        self._assigned: frozenset[str] = frozenset()
        self._registration: Registration | None = None
        if group:
            self._registration = Registration(
                brokers,
                self.watch,
                subscription=group,
                consumer_name=settings.consumer_name,
                timeout_ms=timeout_ms,
                on_assignment=self._was_assigned,
                consumer_type=pulsar.CHECKPOINT,
            )

    async def start(self) -> None:
        """Begin to read.

        Raises:
            InvalidCheckpoint: The checkpoint is one of another topic.
            ScalableTopicError: Reading is not possible. Nothing is left open.
        """
        try:
            await self.watch.start()
            checkpoint = self._start.checkpoint
            if checkpoint is not None and checkpoint.topic != self.topic:
                raise InvalidCheckpoint(
                    f"the checkpoint is of {checkpoint.topic}, not of {self.topic}"
                )
            if self._registration is not None:
                await self._registration.start()
            await self.wait_opened(self.segments.values())
        except BaseException:
            await self.close()
            raise

    def checkpoint(self) -> Checkpoint:
        """Return how far the application has read: the last message that ``receive`` returned, in
        each segment at the same moment."""
        layout = self.layout
        known = {} if layout is None else {each.topic: each for each in layout.segments.values()}
        for topic, consumer in self.segments.items():
            if topic in known and consumer.place is not Edge.LATEST:
                self._marks[topic] = Mark(known[topic].created_at_ms, consumer.place)
        return Checkpoint(self.topic, {t: mark for t, mark in self._marks.items() if t in known})

    async def has_message_available(self) -> bool:
        """Return whether a message was stored that ``receive`` has not returned.

        Raises:
            ScalableTopicError: A segment's broker does not answer.
        """
        while True:
            self._progress.clear()
            if any(
                each.message is not None and each.is_valid and self.is_wanted(each.message)
                for each in self.inbox.items()
            ):
                return True
            opened = list(self.segments.values())
            for consumer in opened:
                if not consumer.is_at_end and await self._has_more(consumer):
                    return True
            if opened != list(self.segments.values()):
                # Others were opened meanwhile.
                continue
            layout = self.layout
            if layout is None or all(
                each.topic in self._ended or each.topic in self.segments
                for each in layout.segments.values()
                if self._is_mine(each.topic)
            ):
                return False
            # Children wait for the ends of their parents, which are on their way.
            await self._progress.wait()

    @property
    def assigned(self) -> tuple[str, ...]:
        """The segments that the group's other consumers do not read, by their own topics."""
        layout = self.layout
        known = [] if layout is None else [each.topic for each in layout.segments.values()]
        return tuple(topic for topic in known if self._is_mine(topic))

    async def close(self) -> None:
        if self._registration is not None and not self.is_closed:
            self._registration.close()
        await super().close()
        if self._registration is not None:
            await self._registration.wait_closed()

    # Hooks ------------------------------------------------------------------------------------

    def topic_recreated(self) -> None:
        if self._registration is not None:
            self._registration.topic_recreated()
        self._start = ReadingStart(InitialPosition.EARLIEST)
        self._ended.clear()
        self._marks.clear()

    def layout_changed(self, layout: Layout, former: Layout | None) -> None:
        if self.is_closed:
            return
        present = {each.topic for each in layout.segments.values()}
        for segment in list(self.segments):
            if segment not in present:
                # It was pruned. What is behind it is read from its beginning.
                self.close_segment(segment)
        self._ended &= present
        if former is None:
            self._begin(layout)
        self._open_readable(layout)
        self._has_begun = True

    def reached_end(self, consumer: SegmentConsumer) -> None:
        super().reached_end(consumer)
        self._ended.add(consumer.how.segment)
        self._progress.set()
        if self.layout is not None:
            self._open_readable(self.layout)

    def segment_ended(self, consumer: SegmentConsumer) -> None:
        segment = consumer.how.segment
        layout = self.layout
        found = [] if layout is None else list(layout.segments.values())
        for each in found:
            if each.topic == segment:
                self._marks[segment] = Mark(each.created_at_ms, Edge.END)
        self.close_segment(segment)

    def arrived(self, consumer: SegmentConsumer, messages: list[Message[Any]]) -> None:
        if not any(each.consumer is consumer for each in self.inbox.items()):
            # Nothing before them waits to be taken.
            while messages and not self.is_wanted(messages[0]):
                consumer.took(messages.pop(0))
        super().arrived(consumer, messages)
        self._progress.set()

    def is_wanted(self, message: Message[Any]) -> bool:
        since = self._start.timestamp_ms
        return since is None or message.publish_time_ms >= since

    def failed(self, consumer: SegmentConsumer, error: ScalableTopicError) -> None:
        super().failed(consumer, error)
        self._progress.set()

    # Inside -----------------------------------------------------------------------------------

    def _is_mine(self, topic: str) -> bool:
        return self._registration is None or topic in self._assigned

    def _was_assigned(self, assignment: Assignment, former: Assignment | None) -> None:
        self._assigned = frozenset(each.topic for each in assignment.segments)
        # So that marks have how far the segments that go to others were read.
        self.checkpoint()
        for segment in list(self.segments):
            if segment not in self._assigned:
                self.close_segment(segment)
        if self.layout is not None:
            self._open_readable(self.layout)
        self._progress.set()

    def _begin(self, layout: Layout) -> None:
        """Note which segments are behind the start."""
        checkpoint = self._start.checkpoint
        is_latest = checkpoint is None and self._start.timestamp_ms is None
        is_latest = is_latest and self._start.position is InitialPosition.LATEST
        for each in layout.segments.values():
            if checkpoint is not None:
                is_behind = checkpoint.start_of(each) is Edge.END
            else:
                is_behind = is_latest and not each.is_active
            if is_behind:
                self._ended.add(each.topic)
                self._marks[each.topic] = Mark(each.created_at_ms, Edge.END)

    def _open_readable(self, layout: Layout) -> None:
        others = {each.topic for each in layout.segments.values() if not self._is_mine(each.topic)}
        for each in readable_segments(layout, self._ended | others):
            if each.topic not in self.segments:
                self.open_segment(self._how(each))

    def _how(self, segment: LayoutSegment) -> SegmentSubscription:
        return SegmentSubscription(
            topic=self.topic,
            segment=segment.topic,
            subscription=self._subscription,
            kind=pulsar.CommandSubscribe.Exclusive,
            consumer_name=self._settings.consumer_name,
            receiver_queue=self._settings.receiver_queue,
            properties=self._settings.properties,
            is_durable=False,
            place=self._place_of(segment),
            since_ms=self._start.timestamp_ms,
            is_legacy=segment.is_legacy,
        )

    def _place_of(self, segment: LayoutSegment) -> Place:
        mark = self._marks.get(segment.topic)
        if mark is not None and mark.created_at_ms == segment.created_at_ms:
            # It was read before, and comes back from another consumer of the group.
            return mark.place
        if self._start.checkpoint is not None:
            return self._start.checkpoint.start_of(segment)
        if self._start.timestamp_ms is not None:
            return Edge.LATEST
        is_late = self._has_begun or self._start.position is InitialPosition.EARLIEST
        return Edge.START if is_late else Edge.LATEST

    async def _has_more(self, consumer: SegmentConsumer) -> bool:
        last = await consumer.last_position()
        if last.entry_id == _NOTHING or consumer.is_at_end:
            return False
        place = consumer.place
        if not isinstance(place, Position):
            return True
        if last.entry != place.entry:
            return last.entry > place.entry
        return place.batch_index != NO_BATCH and last.batch_index > place.batch_index
