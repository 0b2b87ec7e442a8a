"""Renames of topics, with the home of the topic and the shard of the new name apart."""

import re

import pytest

from nextgen.kernel.limits.write import FORMER_NAME_REST_MS, FORMER_NAMES_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.shards.world import World, names_in
from tests.support.slots.renames import NAMESPACE, Renamer, check_names, living, make_namespaces


@pytest.fixture
async def world():
    world = World(2)
    await make_namespaces(world)
    yield world
    world.close()


@pytest.fixture
def client(world: World) -> Renamer:
    return Renamer(world)


def name_at(world: World, shard_id: int, taken: int = 0) -> str:
    names = names_in(world, shard_id, NAMESPACE)
    return [next(names) for _ in range(taken + 1)][-1]


@pytest.mark.parametrize("shard_id", [1, 2])
async def test_a_renamed_topic_is_found_under_both_names(world, client, shard_id):
    old, new = name_at(world, 1), name_at(world, shard_id, 5)
    topic_id = await client.create(old)

    assert await client.rename(old, new) == ""

    for name in (old, new):
        found = await client.get(name)
        assert (found.topic_id, found.name, found.version) == (topic_id, new, 2)
    assert living(world) == {new: topic_id}
    check_names(world)


async def test_a_name_in_another_shard_costs_a_hop_once(world, client):
    old, new = name_at(world, 1), name_at(world, 2)
    await client.create(old)
    await client.rename(old, new)

    client.asked.clear()
    await client.get(new)
    assert client.asked == [2, 1]
    client.asked.clear()
    await client.get(new)
    await client.get(old)
    assert client.asked == [1, 1]


async def test_a_write_to_a_topic_that_was_never_renamed_reads_no_other_names(world, client):
    renamed, name = name_at(world, 1), name_at(world, 1, 1)
    await client.create(renamed)
    await client.create(name)
    await client.rename(renamed, name_at(world, 1, 2))
    shard, statements = world.shards[1], []
    query = shard.query

    def noted(statement, parameters=()):
        statements.append(statement)
        return query(statement, parameters)

    shard.query = noted
    shard.next_term()
    assert shard.state.names.have_pointers
    assert shard.state.names.have_renamed
    order = pb.SetTopicProperties(name=name, properties={"a": "b"})

    result = await client.execute(name, pb.Command(set_topic_properties=order))

    assert not result.rejection_code
    assert any(" FROM topics " in each for each in statements)
    assert [each for each in statements if re.search(r" FROM (topic|former)_names ", each)] == []


async def test_a_former_name_leads_to_the_topic_until_its_time_is_over_and_then_rests(
    world, client
):
    old, new = name_at(world, 1), name_at(world, 2)
    topic_id = await client.create(old)
    await client.rename(old, new, grace_ms=10_000)

    assert await client.create(old) == "ALREADY_EXISTS"
    world.shards[1].clock.skip(10_000)
    assert await client.get(old) is None
    assert await client.create(old) == "ALREADY_EXISTS", "it rests"
    world.shards[1].clock.skip(FORMER_NAME_REST_MS)
    other_id = await client.create(old)

    assert living(world) == {new: topic_id, old: other_id}
    assert (await client.get(old)).topic_id == other_id
    assert (await client.get(new)).topic_id == topic_id
    check_names(world)


@pytest.mark.parametrize("shard_id", [1, 2])
async def test_the_names_of_a_renamed_topic_are_taken(world, client, shard_id):
    old, new, third = name_at(world, 1), name_at(world, shard_id, 5), name_at(world, 2, 7)
    await client.create(old)
    await client.create(third)
    await client.rename(old, new)

    for name in (old, new):
        assert await client.create(name) == "ALREADY_EXISTS"
        assert await client.create(name.replace("persistent", "topic")) != ""
        assert await client.rename(third, name) == "ALREADY_EXISTS"
    assert len(living(world)) == 2


async def test_a_name_of_another_domain_is_taken_where_the_topic_is_elsewhere(world, client):
    """Requests are routed by names without their domains."""
    old, new = name_at(world, 1), name_at(world, 2)
    await client.create(old)
    await client.create(f"non-{name_at(world, 2, 1)}")
    await client.rename(old, new)

    assert await client.create(f"non-{new}") == "ALREADY_EXISTS"
    assert await client.rename(old, name_at(world, 2, 1)) == "ALREADY_EXISTS"
    assert await client.create(f"non-{old}") not in ("ALREADY_EXISTS", "")


async def test_what_cannot_be_renamed_is_refused_with_the_reason(world, client):
    name, free = name_at(world, 1), name_at(world, 2)

    assert await client.rename(name, free) == "NOT_FOUND"
    await client.create(name)
    await client.create(name_at(world, 1, 2))
    for new_name, code in {
        name: "ALREADY_EXISTS",
        name_at(world, 1, 2): "ALREADY_EXISTS",
        f"{free}-partition-3": "INVALID_NAME",
        f"non-{free}": "NOT_ALLOWED",
        "persistent://acme/nowhere/x": "PARENT_NOT_FOUND",
    }.items():
        assert await client.rename(name, new_name) == code, new_name
    assert await client.rename(name, free, grace_ms=10**12) == "LIMIT_EXCEEDED"
    assert set(living(world)) == {name, name_at(world, 1, 2)}
    assert await client.create(free) not in ("ALREADY_EXISTS", ""), "nothing keeps the name"


async def test_a_circle_is_refused_until_the_name_is_free(world, client):
    old, new = name_at(world, 1), name_at(world, 2)
    topic_id = await client.create(old)
    await client.rename(old, new, grace_ms=1_000)

    assert await client.rename(new, old) == "ALREADY_EXISTS"
    world.shards[1].clock.skip(1_000)
    assert await client.rename(new, old) == ""

    assert living(world) == {old: topic_id}
    assert (await client.get(new)).topic_id == topic_id
    check_names(world)


async def test_a_rename_is_repeated_by_its_id_or_by_its_names(world, client):
    old, new = name_at(world, 1), name_at(world, 2)
    await client.create(old)
    order = pb.RenameTopic(name=old, new_name=new)

    first = await client.execute(old, pb.Command(command_id=b"r" * 16, rename_topic=order))
    again = await client.execute(old, pb.Command(command_id=b"r" * 16, rename_topic=order))
    anew = await client.execute(old, pb.Command(rename_topic=order))

    assert (again.id, again.version, again.position) == (first.id, first.version, first.position)
    assert (anew.id, anew.version, anew.rejection_code) == (first.id, first.version, "")


async def test_a_topic_is_renamed_by_a_former_name_and_deleted_by_it(world, client):
    names = [name_at(world, 1), name_at(world, 2), name_at(world, 1, 3)]
    topic_id = await client.create(names[0])
    await client.rename(names[0], names[1])

    assert await client.rename(names[0], names[2]) == ""
    assert [(await client.get(name)).topic_id for name in names] == [topic_id] * 3
    assert (await client.use(names[1])).topic_id == topic_id
    assert await client.delete(names[0]) == ""

    assert [await client.get(name) for name in names] == [None] * 3
    assert living(world) == {}
    assert len({await client.create(name) for name in names}) == 3
    assert set(living(world)) == set(names)
    assert [(await client.get(name)).name for name in names] == names


async def test_a_deletion_that_comes_again_gets_its_first_outcome(world, client):
    """The topic is gone at its home, but the node knows that its name led there."""
    old, new = name_at(world, 1), name_at(world, 2)
    await client.create(old)
    await client.rename(old, new)

    results = [
        await client.execute(
            new, pb.Command(command_id=b"the same command", delete_topic=pb.DeleteTopic(name=new))
        )
        for _ in range(2)
    ]

    assert [each.rejection_code for each in results] == ["", ""]
    assert len({each.id for each in results}) == 1


async def test_a_client_that_was_led_to_a_topic_that_is_gone_finds_the_next_of_the_name(
    world, client
):
    old, new = name_at(world, 1), name_at(world, 2)
    await client.create(old)
    await client.rename(old, new)
    await client.get(new)
    other = Renamer(world)
    await other.delete(new)
    second = await other.create(new)

    client.asked.clear()
    assert (await client.get(new)).topic_id == second
    assert client.asked == [1, 2]
    client.asked.clear()
    await client.get(new)
    assert client.asked == [2]


async def test_a_dangling_pointer_is_found_out_and_removed(world, client):
    old, new = name_at(world, 1), name_at(world, 2)
    await client.create(old)
    await client.rename(old, new)
    await client.delete(new)

    client.asked.clear()
    assert await client.get(new) is None
    assert client.asked == [1, 2], "the home is known, and has no such topic"
    assert await client.get(new) is None
    assert world.shards[2].state.names.pointer(new) is None


async def test_a_topic_goes_into_another_namespace_and_keeps_it_from_being_deleted(world, client):
    await make_namespaces(world, "other/home")
    old, new = name_at(world, 1), "persistent://other/home/x"
    topic_id = await client.create(old)

    assert await client.rename(old, new) == ""

    assert (await client.get(new)).topic_id == topic_id
    assert (await world.delete_namespace("other/home")).rejection_code == "NOT_EMPTY"
    assert (await world.delete_namespace(NAMESPACE)).rejection_code == ""
    await client.delete(new)
    assert (await world.delete_namespace("other/home")).rejection_code == ""


async def test_a_chain_of_renames_keeps_every_name_within_its_limit(world, client):
    names = [name_at(world, 1 + number % 2, number) for number in range(FORMER_NAMES_MAX + 2)]
    topic_id = await client.create(names[0])
    for number in range(FORMER_NAMES_MAX):
        assert await client.rename(names[number], names[number + 1]) == ""

    assert await client.rename(names[-2], names[-1]) == "LIMIT_EXCEEDED"

    for name in names[:-1]:
        assert (await client.get(name)).topic_id == topic_id
    assert await client.create(names[-1]) not in ("ALREADY_EXISTS", "")
    check_names(world)
