"""The progress of an export, from its manifest, and from the cluster if it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nextgen.export.directory import read_manifest
from nextgen.export.format.manifest import ShardExported
from nextgen.export.log_source import ClusterLog, Committed, LogSource
from nextgen.export.report import bytes_per_event
from nextgen.export.stores.store import Store
from nextgen.export.stores.urls import open_store
from nextgen.export.threads import in_thread
from nextgen.kernel.errors import MetadataError


async def export_status(
    url: str | os.PathLike[str], *, endpoints: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a document with the export and, by shard, its lag behind the log.

    ``commit_position`` and the values computed from it are None if the cluster does not report it.

    Raises:
        ExportRefused: There is no export.
    """
    return await status_of(open_store(url), ClusterLog(endpoints) if endpoints else None)


async def status_of(store: Store, log: LogSource | None) -> dict[str, Any]:
    """Do the work of ``export_status``, with any store and any log."""
    manifest = await in_thread(read_manifest, store)
    known: Mapping[int, Committed] = {}
    error = ""
    if log is not None:
        try:
            known = await log.positions()
        except MetadataError as failure:
            error = str(failure)
    now_ms = int(time.time() * 1000)
    shards = [
        {"shard_id": shard_id} | _shard(manifest.shard(shard_id), known.get(shard_id), now_ms)
        for shard_id in sorted({*manifest.shards, *known})
    ]
    document = {
        "url": store.url,
        "cluster_id": manifest.cluster_id,
        "reader_id": manifest.reader_id,
        "schema_version": manifest.schema_version,
        "generation": manifest.generation,
        "events": sum(shard["rows"] for shard in shards),
        "bytes": sum(shard["bytes"] for shard in shards),
        "files": manifest.file_count,
        "shards": shards,
    }
    document["bytes_per_event"] = bytes_per_event(document["bytes"], document["events"])
    return document | ({"error": error} if error else {})


def _shard(exported: ShardExported, committed: Committed | None, now_ms: int) -> dict[str, Any]:
    last_time_ms = exported.files[-1].last_time_ms if exported.files else None
    position = committed.position if committed else None
    behind = None if position is None else max(0, position - exported.position)
    seconds = None
    if behind == 0:
        seconds = 0.0
    elif behind is not None and last_time_ms is not None:
        seconds = max(0, now_ms - last_time_ms) / 1000
    return {
        "exported_position": exported.position,
        "commit_position": position,
        "positions_behind": behind,
        "seconds_behind": seconds,
        "files": len(exported.files),
        "rows": sum(file.rows for file in exported.files),
        "bytes": sum(file.bytes for file in exported.files),
        "untyped_events": sum(file.untyped_events for file in exported.files),
        "accepted_gaps": len(exported.accepted_gaps),
    }
