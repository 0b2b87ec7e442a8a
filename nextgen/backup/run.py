"""Takes a backup: snapshots of all shards, one consistent cut, and the manifest last.

    snapshot of every shard ─▶ positions of all leaders ─▶ events up to there ─▶ cut ─▶ changes,
    8 shards at a time          (linearizable)                                           manifest

An interrupted backup goes on: the snapshots that are in the directory are used again, as long as
the log behind them is kept (ADR 0092).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from nextgen.backup.cluster import BackupCluster, counts_of
from nextgen.backup.cut import consistent_cut
from nextgen.backup.errors import BackupUnusable, CutNotFound
from nextgen.backup.files import ItemsWriter, check_file
from nextgen.backup.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    PROGRESS,
    QUOTAS,
    Manifest,
    ShardBackup,
    encode_manifest,
    file_of,
)
from nextgen.backup.shard_reading import (
    ShardSnapshot,
    find_sources,
    read_tail,
    reopen_snapshot,
    take_snapshot,
    write_changed,
)
from nextgen.client.log.reader import pin_log
from nextgen.export.stores.store import Store
from nextgen.kernel.errors import MetadataError, PositionCompacted, Unavailable
from nextgen.kernel.events.generations import next_generation_epoch
from nextgen.kernel.governance.quota_file import to_bytes
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json
from nextgen.kernel.limits.bulk import BACKUP_PIN_TTL_MS, BACKUP_SHARDS_READ_MAX
from nextgen.kernel.routing.slots import have_all_slots
from nextgen.tasks.background import cancel_and_wait, join
from protos.nextgen.v1.shard_service_pb2 import CutResponse

ATTEMPTS = 5
"""Attempts to close the cut, and to keep up with a log that is cut meanwhile."""


SLOTS_MOVED_PAUSES_S = (5.0, 20.0)
"""Pauses before another attempt, if slots have moved meanwhile."""


@dataclass(slots=True)
class BackupProgress:
    """How far a backup is, for people."""

    objects: int = 0
    total: int = 0
    """As counted when it began."""
    shards: int = 0
    shards_read: int = 0
    resumed: int = 0
    """Of ``shards_read``, those whose snapshot an interrupted backup had taken."""


Slots = dict[int, tuple[int, int]]
"""By shard: a digest of its slots, and its last move that was over."""

OnProgress = Callable[[BackupProgress], None]


@dataclass(slots=True)
class _Noted:
    """What an interrupted backup has left."""

    backup_id: str
    snapshots: dict[int, dict[str, object]] = field(default_factory=dict)
    slots: Slots = field(default_factory=dict)
    """As when the first of the snapshots was begun."""


class _SlotsMoved(Unavailable):
    """Slots moved between shards while their snapshots were taken."""

    reason = "SLOTS_MOVED"


class BackupRun:
    """One backup into ``store``, which it holds."""

    def __init__(
        self,
        cluster: BackupCluster,
        store: Store,
        on_progress: OnProgress = lambda progress: None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1_000),
    ) -> None:
        self.progress = BackupProgress()
        self._cluster = cluster
        self._store = store
        self._on_progress = on_progress
        self._now_ms = now_ms
        self._places = asyncio.Semaphore(BACKUP_SHARDS_READ_MAX)
        self._noted = _Noted(secrets.token_hex(8))

    async def run(self) -> Manifest:
        """Take the backup, and return its manifest.

        Raises:
            BackupUnusable: The directory holds something else, or a whole backup already.
            MetadataError: The cluster does not answer. A repetition goes on.
            OSError: The store cannot be written.
        """
        check_free(self._store)
        self._store.acquire()
        try:
            check_free(self._store)
            self._noted = read_progress(self._store) or self._noted
            return await self._take_while_slots_stay()
        finally:
            self._store.release()

    async def _take_while_slots_stay(self) -> Manifest:
        for pause_s in SLOTS_MOVED_PAUSES_S:
            try:
                return await self._take()
            except _SlotsMoved:
                self._forget_snapshots()
                await asyncio.sleep(pause_s)
        return await self._take()

    async def _take(self) -> Manifest:
        table = await self._cluster.table()
        shard_ids = table.shard_ids
        cuts = await self._cluster.cuts(shard_ids)
        restoring = [shard_id for shard_id, cut in cuts.items() if cut.restore_phase == "begun"]
        if restoring:
            raise BackupUnusable(
                f"shards {restoring} are being restored: finish 'nextgen restore' first"
            )
        self._note_slots(cuts)
        self.progress.shards = len(shard_ids)
        self.progress.total = counts_of(cuts.values()).total
        # Before the snapshots: quotas name tenants and brokers, and nothing names quotas.
        quotas = await self._cluster.quotas.read()
        settings = await self._cluster.settings.read()
        snapshots = await self._snapshots(
            {shard_id: cut.position for shard_id, cut in cuts.items()}
        )
        cut, cuts = await self._close(snapshots)
        if slots_in(cuts) != self._noted.slots:
            raise _moved()
        shards = {}
        for shard_id, snapshot in snapshots.items():
            changed, counts = await asyncio.to_thread(
                write_changed, self._store, snapshot, cut[shard_id]
            )
            shards[shard_id] = ShardBackup(
                cut[shard_id], snapshot.tail.position, counts, snapshot.file, changed
            )
        manifest = Manifest(
            self._noted.backup_id,
            self._now_ms(),
            next_generation_epoch(max(each.least_epoch for each in cuts.values())),
            table.version,
            shards,
            quotas,
            settings,
        )
        if quotas is not None:
            # As a file for 'nextgen quotas apply', where they fit no broker at a restore.
            self._store.replace(QUOTAS, to_bytes(replace(quotas, version=1)))
        self._store.replace(MANIFEST, encode_manifest(manifest))
        self._store.remove(PROGRESS)
        await self._unpin(shard_ids)
        return manifest

    # Slots ------------------------------------------------------------------------------------

    def _note_slots(self, cuts: Mapping[int, CutResponse]) -> None:
        """Note which shard has which slots; snapshots from when that was otherwise are of no use.

        Raises:
            _SlotsMoved: A slot is between two shards: no snapshot would have its objects.
        """
        digests = [
            cut.slots_digest if cut.HasField("slots_digest") else None for cut in cuts.values()
        ]
        if not have_all_slots(digests):
            raise _moved()
        slots = slots_in(cuts)
        if self._noted.slots != slots:
            self._noted.slots = slots
            self._noted.snapshots.clear()

    def _forget_snapshots(self) -> None:
        self._noted.snapshots.clear()
        self.progress = BackupProgress()
        for file in self._store.list():
            if not file.path.startswith("."):
                self._store.remove(file.path)
        self._save()

    # Snapshots --------------------------------------------------------------------------------

    async def _snapshots(self, positions: Mapping[int, int]) -> dict[int, ShardSnapshot]:
        tasks = [join(self._snapshot(*each)) for each in positions.items()]
        try:
            taken = await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)
        return {snapshot.shard_id: snapshot for snapshot in taken}

    async def _snapshot(self, shard_id: int, position: int) -> ShardSnapshot:
        async with self._places:
            snapshot = await self._resumed(shard_id, position)
            if snapshot is None:
                await self._pin(shard_id, position)
                snapshot = await self._taken(shard_id)
        self.progress.shards_read += 1
        self._on_progress(self.progress)
        return snapshot

    async def _taken(self, shard_id: int) -> ShardSnapshot:
        snapshot = await take_snapshot(
            self._cluster.link,
            shard_id,
            f"backup-{self._noted.backup_id}-{shard_id}-{secrets.token_hex(4)}",
            lambda: ItemsWriter(self._store, f"shard-{shard_id:05d}"),
            self._count,
        )
        self._noted.snapshots[shard_id] = {
            "position": snapshot.tail.position,
            "file": asdict(snapshot.file),
        }
        self._save()
        return snapshot

    async def _resumed(self, shard_id: int, position: int) -> ShardSnapshot | None:
        """Return the snapshot of an interrupted backup, None if it is of no use any more."""
        noted = self._noted.snapshots.pop(shard_id, None)
        if noted is None:
            return None
        try:
            file = file_of(noted["file"])  # type: ignore[arg-type]
            await asyncio.to_thread(check_file, self._store, file)
            snapshot = await asyncio.to_thread(
                reopen_snapshot, self._store, shard_id, as_count(noted["position"]), file
            )
            await read_tail(self._cluster.endpoints, snapshot, position)
        except (BackupUnusable, PositionCompacted, ValueError, KeyError, TypeError):
            return None
        self._noted.snapshots[shard_id] = noted
        self.progress.resumed += 1
        self._count(sum(snapshot.counts.values()))
        return snapshot

    # The cut ----------------------------------------------------------------------------------

    async def _close(
        self, snapshots: dict[int, ShardSnapshot]
    ) -> tuple[dict[int, int], dict[int, CutResponse]]:
        """Return the cut, and where the shards were behind it."""
        for attempt in range(ATTEMPTS):
            # AFTER every snapshot has its position: see ``nextgen.backup.cut``.
            cuts = await self._cluster.cuts(sorted(snapshots))
            for shard_id in snapshots:
                snapshots[shard_id] = await self._with_tail(
                    snapshots[shard_id], cuts[shard_id].position
                )
            try:
                await asyncio.to_thread(find_sources, self._store, snapshots.values())
                tails = {shard_id: each.tail for shard_id, each in snapshots.items()}
                return consistent_cut(tails), cuts
            except CutNotFound:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    async def _with_tail(self, snapshot: ShardSnapshot, position: int) -> ShardSnapshot:
        for attempt in range(ATTEMPTS):
            try:
                await read_tail(self._cluster.endpoints, snapshot, position)
                return snapshot
            except PositionCompacted:
                if attempt == ATTEMPTS - 1:
                    raise
                self._count(-sum(snapshot.counts.values()))
                snapshot = await self._taken(snapshot.shard_id)
        raise AssertionError("the loop returns or raises")

    # Notes and pins ---------------------------------------------------------------------------

    def _count(self, objects: int) -> None:
        self.progress.objects += objects
        self._on_progress(self.progress)

    def _save(self) -> None:
        content = {
            "format_version": FORMAT_VERSION,
            "backup_id": self._noted.backup_id,
            "snapshots": {str(key): each for key, each in self._noted.snapshots.items()},
            "slots": {str(key): list(each) for key, each in self._noted.slots.items()},
        }
        self._store.replace(PROGRESS, json.dumps(content).encode())

    async def _pin(self, shard_id: int, position: int) -> None:
        """Ask the shard to keep its log. Without the pin the snapshot may have to be repeated."""
        with contextlib.suppress(MetadataError):
            await pin_log(
                self._cluster.endpoints,
                shard_id,
                self._reader_id,
                max(1, position),
                ttl_ms=BACKUP_PIN_TTL_MS,
            )

    async def _unpin(self, shard_ids: Sequence[int]) -> None:
        for shard_id in shard_ids:
            # A pin that is not released ends by itself.
            with contextlib.suppress(MetadataError):
                await pin_log(self._cluster.endpoints, shard_id, self._reader_id, 1, ttl_ms=0)

    @property
    def _reader_id(self) -> str:
        return f"backup-{self._noted.backup_id}"


def slots_in(cuts: Mapping[int, CutResponse]) -> Slots:
    """Return what says whether the slots of any shard have changed."""
    return {shard_id: (cut.slots_digest, cut.settled_move_id) for shard_id, cut in cuts.items()}


def _moved() -> _SlotsMoved:
    return _SlotsMoved(
        "slots move between shards: 'nextgen shards plans' shows the plan; take the backup once "
        "it is done, or stop it with 'nextgen shards stop'"
    )


def check_free(store: Store) -> None:
    """Check that ``store`` is empty, or holds an unfinished backup.

    Raises:
        BackupUnusable: It is neither.
    """
    if store.read(MANIFEST) is not None:
        raise BackupUnusable(
            f"{store.url} holds a whole backup already: give each backup a directory of its own"
        )
    names = [file.path for file in store.list() if not file.path.startswith(".")]
    if names and store.read(PROGRESS) is None:
        raise BackupUnusable(
            f"{store.url} holds files that are not of a backup, such as {names[0]}: give each "
            "backup a directory of its own"
        )


def read_progress(store: Store) -> _Noted | None:
    """Return what an interrupted backup has left, None if there is nothing of use."""
    content = store.read(PROGRESS)
    try:
        fields = parse_json(content or b"")
        if fields.get("format_version") != FORMAT_VERSION:
            return None  # Of another release: its snapshots may lack objects.
        snapshots = {int(key): dict(each) for key, each in fields["snapshots"].items()}
        slots = {
            int(key): (as_count(digest), as_count(move_id))
            for key, (digest, move_id) in fields.get("slots", {}).items()
        }
        return _Noted(as_text(fields["backup_id"]), snapshots, slots)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
