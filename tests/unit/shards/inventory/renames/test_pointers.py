"""Pointers in the shard of a name, and what may happen while their homes are asked."""

from itertools import islice

import pytest

from nextgen.kernel.errors import InvalidRequest, MetadataError, StaleShardMap, Unavailable
from nextgen.kernel.limits.write import FORMER_NAME_REST_MS, POINTERS_REMEMBERED_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.inventory.renames.pointers import NOT_ASKED
from tests.support.shards.world import World, names_in
from tests.support.slots.renames import NAMESPACE, Renamer, living, make_namespaces

HOME, OF_NAME = 1, 2


@pytest.fixture
async def world():
    world = World(2)
    await make_namespaces(world)
    yield world
    world.close()


@pytest.fixture
async def renamed(world: World) -> tuple[str, str, str]:
    """A topic that was renamed into another shard's slots: its id, its old name, its name."""
    old, new = next(names_in(world, HOME, NAMESPACE)), next(names_in(world, OF_NAME, NAMESPACE))
    client = Renamer(world)
    topic_id = await client.create(old)
    assert await client.rename(old, new) == ""
    return topic_id, old, new


def point(name: str, topic_id: str) -> pb.Command:
    return pb.Command(point_name=pb.PointName(name=name, topic_id=topic_id))


async def test_a_creation_is_void_if_its_name_is_about_to_be_given_meanwhile(world, renamed):
    """1. A creator has the home asked: the name is free. 2. The home begins a rename to it, and has
    the name kept. 3. The creation is decided."""
    _, old, new = renamed
    client = Renamer(world)
    await client.delete(new)
    again = await client.create(old)

    async def then_rename(_name: str) -> None:
        world.after_use = None
        assert await client.rename(old, new) == ""

    world.after_use = then_rename
    assert await Renamer(world).create(new) == "ALREADY_EXISTS"

    assert living(world) == {new: again}


async def test_a_creation_is_void_if_its_pointers_topic_gets_the_name_again_meanwhile(
    world, renamed
):
    """As before, and the pointer is that of the topic already: it had the name once."""
    topic_id, old, new = renamed
    client = Renamer(world)
    assert await client.rename(new, f"{old}-again", grace_ms=0) == ""
    world.shards[HOME].clock.skip(FORMER_NAME_REST_MS)

    async def then_rename(_name: str) -> None:
        world.after_use = None
        assert await client.rename(f"{old}-again", new) == ""

    world.after_use = then_rename
    assert await Renamer(world).create(new) == "ALREADY_EXISTS"

    assert living(world) == {new: topic_id}


async def test_of_two_renames_to_one_name_the_later_waits(world):
    old = list(islice(names_in(world, HOME, NAMESPACE), 2))
    new = next(names_in(world, OF_NAME, NAMESPACE))
    client = Renamer(world)
    ids = [await client.create(name) for name in old]

    async def rename_the_other(_name: str) -> None:
        world.before_point = None
        order = pb.RenameTopic(name=old[1], new_name=new)
        with pytest.raises(Unavailable, match="another rename"):
            await world.run(world.shards[HOME], pb.Command(rename_topic=order))

    world.before_point = rename_the_other
    assert await client.rename(old[0], new) == ""

    assert await client.rename(old[1], new) == "ALREADY_EXISTS"
    assert living(world) == {new: ids[0], old[1]: ids[1]}


async def test_a_name_is_kept_for_one_topic_at_a_time(world, renamed):
    topic_id, _, new = renamed
    shard = world.shards[OF_NAME]
    other = "0000" + 20 * "b"

    assert (await world.run(shard, point(new, topic_id))).rejection_code == ""
    assert (await world.run(shard, point(new, other))).rejection_code == "ALREADY_EXISTS"
    await Renamer(world).delete(new)
    assert (await world.run(shard, point(new, other))).rejection_code == ""

    assert shard.state.names.pointer(new).topic_id == other


async def test_a_name_of_an_existing_topic_is_kept_for_no_other(world):
    name = next(names_in(world, OF_NAME, NAMESPACE))
    own = await Renamer(world).create(name)
    shard = world.shards[OF_NAME]

    result = await world.run(shard, point(name, "0000" + 20 * "b"))

    assert (result.rejection_code, own in living(world).values()) == ("ALREADY_EXISTS", True)
    assert shard.state.names.pointer(name) is None


@pytest.mark.parametrize(
    ("name", "topic_id"),
    [
        ("orders", "0001" + 20 * "a"),
        (f"persistent://{NAMESPACE}/x-partition-1", "0001" + 20 * "a"),
        (f"persistent://{NAMESPACE}/x", "no id"),
    ],
)
async def test_a_malformed_order_to_keep_a_name_is_refused(world, name, topic_id):
    shard = world.home_of_topic(name)
    with pytest.raises(InvalidRequest):
        await world.run(shard, point(name, topic_id))


async def test_only_the_shard_of_a_name_keeps_it(world):
    name = next(names_in(world, OF_NAME, NAMESPACE))
    with pytest.raises(StaleShardMap):
        await world.run(world.shards[HOME], point(name, "0001" + 20 * "a"))


async def test_a_request_for_a_name_that_is_being_given_waits_for_the_outcome(world, renamed):
    _, old, new = renamed
    client = Renamer(world)
    await client.delete(new)
    again = await client.create(old)
    seen: list[object] = []

    async def look(_name: str) -> None:
        world.after_point = None
        for _ in range(2):
            try:
                await world.shards[OF_NAME].service.pointers.check([parse_topic(new)])
                seen.append(None)
            except MetadataError as error:
                seen.append(type(error))

    world.after_point = look
    assert await client.rename(old, new) == ""
    assert seen == [Unavailable, Unavailable], "what was sent on a moment ago is not sent on again"
    assert (await Renamer(world).get(new)).topic_id == again


async def test_pointers_remembered_max_names_are_remembered_and_of_others_homes_are_asked(world):
    pointers = world.shards[OF_NAME].service.pointers
    names = [f"persistent://{NAMESPACE}/{number}" for number in range(POINTERS_REMEMBERED_MAX + 1)]
    for name in names[:-1]:
        pointers.note_pointed(name)
    assert pointers._version("another") == 0, "nothing was forgotten"

    pointers.note_pointed(names[-1])

    assert pointers._version(names[0]) == pointers._version("another") == 1
    assert pointers._version(names[1]) == 2


async def test_a_shard_without_pointers_asks_and_reads_nothing(world):
    name = parse_topic(next(names_in(world, OF_NAME, NAMESPACE)))
    shard = world.shards[OF_NAME]

    assert not shard.state.names.have_pointers
    assert shard.service.pointers.admit(name, NOT_ASKED).events == ()
    await shard.service.pointers.check([name])
    assert shard.state.names.has(name)
    assert shard.state.names.lacking([name]) == {}


async def test_the_home_says_what_a_name_is_to_its_topic(world, renamed):
    topic_id, old, new = renamed
    home = world.shards[HOME].service

    async def use(name: str, of: str = topic_id) -> int:
        answer = await home.renaming.use(pb.GetNameUseRequest(name=name, topic_id=of))
        return answer.use

    assert await use(new) == pb.NAME_USE_CURRENT
    assert await use(old) == pb.NAME_USE_FORMER
    assert await use(old, topic_id[:-1] + "f") == pb.NAME_USE_FREE
    assert await use(f"persistent://{NAMESPACE}/another") == pb.NAME_USE_FREE
    world.shards[HOME].clock.skip(3_600_000)
    assert await use(old) == pb.NAME_USE_RESTING
    world.shards[HOME].clock.skip(60_000)
    assert await use(old) == pb.NAME_USE_FREE
    with pytest.raises(StaleShardMap):
        await use(new, f"{slot_of(parse_topic(new).routing_key):04x}" + 20 * "a")
    with pytest.raises(InvalidRequest):
        await use("a//b//c")
