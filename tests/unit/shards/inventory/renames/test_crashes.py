"""Each step of a rename, with each party crashing at it: the home, the shard of the new name, both,
and the client.

Afterwards the topic is found under its old name in any case. The new name leads to it, or is free:
then another topic gets it, and the rename that is repeated is refused.
"""

import asyncio

import pytest

from nextgen.kernel.errors import MetadataError, StaleShardMap
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.shards.world import ShardReplica, World, names_in
from tests.support.simulated.virtual_time import run_virtual
from tests.support.slots.renames import NAMESPACE, Renamer, check_names, living, make_namespaces
from tests.support.slots.world import MovingShard, SlotWorld, in_slot_world, moves, the_move

HOME, OF_NAME = 1, 2
OTHER_NAMESPACE = "acme/other"
STEPS = ("namespace read", "name asked for", "name kept", "record proposed", "record committed")
CRASHES = ("home", "home, its record survives", "shard of the name", "both", "client")


def crash(world: World, who: str, shards: tuple[int, ...]) -> None:
    for shard_id in shards:
        shard = world.shards[shard_id]
        if who.endswith("survives"):
            shard.service.close()
            shard.log.lose_leadership(pending_survives=True)
        shard.log.release_commits() if who == "client" else shard.next_term()


PARTIES = {
    "home": (HOME,),
    "home, its record survives": (HOME,),
    "shard of the name": (OF_NAME,),
    "both": (HOME, OF_NAME),
    "client": (),
}


@pytest.mark.parametrize("competitor", ["none", "create", "rename"])
@pytest.mark.parametrize("who", CRASHES)
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_the_topic_with_one_name_or_both(step, who, competitor):
    async def story() -> None:
        world = World(2)
        try:
            await make_namespaces(world, NAMESPACE)
            await world.create_namespace(OTHER_NAMESPACE)
            await _story(world, step, who, competitor)
        finally:
            world.close()

    run_virtual(story)


async def _story(world: World, step: str, who: str, competitor: str) -> None:
    old = next(names_in(world, HOME, NAMESPACE))
    new = next(names_in(world, OF_NAME, OTHER_NAMESPACE))
    client = Renamer(world)
    topic_id = await client.create(old)
    third = next(names_in(world, OF_NAME, NAMESPACE))
    third_id = await client.create(third)
    order = pb.Command(command_id=b"r" * 16, rename_topic=pb.RenameTopic(name=old, new_name=new))
    task = asyncio.create_task(client.execute(old, order))

    home = world.shards[HOME]
    await _reach(world, step, task)
    if who == "client":
        task.cancel()
    crash(world, who, PARTIES[who])
    home.log.release_commits()
    if competitor == "none":
        await asyncio.wait((task,))

    other = Renamer(world)
    took = ""
    if competitor == "create":
        took = await _outcome(other.create(new))
    elif competitor == "rename":
        took = await _outcome(other.rename(third, new))
    await asyncio.wait((task,))
    was_renamed = not task.cancelled() and not task.exception() and not task.result().rejection_code

    again = await client.execute(old, order)

    found = await other.get(old)
    assert found.topic_id == topic_id, "the old name leads to the topic"
    by_new = await other.get(new)
    if not again.rejection_code:
        assert found.name == new
        assert by_new.topic_id == topic_id
        assert took in ("ALREADY_EXISTS", "UNAVAILABLE") or competitor == "none"
    else:
        assert again.rejection_code == "ALREADY_EXISTS"
        assert not was_renamed, "a rename that was answered is not lost"
        assert found.name == old
        assert by_new.topic_id != topic_id
    await home.state.proposer.confirm()
    assert (await other.get(third)).topic_id == third_id
    assert set(living(world).values()) >= {topic_id, third_id}
    check_names(world)


async def _reach(world: World, step: str, renaming: asyncio.Task[pb.CommandResult]) -> None:
    """Return when the rename is at ``step``."""
    if step == "record committed":
        await renaming
        return
    reached = asyncio.Event()

    def at_step(_what: object) -> object:
        world.before_read = world.before_point = world.after_point = None
        reached.set()
        return asyncio.sleep(0.001)

    home = world.shards[HOME]
    match step:
        case "namespace read":
            world.before_read = at_step
        case "name asked for":
            world.before_point = at_step
        case "name kept":
            world.after_point = at_step
        case "record proposed":
            home.log.hold_commits()
            world.after_point = at_step
    await reached.wait()
    if step == "record proposed":
        await asyncio.sleep(0.01)
        assert home.log._queue, "the record waits for its commit"


async def _outcome(call: object) -> str:
    try:
        return await call  # type: ignore[misc]
    except MetadataError as error:
        return error.reason


@pytest.mark.parametrize("step", ["name asked for", "name kept"])
def test_a_deposed_home_renames_nothing_and_its_successor_gives_the_name_away(step):
    """1. A leads, and asks for the name. 2. Another replica of A leads, and A does not know. 3. The
    name is kept for the topic. 4. A creator of that name asks the home's new leader: it is free."""

    async def story(world: SlotWorld) -> None:
        await make_namespaces(world, NAMESPACE)
        old = next(names_in(world, HOME, NAMESPACE))
        new = next(names_in(world, OF_NAME, NAMESPACE))
        client = Renamer(world)
        topic_id = await client.create(old)
        ends = []

        def depose(_name: str) -> None:
            world.before_point = world.after_point = None
            ends.append(world.a.depose())

        if step == "name asked for":
            world.before_point = depose
        else:
            world.after_point = depose
        home: ShardReplica = world.a
        assert isinstance(home, MovingShard)
        service = home.service
        order = pb.Command(rename_topic=pb.RenameTopic(name=old, new_name=new))
        renaming = asyncio.create_task(service.execute(pb.ExecuteRequest(commands=[order])))
        while not ends:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)

        created = await Renamer(world).create(new)
        ends[0]()
        await asyncio.wait((renaming,))

        assert isinstance(renaming.exception(), MetadataError)
        other = Renamer(world)
        assert (await other.get(new)).topic_id == created
        assert (await other.get(old)).topic_id == topic_id
        assert living(world) == {old: topic_id, new: created}
        check_names(world)

    in_slot_world(story)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("step", ["name asked for", "name kept"])
def test_a_rename_whose_topic_moves_to_another_shard_meanwhile_is_decided_there(step, taken):
    """1. A leads the topic's shard, and asks for the name. 2. The topic's slot moves to B, and A
    removes what it has left of it. 3. A has the answer, and may no longer say that there is no such
    topic, or that it cannot have the name."""

    async def story(world: SlotWorld) -> None:
        await make_namespaces(world, NAMESPACE)
        old = next(name for name in names_in(world, HOME, NAMESPACE) if moves(name))
        new = next(names_in(world, OF_NAME, NAMESPACE))
        client = Renamer(world)
        topic_id = await client.create(old)
        if taken:
            await client.create(new)

        async def move(_name: str) -> None:
            world.before_point = world.after_point = None
            world.manager.plan(the_move())
            await world.done()

        if step == "name asked for":
            world.before_point = move
        else:
            world.after_point = move

        order = pb.Command(rename_topic=pb.RenameTopic(name=old, new_name=new))
        with pytest.raises(StaleShardMap):
            await client.execute(old, order)
        assert world.manager.moves, "the topic has moved meanwhile"
        result = await client.execute(old, order)

        assert result.rejection_code == ("ALREADY_EXISTS" if taken else "")
        assert (await client.get(old)).topic_id == topic_id
        assert living(world)[old if taken else new] == topic_id
        check_names(world)

    in_slot_world(story)
