"""Folders of load files: what they say, in which blocks it goes, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from nextgen.bulk.blocks import blocks_of, read_column
from nextgen.bulk.errors import LoadRefused
from nextgen.bulk.manifest import LOAD_MANIFEST, check_files, read_load_manifest
from nextgen.kernel.limits.bulk import BULK_NAMES_BYTES_MAX, BULK_NAMES_MAX
from nextgen.kernel.routing.slots import initial_table
from tests.support.logs.load_folders import write_file, write_load_folder

TABLE = initial_table((1, 2))
NAMES = [f"persistent://acme/orders/t-{number:05d}" for number in range(5_000)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_load_folder(tmp_path, NAMES, TABLE)
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    path = folder / LOAD_MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_manifest_reads_as_it_was_written(folder: Path) -> None:
    manifest = read_load_manifest(folder)
    assert manifest.table == TABLE
    assert manifest.topics == len(NAMES)
    assert manifest.to_json() == (folder / LOAD_MANIFEST).read_text()
    check_files(folder, manifest)


def test_blocks_have_every_name_in_order_and_so_many_at_most(folder: Path) -> None:
    manifest = read_load_manifest(folder)
    for files in manifest.shards.values():
        blocks = list(blocks_of(folder, files))
        names = [name for block in blocks for name in block]
        assert names == sorted(names)
        assert len(names) == sum(file.rows for file in files)
        assert max(map(len, blocks)) == BULK_NAMES_MAX
        for skip in (1, BULK_NAMES_MAX, files[0].rows, files[0].rows + 1, len(names)):
            left = [name for block in blocks_of(folder, files, skip=skip) for name in block]
            assert left == names[skip:]


def test_blocks_have_so_many_bytes_at_most(tmp_path: Path) -> None:
    long = sorted(f"{name}{'é' * 400}" for name in NAMES[:1_500])
    file = write_file(tmp_path, "part-00000.parquet", "name", long)
    blocks = list(blocks_of(tmp_path, [file]))
    assert [name for block in blocks for name in block] == long
    sizes = [sum(len(name.encode()) for name in block) for block in blocks]
    assert max(sizes) <= BULK_NAMES_BYTES_MAX
    assert min(sizes[:-1]) > BULK_NAMES_BYTES_MAX - 1_000


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadRefused, match="holds no load files"):
        read_load_manifest(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "parquet"}, "the format is"),
        ({"format_version": 2}, "format version 2"),
        ({"slot_owners": "AAAA"}, "damaged"),
        ({"slot_owners": "not base64"}, "damaged"),
        ({"rows_read": -1}, "not a count"),
        ({"shards": {"7": []}}, "the map does not have"),
        ({"shards": {"one": []}}, "damaged"),
        ({"shards": {"1": [{"path": "x"}]}}, "damaged"),
        ({"namespaces": 3}, "damaged"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    folder: Path, fields: dict[str, Any], message: str
) -> None:
    change(folder, **fields)
    with pytest.raises(LoadRefused, match=message):
        read_load_manifest(folder)


def test_a_manifest_that_is_cut_short_is_refused(folder: Path) -> None:
    path = folder / LOAD_MANIFEST
    path.write_text(path.read_text()[:-40])
    with pytest.raises(LoadRefused, match="cannot be read"):
        read_load_manifest(folder)


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/part.parquet"])
def test_a_file_outside_of_the_folder_is_refused(folder: Path, path: str) -> None:
    shards = json.loads((folder / LOAD_MANIFEST).read_text())["shards"]
    shards["1"][0]["path"] = path
    change(folder, shards=shards)
    with pytest.raises(LoadRefused, match="not a file of the folder"):
        read_load_manifest(folder)


def test_files_that_overlap_are_refused(folder: Path) -> None:
    shards = json.loads((folder / LOAD_MANIFEST).read_text())["shards"]
    shards["1"].reverse()
    change(folder, shards=shards)
    with pytest.raises(LoadRefused, match="overlap"):
        read_load_manifest(folder)


def test_a_name_at_the_end_of_a_file_and_in_front_of_the_next_is_refused(folder: Path) -> None:
    shards = json.loads((folder / LOAD_MANIFEST).read_text())["shards"]
    first, second, *_ = shards["1"]
    second["first_name"] = first["last_name"]
    change(folder, shards=shards)
    with pytest.raises(LoadRefused, match="overlap"):
        read_load_manifest(folder)


def test_a_file_that_was_changed_or_is_missing_is_refused(folder: Path) -> None:
    manifest = read_load_manifest(folder)
    path = folder / manifest.shards[1][0].path
    data = path.read_bytes()
    for changed in (data[:-1], data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        path.write_bytes(changed)
        with pytest.raises(LoadRefused, match="was changed"):
            check_files(folder, manifest)
    path.unlink()
    with pytest.raises(LoadRefused, match="cannot be read"):
        check_files(folder, manifest)


def test_a_file_of_another_content_is_refused_when_it_is_read(folder: Path) -> None:
    (file, *_) = read_load_manifest(folder).shards[1]
    path = folder / file.path
    pyarrow.parquet.write_table(pyarrow.table({"name": ["x"]}), path)
    with pytest.raises(LoadRefused, match="holds 1 rows"):
        list(read_column(folder, [file], "name"))
    pyarrow.parquet.write_table(pyarrow.table({"title": ["x"]}), path)
    with pytest.raises(LoadRefused, match="cannot be read"):
        list(read_column(folder, [file], "name"))
    path.write_bytes(b"PAR1")
    with pytest.raises(LoadRefused, match="cannot be read"):
        list(read_column(folder, [file], "name"))
