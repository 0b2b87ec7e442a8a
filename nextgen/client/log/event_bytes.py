"""Committed events as they are sent: assembled from stored bytes, without decoding them.

A stored event lacks the fields that follow from its place in the log. Protobuf messages may be
concatenated, so the event on the wire is those derived fields followed by the stored bytes. Only a
filter by name decodes an event. ``log.wire.filled_events`` is the reference, with messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nextgen.client.log.event_keys import EVENT_TYPES, event_keys
from nextgen.client.log.wire import SCHEMA_VERSION_FIRST
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from nextgen.kernel.limits.stream import KEY_PREFIX_BYTES_MAX
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1.event_bytes_pb2 import DecidedCommandBytes, DecidedEventBytes
from protos.nextgen.v1.events_pb2 import Event

_FIELDS = Event.DESCRIPTOR.fields_by_name
_BYTES = 2
"""Wire type of a length-delimited field."""


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _tag(field: str, wire_type: int = 0) -> bytes:
    return _varint(_FIELDS[field].number << 3 | wire_type)


_TIME_TAG = _tag("time_ms")
_CAUSE_TAG = _tag("causation_id", _BYTES)
_PAYLOAD_TAGS = {_tag(name, _BYTES): name for name in EVENT_TYPES}
_PAYLOAD_TAG_BYTES = 2
assert {len(tag) for tag in _PAYLOAD_TAGS} == {_PAYLOAD_TAG_BYTES}, "payloads are fields 16 to 2047"

_POSITION_TAG = _tag("position")
_POSITION_STARTS = [_POSITION_TAG + bytes((low | 0x80,)) for low in range(0x80)]
"""The tag of a position and its lowest seven bits, when there are more."""

_POSITIONS_OF_ONE_BYTE = [_POSITION_TAG + bytes((low,)) for low in range(0x80)]

_COMMAND_START = _CAUSE_TAG + _varint(COMMAND_ID_BYTES)
"""The bytes before a command's id, whose length is always the same."""


class EventFilter:
    """Selects events of these types, one of whose keys has this prefix. Empty: all."""

    def __init__(self, types: Sequence[str] = (), key_prefix: str = "") -> None:
        """
        Raises:
            InvalidRequest: A type does not exist, or the prefix is longer than any name.
        """
        unknown = set(types) - EVENT_TYPES
        if unknown:
            raise InvalidRequest(f"there is no event type {min(unknown)!r}")
        if len(key_prefix.encode()) > KEY_PREFIX_BYTES_MAX:
            raise InvalidRequest(f"a key prefix has at most {KEY_PREFIX_BYTES_MAX} bytes")
        self._types = frozenset(types)
        self._prefix = key_prefix
        self.takes_all = not types and not key_prefix

    def accepts(self, stored: bytes) -> bool:
        """Return whether the event with these stored bytes is wanted."""
        if self.takes_all:
            return True
        name = _PAYLOAD_TAGS.get(stored[:_PAYLOAD_TAG_BYTES])
        if name is not None and self._types and name not in self._types:
            return False
        if name is not None and not self._prefix:
            return True
        # Another field precedes the payload, or the filter needs the event's name.
        return self.matches(Event.FromString(stored))

    def matches(self, event: Event) -> bool:
        """Return whether ``event`` is wanted."""
        if self._types and event.WhichOneof("payload") not in self._types:
            return False
        prefix = self._prefix
        return not prefix or any(key.startswith(prefix) for key in event_keys(event))


class SentEvents:
    """Turns the entries of one shard's log into events as they are sent.

    This is most of the cost of a scan, so the path for a record of one event, by far the most
    frequent, avoids every call it can (benchmarks/engine/log_scan.py).
    """

    def __init__(self, shard_id: int, wanted: EventFilter) -> None:
        self._shard_id = shard_id
        self._wanted = wanted
        self._high = (-1, b"")
        self._time = (-1, b"")

    def of(
        self, entry: Entry, from_position: int, events_max: int
    ) -> tuple[list[int], list[bytes], int]:
        """Return positions and bytes of the wanted events of ``entry`` from a position on, and the
        position behind the last event that was examined: it ends with the record that reaches
        ``events_max``."""
        positions: list[int] = []
        found: list[bytes] = []
        position = entry.first_position
        enough = from_position + events_max
        place = Event(
            term=entry.term, shard_id=self._shard_id, schema_version=SCHEMA_VERSION_FIRST
        ).SerializeToString()
        takes_all, accepts = self._wanted.takes_all, self._wanted.accepts
        for record in entry.records:
            if record.events != 1:
                for at, event in self._of_several(record, position, from_position, place):
                    positions.append(at)
                    found.append(event)
                position += record.events
                if position >= enough:
                    break
                continue
            if position >= from_position:
                one = DecidedEventBytes.FromString(record.payload)
                stored = one.event
                if takes_all or accepts(stored):
                    derived = self._derived(position, place, one.time_ms, one.command_id)
                    positions.append(position)
                    found.append(derived + stored)
            position += 1
            if position >= enough:
                break
        return positions, found, position

    def _of_several(
        self, record: Record, position: int, from_position: int, place: bytes
    ) -> Iterator[tuple[int, bytes]]:
        if position + record.events <= from_position or not record.events:
            return
        decided = DecidedCommandBytes.FromString(record.payload)
        time_ms, command_id = decided.time_ms, decided.command_id
        for at, stored in enumerate(decided.events, position):
            if at >= from_position and self._wanted.accepts(stored):
                yield at, self._derived(at, place, time_ms, command_id) + stored

    def _derived(self, position: int, place: bytes, time_ms: int, command_id: bytes) -> bytes:
        """Return the fields of an event that are not stored with it."""
        high = position >> 7
        if self._high[0] != high:
            self._high = high, _varint(high) if high else b""
        if self._time[0] != time_ms:
            self._time = time_ms, _TIME_TAG + _varint(time_ms)
        starts = _POSITION_STARTS if high else _POSITIONS_OF_ONE_BYTE
        start = starts[position & 0x7F] + self._high[1] + place + self._time[1]
        if len(command_id) == COMMAND_ID_BYTES:
            return start + _COMMAND_START + command_id
        if command_id:
            return start + _CAUSE_TAG + _varint(len(command_id)) + command_id
        return start
