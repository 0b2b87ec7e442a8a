"""A restore in a shard: only an empty one begins it, and nothing else changes it meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import InvalidRequest, Refused, StaleShardMap, Unavailable
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.bulk import RESTORE_ITEMS_BYTES_MAX, RESTORE_ITEMS_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    LIFE_STATE_DELETING,
    Item,
    Namespace,
    Tenant,
    Topic,
    TopicPointer,
)
from protos.nextgen.v1.layouts_pb2 import ScalableSubscription, ScalableTopic, TopicSegment
from shards.domain.life import Life
from shards.domain.shard import RestorePhase
from shards.inventory.restoration import Restoration
from tests.support.shards.world import ShardReplica, World, create_topics, names_in

BACKUP = "backup-1"
LEAST_EPOCH = 3 << 32
NAMESPACE = "acme/orders"
POLICIES = policies_to_proto(Policies(message_ttl_ms=60_000))


def id_at(name: str, number: int = 1) -> str:
    key = parse_topic(name).routing_key if "://" in name else name
    return mint_id(slot_of(key), number.to_bytes(10, "big"))


def tenant_item(name: str = "acme", **fields: object) -> Item:
    tenant = Tenant(tenant_id=id_at(name), name=name, version=4, **fields)  # type: ignore[arg-type]
    return Item(kind=KIND_TENANT, name=name, tenant=tenant)


def namespace_item(name: str = NAMESPACE, **fields: object) -> Item:
    made = {"namespace_id": id_at(name), "tenant_id": id_at(name.split("/")[0]), **fields}
    return Item(kind=KIND_NAMESPACE, name=name, namespace=Namespace(name=name, **made))  # type: ignore[arg-type]


def topic_item(name: str, number: int = 1, **fields: object) -> Item:
    made = {"topic_id": id_at(name, number), "namespace_id": id_at(NAMESPACE), **fields}
    return Item(kind=KIND_TOPIC, name=name, topic=Topic(name=name, **made))  # type: ignore[arg-type]


def restoration(shard: ShardReplica) -> Restoration:
    return shard.service.restoration


async def mark(shard: ShardReplica, phase: str, restore_id: str = BACKUP) -> pb.CutResponse:
    request = pb.MarkRestoreRequest(restore_id=restore_id, phase=phase, least_epoch=LEAST_EPOCH)
    return await restoration(shard).mark(request)


async def restore(
    shard: ShardReplica, items: Sequence[Item], restore_id: str = BACKUP
) -> tuple[int, int]:
    request = pb.RestoreRequest(restore_id=restore_id, items=items)
    answer = await restoration(shard).restore(request)
    return answer.created, answer.existing


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=2)
    for shard in made.shards.values():
        await shard.state.proposer.confirm()
        await mark(shard, RestorePhase.BEGUN)
    yield made
    made.close()


async def end(world: World) -> None:
    for shard in world.shards.values():
        await mark(shard, RestorePhase.ENDED)


async def test_objects_come_with_their_ids_policies_and_properties(world: World) -> None:
    tenant_home, namespace_home = world.home("acme"), world.home(NAMESPACE)
    shard = world.shards[1]
    plain, rich = sorted(name for name, _ in zip(names_in(world, 1, NAMESPACE), "ab", strict=False))

    policies = {"policies": POLICIES, "policies_version": 7, "properties": {"owner": "shop"}}
    assert await restore(tenant_home, [tenant_item(**policies)]) == (1, 0)
    assert await restore(namespace_home, [namespace_item(**policies)]) == (1, 0)
    topics = [topic_item(plain, partitions=3), topic_item(rich, 2, **policies)]
    assert await restore(shard, topics) == (2, 0)

    tenant = tenant_home.state.reads.load_tenant("acme")
    namespace = namespace_home.state.reads.load_namespace(NAMESPACE)
    first, second = shard.state.reads.load_topics([plain, rich])
    assert tenant is not None
    assert namespace is not None
    assert first is not None
    assert second is not None
    for found in (tenant, namespace, second):
        assert (found.policies, found.policies_version) == (POLICIES.SerializeToString(), 7)
        assert found.properties == (("owner", "shop"),)
    assert (tenant.tenant_id, namespace.namespace_id) == (id_at("acme"), id_at(NAMESPACE))
    assert (first.topic_id, first.partitions) == (id_at(plain), 3)
    assert second.topic_id == id_at(rich, 2)


async def test_a_renamed_topic_comes_to_its_home_and_its_name_leads_there(world: World) -> None:
    named, home = world.shards[1], world.shards[2]
    name, old = next(names_in(world, 1, NAMESPACE)), next(names_in(world, 2, NAMESPACE))
    renamed = topic_item(name, topic_id=id_at(old))
    pointer = Item(kind=KIND_TOPIC, name=name, pointer=TopicPointer(topic_id=id_at(old)))

    assert await restore(home, [renamed]) == (1, 0)
    assert await restore(named, [pointer]) == (0, 0)
    position = named.state.position
    assert await restore(home, [renamed]) == (0, 1)
    assert await restore(named, [pointer]) == (0, 0)

    assert named.state.position == position
    topic, found = home.state.reads.load_topic(name), named.state.names.pointer(name)
    assert topic is not None
    assert found is not None
    assert topic.topic_id == found.topic_id == id_at(old)
    assert named.state.reads.load_topic(name) is None
    with pytest.raises(StaleShardMap):
        await restore(named, [renamed])
    with pytest.raises(InvalidRequest, match="no topic's id"):
        await restore(named, [Item(kind=KIND_TOPIC, name=name, pointer=TopicPointer())])


async def test_a_name_in_the_slots_of_its_home_leads_there_too(world: World) -> None:
    shard = world.shards[1]
    names = names_in(world, 1, NAMESPACE)
    name, old = next(names), next(names)

    assert await restore(shard, [topic_item(name, topic_id=id_at(old))]) == (1, 0)

    found = shard.state.names.pointer(name)
    assert found is not None
    assert found.topic_id == id_at(old)


async def test_a_repetition_finds_everything_existing(world: World) -> None:
    shard = world.shards[1]
    name = next(names_in(world, 1, NAMESPACE))
    await restore(shard, [topic_item(name)])
    position = shard.state.position

    assert await restore(shard, [topic_item(name)]) == (0, 1)
    assert shard.state.position == position


async def test_an_object_with_another_id_is_refused_and_nothing_is_created(world: World) -> None:
    shard = world.shards[1]
    first, second = sorted(
        name for name, _ in zip(names_in(world, 1, NAMESPACE), "ab", strict=False)
    )
    await restore(shard, [topic_item(second)])

    with pytest.raises(Refused, match="exists, and not from this backup"):
        await restore(shard, [topic_item(first), topic_item(second, 2)])
    assert shard.state.reads.load_topic(first) is None


async def test_a_parent_that_was_being_deleted_is_deleted_by_asking_again(world: World) -> None:
    home = world.home("acme")
    await restore(home, [tenant_item(state=LIFE_STATE_DELETING)])
    tenant = home.state.reads.load_tenant("acme")
    assert tenant is not None
    assert tenant.life is Life.DELETING
    await end(world)

    assert (await world.delete_tenant("acme")).rejection_code == ""
    assert home.state.reads.load_tenant("acme") is None


async def test_nothing_else_changes_the_inventories_meanwhile(world: World) -> None:
    home = world.home("acme")
    with pytest.raises(Unavailable, match="is being restored from backup backup-1"):
        await world.create_tenant("acme", b"command-00000001")
    await restore(home, [tenant_item()])
    with pytest.raises(Unavailable):
        await world.delete_tenant("acme")
    for shard in world.shards.values():
        name = next(names_in(world, shard.shard_id, NAMESPACE))
        with pytest.raises(Unavailable):
            shard.state.check_not_restoring()
        with pytest.raises(Refused, match="no restore of 'other' is under way"):
            await restore(shard, [topic_item(name)], "other")

    await end(world)

    assert (await world.create_tenant("shop", b"command-00000001")).rejection_code == ""


async def test_children_are_created_and_parents_deleted_as_ever_behind_the_end(
    world: World,
) -> None:
    await restore(world.home("acme"), [tenant_item()])
    await restore(world.home(NAMESPACE), [namespace_item()])
    name = next(names_in(world, 1, NAMESPACE))
    await restore(world.shards[1], [topic_item(name)])
    await end(world)

    assert (await world.delete_namespace(NAMESPACE)).rejection_code == "NOT_EMPTY"
    other = next(names_in(world, 2, NAMESPACE))
    result = await world.run(world.shards[2], create_topics([other]))
    assert result.topics[0].rejection_code == ""
    for topic in (name, other):
        assert (await world.delete_topic(topic)).rejection_code == ""
    assert (await world.delete_namespace(NAMESPACE)).rejection_code == ""
    assert (await world.delete_tenant("acme")).rejection_code == ""


async def test_epochs_begin_above_those_of_the_backup_in_every_later_term(world: World) -> None:
    shard = world.shards[1]
    assert shard.state.least_epoch == LEAST_EPOCH
    shard.next_term()
    assert shard.state.least_epoch == LEAST_EPOCH
    shard.next_term((4 << 32) + 1)
    assert shard.state.least_epoch == 4 << 32


async def test_a_shard_with_objects_of_its_own_begins_no_restore() -> None:
    world = World(shards=1)
    await world.create_tenant("acme")

    with pytest.raises(Refused, match="cannot be begun: the shard has 1 tenants"):
        await mark(world.shards[1], RestorePhase.BEGUN)
    world.close()


async def test_the_cut_says_where_the_shard_is(world: World) -> None:
    home = world.home("acme")
    await restore(home, [tenant_item()])

    cut = await restoration(home).cut()

    assert cut.HasField("slots_digest"), "a backup is of slots that are each at one shard"
    assert cut == pb.CutResponse(
        position=home.log.commit_position,
        least_epoch=LEAST_EPOCH,
        restore_id=BACKUP,
        restore_phase="begun",
        tenants=1,
        slots_digest=cut.slots_digest,
    )


@pytest.mark.parametrize("phase", ["", "finished"])
async def test_a_phase_that_does_not_exist_is_refused(world: World, phase: str) -> None:
    with pytest.raises(InvalidRequest, match="no phase"):
        await mark(world.shards[1], phase)


@pytest.mark.parametrize("restore_id", ["", "x" * 65])
async def test_a_restore_has_an_id(world: World, restore_id: str) -> None:
    with pytest.raises(InvalidRequest, match="an id of 1 to 64"):
        await mark(world.shards[1], RestorePhase.ENDED, restore_id)


def layout_item(name: str, **fields: object) -> Item:
    made = {"topic_id": id_at(name), "next_segment_id": 1, **fields}
    made.setdefault("segments", [TopicSegment(hash_end=0xFFFF)])
    layout = ScalableTopic(name=name, **made)  # type: ignore[arg-type]
    return Item(kind=KIND_SCALABLE_TOPIC, name=name, scalable_topic=layout)


async def test_a_layout_follows_its_topic_and_is_counted(world: World) -> None:
    shard = world.shards[1]
    name = next(names_in(world, 1, NAMESPACE)).replace("persistent://", "topic://")
    with pytest.raises(Refused, match="does not exist"):
        await restore(shard, [layout_item(name)])

    assert await restore(shard, [topic_item(name)]) == (1, 0)
    assert await restore(shard, [layout_item(name)]) == (1, 0)
    assert await restore(shard, [layout_item(name)]) == (0, 1)

    layout = shard.state.reads.load_scalable(name)
    assert layout is not None
    assert (layout.epoch, layout.next_segment_id) == (LEAST_EPOCH, LEAST_EPOCH + 1)
    cut = await restoration(shard).cut()
    assert (cut.topics, cut.scalable_topics) == (1, 1)
    position = shard.state.position
    bad = layout_item(name, subscriptions=[ScalableSubscription(name="s", type="x", phase="live")])
    with pytest.raises(InvalidRequest, match="'x' is not a valid"):
        await restore(shard, [bad])
    assert shard.state.position == position


async def test_malformed_requests_create_nothing(world: World) -> None:
    shard = world.shards[1]
    first, second = sorted(
        name for name, _ in zip(names_in(world, 1, NAMESPACE), "ab", strict=False)
    )
    elsewhere = next(names_in(world, 2, NAMESPACE))
    wrong: list[tuple[list[Item], type[Exception], str]] = [
        ([], InvalidRequest, "0 objects"),
        ([topic_item(first), tenant_item()], InvalidRequest, "2 kinds"),
        ([topic_item(second), topic_item(first)], InvalidRequest, "ascend"),
        ([topic_item(first), topic_item(first)], InvalidRequest, "ascend"),
        ([Item(kind=KIND_TOPIC, name=first)], InvalidRequest, "ascend"),
        ([Item(kind=KIND_TOPIC, name=first, topic=Topic(name=second))], InvalidRequest, "ascend"),
        ([Item(kind=KIND_ASSIGNMENT, name=first, topic=Topic(name=first))], InvalidRequest, "kind"),
        ([topic_item(f"{first}-partition-0")], InvalidRequest, "spelled out"),
        ([Item(kind=KIND_TOPIC, name="x", topic=Topic(name="x"))], InvalidRequest, "spelled"),
        ([topic_item(elsewhere)], StaleShardMap, "slot"),
        ([topic_item(first, topic_id="short")], Refused, "is no id"),
        ([topic_item(first, namespace_id="")], Refused, "is no id"),
        ([topic_item(first, partitions=1 << 20)], Refused, "partitions"),
    ]
    position = shard.state.position
    for items, error, words in wrong:
        with pytest.raises(error, match=words):
            await restore(shard, items)
    assert shard.state.position == position


def topics_of(world: World, count: int) -> list[Item]:
    coming = names_in(world, 1, NAMESPACE)
    return [topic_item(name) for name in sorted(next(coming) for _ in range(count))]


async def test_so_many_objects_are_restored_at_a_time(world: World) -> None:
    items = topics_of(world, RESTORE_ITEMS_MAX + 1)

    with pytest.raises(InvalidRequest, match=f"{RESTORE_ITEMS_MAX + 1} objects"):
        await restore(world.shards[1], items)
    assert await restore(world.shards[1], items[:-1]) == (RESTORE_ITEMS_MAX, 0)


async def test_so_many_bytes_are_restored_at_a_time_and_their_record_fits(world: World) -> None:
    items = topics_of(world, RESTORE_ITEMS_BYTES_MAX // 4_200)
    for item in items:
        item.topic.properties["p"] = "x" * 4_000
    room = RESTORE_ITEMS_BYTES_MAX - sum(item.ByteSize() for item in items)
    filled = 0
    while room > filled * 90 + 90:
        items[filled].topic.properties["p"] += "x" * 90
        filled += 1
    items[filled].topic.properties["p"] += "x" * (room - filled * 90)
    assert sum(item.ByteSize() for item in items) == RESTORE_ITEMS_BYTES_MAX
    assert await restore(world.shards[1], items) == (len(items), 0)

    items[filled].topic.properties["p"] += "x"
    with pytest.raises(InvalidRequest, match=f"objects of {RESTORE_ITEMS_BYTES_MAX + 1} bytes"):
        await restore(world.shards[1], items)


# Shadows ------------------------------------------------------------------------------------------


async def shadow_world(world: World) -> tuple[str, str]:
    """Restore a source in shard 1 and a shadow of it in shard 2; return their names."""
    source = next(names_in(world, 1, NAMESPACE))
    shadow = next(names_in(world, 2, NAMESPACE))
    await restore(world.home("acme"), [tenant_item()])
    await restore(world.home(NAMESPACE), [namespace_item()])
    of_shadow = topic_item(shadow, partitions=2, properties={SHADOW_SOURCE_PROPERTY: source})
    assert await restore(world.shards[2], [of_shadow]) == (1, 0)
    assert await restore(world.shards[1], [topic_item(source, partitions=2)]) == (1, 0)
    return source, shadow


async def restore_sources(shard: ShardReplica, *names: str) -> tuple[int, int]:
    request = pb.RestoreRequest(restore_id=BACKUP, shadow_sources=names)
    answer = await restoration(shard).restore(request)
    return answer.created, answer.existing


async def test_a_restored_source_with_a_shadow_is_not_deleted_but_grows(world: World) -> None:
    source, shadow = await shadow_world(world)
    assert await restore_sources(world.shards[1], source) == (1, 0)
    assert await restore_sources(world.shards[1], source) == (0, 1)
    await end(world)

    refused = await world.delete_topic(source)
    grow = pb.Command(grow_topic=pb.GrowTopic(name=source, partitions=4))
    grown = await world.run(world.shards[1], grow)

    assert (refused.rejection_code, shadow in refused.message) == ("NOT_EMPTY", True)
    assert not grown.rejection_code
    topics = [world.home_of_topic(name).state.reads.load_topic(name) for name in (source, shadow)]
    assert [topic.partitions for topic in topics if topic] == [4, 4]
    assert not (await world.delete_topic(shadow)).rejection_code
    assert not (await world.delete_topic(source)).rejection_code


async def test_a_source_that_is_not_in_the_backup_is_passed_over(world: World) -> None:
    await shadow_world(world)
    absent = next(name for name in names_in(world, 1, "acme/absent"))

    assert await restore_sources(world.shards[1], absent) == (0, 1)


async def test_sources_that_no_backup_has_are_refused(world: World) -> None:
    source, shadow = await shadow_world(world)
    shard = world.shards[1]

    for names in (
        ["a//b"],
        [f"{source}-partition-0"],
        [source.partition("://")[2]],
        ["topic://a/b/c"],
    ):
        with pytest.raises(InvalidRequest):
            await restore_sources(shard, *names)
    with pytest.raises(StaleShardMap):
        await restore_sources(shard, shadow)


@pytest.mark.parametrize("excess", [0, 1])
async def test_restore_items_max_sources_are_taken_and_one_more_is_not(
    world: World, excess: int
) -> None:
    candidates = names_in(world, 1, NAMESPACE)
    names = [next(candidates) for _ in range(RESTORE_ITEMS_MAX + excess)]

    if excess:
        with pytest.raises(InvalidRequest):
            await restore_sources(world.shards[1], *names)
    else:
        assert await restore_sources(world.shards[1], *names) == (0, RESTORE_ITEMS_MAX)


async def test_a_restored_topic_may_have_any_value_that_an_earlier_release_took(
    world: World,
) -> None:
    await shadow_world(world)
    name = [*itertools.islice(names_in(world, 2, NAMESPACE), 2)][1]

    item = topic_item(name, 2, properties={SHADOW_SOURCE_PROPERTY: "anything"})

    assert await restore(world.shards[2], [item]) == (1, 0)
