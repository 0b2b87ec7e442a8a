"""A view of one group's log in SQLite: the fold's tables and how far it has folded.

    view/view.000000000002.sqlite   the view; a higher number replaces a lower one
    view/suspect                    SQLite met damage: do not trust the view at the next start
    view/quarantined.sqlite         the last view that was put aside, for a person to look at

Each installed snapshot is a file with a name of its own, so that SQLite never finds the
write-ahead file of one database beside another, and a crash leaves the old view or the new.

A view that cannot be used (damage, or tables of another version) is put aside and begun empty:
``applied`` is (0, 0, 0). The log then rebuilds it: it replays from the first entry if it still has
it, and gets a snapshot if not.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, MetaData

from nextgen.kernel.limits.snapshot import VIEW_PACE_BYTES
from nextgen.replication.ports import AppliedPoint, Entry, ViewDigest
from nextgen.replication.view.database import (
    Upgrade,
    ViewDatabase,
    ViewUnusable,
    driver_of,
    fingerprint,
    move_write_ahead,
    read_applied,
    read_digest,
    read_fingerprint,
    read_only,
    sqlite_errors,
)
from nextgen.replication.view.digest import next_digest_position, scan
from nextgen.storage.disk import DiskStorage, Storage, make_directory_durably

Fold = Callable[[Connection, Sequence[Entry]], int | None]
"""Applies entries to the tables, and returns by how much ``view_digest``'s sum over the rows grew,
None if unknown. Runs inside the transaction; never commits; never refuses."""

_PREFIX, _SUFFIX = "view.", ".sqlite"
FIRST_VIEW_NAME = f"{_PREFIX}{1:012d}{_SUFFIX}"
"""Name of the file that a store opens in a directory with no other: what is there is its view."""

_SUSPECT = "suspect"
_INSTALLING = "installing"
_QUARANTINED = "quarantined.sqlite"
_SIDE_FILES = ("-wal", "-shm")
_COPY_BYTES = 1024 * 1024
_PACE = "pace"  # These syncs promise nothing: they let small writes reach the disk in between.

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PinnedState:
    """One state of a view: its position in the log, and the digest of its rows."""

    applied: AppliedPoint
    stored_digest: int
    connection: sqlite3.Connection
    metadata: MetaData

    def scan(self, *, pause_s: float = 0.0) -> int:
        """Return the digest of the rows as they are on disk; see ``view_digest.scan``.

        Raises:
            ViewUnusable: The file is damaged.
        """
        with sqlite_errors():
            digest, _ = scan(self.connection, self.metadata, pause_s=pause_s)
        return digest


class ViewStore:
    """See the module. ``directory`` belongs to the view alone and is made if missing.

    ``apply``, ``make_durable``, ``write_snapshot`` and ``install_snapshot`` block and run on worker
    threads; ``reader`` belongs to one thread, that of the event loop. ``version`` changes when
    ``fold`` gives the same tables another meaning. ``upgrades`` has, by ``fingerprint``, the
    upgrades of earlier versions' tables: where the beginning of the log was cut off, a view that
    cannot be upgraded cannot be rebuilt either.
    """

    def __init__(
        self,
        directory: Path,
        metadata: MetaData,
        fold: Fold,
        *,
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._directory = directory
        self._metadata = metadata
        self._fold = fold
        self._version = version
        self._upgrades = upgrades or {}
        self._storage = storage or DiskStorage()
        self._writing = threading.Lock()  # Around everything that uses the one writer.
        make_directory_durably(self._storage, directory, label="view.make_directory")
        self._storage.unlink(directory / _INSTALLING)
        self._generation = max(self._generations(), default=1)
        self._database = self._open_or_begin_again()
        self._remove_others()
        self._applied = self._database.applied
        self._reader: Connection | None = None
        self._reader_of: ViewDatabase | None = None

    def __repr__(self) -> str:
        return f"<ViewStore {self._path().name} applied={self._applied}>"

    def applied(self) -> AppliedPoint:
        return self._applied

    def apply(self, entries: Sequence[Entry]) -> None:
        """Fold ``entries`` in one transaction; those that were folded before are skipped.

        Raises:
            OSError: The disk is full. Nothing was folded.
            ViewUnusable: The view is damaged; the next start begins it again.
        """
        with self._writing:
            fresh = self._fresh(entries)
            if not fresh:
                return
            last = fresh[-1]
            point = AppliedPoint(last.index, last.term, last.next_position - 1)
            database = self._database
            reached = next_digest_position(self._applied.position)
            assert last.first_position <= reached, "a digest point ends its batch"
            try:
                with sqlite_errors(), database.writer.begin():
                    digest = database.digest_after(self._fold(database.writer, fresh))
                    taken = (
                        ViewDigest(point.index, point.position, digest, database.scheme)
                        if point.position >= reached
                        else None
                    )
                    database.store(point, digest, taken)
            except ViewUnusable:
                self._storage.close(self._storage.open(self._directory / _SUSPECT, create=True))
                raise
            database.stored(point, digest, taken)
            self._applied = point

    def digest(self) -> ViewDigest | None:
        """Return the digest taken at the newest digest point, None if none is known."""
        return self._database.point

    def reader(self) -> Connection:
        """Return a read-only connection for the calling thread; each statement sees the
        newest applied state. Get it for each use: a snapshot may replace it."""
        if self._reader is None or self._reader_of is not self._database:
            if self._reader is not None:
                self._reader.close()
            self._reader_of = self._database
            self._reader = self._reader_of.open_reader()
        return self._reader

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Yield a read-only connection whose statements all see the same state.

        Any thread. Short: while one is open the write-ahead file cannot shrink.
        """
        with self._database.read_transaction() as connection:
            yield connection

    def bytes_on_disk(self) -> int:
        """Return the view's size on disk, its write-ahead file included."""
        names = self._storage.list_names(self._directory)
        present = self._path().name
        return sum(
            (self._directory / name).stat().st_size for name in names if name.startswith(present)
        )

    @property
    def running_digest(self) -> int:
        """The digest of the applied state, as the fold keeps it."""
        return self._database.digest

    @contextmanager
    def pinned_state(self) -> Iterator[PinnedState]:
        """Yield one state of the view, to be read row by row while ``apply`` goes on.

        Any thread. While it is held the write-ahead file cannot shrink.
        """
        with self._database.read_transaction() as connection:
            driver = driver_of(connection)
            yield PinnedState(read_applied(driver), read_digest(driver), driver, self._metadata)

    def make_durable(self) -> AppliedPoint:
        """Force the applied state to disk and return its point. ``apply`` continues."""
        with self._writing:
            point, path = self._applied, self._path()
        with sqlite_errors():
            move_write_ahead(path)
        # The point's pages are in either file: SQLite begins the write-ahead file anew only when
        # the database has them and is synced.
        self._sync(path.with_name(path.name + "-wal"), "view.write_ahead")
        self._sync(path, "view.database")
        self._storage.sync_directory(self._directory, label="view.database_name")
        return point

    def write_snapshot(self, path: Path) -> AppliedPoint:
        """Write a consistent copy to ``path``, complete and synced; ``apply`` goes on.

        Raises:
            OSError: The disk is full. ``path`` is as it was.
        """
        partial = path.with_name(path.name + ".partial")
        self._storage.unlink(partial)
        try:
            with sqlite_errors():
                point = _copy_database(self._path(), partial, lambda: self._sync(partial, _PACE))
            self._sync(partial, "view.snapshot")
        except BaseException:
            self._storage.unlink(partial)
            raise
        self._storage.rename(partial, path)
        self._storage.sync_directory(path.parent, label="view.snapshot_name")
        return point

    def install_snapshot(self, path: Path) -> AppliedPoint:
        """Replace the view by the copy at ``path``, which is left alone; durable on return.

        Raises:
            ViewUnusable: ``path`` is not a sound snapshot of such a view. Nothing changed.
            OSError: The disk is full. Nothing changed.
        """
        installing = self._directory / _INSTALLING
        try:
            self._copy_file(path, installing)
            self._check_snapshot(installing)
            self._sync(installing, "view.install")
        except BaseException:
            self._storage.unlink(installing)
            raise
        with self._writing:
            before = self._database
            self._database = self._open_installed(installing)
            self._applied = self._database.applied
            before.close()
            self._remove_others()
            return self._applied

    def quarantine(self) -> None:
        """Put the view aside and begin an empty one, applied to (0, 0, 0)."""
        with self._writing:
            self._database.close()
            self._put_aside()
            self._database = self._open_database()
            self._applied = self._database.applied

    def begin_generation(self, point: AppliedPoint, change: Upgrade | None = None) -> None:
        """Set the view's applied point to ``point``, which no log leads to; durable on return.

        For the last survivor of a group, which continues behind a gap. ``change`` alters rows.
        """
        with self._writing, sqlite_errors():
            database = self._database
            with database.writer.begin():
                if change is not None:
                    change(driver_of(database.writer))
                digest = database.digest_after(None)
                database.store(point, digest, None)
            database.stored(point, digest, None)
            self._applied = point
        self.make_durable()

    def close(self) -> None:
        with self._writing:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            self._database.close()

    # Inside -----------------------------------------------------------------------------

    def _fresh(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries that are not folded yet; they follow without a gap."""
        fresh = [entry for entry in entries if entry.index > self._applied.index]
        index, position = self._applied.index, self._applied.position
        for entry in fresh:
            assert entry.index == index + 1, f"entry {entry.index} follows {index}"
            assert entry.first_position == position + 1, (
                f"event {entry.first_position} follows {position}"
            )
            index, position = entry.index, entry.next_position - 1
        return fresh

    def _path(self) -> Path:
        return self._directory / f"{_PREFIX}{self._generation:012d}{_SUFFIX}"

    def _generations(self) -> list[int]:
        names = self._storage.list_names(self._directory)
        views = [name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
        return [int(name[len(_PREFIX) : -len(_SUFFIX)]) for name in views]

    def _open_database(self) -> ViewDatabase:
        return ViewDatabase(self._path(), self._metadata, self._version, self._upgrades)

    def _open_or_begin_again(self) -> ViewDatabase:
        try:
            if _SUSPECT in self._storage.list_names(self._directory):
                raise ViewUnusable("the view was found damaged before the last stop")
            return self._open_database()
        except ViewUnusable as error:
            _logger.warning("%s is put aside and built again: %s", self._path(), error)
            self._put_aside()
            return self._open_database()

    def _put_aside(self) -> None:
        """Rename the present file and continue with an unused number."""
        path = self._path()
        if path.name in self._storage.list_names(self._directory):
            self._storage.rename(path, self._directory / _QUARANTINED)
        for side in _SIDE_FILES:
            self._storage.unlink(path.with_name(path.name + side))
        self._storage.unlink(self._directory / _SUSPECT)
        self._storage.sync_directory(self._directory, label="view.quarantine")
        self._generation += 1

    def _remove_others(self) -> None:
        """Remove the views that a newer one has replaced."""
        present = self._path().name
        for name in self._storage.list_names(self._directory):
            if name.startswith(_PREFIX) and not name.startswith(present):
                self._storage.unlink(self._directory / name)

    def _open_installed(self, installing: Path) -> ViewDatabase:
        """Make ``installing`` the newest view, durably, and open it."""
        self._generation += 1
        try:
            self._storage.rename(installing, self._path())
            self._storage.sync_directory(self._directory, label="view.install_name")
            return self._open_database()
        except BaseException:
            self._storage.unlink(self._path())
            self._generation -= 1
            raise

    def _sync(self, path: Path, label: str) -> None:
        handle = self._storage.open(path)
        try:
            self._storage.sync(handle, label=label)
        finally:
            self._storage.close(handle)

    def _copy_file(self, source: Path, target: Path) -> None:
        reading = self._storage.open(source)
        writing = self._storage.open(target, create=True)
        try:
            offset = 0
            while chunk := self._storage.pread(reading, _COPY_BYTES, offset):
                self._storage.pwrite(writing, chunk, offset)
                offset += len(chunk)
                if offset % VIEW_PACE_BYTES == 0:
                    self._storage.sync(writing, label=_PACE)
        finally:
            self._storage.close(reading)
            self._storage.close(writing)

    def _check_snapshot(self, path: Path) -> None:
        with sqlite_errors(), closing(read_only(path)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise ViewUnusable(f"the snapshot is damaged: {verdict}")
            found = read_fingerprint(connection)
        if found != fingerprint(self._metadata, self._version) and found not in self._upgrades:
            raise ViewUnusable(f"the snapshot has other tables ({found:08x})")


def _copy_database(source_path: Path, target_path: Path, pace: Callable[[], None]) -> AppliedPoint:
    """Copy one state of a database that is being written to; return its applied point.

    ``pace`` is called after every ``VIEW_PACE_BYTES``. SQLite's backup starts over whenever
    another connection writes, unless it reads inside a transaction that was open before.
    """
    with closing(read_only(source_path)) as source:
        source.execute("BEGIN")
        point = read_applied(source)
        with closing(sqlite3.connect(target_path, isolation_level=None)) as target:
            # The copy is synced as a whole, by us, before it gets its name.
            target.execute("PRAGMA journal_mode=OFF")
            target.execute("PRAGMA synchronous=OFF")
            (page_bytes,) = source.execute("PRAGMA page_size").fetchone()
            source.backup(
                target,
                pages=VIEW_PACE_BYTES // page_bytes,
                progress=lambda _status, left, _all: pace() if left else None,
                sleep=0,
            )
            target.execute("PRAGMA journal_mode=DELETE").close()
        source.execute("COMMIT")
    return point
