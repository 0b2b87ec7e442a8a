"""The consumer of one segment: on whatever broker serves it, until it is closed.

After a failure that may pass it is subscribed again, with growing pauses. What the application has
not taken out of the queue by then is dropped, because the broker sends it again.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Protocol

from nextgen.client.st.connection.brokers import Brokers, refusal_in
from nextgen.client.st.connection.link import Link
from nextgen.client.st.consuming.chunked_messages import ChunkedMessages
from nextgen.client.st.consuming.message import Message, messages_of
from nextgen.client.st.consuming.schema_versions import InVersions, SchemaVersions
from nextgen.client.st.consuming.subscribing import (
    Place,
    SegmentSubscription,
    subscribe_command,
)
from nextgen.client.st.consuming.unpacking import Damaged, Unpacked, unpack, unpack_whole
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.domain.checkpoints import Edge
from nextgen.client.st.domain.entries import UnacknowledgedEntries
from nextgen.client.st.domain.positions import NO_BATCH, Position
from nextgen.client.st.errors import (
    ConnectionFailed,
    NotSupported,
    ScalableTopicError,
    TimedOut,
    TopicNotFound,
)
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.wire import is_final, position_of
from nextgen.kernel.limits.scalable import (
    ST_ACKNOWLEDGEMENTS_PER_COMMAND_MAX,
    ST_UNACKNOWLEDGED_ENTRIES_MAX,
)
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar

_NOTHING = 2**64 - 1


class ConsumerOwner(Protocol):
    """The consumer of the whole topic."""

    brokers: Brokers
    schema: Schema[Any]
    versions: SchemaVersions
    timeout_ms: int
    opening: asyncio.Semaphore

    def arrived(self, consumer: SegmentConsumer, messages: list[Message[Any]]) -> None: ...
    def reached_end(self, consumer: SegmentConsumer) -> None: ...
    def was_reset(self, consumer: SegmentConsumer) -> None: ...
    def failed(self, consumer: SegmentConsumer, error: ScalableTopicError) -> None: ...


class _Status(Enum):
    OPENING = auto()
    READY = auto()
    CLOSED = auto()


class SegmentConsumer:
    """One segment. ``open`` subscribes; messages go to the owner."""

    def __init__(self, owner: ConsumerOwner, how: SegmentSubscription) -> None:
        self.how = how
        self.generation = 0
        """Grows with each subscribing. Messages of an earlier one are sent again."""

        self.place: Place = how.place
        """The last message that the application took; reading goes on behind it."""

        self.is_at_end = False
        self.entries = UnacknowledgedEntries()
        self._owner = owner
        self._status = _Status.OPENING
        self._link: Link | None = None
        self._attaching: Link | None = None
        self._early: list[pulsar.BaseCommand] = []
        self._opener: asyncio.Task[None] | None = None
        self._consumer_id = 0
        self._taken = 0
        self._is_held = False
        self._is_paused = False
        self._backoff = Backoff()
        self._broker_url = ""
        self._acknowledged: list[tuple[int, int]] = []
        self._acknowledging: asyncio.Handle | None = None
        self._reading: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._chunks = ChunkedMessages(self.redeliver, self._give_up)
        self._in_versions = InVersions(
            owner.versions, how.segment, self._deliver, self._reached_end, self._tasks
        )
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolves once the consumer has subscribed, or is closed before that. Has the error if it
        cannot subscribe. It is never cancelled, as that would cancel the tasks that await it."""

    def __repr__(self) -> str:
        return f"<SegmentConsumer {self.how.segment} {self._status.name}>"

    def open(self) -> None:
        self._begin(is_retry=False)

    def pause(self) -> None:
        """Deliver nothing any more, and take no more messages. What is delivered may still be
        acknowledged."""
        self.generation += 1
        self._is_held = self._is_paused = True

    def close(self) -> None:
        """End at once, without acknowledging anything. Harmless when closed already."""
        if self._status is _Status.CLOSED:
            return
        self._send_acknowledgements()
        if self._reading is not None:
            self._reading.cancel()
        self._detach()
        self._chunks.restart()
        self._status = _Status.CLOSED
        self.generation += 1
        for task in self._tasks:
            task.cancel()
        if not self.opened.done():
            self.opened.set_result(None)

    @property
    def has_tasks(self) -> bool:
        """Whether something of a closed consumer still runs."""
        return bool(self._tasks)

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # For the owner ----------------------------------------------------------------------------

    def took(self, message: Message[Any]) -> None:
        """The application took a message out of the queue."""
        self.place = message.position
        self.skipped(1)
        if not self.how.is_durable and self._reading is None:
            # So that the broker notices when everything of a sealed segment was read.
            self._reading = asyncio.get_running_loop().call_soon(self._acknowledge_read)

    def skipped(self, messages: int) -> None:
        """Messages left the queue: the broker may send as many."""
        self._taken += messages
        if self._taken * 2 >= self.how.receiver_queue and not self._is_held:
            self._request_more()

    def acknowledge(self, position: Position) -> None:
        """Acknowledge one message.

        The broker gets the acknowledgement of an entry once all messages of its batch are
        acknowledged, together with those of the same turn of the event loop.
        """
        if self.entries.acknowledge(position):
            self._acknowledged += (*self._chunks.acknowledged(position.entry), position.entry)
            if len(self._acknowledged) >= ST_ACKNOWLEDGEMENTS_PER_COMMAND_MAX:
                self._send_acknowledgements()
            elif self._acknowledging is None:
                loop = asyncio.get_running_loop()
                self._acknowledging = loop.call_soon(self._send_acknowledgements)
            self._release()

    def acknowledge_until(self, position: Position) -> None:
        """Acknowledge everything up to a message."""
        entry = self.entries.acknowledge_until(position, before=self._chunks.first_entry)
        if entry is not None and self._link is not None:
            self._chunks.acknowledged_until(entry)
            self._link.tell(self._ack([entry], pulsar.CommandAck.Cumulative))
            self._release()

    def redeliver(self, entries: list[tuple[int, int]]) -> None:
        """Have entries sent again."""
        entries = [
            *(part for each in entries for part in self._chunks.entries_before(each)),
            *entries,
        ]
        if self._link is not None:
            command = pulsar.CommandRedeliverUnacknowledgedMessages(
                consumer_id=self._consumer_id,
                message_ids=[pulsar.MessageIdData(ledgerId=a, entryId=b) for a, b in entries],
            )
            self._link.tell(
                pulsar.BaseCommand(
                    type=pulsar.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                    redeliverUnacknowledgedMessages=command,
                )
            )

    async def last_position(self) -> Position:
        """Return the place of the last stored message; entry -1 (unsigned) if there is none.

        Raises:
            ScalableTopicError: The broker does not answer.
        """
        try:
            async with timeout(self._owner.timeout_ms / 1_000):
                await asyncio.shield(self.opened)
        except TimeoutError as error:
            raise TimedOut(f"{self.how.segment} was not subscribed in time") from error
        if self._link is None:
            raise ConnectionFailed(f"{self.how.segment} has no connection")
        command = pulsar.CommandGetLastMessageId(
            consumer_id=self._consumer_id, request_id=self._link.next_request_id()
        )
        answer = await self._link.ask(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=command
            ),
            self._owner.timeout_ms,
        )
        if answer.type != pulsar.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
            raise refusal_in(answer)
        found = answer.getLastMessageIdResponse.last_message_id
        return Position(found.ledgerId, found.entryId, found.batch_index, found.partition)

    # Receiver ---------------------------------------------------------------------------------

    def received(self, link: Link, command: pulsar.BaseCommand, payload: bytes) -> None:
        if link is not self._link:
            if link is self._attaching:
                # It came right behind the answer, which nobody has looked at yet.
                self._early.append(command)
            return
        if command.type == pulsar.BaseCommand.MESSAGE:
            self._message(command.message, payload)
        elif command.type == pulsar.BaseCommand.REACHED_END_OF_TOPIC:
            self._in_versions.end()
        elif command.type == pulsar.BaseCommand.CLOSE_CONSUMER:
            closing = command.close_consumer
            self._broker_url = self._owner.brokers.chosen(
                closing.assignedBrokerServiceUrl, closing.assignedBrokerServiceUrlTls
            )
            self._lost()

    def link_lost(self, link: Link) -> None:
        if link is self._link:
            self._lost()

    # Opening ----------------------------------------------------------------------------------

    def _begin(self, *, is_retry: bool) -> None:
        self._status = _Status.OPENING
        self._opener = start("st-segment-consumer", self._open(is_retry=is_retry), self._tasks)

    @property
    def _is_opening(self) -> bool:
        """Whether the current task is to go on. What was lost again has a later one."""
        return self._status is _Status.OPENING and self._opener is asyncio.current_task()

    async def _open(self, *, is_retry: bool) -> None:
        if is_retry and not self._broker_url:
            await asyncio.sleep(self._backoff.next_ms() / 1_000)
        while self._is_opening:
            try:
                async with self._owner.opening:
                    await self._attach(await self._reach())
            except ScalableTopicError as error:
                # A segment that was just made, or that was pruned, is not found; its owner
                # ends this consumer once the segment is not in the layout any more.
                if is_final(error) and not isinstance(error, TopicNotFound):
                    self._refused(error)
                    return
                await asyncio.sleep(self._backoff.next_ms() / 1_000)

    def _refused(self, error: ScalableTopicError) -> None:
        self._status = _Status.CLOSED
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        self._owner.failed(self, error)

    async def _reach(self) -> Link:
        url, self._broker_url = self._broker_url, ""
        if url:
            return await self._owner.brokers.at(url)
        return await self._owner.brokers.serving(self.how.segment)

    async def _attach(self, link: Link) -> None:
        consumer_id = link.next_id()
        link.consumers[consumer_id] = self
        self._attaching, self._early = link, []
        is_attached = False
        try:
            answer = await link.ask(
                subscribe_command(self.how, consumer_id, self.place, self._owner.schema),
                self._owner.timeout_ms,
            )
            if answer.type != pulsar.BaseCommand.SUCCESS:
                raise refusal_in(answer)
            if not link.is_open:
                raise ConnectionFailed("the connection ended")
            is_attached = self._is_opening
        finally:
            self._attaching = None
            if not is_attached:
                self._leave(link, consumer_id)
        if is_attached:
            await self._attached(link, consumer_id)

    async def _attached(self, link: Link, consumer_id: int) -> None:
        self._link, self._consumer_id = link, consumer_id
        self._in_versions.reset(link)
        self._chunks.restart()
        self._status = _Status.READY
        self._backoff.reset()
        self.is_at_end = False
        self._is_held = self._is_paused
        if not self.how.is_durable:
            self.entries.clear()
        if self.generation:
            self._owner.was_reset(self)
        self.generation += 1
        if not self.opened.done():
            self.opened.set_result(None)
        for command in self._early:
            self.received(link, command, b"")
        if self._link is link and self.place is Edge.LATEST and self.how.since_ms is None:
            # Nothing comes before the first FLOW.
            last = await self.last_position()
            is_empty = last.entry_id == _NOTHING
            self.place = Edge.START if is_empty else last
        if self._link is link and not self._is_paused:
            self._taken = self.how.receiver_queue
            self._request_more()

    # Receiving --------------------------------------------------------------------------------

    def _message(self, message: pulsar.CommandMessage, payload: bytes) -> None:
        place = position_of(message.message_id)
        try:
            unpacked = unpack(payload)
            if unpacked.is_chunk and self._is_behind(place):
                # Brokers send the entry again that a reader begins behind.
                self._give_up([place.entry])
                self.skipped(1)
                return
            if unpacked.is_chunk:
                body = self._chunks.add(message, unpacked)
                if body is None:
                    self.skipped(1)
                    return
                unpacked = unpack_whole(unpacked.metadata, body)
        except Damaged as damage:
            # Nobody can read it. The broker counts it, and does not send it again.
            entries = [*self._chunks.acknowledged(place.entry), place.entry]
            self._tell(self._ack(entries, pulsar.CommandAck.Individual, damage.reason))
            self.skipped(1)
            return
        except NotSupported as error:
            self._owner.failed(self, error)
            return
        if unpacked.metadata.HasField("marker_type"):
            self._give_up([place.entry])
            self.skipped(1)
            return
        self._in_versions.put(message, unpacked)

    def _give_up(self, entries: list[tuple[int, int]]) -> None:
        """Nobody can read these any more."""
        self._tell(self._ack(entries, pulsar.CommandAck.Individual))

    def _reached_end(self) -> None:
        self.is_at_end = True
        self._owner.reached_end(self)

    def _deliver(
        self, message: pulsar.CommandMessage, unpacked: Unpacked, schema: Schema[Any]
    ) -> None:
        if self._is_paused:
            return
        place = position_of(message.message_id)
        messages = messages_of(self.how, message, unpacked, schema, self.entries)
        messages = [each for each in messages if not self._is_behind(each.position)]
        self.skipped(len(unpacked.bodies) - len(messages))
        if messages:
            self._owner.arrived(self, messages)
        else:
            # A reader had them all: brokers send the entry again that it begins behind.
            self.entries.forget(place.entry)
            self._tell(self._ack([place.entry], pulsar.CommandAck.Individual))
        if len(self.entries) >= ST_UNACKNOWLEDGED_ENTRIES_MAX:
            self._is_held = True

    def _is_behind(self, position: Position) -> bool:
        """Whether a reader had the message before."""
        place = self.place
        if self.how.is_durable or not isinstance(place, Position):
            return False
        if position.entry != place.entry:
            return position.entry < place.entry
        return place.batch_index == NO_BATCH or position.batch_index <= place.batch_index

    def _request_more(self) -> None:
        permits, self._taken = self._taken, 0
        if permits and self._link is not None:
            self._link.tell(
                pulsar.BaseCommand(
                    type=pulsar.BaseCommand.FLOW,
                    flow=pulsar.CommandFlow(consumer_id=self._consumer_id, messagePermits=permits),
                )
            )

    def _release(self) -> None:
        """Ask for more again once the application has acknowledged some."""
        if (
            self._is_held
            and not self._is_paused
            and len(self.entries) < ST_UNACKNOWLEDGED_ENTRIES_MAX
        ):
            self._is_held = False
            self.skipped(0)

    def _acknowledge_read(self) -> None:
        self._reading = None
        if isinstance(self.place, Position):
            self.acknowledge_until(self.place)

    def _send_acknowledgements(self) -> None:
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        entries, self._acknowledged = self._acknowledged, []
        if entries:
            self._tell(self._ack(entries, pulsar.CommandAck.Individual))

    def _ack(
        self,
        entries: list[tuple[int, int]],
        kind: pulsar.CommandAck.AckType,
        problem: pulsar.CommandAck.ValidationError | None = None,
    ) -> pulsar.BaseCommand:
        return pulsar.BaseCommand(
            type=pulsar.BaseCommand.ACK,
            ack=pulsar.CommandAck(
                consumer_id=self._consumer_id,
                ack_type=kind,
                validation_error=problem,
                message_id=[pulsar.MessageIdData(ledgerId=a, entryId=b) for a, b in entries],
            ),
        )

    def _tell(self, command: pulsar.BaseCommand) -> None:
        if self._link is not None:
            self._link.tell(command)

    def _lost(self) -> None:
        if self._status is _Status.READY:
            assert self._link is not None
            self._link.consumers.pop(self._consumer_id, None)
            self._link = None
            self._begin(is_retry=True)

    def _detach(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._leave(link, self._consumer_id)

    def _leave(self, link: Link, consumer_id: int) -> None:
        if link.consumers.pop(consumer_id, None) is not None:
            link.tell(
                pulsar.BaseCommand(
                    type=pulsar.BaseCommand.CLOSE_CONSUMER,
                    close_consumer=pulsar.CommandCloseConsumer(
                        consumer_id=consumer_id, request_id=link.next_request_id()
                    ),
                )
            )
