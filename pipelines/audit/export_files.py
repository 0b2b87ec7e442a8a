"""The files of an export, damaged or not. Damage becomes a finding and does not end the audit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nextgen.export.directory import disk_errors, event_digest
from nextgen.export.errors import ExportRefused
from nextgen.export.format.manifest import (
    FORMAT_VERSION,
    ExportFile,
    Manifest,
    ShardExported,
    decode_manifest,
)
from nextgen.export.format.rows import events_of
from nextgen.export.format.schema import SCHEMA_VERSION
from nextgen.export.stores.layout import MANIFEST, Kind, data_name, kind_of
from nextgen.export.stores.store import Store
from nextgen.export.stores.urls import open_store
from nextgen.kernel.input.json_fields import parse_json

FILE_RULES = frozenset(
    {
        *("manifest", "missing_file", "size", "hash", "last_event"),
        *("foreign_file", "unnamed_file", "named_twice", "overlapping_files"),
    }
)
"""Rules about whole files. Rules about the events inside them are ``finding.RULES``."""


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A fault of a whole file. ``rule`` is one of ``FILE_RULES``.

    ``problem`` describes the fault and names the positions that it concerns.
    """

    rule: str
    path: str
    problem: str

    def __post_init__(self) -> None:
        assert self.rule in FILE_RULES, f"{self.rule} is not a rule"

    def __str__(self) -> str:
        return f"{self.rule}: {self.path} {self.problem}"


@dataclass(slots=True)
class AuditInput:
    """The manifest and the files of the export that is audited."""

    url: str
    store: Store
    manifest: Manifest | None = None
    """None if it is missing or damaged: the audit then trusts the names of files."""
    files: tuple[ExportFile, ...] = ()
    """The export's files by shard and position, each path once.

    Without a manifest their ``rows`` is -1 and they have no sha256.
    """
    present: frozenset[str] = frozenset()
    """Paths of ``files`` that exist."""
    positions: dict[int, int] = field(default_factory=dict)
    """Last position by shard."""
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """Gaps that an operator accepted: shard, first and last position."""
    findings: list[FileFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def readable(self) -> tuple[ExportFile, ...]:
        return tuple(file for file in self.files if file.path in self.present)

    @property
    def rows(self) -> int:
        """Rows that the manifest gives for the files, each file once."""
        return sum(max(file.rows, 0) for file in self.files)

    def files_by_shard(self) -> Iterator[tuple[int, ExportFile]]:
        """Yield each file with the shard in its name."""
        for file in self.files:
            name = data_name(file.path)
            assert name is not None, "files whose names do not parse are never added"
            yield name.shard_id, file

    def find(self, rule: str, path: str, problem: str) -> None:
        self.findings.append(FileFinding(rule, path, problem))


def look_at(url: str | os.PathLike[str]) -> AuditInput:
    """Return the manifest and files at ``url``, with a finding for each fault of them.

    Raises:
        ExportRefused: There is no export at all, or one of a newer format or schema.
        ExportStopped: The disk refuses.
    """
    store = open_store(url)
    found = AuditInput(store.url, store)
    with disk_errors(store):
        stored = {file.path: file.bytes for file in store.list()}
        content = store.read(MANIFEST)
    data = {path for path in stored if kind_of(path) is Kind.DATA}
    if content is None and not data:
        raise ExportRefused(f"{store.url} holds no export: there is no {MANIFEST}, and no file")
    _read_manifest(found, content)
    if found.manifest is None:
        _believe_names(found, data)
    else:
        _take_manifest(found, found.manifest)
    found.present = frozenset(file.path for file in found.files if file.path in stored)
    _compare(found, stored, data)
    return found


def last_events_differ(found: AuditInput) -> Iterator[FileFinding]:
    """Yield a finding for each shard whose last event differs from the manifest's digest of it.

    Reads one row of one file per shard, on the driver: the digest is of the protobuf message,
    which Spark does not have.
    """
    for shard_id, shard in sorted(found.manifest.shards.items() if found.manifest else ()):
        file = shard.files[-1] if shard.files else None
        if file is None or not shard.last_event_sha256 or file.path not in found.present:
            continue
        if file.last_position != shard.position:
            continue
        try:
            digest = _digest_at(found.store, file.path, shard.position)
        except (pa.ArrowException, OSError, ValueError, KeyError, AttributeError):
            # An unreadable file is found by its hash and its number of rows.
            continue
        if digest != shard.last_event_sha256:
            yield FileFinding(
                "last_event",
                file.path,
                f"ends with another event at {shard_id}:{shard.position} than the manifest says",
            )


def _digest_at(store: Store, path: str, position: int) -> str:
    wanted = [("position", "=", position)]
    with store.open(path) as opened:
        table = pq.read_table(opened, filters=wanted, partitioning=None)
    digests = [event_digest(event) for event in events_of(table)]
    return digests[0] if len(digests) == 1 else ""


def _read_manifest(found: AuditInput, content: bytes | None) -> None:
    if content is None:
        found.find("manifest", MANIFEST, "is missing; files are believed by their names")
        return
    try:
        found.manifest = decode_manifest(content, MANIFEST)
    except ExportRefused as error:
        if _is_newer(content):
            raise
        found.find("manifest", MANIFEST, f"is not believed, files are by their names: {error}")


def _is_newer(content: bytes) -> bool:
    try:
        fields: Any = parse_json(content)
        return bool(
            fields["format_version"] > FORMAT_VERSION or fields["schema_version"] > SCHEMA_VERSION
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _take_manifest(found: AuditInput, manifest: Manifest) -> None:
    files: dict[str, ExportFile] = {}
    for shard_id, shard in sorted(manifest.shards.items()):
        found.positions[shard_id] = shard.position
        found.gaps += [
            (shard_id, gap.first_position, gap.last_position) for gap in shard.accepted_gaps
        ]
        for file in shard.files:
            if file.path in files:
                found.find("named_twice", file.path, f"is named twice for {_range(shard_id, file)}")
            files[file.path] = file
        _follow_on(found, shard_id, shard)
    found.files = tuple(files.values())


def _follow_on(found: AuditInput, shard_id: int, shard: ShardExported) -> None:
    """Find files of a shard that overlap. Missing positions are found from the events."""
    before = 0
    for file in dict.fromkeys(shard.files):
        if file.first_position <= before:
            found.find(
                "overlapping_files",
                file.path,
                f"has {_range(shard_id, file)}, and files before it go up to {before}",
            )
        before = max(before, file.last_position)


def _believe_names(found: AuditInput, data: set[str]) -> None:
    files = []
    for path in sorted(data):
        name = data_name(path)
        assert name is not None, "it was taken for a data file by its name"
        files.append(
            ExportFile(path, name.first_position, name.last_position, -1, -1, "", -1, -1, 0, 0)
        )
        last = found.positions.get(name.shard_id, 0)
        found.positions[name.shard_id] = max(last, name.last_position)
    found.files = tuple(files)


def _compare(found: AuditInput, stored: dict[str, int], data: set[str]) -> None:
    for path in sorted(stored):
        if kind_of(path) is Kind.FOREIGN:
            found.find("foreign_file", path, "is not of an export")
        elif kind_of(path) is Kind.DRAFT:
            found.notes.append(f"{path} is being written, or was left by a kill: it is not read")
    for shard_id, file in found.files_by_shard():
        if file.path not in stored:
            found.find("missing_file", file.path, f"is missing: {_range(shard_id, file)}")
        elif file.bytes not in (-1, stored[file.path]):
            found.find(
                "size",
                file.path,
                f"has {stored[file.path]} bytes, the manifest says {file.bytes}: "
                f"{_range(shard_id, file)}",
            )
    for path in sorted(data - {file.path for file in found.files}):
        _judge_unnamed(found, path)


def _judge_unnamed(found: AuditInput, path: str) -> None:
    name = data_name(path)
    assert name is not None, "it was taken for a data file by its name"
    if name.first_position > found.positions.get(name.shard_id, 0):
        found.notes.append(f"{path} is not in the manifest yet: a run is under way, or was killed")
        return
    found.find(
        "unnamed_file",
        path,
        f"is not in the manifest, which has {name.shard_id}:{name.first_position} to "
        f"{name.shard_id}:{name.last_position} already",
    )


def _range(shard_id: int, file: ExportFile) -> str:
    return f"{shard_id}:{file.first_position} to {shard_id}:{file.last_position}"
