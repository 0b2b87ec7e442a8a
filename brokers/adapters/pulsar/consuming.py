"""SUBSCRIBE and the commands of its consumers: the consuming half of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from brokers.adapters.pulsar.answers import (
    MessageHeads,
    close_consumer,
    error_code,
    message_id,
    reached_end_of_topic,
    success,
)
from brokers.adapters.pulsar.message_ids import acks_of, redelivered, sought
from brokers.adapters.pulsar.requests import ClientRequests
from brokers.adapters.pulsar.subscribe import Subscribing, subscribing_of
from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.client_info import ClientInfo
from brokers.ports.consumer import Dispatch
from brokers.service.storage_refusal import STORAGE_ERRORS
from brokers.service.subscriptions.subscription import (
    NO_EPOCH,
    Consumer,
    Subscription,
)
from brokers.service.topics.operations import last_message
from brokers.service.topics.topic import Topic
from nextgen.kernel.limits.pulsar import (
    HANDLES_PER_CONNECTION_MAX,
)
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.frames import MalformedFrame
from protos.pulsar import PulsarApi_pb2 as pulsar

_ACTIVE_CHANGE_VERSION = 12
"""Clients below this version do not know ACTIVE_CONSUMER_CHANGE."""

_CLOSE_VERSION = 5
"""Clients below this version do not know CLOSE_CONSUMER from a broker."""

_logger = structlog.get_logger(__name__)


class ConsumerHandle:
    """One consumer id of one connection, from SUBSCRIBE to its end. A ``ConsumerSink``."""

    __slots__ = (
        "_consuming",
        "_heads",
        "_is_active",
        "consumer",
        "consumer_id",
        "creating",
        "is_ended",
        "kept",
        "subscription",
        "topic",
    )

    def __init__(self, consuming: Consuming, consumer_id: int, kept: Kept) -> None:
        self._consuming = consuming
        self.kept = kept
        """The permission that it goes on using."""
        self.consumer_id = consumer_id
        self.creating: asyncio.Task[None] | None = None
        self.topic: Topic | None = None
        self.subscription: Subscription | None = None
        self.consumer: Consumer | None = None
        self.is_ended = False
        self._heads: MessageHeads | None = None
        self._is_active: bool | None = None

    @property
    def is_writable(self) -> bool:
        return self._consuming.connection.is_writable

    @property
    def client(self) -> ClientInfo:
        return self._consuming.connection.client

    def deliver(self, dispatches: Sequence[Dispatch]) -> None:
        topic = self.topic
        if self.is_ended or topic is None:
            return
        heads = self._heads
        if heads is None:
            heads = self._heads = MessageHeads(self.consumer_id, topic.unit.partition)
        buffers: list[bytes] = []
        messages = size = 0
        for dispatch in dispatches:
            payload = dispatch.entry.payload
            buffers.append(heads.head(dispatch))
            buffers.append(payload)
            messages += dispatch.entry.message_count
            size += len(payload)
        topic.traffic.count_out(len(dispatches), messages, size)
        self._consuming.connection.send(buffers)

    def active_changed(self, *, is_active: bool) -> None:
        if self.consumer is None:
            # The client gets this after the answer to its SUBSCRIBE.
            self._is_active = is_active
            return
        connection = self._consuming.connection
        if self.is_ended or connection.protocol_version < _ACTIVE_CHANGE_VERSION:
            return
        connection.send_command(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.ACTIVE_CONSUMER_CHANGE,
                active_consumer_change=pulsar.CommandActiveConsumerChange(
                    consumer_id=self.consumer_id, is_active=is_active
                ),
            )
        )

    def reached_end(self) -> None:
        if not self.is_ended:
            self._consuming.connection.send_command(reached_end_of_topic(self.consumer_id))

    def end(self, broker_url: str) -> None:
        self._consuming.end(self, broker_url)

    def subscribed(self, subscription: Subscription, consumer: Consumer, request_id: int) -> None:
        """Answer the SUBSCRIBE."""
        self.subscription = subscription
        self.consumer = consumer
        self._consuming.connection.send(success(request_id))
        if self._is_active is not None:
            self.active_changed(is_active=self._is_active)


class Consuming:
    """The consumers of one connection."""

    __slots__ = ("_handles", "connection")

    def __init__(self, connection: ClientRequests) -> None:
        self.connection = connection
        self._handles: dict[int, ConsumerHandle] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def on_subscribe(self, command: pulsar.BaseCommand) -> None:
        """Connect a consumer, or refuse it."""
        request = command.subscribe
        known = self._handles.get(request.consumer_id)
        if known is not None:
            if known.consumer is not None:
                self.connection.send(success(request.request_id))
                return
            busy = f"consumer {request.consumer_id} is being connected already"
            self.connection.refuse(request.request_id, Refusal(ServerError.SERVICE_NOT_READY, busy))
            return
        try:
            self._check_room()
            subscribing = subscribing_of(request)
        except Refusal as refusal:
            self.connection.refuse(request.request_id, refusal)
            return
        handle = ConsumerHandle(self, request.consumer_id, self.connection.keep(command))
        self._handles[request.consumer_id] = handle
        # Keep ``subscribing``, not the possibly large command: the topic may take long to open.
        work = self._create(handle, subscribing)
        handle.creating = self.connection.start(work)

    def on_flow(self, command: pulsar.BaseCommand) -> None:
        """Add permits to a consumer.

        Raises:
            MalformedFrame: The consumer would have more than ``CONSUMER_PERMITS_MAX``.
        """
        request = command.flow
        handle = self._handles.get(request.consumer_id)
        if handle is None or handle.subscription is None or handle.consumer is None:
            return
        try:
            handle.subscription.flow(handle.consumer, request.messagePermits)
        except Refusal as refusal:
            raise MalformedFrame(refusal.message) from refusal

    def on_ack(self, command: pulsar.BaseCommand) -> None:
        """Acknowledge messages; answer when that is durable, if the client requests an answer.

        Raises:
            MalformedFrame: The command exceeds its limits and requests no answer. Ending the
                connection is the only way to have the messages sent again.
        """
        request = command.ack
        handle = self._handles.get(request.consumer_id)
        if handle is None or handle.subscription is None or handle.consumer is None:
            return
        is_awaited = request.HasField("request_id")
        answer = partial(
            self._acknowledged, request.consumer_id, request.request_id if is_awaited else None
        )
        if request.HasField("txnid_least_bits") or request.HasField("txnid_most_bits"):
            answer(Refusal(ServerError.NOT_ALLOWED, "transactions are not supported"), request)
            return
        try:
            acks = acks_of(request)
        except Refusal as refusal:
            if not is_awaited:
                raise MalformedFrame(refusal.message) from refusal
            answer(refusal)
            return
        try:
            acknowledged = handle.subscription.acknowledge(
                handle.consumer,
                acks,
                is_cumulative=request.ack_type == pulsar.CommandAck.Cumulative,
                is_awaited=is_awaited,
            )
        except Refusal as refusal:
            answer(refusal)
            return
        if is_awaited:
            acknowledged.add_done_callback(
                lambda future: answer(
                    ConnectionResetError() if future.cancelled() else future.exception()
                )
            )

    def on_redeliver(self, command: pulsar.BaseCommand) -> None:
        """Redeliver unacknowledged messages: the named ones, or all.

        Raises:
            MalformedFrame: It names more messages than a consumer can have.
        """
        request = command.redeliverUnacknowledgedMessages
        handle = self._handles.get(request.consumer_id)
        if handle is None or handle.subscription is None or handle.consumer is None:
            return
        epoch = request.consumer_epoch if request.HasField("consumer_epoch") else NO_EPOCH
        try:
            positions = redelivered(request)
        except Refusal as refusal:
            raise MalformedFrame(refusal.message) from refusal
        handle.subscription.redeliver(handle.consumer, positions, epoch)

    def on_unsubscribe(self, command: pulsar.BaseCommand) -> None:
        """Delete the subscription."""
        request = command.unsubscribe
        handle = self._connected(request.consumer_id, request.request_id)
        if handle is not None:
            work = self._unsubscribe(handle, request.request_id, is_forced=request.force)
            self.connection.start(work)

    def on_seek(self, command: pulsar.BaseCommand) -> None:
        """Reset the subscription to a position, which closes every consumer of it."""
        request = command.seek
        handle = self._connected(request.consumer_id, request.request_id)
        if handle is None:
            return
        try:
            goal = sought(request)
        except Refusal as refusal:
            self.connection.refuse(request.request_id, refusal)
            return
        work = self._seek(handle, request.request_id, goal, request.message_publish_time)
        self.connection.start(work)

    def on_get_last_message_id(self, command: pulsar.BaseCommand) -> None:
        """Answer with the id of the topic's last message."""
        request = command.getLastMessageId
        handle = self._connected(request.consumer_id, request.request_id)
        if handle is not None:
            self.connection.start(self._get_last_message_id(handle, request.request_id))

    def on_stats(self, command: pulsar.BaseCommand) -> None:
        """Answer with the statistics of a consumer."""
        request = command.consumerStats
        answer = pulsar.CommandConsumerStatsResponse(request_id=request.request_id)
        handle = self._handles.get(request.consumer_id)
        if handle is None or handle.consumer is None or handle.subscription is None:
            answer.error_code = pulsar.ConsumerNotFound
            answer.error_message = f"consumer {request.consumer_id} does not exist"
        else:
            consumer = handle.consumer
            answer.consumerName = consumer.name
            answer.availablePermits = max(0, consumer.permits)
            answer.unackedMessages = consumer.unacked_messages
            answer.blockedConsumerOnUnackedMsgs = consumer.is_blocked
            answer.address = self.connection.peer
            answer.type = handle.subscription.kind.name.title()
            answer.msgBacklog = handle.subscription.backlog_entries
        self.connection.send_command(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=answer
            )
        )

    def on_close(self, command: pulsar.BaseCommand) -> None:
        """Close a consumer; answer when its acknowledgements are durable.

        So after an application's ``close`` has returned, messages that it acknowledged are not
        delivered again, even if the broker dies.
        """
        request = command.close_consumer
        answer = success(request.request_id)
        handle = self._handles.pop(request.consumer_id, None)
        if handle is not None:
            handle.is_ended = True
            handle.kept.release()
            if handle.creating is not None and handle.consumer is None:
                handle.creating.cancel()
                handle.creating = None
            self._leave(handle)
            if handle.subscription is not None:
                stored = handle.subscription.stored()
                stored.add_done_callback(lambda _: self.connection.send(answer))
                return
        self.connection.send(answer)

    def end(self, handle: ConsumerHandle, broker_url: str) -> None:
        """Close a consumer from the broker's side, after its subscription has removed it."""
        if handle.is_ended or handle.consumer is None:
            return
        handle.is_ended = True
        handle.kept.release()
        if self._handles.get(handle.consumer_id) is handle:
            del self._handles[handle.consumer_id]
        if self.connection.protocol_version < _CLOSE_VERSION:
            self.connection.close_after_flush()
            return
        self.connection.send_command(close_consumer(handle.consumer_id, broker_url))

    def resumed(self) -> None:
        """Resume dispatch: the client reads again."""
        for handle in self._handles.values():
            if handle.subscription is not None and handle.consumer is not None:
                handle.subscription.resumed(handle.consumer)

    def closed(self) -> None:
        """Remove all consumers: the connection is closed."""
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.is_ended = True
            handle.creating = None
            self._leave(handle)

    def _leave(self, handle: ConsumerHandle) -> None:
        if handle.topic and handle.subscription is not None and handle.consumer is not None:
            handle.topic.remove_consumer(handle.subscription, handle.consumer)

    def _check_room(self) -> None:
        if len(self._handles) >= HANDLES_PER_CONNECTION_MAX:
            message = f"a connection has at most {HANDLES_PER_CONNECTION_MAX} consumers"
            raise Refusal(ServerError.NOT_ALLOWED, message)

    def _connected(self, consumer_id: int, request_id: int) -> ConsumerHandle | None:
        handle = self._handles.get(consumer_id)
        if handle is None or handle.consumer is None:
            missing = f"consumer {consumer_id} does not exist"
            self.connection.refuse(request_id, Refusal(ServerError.METADATA, missing))
            return None
        return handle

    async def _create(self, handle: ConsumerHandle, subscribing: Subscribing) -> None:
        try:
            with self.connection.answering(subscribing.request_id):
                name = parse_topic(subscribing.topic)
                topic = await self.connection.front.topics.open(
                    name, create=subscribing.creates_topic
                )
                handle.topic = topic
                subscription, consumer = await topic.subscribe(
                    subscribing.subscription,
                    subscribing.start,
                    subscribing.request,
                    handle,
                    subscribing.schema,
                )
                handle.subscribed(subscription, consumer, subscribing.request_id)
        finally:
            # Break a reference cycle: the cancelled task's frames refer to the handle.
            handle.creating = None
            if handle.consumer is None:
                handle.kept.release()
                if self._handles.get(handle.consumer_id) is handle:
                    del self._handles[handle.consumer_id]

    async def _unsubscribe(
        self, handle: ConsumerHandle, request_id: int, *, is_forced: bool
    ) -> None:
        assert handle.topic is not None, "it is connected"
        assert handle.subscription is not None, "it is connected"
        assert handle.consumer is not None, "it is connected"
        with self.connection.answering(request_id):
            await handle.topic.unsubscribe(
                handle.subscription, handle.consumer, is_forced=is_forced
            )
            handle.is_ended = True
            handle.kept.release()
            # The client may be using the id for another consumer by now.
            if self._handles.get(handle.consumer_id) is handle:
                del self._handles[handle.consumer_id]
            self.connection.send(success(request_id))

    async def _seek(
        self,
        handle: ConsumerHandle,
        request_id: int,
        goal: tuple[Position, Sequence[int]] | None,
        publish_time_ms: int,
    ) -> None:
        assert handle.topic is not None, "it is connected"
        assert handle.subscription is not None, "it is connected"
        with self.connection.answering(request_id):
            try:
                if goal is not None:
                    await handle.subscription.seek(*goal)
                else:
                    await handle.subscription.seek_to_time(publish_time_ms)
            except STORAGE_ERRORS as error:
                raise handle.topic.storage_failed(error) from error
            self.connection.send(success(request_id))

    async def _get_last_message_id(self, handle: ConsumerHandle, request_id: int) -> None:
        assert handle.topic is not None, "it is connected"
        assert handle.subscription is not None, "it is connected"
        with self.connection.answering(request_id):
            partition = handle.topic.unit.partition
            last, messages = await last_message(handle.topic)
            self.connection.send_command(
                pulsar.BaseCommand(
                    type=pulsar.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
                    getLastMessageIdResponse=pulsar.CommandGetLastMessageIdResponse(
                        request_id=request_id,
                        last_message_id=message_id(
                            last,
                            partition=partition,
                            batch_index=messages - 1 if messages > 1 else -1,
                        ),
                        consumer_mark_delete_position=message_id(handle.subscription.mark_delete),
                    ),
                )
            )

    def _acknowledged(
        self,
        consumer_id: int,
        request_id: int | None,
        error: BaseException | None,
        transaction: pulsar.CommandAck | None = None,
    ) -> None:
        if request_id is None:
            if error is not None:
                _logger.info("ack refused", peer=self.connection.peer, error=str(error))
            return
        answer = pulsar.CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
        if error is not None:
            code = error.code if isinstance(error, Refusal) else ServerError.PERSISTENCE
            answer.error = error_code(code)
            answer.message = str(error)
        if transaction is not None and transaction.HasField("txnid_least_bits"):
            answer.txnid_least_bits = transaction.txnid_least_bits
            answer.txnid_most_bits = transaction.txnid_most_bits
        self.connection.send_command(
            pulsar.BaseCommand(type=pulsar.BaseCommand.ACK_RESPONSE, ackResponse=answer)
        )
