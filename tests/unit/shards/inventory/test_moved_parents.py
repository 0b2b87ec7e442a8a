"""Deletions of parents, and of sources of shadows, while slots move between shards."""

from __future__ import annotations

import asyncio
import random

import pytest

from nextgen.kernel.errors import Indefinite, MetadataError
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.life import Life
from tests.support.shards.world import World, create_topics, names_in, namespace_at
from tests.support.slot_moves.recorded_moves import move_key

ID_1 = b"command-00000001"


@pytest.fixture
async def world():
    made = World(3)
    for shard in made.shards.values():
        await shard.state.proposer.confirm()
    yield made
    made.close()


@pytest.fixture
async def family(world):
    """A tenant with a namespace whose home is shard 1."""
    assert not (await world.create_tenant("acme")).rejection_code
    namespace = namespace_at(world, 1, "acme")
    assert not (await world.create_namespace(namespace)).rejection_code
    return namespace


def key_of(topic):
    return parse_topic(topic).routing_key


def namespace_state(world, namespace):
    return world.home(namespace).state.reads.load_namespace(namespace)


async def test_a_close_says_which_slots_it_was_decided_for(world, family):
    shard = world.shards[2]
    order = pb.CloseParentGate(
        parent_kind="namespace", parent_name=family, parent_id="i", attempt=5
    )

    for _ in range(2):
        result = await world.run(shard, pb.Command(close_parent_gate=order))
        slots = [(each.first, each.last) for each in result.gate_slots]
        assert slots == list(shard.state.reads.load_shard().ranges)
        assert result.gate_attempt == 5

    order.attempt = 4
    stale = await world.run(shard, pb.Command(close_parent_gate=order))
    assert (stale.rejection_code, stale.gate_attempt) == ("STALE_EPOCH", 5)


async def test_a_child_that_moves_past_the_closes_keeps_its_parent(world, family):
    """Shard 1 is asked first. Before shard 3 is, its only child goes to shard 1."""
    topic = next(names_in(world, 3, family))
    assert not (await world.create_topic(topic)).rejection_code

    async def move(shard_id):
        if shard_id == 3:
            world.before_close = None
            await move_key(world, key_of(topic), 1)

    world.before_close = move
    result = await world.delete_namespace(family, ID_1)

    assert result.rejection_code == "NOT_EMPTY"
    assert namespace_state(world, family).life is Life.ACTIVE
    assert world.home_of_topic(topic).state.reads.load_topic(topic) is not None


async def test_a_slot_that_keeps_moving_leaves_the_deletion_open(world, family):
    slots = [next(names_in(world, 3, family))]
    rounds = []

    async def move(shard_id):
        if shard_id == 3:
            rounds.append(shard_id)
            await move_key(world, key_of(slots[0]), 1)
        elif rounds and shard_id == 1:
            await move_key(world, key_of(slots[0]), 3)

    world.before_close = move
    with pytest.raises(Indefinite):
        await world.delete_namespace(family, ID_1)
    assert namespace_state(world, family).life is Life.DELETING

    world.before_close = None
    result = await world.delete_namespace(family, ID_1)
    assert not result.rejection_code
    assert namespace_state(world, family) is None


async def test_children_that_came_behind_a_close_refuse_its_repetition(world, family):
    topic = next(names_in(world, 3, family))
    await world.create_topic(topic)
    namespace_id = namespace_state(world, family).namespace_id
    order = pb.CloseParentGate(
        parent_kind="namespace", parent_name=family, parent_id=namespace_id, attempt=5
    )
    first = await world.run(world.shards[1], pb.Command(close_parent_gate=order))
    await move_key(world, key_of(topic), 1)

    again = await world.run(world.shards[1], pb.Command(close_parent_gate=order))

    assert (first.rejection_code, again.rejection_code) == ("", "NOT_EMPTY")


async def test_a_parent_is_deleted_by_a_shard_that_has_counted_less(world, family):
    """Its former home has had more leaders, so the gates know of higher attempts."""
    topic = next(names_in(world, 2, family))
    await world.create_topic(topic)
    for _ in range(5):
        world.shards[1].next_term()
    assert (await world.delete_namespace(family)).rejection_code == "NOT_EMPTY"
    await move_key(world, family, 3)
    await world.delete_topic(topic)

    result = await world.delete_namespace(family, ID_1)

    assert not result.rejection_code
    assert namespace_state(world, family) is None


async def test_a_parent_that_moves_while_it_is_deleted_is_deleted_at_its_new_home(world, family):
    async def move(shard_id):
        if shard_id == 2:
            world.before_close = None
            await move_key(world, family, 3)

    world.before_close = move
    with pytest.raises(Indefinite):
        await world.delete_namespace(family, ID_1)
    assert namespace_state(world, family).life is Life.DELETING

    result = await world.delete_namespace(family, ID_1)

    assert not result.rejection_code
    assert namespace_state(world, family) is None


# Shadows --------------------------------------------------------------------------------------


async def with_shadow(world, namespace, partitions=0):
    source, shadow = next(names_in(world, 1, namespace)), next(names_in(world, 2, namespace))
    assert not (await world.create_topic(source, partitions=partitions)).rejection_code
    spec = pb.TopicSpec(name=shadow, partitions=partitions)
    spec.properties["PULSAR.SHADOW_SOURCE"] = source
    command = pb.Command(create_topics=pb.CreateTopics(topics=[spec]))
    (outcome,) = (await world.run(world.home_of_topic(shadow), command)).topics
    assert not outcome.rejection_code
    return source, shadow


async def test_a_source_is_not_deleted_under_a_shadow_that_moved(world, family):
    source, shadow = await with_shadow(world, family)
    await move_key(world, key_of(shadow), 3)

    result = await world.delete_topic(source, ID_1)

    assert result.rejection_code == "NOT_EMPTY"
    assert shadow in result.message


async def test_a_shadow_that_moved_grows_with_its_source(world, family):
    source, shadow = await with_shadow(world, family, partitions=2)
    await move_key(world, key_of(shadow), 3)
    command = pb.Command(grow_topic=pb.GrowTopic(name=source, partitions=4))

    result = await world.run(world.home_of_topic(source), command)

    assert not result.rejection_code
    assert world.shards[3].state.reads.load_topic(shadow).partitions == 4


async def test_a_shadow_that_moves_past_a_growth_keeps_its_source_small(world, family):
    source, shadow = await with_shadow(world, family, partitions=2)

    async def move(shard_id):
        if shard_id == 2:
            world.before_close = None
            await move_key(world, key_of(shadow), 1)

    world.before_close = move
    command = pb.Command(command_id=ID_1, grow_topic=pb.GrowTopic(name=source, partitions=4))
    home = world.home_of_topic(source)
    with pytest.raises(Indefinite):
        await world.run(home, command)
    assert home.state.reads.load_topic(source).partitions == 2

    assert not (await world.run(home, command)).rejection_code
    assert world.shards[1].state.reads.load_topic(shadow).partitions == 4


# The property ---------------------------------------------------------------------------------


NAMESPACES = [f"acme/ns-{number}" for number in range(2)]
TOPICS = [f"persistent://{name}/t-{each}" for name in NAMESPACES for each in range(2)]
KINDS = ["create_namespace", "create", "create", "delete_namespace", "delete_namespace"]
KINDS += ["delete", "move", "move", "move", "move"]


class Actors:
    """Clients that create and delete, and moves of slots, each step a little late."""

    def __init__(self, world, seed):
        self._world = world
        self._chance = random.Random(seed)
        self._moving = asyncio.Lock()
        world.before_read = world.after_read = self.dawdle
        world.before_close = self.dawdle_long
        world.before_reopen = world.before_outcomes = self.dawdle

    async def dawdle(self, _argument=None):
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)

    async def dawdle_long(self, _argument=None):
        for _ in range(5):
            await self.dawdle()

    async def act(self, steps=12):
        for _ in range(steps):
            await self.dawdle()
            try:
                await self._step(self._chance.choice(KINDS), self._chance.choice(TOPICS))
            except MetadataError:
                continue  # It may have been done, or not.

    async def _step(self, kind, topic):
        world, command_id = self._world, self._chance.randbytes(16)
        namespace = parse_topic(topic).namespace_text
        if kind == "move":
            key = self._chance.choice([namespace, key_of(topic)])
            async with self._moving:
                await move_key(world, key, self._chance.choice([1, 2, 3]))
        elif kind == "create":
            await world.run(world.home_of_topic(topic), create_topics([topic], command_id))
        elif kind == "delete":
            await world.delete_topic(topic, command_id)
        else:
            await getattr(world, kind)(namespace, command_id)


@pytest.mark.parametrize("seed", range(12))
async def test_no_child_is_left_under_a_deleted_parent_while_slots_move(seed):
    world = World(3)
    try:
        for shard in world.shards.values():
            await shard.state.proposer.confirm()
        await world.create_tenant("acme")
        actors = Actors(world, seed)
        await asyncio.gather(*(actors.act(25) for _ in range(4)))

        for topic in TOPICS:
            home = world.home_of_topic(topic)
            present = home.state.reads.load_topic(topic)
            if present is not None:
                namespace = namespace_state(world, parse_topic(topic).namespace_text)
                assert namespace is not None, f"{topic} is left alone"
                assert namespace.namespace_id == present.namespace_id
            others = [each for each in world.shards.values() if each is not home]
            assert not [each for each in others if each.state.reads.load_topic(topic)]
    finally:
        world.close()
