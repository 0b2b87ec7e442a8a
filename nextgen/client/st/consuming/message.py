"""A received message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from nextgen.client.st.consuming.subscribing import SegmentSubscription
from nextgen.client.st.consuming.unpacking import Unpacked
from nextgen.client.st.domain.entries import UnacknowledgedEntries
from nextgen.client.st.domain.positions import MessageId, Position
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.wire import position_of
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")


class Message(Generic[Value]):
    """One message. Its properties are read when they are looked at."""

    __slots__ = (
        "_metadata",
        "_schema",
        "_single",
        "data",
        "number",
        "position",
        "redelivery_count",
        "segment",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        segment: str,
        position: Position,
        data: bytes,
        metadata: pulsar.MessageMetadata,
        single: pulsar.SingleMessageMetadata | None,
        redelivery_count: int,
        schema: Schema[Value],
    ) -> None:
        self.topic = topic
        """The scalable topic."""

        self.segment = segment
        """The segment's own topic."""

        self.position = position
        self.data = data
        self.redelivery_count = redelivery_count
        self.number = 0
        """Its place in the order in which this consumer enqueued messages."""

        self._metadata = metadata
        self._single = single
        self._schema = schema

    def __repr__(self) -> str:
        return f"<Message {self.message_id}, {len(self.data)} bytes>"

    @property
    def message_id(self) -> MessageId:
        return MessageId(self.topic, self.segment, self.position)

    @property
    def value(self) -> Value:
        """The value in the payload.

        Raises:
            SchemaMismatch: The payload does not fit the schema.
        """
        return self._schema.decode(self.data)

    @property
    def key(self) -> str | None:
        own = self._own
        return own.partition_key if own.HasField("partition_key") else None

    @property
    def properties(self) -> Mapping[str, str]:
        return {each.key: each.value for each in self._own.properties}

    @property
    def event_time_ms(self) -> int | None:
        """The application's time of the event."""
        own = self._own
        return own.event_time if own.HasField("event_time") else None

    @property
    def publish_time_ms(self) -> int:
        """When the producer sent it."""
        return self._metadata.publish_time

    @property
    def producer_name(self) -> str:
        return self._metadata.producer_name

    @property
    def sequence_id(self) -> int:
        single = self._single
        if single is None or single.HasField("sequence_id"):
            return self._own.sequence_id
        return self._metadata.sequence_id + max(self.position.batch_index, 0)

    @property
    def _own(self) -> pulsar.MessageMetadata | pulsar.SingleMessageMetadata:
        return self._metadata if self._single is None else self._single


def messages_of(
    how: SegmentSubscription,
    message: pulsar.CommandMessage,
    unpacked: Unpacked,
    schema: Schema[Any],
    entries: UnacknowledgedEntries,
) -> list[Message[Any]]:
    """Return the messages of an entry that are not acknowledged, and note them in ``entries``."""
    place, metadata = position_of(message.message_id), unpacked.metadata
    count = message.redelivery_count
    if not unpacked.is_batch:
        entries.received(place.entry, None)
        (body,) = unpacked.bodies
        return [Message(how.topic, how.segment, place, body, metadata, None, count, schema)]
    indexes = {
        index
        for index in range(len(unpacked.bodies))
        if not unpacked.singles[index].compacted_out and _is_set(message.ack_set, index)
    }
    return [
        Message(
            how.topic,
            how.segment,
            Position(place.ledger_id, place.entry_id, index, place.partition),
            unpacked.bodies[index],
            metadata,
            unpacked.singles[index],
            count,
            schema,
        )
        for index in sorted(entries.received(place.entry, indexes) or ())
    ]


def _is_set(ack_set: Sequence[int], index: int) -> bool:
    """Return whether a message of a batch is not acknowledged yet: an empty set means all."""
    if not ack_set:
        return True
    word = index // 64
    return word < len(ack_set) and bool(ack_set[word] >> (index % 64) & 1)
