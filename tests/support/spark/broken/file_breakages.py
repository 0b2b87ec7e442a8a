"""Right exports whose files are spoilt, one way each, and the findings that an audit must have.

Each spoils one shard, of two days: a file each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nextgen.export.format.schema import ENVELOPE, SCHEMA_VERSION, UNKNOWN_TYPE

STRANGE_SHARD = 900
"""Nobody has it."""

Found = tuple[str, ...]
"""All findings, each as ``rule: path`` or ``rule: shard:position``, as they begin."""


@dataclass(frozen=True, slots=True)
class FileBreakage:
    """``spoil`` changes files of one shard of an export, and returns what has to be found."""

    rule: str
    name: str
    spoil: Callable[[Path, int], Found]
    is_whole: bool = False
    """It spoils more than one shard."""


def data_files(export: Path, shard_id: int | None = None) -> list[Path]:
    """Return the files of events, by shard, day and position."""
    folder = "*" if shard_id is None else f"shard={shard_id:05d}"
    return sorted(export.glob(f"{folder}/date=*/*.parquet"))


def change_manifest(export: Path, change: Callable[[Any], None]) -> None:
    """Change the manifest's fields in place."""
    path = export / "manifest.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def _change_entry(export: Path, path: Path, change: Callable[[Any], Any]) -> None:
    """Change the manifest's entry of one file."""

    def find(fields: Any) -> None:
        for shard in fields["shards"].values():
            for file in shard["files"]:
                if file["path"] == _name(export, path):
                    change(file)

    change_manifest(export, find)


def _rewrite(export: Path, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file's rows; the manifest has their number, and the new size and hash."""
    table = change(pq.read_table(path, partitioning=None))
    pq.write_table(table, path)
    content = path.read_bytes()
    told = {
        "bytes": len(content),
        "rows": table.num_rows,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    _change_entry(export, path, lambda entry: entry.update(told))


def _last(export: Path, shard_id: int) -> Path:
    return data_files(export, shard_id)[-1]


def _name(export: Path, path: Path) -> str:
    return path.relative_to(export).as_posix()


def _range(path: Path) -> tuple[int, int]:
    first, last = path.stem.split("-")
    return int(first), int(last)


def _cut_short(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    path.write_bytes(path.read_bytes()[:-9])
    name, first = _name(export, path), _range(path)[0]
    at = f"{shard_id}:{first}"
    return f"size: {name}", f"hash: {name}", f"gap: {at}", f"rows_differ: {at}"


def _missing(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    path.unlink()
    at = f"{shard_id}:{_range(path)[0]}"
    return f"missing_file: {_name(export, path)}", f"gap: {at}", f"rows_differ: {at}"


def _foreign(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id).with_name("part-0.parquet")
    path.write_bytes(b"PAR1")
    return (f"foreign_file: {_name(export, path)}",)


def _another_content(export: Path, shard_id: int) -> Found:
    """Replace a file by another of the same size with another writer's id."""
    path = _last(export, shard_id)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"parquet-cpp")] ^= 1
    path.write_bytes(bytes(content))
    return (f"hash: {_name(export, path)}",)


def _lost_row(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    _rewrite(export, path, lambda table: pa.concat_tables([table.slice(0, 1), table.slice(2)]))
    return (f"gap: {shard_id}:{_range(path)[0] + 1}",)


def _row_twice(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    _rewrite(export, path, lambda table: pa.concat_tables([table, table.slice(1, 1)]))
    return (f"duplicate_position: {shard_id}:{_range(path)[0] + 1}",)


def _row_of_another_shard(export: Path, shard_id: int) -> Found:
    def add(table: pa.Table) -> pa.Table:
        strange = _without_payload(table.slice(1, 1))
        for column, value in (("shard_id", STRANGE_SHARD), ("position", 1)):
            strange = _with(strange, column, value)
        return pa.concat_tables([table, strange])

    _rewrite(export, _last(export, shard_id), add)
    return (f"wrong_file: {STRANGE_SHARD}:1",)


def _beyond_its_name(export: Path, shard_id: int) -> Found:
    path = data_files(export, shard_id)[0]
    first, last = _range(path)
    renamed = path.with_name(f"{first:020d}-{last - 1:020d}.parquet")
    told = {"path": _name(export, renamed), "last_position": last - 1}
    _change_entry(export, path, lambda entry: entry.update(told))
    path.rename(renamed)
    return (f"outside_range: {shard_id}:{first}",)


def _overlapping(export: Path, shard_id: int) -> Found:
    path, behind = data_files(export, shard_id)
    first, last = _range(path)
    renamed = path.with_name(f"{first:020d}-{last + 1:020d}.parquet")
    told = {"path": _name(export, renamed), "last_position": last + 1}
    _change_entry(export, path, lambda entry: entry.update(told))
    path.rename(renamed)
    return (f"overlapping_files: {_name(export, behind)}",)


def _other_number_of_rows(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    _change_entry(export, path, lambda entry: entry.update(rows=entry["rows"] + 1))
    return (f"rows_differ: {shard_id}:{_range(path)[0]}",)


def _other_times(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    _change_entry(export, path, lambda entry: entry.update(last_time_ms=entry["last_time_ms"] + 1))
    return (f"times_differ: {shard_id}:{_range(path)[0]}",)


def _newer_schema(export: Path, shard_id: int) -> Found:
    path = data_files(export, shard_id)[0]
    _rewrite(export, path, lambda table: _with(table, "schema_version", SCHEMA_VERSION + 1))
    return (f"newer_schema: {shard_id}:{_range(path)[0]}",)


def _another_last_event(export: Path, shard_id: int) -> Found:
    def change(fields: Any) -> None:
        fields["shards"][str(shard_id)]["last_event_sha256"] = "0" * 64

    change_manifest(export, change)
    return (f"last_event: {_name(export, data_files(export, shard_id)[-1])}",)


def _copied_file(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)
    first, last = _range(path)
    copied = path.with_name(f"{first:020d}-{last - 1:020d}.parquet")
    copied.write_bytes(path.read_bytes())
    return (f"unnamed_file: {_name(export, copied)}",)


def _named_twice(export: Path, shard_id: int) -> Found:
    path = _last(export, shard_id)

    def change(fields: Any) -> None:
        files = fields["shards"][str(shard_id)]["files"]
        files.append(files[-1])

    change_manifest(export, change)
    return (f"named_twice: {_name(export, path)}",)


def _damaged_manifest(export: Path, shard_id: int) -> Found:
    path = export / "manifest.json"
    path.write_text(path.read_text()[:-20])
    return ("manifest: manifest.json",)


def _without_payload(table: pa.Table) -> pa.Table:
    """Return the rows as events of a type that no rule knows."""
    envelope = {each.name for each in ENVELOPE}
    for name in set(table.schema.names) - envelope:
        table = _with(table, name, None)
    return _with(table, "event_type", UNKNOWN_TYPE)


def _with(table: pa.Table, column: str, value: Any) -> pa.Table:
    at = table.schema.get_field_index(column)
    wanted = pa.array([value] * table.num_rows, table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), wanted)


FILE_BREAKAGES = (
    FileBreakage("size", "cut short", _cut_short),
    FileBreakage("missing_file", "missing", _missing),
    FileBreakage("foreign_file", "foreign", _foreign),
    FileBreakage("hash", "written by somebody else", _another_content),
    FileBreakage("gap", "a row lost", _lost_row),
    FileBreakage("duplicate_position", "a row twice", _row_twice),
    FileBreakage("wrong_file", "a row of another shard", _row_of_another_shard),
    FileBreakage("outside_range", "rows beyond its name", _beyond_its_name),
    FileBreakage("overlapping_files", "files that overlap", _overlapping),
    FileBreakage("rows_differ", "another number of rows", _other_number_of_rows),
    FileBreakage("times_differ", "other times", _other_times),
    FileBreakage("newer_schema", "rows of a newer schema", _newer_schema),
    FileBreakage("last_event", "another last event", _another_last_event),
    FileBreakage("unnamed_file", "a file copied", _copied_file),
    FileBreakage("named_twice", "a file named twice", _named_twice),
    FileBreakage("manifest", "the manifest damaged", _damaged_manifest, is_whole=True),
)
