"""The progress of a load: counts for people, and a file from which it can be resumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextgen.bulk.manifest import LOAD_MANIFEST, sha256_of
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json

LOADED = ".loaded.json"


@dataclass(slots=True)
class ShardLoaded:
    """Counts of one shard. ``rows``: answered rows, from the first on without a gap."""

    rows_total: int
    rows: int = 0
    skipped: int = 0
    """The part of ``rows`` that an earlier load was answered for and the cluster still has."""
    created: int = 0
    existing: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Refused rows by rejection code, including those of the load that this one resumes."""
    last_name: str = ""

    @property
    def refused(self) -> int:
        return self.refusals.total()


@dataclass(slots=True)
class Loaded:
    """The result of a load. ``is_whole``: every row was created, found, refused or skipped."""

    shards: dict[int, ShardLoaded] = field(default_factory=dict)
    tenants_created: int = 0
    namespaces_created: int = 0
    elapsed_s: float = 0.0

    def total(self, name: str) -> int:
        """Return the sum over the shards of one of their counts."""
        return sum(getattr(shard, name) for shard in self.shards.values())

    @property
    def refusals(self) -> Counter[str]:
        """Refused rows by rejection code."""
        return sum((shard.refusals for shard in self.shards.values()), Counter())

    @property
    def is_whole(self) -> bool:
        return all(
            shard.rows_total
            == shard.rows
            == shard.skipped + shard.created + shard.existing + shard.refused
            for shard in self.shards.values()
        )

    def as_dict(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        names = ("rows_total", "rows", "skipped", "created", "existing", "refused")
        return {
            **{name: self.total(name) for name in names},
            "refusals": dict(sorted(self.refusals.items())),
            "tenants_created": self.tenants_created,
            "namespaces_created": self.namespaces_created,
            "shards": {
                str(shard_id): {name: getattr(shard, name) for name in names}
                for shard_id, shard in sorted(self.shards.items())
            },
            "elapsed_s": round(self.elapsed_s, 2),
            "created_per_s": round(self.total("created") / self.elapsed_s) if self.elapsed_s else 0,
        }


OnLoaded = Callable[[Loaded], None]


@dataclass(frozen=True, slots=True)
class ShardNote:
    """The saved progress of one shard."""

    rows: int
    last_name: str
    """The greatest name that was created or found."""
    refusals: Mapping[str, int]


def save_loaded(folder: Path, load: str, loaded: Loaded) -> None:
    """Save the progress of each shard, atomically.

    ``load`` is the ``fingerprint`` of the loaded files: other files may replace them later.

    Raises:
        OSError: The disk refuses.
    """
    told = {
        "load": load,
        "shards": {
            str(shard_id): {
                "rows": shard.rows,
                "last_name": shard.last_name,
                "refusals": shard.refusals,
            }
            for shard_id, shard in loaded.shards.items()
        },
    }
    draft = folder / f"{LOADED}.draft"
    draft.write_text(json.dumps(told, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(folder / LOADED)


def read_loaded(folder: Path) -> dict[int, ShardNote]:
    """Return the saved progress by shard for the present load files.

    Empty if the files were made again since, or the saved progress is damaged: the load then starts
    at the beginning, which is harmless.
    """
    try:
        told = parse_json((folder / LOADED).read_text(encoding="utf-8"))
        if told["load"] != fingerprint(folder):
            return {}
        return {int(shard_id): _note(one) for shard_id, one in told["shards"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def fingerprint(folder: Path) -> str:
    """Return a digest that identifies the load files of ``folder``.

    Raises:
        OSError: The manifest cannot be read.
    """
    return sha256_of(folder / LOAD_MANIFEST)


def _note(one: Mapping[str, Any]) -> ShardNote:
    refusals = {code: as_count(refused) for code, refused in one["refusals"].items()}
    return ShardNote(as_count(one["rows"]), as_text(one["last_name"]), refusals)
