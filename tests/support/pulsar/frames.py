"""Frames of every command of the Pulsar protocol, and what becomes of them in bad hands."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from nextgen.kernel.limits.pulsar import PULSAR_FRAME_BYTES_MAX
from nextgen.pulsar.frames import FIELD_OF_TYPE, encode_command, encode_frame
from nextgen.pulsar.payload import MAGIC_BROKER_ENTRY, message_payload
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandConnect,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    MessageMetadata,
    SingleMessageMetadata,
)

TOPIC = "persistent://public/default/topic"
NESTING_MAX = 3
WITH_PAYLOAD = frozenset({BaseCommand.SEND, BaseCommand.MESSAGE})

WHOLE_NUMBERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


def filled(message: Any, rng: random.Random, *, all_fields: bool = True, nesting: int = 0) -> Any:
    """Set every required field of ``message``, and all others or some of them."""
    for field in message.DESCRIPTOR.fields:
        is_wanted = field.is_required or (
            nesting < NESTING_MAX and (all_fields or rng.random() < 0.5)
        )
        if not is_wanted:
            continue
        if field.message_type is not None:
            for _ in range(rng.randint(1, 2) if field.is_repeated else 1):
                place = getattr(message, field.name)
                inner = place.add() if field.is_repeated else place
                inner.SetInParent()
                filled(inner, rng, all_fields=all_fields, nesting=nesting + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(_value(field, rng) for _ in range(2))
        else:
            setattr(message, field.name, _value(field, rng))
    return message


def command(kind: int, rng: random.Random, *, all_fields: bool = True) -> BaseCommand:
    """Return a command of type ``kind`` with values in it."""
    made = BaseCommand(type=kind)
    inner = getattr(made, FIELD_OF_TYPE[kind])
    inner.SetInParent()
    filled(inner, rng, all_fields=all_fields)
    return made


def every_command(seed: int = 0) -> list[BaseCommand]:
    """Return one command of each type with every field set."""
    rng = random.Random(seed)
    return [command(kind, rng) for kind in BaseCommand.Type.values()]


def metadata(**fields: Any) -> MessageMetadata:
    """Return the metadata of a message as a producer makes it."""
    given = {"producer_name": "p-1", "sequence_id": 7, "publish_time": 1_700_000_000_000}
    return MessageMetadata(**(given | fields))


def batch_body(messages: list[bytes]) -> bytes:
    """Return the body of a batch that holds ``messages``."""
    parts = []
    for number, message in enumerate(messages):
        head = SingleMessageMetadata(
            payload_size=len(message), sequence_id=number
        ).SerializeToString()
        parts += [struct.pack(">I", len(head)), head, message]
    return b"".join(parts)


def with_broker_entry_metadata(data: bytes, *, broker_timestamp_ms: int, index: int) -> bytes:
    """Return the payload ``data`` with the metadata that a broker puts in front of an entry."""
    entry = BrokerEntryMetadata(broker_timestamp=broker_timestamp_ms, index=index)
    head = entry.SerializeToString()
    return MAGIC_BROKER_ENTRY + struct.pack(">I", len(head)) + head + data


def frame_of(made: BaseCommand, rng: random.Random) -> bytes:
    """Return ``made`` as a frame, with a payload if its type has one."""
    if made.type not in WITH_PAYLOAD:
        return encode_command(made)
    payload = message_payload(metadata(), rng.randbytes(rng.randint(0, 300)))
    if made.type == BaseCommand.MESSAGE and rng.random() < 0.5:
        payload = with_broker_entry_metadata(payload, broker_timestamp_ms=1, index=2)
    return encode_frame(made, payload)


def connect_frame(**fields: Any) -> bytes:
    """Return a client's greeting."""
    given: dict[str, Any] = {"client_version": "test", "protocol_version": 20}
    return encode_command(
        BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(**(given | fields)))
    )


def lookup_command(topic: str = TOPIC, request_id: int = 1, **fields: Any) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.LOOKUP,
        lookupTopic=CommandLookupTopic(topic=topic, request_id=request_id, **fields),
    )


def partitions_command(topic: str = TOPIC, request_id: int = 1, **fields: Any) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA,
        partitionMetadata=CommandPartitionedTopicMetadata(
            topic=topic, request_id=request_id, **fields
        ),
    )


def plausible_session(rng: random.Random) -> list[BaseCommand]:
    """Return what one client might do, with ids and names so few that they meet each other.

    Broken only a little it reaches further into a server than a command of random values.
    """
    kind, message_id = BaseCommand, {"ledgerId": rng.randint(0, 2), "entryId": rng.randint(0, 20)}
    which = {"request_id": rng.randint(1, 9)}
    topic = {"topic": f"{TOPIC}-{rng.randint(0, 3)}"}
    producer, consumer = {"producer_id": rng.randint(0, 1)}, {"consumer_id": rng.randint(0, 1)}
    given: list[tuple[int, dict[str, Any]]] = [
        (kind.LOOKUP, topic | which),
        (kind.LOOKUP, topic | which | {"authoritative": False, "advertised_listener_name": ""}),
        (kind.PARTITIONED_METADATA, topic | which),
        (kind.PARTITIONED_METADATA, topic | which | {"metadata_auto_creation_enabled": False}),
        (kind.GET_TOPICS_OF_NAMESPACE, which | {"namespace": "public/default"}),
        (kind.GET_SCHEMA, topic | which),
        (kind.PRODUCER, topic | which | producer | {"producer_name": rng.choice("ab")}),
        (kind.SEND, producer | {"sequence_id": rng.randint(0, 9)}),
        (kind.SEND, producer | {"sequence_id": rng.randint(0, 9), "num_messages": 3}),
        (
            kind.SUBSCRIBE,
            topic | which | consumer | {"subscription": "s", "subType": rng.randint(0, 3)},
        ),
        (kind.FLOW, consumer | {"messagePermits": rng.choice((0, 1, 1_000, 2**32 - 1))}),
        (kind.ACK, consumer | {"ack_type": rng.randint(0, 1), "message_id": [message_id]}),
        (kind.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer | {"message_ids": [message_id]}),
        (kind.SEEK, consumer | which | {"message_id": message_id}),
        (kind.SEEK, consumer | which | {"message_publish_time": rng.randint(0, 2**63)}),
        (kind.GET_LAST_MESSAGE_ID, consumer | which),
        (kind.CONSUMER_STATS, consumer | which),
        (kind.UNSUBSCRIBE, consumer | which),
        (kind.CLOSE_CONSUMER, consumer | which),
        (kind.CLOSE_PRODUCER, producer | which),
        (kind.PING, {}),
    ]
    return [BaseCommand(**{"type": of, FIELD_OF_TYPE[of]: fields}) for of, fields in given]


class FrameMutator:
    """An endless stream of frames, most of them broken; the same for the same seed.

    ``intact_share`` of the frames are left as they are. With ``is_session`` all begin as what one
    client might do; else every command there is occurs, with whatever values. It never greets by
    itself: whoever drives a server sends ``connect_frame`` first, or not.
    """

    def __init__(self, seed: int, *, intact_share: float = 0.25, is_session: bool = False) -> None:
        self._rng = random.Random(seed)
        self._intact_share = intact_share
        kinds = [kind for kind in BaseCommand.Type.values() if kind != BaseCommand.CONNECT]
        self._corpus = [
            frame_of(made, self._rng) for _ in range(10) for made in plausible_session(self._rng)
        ]
        if not is_session:
            self._corpus += [
                frame_of(command(kind, self._rng, all_fields=all_fields), self._rng)
                for kind in kinds
                for all_fields in (True, False, False)
            ]
        self._mutations: list[Callable[[bytes], bytes]] = [
            self._flipped,
            self._flipped,
            self._replaced,
            self._resized,
            self._resized,
            self._shortened,
            self._spliced,
            self._reordered,
            self._with_unknown_type,
            self._with_huge_field,
            self._random,
        ]

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.next_frame()

    def next_frame(self) -> bytes:
        frame = self._rng.choice(self._corpus)
        if self._rng.random() < self._intact_share:
            return frame
        return self._rng.choice(self._mutations)(frame)

    def _flipped(self, frame: bytes) -> bytes:
        """Some bits the other way, sizes left alone so that the command is reached."""
        changed = bytearray(frame)
        for _ in range(self._rng.randint(1, 4)):
            at = self._rng.randrange(min(8, len(frame) - 1), len(frame))
            changed[at] ^= 1 << self._rng.randrange(8)
        return bytes(changed)

    def _replaced(self, frame: bytes) -> bytes:
        """Other bytes, the two sizes included."""
        changed = bytearray(frame)
        for _ in range(self._rng.randint(1, 4)):
            changed[self._rng.randrange(len(frame))] = self._rng.randrange(256)
        return bytes(changed)

    def _resized(self, frame: bytes) -> bytes:
        """Another size in one of the two places, near the real one or at an edge."""
        at = self._rng.choice((0, 4))
        (size,) = struct.unpack_from(">I", frame, at)
        other = self._rng.choice(
            (
                0,
                3,
                max(0, size - 1),
                size + 1,
                self._rng.randrange(2 * size + 1),
                PULSAR_FRAME_BYTES_MAX + self._rng.randint(-5, 1),
                2**31,
                2**32 - 1,
            )
        )
        return frame[:at] + struct.pack(">I", other) + frame[at + 4 :]

    def _shortened(self, frame: bytes) -> bytes:
        return frame[: self._rng.randrange(1, len(frame))]

    def _spliced(self, frame: bytes) -> bytes:
        """The beginning of one frame and the end of another, in a frame of the right size."""
        other = self._rng.choice(self._corpus)
        body = (
            frame[8 : self._rng.randrange(8, len(frame) + 1)]
            + other[self._rng.randrange(8, len(other) + 1) :]
        )
        return struct.pack(">II", 4 + len(body), len(body)) + body

    def _reordered(self, frame: bytes) -> bytes:
        """The command's bytes with a part of them reversed, in a frame of the right size."""
        body = frame[8:]
        at = self._rng.randrange(len(body) + 1)
        return frame[:8] + body[at:] + body[:at]

    def _with_unknown_type(self, frame: bytes) -> bytes:
        """A type there is not, with an unknown field behind it."""
        kind = self._rng.choice((0, 1, 41, 69, 83, 127))
        body = bytes((0x08, kind)) + b"\xba\x3e\x02\x08\x01"
        return struct.pack(">II", 4 + len(body), len(body)) + body

    def _with_huge_field(self, frame: bytes) -> bytes:
        """A long text, or a number with more bytes than any number has."""
        size = self._rng.choice((127, 128, 300, 16_383, 16_384, 65_536))
        made = self._rng.choice((lookup_command, partitions_command))("x" * size)
        if self._rng.random() < 0.5:
            return encode_command(made)
        body = made.SerializeToString()[:4] + b"\x7f\x0a\x01x\x10" + b"\xff" * size + b"\x00"
        return struct.pack(">II", 4 + len(body), len(body)) + body

    def _random(self, frame: bytes) -> bytes:
        body = self._rng.randbytes(self._rng.randrange(1, 200))
        if self._rng.random() < 0.5:
            return body
        return struct.pack(">II", 4 + len(body), self._rng.randint(0, len(body))) + body


def _value(field: Any, rng: random.Random) -> Any:
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice((TOPIC, "", "ü" * rng.randint(1, 20), "a-name", "pulsar://127.0.0.1:1"))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.randint(0, 30))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return rng.random() * 1_000
    low, high = WHOLE_NUMBERS[field.type]
    return rng.choice((0, 1, high, low, rng.randint(low, high), rng.randint(0, 1_000)))
