"""Folders of load files, made without Spark."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from nextgen.bulk.manifest import LOAD_MANIFEST, LoadFile, LoadManifest
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable


def write_load_folder(
    folder: Path, names: Iterable[str], table: SlotTable, *, files_per_shard: int = 2
) -> LoadManifest:
    """Write load files of canonical ``names`` for the shards of ``table``."""
    by_shard: dict[int, list[str]] = defaultdict(list)
    namespaces: set[str] = set()
    for name in names:
        parsed = parse_topic(name)
        by_shard[table.shard_for_key(parsed.routing_key)].append(name)
        namespaces.add(parsed.namespace_text)
    shards: dict[int, tuple[LoadFile, ...]] = {}
    for shard_id, own in sorted(by_shard.items()):
        own.sort()
        size = -(-len(own) // files_per_shard)
        parts = [own[start : start + size] for start in range(0, len(own), size)]
        shards[shard_id] = tuple(
            write_file(folder, f"shard={shard_id:05d}/part-{number:05d}.parquet", "name", part)
            for number, part in enumerate(parts)
        )
    listed = sorted(namespaces)
    parents = [write_file(folder, "namespaces/part-00000.parquet", "namespace", listed)]
    manifest = LoadManifest(
        table=table,
        shards=shards,
        namespaces=tuple(parents),
        namespace_count=len(listed),
        rows_read=sum(map(len, by_shard.values())),
        duplicates=0,
        rejects=0,
    )
    (folder / LOAD_MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def write_file(folder: Path, path: str, column: str, values: Sequence[str]) -> LoadFile:
    """Write one column as a file and return its entry of the manifest."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({column: list(values)}), target)
    data = target.read_bytes()
    return LoadFile(
        path, len(values), len(data), hashlib.sha256(data).hexdigest(), values[0], values[-1]
    )
