"""Whether the files of a rebuild hold more than is asked for: then, and only then, rows are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.export.format.manifest import ExportFile, Gap, Manifest, ShardExported
from nextgen.export.stores.local import LocalStore
from pipelines.exports.input import ExportInput
from pipelines.rebuild.job import FoldInput


def exported(*ranges: tuple[int, int], gaps: tuple[Gap, ...] = ()) -> ShardExported:
    files = tuple(
        ExportFile(f"{first}.parquet", first, last, last - first + 1, 1, "", 0, 0, 1, 0)
        for first, last in ranges
    )
    ends = [file.last_position for file in files] + [gap.last_position for gap in gaps]
    return ShardExported(max(ends), "", files, gaps)


def fold_input(
    tmp_path: Path, shards: dict[int, ShardExported], positions: dict[int, int]
) -> FoldInput:
    files = tuple(
        file
        for shard_id, shard in shards.items()
        for file in shard.files
        if file.first_position <= positions[shard_id]
    )
    manifest = Manifest("", "reader", shards=shards)
    store = LocalStore(tmp_path)
    return FoldInput(ExportInput(str(tmp_path), store, manifest, files), positions, files)


@pytest.mark.parametrize(
    ("positions", "is_cut"),
    [({1: 20, 2: 5}, False), ({1: 10, 2: 5}, False), ({1: 19, 2: 5}, True), ({1: 20, 2: 4}, True)],
)
def test_files_that_end_where_the_fold_does_are_not_cut(
    tmp_path: Path, positions: dict[int, int], is_cut: bool
) -> None:
    shards = {1: exported((1, 10), (11, 20)), 2: exported((1, 5))}
    assert fold_input(tmp_path, shards, positions).is_cut == is_cut


@pytest.mark.parametrize(
    ("positions", "lost", "is_cut"),
    [
        ({1: 20, 2: 5}, 4, False),
        ({1: 8, 2: 5}, 3, False),
        ({1: 8, 2: 4}, 3, True),
        ({1: 5, 2: 5}, 0, False),
    ],
)
def test_a_gap_counts_as_far_as_the_fold_goes(
    tmp_path: Path, positions: dict[int, int], lost: int, is_cut: bool
) -> None:
    """Positions 6 to 9 of shard 1 are lost; 8 ends the fold in the middle of them."""
    shards = {1: exported((1, 5), (10, 20), gaps=(Gap(6, 9),)), 2: exported((1, 5))}
    chosen = fold_input(tmp_path, shards, positions)
    assert (chosen.lost_events, chosen.is_cut) == (lost, is_cut)
