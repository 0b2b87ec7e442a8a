"""One SQLite file that holds a view, and the connections to it.

One connection writes; the others are read-only and see the newest committed state without
ever making it wait (write-ahead mode). Whoever meets an error of SQLite's meets it here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from crc32c import crc32c
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    QueuePool,
    Table,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.exc import DatabaseError
from sqlalchemy.schema import CreateIndex, CreateTable

from nextgen.kernel.errors import Definite
from nextgen.kernel.limits import (
    VIEW_BUSY_TIMEOUT_MS,
    VIEW_CACHE_KIB,
    VIEW_CHECKPOINT_PAGES,
    VIEW_READERS_MAX,
)
from nextgen.replication.ports import AppliedPoint

_PRIMARY_CODE_MASK = 0xFF
_FULL_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
_DAMAGED_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_READ_TRANSACTION_WAIT_S = VIEW_BUSY_TIMEOUT_MS / 1_000

_own_metadata = MetaData()
_applied = Table(
    "applied",
    _own_metadata,
    Column("id", Integer, primary_key=True),  # Always 1: there is one row.
    Column("log_index", Integer, nullable=False),
    Column("term", Integer, nullable=False),
    Column("position", Integer, nullable=False),
)
_STORE_APPLIED = "UPDATE applied SET log_index = ?, term = ?, position = ?"


class ViewUnusable(Definite):
    """The file is damaged, or another version's: the view must be built again."""

    reason = "VIEW_UNUSABLE"


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Translate what SQLite says about its file; mistakes in a statement pass.

    Raises:
        OSError: ENOSPC, the disk is full.
        ViewUnusable: The file is damaged.
    """
    try:
        yield
    except (DatabaseError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DatabaseError) else error
        code = getattr(cause, "sqlite_errorcode", 0)
        if code in _FULL_CODES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        if code & _PRIMARY_CODE_MASK in _DAMAGED_CODES:
            raise ViewUnusable(f"the view is damaged: {cause}") from error
        raise


def fingerprint(metadata: MetaData, version: int) -> int:
    """Return a number that changes with the tables or with ``version``; 31 bits, not 0."""
    dialect = sqlite_dialect.dialect()
    statements = [f"version {version}"]
    for table in (*metadata.sorted_tables, _applied):
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    return (crc32c("\n".join(statements).encode()) & 0x7FFFFFFF) or 1


def read_only(path: Path) -> sqlite3.Connection:
    """Open ``path`` for reading, outside of any transaction. May move between threads."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=VIEW_BUSY_TIMEOUT_MS / 1_000,
    )
    connection.execute("PRAGMA query_only=ON")
    connection.execute(f"PRAGMA cache_size=-{VIEW_CACHE_KIB}")
    return connection


def read_fingerprint(connection: sqlite3.Connection) -> int:
    """Return the fingerprint that a file carries, 0 for a file that holds nothing."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def read_applied(connection: sqlite3.Connection) -> AppliedPoint:
    row = connection.execute("SELECT log_index, term, position FROM applied").fetchone()
    return AppliedPoint(*row)


class ViewDatabase:
    """An open file. Made complete, with an applied point of 0, if there was none.

    Raises:
        ViewUnusable: The file is damaged or has other tables. It was not changed.
        OSError: The disk is full.
    """

    def __init__(self, path: Path, metadata: MetaData, version: int) -> None:
        self.path = path
        self._fingerprint = fingerprint(metadata, version)
        self._writing = _engine(self._open_writer, begin="BEGIN IMMEDIATE", pooled=False)
        self._reading = _engine(lambda: read_only(path), begin=None, pooled=False)
        self._consistent = _engine(lambda: read_only(path), begin="BEGIN", pooled=True)
        with sqlite_errors():
            self.writer = self._writing.connect()
            try:
                self.applied = self._prepare(metadata)
            except BaseException:
                self.close()
                raise

    def store_applied(self, point: AppliedPoint) -> None:
        """Note ``point`` within the writer's transaction."""
        values = (point.index, point.term, point.position)
        self.writer.exec_driver_sql(_STORE_APPLIED, values)

    def checkpoint(self) -> None:
        """Move what the write-ahead file has into the database, as far as readers allow."""
        connection = self.writer.connection.driver_connection  # Outside of any transaction.
        assert connection is not None, "the writer is open"
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def open_reader(self) -> Connection:
        """Return a connection on which each statement sees the newest committed state."""
        return self._reading.connect()

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Give a connection on which every statement sees the same state."""
        with self._consistent.connect() as connection, connection.begin():
            # The first read is what pins the state, not BEGIN.
            connection.execute(select(_applied.c.id)).one()
            yield connection

    def close(self) -> None:
        """Close the writer and the idle readers; one in use closes when it is let go."""
        self.writer.close()
        for engine in (self._writing, self._reading, self._consistent):
            engine.dispose()

    def _open_writer(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            timeout=VIEW_BUSY_TIMEOUT_MS / 1_000,
        )
        # The log makes an event durable, so the view need not be synced at each commit.
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            f"wal_autocheckpoint={VIEW_CHECKPOINT_PAGES}",
            f"cache_size=-{VIEW_CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
        return connection

    def _prepare(self, metadata: MetaData) -> AppliedPoint:
        with self.writer.begin():
            found = self.writer.exec_driver_sql("PRAGMA user_version").scalar_one()
            if found == 0:
                metadata.create_all(self.writer)
                _own_metadata.create_all(self.writer)
                row = {"id": 1, "log_index": 0, "term": 0, "position": 0}
                self.writer.execute(insert(_applied).values(row))
                self.writer.exec_driver_sql(f"PRAGMA user_version={self._fingerprint}")
            elif found != self._fingerprint:
                raise ViewUnusable(
                    f"the view has tables {found:08x}, this program {self._fingerprint:08x}"
                )
            columns = (_applied.c.log_index, _applied.c.term, _applied.c.position)
            return AppliedPoint(*self.writer.execute(select(*columns)).one())


def _engine(
    creator: Callable[[], sqlite3.Connection], *, begin: str | None, pooled: bool
) -> Engine:
    """Return an engine that begins transactions by ``begin``, or not at all."""
    if pooled:
        engine = create_engine(
            "sqlite://",
            creator=creator,
            poolclass=QueuePool,
            pool_size=VIEW_READERS_MAX,
            max_overflow=0,
            pool_timeout=_READ_TRANSACTION_WAIT_S,
        )
    else:
        engine = create_engine("sqlite://", creator=creator, poolclass=NullPool)
    if begin is not None:

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

    return engine
