"""A small view for tests: names and how often each was seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table

from nextgen.replication.ports import Entry, Record
from nextgen.replication.view.digest import rows_digest
from nextgen.replication.view.store import ViewStore
from nextgen.storage.disk import Storage

METADATA = MetaData()
NAMES = Table(
    "names",
    METADATA,
    Column("name", String, primary_key=True),
    Column("seen", Integer, nullable=False),
    sqlite_with_rowid=False,
)
_COUNT = "INSERT INTO names VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET seen = seen + 1"


def fold_names(connection: Connection, entries: Sequence[Entry]) -> int:
    """Count each record's payload: folding anything twice is seen."""
    rows = [(record.payload.decode(),) for entry in entries for record in entry.records]
    names = sorted({name for (name,) in rows})
    before = _stored(connection, names)
    if rows:
        connection.exec_driver_sql(_COUNT, rows)
    return rows_digest("names", _stored(connection, names)) - rows_digest("names", before)


def _stored(connection: Connection, names: Sequence[str]) -> list[tuple[object, ...]]:
    one = "SELECT name, seen FROM names WHERE name = ?"
    found = [connection.exec_driver_sql(one, (name,)).first() for name in names]
    return [tuple(row) for row in found if row is not None]


def open_view(directory: Path, storage: Storage | None = None, *, version: int = 1) -> ViewStore:
    return ViewStore(directory, METADATA, fold_names, storage=storage, version=version)


def entries_of(names: Iterable[str], *, from_index: int = 1, term: int = 1) -> list[Entry]:
    """One entry with one event per name; entry and event numbers are the same."""
    return [
        Entry(index, term, index, (Record(name.encode(), 1),))
        for index, name in enumerate(names, start=from_index)
    ]


def names_in(view: ViewStore) -> dict[str, int]:
    rows = view.reader().exec_driver_sql("SELECT name, seen FROM names ORDER BY name")
    return {name: seen for name, seen in rows}
