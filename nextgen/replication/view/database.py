"""One SQLite file that holds a view, and the connections to it.

One connection writes; the others are read-only and see the newest committed state without
ever making it wait (write-ahead mode). SQLite's errors are handled here.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
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
from nextgen.kernel.limits.cluster import (
    DIGESTS_KEPT,
    VIEW_BUSY_TIMEOUT_MS,
    VIEW_CACHE_KIB,
    VIEW_CHECKPOINT_PAGES,
    VIEW_READERS_MAX,
)
from nextgen.kernel.limits.snapshot import VIEW_CACHES_BYTES
from nextgen.replication.ports import AppliedPoint, ViewDigest
from nextgen.replication.view.digest import DIGEST_VERSION, digest_of, plus, scan, stored_of

_logger = logging.getLogger(__name__)

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

# Beside the fingerprint: a program without digests can read and write such a file. It leaves the
# digest of an earlier entry, by which its writes are recognised.
_digest_metadata = MetaData()
_digest = Table(
    "view_digest",
    _digest_metadata,
    Column("id", Integer, primary_key=True),  # Always 1: there is one row.
    Column("log_index", Integer, nullable=False),
    Column("scheme", Integer, nullable=False),
    Column("digest", Integer, nullable=False),  # view_digest.stored_of
)
_points = Table(
    "digest_points",
    _digest_metadata,
    Column("position", Integer, primary_key=True),
    Column("log_index", Integer, nullable=False),
    Column("digest", Integer, nullable=False),
)
_DIGEST_TABLES = tuple(
    str(CreateTable(table, if_not_exists=True).compile(dialect=sqlite_dialect.dialect()))
    for table in _digest_metadata.sorted_tables
)
_STORE_DIGEST = "INSERT OR REPLACE INTO view_digest VALUES (1, ?, ?, ?)"
_STORE_POINT = "INSERT OR REPLACE INTO digest_points VALUES (?, ?, ?)"
_FORGET_POINTS = (
    "DELETE FROM digest_points WHERE position <= "
    f"(SELECT position FROM digest_points ORDER BY position DESC LIMIT 1 OFFSET {DIGESTS_KEPT})"
)


Upgrade = Callable[[sqlite3.Connection], None]
"""Gives the tables of an earlier version, and their rows, the form that a fold of the same log
would give them. Runs inside a transaction; never commits."""


class ViewUnusable(Definite):
    """The file is damaged, or another version's: the view must be built again."""

    reason = "VIEW_UNUSABLE"


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Translate SQLite's errors about its file; errors in a statement are raised unchanged.

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


@lru_cache(maxsize=8)
def fingerprint(metadata: MetaData, version: int) -> int:
    """Return a number that changes with the tables or with ``version``; 31 bits, not 0."""
    statements = (
        f"version {version}",
        *table_statements(metadata),
        *table_statements(_own_metadata),
    )
    return (crc32c("\n".join(statements).encode()) & 0x7FFFFFFF) or 1


@lru_cache(maxsize=8)
def table_statements(metadata: MetaData) -> tuple[str, ...]:
    """Return the statements that make the tables with their indexes.

    To compile them takes longer than SQLite needs to carry them out.
    """
    dialect = sqlite_dialect.dialect()
    statements: list[str] = []
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    return tuple(statements)


def read_only(path: Path) -> sqlite3.Connection:
    """Open ``path`` for reading, outside of any transaction. May move between threads."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=VIEW_BUSY_TIMEOUT_MS / 1_000,
    )
    return _set_up(connection, ("query_only=ON", f"cache_size=-{VIEW_CACHE_KIB}"))


def _set_up(connection: sqlite3.Connection, pragmas: Sequence[str]) -> sqlite3.Connection:
    """Return ``connection`` with ``pragmas`` in force; close it if its file refuses one."""
    # The limit is the process's, whichever connection sets it.
    try:
        for pragma in (*pragmas, f"soft_heap_limit={VIEW_CACHES_BYTES}"):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def move_write_ahead(path: Path) -> None:
    """Copy the write-ahead file into the database, as far as readers allow, and empty it if nobody
    uses it at the moment. Writers wait no longer than for what came meanwhile."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, timeout=0
    )
    try:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        # The file would stay as long as it ever was. This does not wait for anybody.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    finally:
        connection.close()


def read_fingerprint(connection: sqlite3.Connection) -> int:
    """Return the fingerprint in a file, 0 for an empty file."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def read_applied(connection: sqlite3.Connection) -> AppliedPoint:
    row = connection.execute("SELECT log_index, term, position FROM applied").fetchone()
    return AppliedPoint(*row)


def read_digest(connection: sqlite3.Connection) -> int:
    """Return the stored digest as of the open transaction."""
    (stored,) = connection.execute("SELECT digest FROM view_digest").fetchone()
    return digest_of(stored)


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection beneath ``connection``, in the same transaction.

    A statement costs a fraction of SQLAlchemy's there. Errors are those of ``sqlite_errors``.
    """
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection), "a view is kept by the driver of SQLite"
    return driver


def recreate_table(connection: sqlite3.Connection, table: Table, values: Mapping[str, str]) -> None:
    """Give a table of an earlier version the columns and indexes of ``table``, for an ``Upgrade``.

    ``values`` has the value of a column as an expression in the earlier columns; other columns keep
    their values.
    """
    dialect = sqlite_dialect.dialect()
    names = [column.name for column in table.columns]
    selected = ", ".join(values.get(name, name) for name in names)
    for statement in (
        f"ALTER TABLE {table.name} RENAME TO earlier_{table.name}",
        str(CreateTable(table).compile(dialect=dialect)),
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {selected} "
        f"FROM earlier_{table.name} ORDER BY 1",
        f"DROP TABLE earlier_{table.name}",
        *(str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes),
    ):
        connection.execute(statement).close()


class ViewDatabase:
    """An open file. Made complete, with an applied point of 0, if there was none.

    ``upgrades`` has, by the fingerprint of an earlier version's tables, the upgrade to these.

    Raises:
        ViewUnusable: The file is damaged or has other tables. It was not changed.
        OSError: The disk is full.
    """

    def __init__(
        self,
        path: Path,
        metadata: MetaData,
        version: int,
        upgrades: Mapping[int, Upgrade],
    ) -> None:
        self.path = path
        self._is_closed = False
        self._upgrades = upgrades
        self._metadata = metadata
        self._fingerprint = fingerprint(metadata, version)
        self._writing = _engine(self._open_writer, begin="BEGIN IMMEDIATE", pooled=False)
        self._reading = _engine(lambda: read_only(path), begin=None, pooled=False)
        self._consistent = _engine(lambda: read_only(path), begin="BEGIN", pooled=True)
        with sqlite_errors():
            self.writer = self._writing.connect()
            try:
                with self.writer.begin():
                    self.applied = self._prepare()
                    self.digest, self.point = self._prepare_digest()
            except BaseException:
                self.close()
                raise

    @property
    def scheme(self) -> int:
        """The content and form of the hash: only digests of one scheme can be compared."""
        return self._fingerprint << 8 | DIGEST_VERSION

    def digest_after(self, change: int | None) -> int:
        """Return the digest within the writer's transaction, whose fold changed it by
        ``change``; by None: count it anew."""
        if change is None:
            return scan(driver_of(self.writer), self._metadata)[0]
        return plus(self.digest, change)

    def store(self, applied: AppliedPoint, digest: int, point: ViewDigest | None) -> None:
        """Store the rows' position, and ``point`` if one was reached, within the writer's
        transaction."""
        execute = driver_of(self.writer).execute
        execute(_STORE_APPLIED, (applied.index, applied.term, applied.position)).close()
        execute(_STORE_DIGEST, (applied.index, self.scheme, stored_of(digest))).close()
        if point is not None:
            values = (point.position, point.index, stored_of(point.digest))
            execute(_STORE_POINT, values).close()
            execute(_FORGET_POINTS).close()

    def stored(self, applied: AppliedPoint, digest: int, point: ViewDigest | None) -> None:
        """Apply the values of ``store``, once its transaction is committed."""
        self.applied, self.digest = applied, digest
        self.point = point or self.point

    def open_reader(self) -> Connection:
        """Return a connection on which each statement sees the newest committed state."""
        return self._reading.connect()

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Yield a connection on which every statement sees the same state."""
        with self._consistent.connect() as connection:
            try:
                with connection.begin():
                    # The first read is what pins the state, not BEGIN.
                    connection.execute(select(_applied.c.id)).one()
                    yield connection
            finally:
                if self._is_closed:
                    # Its pool is closed: close the connection here, not by the garbage collector.
                    connection.detach()

    def close(self) -> None:
        """Close the writer and the idle readers; one in use closes when it is returned."""
        self._is_closed = True
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
        pragmas = (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            f"wal_autocheckpoint={VIEW_CHECKPOINT_PAGES}",
            f"cache_size=-{VIEW_CACHE_KIB}",
        )
        return _set_up(connection, pragmas)

    def _prepare(self) -> AppliedPoint:
        found = self.writer.exec_driver_sql("PRAGMA user_version").scalar_one()
        if found == 0:
            for statement in (*table_statements(self._metadata), *table_statements(_own_metadata)):
                driver_of(self.writer).execute(statement).close()
            row = {"id": 1, "log_index": 0, "term": 0, "position": 0}
            self.writer.execute(insert(_applied).values(row))
            self.writer.exec_driver_sql(f"PRAGMA user_version={self._fingerprint}")
        elif found in self._upgrades:
            _logger.warning("%s gets the tables of this version", self.path)
            self._upgrades[found](driver_of(self.writer))
            self.writer.exec_driver_sql(f"PRAGMA user_version={self._fingerprint}")
        elif found != self._fingerprint:
            raise ViewUnusable(
                f"the view has tables {found:08x}, this program {self._fingerprint:08x}"
            )
        return read_applied(driver_of(self.writer))

    def _prepare_digest(self) -> tuple[int, ViewDigest | None]:
        """Return the stored digest; a view without one, of an older program, is scanned."""
        connection = driver_of(self.writer)
        for statement in _DIGEST_TABLES:
            connection.execute(statement).close()
        stored = connection.execute("SELECT log_index, scheme FROM view_digest").fetchone()
        if stored == (self.applied.index, self.scheme):
            return read_digest(connection), _newest_point(connection, self.scheme)
        digest, _ = scan(connection, self._metadata)
        connection.execute("DELETE FROM digest_points").close()
        values = (self.applied.index, self.scheme, stored_of(digest))
        connection.execute(_STORE_DIGEST, values).close()
        return digest, None


def _newest_point(connection: sqlite3.Connection, scheme: int) -> ViewDigest | None:
    row = connection.execute(
        "SELECT log_index, position, digest FROM digest_points ORDER BY position DESC LIMIT 1"
    ).fetchone()
    return None if row is None else ViewDigest(row[0], row[1], digest_of(row[2]), scheme)


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
            driver_of(connection).execute(begin).close()

    return engine
