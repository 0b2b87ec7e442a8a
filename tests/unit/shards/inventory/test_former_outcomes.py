"""Commands that are repeated behind a move of their slots: the first outcome, and only one."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.wire.command_ids import derived_command_id
from nextgen.kernel.errors import (
    Indefinite,
    NotLeader,
    OutcomeForgotten,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.shards.world import World, create_topics, names_in, namespace_at
from tests.support.slot_moves.recorded_moves import move_key, move_slots

ID_1 = b"command-00000001"
ID_2 = b"command-00000002"


@pytest.fixture
async def world():
    made = World(3)
    for shard in made.shards.values():
        await shard.state.proposer.confirm()
    yield made
    made.close()


def tenant_at(world, shard_id):
    return next(name for name in map("tenant-{}".format, range(99)) if at(world, name) == shard_id)


def at(world, key):
    return world.table.shard_for_key(key)


def creation(name, command_id=ID_1):
    return pb.Command(command_id=command_id, create_tenant=pb.CreateTenant(name=name))


async def execute(shard, *commands, **fields):
    request = pb.ExecuteRequest(commands=commands, **fields)
    return list((await shard.service.execute(request)).results)


async def test_a_command_that_the_former_shard_carried_out_gets_its_first_outcome(world):
    name = tenant_at(world, 1)
    (first,) = await execute(world.shards[1], creation(name))
    await move_key(world, name, 2)

    (again,) = await execute(world.shards[2], creation(name))

    assert (again.id, again.version, again.rejection_code) == (first.id, 1, "")
    assert again.position == world.shards[2].log.status.commit_position
    with pytest.raises(StaleShardMap):
        await execute(world.shards[1], creation(name))


async def test_a_command_is_known_that_the_former_shard_carried_out(world):
    name = tenant_at(world, 1)
    await execute(world.shards[1], creation(name))
    await move_key(world, name, 2)
    await execute(world.shards[2], creation(tenant_at(world, 2), ID_2))
    asked = [creation(name), creation(name, ID_2), creation(name, b"command-00000003")]

    known = await world.shards[2].service.known_commands(pb.ExecuteRequest(commands=asked))

    assert [each.command_id in known for each in asked] == [True, True, False]


async def test_so_does_one_that_was_refused_there_though_it_would_not_be_here(world):
    name = tenant_at(world, 1)
    delete = pb.Command(command_id=ID_1, delete_tenant=pb.DeleteTenant(name=name))
    (first,) = await execute(world.shards[1], delete)
    assert first.rejection_code == "NOT_FOUND"
    await execute(world.shards[1], creation(name, ID_2))
    await move_key(world, name, 2)

    (again,) = await execute(world.shards[2], delete)

    assert again.rejection_code == "NOT_FOUND"
    assert world.shards[2].state.reads.load_tenant(name) is not None


async def test_what_the_former_shard_does_not_know_is_carried_out_once(world):
    name = tenant_at(world, 1)
    await move_key(world, name, 2)

    (first,) = await execute(world.shards[2], creation(name))
    (again,) = await execute(world.shards[2], creation(name))

    assert first.id
    assert again.id == first.id
    assert world.outcomes_asked == [1], "the repetition is known here"


async def test_only_slots_that_came_are_asked_about(world):
    name = tenant_at(world, 1)
    stayed = tenant_at(world, 2)
    await move_key(world, name, 2)

    await execute(world.shards[2], creation(stayed))

    assert world.outcomes_asked == []


async def test_a_command_issued_behind_the_adoption_is_not_asked_about(world):
    name = tenant_at(world, 1)
    await move_key(world, name, 2)
    position = world.shards[2].log.status.commit_position

    await execute(world.shards[2], creation(name), issued_position=position)
    assert world.outcomes_asked == []
    await execute(world.shards[2], creation(name, ID_2), issued_position=position - 1)
    assert world.outcomes_asked == [1]


async def test_a_former_shard_asks_where_its_own_slots_came_from(world):
    name = tenant_at(world, 1)
    (first,) = await execute(world.shards[1], creation(name))
    await move_key(world, name, 2)
    await move_key(world, name, 3)

    (again,) = await execute(world.shards[3], creation(name))

    assert again.id == first.id
    assert world.outcomes_asked == [2, 1]


async def test_a_slot_that_went_and_came_back_finds_the_outcome_of_each_stay(world):
    name = tenant_at(world, 1)
    (first,) = await execute(world.shards[1], creation(name))
    await move_key(world, name, 2)
    delete = pb.Command(command_id=ID_2, delete_tenant=pb.DeleteTenant(name=name))
    (deleted,) = await execute(world.shards[2], delete)
    assert not deleted.rejection_code
    await move_key(world, name, 1)

    results = await execute(world.shards[1], creation(name), delete)

    assert [each.rejection_code for each in results] == ["", ""]
    assert results[0].id == first.id
    assert world.shards[1].state.reads.load_tenant(name) is None


async def test_a_former_shard_that_cannot_be_asked_leaves_it_open(world):
    name = tenant_at(world, 1)
    await execute(world.shards[1], creation(name))
    await move_key(world, name, 2)

    def refuse(_shard_id):
        raise NotLeader(1)

    world.before_outcomes = refuse
    with pytest.raises(Indefinite):
        await execute(world.shards[2], creation(name, ID_2))

    world.before_outcomes = None
    (result,) = await execute(world.shards[2], creation(name, ID_2))
    assert result.rejection_code == "ALREADY_EXISTS"


async def test_what_the_former_shard_may_have_forgotten_is_not_carried_out(world, monkeypatch):
    name = tenant_at(world, 1)
    await move_key(world, name, 2)
    former = world.shards[1]
    monkeypatch.setattr(former.state.outcomes, "forgotten_position", lambda: 7)
    issued = [pb.IssuedAt(shard_id=1, position=7)]

    with pytest.raises(OutcomeForgotten):
        await execute(world.shards[2], creation(name), issued=issued)
    assert world.shards[2].state.reads.load_tenant(name) is None

    issued[0].position = 8
    (result,) = await execute(world.shards[2], creation(name), issued=issued)
    assert not result.rejection_code


async def test_positions_of_other_shards_alone_do_not_do(world):
    name = tenant_at(world, 1)
    await move_key(world, name, 2)

    with pytest.raises(Unavailable):
        await execute(world.shards[2], creation(name), issued=[pb.IssuedAt(shard_id=3, position=9)])

    assert world.shards[2].state.reads.load_tenant(name) is None


async def test_a_command_at_work_when_the_slot_left_is_waited_for(world):
    """It reads its parent while its slot leaves: it must not be refused there and done here."""
    tenant = tenant_at(world, 3)
    await execute(world.shards[3], creation(tenant, b""))
    namespace = namespace_at(world, 1, tenant)
    command = pb.Command(command_id=ID_1, create_namespace=pb.CreateNamespace(name=namespace))
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_name):
        reading.set()
        await go_on.wait()

    world.before_read = wait
    first = asyncio.create_task(execute(world.shards[1], command))
    await reading.wait()
    await move_key(world, namespace, 2)
    again = asyncio.create_task(execute(world.shards[2], command))
    await asyncio.sleep(0)
    go_on.set()
    outcomes = await asyncio.gather(first, again, return_exceptions=True)

    done = [each for each in outcomes if not isinstance(each, BaseException)]
    assert not isinstance(outcomes[1], BaseException)
    assert len({result.id for results in done for result in results}) == 1
    assert world.shards[2].state.reads.load_namespace(namespace).namespace_id == done[0][0].id


# Batches --------------------------------------------------------------------------------------


@pytest.fixture
async def family(world):
    tenant = tenant_at(world, 3)
    await execute(world.shards[3], creation(tenant, b""))
    namespace = namespace_at(world, 3, tenant)
    assert not (await world.create_namespace(namespace)).rejection_code
    return namespace


async def create(world, names, batch_id=ID_1):
    """Create ``names`` as discovery does, by the present map; return their outcomes by name."""
    by_shard = {}
    for name in names:
        by_shard.setdefault(world.home_of_topic(name).shard_id, []).append(name)
    outcomes = {}
    for shard_id, group in by_shard.items():
        command = create_topics(group, derived_command_id(batch_id, shard_id))
        command.batch_id = batch_id
        (result,) = await execute(world.shards[shard_id], command)
        assert not result.topic_hashes
        outcomes.update(zip(group, result.topics, strict=True))
    return outcomes


def some_names(world, shard_id, namespace, count):
    names = names_in(world, shard_id, namespace)
    return [next(names) for _ in range(count)]


def stored_id(world, name):
    return world.home_of_topic(name).state.reads.load_topic(name).topic_id


async def move_topic(world, name, target):
    await move_key(world, parse_topic(name).routing_key, target)


@pytest.mark.parametrize("is_new_term", [False, True], ids=["same leader", "next leader"])
async def test_a_batch_that_is_split_otherwise_gets_the_first_outcomes(world, family, is_new_term):
    names = [*some_names(world, 1, family, 4), *some_names(world, 2, family, 3)]
    first = await create(world, names)
    assert all(outcome.topic_id for outcome in first.values())
    await move_topic(world, names[0], 2)
    await move_topic(world, names[5], 1)
    if is_new_term:
        for shard in world.shards.values():
            shard.next_term()

    for _ in range(2):
        again = await create(world, names)
        assert {name: each.topic_id for name, each in again.items()} == {
            name: each.topic_id for name, each in first.items()
        }
    assert all(stored_id(world, name) == first[name].topic_id for name in names)


async def test_only_the_part_that_nobody_knows_is_created(world, family):
    """The shard of two topics was not reached at the first attempt; then slots moved."""
    known, lost = some_names(world, 1, family, 2), some_names(world, 2, family, 2)
    first = await create(world, known)
    await move_topic(world, known[0], 2)
    await move_topic(world, lost[0], 1)

    again = await create(world, [*known, *lost])
    once_more = await create(world, [*known, *lost])

    assert all(outcome.topic_id for outcome in again.values())
    assert {name: again[name].topic_id for name in known} == {
        name: first[name].topic_id for name in known
    }
    assert {name: each.topic_id for name, each in once_more.items()} == {
        name: each.topic_id for name, each in again.items()
    }


async def test_what_was_decided_here_is_known_where_its_slot_went_later(world, family):
    """A part is recorded again with the rest: what it knew of topics that have left stays."""
    names = some_names(world, 1, family, 3)
    other = some_names(world, 2, family, 1)[0]
    first = await create(world, names)
    await move_topic(world, names[0], 3)
    await move_topic(world, other, 1)
    created = await create(world, [*names[1:], other])

    again = await create(world, [*names, other])

    assert again[names[0]].topic_id == first[names[0]].topic_id
    assert again[other].topic_id == created[other].topic_id


async def test_a_batch_with_a_refused_topic_refuses_it_again(world, family):
    name = some_names(world, 1, family, 1)[0]
    await world.create_topic(name)
    other = some_names(world, 2, family, 1)[0]
    first = await create(world, [name, other])
    assert first[name].rejection_code == "ALREADY_EXISTS"
    await world.delete_topic(name)
    await move_topic(world, name, 2)

    again = await create(world, [name, other])

    assert again[name].rejection_code == "ALREADY_EXISTS"
    assert again[other].topic_id == first[other].topic_id


async def test_two_attempts_with_different_splits_at_once_create_every_topic_once(world, family):
    names = some_names(world, 1, family, 4)
    await move_slots(world, ((0, 16_383 // 3),), 1, 2)
    parts = [names[:2], names]

    async def attempt(group):
        command = create_topics(group, derived_command_id(ID_1, 2))
        command.batch_id = ID_1
        (result,) = await execute(world.shards[2], command)
        return dict(zip(group, result.topics, strict=True))

    one, other = await asyncio.gather(*(attempt(group) for group in parts))

    assert {name: each.topic_id for name, each in one.items()} == {
        name: other[name].topic_id for name in parts[0]
    }
    assert all(outcome.topic_id for outcome in other.values())
