"""The files of a backup: what was written is read, and nothing that was cut off or altered is."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nextgen.backup.cut import Change
from nextgen.backup.errors import BackupUnusable, RestoreRefused
from nextgen.backup.files import ItemsWriter, read_pages
from nextgen.backup.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    PROGRESS,
    BackupFile,
    Counts,
    Manifest,
    ShardBackup,
    decode_manifest,
    encode_manifest,
)
from nextgen.backup.objects import apply, tail_of
from nextgen.backup.restore import (
    BEGUN,
    ENDED,
    batches_of,
    begun_in,
    check_target,
    fields_of,
    objects_of,
    open_backup,
    parts_of,
    sources_of,
)
from nextgen.backup.run import check_free
from nextgen.backup.shard_reading import (
    Collected,
    ShardSnapshot,
    SnapshotListener,
    changed_items,
    write_changed,
)
from nextgen.export.stores.store import Store
from nextgen.export.stores.urls import open_store
from nextgen.kernel.governance.quota_file import QuotaFile
from nextgen.kernel.limits.bulk import (
    BACKUP_MANIFEST_BYTES_MAX,
    RESTORE_ITEMS_BYTES_MAX,
    RESTORE_ITEMS_MAX,
    RESTORE_LAYOUTS_BYTES,
)
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1.events_pb2 import (
    Event,
    LayoutChanged,
    OldName,
    PolicySet,
    ScalableConsumerRegistered,
    ScalableTopicDeleted,
    TopicCreated,
    TopicDeleted,
    TopicPropertiesSet,
    TopicRenamed,
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
    TopicPointer,
)
from protos.nextgen.v1.layouts_pb2 import (
    ScalableConsumer,
    ScalableSubscription,
    ScalableTopic,
    TopicSegment,
)
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import CutResponse

TENANT = Item(kind=KIND_TENANT, name="acme", tenant=Tenant(tenant_id="t", name="acme"))
NAMESPACE = Item(
    kind=KIND_NAMESPACE,
    name="acme/orders",
    namespace=Namespace(namespace_id="n", name="acme/orders", tenant_id="t"),
)
QUOTAS = QuotaFile(3, {"broker-1": 9}, {"acme": 5})


def topic(number: int, **fields: object) -> Item:
    name = f"persistent://acme/orders/t{number:05}"
    made = Topic(topic_id=f"id-{number}", name=name, namespace_id="n", **fields)  # type: ignore[arg-type]
    return Item(kind=KIND_TOPIC, name=name, topic=made)


def snapshot_of(store: Store, shard_id: int, pages: Sequence[Sequence[Item]]) -> ShardSnapshot:
    writer, collected = ItemsWriter(store, f"shard-{shard_id}"), Collected()
    for page in pages:
        writer.write(page)
        collected.add(page)
    file = writer.publish(f"shard-{shard_id}.items")
    return ShardSnapshot(shard_id, file, collected.tail(10), collected.counts, read_to=10)


def write_backup(store: Store) -> Manifest:
    """Write a backup of two shards: 1 has the parents and even topics, 2 has odd ones."""
    first = snapshot_of(
        store, 1, [[TENANT], [NAMESPACE], [topic(0), topic(2)], [topic(4), topic(6)]]
    )
    second = snapshot_of(store, 2, [[topic(1), topic(3)]])
    first.events = [
        Event(position=11, topic_deleted=TopicDeleted(name=topic(2).name, topic_id="id-2")),
        Event(position=12, topic_created=created(8)),
        Event(position=13, topic_created=created(10)),
    ]
    shards = {}
    for snapshot in (first, second):
        changed, counts = write_changed(store, snapshot, 12)
        shards[snapshot.shard_id] = ShardBackup(12, 10, counts, snapshot.file, changed)
    manifest = Manifest("one", 1_700_000_000_000, 1 << 32, 4, shards, QUOTAS)
    store.replace(MANIFEST, encode_manifest(manifest))
    return manifest


def created(number: int) -> TopicCreated:
    return TopicCreated(topic_id=f"id-{number}", name=topic(number).name, namespace_id="n")


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return open_store(tmp_path / "backup")
    pytest.importorskip("fsspec")
    opened = open_store(f"memory://{tmp_path.name}")
    opened.acquire()
    return opened


def test_what_was_written_is_read(store: Store) -> None:
    manifest = write_backup(store)

    assert open_backup(store) == manifest
    assert manifest.counts == Counts(1, 1, 6)
    topics = [item.name for item in objects_of(store, manifest.shards[1], KIND_TOPIC)]
    assert topics == [topic(number).name for number in (0, 4, 6, 8)]
    assert list(objects_of(store, manifest.shards[1], KIND_TENANT)) == [TENANT]
    assert list(objects_of(store, manifest.shards[1], KIND_NAMESPACE)) == [NAMESPACE]
    assert list(objects_of(store, manifest.shards[2], KIND_TENANT)) == []


def test_a_backup_goes_to_any_number_of_shards_in_the_order_of_names(store: Store) -> None:
    manifest = write_backup(store)
    owners = tuple([1 + slot % 5 for slot in range(16_384)])
    table = SlotTable(9, owners)

    batches = list(batches_of(store, manifest, KIND_TOPIC, table))

    names = [item.name for _, items in batches for item in items]
    assert sorted(names) == [topic(number).name for number in (0, 1, 3, 4, 6, 8)]
    for shard_id, items in batches:
        assert [item.name for item in items] == sorted(item.name for item in items)
        for item in items:
            key = item.name.removeprefix("persistent://")
            assert table.shard_for_key(key) == shard_id


def one_shard(store: Store, items: Sequence[Item]) -> list[int]:
    snapshot = snapshot_of(store, 7, [items[at : at + 500] for at in range(0, len(items), 500)])
    counts = Counts(topics=len(items))
    manifest = Manifest("one", 0, 1 << 32, 1, {7: ShardBackup(10, 10, counts, snapshot.file)})
    table = SlotTable(1, (1,) * 16_384)
    return [len(items) for _, items in batches_of(store, manifest, KIND_TOPIC, table)]


def test_a_batch_has_so_many_objects_at_most(tmp_path: Path) -> None:
    items = [topic(number) for number in range(RESTORE_ITEMS_MAX + 1)]

    assert one_shard(open_store(tmp_path), items) == [RESTORE_ITEMS_MAX, 1]


def test_a_batch_has_so_many_bytes_at_most(tmp_path: Path) -> None:
    properties = {f"p{number}": "x" * 4_000 for number in range(4)}
    items = [topic(number, properties=properties) for number in range(100)]
    each = items[0].ByteSize()

    (first, second) = one_shard(open_store(tmp_path), items)

    assert first * each <= RESTORE_ITEMS_BYTES_MAX < (first + 1) * each
    assert first + second == 100


def test_events_change_objects_as_the_shards_do(tmp_path: Path) -> None:
    policies = Policies(message_ttl_ms=5)
    snapshot = snapshot_of(open_store(tmp_path), 1, [[topic(1), topic(2)]])
    name = topic(1).name
    snapshot.events = [
        Event(
            position=11, topic_properties_set=TopicPropertiesSet(name=name, properties={"a": "b"})
        ),
        Event(
            position=12,
            policy_set=PolicySet(
                scope="topic", name=name, policy=policies.SerializeToString(), version=4
            ),
        ),
    ]

    (changed,), counts = changed_items(open_store(tmp_path), snapshot, 12)

    assert (dict(changed.topic.properties), changed.topic.policies) == ({"a": "b"}, policies)
    assert (changed.topic.policies_version, changed.topic.version) == (4, 2)
    assert counts == Counts(topics=2)


def layout(number: int, **fields: object) -> Item:
    name = f"topic://acme/orders/s{number:05}"
    made = ScalableTopic(topic_id=f"id-{number}", name=name, **fields)  # type: ignore[arg-type]
    return Item(kind=KIND_SCALABLE_TOPIC, name=name, scalable_topic=made)


async def test_a_layout_is_followed_without_its_consumers(tmp_path: Path) -> None:
    consumer = ScalableConsumer(name="c", takes_buckets=True)
    group = ScalableSubscription(name="s", type="stream", phase="live", drained=[0])
    group.consumers.append(consumer)
    group.assigned.add(consumer_name="c", segments=[0])
    kept = layout(1, segments=[TopicSegment(hash_end=0xFFFF)], subscriptions=[group])
    gone, store = layout(2), open_store(tmp_path)
    listener = SnapshotListener(lambda: ItemsWriter(store, "shard-1"), lambda _count: None)
    listener.on_reset()
    listener.on_items([kept, gone])
    assert listener.writer is not None
    collected = listener.collected
    file = listener.writer.publish("shard-1.items")
    snapshot = ShardSnapshot(1, file, collected.tail(10), collected.counts, read_to=10)
    about = {"name": kept.name, "topic_id": "id-1"}
    registered = ScalableConsumerRegistered(**about, subscription="s", consumer_name="d")
    changed = [TopicSegment(segment_id=1, hash_end=0xFFFF, parents=[0])]
    snapshot.events = [
        Event(position=11, scalable_consumer_registered=registered),
        Event(position=12, layout_changed=LayoutChanged(**about, epoch=1, changed=changed)),
        Event(position=13, scalable_topic_deleted=ScalableTopicDeleted(name=gone.name)),
        Event(position=14, layout_changed=LayoutChanged(**about, epoch=2)),
    ]

    (first, second), counts = changed_items(store, snapshot, 13)

    found = first.scalable_topic
    assert (found.epoch, [each.segment_id for each in found.segments]) == (1, [0, 1])
    (subscription,) = found.subscriptions
    assert subscription == ScalableSubscription(name="s", type="stream", phase="live", drained=[0])
    assert second == Item(kind=KIND_SCALABLE_TOPIC, name=gone.name)
    assert counts == Counts(scalable_topics=1)
    entry = ShardBackup(13, 10, counts, file)
    (stored, _) = objects_of(store, entry, KIND_SCALABLE_TOPIC)
    assert not stored.scalable_topic.subscriptions[0].consumers


def test_layouts_go_in_small_batches_and_a_large_one_alone(tmp_path: Path) -> None:
    segments = [TopicSegment(segment_id=number, hash_end=number) for number in range(500)]
    small = [layout(number, segments=segments) for number in range(30)]
    large = layout(30, segments=[*segments] * 20)
    store, counts = open_store(tmp_path), Counts(scalable_topics=31)
    snapshot = snapshot_of(store, 7, [small, [large]])
    manifest = Manifest("one", 0, 1 << 32, 1, {7: ShardBackup(10, 10, counts, snapshot.file)})
    batches = batches_of(store, manifest, KIND_SCALABLE_TOPIC, SlotTable(1, (7,) * 16_384))

    (*first, last) = [items for _, items in batches]

    assert [item.name for item in last] == [large.name]
    assert last[0].ByteSize() > RESTORE_LAYOUTS_BYTES
    assert sum(len(items) for items in first) == 30
    each = small[0].ByteSize()
    assert len(first[0]) == RESTORE_LAYOUTS_BYTES // each
    assert all(fields_of(item) * 2 >= item.ByteSize() - 1 for item in small)


def test_a_rename_behind_a_snapshot_changes_both_names(tmp_path: Path) -> None:
    snapshot = snapshot_of(open_store(tmp_path), 1, [[topic(1), topic(2)]])
    old, new = topic(1).name, "persistent://acme/bills/b"
    renamed = TopicRenamed(
        name=old,
        topic_id="id-1",
        new_name=new,
        namespace_id="n2",
        former_names=[OldName(name=old, until_ms=99)],
        partitions=3,
        properties={"a": "b"},
        version=5,
        created_time_ms=77,
        policies=Policies(message_ttl_ms=5).SerializeToString(),
        policies_version=4,
    )
    snapshot.events = [
        Event(position=11, topic_renamed=renamed),
        Event(position=12, topic_created=created(1)),
    ]

    changed, counts = changed_items(open_store(tmp_path), snapshot, 12)
    changed_before, before = changed_items(open_store(tmp_path), snapshot, 11)

    found = {item.name: item for item in changed}
    assert found[old].topic.topic_id == "id-1"
    assert found[new].topic == Topic(
        topic_id="id-1",
        name=new,
        namespace_id="n2",
        partitions=3,
        properties={"a": "b"},
        version=5,
        created_time_ms=77,
        policies=Policies(message_ttl_ms=5),
        policies_version=4,
        former_names=[OldName(name=old, until_ms=99)],
    )
    assert counts.topics == 3
    assert before.topics == 2
    assert tail_of(snapshot.events)[0].changes == ((Change.NEEDED, "n2"),)
    assert [item.name for item in changed_before if item.WhichOneof("value")] == [new]


def test_a_renamed_topic_goes_to_its_home_and_its_name_gets_a_pointer(tmp_path: Path) -> None:
    owners = tuple([1 + slot % 2 for slot in range(16_384)])
    table = SlotTable(9, owners)
    item = topic(1)
    slot = slot_of(item.name.removeprefix("persistent://"))
    there, elsewhere = mint_id(slot, bytes(10)), mint_id((slot + 1) % 16_384, bytes(10))

    item.topic.topic_id = there
    assert list(parts_of(item, table)) == [(owners[slot], item)]

    item.topic.topic_id = elsewhere
    pointer = Item(kind=KIND_TOPIC, name=item.name, pointer=TopicPointer(topic_id=elsewhere))
    assert list(parts_of(item, table)) == [(3 - owners[slot], item), (owners[slot], pointer)]

    item.topic.topic_id = mint_id((slot + 2) % 16_384, bytes(10))
    assert list(parts_of(item, table)) == [(owners[slot], item)], "its home makes the pointer"


def test_a_topic_that_came_again_has_nothing_of_the_one_before() -> None:
    item = topic(1, partitions=4, properties={"a": "b"}, policies_version=3)

    apply(item, Event(topic_created=created(1), time_ms=77))

    assert item.topic == Topic(
        topic_id="id-1", name=item.name, namespace_id="n", version=1, created_time_ms=77
    )


# Bad backups ------------------------------------------------------------------------------------


def test_a_cut_off_backup_is_not_taken_for_a_whole_one(store: Store) -> None:
    write_backup(store)
    store.remove(MANIFEST)
    with pytest.raises(BackupUnusable, match=r"no whole backup, .* is missing \(there is none\)"):
        open_backup(store)
    store.replace(PROGRESS, b"{}")
    with pytest.raises(BackupUnusable, match="it was cut off: run 'nextgen backup' on it again"):
        open_backup(store)


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    manifest = write_backup(store)
    for file in (*manifest.shards[1].files, *manifest.shards[2].files):
        path = tmp_path / file.path
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        with pytest.raises(BackupUnusable, match="it was cut off or altered"):
            open_backup(store)
        path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
        with pytest.raises(BackupUnusable, match="its SHA-256 is not that of the manifest"):
            open_backup(store)
        path.unlink()
        with pytest.raises(BackupUnusable, match="is missing: the backup is not whole"):
            open_backup(store)
        path.write_bytes(whole)
    assert open_backup(store) == manifest


def test_an_altered_manifest_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_backup(store)
    path = tmp_path / MANIFEST
    whole = path.read_text()

    for altered, words in (
        (whole.replace('"topics": 4', '"topics": 5'), "was altered after it was written"),
        (whole.replace('"acme": 5', '"acme": 6'), "was altered after it was written"),
        (whole[:-40], "is damaged"),
        ("[]", "is damaged"),
        ("{" * 5_000, "is damaged"),
        (whole.replace('"nextgen-backup"', '"nextgen-events"'), "its format is 'nextgen-events'"),
    ):
        assert altered != whole
        path.write_text(altered)
        with pytest.raises(BackupUnusable, match=words):
            open_backup(store)


def test_a_backup_of_another_version_is_refused() -> None:
    later = FORMAT_VERSION + 1
    content = json.dumps({"format": "nextgen-backup", "format_version": later}).encode()

    with pytest.raises(
        BackupUnusable, match=f"version {later}, this release reads versions 1 to 2"
    ):
        decode_manifest(content, "somewhere")


def test_a_backup_of_version_1_is_read() -> None:
    """Its counts know no scalable topics: it has none."""
    entry = ShardBackup(12, 10, Counts(1, 2, 3), BackupFile("a.items", 6, 9, "x"))
    manifest = Manifest("one", 5, 1 << 32, 1, {1: entry})
    text = encode_manifest(manifest).decode().replace('"format_version": 2', '"format_version": 1')
    text = re.sub(r',\s*"scalable_topics": 0', "", text)
    body, _, _ = text.rpartition(',\n "sha256": ')
    digest = hashlib.sha256(f"{body}\n}}".encode()).hexdigest()

    assert "scalable" not in body
    assert decode_manifest(f'{body},\n "sha256": "{digest}"\n}}\n'.encode(), "here") == manifest


def test_a_file_outside_of_the_backup_is_refused() -> None:
    manifest = Manifest("one", 0, 0, 1, {})
    text = encode_manifest(manifest).decode()
    entry = {
        "position": 1,
        "snapshot_position": 1,
        "counts": {},
        "items": {"path": "../../etc/passwd", "items": 0, "bytes": 0, "sha256": ""},
        "changed": None,
    }
    forged = text.replace('"shards": {}', f'"shards": {{"1": {json.dumps(entry)}}}')
    body, _, _ = forged.rpartition(',\n "sha256": ')
    digest = hashlib.sha256(f"{body}\n}}".encode()).hexdigest()

    with pytest.raises(BackupUnusable, match="is no file of a backup"):
        decode_manifest(f'{body},\n "sha256": "{digest}"\n}}\n'.encode(), "here")


def test_backup_manifest_bytes_max_are_parsed_and_one_more_is_refused() -> None:
    content = b" " * BACKUP_MANIFEST_BYTES_MAX
    with pytest.raises(BackupUnusable, match="is damaged"):
        decode_manifest(content, "here")
    with pytest.raises(BackupUnusable, match=f"more than {BACKUP_MANIFEST_BYTES_MAX} bytes"):
        decode_manifest(content + b" ", "here")


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x02\xff\xff", b"\0\0\0\x09\x0a"],
)
def test_pages_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    """Whoever made such a file gave it a digest that fits."""
    store = open_store(tmp_path)
    snapshot = snapshot_of(store, 1, [[TENANT]])
    (tmp_path / snapshot.file.path).write_bytes(gzip.compress(content))

    with pytest.raises(BackupUnusable):
        list(read_pages(store, snapshot.file))


def test_a_directory_with_something_else_is_not_written_to(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    check_free(store)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BackupUnusable, match=r"such as thesis\.tex"):
        check_free(store)
    (tmp_path / MANIFEST).touch()
    with pytest.raises(BackupUnusable, match="holds a whole backup already"):
        check_free(store)


# Where a backup may go --------------------------------------------------------------------------


def cut(**fields: object) -> CutResponse:
    return CutResponse(**fields)  # type: ignore[arg-type]


def test_a_backup_goes_into_an_empty_cluster_or_on_where_it_was() -> None:
    begun = cut(restore_id="one", restore_phase=BEGUN, topics=5)
    check_target({1: cut(), 2: cut()}, "one")
    check_target({1: cut(), 2: begun}, "one")
    check_target({1: begun, 2: cut(restore_id="one", restore_phase=ENDED, topics=9)}, "one")
    check_target({1: cut(restore_id="two", restore_phase=ENDED)}, "one")


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ({1: cut(), 2: cut(topics=2)}, "0 tenants, 0 namespaces, 2 topics of its own"),
        ({1: cut(tenants=1), 2: cut(tenants=1)}, "2 tenants"),
        ({1: cut(restore_id="two", restore_phase=ENDED, topics=2)}, "2 topics of its own"),
        ({1: cut(restore_id="two", restore_phase=BEGUN)}, "backup two has not ended in shard 1"),
        ({1: cut(restore_id="one", restore_phase="abandoned", topics=1)}, "1 topics of its own"),
    ],
)
def test_a_cluster_with_objects_of_its_own_is_refused(
    cuts: dict[int, CutResponse], words: str
) -> None:
    with pytest.raises(RestoreRefused, match=words):
        check_target(cuts, "one")


def test_a_restore_begins_behind_the_generations_of_its_backup() -> None:
    manifest = Manifest("one", 5, 3 << 32, 2)

    assert begun_in(manifest, 3) == manifest
    assert begun_in(manifest, 4).least_epoch == 4 << 32


@pytest.mark.parametrize(("generation", "is_taken"), [(2, False), (1_023, True), (1_024, False)])
def test_generations_max_generations_may_be_begun_and_no_more(
    generation: int, *, is_taken: bool
) -> None:
    manifest = Manifest("one", 5, 3 << 32, 2)
    if is_taken:
        assert begun_in(manifest, generation).least_epoch == generation << 32
        return
    with pytest.raises(RestoreRefused, match=f"3 to 1023, not in {generation}"):
        begun_in(manifest, generation)


def test_what_a_manifest_says_it_says_again() -> None:
    empty = Manifest("one", 5, 1 << 32, 2)

    assert decode_manifest(encode_manifest(empty), "here") == empty
    full = replace(empty, quotas=QUOTAS, settings={"b": "2", "a": "1"})
    assert decode_manifest(encode_manifest(full), "here") == full


def test_a_manifest_of_a_release_without_settings_has_none() -> None:
    empty = Manifest("one", 5, 1 << 32, 2)
    content = encode_manifest(empty).decode().replace(' "settings": {},\n', "")
    text, _, _ = content.rpartition(',\n "sha256"')
    digest = hashlib.sha256(f"{text}\n}}".encode()).hexdigest()

    earlier = f'{text},\n "sha256": "{digest}"\n}}\n'

    assert "settings" not in earlier
    assert decode_manifest(earlier.encode(), "here") == empty


def test_sources_are_the_names_that_restored_shadows_give_and_nothing_else() -> None:
    source = "persistent://a/b/source"
    values = [source, "a/b/source", "topic://a/b/source", f"{source}-partition-0", "a//b", ""]
    items = [
        Item(kind=KIND_TOPIC, name="t", topic=Topic(properties={SHADOW_SOURCE_PROPERTY: value}))
        for value in values
    ]

    assert list(sources_of([Item(kind=KIND_TENANT, name="x"), *items])) == [source]
