"""Scalable topics on a shard's leader: created beside their topics, changed, deleted with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from nextgen.kernel.limits.scalable import SEGMENTS_PER_TOPIC_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_SCALABLE_TOPIC, KIND_TOPIC
from shards.domain.scalable.vocabulary import SubscriptionPhase
from shards.domain.states import StateKind
from shards.domain.topic import Topic
from tests.support.shards.world import ShardReplica, World

CLASSIC = "persistent://acme/orders/paid"
NAME = "topic://acme/orders/paid"
NAMESPACE = "acme/orders"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=1)
    await made.shards[1].state.proposer.confirm()
    await made.create_tenant("acme")
    await made.create_namespace(NAMESPACE)
    yield made
    made.close()


@pytest.fixture
def shard(world: World) -> ShardReplica:
    return world.shards[1]


async def create(world: World, *specs: pb.TopicSpec, on_demand: bool = False) -> list[str]:
    """Return the rejection code of each topic."""
    body = pb.CreateTopics(topics=specs, on_demand=on_demand)
    result = await world.run(world.shards[1], pb.Command(create_topics=body))
    return [each.rejection_code for each in result.topics]


def scalable(name: str = NAME, segments: int = 0, **fields: object) -> pb.TopicSpec:
    return pb.TopicSpec(name=name, segments=segments, **fields)  # type: ignore[arg-type]


async def run(world: World, **command: object) -> pb.CommandResult:
    return await world.run(world.shards[1], pb.Command(**command))  # type: ignore[arg-type]


def split(segment: int) -> pb.ChangeLayout:
    return pb.ChangeLayout(name=NAME, kind="split", segments=[segment])


# Creation ----------------------------------------------------------------------------------------


async def test_a_scalable_topic_is_a_topic_and_a_layout(world: World, shard: ShardReplica) -> None:
    assert await create(world, scalable(segments=3, properties={"a": "1"})) == [""]

    topic, layout = shard.state.reads.load_topic(NAME), shard.state.reads.load_scalable(NAME)
    assert topic is not None
    assert layout is not None
    assert (topic.topic_id, topic.properties) == (layout.topic_id, (("a", "1"),))
    assert [each.descriptor.text for each in layout.active] == [
        "0000-5554-0",
        "5555-aaa9-1",
        "aaaa-ffff-2",
    ]
    wanted = [pb.ObjectName(kind=kind, name=NAME) for kind in (KIND_TOPIC, KIND_SCALABLE_TOPIC)]
    response = await shard.reader.get(pb.GetRequest(names=wanted))
    assert response.items[0].topic.topic_id == response.items[1].scalable_topic.topic_id
    shard.next_term()
    assert shard.state.reads.load_scalable(NAME) == layout


async def test_without_a_number_a_topic_begins_with_one_segment(
    world: World, shard: ShardReplica
) -> None:
    assert await create(world, scalable(), scalable()) == ["", "ALREADY_EXISTS"]

    layout = shard.state.reads.load_scalable(NAME)
    assert layout is not None
    assert list(layout.segments) == [0]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (scalable(segments=SEGMENTS_PER_TOPIC_MAX), ""),
        (scalable(segments=SEGMENTS_PER_TOPIC_MAX + 1), "LIMIT_EXCEEDED"),
        (scalable(segments=10_000), "LIMIT_EXCEEDED"),
        (scalable(partitions=3), "NOT_ALLOWED"),
        (scalable(CLASSIC, segments=1), "NOT_ALLOWED"),
        (scalable("segment://acme/orders/paid/0000-ffff-0"), "NOT_ALLOWED"),
        (scalable("topic://acme/none/paid"), "PARENT_NOT_FOUND"),
        (scalable("topic://acme/orders/paid-partition-1"), "INVALID_NAME"),
    ],
)
async def test_what_cannot_be_a_scalable_topic_is_refused(
    world: World, spec: pb.TopicSpec, code: str
) -> None:
    assert await create(world, spec) == [code]


@pytest.mark.parametrize("on_demand", [False, True])
async def test_a_classic_and_a_scalable_topic_of_one_name_never_coexist(
    world: World, shard: ShardReplica, *, on_demand: bool
) -> None:
    classic = pb.TopicSpec(name=CLASSIC)
    other = pb.TopicSpec(name=f"non-{CLASSIC}")

    assert await create(world, classic, scalable(), on_demand=on_demand) == ["", "ALREADY_EXISTS"]
    assert await create(world, scalable(), on_demand=on_demand) == ["ALREADY_EXISTS"]
    await world.delete_topic(CLASSIC)
    assert await create(world, scalable(), classic, on_demand=on_demand) == ["", "SCALABLE"]
    assert await create(world, classic, other, on_demand=on_demand) == ["SCALABLE", ""]
    response = await shard.service.create_in_bulk(pb.BulkCreateRequest(names=[CLASSIC]))
    assert [each.rejection_code for each in response.refusals] == ["SCALABLE"]
    await world.delete_topic(NAME)
    assert await create(world, classic, on_demand=on_demand) == [""]


async def test_no_twin_is_read_in_a_shard_without_scalable_topics(
    world: World, shard: ShardReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly every topic of nearly every shard is classic: its creation costs what it did."""
    read: list[str] = []
    load = shard.state.reads.load_topics

    def noting(names: Sequence[str]) -> list[Topic | None]:
        read.extend(names)
        return load(names)

    monkeypatch.setattr(shard.state.reads, "load_topics", noting)
    await create(world, pb.TopicSpec(name=CLASSIC))
    assert read == [CLASSIC]
    await create(world, scalable("topic://acme/orders/other"))
    read.clear()

    await create(world, pb.TopicSpec(name=CLASSIC))

    assert read == [CLASSIC, NAME]


async def test_scalable_topics_in_bulk_have_a_segment_each_and_no_twins(
    world: World, shard: ShardReplica
) -> None:
    other = "topic://acme/orders/other"
    await create(world, pb.TopicSpec(name="persistent://acme/orders/other"))
    both = pb.BulkCreateRequest(names=[CLASSIC, NAME])

    alone = await shard.service.create_in_bulk(pb.BulkCreateRequest(names=[NAME]))
    taken = await shard.service.create_in_bulk(both)
    beside_classic = await shard.service.create_in_bulk(pb.BulkCreateRequest(names=[other]))

    assert (alone.created, alone.existing, list(alone.refusals)) == (1, 0, [])
    layout = shard.state.reads.load_scalable(NAME)
    assert layout is not None
    assert [(each.hash_start, each.hash_end) for each in layout.active] == [(0, 0xFFFF)]
    assert (taken.created, taken.existing) == (0, 1)
    assert [each.rejection_code for each in taken.refusals] == ["SCALABLE"]
    assert [each.rejection_code for each in beside_classic.refusals] == ["ALREADY_EXISTS"]


async def test_of_twins_in_one_bulk_request_the_first_is_created(
    world: World, shard: ShardReplica
) -> None:
    both = pb.BulkCreateRequest(names=[CLASSIC, NAME])
    answer = await shard.service.create_in_bulk(both)

    assert answer.created == 1
    assert [each.rejection_code for each in answer.refusals] == ["ALREADY_EXISTS"]
    assert shard.state.reads.load_scalable(NAME) is None


async def test_a_layout_goes_with_its_topic(world: World, shard: ShardReplica) -> None:
    await create(world, scalable(segments=2))
    assert shard.state.reads.total(StateKind.SCALABLE_TOPIC) == 1

    assert (await world.delete_topic(NAME)).rejection_code == ""

    assert shard.state.reads.load_scalable(NAME) is None
    assert shard.state.reads.total(StateKind.SCALABLE_TOPIC) == 0
    assert (await world.delete_topic(NAME)).rejection_code == "NOT_FOUND"


async def test_a_segment_is_not_deleted_as_a_topic(world: World, shard: ShardReplica) -> None:
    """Its name belongs to the topic, which must not go in its place."""
    await create(world, scalable())

    result = await world.delete_topic("segment://acme/orders/paid/0000-ffff-0")

    assert result.rejection_code == "INVALID_NAME"
    assert shard.state.reads.load_topic(NAME) is not None


# Changes -----------------------------------------------------------------------------------------


async def test_a_split_is_planned_once(world: World, shard: ShardReplica) -> None:
    await create(world, scalable(segments=2))

    first = await run(world, command_id=b"i" * 16, change_layout=split(0))
    again = await run(world, command_id=b"i" * 16, change_layout=split(0))
    joined = await run(world, command_id=b"j" * 16, change_layout=split(0))
    other = await run(world, change_layout=split(1))

    assert (first.rejection_code, first.version) == ("", 2)
    assert again == first
    assert joined.rejection_code == ""
    assert other.rejection_code == "NOT_ALLOWED"
    layout = shard.state.reads.load_scalable(NAME)
    assert layout is not None
    assert layout.operation is not None
    assert [each.segment_id for each in layout.operation.children] == [2, 3]


async def test_subscriptions_and_consumers_come_and_go(world: World, shard: ShardReplica) -> None:
    await create(world, scalable())
    register = pb.RegisterScalableConsumer(
        name=NAME, subscription="s", consumer_name="a", type="stream", takes_buckets=True
    )
    create_q = pb.CreateScalableSubscription(name=NAME, subscription="q", type="queue")
    seek_q = pb.SeekScalableSubscription(name=NAME, subscription="q", seek_to_ms=7)
    leave = pb.RemoveScalableConsumer(name=NAME, subscription="s", consumer_name="a", reason="left")
    delete_s = pb.DeleteScalableSubscription(name=NAME, subscription="s")

    results = [
        await run(world, register_scalable_consumer=register),
        await run(world, create_scalable_subscription=create_q),
        await run(world, seek_scalable_subscription=seek_q),
        await run(world, remove_scalable_consumer=leave),
        await run(world, delete_scalable_subscription=delete_s),
    ]

    assert [each.rejection_code for each in results] == [""] * 5
    layout = shard.state.reads.load_scalable(NAME)
    assert layout is not None
    phases = {name: each.phase for name, each in layout.subscriptions.items()}
    assert phases == {"q": SubscriptionPhase.SEEKING, "s": SubscriptionPhase.DELETING}


@pytest.mark.parametrize(
    "command",
    [
        {"change_layout": pb.ChangeLayout(name=NAME, kind="halve", segments=[0])},
        {
            "create_scalable_subscription": pb.CreateScalableSubscription(
                name=NAME, subscription="s", type="tree"
            )
        },
        {
            "register_scalable_consumer": pb.RegisterScalableConsumer(
                name=NAME, subscription="s", consumer_name="a", type=""
            )
        },
        {
            "remove_scalable_consumer": pb.RemoveScalableConsumer(
                name=NAME, subscription="s", consumer_name="a", reason="bored"
            )
        },
    ],
    ids=["kind", "type", "no type", "reason"],
)
async def test_words_that_mean_nothing_are_refused(
    world: World, command: dict[str, object]
) -> None:
    await create(world, scalable())

    assert (await run(world, **command)).rejection_code == "NOT_ALLOWED"


async def test_what_is_not_there_is_not_changed(world: World) -> None:
    await create(world, pb.TopicSpec(name=CLASSIC))

    assert (await run(world, change_layout=split(0))).rejection_code == "NOT_FOUND"
    classic = pb.ChangeLayout(name=CLASSIC, kind="split", segments=[0])
    assert (await run(world, change_layout=classic)).rejection_code == "INVALID_NAME"
