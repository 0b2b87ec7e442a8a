"""Loads a folder of load files into a cluster: each shard's names to its leader, block by block.

    file ──▶ block ──▶ up to BULK_IN_FLIGHT_MAX requests per shard ──▶ answers in order ──▶ counts

Shards are loaded in parallel. A request that fails is sent again: topics that exist already are
counted as existing. So a load may be stopped at any moment and started again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TextIO

from nextgen.bulk.blocks import blocks_of
from nextgen.bulk.cluster_source import AskedCluster
from nextgen.bulk.errors import LoadRefused
from nextgen.bulk.manifest import LoadFile, LoadManifest, check_files, read_load_manifest
from nextgen.bulk.parents import create_parents
from nextgen.bulk.progress import (
    Loaded,
    OnLoaded,
    ShardLoaded,
    fingerprint,
    read_loaded,
    save_loaded,
)
from nextgen.client.client import Client
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import (
    Indefinite,
    MetadataError,
    NotLeader,
    Overloaded,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.limits.bulk import BULK_IN_FLIGHT_MAX, BULK_REQUEST_TIMEOUT_MS
from nextgen.tasks.background import join
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.shard_service_pb2 import (
    BulkCreateRequest,
    BulkCreateResponse,
    ShardRequest,
    ShardResponse,
)

BULK_REFUSALS_KEPT_MAX = 100_000
"""Refused names that a loader writes down, some 200 bytes each; beyond it they are counted."""

REFUSED = "refused.jsonl"
"""File in the folder with the names that shards refused in this load and those that it resumes, one
JSON object a line. A killed load's unsaved refusals are repeated when it is resumed."""

PATIENCE_S = 120.0
"""The load ends when a shard has accepted no block for this long. It can be resumed."""

PAUSE_S = 0.25
"""Pause before a block is sent again."""

SAVE_S = 2.0
"""Interval of saves of the load's progress."""

_PASSING = (Indefinite, NotLeader, Overloaded, Unavailable)


async def load_folder(
    folder: Path,
    endpoints: Sequence[str],
    *,
    parents: bool = False,
    resume: bool = False,
    on_loaded: OnLoaded = lambda loaded: None,
) -> Loaded:
    """Create the topics of ``folder`` in the cluster of the discovery nodes at ``endpoints``.

    ``parents``: create missing tenants and namespaces first. ``resume``: continue behind the last
    answered name of the previous load of the same files, if the cluster still has that name.
    ``on_loaded`` is called after each answer, always with the same object of growing counts.

    Raises:
        LoadRefused: The files are damaged or were made for another shard map, or the load's
            progress cannot be written to the folder.
        MetadataError: The cluster did not answer for ``PATIENCE_S``; created topics stay.
    """
    began = time.monotonic()
    manifest = read_load_manifest(folder)
    source = AskedCluster(endpoints)
    client = Client(list(endpoints))
    pool = ExchangePool(lambda: source.view.shard_map_version)
    loaded = Loaded()
    load = FolderLoad(folder, manifest, ShardRouter(source, pool), loaded, on_loaded)
    try:
        await asyncio.to_thread(check_files, folder, manifest)
        await source.ask()
        _check_map(manifest, source)
        if parents:
            created = await create_parents(client, folder, manifest)
            loaded.tenants_created = created.tenants
            loaded.namespaces_created = created.namespaces
        if resume:
            await load.skip_loaded(client)
        await load.run()
    finally:
        await pool.stop()
        await client.close()
        await source.close()
    loaded.elapsed_s = time.monotonic() - began
    return loaded


def _check_map(manifest: LoadManifest, source: AskedCluster) -> None:
    table = source.view.slot_table
    assert table is not None, "the request raises if there is no map"
    if table.owners != manifest.table.owners:
        raise LoadRefused(
            f"the files were made for version {manifest.table.version} of a shard map, the "
            f"cluster's version {table.version} gives slots to other shards: make them again"
        )


class Shards(Protocol):
    """Sends requests to a shard's leader: a ``ShardRouter``."""

    async def call(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int
    ) -> ShardResponse: ...


class FolderLoad:
    """One load under way."""

    def __init__(
        self,
        folder: Path,
        manifest: LoadManifest,
        router: Shards,
        loaded: Loaded,
        on_loaded: OnLoaded,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._router = router
        self._loaded = loaded
        self._on_loaded = on_loaded
        self._load = fingerprint(folder)
        self._saved_at = time.monotonic()
        self._refusals_kept = 0
        for shard_id, files in manifest.shards.items():
            loaded.shards[shard_id] = ShardLoaded(sum(file.rows for file in files))

    async def skip_loaded(self, client: Client) -> None:
        """Start each shard behind its saved progress, if the last name of that exists."""
        for shard_id, note in read_loaded(self._folder).items():
            shard = self._loaded.shards.get(shard_id)
            refused = sum(note.refusals.values())
            if shard is None or not refused < note.rows <= shard.rows_total or not note.last_name:
                continue
            if await client.get_topic(note.last_name) is not None:
                shard.rows, shard.skipped = note.rows, note.rows - refused
                shard.refusals.update(note.refusals)
                shard.last_name = note.last_name

    async def run(self) -> None:
        """Load all shards. The progress is saved even if the load fails.

        Raises:
            LoadRefused: A file was changed meanwhile, or the progress cannot be written.
            MetadataError: A shard accepted no block for ``PATIENCE_S``.
        """
        self._refusals_kept = min(self._loaded.total("refused"), BULK_REFUSALS_KEPT_MAX)
        mode: Literal["a", "w"] = "a" if self._loaded.total("rows") else "w"
        try:
            with (self._folder / REFUSED).open(mode, encoding="utf-8") as refused:
                try:
                    async with TaskGroup() as tasks:
                        for shard_id, files in self._manifest.shards.items():
                            tasks.create_task(self._load_shard(shard_id, files, refused))
                except ExceptionGroup as group:
                    raise _first(group) from None
                finally:
                    self._save(refused)
        except OSError as error:
            raise LoadRefused(
                f"the load's progress cannot be written to {self._folder}: "
                f"{error.strerror or error}"
            ) from error

    async def _load_shard(self, shard_id: int, files: Sequence[LoadFile], refused: TextIO) -> None:
        shard = self._loaded.shards[shard_id]
        under_way: deque[tuple[list[str], asyncio.Task[BulkCreateResponse]]] = deque()
        try:
            for block in blocks_of(self._folder, files, skip=shard.rows):
                if len(under_way) == BULK_IN_FLIGHT_MAX:
                    await self._settle(shard_id, under_way, refused)
                task = join(self._send(shard_id, block))
                under_way.append((block, task))
            while under_way:
                await self._settle(shard_id, under_way, refused)
        finally:
            for _, task in under_way:
                task.cancel()
            await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)

    async def _settle(
        self,
        shard_id: int,
        under_way: deque[tuple[list[str], asyncio.Task[BulkCreateResponse]]],
        refused: TextIO,
    ) -> None:
        """Wait for the oldest block's answer, and count it."""
        block, task = under_way[0]
        answer = await task
        under_way.popleft()
        shard = self._loaded.shards[shard_id]
        shard.created += answer.created
        shard.existing += answer.existing
        shard.rows += len(block)
        places = {refusal.place for refusal in answer.refusals}
        there = (name for place, name in enumerate(block) if place not in places)
        shard.last_name = max(there, default=shard.last_name)
        for refusal in answer.refusals:
            shard.refusals[refusal.rejection_code] += 1
            if self._refusals_kept < BULK_REFUSALS_KEPT_MAX:
                self._refusals_kept += 1
                line = {
                    "name": block[refusal.place],
                    "shard_id": shard_id,
                    "code": refusal.rejection_code,
                    "message": refusal.message,
                }
                refused.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._on_loaded(self._loaded)
        if time.monotonic() >= self._saved_at + SAVE_S:
            self._save(refused)

    def _save(self, refused: TextIO) -> None:
        self._saved_at = time.monotonic()
        # Refusals first: a resumed load does not repeat names that are saved as answered.
        refused.flush()
        save_loaded(self._folder, self._load, self._loaded)

    async def _send(self, shard_id: int, block: list[str]) -> BulkCreateResponse:
        """Send ``block`` until there is an answer; return that."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            request = ShardRequest(bulk_create=BulkCreateRequest(names=block))
            try:
                answer = await self._router.call(
                    shard_id, request, timeout_ms=BULK_REQUEST_TIMEOUT_MS
                )
            except StaleShardMap as error:
                raise LoadRefused(
                    f"the shard map changed while loading ({error}): make the load files again"
                ) from error
            except _PASSING:
                if time.monotonic() >= give_up_at:
                    raise
                await asyncio.sleep(PAUSE_S)
                continue
            found = answer.bulk_create
            if found.created + found.existing + len(found.refusals) != len(block):
                raise Unavailable(f"shard {shard_id} did not account for every name of a block")
            return found


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """Return the failure to report: an expected one if there is any."""
    known = [each for each in group.exceptions if isinstance(each, MetadataError)]
    return known[0] if known else group.exceptions[0]
