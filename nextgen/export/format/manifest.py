"""The manifest: the list of an export's files. Readers ignore every file that it does not name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nextgen.export.errors import ExportRefused
from nextgen.export.format.schema import SCHEMA_VERSION
from nextgen.export.stores.layout import data_name
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json

FORMAT = "nextgen-export"
FORMAT_VERSION = 1

_ADOPTIONS = "adoptions"
"""The field of files that earlier releases do not write."""


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One closed file: events of one shard and one date, with consecutive positions."""

    path: str
    first_position: int
    last_position: int
    rows: int
    bytes: int
    sha256: str
    first_time_ms: int
    """Earliest time of an event; clocks differ, so it need not be that of the first event."""
    last_time_ms: int
    """Latest time of an event."""
    schema_version: int
    untyped_events: int
    """Rows with ``raw``, whose events columns cannot represent whole."""
    adoptions: int = 0
    """Rows that say that slots came from another shard; 0 in files of earlier releases."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions that had been cut from the log, whose loss an operator accepted."""

    first_position: int
    last_position: int


@dataclass(frozen=True, slots=True)
class ShardExported:
    """The exported part of one shard, up to ``position``. ``files`` are in order."""

    position: int = 0
    last_event_sha256: str = ""
    """Digest of the event at ``position``: a log with another event there is another cluster's."""
    files: tuple[ExportFile, ...] = ()
    accepted_gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of one export. ``cluster_id`` is empty if it is not known."""

    cluster_id: str
    reader_id: str
    """Name of the reader for which the replicas pin the log."""
    generation: int = 0
    """Grows by one whenever the manifest is replaced."""
    schema_version: int = SCHEMA_VERSION
    shards: Mapping[int, ShardExported] = field(default_factory=dict)

    def shard(self, shard_id: int) -> ShardExported:
        """Return the exported part of a shard."""
        return self.shards.get(shard_id, ShardExported())

    def with_shard(self, shard_id: int, exported: ShardExported) -> Manifest:
        """Return the next generation of the manifest, with ``exported`` for that shard."""
        return replace(
            self,
            generation=self.generation + 1,
            schema_version=SCHEMA_VERSION,
            shards={**self.shards, shard_id: exported},
        )

    @property
    def file_count(self) -> int:
        return sum(len(shard.files) for shard in self.shards.values())

    @property
    def paths(self) -> set[str]:
        """The paths of all files."""
        return {file.path for shard in self.shards.values() for file in shard.files}


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of the manifest's file: JSON, with one exported file a line."""
    shards = []
    for shard_id, shard in sorted(manifest.shards.items()):
        head = json.dumps(
            {
                "position": shard.position,
                "last_event_sha256": shard.last_event_sha256,
                "accepted_gaps": [asdict(gap) for gap in shard.accepted_gaps],
            }
        )
        files = ",\n   ".join(json.dumps(_file_fields(file)) for file in shard.files)
        shards.append(f'  "{shard_id}": {head[:-1]}, "files": [\n   {files}\n  ]}}')
    top = json.dumps(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "schema_version": manifest.schema_version,
            "cluster_id": manifest.cluster_id,
            "reader_id": manifest.reader_id,
            "generation": manifest.generation,
        }
    )
    body = ",\n".join(shards)
    return f'{top[:-1]},\n "shards": {{\n{body}\n }}}}\n'.encode()


def _file_fields(file: ExportFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in ExportFile.__slots__}


def decode_manifest(content: bytes, where: str) -> Manifest:
    """Parse ``content``; ``where`` is named in refusals.

    Raises:
        ExportRefused: It is not a manifest, of a later release, or contradicts itself.
    """
    try:
        fields = parse_json(content)
        if fields["format"] != FORMAT:
            raise ExportRefused(f"{where} is the manifest of something else: {fields['format']!r}")
        _check_version(fields, where)
        manifest = Manifest(
            cluster_id=as_text(fields["cluster_id"]),
            reader_id=as_text(fields["reader_id"]),
            generation=as_count(fields["generation"]),
            schema_version=as_count(fields["schema_version"]),
            shards={int(key): _shard(shard) for key, shard in fields["shards"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ExportRefused(
            f"{where} is damaged ({type(error).__name__}: {error}): restore it from a copy, "
            "or export to another directory"
        ) from error
    for shard_id, shard in manifest.shards.items():
        _check_shard(shard_id, shard, where)
    return manifest


def _check_version(fields: Mapping[str, Any], where: str) -> None:
    for name, known in (("format_version", FORMAT_VERSION), ("schema_version", SCHEMA_VERSION)):
        found = as_count(fields[name])
        if found > known:
            raise ExportRefused(
                f"{where} has {name} {found}, this release knows up to {known}: use the release "
                "that wrote it, or a later one"
            )


def _shard(fields: Mapping[str, Any]) -> ShardExported:
    return ShardExported(
        position=as_count(fields["position"]),
        last_event_sha256=as_text(fields["last_event_sha256"]),
        files=tuple(_file(one) for one in fields["files"]),
        accepted_gaps=tuple(
            Gap(as_count(one["first_position"]), as_count(one["last_position"]))
            for one in fields["accepted_gaps"]
        ),
    )


def _file(fields: Mapping[str, Any]) -> ExportFile:
    fields = {_ADOPTIONS: 0, **fields}
    checked: dict[str, Any] = {
        name: as_text(fields[name]) if name in ("path", "sha256") else as_count(fields[name])
        for name in ExportFile.__slots__
    }
    return ExportFile(**checked)


def _check_shard(shard_id: int, shard: ShardExported, where: str) -> None:
    """Raise ExportRefused unless the files fit their names and the shard's position."""
    for file in shard.files:
        name = data_name(file.path)
        recorded = (shard_id, file.first_position, file.last_position)
        if name is None or (name.shard_id, name.first_position, name.last_position) != recorded:
            raise ExportRefused(
                f"{where} names {file.path!r} for positions {file.first_position} to "
                f"{file.last_position} of shard {shard_id}: another program changed it"
            )
    ends = [file.last_position for file in shard.files]
    ends += [gap.last_position for gap in shard.accepted_gaps]
    if shard.position != max(ends, default=0):
        raise ExportRefused(
            f"{where} says that shard {shard_id} is exported up to {shard.position}, but its "
            f"files end at {max(ends, default=0)}: another program changed it"
        )
