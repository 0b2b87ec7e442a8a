"""Brings a backup into an empty cluster, whatever its number of shards.

    check all files ─▶ every shard begins the restore (only an empty one does)
      ─▶ tenants ─▶ namespaces ─▶ topics ─▶ layouts of scalable topics     each to its home shard
                                    ╰─▶ sources of shadows, by name
      ─▶ quotas ─▶ all there? every shard ends it

Each step may be repeated, and finds what is done. So an interrupted restore is finished by the same
command; nothing else changes the cluster's inventories meanwhile (ADR 0092).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import attrgetter

from nextgen.backup.cluster import BackupCluster, counts_of
from nextgen.backup.errors import BackupUnusable, RestoreRefused
from nextgen.backup.files import check_file, read_pages
from nextgen.backup.manifest import (
    MANIFEST,
    PROGRESS,
    QUOTAS,
    Counts,
    Manifest,
    ShardBackup,
    decode_manifest,
)
from nextgen.backup.objects import KINDS, Key, value_of
from nextgen.export.stores.store import Store
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.generations import GENERATION_BITS, GENERATIONS_MAX, generation_of
from nextgen.kernel.limits.bulk import (
    BULK_IN_FLIGHT_MAX,
    RESTORE_ITEMS_BYTES_MAX,
    RESTORE_ITEMS_MAX,
    RESTORE_LAYOUTS_BYTES,
)
from nextgen.kernel.limits.inbound import GRPC_REQUEST_FIELDS_MAX
from nextgen.kernel.routing.ids import is_id, slot_of_id
from nextgen.kernel.routing.names import Domain, InvalidName, parse_topic
from nextgen.kernel.routing.shadows import shadow_source_of
from nextgen.kernel.routing.slots import SlotTable
from nextgen.tasks.background import cancel_and_wait, join
from protos.nextgen.v1.inventory_pb2 import (
    KIND_SCALABLE_TOPIC,
    KIND_TOPIC,
    Item,
    Kind,
    TopicPointer,
)
from protos.nextgen.v1.shard_service_pb2 import (
    CutResponse,
    MarkRestoreRequest,
    RestoreRequest,
    RestoreResponse,
    ShardRequest,
)

FIELDS_OF_ITEM = 32
"""Fields of an object without properties and policies, rounded up."""

BEGUN, ENDED, ABANDONED = "begun", "ended", "abandoned"


@dataclass(slots=True)
class Restored:
    """What a restore did. ``created`` and ``existing`` count objects."""

    backup_id: str = ""
    counts: Counts = field(default_factory=Counts)
    created: int = 0
    existing: int = 0
    was_done: bool = False
    """An earlier run had finished it: nothing was changed."""
    not_restored: list[str] = field(default_factory=list)
    """What has to be done by hand, in sentences."""

    @property
    def done(self) -> int:
        return self.created + self.existing

    @property
    def total(self) -> int:
        return self.counts.total


OnRestored = Callable[[Restored], None]


def open_backup(store: Store) -> Manifest:
    """Return the manifest of a backup all of whose files are there, whole and unaltered.

    Raises:
        BackupUnusable: It is not.
        OSError: The store cannot be read.
    """
    content = store.read(MANIFEST)
    if content is None:
        cut_off = store.read(PROGRESS) is not None
        why = "it was cut off: run 'nextgen backup' on it again" if cut_off else "there is none"
        raise BackupUnusable(f"{store.url} holds no whole backup, {MANIFEST} is missing ({why})")
    manifest = decode_manifest(content, store.url)
    for shard in manifest.shards.values():
        for file in shard.files:
            check_file(store, file)
    return manifest


class RestoreRun:
    """One restore of ``store`` into ``cluster``.

    Its epochs begin in ``generation``, by default the one behind those of the backed up cluster.
    """

    def __init__(
        self,
        cluster: BackupCluster,
        store: Store,
        on_restored: OnRestored = lambda restored: None,
        *,
        generation: int | None = None,
    ) -> None:
        self.restored = Restored()
        self._cluster = cluster
        self._store = store
        self._on_restored = on_restored
        self._generation = generation
        self._sources: set[str] = set()
        """Of all restored shadows."""

    async def run(self) -> Restored:
        """Restore everything.

        Raises:
            BackupUnusable: The backup is not whole. The cluster was not touched.
            RestoreRefused: The cluster has objects of its own, or another restore is under way, or
                the backed up cluster had the generation already.
            MetadataError: The cluster does not answer. A repetition goes on.
        """
        manifest = await asyncio.to_thread(open_backup, self._store)
        if self._generation is not None:
            manifest = begun_in(manifest, self._generation)
        self.restored.backup_id, self.restored.counts = manifest.backup_id, manifest.counts
        table = await self._cluster.table()
        cuts = await self._cluster.cuts(table.shard_ids)
        check_target(cuts, manifest.backup_id)
        # An interrupted restore goes on in the generation that it has begun.
        begun = max(cut.least_epoch for cut in cuts.values())
        manifest = replace(manifest, least_epoch=max(manifest.least_epoch, begun))
        ended = [cut.restore_phase == ENDED for cut in cuts.values()]
        if all(ended):
            self.restored.was_done = True
            return self.restored
        if not any(ended):
            # The first shard ends it when every object is there.
            await self._begin(manifest, cuts)
            for kind in KINDS:
                await self._restore(manifest, kind, table)
                if kind == KIND_TOPIC:
                    await self._restore_sources(manifest, table)
            await self._check_counts(manifest, table)
            await self._restore_quotas(manifest)
            await self._restore_settings(manifest)
        await self._mark(table.shard_ids, manifest, ENDED)
        return self.restored

    async def _begin(self, manifest: Manifest, cuts: Mapping[int, CutResponse]) -> None:
        """Begin the restore in every shard, or in none."""
        try:
            await self._mark(sorted(cuts), manifest, BEGUN)
        except Refused as refused:
            begun = [shard_id for shard_id, cut in cuts.items() if cut.restore_phase != BEGUN]
            for shard_id in begun:
                try:
                    await self._mark([shard_id], manifest, ABANDONED)
                except Refused:
                    continue
            raise RestoreRefused(f"the cluster is not empty any more: {refused}") from refused

    async def _mark(self, shard_ids: Sequence[int], manifest: Manifest, phase: str) -> None:
        request = MarkRestoreRequest(
            restore_id=manifest.backup_id, phase=phase, least_epoch=manifest.least_epoch
        )
        answers = [
            self._cluster.ask(shard_id, ShardRequest(mark_restore=request))
            for shard_id in shard_ids
        ]
        for answer in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def _restore(self, manifest: Manifest, kind: Kind, table: SlotTable) -> None:
        """Send all objects of a kind; return once every shard has committed them."""
        sending: dict[int, list[asyncio.Task[None]]] = defaultdict(list)
        batches = batches_of(self._store, manifest, kind, table)
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                shard_id, items = batch
                self._sources.update(sources_of(items))
                tasks = sending[shard_id]
                tasks.append(join(self._send(manifest.backup_id, shard_id, items)))
                if len(tasks) >= BULK_IN_FLIGHT_MAX:
                    await tasks.pop(0)
            for tasks in sending.values():
                await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*(task for tasks in sending.values() for task in tasks))

    async def _send(self, restore_id: str, shard_id: int, items: Sequence[Item]) -> None:
        request = RestoreRequest(restore_id=restore_id, items=items)
        answer = await self._cluster.ask(shard_id, ShardRequest(restore=request))
        found: RestoreResponse = answer.restore
        self.restored.created += found.created
        self.restored.existing += found.existing
        self._on_restored(self.restored)

    async def _restore_sources(self, manifest: Manifest, table: SlotTable) -> None:
        """Have the home shards of sources know that these have shadows, in whichever shard."""
        names: dict[int, list[str]] = defaultdict(list)
        for source in sorted(self._sources):
            names[table.shard_for_key(parse_topic(source).routing_key)].append(source)
        for shard_id, at_shard in names.items():
            for start in range(0, len(at_shard), RESTORE_ITEMS_MAX):
                some = at_shard[start : start + RESTORE_ITEMS_MAX]
                request = RestoreRequest(restore_id=manifest.backup_id, shadow_sources=some)
                await self._cluster.ask(shard_id, ShardRequest(restore=request))

    async def _check_counts(self, manifest: Manifest, table: SlotTable) -> None:
        cuts = await self._cluster.cuts(table.shard_ids)
        found = counts_of(cuts.values())
        if found != manifest.counts:
            raise BackupUnusable(
                f"the cluster has {found} after the restore, the backup says {manifest.counts}: "
                "the restore has not ended, and the cluster takes no changes"
            )

    async def _restore_quotas(self, manifest: Manifest) -> None:
        if manifest.quotas is None:
            return
        try:
            await self._cluster.quotas.write(manifest.quotas)
        except Refused as refused:
            self.restored.not_restored.append(
                f"quotas ({refused}): once the brokers that they name are there, set them with "
                f"'nextgen quotas apply {self._store.url}/{QUOTAS}'"
            )

    async def _restore_settings(self, manifest: Manifest) -> None:
        if not manifest.settings:
            return
        try:
            await self._cluster.settings.write(manifest.settings)
        except Refused as refused:
            pairs = " ".join(f"{name}={text}" for name, text in sorted(manifest.settings.items()))
            self.restored.not_restored.append(
                f"settings ({refused}): set those that are wanted with "
                f"'nextgen brokers settings set {pairs}'"
            )


def begun_in(manifest: Manifest, generation: int) -> Manifest:
    """Return a manifest whose epochs begin in a later generation than those of its backup.

    Two restores of one backup over the same ledger directory need different generations.

    Raises:
        RestoreRefused: There is no such generation, or the backed up cluster may have been in it.
    """
    least = generation_of(manifest.least_epoch)
    if not least <= generation < GENERATIONS_MAX:
        raise RestoreRefused(
            f"epochs of this backup can begin in generations {least} to {GENERATIONS_MAX - 1}, "
            f"not in {generation}"
        )
    return replace(manifest, least_epoch=generation << GENERATION_BITS)


def check_target(cuts: Mapping[int, CutResponse], backup_id: str) -> None:
    """Check that a restore of this backup may begin, or go on, in a cluster.

    Raises:
        RestoreRefused: It may not. Nothing was changed.
    """
    for shard_id, cut in sorted(cuts.items()):
        if cut.restore_phase == BEGUN and cut.restore_id != backup_id:
            raise RestoreRefused(
                f"the restore of backup {cut.restore_id} has not ended in shard {shard_id}: finish "
                "that one, or restore into an empty cluster"
            )
    own = [cut for cut in cuts.values() if cut.restore_id != backup_id or not is_open(cut)]
    present = counts_of(own)
    if present != Counts():
        raise RestoreRefused(
            f"the cluster has {present} of its own: a backup is restored into an empty cluster only"
        )


def is_open(cut: CutResponse) -> bool:
    """Return whether the restore that ``cut`` names was begun, and not given up."""
    return cut.restore_phase in (BEGUN, ENDED)


# The objects of a backup ------------------------------------------------------------------------


def objects_of(store: Store, shard: ShardBackup, kind: Kind) -> Iterator[Item]:
    """Yield the objects of a kind in one shard's backup, by name.

    Raises:
        BackupUnusable: A file is damaged.
    """
    changed: dict[Key, Item] = {}
    if shard.changed is not None:
        for items in read_pages(store, shard.changed):
            changed |= {(item.kind, item.name): item for item in items if item.kind == kind}
    kept = (
        item
        for items in takewhile(lambda page: page[0].kind <= kind, read_pages(store, shard.items))
        if items[-1].kind >= kind
        for item in items
        if item.kind == kind and (kind, item.name) not in changed
    )
    there = [item for item in changed.values() if item.WhichOneof("value")]
    yield from heapq.merge(kept, sorted(there, key=_name), key=_name)


def sources_of(items: Sequence[Item]) -> Iterator[str]:
    """Yield the names of the topics of which some of ``items`` are shadows.

    A property that an earlier release took for one of the users' may have any value.
    """
    for item in items:
        text = shadow_source_of(item.topic.properties) if item.kind == KIND_TOPIC else ""
        if text and _is_source(text):
            yield text


def _is_source(text: str) -> bool:
    try:
        name = parse_topic(text)
    except InvalidName:
        return False
    return name.domain is Domain.PERSISTENT and name.base_text == text


def batches_of(
    store: Store, manifest: Manifest, kind: Kind, table: SlotTable
) -> Iterator[tuple[int, list[Item]]]:
    """Yield the objects of a kind by the shard of ``table`` that they go to, ascending by name.

    Memory: a batch for each shard, and a page of each of the backup's files.
    """
    waiting: dict[int, _Batch] = defaultdict(lambda: _Batch(kind))
    sources = [objects_of(store, shard, kind) for shard in manifest.shards.values()]
    for item in heapq.merge(*sources, key=_name):
        for shard_id, part in parts_of(item, table):
            batch = waiting[shard_id]
            size, fields = part.ByteSize(), fields_of(part)
            if batch.items and not batch.has_room(size, fields):
                yield shard_id, batch.items
                batch = waiting[shard_id] = _Batch(kind)
            batch.add(part, size, fields)
    for shard_id, batch in waiting.items():
        yield shard_id, batch.items


def parts_of(item: Item, table: SlotTable) -> Iterator[tuple[int, Item]]:
    """Yield what each shard gets of an object: a renamed topic goes to the home that its id names,
    and the shard of its name gets a pointer to there (ADR 0172)."""
    named = table.shard_for_key(routing_key_of(item))
    if item.kind != KIND_TOPIC or not is_id(item.topic.topic_id):
        yield named, item
        return
    home = table.owners[slot_of_id(item.topic.topic_id)]
    yield home, item
    if home != named:
        pointer = TopicPointer(topic_id=item.topic.topic_id)
        yield named, Item(kind=KIND_TOPIC, name=item.name, pointer=pointer)


_name = attrgetter("name")


class _Batch:
    def __init__(self, kind: Kind) -> None:
        self.items: list[Item] = []
        is_layout = kind == KIND_SCALABLE_TOPIC
        self._bytes_max = RESTORE_LAYOUTS_BYTES if is_layout else RESTORE_ITEMS_BYTES_MAX
        self._bytes = 0
        self._fields = 0

    def has_room(self, size_bytes: int, fields: int) -> bool:
        return (
            len(self.items) < RESTORE_ITEMS_MAX
            and self._bytes + size_bytes <= self._bytes_max
            and self._fields + fields <= GRPC_REQUEST_FIELDS_MAX
        )

    def add(self, item: Item, size_bytes: int, fields: int) -> None:
        self.items.append(item)
        self._bytes += size_bytes
        self._fields += fields


def fields_of(item: Item) -> int:
    """Return an upper bound of the fields of an item, for ``GRPC_REQUEST_FIELDS_MAX``."""
    if item.kind == KIND_SCALABLE_TOPIC:
        return item.ByteSize() // 2  # A field takes two bytes at least.
    value = value_of(item)
    # A property is an entry, a key and a value. A field of policies takes two bytes at least.
    fields: int = 3 * len(value.properties) + value.policies.ByteSize() // 2
    return FIELDS_OF_ITEM + fields


def routing_key_of(item: Item) -> str:
    """Return the key whose slot decides about the shard."""
    is_topic = item.kind in (KIND_TOPIC, KIND_SCALABLE_TOPIC)
    return parse_topic(item.name).routing_key if is_topic else item.name
