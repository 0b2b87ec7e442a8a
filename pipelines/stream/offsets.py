"""Offsets of a stream in an export: the last position by shard, always at the end of a file.

Files in the manifest never change, and files of a shard do not overlap. So two offsets always
delimit the same events. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from nextgen.export.errors import ExportRefused
from nextgen.export.format.manifest import ExportFile, Manifest, ShardExported

FILES_PER_BATCH_MAX = 500
"""Files of one batch at most. A file is of one day, and a batch writes a folder per day."""

Offset = dict[str, Any]
"""``cluster_id``, and ``positions``: the last position by shard id, as JSON has it (text keys)."""


def first_offset(manifest: Manifest) -> Offset:
    """Return the offset before the first event."""
    return {"cluster_id": manifest.cluster_id, "positions": {}}


def next_offset(manifest: Manifest, start: Offset, rows_max: int | None) -> Offset:
    """Return the end of the next batch: one whole file, and further ones up to ``rows_max`` rows
    and ``FILES_PER_BATCH_MAX`` files in all.

    The file whose first event is the earliest comes first, so that shards advance together.

    Raises:
        ExportRefused: ``start`` is not a place in this export.
    """
    _check_cluster(manifest, start)
    waiting = {
        shard_id: list(_files_behind(shard_id, shard, _position(start, shard_id)))
        for shard_id, shard in manifest.shards.items()
    }
    heads = [(files[0].first_time_ms, shard_id, 0) for shard_id, files in waiting.items() if files]
    heapify(heads)
    positions = dict(start["positions"])
    rows = files = 0
    while heads and files < FILES_PER_BATCH_MAX:
        _, shard_id, index = heappop(heads)
        file = waiting[shard_id][index]
        if rows and rows_max is not None and rows + file.rows > rows_max:
            break
        rows += file.rows
        files += 1
        positions[str(shard_id)] = file.last_position
        if index + 1 < len(waiting[shard_id]):
            following = waiting[shard_id][index + 1]
            heappush(heads, (following.first_time_ms, shard_id, index + 1))
    return {"cluster_id": manifest.cluster_id, "positions": positions}


def files_between(manifest: Manifest, start: Offset, end: Offset) -> tuple[ExportFile, ...]:
    """Return the files behind ``start`` up to ``end``, by shard and position.

    Raises:
        ExportRefused: Either is not a place in this export.
    """
    _check_cluster(manifest, end)
    chosen: list[ExportFile] = []
    for shard_id, shard in sorted(manifest.shards.items()):
        last = _position(end, shard_id)
        _check_boundary(shard_id, shard, last)
        behind = _files_behind(shard_id, shard, _position(start, shard_id))
        chosen += [file for file in behind if file.last_position <= last]
    return tuple(chosen)


def seen_until_ms(manifest: Manifest, offset: Offset) -> int | None:
    """Return the time of the latest event up to ``offset``, None if there is no event."""
    times = [
        file.last_time_ms
        for shard_id, shard in manifest.shards.items()
        for file in shard.files
        if file.last_position <= _position(offset, shard_id)
    ]
    return max(times, default=None)


def rows_up_to(manifest: Manifest, positions: Mapping[int, int]) -> int:
    """Return the number of events up to ``positions``, all of which are ends of files."""
    return sum(
        file.rows
        for shard_id, shard in manifest.shards.items()
        for file in shard.files
        if file.last_position <= positions.get(shard_id, 0)
    )


def _position(offset: Offset, shard_id: int) -> int:
    return int(offset["positions"].get(str(shard_id), 0))


def _files_behind(shard_id: int, shard: ShardExported, position: int) -> tuple[ExportFile, ...]:
    _check_boundary(shard_id, shard, position)
    return tuple(file for file in shard.files if file.first_position > position)


def _check_cluster(manifest: Manifest, offset: Offset) -> None:
    unread = set(offset["positions"]) - set(map(str, manifest.shards))
    # An export may get its cluster id only later.
    is_others = offset["cluster_id"] not in ("", manifest.cluster_id)
    if is_others or unread:
        raise ExportRefused(
            f"the stream has read an export of cluster {offset['cluster_id']!r} up to "
            f"{offset['positions']}, this is another one: use a folder of its own for each export"
        )


def _check_boundary(shard_id: int, shard: ShardExported, position: int) -> None:
    """Refuse a position inside a file or behind the end: the export was recreated."""
    if position and position not in {file.last_position for file in shard.files}:
        raise ExportRefused(
            f"the stream has read shard {shard_id} up to {position}, where no file of this export "
            "ends: it was made anew; use another folder for its tables"
        )
