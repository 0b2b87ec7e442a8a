"""The manifest of a backup, and what one is made of (docs/flows/backup.md).

    manifest.json                        written last: a backup without it was cut off
    shard-00001-00000000000000004711.items    the objects of a shard's snapshot, by kind and name
    shard-00001-00000000000000004722.changed  what the events between snapshot and cut changed
    quotas.json                          the quotas, as 'nextgen quotas apply' takes them; a copy
    .backup.json                         how far an unfinished backup is

A file is a gzip stream of pages: four bytes, big-endian, with the length of an ``ItemPage``, and
the message. Its name does not end with ``.gz``: some stores would compress it once more. The
manifest has the SHA-256 of every file, and of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nextgen.backup.errors import BackupUnusable
from nextgen.kernel.governance.quota_file import QuotaFile, from_bytes, to_bytes
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json
from nextgen.kernel.limits.bulk import BACKUP_MANIFEST_BYTES_MAX

FORMAT = "nextgen-backup"
FORMAT_VERSION = 2
"""2: with the layouts of scalable topics, which version 1 left out together with their topics."""

FORMAT_VERSIONS = (1, FORMAT_VERSION)
"""Those that are read."""

MANIFEST = "manifest.json"
PROGRESS = ".backup.json"
QUOTAS = "quotas.json"
_SHA256 = "sha256"


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file. ``path`` is relative to the backup."""

    path: str
    items: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Objects by kind."""

    tenants: int = 0
    namespaces: int = 0
    topics: int = 0
    scalable_topics: int = 0
    """The topics among them that have a layout."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.tenants + other.tenants,
            self.namespaces + other.namespaces,
            self.topics + other.topics,
            self.scalable_topics + other.scalable_topics,
        )

    def __str__(self) -> str:
        scalable = f" ({self.scalable_topics} scalable)" if self.scalable_topics else ""
        return (
            f"{self.tenants} tenants, {self.namespaces} namespaces, {self.topics} topics{scalable}"
        )

    @property
    def total(self) -> int:
        return self.tenants + self.namespaces + self.topics + self.scalable_topics


@dataclass(frozen=True, slots=True)
class ShardBackup:
    """The files of one shard. ``position`` is the shard's in the cut."""

    position: int
    snapshot_position: int
    counts: Counts
    """Of the objects at ``position``."""
    items: BackupFile
    changed: BackupFile | None = None

    @property
    def files(self) -> tuple[BackupFile, ...]:
        return (self.items,) if self.changed is None else (self.items, self.changed)


@dataclass(frozen=True, slots=True)
class Manifest:
    backup_id: str
    created_at_ms: int
    least_epoch: int
    """No unit was assigned, at the cut, in an epoch of the generation of this one or a later one:
    a restored cluster begins here."""
    shard_map_version: int
    shards: Mapping[int, ShardBackup] = field(default_factory=dict)
    quotas: QuotaFile | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Service-level settings that differed from their defaults; none in backups of releases that
    had no such settings."""

    @property
    def counts(self) -> Counts:
        return sum((shard.counts for shard in self.shards.values()), Counts())


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of the manifest's file: JSON, whose last line is its own digest."""
    quotas = manifest.quotas
    fields = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "backup_id": manifest.backup_id,
        "created_at_ms": manifest.created_at_ms,
        "least_epoch": manifest.least_epoch,
        "shard_map_version": manifest.shard_map_version,
        "quotas": None if quotas is None else json.loads(to_bytes(quotas)),
        "settings": dict(sorted(manifest.settings.items())),
        "shards": {str(shard_id): asdict(each) for shard_id, each in manifest.shards.items()},
    }
    text = json.dumps(fields, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-2]},\n "{_SHA256}": "{digest}"\n}}\n'.encode()


def decode_manifest(content: bytes, where: str) -> Manifest:
    """Parse the manifest of the backup in ``where``.

    Raises:
        BackupUnusable: It is none, was altered, or is of a version that is not known here.
    """
    if len(content) > BACKUP_MANIFEST_BYTES_MAX:
        raise BackupUnusable(f"{where}/{MANIFEST} has more than {BACKUP_MANIFEST_BYTES_MAX} bytes")
    try:
        fields = parse_json(content)
        if fields["format"] != FORMAT:
            raise BackupUnusable(f"{where} holds no backup: its format is {fields['format']!r}")
        if fields["format_version"] not in FORMAT_VERSIONS:
            raise BackupUnusable(
                f"{where} is a backup of format version {fields['format_version']}, this release "
                f"reads versions {FORMAT_VERSIONS[0]} to {FORMAT_VERSION}: restore it with the "
                "release that wrote it"
            )
        _check_digest(content, fields, where)
        quotas = fields["quotas"]
        return Manifest(
            backup_id=as_text(fields["backup_id"]),
            created_at_ms=as_count(fields["created_at_ms"]),
            least_epoch=as_count(fields["least_epoch"]),
            shard_map_version=as_count(fields["shard_map_version"]),
            shards={int(key): shard_of(each) for key, each in fields["shards"].items()},
            quotas=None if quotas is None else from_bytes(json.dumps(quotas).encode()),
            settings={
                as_text(name): as_text(text) for name, text in fields.get("settings", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupUnusable(
            f"{where}/{MANIFEST} is damaged ({type(error).__name__}: {error}): take another backup"
        ) from error


def shard_of(fields: Mapping[str, Any]) -> ShardBackup:
    """Parse the entry of one shard.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: It is none.
    """
    changed = fields["changed"]
    return ShardBackup(
        as_count(fields["position"]),
        as_count(fields["snapshot_position"]),
        Counts(**{name: as_count(each) for name, each in fields["counts"].items()}),
        file_of(fields["items"]),
        None if changed is None else file_of(changed),
    )


def file_of(fields: Mapping[str, Any]) -> BackupFile:
    """Parse the entry of one file; raises as ``shard_of``."""
    path = as_text(fields["path"])
    if "/" in path or path.startswith("."):
        raise ValueError(f"{path!r} is no file of a backup")
    return BackupFile(
        path, as_count(fields["items"]), as_count(fields["bytes"]), as_text(fields["sha256"])
    )


def _check_digest(content: bytes, fields: Mapping[str, Any], where: str) -> None:
    found = as_text(fields[_SHA256])
    text, _, _ = content.decode().rpartition(f',\n "{_SHA256}": ')
    if hashlib.sha256(f"{text}\n}}".encode()).hexdigest() != found:
        raise BackupUnusable(f"{where}/{MANIFEST} was altered after it was written")
