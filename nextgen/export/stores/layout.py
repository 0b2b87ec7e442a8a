"""Names of an export's files; any other name is foreign.

    manifest.json                                  the exported files
    shard=00001/date=2026-11-22/FIRST-LAST.parquet
    shard=00001/date=2026-11-22/.FIRST.draft       being written
    .exporter.lock, .exporter.json, .manifest.draft

Readers of Parquet folders skip names that begin with a dot or an underscore, and so does this one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum

MANIFEST = "manifest.json"
MANIFEST_DRAFT = ".manifest.draft"
LOCK = ".exporter.lock"
LEASE = ".exporter.json"

DAY_MS = 86_400_000
_LAST_DAY = (date.max - date(1970, 1, 1)).days

_DATA = re.compile(r"shard=(\d{5})/date=(\d{4}-\d{2}-\d{2})/(\d{20})-(\d{20})\.parquet", re.ASCII)
_DRAFT = re.compile(r"shard=\d{5}/date=\d{4}-\d{2}-\d{2}/\.\d{20}\.draft", re.ASCII)


class Kind(Enum):
    """The kind of a file in the directory, by its name."""

    DATA = "data"
    DRAFT = "draft"
    CONTROL = "control"
    HIDDEN = "hidden"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class DataName:
    """The parts of a data file's name."""

    shard_id: int
    date: str
    first_position: int
    last_position: int

    @property
    def path(self) -> str:
        """The path relative to the export, with slashes."""
        name = f"{self.first_position:020d}-{self.last_position:020d}.parquet"
        return f"{folder_of(self.shard_id, self.date)}/{name}"


def folder_of(shard_id: int, date: str) -> str:
    """Return the folder of one shard's events of one day."""
    return f"shard={shard_id:05d}/date={date}"


def draft_path(shard_id: int, date: str, first_position: int) -> str:
    """Return the path of an unfinished file, whose last position is not known yet."""
    return f"{folder_of(shard_id, date)}/.{first_position:020d}.draft"


def day_of(time_ms: int) -> int:
    """Return the UTC day of an event's time, counted from 1970."""
    return min(time_ms // DAY_MS, _LAST_DAY)


def date_of(day: int) -> str:
    """Return a day as YYYY-MM-DD."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).strftime("%Y-%m-%d")


def data_name(path: str) -> DataName | None:
    """Parse the name of a data file; None if it is not one."""
    match = _DATA.fullmatch(path)
    if match is None:
        return None
    shard_id, day, first, last = match.groups()
    return DataName(int(shard_id), day, int(first), int(last))


def kind_of(path: str) -> Kind:
    """Return the kind of the file at ``path``, relative to the export."""
    if path in (MANIFEST, MANIFEST_DRAFT, LOCK, LEASE):
        return Kind.CONTROL
    if _DATA.fullmatch(path):
        return Kind.DATA
    if _DRAFT.fullmatch(path):
        return Kind.DRAFT
    hidden = any(part.startswith((".", "_")) for part in path.split("/"))
    return Kind.HIDDEN if hidden else Kind.FOREIGN
