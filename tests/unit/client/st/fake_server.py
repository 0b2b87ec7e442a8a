"""A server of scalable topics in this process: one broker, discovery and controller in one.

It stores messages in memory and does what a real one does, unless a test makes it misbehave by
``answers``: called with each command before anything else; a true result means that it was handled.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nextgen.kernel.scalable.ranges import HashRange, initial_ranges
from nextgen.pulsar.frames import FrameReader, encode_command, encode_frame, parse_command
from nextgen.pulsar.payload import open_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

Command = pulsar.BaseCommand
Answer = Callable[["FakeConnection", pulsar.BaseCommand], bool]


@dataclass
class FakeSegment:
    """The messages of one segment and its subscriptions."""

    name: str
    ledger_id: int
    is_sealed: bool = False
    entries: list[tuple[bytes, int]] = field(default_factory=list)
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)
    schemas: list[pulsar.Schema] = field(default_factory=list)

    def version_of(self, schema: pulsar.Schema) -> bytes:
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema).to_bytes(8, "big")


@dataclass
class FakeSubscription:
    kind: int
    next_entry: int
    again: list[int] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    redeliveries: Counter[int] = field(default_factory=Counter)
    consumers: list[FakeConsumer] = field(default_factory=list)
    meta: Any = None


@dataclass(eq=False)
class FakeConsumer:
    connection: FakeConnection
    consumer_id: int
    segment: FakeSegment
    subscription: FakeSubscription
    permits: int = 0
    has_heard_end: bool = False


@dataclass
class FakeTopic:
    """A layout, who watches it, and who registered."""

    name: str
    dag: pulsar.ScalableTopicDAG
    watches: list[tuple[FakeConnection, int]] = field(default_factory=list)
    members: dict[str, tuple[FakeConnection, int]] = field(default_factory=dict)


class FakeServer:
    """``async with`` starts it."""

    def __init__(
        self, *, features: pulsar.FeatureFlags | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.features = features or pulsar.FeatureFlags(supports_scalable_topics=True)
        self.version = "Pulsar NextGen"
        self.message_bytes_max = 5 * 1024 * 1024
        self.sends_start_entry = False
        """Whether a reader gets the whole entry that it begins behind, as from this project's."""
        self.topics: dict[str, FakeTopic] = {}
        self.segments: dict[str, FakeSegment] = {}
        self.connections: list[FakeConnection] = []
        self.received: list[pulsar.BaseCommand] = []
        self.answers: Answer = lambda connection, command: False
        self.sends_pushes = True
        self.tls = tls
        self.tokens: set[str] | None = None
        """Those that prove who a client is; None: nobody has to."""

        self._last_ledger = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> FakeServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: FakeConnection(self), "127.0.0.1", 0, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for each in list(self.connections):
            each.abort()
        await self._server.wait_closed()
        # Both ends see that their connections are gone.
        await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"pulsar{'+ssl' if self.tls else ''}://127.0.0.1:{self.port}"

    def count(self, kind: int) -> int:
        return sum(each.type == kind for each in self.received)

    # Topics -----------------------------------------------------------------------------------

    def create(
        self, name: str, segments: int = 1, *, buckets: tuple[int, ...] = (), created_at_ms: int = 1
    ) -> FakeTopic:
        dag = pulsar.ScalableTopicDAG(epoch=0)
        topic = self.topics[name] = FakeTopic(name, dag)
        for index, span in enumerate(initial_ranges(segments)):
            self._add(topic, index, span, buckets=buckets, created_at_ms=created_at_ms)
        return topic

    def _add(
        self, topic: FakeTopic, segment_id: int, span: HashRange, **fields: Any
    ) -> pulsar.SegmentInfoProto:
        info = topic.dag.segments.add(
            segment_id=segment_id,
            hash_start=span.start,
            hash_end=span.end,
            state=pulsar.ACTIVE,
            created_at_epoch=topic.dag.epoch,
            created_at_ms=fields.get("created_at_ms", 1),
            parent_ids=fields.get("parents", ()),
            entry_bucket_splits=fields.get("buckets", ()),
        )
        self._last_ledger += 1
        name = self.segment_name(topic, info)
        self.segments[name] = FakeSegment(name, self._last_ledger)
        return info

    @staticmethod
    def segment_name(topic: FakeTopic, info: pulsar.SegmentInfoProto) -> str:
        return (
            f"segment://{topic.name.removeprefix('topic://')}/"
            f"{info.hash_start:04x}-{info.hash_end:04x}-{info.segment_id}"
        )

    def seal(self, topic: FakeTopic, segment_id: int) -> FakeSegment:
        """Terminate a segment, as a split does before its layout is there."""
        info = next(each for each in topic.dag.segments if each.segment_id == segment_id)
        segment = self.segments[self.segment_name(topic, info)]
        segment.is_sealed = True
        for subscription in segment.subscriptions.values():
            self.dispatch(segment, subscription)
        return segment

    def split(self, topic: FakeTopic, segment_id: int) -> None:
        """Seal a segment, then make its halves known."""
        info = next(each for each in topic.dag.segments if each.segment_id == segment_id)
        parent = self.seal(topic, segment_id)
        info.state = pulsar.SEALED
        topic.dag.epoch += 1
        next_id = max(each.segment_id for each in topic.dag.segments) + 1
        for index, span in enumerate(HashRange(info.hash_start, info.hash_end).split()):
            child = self._add(topic, next_id + index, span, parents=(segment_id,))
            of_child = self.segments[self.segment_name(topic, child)].subscriptions
            for name, each in parent.subscriptions.items():
                if not name.startswith("reader-"):
                    of_child[name] = FakeSubscription(each.kind, 0)
        if self.sends_pushes:
            self.push(topic)

    def push(self, topic: FakeTopic) -> None:
        """Send the layout to everybody who watches it, and assignments to the groups."""
        for connection, session_id in topic.watches:
            connection.send_layout(session_id, topic)
        self.assign(topic)

    def assign(self, topic: FakeTopic) -> None:
        for connection, consumer_id in topic.members.values():
            connection.send(
                Command(
                    type=Command.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
                    scalableTopicAssignmentUpdate=pulsar.CommandScalableTopicAssignmentUpdate(
                        consumer_id=consumer_id, assignment=self.assignment(topic, consumer_id)
                    ),
                )
            )

    def assignment(self, topic: FakeTopic, consumer_id: int) -> pulsar.ScalableConsumerAssignment:
        """All segments to the one consumer; a test may replace this method."""
        assignment = pulsar.ScalableConsumerAssignment(layout_epoch=topic.dag.epoch)
        for info in topic.dag.segments:
            assignment.segments.add(
                segment_id=info.segment_id,
                hash_start=info.hash_start,
                hash_end=info.hash_end,
                segment_topic=self.segment_name(topic, info),
            )
        return assignment

    def stored(self) -> list[tuple[str, str | None, bytes]]:
        """Return segment, key and payload of all messages, in the order of each segment."""
        return [
            (segment.name, key, body)
            for segment in self.segments.values()
            for payload, _ in segment.entries
            for key, body in messages_in(payload)
        ]

    # Dispatch ---------------------------------------------------------------------------------

    def dispatch(self, segment: FakeSegment, subscription: FakeSubscription) -> None:
        while True:
            ready = [each for each in subscription.consumers if each.permits > 0]
            if not ready:
                break
            if subscription.again:
                entry = subscription.again.pop(0)
                subscription.redeliveries[entry] += 1
            elif subscription.next_entry < len(segment.entries):
                entry = subscription.next_entry
                subscription.next_entry += 1
            else:
                break
            consumer = ready[entry % len(ready)]
            payload, count = segment.entries[entry]
            consumer.permits -= count
            consumer.connection.send_message(consumer, entry, payload)
        if segment.is_sealed and len(subscription.acknowledged) >= len(segment.entries):
            for consumer in subscription.consumers:
                if not consumer.has_heard_end:
                    consumer.has_heard_end = True
                    consumer.connection.send(
                        Command(
                            type=Command.REACHED_END_OF_TOPIC,
                            reachedEndOfTopic=pulsar.CommandReachedEndOfTopic(
                                consumer_id=consumer.consumer_id
                            ),
                        )
                    )


class FakeConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.producers: dict[int, str] = {}
        self.consumers: dict[int, FakeConsumer] = {}
        self._reader = FrameReader()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.server.connections.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.remove(self)
        for consumer in list(self.consumers.values()):
            self._remove(consumer)
        for topic in self.server.topics.values():
            topic.watches = [each for each in topic.watches if each[0] is not self]
            topic.members = {
                name: each for name, each in topic.members.items() if each[0] is not self
            }

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            command = parse_command(frame.command)
            self.server.received.append(command)
            if not self.server.answers(self, command):
                self.handle(command, frame.payload)

    def abort(self) -> None:
        self._transport.abort()

    def send(self, command: pulsar.BaseCommand) -> None:
        self._transport.write(encode_command(command))

    def send_raw(self, data: bytes) -> None:
        self._transport.write(data)

    def refuse(self, request_id: int, code: int, message: str = "no") -> None:
        self.send(
            Command(
                type=Command.ERROR,
                error=pulsar.CommandError(request_id=request_id, error=code, message=message),
            )
        )

    def success(self, request_id: int) -> None:
        self.send(
            Command(type=Command.SUCCESS, success=pulsar.CommandSuccess(request_id=request_id))
        )

    def handle(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        name = Command.Type.Name(command.type).lower()
        handler = getattr(self, f"on_{name}", None)
        if handler is not None:
            handler(command, payload)

    def on_connect(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        connect, tokens = command.connect, self.server.tokens
        proof = (connect.auth_method_name, connect.auth_data.decode())
        if tokens is not None and proof not in {("token", each) for each in tokens}:
            self.refuse(2**64 - 1, pulsar.AuthenticationError, "who is this?")
            return
        self.send(
            Command(
                type=Command.CONNECTED,
                connected=pulsar.CommandConnected(
                    server_version=self.server.version,
                    max_message_size=self.server.message_bytes_max,
                    protocol_version=21,
                    feature_flags=self.server.features,
                ),
            )
        )

    def on_ping(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        self.send(Command(type=Command.PONG, pong=pulsar.CommandPong()))

    def on_lookup(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        self.send(
            Command(
                type=Command.LOOKUP_RESPONSE,
                lookupTopicResponse=pulsar.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    response=pulsar.CommandLookupTopicResponse.Connect,
                    brokerServiceUrl="" if self.server.tls else self.server.url,
                    brokerServiceUrlTls=self.server.url if self.server.tls else "",
                    authoritative=True,
                ),
            )
        )

    # Layouts and groups -----------------------------------------------------------------------

    def on_scalable_topic_lookup(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        lookup = command.scalableTopicLookup
        name = lookup.topic.replace("persistent://", "topic://")
        topic = self.server.topics.get(name)
        if topic is None and lookup.create_if_missing:
            topic = self.server.create(name)
        if topic is None:
            self.send_layout_error(lookup.session_id, pulsar.TopicNotFound)
            return
        topic.watches.append((self, lookup.session_id))
        self.send_layout(lookup.session_id, topic)

    def send_layout(self, session_id: int, topic: FakeTopic) -> None:
        self.send(
            Command(
                type=Command.SCALABLE_TOPIC_UPDATE,
                scalableTopicUpdate=pulsar.CommandScalableTopicUpdate(
                    session_id=session_id, dag=topic.dag, resolved_topic_name=topic.name
                ),
            )
        )

    def send_layout_error(self, session_id: int, code: int) -> None:
        self.send(
            Command(
                type=Command.SCALABLE_TOPIC_UPDATE,
                scalableTopicUpdate=pulsar.CommandScalableTopicUpdate(
                    session_id=session_id, error=code, message="no"
                ),
            )
        )

    def on_scalable_topic_close(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        session = (self, command.scalableTopicClose.session_id)
        for topic in self.server.topics.values():
            topic.watches = [each for each in topic.watches if each != session]

    def on_scalable_topic_subscribe(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        subscribe = command.scalableTopicSubscribe
        topic = self.server.topics[subscribe.topic]
        topic.members[subscribe.consumer_name] = (self, subscribe.consumer_id)
        self.send(
            Command(
                type=Command.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
                scalableTopicSubscribeResponse=pulsar.CommandScalableTopicSubscribeResponse(
                    request_id=subscribe.request_id,
                    assignment=self.server.assignment(topic, subscribe.consumer_id),
                ),
            )
        )

    def on_scalable_topic_unsubscribe(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        leaving = command.scalableTopicUnsubscribe
        for topic in self.server.topics.values():
            topic.members = {
                name: each
                for name, each in topic.members.items()
                if each != (self, leaving.consumer_id)
            }
        self.success(leaving.request_id)

    # Producers --------------------------------------------------------------------------------

    def on_producer(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        producer = command.producer
        segment = self.server.segments.get(producer.topic)
        if segment is None:
            self.refuse(producer.request_id, pulsar.TopicNotFound)
        elif segment.is_sealed:
            self.refuse(producer.request_id, pulsar.TopicTerminatedError)
        else:
            self.producers[producer.producer_id] = producer.topic
            self.send(
                Command(
                    type=Command.PRODUCER_SUCCESS,
                    producer_success=pulsar.CommandProducerSuccess(
                        request_id=producer.request_id,
                        producer_name=producer.producer_name or "made-up",
                        schema_version=segment.version_of(producer.schema)
                        if producer.HasField("schema")
                        else None,
                    ),
                )
            )

    def on_get_schema(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        asked = command.getSchema
        versions = self.server.segments[asked.topic].schemas
        number = int.from_bytes(asked.schema_version, "big")
        response = pulsar.CommandGetSchemaResponse(request_id=asked.request_id)
        if number < len(versions):
            response.schema.CopyFrom(versions[number])
        else:
            response.error_code = pulsar.TopicNotFound
        self.send(Command(type=Command.GET_SCHEMA_RESPONSE, getSchemaResponse=response))

    def on_send(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        send = command.send
        name = self.producers.get(send.producer_id)
        if name is None:
            return
        segment = self.server.segments[name]
        if segment.is_sealed:
            self.send(
                Command(
                    type=Command.SEND_ERROR,
                    send_error=pulsar.CommandSendError(
                        producer_id=send.producer_id,
                        sequence_id=send.sequence_id,
                        error=pulsar.TopicTerminatedError,
                        message="sealed",
                    ),
                )
            )
            return
        segment.entries.append((payload, send.num_messages))
        self.send(
            Command(
                type=Command.SEND_RECEIPT,
                send_receipt=pulsar.CommandSendReceipt(
                    producer_id=send.producer_id,
                    sequence_id=send.sequence_id,
                    message_id=pulsar.MessageIdData(
                        ledgerId=segment.ledger_id, entryId=len(segment.entries) - 1
                    ),
                ),
            )
        )
        for subscription in segment.subscriptions.values():
            self.server.dispatch(segment, subscription)

    def on_close_producer(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        self.producers.pop(command.close_producer.producer_id, None)
        self.success(command.close_producer.request_id)

    # Consumers --------------------------------------------------------------------------------

    def on_subscribe(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        subscribe = command.subscribe
        segment = self.server.segments.get(subscribe.topic)
        if segment is None:
            self.refuse(subscribe.request_id, pulsar.TopicNotFound)
            return
        subscription = segment.subscriptions.get(subscribe.subscription)
        if subscription is None:
            at = 0
            if subscribe.initialPosition == pulsar.CommandSubscribe.Latest and subscribe.durable:
                at = len(segment.entries)
            if not subscribe.durable:
                at = self._reader_start(segment, subscribe)
            subscription = FakeSubscription(subscribe.subType, at, acknowledged=set(range(at)))
            segment.subscriptions[subscribe.subscription] = subscription
        subscription.kind = subscribe.subType
        if subscription.consumers and subscribe.subType == pulsar.CommandSubscribe.Exclusive:
            self.refuse(subscribe.request_id, pulsar.ConsumerBusy)
            return
        subscription.meta = subscribe.keySharedMeta
        consumer = FakeConsumer(self, subscribe.consumer_id, segment, subscription)
        subscription.consumers.append(consumer)
        self.consumers[subscribe.consumer_id] = consumer
        self.success(subscribe.request_id)
        # As brokers do: who has nothing left to read hears it right behind the answer.
        self.server.dispatch(segment, subscription)

    def _reader_start(self, segment: FakeSegment, subscribe: pulsar.CommandSubscribe) -> int:
        start = subscribe.start_message_id
        if start.ledgerId == 2**64 - 1 or subscribe.start_message_rollback_duration_sec:
            return 0  # No test is as old as a rollback.
        if start.ledgerId == 2**63 - 1:
            return len(segment.entries)
        is_whole = start.batch_index < 0 and not self.server.sends_start_entry
        return start.entryId + 1 if is_whole else start.entryId

    def on_flow(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        consumer = self.consumers.get(command.flow.consumer_id)
        if consumer is not None:
            consumer.permits += command.flow.messagePermits
            self.server.dispatch(consumer.segment, consumer.subscription)

    def send_message(self, consumer: FakeConsumer, entry: int, payload: bytes) -> None:
        command = Command(
            type=Command.MESSAGE,
            message=pulsar.CommandMessage(
                consumer_id=consumer.consumer_id,
                message_id=pulsar.MessageIdData(ledgerId=consumer.segment.ledger_id, entryId=entry),
                redelivery_count=consumer.subscription.redeliveries[entry],
            ),
        )
        self.send_raw(encode_frame(command, payload))

    def on_ack(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        consumer = self.consumers.get(command.ack.consumer_id)
        if consumer is None:
            return
        for each in command.ack.message_id:
            if command.ack.ack_type == pulsar.CommandAck.Cumulative:
                consumer.subscription.acknowledged |= set(range(each.entryId + 1))
            else:
                consumer.subscription.acknowledged.add(each.entryId)
        self.server.dispatch(consumer.segment, consumer.subscription)

    def on_redeliver_unacknowledged_messages(
        self, command: pulsar.BaseCommand, payload: bytes
    ) -> None:
        redeliver = command.redeliverUnacknowledgedMessages
        consumer = self.consumers[redeliver.consumer_id]
        consumer.subscription.again += [each.entryId for each in redeliver.message_ids]
        self.server.dispatch(consumer.segment, consumer.subscription)

    def on_get_last_message_id(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        asked = command.getLastMessageId
        segment = self.consumers[asked.consumer_id].segment
        last = len(segment.entries) - 1
        place = pulsar.MessageIdData(ledgerId=segment.ledger_id, entryId=last % 2**64)
        if last >= 0 and segment.entries[last][1] > 1:
            place.batch_index = segment.entries[last][1] - 1
        self.send(
            Command(
                type=Command.GET_LAST_MESSAGE_ID_RESPONSE,
                getLastMessageIdResponse=pulsar.CommandGetLastMessageIdResponse(
                    request_id=asked.request_id, last_message_id=place
                ),
            )
        )

    def on_close_consumer(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        consumer = self.consumers.pop(command.close_consumer.consumer_id, None)
        if consumer is not None:
            self._remove(consumer)
        self.success(command.close_consumer.request_id)

    def _remove(self, consumer: FakeConsumer) -> None:
        subscription = consumer.subscription
        if consumer in subscription.consumers:
            subscription.consumers.remove(consumer)
        sent = range(subscription.next_entry)
        subscription.again = [each for each in sent if each not in subscription.acknowledged]
        self.server.dispatch(consumer.segment, subscription)


def messages_in(payload: bytes) -> list[tuple[str | None, bytes]]:
    """Return key and body of each message of an entry, by a way of its own."""
    metadata, start, _ = open_payload(payload)
    body = payload[start:]
    if not metadata.HasField("num_messages_in_batch"):
        return [(metadata.partition_key if metadata.HasField("partition_key") else None, body)]
    found, at = [], 0
    for _ in range(metadata.num_messages_in_batch):
        size = int.from_bytes(body[at : at + 4], "big")
        single = pulsar.SingleMessageMetadata.FromString(body[at + 4 : at + 4 + size])
        at += 4 + size
        key = single.partition_key if single.HasField("partition_key") else None
        found.append((key, body[at : at + single.payload_size]))
        at += single.payload_size
    return found
