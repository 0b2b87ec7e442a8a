"""One Parquet file: the encodings of its columns, and a writer that counts and hashes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nextgen.export.format.columns import EventColumns
from nextgen.export.format.schema import SCHEMA_VERSION
from nextgen.export.stores.store import Draft
from nextgen.kernel.limits.stream import EXPORT_BATCH_EVENTS, EXPORT_ROW_GROUP_ROWS
from protos.nextgen.v1.events_pb2 import Event

EXPORT_BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Serialised bytes of the events that wait to become columns, of each shard."""

EXPORT_ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of columns of one row group that waits to be written, of each shard."""

ZSTD_LEVEL = 3
"""Compression level. Measured: level 9 takes a third longer, and saves less than a twentieth."""

WRITTEN_BYTES = 1024 * 1024
"""Bytes that are passed to the draft at a time."""

_UNIQUE = ("causation_id", "raw")
_UNIQUE_SUFFIX = ".topic_id"
_SORTED_SUFFIX = ".name"

METADATA_CLUSTER = b"nextgen.cluster_id"
METADATA_SHARD = b"nextgen.shard_id"
METADATA_SCHEMA = b"nextgen.schema_version"


class FileWriter:
    """Writes the events of one shard and one date into a draft, in the given order.

    Blocks, and is used by one thread at a time. Memory is bounded: events become columns by
    ``EXPORT_BATCH_EVENTS``, columns a row group by ``EXPORT_ROW_GROUP_ROWS``.
    """

    def __init__(
        self, draft: Draft, columns: EventColumns, *, cluster_id: str, shard_id: int
    ) -> None:
        self._columns = columns
        self._sink = _HashingSink(draft)
        self._writer = pq.ParquetWriter(
            self._sink,
            columns.schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            write_statistics=["position", "time", "event_type"],
            # The Parquet types suffice; a copy of the Arrow schema would add 20 kB to each file.
            store_schema=False,
            **_encodings(columns.schema),
        )
        self._writer.add_key_value_metadata(
            {
                METADATA_CLUSTER: cluster_id,
                METADATA_SHARD: str(shard_id),
                METADATA_SCHEMA: str(SCHEMA_VERSION),
            }
        )
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._tables: list[pa.Table] = []
        self._table_rows = 0
        self._table_bytes = 0
        self.rows = 0
        self.untyped_events = 0

    @property
    def bytes(self) -> int:
        """Bytes written so far, without the events that wait for their row group."""
        return self._sink.bytes

    @property
    def sha256(self) -> str:
        """Hash of the closed file."""
        return self._sink.sha256.hexdigest()

    def add(self, events: Sequence[Any]) -> None:
        """Append events.

        Raises:
            OSError: The disk refuses.
        """
        start = 0
        while start < len(events):
            part = events[start : start + EXPORT_BATCH_EVENTS - len(self._waiting)]
            start += len(part)
            self._waiting += part
            self._waiting_bytes += sum(map(Event.ByteSize, part))
            is_many = len(self._waiting) >= EXPORT_BATCH_EVENTS
            if is_many or self._waiting_bytes >= EXPORT_BATCH_BYTES_MAX:
                self._make_columns()
        self.rows += len(events)

    def close(self) -> None:
        """Write the remaining events and the footer. The draft is then complete and unpublished."""
        self._make_columns()
        self._write_row_group()
        self._writer.close()
        self._sink.drain()

    def abandon(self) -> None:
        """Free the writer's memory, and write nothing more."""
        self._sink.is_abandoned = True
        self._writer.close()

    def _make_columns(self) -> None:
        if not self._waiting:
            return
        table = self._columns.table(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._tables.append(table)
        self._table_rows += table.num_rows
        self._table_bytes += table.nbytes
        self.untyped_events += table.num_rows - table["raw"].null_count
        is_many = self._table_rows >= EXPORT_ROW_GROUP_ROWS
        if is_many or self._table_bytes >= EXPORT_ROW_GROUP_BYTES_MAX:
            self._write_row_group()

    def _write_row_group(self) -> None:
        if not self._tables:
            return
        table = pa.concat_tables(self._tables)
        self._tables, self._table_rows, self._table_bytes = [], 0, 0
        self._writer.write_table(table, row_group_size=table.num_rows)


class _HashingSink:
    """The sink of the Parquet writer: buffers, counts and hashes what it passes to a draft."""

    closed = False

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._waiting = bytearray()
        self.sha256 = hashlib.sha256()
        self.bytes = 0
        self.is_abandoned = False

    def write(self, data: Any) -> int:
        if self.is_abandoned:
            return len(data)
        self._waiting += data
        self.bytes += len(data)
        if len(self._waiting) >= WRITTEN_BYTES:
            self.drain()
        return len(data)

    def drain(self) -> None:
        """Pass the buffered bytes to the draft."""
        waiting, self._waiting = bytes(self._waiting), bytearray()
        if waiting:
            self.sha256.update(waiting)
            self._draft.write(waiting)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Do nothing: publishing makes the file durable."""

    def close(self) -> None:
        """Do nothing: publishing closes the draft."""


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return the encoding of each column.

    Numbers are delta-encoded. Names are delta-encoded too, because neighbours share a prefix.
    Random ids are plain, because a dictionary of them would be as long. All other columns repeat
    their values and use dictionaries.
    """
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    for field in schema:
        _choose(field.name, field.type, dictionaries, encodings)
    return {"use_dictionary": dictionaries, "column_encoding": encodings}


def _choose(
    path: str, type_: pa.DataType, dictionaries: list[str], encodings: dict[str, str]
) -> None:
    if pa.types.is_struct(type_):
        for child in type_:
            _choose(f"{path}.{child.name}", child.type, dictionaries, encodings)
    elif pa.types.is_map(type_):
        dictionaries += [f"{path}.key_value.key", f"{path}.key_value.value"]
    elif pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
        encodings[path] = "DELTA_BINARY_PACKED"
    elif path in _UNIQUE or path.endswith(_UNIQUE_SUFFIX):
        encodings[path] = "DELTA_LENGTH_BYTE_ARRAY"
    elif path.endswith(_SORTED_SUFFIX):
        encodings[path] = "DELTA_BYTE_ARRAY"
    elif not pa.types.is_list(type_):
        dictionaries.append(path)


def open_file(file: BinaryIO) -> pq.ParquetFile:
    """Open a file of ``FileWriter``.

    Raises:
        pyarrow.ArrowException, OSError: The file is damaged.
    """
    return pq.ParquetFile(file)
