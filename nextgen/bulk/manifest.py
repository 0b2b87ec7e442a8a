"""The manifest of a folder of load files: its files, and the shard map that it was made for.

    load.json                              this
    shard=00001/part-00000.parquet         one column ``name``, ascending, over all files too
    namespaces/part-00000.parquet          ``namespace``, ``topics``: the parents, each once
    rejects/*.parquet                      rows that are not a topic's name, with reasons

A file that the manifest does not name is not loaded.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nextgen.bulk.errors import LoadRefused
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json
from nextgen.kernel.routing.slots import SLOT_TABLE_BYTES, SlotTable

LOAD_MANIFEST = "load.json"
FORMAT = "nextgen-load"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class LoadFile:
    """One file of one shard. ``path`` is relative to the folder, with slashes."""

    path: str
    rows: int
    bytes: int
    sha256: str
    first_name: str
    last_name: str


@dataclass(frozen=True, slots=True)
class LoadManifest:
    """The content of one folder. A shard's files are ordered by the topic names in them."""

    table: SlotTable
    shards: Mapping[int, tuple[LoadFile, ...]]
    namespaces: tuple[LoadFile, ...]
    """Files of the namespaces; ``first_name`` and ``last_name`` are names of namespaces."""
    namespace_count: int
    rows_read: int
    """Rows of the inventory: topics, duplicates and rejects together."""
    duplicates: int
    rejects: int

    @property
    def topics(self) -> int:
        return sum(file.rows for files in self.shards.values() for file in files)

    def to_json(self) -> str:
        """Return the canonical text: equal manifests give equal bytes."""
        owners = base64.b64encode(zlib.compress(self.table.to_bytes(), 9)).decode("ascii")
        fields = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "shard_map_version": self.table.version,
            "slot_owners": owners,
            "rows_read": self.rows_read,
            "duplicates": self.duplicates,
            "rejects": self.rejects,
            "namespace_count": self.namespace_count,
            "namespaces": [asdict(file) for file in self.namespaces],
            "shards": {
                str(shard_id): [asdict(file) for file in files]
                for shard_id, files in sorted(self.shards.items())
            },
        }
        return json.dumps(fields, ensure_ascii=False, indent=1) + "\n"


def read_load_manifest(folder: Path) -> LoadManifest:
    """Return the manifest of ``folder``.

    Raises:
        LoadRefused: There is none, it is damaged, or of a newer format.
    """
    path = folder / LOAD_MANIFEST
    try:
        fields = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadRefused(f"{folder} holds no load files: there is no {LOAD_MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LoadRefused(f"{path} cannot be read: {error}") from error
    try:
        return _manifest(fields)
    except LoadRefused as error:
        raise LoadRefused(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
        raise LoadRefused(f"{path} is damaged: {error!r}") from error


def check_files(folder: Path, manifest: LoadManifest) -> None:
    """Check that every file exists and has the length and hash in the manifest.

    Raises:
        LoadRefused: A file is missing or differs.
    """
    files = [file for shard in manifest.shards.values() for file in shard]
    for file in (*files, *manifest.namespaces):
        path = folder / file.path
        try:
            digest, size = sha256_of(path), path.stat().st_size
        except OSError as error:
            raise LoadRefused(f"{path} cannot be read: {error.strerror or error}") from error
        if size != file.bytes or digest != file.sha256:
            raise LoadRefused(f"{path} was changed after it was made: make the load files again")


def sha256_of(path: Path) -> str:
    """Return the digest of a file's content, in the form of ``LoadFile.sha256``.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _manifest(fields: Mapping[str, Any]) -> LoadManifest:
    if fields["format"] != FORMAT:
        raise LoadRefused(f"the format is {fields['format']!r} and not {FORMAT}")
    if fields["format_version"] != FORMAT_VERSION:
        raise LoadRefused(
            f"format version {fields['format_version']}, this program reads {FORMAT_VERSION}"
        )
    unpacking = zlib.decompressobj()
    owners = unpacking.decompress(base64.b64decode(fields["slot_owners"]), SLOT_TABLE_BYTES)
    table = SlotTable.from_bytes(as_count(fields["shard_map_version"]), owners)
    shards = {int(name): _files(files) for name, files in fields["shards"].items()}
    strangers = set(shards) - set(table.shard_ids)
    if strangers:
        raise LoadRefused(f"files for shards {sorted(strangers)}, which the map does not have")
    for shard_id, files in shards.items():
        _check_order(shard_id, files)
    return LoadManifest(
        table=table,
        shards=shards,
        namespaces=_files(fields["namespaces"]),
        namespace_count=as_count(fields["namespace_count"]),
        rows_read=as_count(fields["rows_read"]),
        duplicates=as_count(fields["duplicates"]),
        rejects=as_count(fields["rejects"]),
    )


def _check_order(shard_id: int, files: tuple[LoadFile, ...]) -> None:
    last = ""
    for file in files:
        if not last < file.first_name <= file.last_name:
            raise LoadRefused(f"the files of shard {shard_id} overlap at {file.path}")
        last = file.last_name


def _files(listed: list[Mapping[str, Any]]) -> tuple[LoadFile, ...]:
    files = []
    for one in listed:
        path = as_text(one["path"])
        if path.startswith("/") or ".." in path.split("/"):
            raise LoadRefused(f"{path!r} is not a file of the folder")
        files.append(
            LoadFile(
                path,
                as_count(one["rows"]),
                as_count(one["bytes"]),
                as_text(one["sha256"]),
                as_text(one["first_name"]),
                as_text(one["last_name"]),
            )
        )
    return tuple(files)
