"""A producer for a scalable topic: one ``SegmentProducer`` for each segment that it sends to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Generic, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.connection.memory import Memory
from nextgen.client.st.domain.key_hash import key_hash
from nextgen.client.st.domain.layout import Layout
from nextgen.client.st.domain.outbox import Batch, Failed, Lane, Outbox, Waiting
from nextgen.client.st.domain.positions import NO_BATCH, MessageId, Position
from nextgen.client.st.errors import (
    AlreadyClosed,
    InvalidSettings,
    MessageTooLarge,
    ScalableTopicError,
    SendFailed,
    TimedOut,
    TopicNotFound,
)
from nextgen.client.st.producing.encoding import Outgoing
from nextgen.client.st.producing.segment_producer import SegmentProducer
from nextgen.client.st.producing.settings import AccessMode, ProducerSettings
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.watching.layout_watch import LayoutWatch
from nextgen.kernel.limits.scalable import ST_MEMORY_PER_MESSAGE_BYTES
from nextgen.tasks.timeouts import timeout

Value = TypeVar("Value")

TIMEOUT_CHECKS = 10
"""How often in the time-out of a send it is checked."""


class Producer(Generic[Value]):
    """Comes from ``PulsarClient.create_producer``. ``close`` it, or use it in ``async with``."""

    def __init__(
        self,
        topic: str,
        schema: Schema[Value],
        settings: ProducerSettings,
        *,
        brokers: Brokers,
        memory: Memory,
        timeout_ms: int,
    ) -> None:
        self.brokers = brokers
        self.settings = settings
        self.schema = schema.as_message()
        self.timeout_ms = timeout_ms
        self.outbox = Outbox(
            batch_messages_max=settings.batch_messages_max if settings.batching_enabled else 1,
            batch_bytes_max=settings.batch_bytes_max,
        )
        self._payload_bytes_max = settings.payload_bytes_max
        # A larger one may need several entries, and then has them for itself.
        self._alone_from = settings.chunk_bytes or settings.batch_bytes_max
        self._codec = schema
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._segments: dict[int, SegmentProducer] = {}
        self._pending: dict[Waiting, None] = {}
        self._scheduled: dict[int, asyncio.Handle] = {}
        self._rests: set[asyncio.TimerHandle] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self.is_closed = False
        self._watch = LayoutWatch(
            brokers,
            topic,
            create_if_missing=settings.create_if_missing,
            answer_timeout_ms=timeout_ms,
            on_layout=self._layout_changed,
            on_vanished=self._topic_vanished,
        )

    def __repr__(self) -> str:
        return f"<Producer {self.topic}, {len(self._pending)} messages wait>"

    async def __aenter__(self) -> Producer[Value]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def topic(self) -> str:
        """The topic's name, as the server resolves it."""
        return self._watch.topic

    @property
    def layout(self) -> Layout | None:
        """The newest layout of the topic."""
        return self._watch.layout

    @property
    def pending(self) -> int:
        """The number of messages that are neither stored nor failed."""
        return len(self._pending)

    async def start(self) -> None:
        """Get the layout; in an exclusive mode, attach to every active segment.

        Raises:
            ScalableTopicError: The topic cannot be produced to. Nothing is left open.
        """
        try:
            layout = await self._watch.start()
            if self.settings.access_mode is not AccessMode.SHARED:
                for segment in layout.active:
                    await self._segment(self.outbox.lane_of(segment)).attach()
        except BaseException:
            await self.shutdown()
            raise

    # Sending ----------------------------------------------------------------------------------

    async def send(
        self,
        value: Value,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        deliver_after_ms: int | None = None,
        deliver_at_ms: int | None = None,
        sequence_id: int | None = None,
    ) -> MessageId:
        """Send a message and return its id once it is stored.

        Messages with the same key are stored in the order of the calls. ``sequence_id`` MUST grow
        from message to message, also over restarts; without it the client numbers the messages.

        Raises:
            SchemaMismatch, MessageTooLarge: Nothing was sent.
            NoActiveSegment, UncoveredHash, TopicNotFound: No segment takes it.
            TimedOut: It was not stored in time, but may be yet.
        """
        future = await self.submit(
            value,
            key=key,
            properties=properties,
            event_time_ms=event_time_ms,
            deliver_after_ms=deliver_after_ms,
            deliver_at_ms=deliver_at_ms,
            sequence_id=sequence_id,
        )
        return await future

    async def submit(
        self,
        value: Value,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        deliver_after_ms: int | None = None,
        deliver_at_ms: int | None = None,
        sequence_id: int | None = None,
    ) -> asyncio.Future[MessageId]:
        """Do as ``send``, and return once the message has its place in the order.

        It waits only while messages of this client fill the memory limit. The future has the id
        or the error.
        """
        payload = self._codec.encode(value)
        size = self._size(payload)
        await self._memory.take(size)
        return self._put(
            payload,
            size,
            key,
            properties,
            event_time_ms,
            deliver_after_ms,
            deliver_at_ms,
            sequence_id,
        )

    def submit_nowait(
        self,
        value: Value,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        deliver_after_ms: int | None = None,
        deliver_at_ms: int | None = None,
        sequence_id: int | None = None,
    ) -> asyncio.Future[MessageId]:
        """Do as ``submit`` without ever waiting.

        Raises:
            MemoryLimitReached: Waiting messages fill the memory limit.
        """
        payload = self._codec.encode(value)
        size = self._size(payload)
        self._memory.take_nowait(size)
        return self._put(
            payload,
            size,
            key,
            properties,
            event_time_ms,
            deliver_after_ms,
            deliver_at_ms,
            sequence_id,
        )

    async def flush(self) -> None:
        """Return once every message that was sent before is stored or has failed."""
        last = next(reversed(self._pending), None)
        while last is not None and self._pending:
            first = next(iter(self._pending))
            if first.number > last.number:
                return
            await asyncio.wait([first.content.future])

    async def close(self) -> None:
        """Flush within the operation's time-out, then end. Harmless when closed already."""
        if not self.is_closed:
            try:
                async with timeout(self.timeout_ms / 1_000):
                    await self.flush()
            except TimeoutError:
                # What is left fails below.
                pass
        await self.shutdown()

    async def shutdown(self) -> None:
        """End at once. Messages that wait fail with ``AlreadyClosed``."""
        self.is_closed = True
        self._watch.close()
        for handle in (*self._scheduled.values(), *self._rests):
            handle.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        segments, self._segments = list(self._segments.values()), {}
        for segment in segments:
            segment.close()
        self.outbox.drop_all()
        for waiting in list(self._pending):
            self._fail(waiting, AlreadyClosed("the producer was closed"))
        await asyncio.gather(*(each.wait_closed() for each in segments))
        await self._watch.wait_closed()

    # Owner of segment producers ---------------------------------------------------------------

    def stored(self, lane: Lane, batch: Batch, position: Position) -> None:
        lanes = self.outbox.stored(lane, batch)
        segment, topic = lane.segment.topic, self.topic
        is_batch = len(batch.messages) > 1
        for index, waiting in enumerate(batch.messages):
            future = waiting.content.future
            if self._settle(waiting) and not future.done():
                place = Position(
                    position.ledger_id,
                    position.entry_id,
                    index if is_batch else NO_BATCH,
                    position.partition,
                )
                future.set_result(MessageId(topic, segment, place))
        self._resolved(lane, lanes)

    def refused(self, lane: Lane, batch: Batch, error: ScalableTopicError) -> None:
        lanes = self.outbox.stored(lane, batch)
        for waiting in batch.messages:
            self._fail(waiting, error)
        self._resolved(lane, lanes)

    def segment_gone(self, lane: Lane, error: ScalableTopicError) -> None:
        pause_ms, failed, lanes = self.outbox.gone(lane, error)
        if not lane.is_active:
            self._drop_segment(lane)
        self._fail_all(failed)
        if pause_ms:
            handle: asyncio.TimerHandle

            def rested() -> None:
                self._rests.discard(handle)
                self.outbox.rested(lane)
                self._wake([lane])

            handle = self._loop.call_later(pause_ms / 1_000, rested)
            self._rests.add(handle)
        self._wake(lanes)

    def segment_refused(self, lane: Lane, error: ScalableTopicError) -> None:
        failed, lanes = self.outbox.give_up(lane)
        for waiting in failed:
            self._fail(waiting, error)
        self._wake(lanes)

    # Inside -----------------------------------------------------------------------------------

    def _size(self, payload: bytes) -> int:
        if self.is_closed:
            raise AlreadyClosed("the producer is closed")
        if len(payload) > self._payload_bytes_max:
            raise MessageTooLarge(
                f"the payload has {len(payload)} bytes, at most "
                f"{self._payload_bytes_max} fit into a message"
            )
        return len(payload) + ST_MEMORY_PER_MESSAGE_BYTES

    @staticmethod
    def _due(deliver_after_ms: int | None, deliver_at_ms: int | None) -> int | None:
        if deliver_after_ms is None:
            return deliver_at_ms
        if deliver_at_ms is not None:
            raise InvalidSettings("a message has deliver_after_ms or deliver_at_ms, not both")
        return time.time_ns() // 1_000_000 + deliver_after_ms

    def _put(
        self,
        payload: bytes,
        size: int,
        key: str | None,
        properties: Mapping[str, str] | None,
        event_time_ms: int | None,
        deliver_after_ms: int | None,
        deliver_at_ms: int | None,
        sequence_id: int | None,
    ) -> asyncio.Future[MessageId]:
        """Give a message its place in the order. A failure returns its ``size`` of memory."""
        send_timeout_ms = self.settings.send_timeout_ms
        try:
            content = Outgoing(
                payload,
                key,
                properties,
                event_time_ms,
                self._due(deliver_after_ms, deliver_at_ms),
                sequence_id,
                self._loop.create_future(),
                self._loop.time() + send_timeout_ms / 1_000 if send_timeout_ms else float("inf"),
            )
            return self._add(content, size)
        except BaseException:
            self._memory.give(size)
            raise

    def _add(self, content: Outgoing, size: int) -> asyncio.Future[MessageId]:
        if self.is_closed:
            raise AlreadyClosed("the producer is closed")
        if self._watch.is_vanished:
            raise TopicNotFound(f"{self.topic} was deleted")
        key = content.key
        waiting = Waiting(
            content,
            None if key is None else key_hash(key),
            size,
            is_alone=content.deliver_at_ms is not None or len(content.payload) > self._alone_from,
        )
        lane = self.outbox.add(waiting)
        self._pending[waiting] = None
        if self._expiry is None and self.settings.send_timeout_ms:
            self._arm_expiry()
        self._schedule(lane)
        return content.future

    def _schedule(self, lane: Lane) -> None:
        """Have the lane sent: soon if nothing is on its way, else when the batch is old enough."""
        key = id(lane)
        if key in self._scheduled:
            return
        if not lane.in_flight or not self.settings.batching_enabled:
            self._scheduled[key] = self._loop.call_soon(self._send_lane, lane)
        else:
            self._scheduled[key] = self._loop.call_later(
                self.settings.batching_delay_ms / 1_000, self._send_lane, lane
            )

    def _send_lane(self, lane: Lane) -> None:
        self._scheduled.pop(id(lane), None)
        if not self.is_closed and lane.is_active:
            self._segment(lane).wake()

    def _wake(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            self._send_lane(lane)

    def _resolved(self, lane: Lane, lanes: list[Lane]) -> None:
        """A batch of ``lane`` was answered, by which ``lanes`` may send."""
        if not lane.is_active and not lane.in_flight:
            self._drop_segment(lane)
        self._wake(lanes)

    def _segment(self, lane: Lane) -> SegmentProducer:
        segment = self._segments.get(id(lane))
        if segment is None:
            segment = self._segments[id(lane)] = SegmentProducer(self, lane)
        return segment

    def _drop_segment(self, lane: Lane) -> None:
        segment = self._segments.pop(id(lane), None)
        if segment is not None:
            segment.close()

    def _layout_changed(self, layout: Layout, former: Layout | None) -> None:
        if former is not None and layout == former:
            return
        known = list(self.outbox.lanes)
        failed, lanes = self.outbox.layout_changed(layout)
        self._fail_all(failed)
        for lane in known:
            if lane.is_active:
                continue
            if not lane.in_flight:
                self._drop_segment(lane)
            elif (segment := self._segments.get(id(lane))) is not None:
                segment.sealed()
        self._wake(lanes)

    def _topic_vanished(self) -> None:
        error = TopicNotFound(f"{self.topic} was deleted")
        for waiting in list(self._pending):
            self._fail(waiting, error)

    def _fail_all(self, failed: list[Failed]) -> None:
        for waiting, error in failed:
            if waiting.attempts:
                error = SendFailed(f"no segment took the message: {error}")
            self._fail(waiting, error)

    def _fail(self, waiting: Waiting, error: ScalableTopicError) -> None:
        waiting.is_dropped = True
        future = waiting.content.future
        if self._settle(waiting) and not future.done():
            future.set_exception(error)
            # Whoever does not wait for it has flush and close.
            future.exception()

    def _settle(self, waiting: Waiting) -> bool:
        """Take a message off the books; return whether it was there."""
        if waiting not in self._pending:
            return False
        del self._pending[waiting]
        self._memory.give(waiting.size_bytes)
        return True

    def _arm_expiry(self) -> None:
        delay_ms = max(self.settings.send_timeout_ms // TIMEOUT_CHECKS, 1)
        self._expiry = self._loop.call_later(delay_ms / 1_000, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        error = TimedOut(f"not stored within {self.settings.send_timeout_ms} ms")
        expired = False
        for waiting in list(self._pending):
            if waiting.content.deadline > now:
                break
            expired = True
            self._fail(waiting, error)
        if expired:
            self._restart_silent()
        if self._pending:
            self._arm_expiry()

    def _restart_silent(self) -> None:
        """Open producers again whose broker has not answered for a whole batch in time."""
        for lane in self.outbox.all_lanes():
            silent = [
                batch for batch in lane.in_flight if all(one.is_dropped for one in batch.messages)
            ]
            for batch in silent:
                self._resolved(lane, self.outbox.stored(lane, batch))
            if silent and id(lane) in self._segments:
                self._segments[id(lane)].restart()
