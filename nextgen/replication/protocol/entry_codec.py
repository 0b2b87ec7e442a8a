"""The content of one Raft entry: a msgpack list of ``[payload, events]`` pairs.

An empty list is the entry that a new leader writes to commit earlier entries. A map is a
configuration, see ``membership``: it holds no records.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap

import msgpack

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import RECORD_BYTES_MAX
from nextgen.replication.ports import Record
from nextgen.replication.protocol.membership import is_configuration

RECORD_OVERHEAD_BYTES = 16
"""Upper bound of the bytes that the encoding adds to one record's payload."""

NO_RECORDS: bytes = msgpack.packb([])
"""The payload of an entry that holds no record."""


def check_record(record: Record) -> None:
    """Refuse a record that may not enter a log.

    Raises:
        InvalidRequest: It is empty or too large, or counts events below zero.
    """
    if not record.payload:
        raise InvalidRequest("a record must not be empty")
    if len(record.payload) > RECORD_BYTES_MAX:
        raise InvalidRequest(
            f"a record holds at most {RECORD_BYTES_MAX} bytes, this one has {len(record.payload)}"
        )
    if record.events < 0:
        raise InvalidRequest(f"a record cannot hold {record.events} events")


def encode_records(records: Iterable[Record]) -> bytes:
    """Return the payload of an entry that carries ``records``."""
    payload: bytes = msgpack.packb([(record.payload, record.events) for record in records])
    return payload


def decode_records(payload: bytes) -> tuple[Record, ...]:
    """Return the records of an entry; the inverse of ``encode_records``."""
    if is_configuration(payload):
        return ()
    return tuple(starmap(Record, msgpack.unpackb(payload)))
