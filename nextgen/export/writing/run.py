"""Runs an export: all shards of a cluster, and its cluster manager's log, into one directory."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog

from nextgen.export.directory import ExportDirectory, disk_errors
from nextgen.export.errors import WrongExport
from nextgen.export.log_source import ClusterLog, LogSource, known_positions
from nextgen.export.report import ExportSummary
from nextgen.export.stores.store import Store
from nextgen.export.stores.urls import open_store
from nextgen.export.threads import in_thread
from nextgen.export.writing.progress import Progress, ShardProgress
from nextgen.export.writing.shard_export import ShardExport
from nextgen.export.writing.shard_files import FileLimits
from nextgen.kernel.errors import Indefinite, Unavailable
from nextgen.kernel.limits.stream import EXPORT_LEASE_RENEWED_MS, EXPORT_SHARDS_LOOKED_FOR_MS
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID
from nextgen.tasks.background import cancel_and_wait, join
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout

_log = structlog.get_logger(__name__)


async def run_export(
    endpoints: Sequence[str],
    url: str | os.PathLike[str],
    *,
    follow: bool = False,
    cluster_id: str = "",
    accept_gap: bool = False,
    limits: FileLimits | None = None,
    stop: asyncio.Event | None = None,
    progress: Progress | None = None,
) -> ExportSummary:
    """Export every shard of a cluster to a directory, from the end of the present export on.

    Without ``follow`` the run ends at the positions that were committed at its beginning. With
    ``follow`` it runs until ``stop`` is set. ``stop`` ends the other kind early too. At the end all
    events that were read are in files. ``endpoints`` are discovery nodes. ``cluster_id``, if known,
    is compared with the export's. ``progress`` is filled during the run. If an export has shards
    but not shard 0, that one begins where the cluster manager's log begins; a cut beginning is
    accepted.

    Raises:
        ExportRefused: The directory is unusable, or another exporter uses it.
        WrongExport: It holds another cluster's log.
        ExportGap: The log was cut after the export's end, and ``accept_gap`` is not set.
        ExportStopped: The disk refuses. The next run continues.
        MetadataError: The cluster does not answer.
    """
    return await export_log(
        ClusterLog(endpoints),
        open_store(url),
        follow=follow,
        cluster_id=cluster_id,
        accept_gap=accept_gap,
        limits=limits,
        stop=stop,
        progress=progress,
    )


async def export_log(
    log: LogSource,
    store: Store,
    *,
    follow: bool = False,
    cluster_id: str = "",
    accept_gap: bool = False,
    limits: FileLimits | None = None,
    stop: asyncio.Event | None = None,
    progress: Progress | None = None,
) -> ExportSummary:
    """Do the work of ``run_export``, with any log and any store."""
    began = time.monotonic()
    directory = await in_thread(_open, store, cluster_id)
    try:
        run = _Run(
            directory,
            log,
            follow=follow,
            accept_gap=accept_gap,
            limits=limits or FileLimits(),
            stop=stop or asyncio.Event(),
            progress=progress if progress is not None else {},
        )
        async with _lease_kept(directory):
            await run.run()
        return run.summary(time.monotonic() - began)
    finally:
        await in_thread(directory.close)


def _open(store: Store, cluster_id: str) -> ExportDirectory:
    return ExportDirectory.open_for_writing(store, cluster_id=cluster_id)


class _Run:
    """All shards of one run."""

    def __init__(
        self,
        directory: ExportDirectory,
        log: LogSource,
        *,
        follow: bool,
        accept_gap: bool,
        limits: FileLimits,
        stop: asyncio.Event,
        progress: Progress,
    ) -> None:
        self._directory = directory
        self._log = log
        self._follow = follow
        self._accept_gap = accept_gap
        self._limits = limits
        self._stop = stop
        self._progress = progress
        exported = directory.manifest.shards
        # Exports of early releases lack shard 0, so that log was not pinned for them.
        self._is_managers_log_late = bool(exported) and CLUSTER_MANAGER_GROUP_ID not in exported

    async def run(self) -> None:
        positions = await self._positions()
        strange = sorted(set(self._directory.manifest.shards) - set(positions))
        if strange:
            raise WrongExport(
                f"{self._directory.store.url} has events of shards {strange}, the cluster has "
                f"{sorted(positions)}: it holds another cluster's log, export to another directory"
            )
        try:
            async with TaskGroup() as group:
                self._start(group, positions)
                while self._follow and not await self._stopped_within(EXPORT_SHARDS_LOOKED_FOR_MS):
                    await self._look_for_shards(group)
        except BaseExceptionGroup as failures:
            raise _first(failures) from None

    def summary(self, seconds: float) -> ExportSummary:
        shards = list(self._progress.values())
        return ExportSummary(
            url=self._directory.store.url,
            events=sum(one.rows for one in shards),
            files=sum(one.files for one in shards),
            bytes=sum(one.bytes for one in shards),
            seconds=round(seconds, 3),
            positions={
                shard_id: self._directory.manifest.shard(shard_id).position
                for shard_id in self._progress
            },
            untyped_events=sum(one.untyped_events for one in shards),
        )

    def _start(self, group: TaskGroup, positions: Mapping[int, int]) -> None:
        """Start the export of the shards that are not being exported yet."""
        for shard_id, position in sorted(positions.items()):
            known = self._progress.get(shard_id)
            if known is not None:
                known.commit_position = max(known.commit_position, position)
                continue
            is_managers = shard_id == CLUSTER_MANAGER_GROUP_ID
            progress = self._progress[shard_id] = ShardProgress(commit_position=position)
            shard = ShardExport(
                self._directory,
                self._log,
                shard_id,
                progress,
                target=None if self._follow else position,
                stop=self._stop,
                limits=self._limits,
                accept_gap=self._accept_gap,
                accept_cut_beginning=self._is_managers_log_late and is_managers,
            )
            group.create_task(shard.run())

    async def _positions(self) -> dict[int, int]:
        found = await known_positions(self._log, from_leaders=not self._follow)
        return {shard_id: each.position or 0 for shard_id, each in found.items()}

    async def _look_for_shards(self, group: TaskGroup) -> None:
        try:
            self._start(group, await self._positions())
        except (Unavailable, Indefinite) as error:
            # The known shards continue, and fail by themselves if they cannot.
            _log.warning("export_shards_not_known", error=str(error))

    async def _stopped_within(self, timeout_ms: int) -> bool:
        try:
            async with timeout(timeout_ms / 1000):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True


@asynccontextmanager
async def _lease_kept(directory: ExportDirectory) -> AsyncIterator[None]:
    """Renew the store's lease while the block runs; the block fails when the lease is lost."""
    block = asyncio.current_task()
    assert block is not None

    async def keep() -> None:
        while True:
            await asyncio.sleep(EXPORT_LEASE_RENEWED_MS / 1000)
            await in_thread(_confirm, directory)

    keeping = join(keep())
    keeping.add_done_callback(lambda task: None if task.cancelled() else block.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if keeping.done() and not keeping.cancelled():
            block.uncancel()
            keeping.result()
        raise
    finally:
        await cancel_and_wait(keeping)


def _confirm(directory: ExportDirectory) -> None:
    with disk_errors(directory.store):
        directory.store.confirm()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first of several failures: the others are mostly its consequences."""
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
