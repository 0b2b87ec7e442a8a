"""What a view store promises to the log that feeds it and to those who read it."""

from __future__ import annotations

import errno
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

import nextgen.replication.view.store as view_store_module
from nextgen.kernel.limits.cluster import VIEW_CACHE_KIB, VIEW_READERS_MAX
from nextgen.replication.ports import AppliedPoint, Entry, Record
from nextgen.replication.view import database
from nextgen.replication.view.database import ViewUnusable
from nextgen.replication.view.store import ViewStore
from nextgen.storage.disk import DiskStorage, Handle, is_full
from tests.support.logs.views import METADATA, entries_of, fold_names, names_in, open_view
from tests.support.simulated.shadow_disk import ShadowDisk


@pytest.fixture
def view(tmp_path: Path) -> Iterator[ViewStore]:
    store = open_view(tmp_path / "view")
    yield store
    store.close()


# Folding ------------------------------------------------------------------------------------


def test_a_view_that_was_just_made_has_applied_nothing(view: ViewStore) -> None:
    assert view.applied() == AppliedPoint(0, 0, 0)
    assert names_in(view) == {}
    assert repr(view) == (
        "<ViewStore view.000000000001.sqlite applied=AppliedPoint(index=0, term=0, position=0)>"
    )


def test_entries_are_folded_and_the_point_moves_with_them(view: ViewStore) -> None:
    view.apply([Entry(1, 1, 1, (Record(b"a", 1), Record(b"b", 1))), Entry(2, 3, 3, ())])

    assert view.applied() == AppliedPoint(index=2, term=3, position=2)
    assert names_in(view) == {"a": 1, "b": 1}


def test_entries_that_were_folded_before_are_skipped(view: ViewStore) -> None:
    view.apply(entries_of("ab"))

    view.apply(entries_of("abc"))
    view.apply(entries_of("abc"))

    assert names_in(view) == {"a": 1, "b": 1, "c": 1}
    assert view.applied().index == 3


@pytest.mark.parametrize(
    "entry",
    [Entry(4, 1, 3, ()), Entry(3, 1, 4, ())],
    ids=["an entry is missing", "an event is missing"],
)
def test_a_gap_is_a_bug_and_folds_nothing(view: ViewStore, entry: Entry) -> None:
    view.apply(entries_of("ab"))

    with pytest.raises(AssertionError):
        view.apply([entry])

    assert view.applied().index == 2


def test_the_point_survives_a_restart_with_what_was_folded(tmp_path: Path) -> None:
    first = open_view(tmp_path / "view")
    first.apply(entries_of("ab", term=4))
    first.close()

    again = open_view(tmp_path / "view")

    assert again.applied() == AppliedPoint(2, 4, 2)
    assert names_in(again) == {"a": 1, "b": 1}
    again.close()


def test_a_fold_that_fails_leaves_view_and_point_as_they_were(tmp_path: Path) -> None:
    def fold(connection: Connection, entries: Sequence[Entry]) -> None:
        fold_names(connection, entries)
        if entries[-1].index == 3:
            connection.execute(text("INSERT INTO names VALUES ('a', NULL)"))

    view = ViewStore(tmp_path / "view", METADATA, fold)
    view.apply(entries_of("ab"))

    with pytest.raises(IntegrityError):
        view.apply(entries_of("c", from_index=3))

    assert names_in(view) == {"a": 1, "b": 1}
    assert view.applied().index == 2
    view.close()


def test_a_full_disk_folds_nothing_and_folding_goes_on_when_there_is_space(
    tmp_path: Path,
) -> None:
    limit = {"pages": 30}

    def fold(connection: Connection, entries: Sequence[Entry]) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={limit['pages']}")
        fold_names(connection, entries)

    view = ViewStore(tmp_path / "view", METADATA, fold)
    view.apply(entries_of("a"))
    large = entries_of(["x" * 1000 + str(number) for number in range(500)], from_index=2)

    with pytest.raises(OSError, match="No space left") as refused:
        view.apply(large)

    assert is_full(refused.value)
    assert view.applied().index == 1
    assert names_in(view) == {"a": 1}
    limit["pages"] = 1_000_000
    view.apply(large)
    assert view.applied().index == 501
    view.close()


# Reading ------------------------------------------------------------------------------------


def test_a_reader_sees_each_commit_and_a_read_transaction_sees_one_state(view: ViewStore) -> None:
    view.apply(entries_of("a"))
    reader = view.reader()

    with view.read_transaction() as consistent:
        view.apply(entries_of("b", from_index=2))

        assert reader.exec_driver_sql("SELECT count(*) FROM names").scalar_one() == 2
        assert consistent.exec_driver_sql("SELECT count(*) FROM names").scalar_one() == 1

    with view.read_transaction() as consistent:
        assert consistent.execute(text("SELECT count(*) FROM names")).scalar_one() == 2


def test_view_readers_max_read_at_a_time_and_one_more_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_READ_TRANSACTION_WAIT_S", 0.01)
    view = open_view(tmp_path / "view")
    with ExitStack() as readers:
        for _ in range(VIEW_READERS_MAX):
            readers.enter_context(view.read_transaction())

        with pytest.raises(PoolTimeoutError), view.read_transaction():
            pass

    with view.read_transaction() as consistent:
        assert consistent.execute(text("SELECT count(*) FROM names")).scalar_one() == 0
    view.close()


def test_page_caches_of_all_views_have_one_bound(tmp_path: Path) -> None:
    """However many views a process has, and however large they are. In a process of its own, of
    which nothing else has grown."""
    reading = """
import sys
from pathlib import Path
from nextgen.replication.view import database
from tests.support.logs.views import open_view
database.VIEW_CACHES_BYTES = int(sys.argv[1])
views = [open_view(Path(sys.argv[2]) / str(number)) for number in range(5)]
rows = [(f"{number:080d}", 1) for number in range(50_000)]
for view in views:
    writer = view._database.writer
    with writer.begin():
        database.driver_of(writer).executemany("INSERT INTO names VALUES (?, ?)", rows)
    view.make_durable()
pages = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = pages()
for view in views:
    view.reader().exec_driver_sql("SELECT count(*), max(length(name) + seen) FROM names").one()
print(pages() - before)
"""

    def grown(bound: int, folder: str) -> int:
        command = [sys.executable, "-c", reading, str(bound), str(tmp_path / folder)]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)

    assert grown(2 * 2**20, "bound") < 5 * 2**20
    assert grown(2**30, "unbound") > 15 * 2**20, "it is the bound that keeps them small"


def test_the_page_cache_of_a_writer_is_full_at_view_cache_kib(tmp_path: Path) -> None:
    """So a node needs no more memory when its views have grown beyond that. In a process of its
    own, of which nothing else has grown."""
    writing = """
import random, sys
from pathlib import Path
from nextgen.replication.view import database
from tests.support.logs.views import open_view
view = open_view(Path(sys.argv[1]))
chance = random.Random(7)
pages = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def insert(count):
    for _ in range(count // 1_000):
        rows = [(f"{chance.randrange(10**80):080d}", 1) for _ in range(1_000)]
        with view._database.writer.begin():
            database.driver_of(view._database.writer).executemany(
                "INSERT INTO names VALUES (?, ?)", rows
            )
insert(1_000)
empty = pages()
insert(80_000)
full = pages()
insert(40_000)
print(full - empty, pages() - full)
"""
    command = [sys.executable, "-c", writing, str(tmp_path / "view")]
    filled, then = map(int, subprocess.run(command, check=True, capture_output=True).stdout.split())

    assert filled > VIEW_CACHE_KIB * 2**10 * 3 // 4, "the view is larger than the cache"
    assert then < 2**20, "nothing is kept beyond the cache"


def test_readers_cannot_write(view: ViewStore) -> None:
    with pytest.raises(OperationalError, match="readonly"):
        view.reader().exec_driver_sql("INSERT INTO names VALUES ('x', 1)")
    with view.read_transaction() as consistent, pytest.raises(OperationalError, match="readonly"):
        consistent.exec_driver_sql("INSERT INTO names VALUES ('x', 1)")


def test_a_read_transaction_that_fails_is_over(view: ViewStore) -> None:
    with pytest.raises(ZeroDivisionError), view.read_transaction():
        raise ZeroDivisionError

    view.apply(entries_of("a"))
    with view.read_transaction() as consistent:
        assert consistent.exec_driver_sql("SELECT count(*) FROM names").scalar_one() == 1


# Snapshots ----------------------------------------------------------------------------------


def test_a_snapshot_holds_one_state_and_installs_elsewhere(view: ViewStore, tmp_path: Path) -> None:
    view.apply(entries_of("ab", term=2))
    snapshot = tmp_path / "snapshot"
    other = open_view(tmp_path / "other")
    other.apply(entries_of("xyz"))
    before = other.reader()

    assert view.write_snapshot(snapshot) == AppliedPoint(2, 2, 2)
    view.apply(entries_of("c", from_index=3, term=2))
    assert other.install_snapshot(snapshot) == AppliedPoint(2, 2, 2)

    assert before.exec_driver_sql("SELECT count(*) FROM names").scalar_one() == 3
    assert names_in(other) == {"a": 1, "b": 1}
    other.apply(entries_of("c", from_index=3, term=2))
    other.close()
    again = open_view(tmp_path / "other")
    assert names_in(again) == {"a": 1, "b": 1, "c": 1}
    assert snapshot.exists()
    again.close()


def test_an_open_read_transaction_survives_an_install(view: ViewStore, tmp_path: Path) -> None:
    view.apply(entries_of("a"))
    view.write_snapshot(tmp_path / "snapshot")
    view.apply(entries_of("b", from_index=2))

    with view.read_transaction() as consistent:
        view.install_snapshot(tmp_path / "snapshot")
        assert consistent.exec_driver_sql("SELECT count(*) FROM names").scalar_one() == 2

    with view.read_transaction() as consistent:
        assert consistent.exec_driver_sql("SELECT count(*) FROM names").scalar_one() == 1


def test_a_snapshot_is_finished_while_entries_are_applied_all_the_time(
    view: ViewStore, tmp_path: Path
) -> None:
    """SQLite's backup starts over on each foreign write; ours reads one held state."""
    padding = "x" * 500
    view.apply(entries_of([f"{number}{padding}" for number in range(4_000)]))
    stop, applied = threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            following = view.applied().index + 1
            view.apply(entries_of([f"{following}{padding}"], from_index=following))
            applied.append(following)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        point = view.write_snapshot(tmp_path / "snapshot")
    finally:
        stop.set()
        writer.join()

    with closing(sqlite3.connect(tmp_path / "snapshot")) as copy:
        assert copy.execute("SELECT count(*) FROM names").fetchone() == (point.position,)
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_snapshot_replaces_an_older_one_and_its_leftovers(
    view: ViewStore, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    (tmp_path / "snapshot.partial").write_bytes(b"from a crash")
    view.apply(entries_of("a"))
    view.write_snapshot(snapshot)
    view.apply(entries_of("b", from_index=2))

    assert view.write_snapshot(snapshot) == AppliedPoint(2, 1, 2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["snapshot", "view"]


def _not_a_database(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def _other_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=77")


def _one_rotten_page(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: 9 * 4096] + b"\x5a" * 4096 + data[10 * 4096 :])


@pytest.mark.parametrize("spoil", [_not_a_database, _cut_short, _other_tables, _one_rotten_page])
def test_a_snapshot_that_is_not_sound_is_refused_and_changes_nothing(
    view: ViewStore, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    snapshot = tmp_path / "snapshot"
    view.apply(entries_of([f"{number}{'x' * 1000}" for number in range(100)]))
    before = names_in(view)
    view.write_snapshot(snapshot)
    spoil(snapshot)

    with pytest.raises(ViewUnusable):
        view.install_snapshot(snapshot)

    assert names_in(view) == before
    assert view.applied().index == 100
    view.apply(entries_of("c", from_index=101))
    assert "installing" not in {path.name for path in (tmp_path / "view").iterdir()}


def test_a_snapshot_that_is_missing_changes_nothing(view: ViewStore, tmp_path: Path) -> None:
    view.apply(entries_of("a"))

    with pytest.raises(FileNotFoundError):
        view.install_snapshot(tmp_path / "missing")

    assert names_in(view) == {"a": 1}


class FullDisk(DiskStorage):
    """Has no space left when ``label`` is to be synced."""

    def __init__(self, label: str) -> None:
        self.full_at: str | None = label

    def sync(self, handle: Handle, *, label: str) -> None:
        self._check(label)
        super().sync(handle, label=label)

    def sync_directory(self, path: Path, *, label: str) -> None:
        self._check(label)
        super().sync_directory(path, label=label)

    def _check(self, label: str) -> None:
        if label == self.full_at:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_snapshot_that_finds_no_space_leaves_the_older_one(tmp_path: Path) -> None:
    disk = FullDisk("nowhere")
    view = open_view(tmp_path / "view", disk)
    view.apply(entries_of("a"))
    view.write_snapshot(tmp_path / "snapshot")
    before = (tmp_path / "snapshot").read_bytes()
    view.apply(entries_of("b", from_index=2))
    disk.full_at = "view.snapshot"

    with pytest.raises(OSError, match="No space left"):
        view.write_snapshot(tmp_path / "snapshot")

    assert (tmp_path / "snapshot").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["snapshot", "view"]
    view.close()


@pytest.mark.parametrize("label", ["view.install", "view.install_name"])
def test_an_install_that_finds_no_space_changes_nothing(tmp_path: Path, label: str) -> None:
    disk = FullDisk("nowhere")
    view = open_view(tmp_path / "view", disk)
    view.apply(entries_of("a"))
    view.write_snapshot(tmp_path / "snapshot")
    view.apply(entries_of("b", from_index=2))
    disk.full_at = label

    with pytest.raises(OSError, match="No space left"):
        view.install_snapshot(tmp_path / "snapshot")

    assert names_in(view) == {"a": 1, "b": 1}
    view.apply(entries_of("c", from_index=3))
    disk.full_at = None
    assert view.install_snapshot(tmp_path / "snapshot") == AppliedPoint(1, 1, 1)
    view.close()


# Views that cannot be used ------------------------------------------------------------------


def test_a_damaged_view_is_put_aside_and_begun_again(tmp_path: Path) -> None:
    first = open_view(tmp_path / "view")
    first.apply(entries_of("a"))
    first.close()
    (tmp_path / "view" / "view.000000000001.sqlite").write_bytes(b"rotten" * 1000)

    again = open_view(tmp_path / "view")

    assert again.applied() == AppliedPoint(0, 0, 0)
    assert (tmp_path / "view" / "quarantined.sqlite").read_bytes() == b"rotten" * 1000
    again.apply(entries_of("a"))
    assert names_in(again) == {"a": 1}
    again.close()


def test_a_view_with_other_tables_or_another_meaning_is_begun_again(tmp_path: Path) -> None:
    first = open_view(tmp_path / "view")
    first.apply(entries_of("a"))
    first.close()

    again = open_view(tmp_path / "view", version=2)

    assert again.applied() == AppliedPoint(0, 0, 0)
    assert names_in(again) == {}
    again.close()


def test_damage_that_is_met_while_folding_is_remembered_until_the_next_start(
    tmp_path: Path,
) -> None:
    view = open_view(tmp_path / "view")
    view.apply(entries_of([f"{'x' * 1000}{number}" for number in range(200)]))
    view.close()
    path = tmp_path / "view" / "view.000000000001.sqlite"
    data = bytearray(path.read_bytes())
    for page in range(10, len(data) // 4096):
        data[page * 4096 : page * 4096 + 4096] = b"\x5a" * 4096
    path.write_bytes(data)
    view = open_view(tmp_path / "view")

    with pytest.raises(ViewUnusable, match="damaged"):
        view.apply(entries_of([f"{'x' * 1000}{number}" for number in range(200)], from_index=201))
    view.close()

    again = open_view(tmp_path / "view")
    assert again.applied() == AppliedPoint(0, 0, 0)
    again.close()


def test_a_suspicion_without_a_view_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "suspect").touch()

    view = open_view(tmp_path / "view")

    assert view.applied() == AppliedPoint(0, 0, 0)
    assert not (tmp_path / "view" / "suspect").exists()
    view.close()


def test_a_view_can_be_put_aside_while_it_runs(view: ViewStore) -> None:
    view.apply(entries_of("a"))

    view.quarantine()

    assert view.applied() == AppliedPoint(0, 0, 0)
    assert names_in(view) == {}
    view.apply(entries_of("b"))
    assert names_in(view) == {"b": 1}


def test_what_a_crash_left_in_the_directory_is_cleared_away(tmp_path: Path) -> None:
    directory = tmp_path / "view"
    open_view(directory).close()
    (directory / "view.000000000001.sqlite").rename(directory / "view.000000000003.sqlite")
    (directory / "view.000000000002.sqlite").write_bytes(b"older")
    (directory / "view.000000000002.sqlite-wal").write_bytes(b"older")
    (directory / "installing").write_bytes(b"half")

    view = open_view(directory)

    names = {path.name for path in directory.iterdir()}
    assert {name.removesuffix("-wal").removesuffix("-shm") for name in names} == {
        "view.000000000003.sqlite"
    }
    view.close()


# Every sync is needed -----------------------------------------------------------------------

Scenario = Callable[[ShadowDisk, Path], bool]


def what_was_made_durable_is_there(disk: ShadowDisk, root: Path) -> bool:
    view = open_view(root / "view", disk)
    for number in range(1, 4):
        view.apply(entries_of(str(number), from_index=number))
        point = view.make_durable()
    view.close()
    return restarted_at(disk, root) == point


def it_is_there_although_a_reader_kept_it_from_the_database(disk: ShadowDisk, root: Path) -> bool:
    view = open_view(root / "view", disk)
    view.apply(entries_of("a"))
    view.make_durable()
    with view.read_transaction():
        view.apply(entries_of("b", from_index=2))
        point = view.make_durable()
    view.close()
    return restarted_at(disk, root) == point


def a_snapshot_that_was_written_is_whole(disk: ShadowDisk, root: Path) -> bool:
    view = open_view(root / "view", disk)
    view.apply(entries_of("a"))
    point = view.write_snapshot(root / "snapshot")
    view.close()
    disk.crash()
    if not (root / "snapshot").exists():
        return False
    fresh = open_view(root / "fresh")
    try:
        return fresh.install_snapshot(root / "snapshot") == point
    except ViewUnusable:
        return False
    finally:
        fresh.close()


def an_installed_snapshot_stays_installed(disk: ShadowDisk, root: Path) -> bool:
    view = open_view(root / "view", disk)
    view.make_durable()
    source = open_view(root / "source")
    source.apply(entries_of("abc"))
    source.write_snapshot(root / "snapshot")
    source.close()
    point = view.install_snapshot(root / "snapshot")
    view.close()
    return restarted_at(disk, root) == point


def a_view_that_was_put_aside_stays_aside(disk: ShadowDisk, root: Path) -> bool:
    view = open_view(root / "view", disk)
    view.apply(entries_of("wrong"))
    view.make_durable()
    view.quarantine()
    view.close()
    return restarted_at(disk, root) == AppliedPoint(0, 0, 0)


def restarted_at(disk: ShadowDisk, root: Path) -> AppliedPoint:
    """Cut the power, start again, and return how far the view is."""
    disk.crash()
    view = open_view(root / "view")
    view.close()
    return view.applied()


SCENARIOS = [
    ("view.make_directory", what_was_made_durable_is_there),
    ("view.database", what_was_made_durable_is_there),
    ("view.database_name", what_was_made_durable_is_there),
    ("view.write_ahead", it_is_there_although_a_reader_kept_it_from_the_database),
    ("view.snapshot", a_snapshot_that_was_written_is_whole),
    ("view.snapshot_name", a_snapshot_that_was_written_is_whole),
    ("view.install", an_installed_snapshot_stays_installed),
    ("view.install_name", an_installed_snapshot_stays_installed),
    ("view.quarantine", a_view_that_was_put_aside_stays_aside),
]


@pytest.mark.parametrize(
    ("label", "scenario"),
    SCENARIOS,
    ids=[f"without_{label}_not_{scenario.__name__}" for label, scenario in SCENARIOS],
)
def test_removing_a_sync_loses_what_it_keeps(
    label: str, scenario: Scenario, tmp_path: Path
) -> None:
    (tmp_path / "honest").mkdir()
    (tmp_path / "lying").mkdir()
    honest, lying = ShadowDisk(tmp_path / "honest"), ShadowDisk(tmp_path / "lying")
    lying.ignore_sync(label)

    assert scenario(honest, tmp_path / "honest")
    assert honest.syncs[label] > 0
    assert not scenario(lying, tmp_path / "lying")


def test_every_sync_of_the_view_is_among_the_scenarios() -> None:
    package = Path(view_store_module.__file__).parent
    labels = {
        label
        for source in package.glob("*.py")
        for label in re.findall(r'"(view\.\w+)"', source.read_text())
    }

    assert labels == {label for label, _ in SCENARIOS}
