"""What a run writes, and that a kill at any step of it leaves neither a gap nor a duplicate."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.export.checking.check import check_log
from nextgen.export.errors import ExportRefused, ExportStopped, WrongExport
from nextgen.export.format.manifest import decode_manifest, encode_manifest
from nextgen.export.stores.local import Disk, LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from tests.support.logs.export_logs import DAY_MS, TIME_MS, FakeLog, event, events

SMALL = FileLimits(rows=10)

FIELDS = ("format", "format_version", "schema_version", "cluster_id", "reader_id", "generation")
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("nextgen-export"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
ANY_JSON = st.dictionaries(st.sampled_from((*FIELDS, "shards")), ANY_VALUE)


def exported_ranges(directory: Path) -> dict[int, list[tuple[int, int]]]:
    manifest = decode_manifest((directory / "manifest.json").read_bytes(), "there")
    return {
        shard_id: [(file.first_position, file.last_position) for file in shard.files]
        for shard_id, shard in manifest.shards.items()
    }


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


async def assert_whole(directory: Path, log: FakeLog, count: int) -> None:
    report = await check_log(LocalStore(directory), log)
    assert (report.ok, report.findings, report.compared_with_log) == (True, [], True)
    assert (report.events, report.compared_events) == (count, count)
    assert (report.gaps, report.duplicates, report.differences) == (0, 0, 0)


async def test_all_shards_are_exported_from_the_first_event_to_the_present(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 25), 2: events(1, 4, shard_id=2), 3: []})

    summary = await export_log(log, LocalStore(tmp_path), limits=SMALL)

    assert exported_ranges(tmp_path) == {1: [(1, 10), (11, 20), (21, 25)], 2: [(1, 4)]}
    assert (summary.events, summary.files) == (29, 4)
    assert summary.positions == {1: 25, 2: 4, 3: 0}
    await assert_whole(tmp_path, log, 29)


async def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    await export_log(log, LocalStore(tmp_path), limits=SMALL)
    await log.append(1, events(13, 30))

    summary = await export_log(log, LocalStore(tmp_path), limits=SMALL)

    assert exported_ranges(tmp_path) == {1: [(1, 10), (11, 12), (13, 22), (23, 30)]}
    assert summary.events == 18
    await assert_whole(tmp_path, log, 30)


async def test_a_run_with_nothing_to_do_changes_nothing(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    await export_log(log, LocalStore(tmp_path), limits=SMALL)
    before = files_of(tmp_path)

    await export_log(log, LocalStore(tmp_path), limits=SMALL)

    assert files_of(tmp_path) == before


@pytest.mark.parametrize("rows", [9, 10, 11])
async def test_a_file_ends_at_its_limit_of_rows(tmp_path: Path, rows: int) -> None:
    log = FakeLog({1: events(1, rows)})

    await export_log(log, LocalStore(tmp_path), limits=SMALL)

    assert exported_ranges(tmp_path)[1] == ([(1, rows)] if rows <= 10 else [(1, 10), (11, 11)])


async def test_a_file_ends_at_its_limit_of_bytes(tmp_path: Path) -> None:
    """Bytes are known once a row group is written, and that is at the latest at a file's end."""
    log = FakeLog({1: events(1, 30)})

    await export_log(log, LocalStore(tmp_path), limits=FileLimits(rows=1000, bytes=4))

    assert exported_ranges(tmp_path)[1] == [(1, 7), (8, 14), (15, 21), (22, 28), (29, 30)]


async def test_every_file_holds_one_day_also_when_a_clock_goes_back(tmp_path: Path) -> None:
    midnight = TIME_MS - TIME_MS % DAY_MS + DAY_MS
    offsets = [-2, -1, 0, 1, -1, -1, 0, 5]
    log = FakeLog({1: [event(n, 1, midnight + at) for n, at in enumerate(offsets, start=1)]})

    await export_log(log, LocalStore(tmp_path))

    assert exported_ranges(tmp_path)[1] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    folders = [path.parent.name for path in sorted(tmp_path.rglob("*.parquet"))]
    assert sorted(set(folders)) == ["date=2025-11-24", "date=2025-11-25"]
    await assert_whole(tmp_path, log, 8)


# Kills and disks ------------------------------------------------------------------------------


class Killed(BaseException):
    """What SIGKILL is to a process: nothing runs after it."""


class MortalDisk(Disk):
    """Dies before its ``fatal``-th step, a write when half of it is done. 0: lives.

    What dies before a step is what dies after the one in front of it.
    """

    def __init__(self, fatal: int = 0) -> None:
        self.steps: list[str] = []
        self._fatal = fatal

    def _step(self, name: str) -> None:
        if self._fatal and len(self.steps) + 1 >= self._fatal:
            raise Killed(name)
        self.steps.append(name)

    def make_folder(self, path):
        self._step("make_folder")
        super().make_folder(path)

    def create(self, path):
        self._step("create")
        return super().create(path)

    def write(self, file, data):
        if len(self.steps) + 1 == self._fatal:
            super().write(file, data[: len(data) // 2])
        self._step("write")
        super().write(file, data)

    def sync(self, file):
        self._step("sync")
        super().sync(file)

    def sync_folder(self, path):
        self._step("sync_folder")
        super().sync_folder(path)

    def rename(self, source, target):
        self._step("rename")
        super().rename(source, target)

    def remove(self, path):
        self._step("remove")
        super().remove(path)


async def steps_of_an_export(directory: Path) -> list[str]:
    disk = MortalDisk()
    log = FakeLog({1: events(1, 15)})
    await export_log(log, LocalStore(directory, disk), limits=SMALL)
    return disk.steps


async def test_a_kill_at_any_step_leaves_neither_gap_nor_duplicate(tmp_path: Path) -> None:
    """
    1. A run dies before step N, a write when half of it is done.
    2. What the manifest names at that moment is whole.
    3. The next run goes on; the export is equal to the log.
    """
    steps = await steps_of_an_export(tmp_path / "whole")
    assert steps.count("rename") == 5

    for fatal in range(1, len(steps) + 1):
        directory = tmp_path / str(fatal)
        log = FakeLog({1: events(1, 15)})
        store = LocalStore(directory, MortalDisk(fatal))
        with pytest.raises(Killed):
            await export_log(log, store, limits=SMALL)
        if (directory / "manifest.json").exists():
            report = await check_log(LocalStore(directory), log)
            assert (report.ok, report.gaps, report.duplicates) == (True, 0, 0)

        await export_log(log, LocalStore(directory), limits=SMALL)

        await assert_whole(directory, log, 15)
        assert not [name for name in files_of(directory) if name.endswith(".draft")]


async def test_a_name_is_given_after_its_content_is_durable_and_the_manifest_last(
    tmp_path: Path,
) -> None:
    steps = [step for step in await steps_of_an_export(tmp_path / "a" / "b") if step != "write"]

    manifest = ["create", "sync", "rename", "sync_folder"]
    folders = ["make_folder", "sync_folder"]
    file = ["create", "sync", "rename", "sync_folder", *manifest]
    assert steps == [*folders, *folders, *manifest, *folders, *folders, *file, *file]


class FullDisk(Disk):
    """Has room for so many bytes."""

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes

    def write(self, file, data):
        fits = data[: self._room_bytes]
        super().write(file, fits)
        self._room_bytes -= len(fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("room_bytes", [0, 100, 15_000, 25_000, 40_000, 55_000, 75_000])
async def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path, room_bytes: int) -> None:
    log = FakeLog({1: events(1, 45)})

    with pytest.raises(ExportStopped, match="No space left on device"):
        await export_log(log, LocalStore(tmp_path, FullDisk(room_bytes)), limits=SMALL)

    assert not [name for name in files_of(tmp_path) if name.endswith(".draft") and "=" in name]
    await export_log(log, LocalStore(tmp_path), limits=SMALL)
    await assert_whole(tmp_path, log, 45)


# Directories that are not fit -------------------------------------------------------------------


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    """An export of 25 events of one shard in three files."""
    directory = tmp_path / "export"
    await export_log(
        FakeLog({1: events(1, 25)}), LocalStore(directory), limits=SMALL, cluster_id="here"
    )
    return directory


async def refused(directory: Path, log: FakeLog | None = None, cluster_id: str = "here") -> str:
    """Return why a run refuses ``directory``; nothing in it changes."""
    before = files_of(directory)
    log = log or FakeLog({1: events(1, 30)})
    with pytest.raises((ExportRefused, WrongExport)) as refusal:
        await export_log(log, LocalStore(directory), cluster_id=cluster_id)
    assert files_of(directory) == before
    return str(refusal.value)


def data_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


async def test_a_folder_with_foreign_files_is_refused_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("mine")

    assert "thesis.doc" in await refused(tmp_path)
    assert not (tmp_path / ".exporter.lock").exists()


async def test_a_foreign_file_in_an_export_is_refused_by_its_name(export: Path) -> None:
    (data_files(export)[0].parent / "other.parquet").write_bytes(b"PAR1")

    assert "other.parquet" in await refused(export)


async def test_hidden_files_disturb_nobody(export: Path) -> None:
    (export / ".DS_Store").write_bytes(b"")
    (export / "_SUCCESS").write_bytes(b"")

    await export_log(FakeLog({1: events(1, 30)}), LocalStore(export))


async def test_data_without_a_manifest_is_refused(export: Path) -> None:
    (export / "manifest.json").unlink()

    assert "no manifest.json" in await refused(export)


async def test_another_clusters_export_is_refused_by_its_id(export: Path) -> None:
    assert "'here', this is 'there'" in await refused(export, cluster_id="there")


async def test_another_log_is_refused_by_its_last_event(export: Path) -> None:
    others = [event(n, 1, TIME_MS + 5 * n) for n in range(1, 40)]

    assert "event 25 of the log is not the one" in await refused(export, FakeLog({1: others}))


async def test_a_log_that_is_shorter_than_the_export_is_refused(export: Path) -> None:
    assert "the log ends at 20" in await refused(export, FakeLog({1: events(1, 20)}))


async def test_a_cluster_without_an_exported_shard_is_refused(export: Path) -> None:
    assert "shards [1]" in await refused(export, FakeLog({2: events(1, 30, 2)}))


@pytest.mark.parametrize("name", ["format_version", "schema_version"])
async def test_a_manifest_of_a_later_release_is_refused(export: Path, name: str) -> None:
    manifest = json.loads((export / "manifest.json").read_text())
    (export / "manifest.json").write_text(json.dumps(manifest | {name: 99}))

    assert f"{name} 99" in await refused(export)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b"\xff", b"null"])
async def test_a_damaged_manifest_is_refused(export: Path, content: bytes) -> None:
    (export / "manifest.json").write_bytes(content)

    assert "manifest.json" in await refused(export)


async def test_a_manifest_that_contradicts_its_files_is_refused(export: Path) -> None:
    manifest = json.loads((export / "manifest.json").read_text())
    manifest["shards"]["1"]["position"] = 20
    (export / "manifest.json").write_text(json.dumps(manifest))

    assert "exported up to 20" in await refused(export)


async def test_a_missing_file_is_refused_by_its_name(export: Path) -> None:
    missing = data_files(export)[1]
    missing.unlink()

    assert f"{missing.name} (missing" in await refused(export)


async def test_a_truncated_file_is_refused_by_its_name(export: Path) -> None:
    short = data_files(export)[1]
    os.truncate(short, 100)

    assert f"{short.name} (100 bytes" in await refused(export)


async def test_a_copy_of_a_file_under_another_range_is_refused(export: Path) -> None:
    first = data_files(export)[0]
    copied = first.with_name(f"{3:020d}-{12:020d}.parquet")
    copied.write_bytes(first.read_bytes())

    assert copied.name in await refused(export)


async def test_what_a_killed_run_left_is_removed_and_exported_again(export: Path) -> None:
    folder = data_files(export)[0].parent
    left = folder / f"{26:020d}-{29:020d}.parquet"
    left.write_bytes(b"whole, but never named")
    draft = folder / f".{26:020d}.draft"
    draft.write_bytes(b"half")
    log = FakeLog({1: events(1, 28)})

    await export_log(log, LocalStore(export))

    assert (left.exists(), draft.exists()) == (False, False)
    assert exported_ranges(export)[1][-1] == (26, 28)
    await assert_whole(export, log, 28)


async def test_a_second_exporter_is_refused_by_name(export: Path) -> None:
    store = LocalStore(export)
    store.acquire()

    assert f"in use by another exporter, process {os.getpid()}" in await refused(export)

    store.release()
    await export_log(FakeLog({1: events(1, 30)}), LocalStore(export))


@settings(max_examples=200)
@given(st.binary(max_size=60) | ANY_JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_manifest_holds_it_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(ExportRefused, match=r"there/manifest\.json"):
        decode_manifest(content, "there/manifest.json")


def test_a_manifest_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ExportRefused, match="damaged"):
        decode_manifest(b"[" * 200_000, "there")


def test_a_manifest_comes_back_as_it_was(export: Path) -> None:
    content = (export / "manifest.json").read_bytes()

    assert encode_manifest(decode_manifest(content, "there")) == content
