"""Publication of a stream's tables: at once, and never twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import JobRefused
from pipelines.stream.tables import NO_BATCH, BatchedTable, Published


def written(table: BatchedTable, batch: int) -> str:
    folder = table.folder_of(batch)
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"rows")
    return folder.name


def test_a_table_that_nobody_wrote_has_no_batch(tmp_path: Path) -> None:
    assert BatchedTable(tmp_path / "t").published() == Published(NO_BATCH, {})


def test_what_is_published_is_what_is_read_and_older_folders_go_one_batch_later(
    tmp_path: Path,
) -> None:
    table = BatchedTable(tmp_path)
    names = {}
    for batch in range(3):
        names[batch] = written(table, batch)
        table.publish(batch, {"all": names[batch]})
        assert table.published() == Published(batch, {"all": names[batch]})

    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {names[1], names[2]}


def test_a_folder_stays_while_one_of_its_parts_is_named(tmp_path: Path) -> None:
    table = BatchedTable(tmp_path)
    first = written(table, 0)
    table.publish(0, {"monday": f"{first}/date=monday", "tuesday": f"{first}/date=tuesday"})
    for batch in (1, 2):
        later = written(table, batch)
        parts = {"monday": f"{first}/date=monday", "tuesday": f"{later}/date=tuesday"}
        table.publish(batch, parts)

    assert (tmp_path / first).is_dir()


def test_a_batch_that_is_tried_again_writes_into_an_empty_folder(tmp_path: Path) -> None:
    table = BatchedTable(tmp_path)
    written(table, 0)

    assert not table.folder_of(0).exists()


def test_a_batch_is_never_published_behind_itself(tmp_path: Path) -> None:
    table = BatchedTable(tmp_path)
    table.publish(4, {"all": written(table, 4)})

    with pytest.raises(AssertionError, match="behind"):
        table.publish(4, {"all": "x"})


def test_a_damaged_pointer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "current.json").write_text("{")
    with pytest.raises(JobRefused, match="damaged"):
        BatchedTable(tmp_path).published()
