"""Offsets of a stream: whole files, shards in step, and a refusal where an export was made anew."""

from __future__ import annotations

import pytest

from nextgen.export.errors import ExportRefused
from nextgen.export.format.manifest import ExportFile, Manifest, ShardExported
from pipelines.stream.offsets import (
    FILES_PER_BATCH_MAX,
    files_between,
    first_offset,
    next_offset,
    rows_up_to,
    seen_until_ms,
)

ROWS = 10


def exported(shard_id: int, files: int, first_ms: int, rows: int = ROWS) -> ShardExported:
    made = []
    for number in range(files):
        first = number * rows + 1
        last = first + rows - 1
        path = f"shard={shard_id:05d}/date=2026-01-01/{first:020d}-{last:020d}.parquet"
        begins_ms = first_ms + 1_000 * number
        made.append(ExportFile(path, first, last, rows, 1, "", begins_ms, begins_ms + 999, 1, 0))
    return ShardExported(files * rows, "", tuple(made))


def manifest(**files: int) -> Manifest:
    """Return a manifest with so many files of shards a (1) and b (2), which begins later."""
    shards = {1: exported(1, files.get("a", 0), 0), 2: exported(2, files.get("b", 0), 500)}
    return Manifest("c", "r", shards=shards)


def test_a_batch_takes_whole_files_and_the_earliest_first() -> None:
    export = manifest(a=3, b=3)

    end = next_offset(export, first_offset(export), 30)

    assert end == {"cluster_id": "c", "positions": {"1": 20, "2": 10}}
    assert next_offset(export, end, None)["positions"] == {"1": 30, "2": 30}


def test_a_file_of_more_rows_than_a_batch_has_is_a_batch_of_its_own() -> None:
    export = manifest(a=2)

    assert next_offset(export, first_offset(export), 3)["positions"] == {"1": 10}


def test_batches_meet_without_overlap_and_are_all_files() -> None:
    export = manifest(a=4, b=3)
    offset, read = first_offset(export), []
    while (end := next_offset(export, offset, 20)) != offset:
        read += files_between(export, offset, end)
        offset = end

    assert sorted(file.path for file in read) == sorted(export.paths)
    assert rows_up_to(export, {1: 40, 2: 30}) == 70


def test_files_of_one_event_are_read_once_each() -> None:
    export = Manifest("c", "r", shards={1: exported(1, files=3, first_ms=0, rows=1)})
    offset, read = first_offset(export), []
    for _ in range(3):
        end = next_offset(export, offset, 1)
        read += files_between(export, offset, end)
        offset = end

    assert [file.first_position for file in read] == [1, 2, 3]


def test_the_same_two_offsets_name_the_same_files_when_the_export_has_grown() -> None:
    small, grown = manifest(a=2, b=1), manifest(a=4, b=3)
    start = first_offset(small)
    end = next_offset(small, start, None)

    assert files_between(grown, start, end) == files_between(small, start, end)


def test_the_latest_time_is_that_of_the_files_up_to_the_offset() -> None:
    export = manifest(a=2, b=2)

    assert seen_until_ms(export, first_offset(export)) is None
    assert seen_until_ms(export, {"cluster_id": "c", "positions": {"1": 10, "2": 10}}) == 1_499


def test_an_offset_inside_a_file_or_behind_the_end_is_refused() -> None:
    export = manifest(a=2)
    for position in (15, 30):
        offset = {"cluster_id": "c", "positions": {"1": position}}
        with pytest.raises(ExportRefused, match="made anew"):
            next_offset(export, offset, None)
        with pytest.raises(ExportRefused, match="made anew"):
            files_between(export, first_offset(export), offset)


def test_an_offset_of_another_cluster_or_of_more_shards_is_refused() -> None:
    for offset in (
        {"cluster_id": "d", "positions": {}},
        {"cluster_id": "c", "positions": {"7": 10}},
    ):
        with pytest.raises(ExportRefused, match="another one"):
            next_offset(manifest(a=2), offset, None)


def test_a_batch_has_no_more_files_than_it_may_have_days() -> None:
    export = manifest(a=FILES_PER_BATCH_MAX + 1)

    end = next_offset(export, first_offset(export), None)

    assert end["positions"] == {"1": FILES_PER_BATCH_MAX * ROWS}


def test_an_export_that_is_told_later_whose_it_is_is_the_same() -> None:
    unknown = {"cluster_id": "", "positions": {"1": 10}}

    end = next_offset(manifest(a=2), unknown, None)

    assert end == {"cluster_id": "c", "positions": {"1": 20}}
