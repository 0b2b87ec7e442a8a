"""A topic that is renamed while brokers hold it: its changes still reach them, once each."""

from __future__ import annotations

import pytest

from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.sessions import metadata_watch
from tests.support.scenarios import run_by
from tests.support.shards.metadata_world import MetadataWorld, in_world, told

TOPIC = "persistent://acme/orders/paid"
NEW = "persistent://acme/orders/settled"
PARTITION = f"{TOPIC}-partition-0"


def topics_told(world: MetadataWorld, broker_id: str = "a") -> list[tuple[str, str, int]]:
    changes = told(world.brokers[broker_id].changes)
    return [each for each in changes if each[0] in ("topic", "removed")]


def names_followed(world: MetadataWorld) -> set[str]:
    return {
        name
        for stream in world.homes.streams
        for watch in stream.watches.values()
        for name in watch.names
        if "://" in name
    }


@pytest.mark.parametrize("shards", [1, 2])
def test_a_renamed_topic_is_followed_by_its_new_name_at_its_home(shards: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(TOPIC)
        world.assign("a", TOPIC)
        await world.settle()

        world.homes.rename(TOPIC, NEW)
        await world.settle()
        world.homes.set_properties(NEW, a="b")
        await world.settle()

        assert topics_told(world) == [("topic", NEW, 2), ("topic", NEW, 3)]
        assert world.watch.is_followed(NEW)
        assert not world.watch.is_followed(TOPIC)
        held = world.brokers["a"].holding.topic(NEW)
        assert held is not None
        assert [each.name for each in held.former_names] == [TOPIC]
        world.check_converged()

    in_world(scenario, shards=shards)


@run_by(in_world, "a", "b")
async def test_every_broker_with_a_unit_learns_the_new_name(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", PARTITION)
    world.assign("b", f"{TOPIC}-partition-1")
    await world.settle()

    world.homes.rename(TOPIC, NEW)
    await world.settle()
    world.homes.set_properties(NEW, a="b")
    await world.settle()

    for broker_id in ("a", "b"):
        assert topics_told(world, broker_id) == [("topic", NEW, 2), ("topic", NEW, 3)]


@run_by(in_world)
async def test_an_assignment_under_the_new_name_is_followed_before_the_home_has_told_of_it(
    world: MetadataWorld,
) -> None:
    """Its release under the old name is still on its way."""
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.rename(TOPIC, NEW)
    world.epochs[NEW] = 1
    world.assign("a", NEW)
    world.homes.set_properties(NEW, a="b")
    await world.settle()

    assert topics_told(world) == [("topic", NEW, 3)]
    assert world.watch.is_followed(NEW)
    world.check_converged()


@run_by(in_world)
async def test_an_assignment_that_is_older_than_the_rename_does_not_bring_the_old_name_back(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", PARTITION)
    late = world.prepare(f"{TOPIC}-partition-1")
    await world.settle()
    world.homes.rename(TOPIC, NEW)
    await world.settle()

    world.assign("a", late)
    world.homes.set_properties(NEW, a="b")
    await world.settle()

    assert topics_told(world)[-1] == ("topic", NEW, 3)
    assert names_followed(world) == {NEW}


@pytest.mark.parametrize("in_grace", [True, False])
def test_a_manager_that_missed_the_rename_finds_out_by_a_snapshot(in_grace: bool) -> None:
    """Without the grace it is taken for deleted: no unit of it is assigned by its old name."""

    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(TOPIC)
        assignment = world.prepare(TOPIC)
        world.assign("a", assignment)
        await world.settle()

        world.homes.rename(TOPIC, NEW, in_grace=in_grace)
        for stream in world.homes.streams:
            stream.reset()
        await world.settle()

        assert topics_told(world) == ([("topic", NEW, 2)] if in_grace else [("removed", TOPIC, 0)])
        world.release("a", assignment)
        world.epochs[NEW] = 1
        world.assign("a", NEW)
        world.homes.set_properties(NEW, a="b")
        await world.settle()
        assert topics_told(world)[-1] == ("topic", NEW, 3)
        world.check_converged()

    in_world(scenario)


@run_by(in_world)
async def test_the_next_leader_follows_the_name_that_the_broker_reports(
    world: MetadataWorld,
) -> None:
    """An assignment that is older than the rename came to it first."""
    world.create_topics(TOPIC)
    world.assign("a", PARTITION)
    late = world.prepare(f"{TOPIC}-partition-1")
    await world.settle()
    world.homes.rename(TOPIC, NEW, in_grace=False)
    await world.settle()

    world.next_leader()
    world.assign("a", late)
    world.report("a")
    world.homes.set_properties(NEW, a="b")
    await world.settle()

    assert topics_told(world) == [("topic", NEW, 2), ("topic", NEW, 3)]
    assert names_followed(world) == {NEW}


def test_a_later_topic_of_a_former_name_is_followed_at_its_own_home() -> None:
    """The manager has not heard yet that the first one has left the name."""

    async def scenario(world: MetadataWorld) -> None:
        own = world.homes.home_of(KIND_TOPIC, TOPIC)
        born = next(
            name
            for name in (f"{TOPIC}a", f"{TOPIC}b")
            if world.homes.home_of(KIND_TOPIC, name) != own
        )
        world.create_topics(born)
        world.homes.rename(born, TOPIC, in_grace=False)
        world.assign("a", TOPIC)
        await world.settle()
        world.homes.rename(TOPIC, NEW, in_grace=False)

        world.create_topics(TOPIC)
        world.assign("a", TOPIC)
        await world.settle()
        world.homes.set_properties(TOPIC, a="b")
        await world.settle()

        assert topics_told(world) == [("removed", TOPIC, 0), ("topic", TOPIC, 2)]
        assert [stream.home.shard_id for stream in world.homes.streams if stream.watches][-1] == own
        world.check_converged()

    in_world(scenario, shards=2)


@run_by(in_world)
async def test_metadata_names_watched_max_does_not_keep_a_renamed_topic_from_being_followed(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", world.watch.name_count)
        world.homes.rename(TOPIC, NEW)
        await world.settle()

    world.homes.set_properties(NEW, a="b")
    await world.settle()
    assert topics_told(world)[-1] == ("topic", NEW, 3)
