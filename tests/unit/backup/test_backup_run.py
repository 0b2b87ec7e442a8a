"""A backup's run: what it takes up again, what it keeps in memory, and what it leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nextgen.backup import run as run_module
from nextgen.backup import shard_reading
from nextgen.backup.cut import ShardTail, consistent_cut
from nextgen.backup.errors import BackupUnusable, CutNotFound
from nextgen.backup.files import ItemsWriter
from nextgen.backup.manifest import MANIFEST, PROGRESS, QUOTAS, BackupFile, Counts
from nextgen.backup.objects import key_of
from nextgen.backup.restore import open_backup
from nextgen.backup.run import BackupRun
from nextgen.backup.shard_reading import (
    Collected,
    ShardSnapshot,
    SnapshotListener,
    path_of,
    read_tail,
)
from nextgen.client.log.reader import EventPage
from nextgen.export.stores.urls import open_store
from nextgen.kernel.errors import Overloaded, PositionCompacted, Unavailable
from nextgen.kernel.governance.quota_file import QuotaFile, from_bytes
from nextgen.kernel.limits.bulk import BACKUP_SHARDS_READ_MAX
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.routing.slots import SlotTable, slots_digest
from protos.nextgen.v1.events_pb2 import (
    Event,
    PolicySet,
    ScalableTopicRestored,
    TenantCreated,
    TopicCreated,
)
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Namespace,
    Tenant,
    Topic,
)
from protos.nextgen.v1.shard_service_pb2 import CutResponse

SHARDS = BACKUP_SHARDS_READ_MAX + 2


def tenant(number: int) -> Item:
    made = Tenant(tenant_id=f"t{number}", name=f"tenant-{number}")
    return Item(kind=KIND_TENANT, name=made.name, tenant=made)


class FakeSettings:
    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    async def read(self) -> dict[str, str]:
        return self.held


class FakeCluster:
    """A cluster of ``SHARDS`` shards with a tenant each."""

    def __init__(self) -> None:
        self.endpoints = ("discovery:1",)
        self.link = None
        self.quotas = self
        self.settings = FakeSettings()
        self.held: QuotaFile | None = None
        self.phase = ""
        self.least_epoch = 0

    async def read(self) -> QuotaFile | None:
        return self.held

    async def table(self) -> SlotTable:
        return SlotTable(3, tuple([1 + slot % SHARDS for slot in range(16_384)]))

    async def cuts(self, shard_ids: Sequence[int]) -> dict[int, CutResponse]:
        return {
            shard_id: CutResponse(
                position=100,
                tenants=1,
                restore_phase=self.phase,
                least_epoch=self.least_epoch * (shard_id == 2),
            )
            for shard_id in shard_ids
        }


class FakeShards:
    """Snapshots and tails of the shards, in place of streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[int] = []
        self.most = self.reading = 0
        self.fails_at = 0
        self.compacted: set[int] = set()
        self.pins: list[tuple[int, int, int]] = []
        self.items: dict[int, list[Item]] = {}
        monkeypatch.setattr(run_module, "take_snapshot", self.take)
        monkeypatch.setattr(run_module, "read_tail", self.tail)
        monkeypatch.setattr(run_module, "pin_log", self.pin)

    async def take(
        self,
        _link: object,
        shard_id: int,
        _subscriber_id: str,
        begin: Callable[[], ItemsWriter],
        on_items: Callable[[int], None],
    ) -> ShardSnapshot:
        self.reading += 1
        self.most = max(self.most, self.reading)
        for _turn in range(3):
            await asyncio.sleep(0)
        self.reading -= 1
        if shard_id == self.fails_at:
            raise Unavailable("nobody answers")
        self.read.append(shard_id)
        writer, collected = begin(), Collected()
        items = self.items.get(shard_id, [tenant(shard_id)])
        writer.write(items)
        collected.add(items)
        on_items(len(items))
        file = writer.publish(path_of(shard_id, 90))
        return ShardSnapshot(shard_id, file, collected.tail(90), collected.counts, read_to=90)

    async def tail(self, _endpoints: object, snapshot: ShardSnapshot, position: int) -> None:
        if snapshot.shard_id in self.compacted:
            self.compacted.discard(snapshot.shard_id)
            raise PositionCompacted(91, 95)
        snapshot.read_to = position

    async def pin(
        self, _endpoints: object, shard_id: int, _reader_id: str, position: int, *, ttl_ms: int
    ) -> None:
        self.pins.append((shard_id, position, ttl_ms))


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> FakeShards:
    return FakeShards(monkeypatch)


def backup(directory: Path, cluster: FakeCluster | None = None) -> BackupRun:
    return BackupRun(cluster or FakeCluster(), open_store(directory))  # type: ignore[arg-type]


async def test_a_backup_is_whole_and_its_pins_are_released(
    tmp_path: Path, shards: FakeShards
) -> None:
    cluster = FakeCluster()
    cluster.held, cluster.least_epoch = QuotaFile(7, {}, {"acme": 5}), (3 << 32) + 1

    cluster.settings.held = {"scalableTopicMaxSegments": "16"}

    manifest = await backup(tmp_path, cluster).run()

    assert open_backup(open_store(tmp_path)) == manifest
    assert manifest.counts == Counts(tenants=SHARDS)
    assert manifest.least_epoch == 4 << 32
    assert manifest.quotas == cluster.held
    assert manifest.settings == {"scalableTopicMaxSegments": "16"}
    assert from_bytes((tmp_path / QUOTAS).read_bytes()).version == 1
    assert not (tmp_path / PROGRESS).exists()
    for shard_id in range(1, SHARDS + 1):
        (held, ttl_ms), (_, released) = [each[1:] for each in shards.pins if each[0] == shard_id]
        assert (held, ttl_ms > 0, released) == (100, True, 0)


async def test_backup_shards_read_max_are_read_at_a_time(
    tmp_path: Path, shards: FakeShards
) -> None:
    await backup(tmp_path).run()

    assert shards.most == BACKUP_SHARDS_READ_MAX


async def test_an_interrupted_backup_takes_up_the_snapshots_that_are_there(
    tmp_path: Path, shards: FakeShards
) -> None:
    shards.fails_at = SHARDS
    with pytest.raises(Unavailable):
        await backup(tmp_path).run()
    assert not (tmp_path / MANIFEST).exists()
    noted = json.loads((tmp_path / PROGRESS).read_text())
    first = [int(shard_id) for shard_id in noted["snapshots"]]
    assert first
    assert SHARDS not in first
    shards.fails_at, shards.read = 0, []

    again = backup(tmp_path)
    manifest = await again.run()

    assert manifest.backup_id == noted["backup_id"]
    assert again.progress.resumed == len(first)
    assert again.progress.objects == SHARDS
    assert set(shards.read).isdisjoint(first)
    assert open_backup(open_store(tmp_path)) == manifest


async def test_a_snapshot_whose_log_is_gone_or_whose_file_is_damaged_is_taken_again(
    tmp_path: Path, shards: FakeShards
) -> None:
    shards.fails_at = SHARDS
    with pytest.raises(Unavailable):
        await backup(tmp_path).run()
    shards.fails_at, shards.read, shards.compacted = 0, [], {1}
    damaged = tmp_path / path_of(2, 90)
    damaged.write_bytes(damaged.read_bytes()[:-1])

    manifest = await backup(tmp_path).run()

    assert {1, 2, SHARDS} <= set(shards.read)
    assert open_backup(open_store(tmp_path)) == manifest


async def test_a_log_that_is_cut_before_its_tail_was_read_costs_another_snapshot(
    tmp_path: Path, shards: FakeShards
) -> None:
    shards.compacted = {3}

    await backup(tmp_path).run()

    assert shards.read.count(3) == 2
    assert open_backup(open_store(tmp_path)).counts == Counts(tenants=SHARDS)


async def test_an_orphan_of_the_cluster_is_no_backup(tmp_path: Path, shards: FakeShards) -> None:
    orphan = Namespace(namespace_id="n", name="gone/ns", tenant_id="nobody")
    shards.items[4] = [Item(kind=KIND_NAMESPACE, name="gone/ns", namespace=orphan)]

    with pytest.raises(CutNotFound, match="nobody"):
        await backup(tmp_path).run()
    assert not (tmp_path / MANIFEST).exists()


async def test_a_cluster_that_is_being_restored_is_not_backed_up(
    tmp_path: Path, shards: FakeShards
) -> None:
    cluster = FakeCluster()
    cluster.phase = "begun"

    with pytest.raises(BackupUnusable, match="finish 'nextgen restore' first"):
        await backup(tmp_path, cluster).run()
    assert shards.read == []


class MovingCluster(FakeCluster):
    """A cluster in which shard 1 gives shard 2 its first slot; ``reads`` says when, by how often
    the shards were asked where they are."""

    def __init__(self, released_at: int, adopted_at: int) -> None:
        super().__init__()
        self.asked = 0
        self._released_at, self._adopted_at = released_at, adopted_at

    async def cuts(self, shard_ids: Sequence[int]) -> dict[int, CutResponse]:
        self.asked += 1
        is_released, is_adopted = self.asked > self._released_at, self.asked > self._adopted_at
        table = await self.table()
        cuts = await super().cuts(shard_ids)
        for shard_id, cut in cuts.items():
            slots = set(table.slots_of(shard_id))
            if shard_id == 1 and is_released:
                slots.discard(0)
            if shard_id == 2 and is_adopted:
                slots.add(0)
            cut.slots_digest = slots_digest((slot, slot) for slot in slots)
            cut.settled_move_id = 7 * (shard_id == 2 and is_adopted)
        return cuts


@pytest.mark.parametrize(
    ("released_at", "adopted_at", "asked"),
    [
        (0, 0, 2),  # Before the backup.
        (1, 1, 4),  # Between the snapshots and the cut: once more.
        (1, 3, 5),  # Between the shards at the cut, and at the second beginning as well.
        (9, 9, 2),  # Behind it.
    ],
)
async def test_a_backup_has_each_slot_once_though_slots_move(
    tmp_path: Path,
    shards: FakeShards,
    monkeypatch: pytest.MonkeyPatch,
    released_at: int,
    adopted_at: int,
    asked: int,
) -> None:
    monkeypatch.setattr(run_module, "SLOTS_MOVED_PAUSES_S", (0.0, 0.0, 0.0))
    cluster = MovingCluster(released_at, adopted_at)

    manifest = await backup(tmp_path, cluster).run()

    assert manifest.counts == Counts(tenants=SHARDS)
    assert open_backup(open_store(tmp_path)) == manifest
    assert cluster.asked == asked
    assert shards.read.count(1) == (1 if asked == 2 else 2)


async def test_a_slot_that_stays_between_two_shards_is_no_backup(
    tmp_path: Path, shards: FakeShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "SLOTS_MOVED_PAUSES_S", (0.0,))

    with pytest.raises(Unavailable, match="nextgen shards stop"):
        await backup(tmp_path, MovingCluster(0, 99)).run()

    assert shards.read == []
    assert not (tmp_path / MANIFEST).exists()


async def test_an_interrupted_backup_drops_its_snapshots_if_slots_have_moved_since(
    tmp_path: Path, shards: FakeShards
) -> None:
    shards.fails_at = SHARDS
    with pytest.raises(Unavailable):
        await backup(tmp_path, MovingCluster(9, 9)).run()
    shards.fails_at, shards.read = 0, []

    again = backup(tmp_path, MovingCluster(0, 0))
    await again.run()

    assert again.progress.resumed == 0
    assert sorted(shards.read) == list(range(1, SHARDS + 1))


# The parts --------------------------------------------------------------------------------------


class Log:
    """A log reader that gives pages of ten events, each a tenant's creation."""

    def __init__(self, last: int) -> None:
        self._last = last

    def __call__(self, *_arguments: object, **_options: object) -> Log:
        return self

    async def pages(self, position: int) -> AsyncIterator[EventPage]:
        for first in range(position, self._last + 1, 10):
            until = min(first + 10, self._last + 1)
            created = [
                Event(position=at, tenant_created=TenantCreated(name="a", tenant_id="a"))
                for at in range(first, until)
            ]
            yield EventPage(created, until, self._last)


@pytest.mark.parametrize("events", [30, 31])
async def test_backup_tail_events_max_are_kept_and_one_more_is_refused(
    monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    monkeypatch.setattr(shard_reading, "BACKUP_TAIL_EVENTS_MAX", 30)
    monkeypatch.setattr(shard_reading, "ShardLogReader", Log(90 + events))
    file = BackupFile("x", 0, 0, "")
    snapshot = ShardSnapshot(1, file, ShardTail(90), Collected().counts, read_to=90)

    if events == 31:
        with pytest.raises(Overloaded, match="more than 30 changes"):
            await read_tail((), snapshot, 90 + events)
        return
    await read_tail((), snapshot, 90 + events)
    assert len(snapshot.events) == len(snapshot.tail.events) == 30
    assert snapshot.read_to == 120


async def test_a_watch_that_begins_again_discards_what_it_wrote(tmp_path: Path) -> None:
    store: Any = open_store(tmp_path)
    counted: list[int] = []
    listener = SnapshotListener(lambda: ItemsWriter(store, "shard"), counted.append)

    listener.on_reset()
    listener.on_items([tenant(1), tenant(2)])
    listener.on_reset()
    listener.on_items([tenant(3)])
    listener.on_snapshot_complete(7)
    listener.on_reset()

    assert listener.done.result() == 7
    assert listener.collected.born == {"t3"}
    assert sum(counted) == 1
    assert listener.writer is not None
    assert listener.writer.publish("x").items == 1


@pytest.mark.parametrize("name", ["topic://acme/orders/a", "persistent://acme/orders/b"])
def test_events_are_of_the_object_that_they_change(name: str) -> None:
    created = Event(topic_created=TopicCreated(name=name))
    policies = Event(policy_set=PolicySet(scope="topic", name=name))
    layout = Event(scalable_topic_restored=ScalableTopicRestored(name=name))

    assert key_of(created) == key_of(policies) == (KIND_TOPIC, name)
    assert key_of(layout) == (KIND_SCALABLE_TOPIC, name)


SOURCE = "persistent://acme/orders/source"


def topic(name: str, **properties: str) -> Item:
    return Item(
        kind=KIND_TOPIC, name=name, topic=Topic(name=name, namespace_id="n", properties=properties)
    )


async def test_the_cut_knows_which_sources_of_shadows_are_in_the_snapshots(
    tmp_path: Path, shards: FakeShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = Namespace(name="acme/orders", namespace_id="n", tenant_id="t1")
    shadow = topic("persistent://acme/orders/shadow", **{SHADOW_SOURCE_PROPERTY: SOURCE})
    other = topic("persistent://acme/orders/other")
    shards.items[1] = [
        tenant(1),
        Item(kind=KIND_NAMESPACE, name=namespace.name, namespace=namespace),
    ]
    shards.items[2] = [shadow]
    shards.items[3] = [topic(SOURCE), other]
    seen: dict[int, ShardTail] = {}

    def cut(tails: dict[int, ShardTail]) -> dict[int, int]:
        seen.update(tails)
        return consistent_cut(tails)

    monkeypatch.setattr(run_module, "consistent_cut", cut)

    await backup(tmp_path).run()

    assert seen[2].needed == {"n", SOURCE}
    assert seen[3].born == {SOURCE}, "names of topics are many, and others are not kept"


async def test_what_a_release_without_layouts_began_is_not_gone_on_with(
    tmp_path: Path, shards: FakeShards
) -> None:
    shards.fails_at = SHARDS
    with pytest.raises(Unavailable):
        await backup(tmp_path).run()
    noted = json.loads((tmp_path / PROGRESS).read_text())
    del noted["format_version"]
    (tmp_path / PROGRESS).write_text(json.dumps(noted))
    shards.fails_at = 0

    again = backup(tmp_path)
    await again.run()

    assert again.progress.resumed == 0


async def test_a_full_disk_ends_the_snapshot(tmp_path: Path) -> None:
    class Full:
        def write(self, _items: Sequence[Item]) -> None:
            raise OSError(28, "No space left on device")

    listener = SnapshotListener(Full, lambda _count: None)  # type: ignore[arg-type]
    listener.on_reset()
    listener.on_items([tenant(1)])
    listener.on_snapshot_complete(7)

    with pytest.raises(OSError, match="No space left"):
        listener.done.result()
