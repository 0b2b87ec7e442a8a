"""Well-formed commands of clients with the worst numbers that fit into their fields."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from nextgen.pulsar.frames import FIELD_OF_TYPE
from protos.pulsar import PulsarApi_pb2 as pulsar

_INT32 = (0, 1, 2, -1, -(2**31), 2**31 - 1)
_UINT32 = (0, 1, 2, 1_000, 2**31, 2**32 - 1)
_INT64 = (0, 1, -1, 2**31, 2**32, -(2**63), 2**63 - 1)
_UINT64 = (0, 1, 2, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
_NUMBERS = {
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_UINT32: _UINT32,
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_STRING: ("", "a", "ü" * 40),
    FieldDescriptor.TYPE_BYTES: (b"", b"\xff", b"{}", b'{"type": "int"}'),
}

_SHARES = {"txnid_least_bits": 0.03, "txnid_most_bits": 0.03, "marker": 0.03}
"""Fields whose commands are refused for them: how often they are there."""

COMMANDS = (
    *(pulsar.BaseCommand.PRODUCER, pulsar.BaseCommand.SEND, pulsar.BaseCommand.CLOSE_PRODUCER),
    *(pulsar.BaseCommand.SUBSCRIBE, pulsar.BaseCommand.FLOW, pulsar.BaseCommand.ACK),
    *(pulsar.BaseCommand.ACK, pulsar.BaseCommand.FLOW, pulsar.BaseCommand.SEEK),
    *(pulsar.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, pulsar.BaseCommand.UNSUBSCRIBE),
    *(pulsar.BaseCommand.GET_LAST_MESSAGE_ID, pulsar.BaseCommand.CONSUMER_STATS),
    *(pulsar.BaseCommand.CLOSE_CONSUMER, pulsar.BaseCommand.GET_SCHEMA),
    pulsar.BaseCommand.GET_OR_CREATE_SCHEMA,
)


class ExtremeCommands:
    """Makes commands. ``choices`` are values for fields of these names, one in ten excepted."""

    def __init__(self, seed: int, choices: dict[str, tuple[Any, ...]]) -> None:
        self._rng = random.Random(seed)
        self._choices = choices

    def command(self) -> pulsar.BaseCommand:
        kind = self._rng.choice(COMMANDS)
        command = pulsar.BaseCommand(type=kind)
        inner = getattr(command, FIELD_OF_TYPE[kind])
        inner.SetInParent()
        self._fill(inner)
        return command

    def metadata(self) -> pulsar.MessageMetadata:
        metadata = pulsar.MessageMetadata()
        self._fill(metadata)
        return metadata

    def _fill(self, message: Any) -> None:
        for field in message.DESCRIPTOR.fields:
            if field.is_required or self._rng.random() < _SHARES.get(field.name, 0.35):
                self._set(message, field)

    def _set(self, message: Any, field: Any) -> None:
        if field.message_type is not None:
            inners = [getattr(message, field.name)]
            if field.is_repeated:
                inners = [inners[0].add() for _ in range(self._rng.randint(0, 3))]
            for inner in inners:
                inner.SetInParent()
                self._fill(inner)
        elif field.is_repeated:
            getattr(message, field.name).extend(
                self._value(field) for _ in range(self._rng.randint(0, 3))
            )
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: Any) -> Any:
        chosen = self._choices.get(field.name)
        if chosen is not None and self._rng.random() < 0.9:
            return self._rng.choice(chosen)
        if field.enum_type is not None:
            return self._rng.choice(field.enum_type.values).number
        return self._rng.choice(_NUMBERS[field.type])
