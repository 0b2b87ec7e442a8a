"""Commands on a shard's leader: first outcomes, races, and parents that live elsewhere."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from nextgen.kernel.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotLeader,
    ProposalLost,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.events.generations import term_number
from nextgen.kernel.limits.cluster import (
    COMMANDS_PER_EXECUTE_MAX,
    DELETION_ATTEMPTS_PER_TERM_MAX,
    PARENT_READ_ATTEMPTS_MAX,
    PARENT_READS_IN_FLIGHT_MAX,
    TOPICS_PER_CREATE_MAX,
    TOPICS_PER_EXECUTE_MAX,
    UNITS_PER_RECORD_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC
from shards.domain.assignment import TopicAssigned
from shards.domain.life import Life
from shards.domain.parent_gate import ParentKind
from shards.domain.states import StateKind
from shards.inventory import reader
from shards.inventory.parents.gates import ParentGates, WantedParent
from shards.inventory.parents.turns import Turns
from tests.support.shards.world import World, create_topics, names_in, namespace_at, unreachable

ID_1 = b"command-00000001"
ID_2 = b"command-00000002"


@pytest.fixture
async def world():
    made = World()
    for shard in made.shards.values():
        await shard.state.proposer.confirm()
    yield made
    made.close()


@pytest.fixture
async def family(world):
    """A tenant, and a namespace whose home is shard 1."""
    assert not (await world.create_tenant("acme")).rejection_code
    namespace = namespace_at(world, 1, "acme")
    assert not (await world.create_namespace(namespace)).rejection_code
    return namespace


def topic_in(world, shard_id, namespace):
    return next(names_in(world, shard_id, namespace))


async def execute(shard, *commands):
    response = await shard.service.execute(pb.ExecuteRequest(commands=commands))
    return list(response.results)


# Single objects -------------------------------------------------------------------------------


async def test_a_created_tenant_is_answered_with_its_id_and_version(world):
    result = await world.create_tenant("acme")

    shard = world.home("acme")
    tenant = shard.state.reads.load_tenant("acme")
    assert (result.id, result.version) == (tenant.tenant_id, 1)
    assert result.position == shard.log.status.commit_position


async def test_a_tenant_that_exists_is_rejected_under_a_fresh_id(world):
    await world.create_tenant("acme", ID_1)

    result = await world.create_tenant("acme", ID_2)

    assert result.rejection_code == "ALREADY_EXISTS"


async def test_properties_are_set_at_the_expected_version_only(world, family):
    topic = topic_in(world, 2, family)
    await world.create_topic(topic)
    tenant = pb.SetTenantProperties(name="acme", properties={"a": "1"}, expected_version=1)
    namespace = pb.SetNamespaceProperties(name=family, properties={"a": "1"}, expected_version=1)
    of_topic = pb.SetTopicProperties(name=topic, properties={"a": "1"}, expected_version=1)

    for shard, command in [
        (world.home("acme"), pb.Command(set_tenant_properties=tenant)),
        (world.home(family), pb.Command(set_namespace_properties=namespace)),
        (world.home_of_topic(topic), pb.Command(set_topic_properties=of_topic)),
    ]:
        body = getattr(command, command.WhichOneof("body"))
        first = await world.run(shard, command)
        body.properties["a"] = "2"
        second = await world.run(shard, command)

        assert (first.rejection_code, first.version) == ("", 2)
        assert second.rejection_code == "VERSION_MISMATCH"


@pytest.mark.parametrize(
    "command",
    [
        pb.Command(create_tenant=pb.CreateTenant(name="a b")),
        pb.Command(delete_namespace=pb.DeleteNamespace(name="a/b/c")),
        pb.Command(delete_topic=pb.DeleteTopic(name="persistent://a/b/c-partition-1")),
    ],
    ids=["tenant", "namespace", "partition"],
)
async def test_a_name_that_is_none_is_a_rejection_with_the_reason(world, command):
    result = await world.run(world.shards[1], command)

    assert result.rejection_code == "INVALID_NAME"
    assert result.message


async def test_a_name_of_another_shard_is_refused_before_anything_is_done(world):
    mine = next(n for n in map("tenant-{}".format, range(99)) if world.home(n).shard_id == 1)
    other = next(n for n in map("tenant-{}".format, range(99)) if world.home(n).shard_id == 2)
    commands = [pb.Command(create_tenant=pb.CreateTenant(name=name)) for name in (mine, other)]

    with pytest.raises(StaleShardMap):
        await execute(world.shards[1], *commands)

    assert world.shards[1].state.reads.load_tenant(mine) is None


@pytest.mark.parametrize(
    "request_",
    [
        pb.ExecuteRequest(),
        pb.ExecuteRequest(commands=[pb.Command()]),
        pb.ExecuteRequest(
            commands=[pb.Command(command_id=b"short", delete_topic=pb.DeleteTopic(name="x"))]
        ),
        pb.ExecuteRequest(commands=[pb.Command(create_topics=pb.CreateTopics())]),
        pb.ExecuteRequest(commands=[create_topics(["x"] * (TOPICS_PER_CREATE_MAX + 1))]),
        pb.ExecuteRequest(
            commands=[pb.Command(delete_topic=pb.DeleteTopic(name="x"))]
            * (COMMANDS_PER_EXECUTE_MAX + 1)
        ),
        pb.ExecuteRequest(
            commands=[
                pb.Command(
                    close_parent_gate=pb.CloseParentGate(
                        parent_kind="broker", parent_name="x", parent_id="i", attempt=1
                    )
                )
            ]
        ),
    ],
    ids=["none", "no-body", "id", "no-topics", "topics", "commands", "parent-kind"],
)
async def test_a_malformed_request_is_refused(world, request_):
    with pytest.raises(InvalidRequest):
        await world.shards[1].service.execute(request_)


async def test_topics_per_execute_max_are_taken_and_one_more_refused(world):
    names = ["not/a/topic/name"] * TOPICS_PER_CREATE_MAX
    creates = [create_topics(names) for _ in range(TOPICS_PER_EXECUTE_MAX // len(names))]
    service = world.shards[1].service

    response = await service.execute(pb.ExecuteRequest(commands=creates))

    assert sum(len(result.topics) for result in response.results) == TOPICS_PER_EXECUTE_MAX
    with pytest.raises(InvalidRequest, match=f"{TOPICS_PER_EXECUTE_MAX + 1} topics to create"):
        await service.execute(pb.ExecuteRequest(commands=[*creates, create_topics(["x"])]))


# First outcomes -------------------------------------------------------------------------------


async def test_a_repeated_command_gets_its_first_outcome(world):
    first = await world.create_tenant("acme", ID_1)

    second = await world.create_tenant("acme", ID_1)

    assert second == first


async def test_a_repeated_command_gets_its_first_outcome_in_the_next_term(world):
    first = await world.create_tenant("acme", ID_1)
    rejected = await world.create_tenant("acme", ID_2)
    shard = world.home("acme")
    shard.next_term()
    deleted = await world.delete_tenant("acme")
    assert not deleted.rejection_code

    assert await world.create_tenant("acme", ID_1) == first
    assert await world.create_tenant("acme", ID_2) == rejected
    assert rejected.rejection_code == "ALREADY_EXISTS"
    assert shard.state.reads.load_tenant("acme") is None


async def test_a_command_repeated_while_in_flight_waits_for_the_same_commit(world):
    shard = world.home("acme")
    await shard.state.proposer.confirm()
    shard.log.hold_commits()
    first = asyncio.ensure_future(world.create_tenant("acme", ID_1))
    second = asyncio.ensure_future(world.create_tenant("acme", ID_1))
    await asyncio.sleep(0)

    assert not first.done()
    shard.log.release_commits()

    assert await first == await second
    assert shard.state.reads.total(StateKind.TENANT) == 1


async def test_a_command_repeated_while_its_parent_is_read_is_carried_out_once(world, family):
    topic = topic_in(world, 2, family)
    gate = asyncio.Event()
    world.before_read = lambda _: gate.wait()
    first = asyncio.ensure_future(world.create_topic(topic, ID_1))
    second = asyncio.ensure_future(world.create_topic(topic, ID_1))
    await asyncio.sleep(0)

    gate.set()

    assert await first == await second
    assert [each.rejection_code for each in (await first).topics] == [""]


async def test_a_command_repeated_within_one_request_is_carried_out_once(world):
    command = pb.Command(command_id=ID_1, create_tenant=pb.CreateTenant(name="acme"))

    first, second = await execute(world.home("acme"), command, command)

    assert first == second
    assert not first.rejection_code


async def test_cancelling_the_caller_does_not_stop_the_command(world, family):
    topic = topic_in(world, 2, family)
    gate = asyncio.Event()
    world.before_read = lambda _: gate.wait()
    caller = asyncio.ensure_future(world.create_topic(topic, ID_1))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)

    gate.set()
    again = await world.create_topic(topic, ID_1)

    assert not again.topics[0].rejection_code
    assert world.shards[2].state.reads.load_topic(topic).topic_id == again.topics[0].topic_id


# Races and leadership -------------------------------------------------------------------------


async def test_of_two_creates_in_flight_the_second_is_rejected_once_the_first_commits(world):
    shard = world.home("acme")
    shard.log.hold_commits()
    first = asyncio.ensure_future(world.create_tenant("acme", ID_1))
    second = asyncio.ensure_future(world.create_tenant("acme"))
    await asyncio.sleep(0)
    assert not second.done()

    shard.log.release_commits()

    assert not (await first).rejection_code
    assert (await second).rejection_code == "ALREADY_EXISTS"


async def test_both_creates_in_flight_are_lost_with_leadership(world):
    shard = world.home("acme")
    shard.log.hold_commits()
    first = asyncio.ensure_future(world.create_tenant("acme", ID_1))
    second = asyncio.ensure_future(world.create_tenant("acme"))
    await asyncio.sleep(0)

    shard.log.lose_leadership()

    with pytest.raises(ProposalLost):
        await first
    with pytest.raises(ProposalLost):
        await second
    assert shard.state.term.is_over
    with pytest.raises(NotLeader):
        await world.create_tenant("other")


async def test_a_lost_create_that_survived_gets_its_outcome_from_the_next_leader(world):
    """1. A create is proposed. 2. Leadership moves, the record survives. 3. The client repeats."""
    shard = world.home("acme")
    await shard.state.proposer.confirm()
    shard.log.hold_commits()
    first = asyncio.ensure_future(world.create_tenant("acme", ID_1))
    await asyncio.sleep(0)
    shard.log.lose_leadership(pending_survives=True)
    with pytest.raises(ProposalLost):
        await first
    shard.log.release_commits()
    shard.next_term()

    again = await world.create_tenant("acme", ID_1)

    assert not again.rejection_code
    assert again.id == shard.state.reads.load_tenant("acme").tenant_id


async def test_a_deposed_leader_sends_no_rejection_without_an_id(world):
    await world.create_tenant("acme")
    world.home("acme").log.lose_quorum()

    with pytest.raises(NotLeader):
        await world.create_tenant("acme")


async def test_decisions_rest_on_what_is_committed_but_not_yet_in_the_view(world):
    shard = world.home("acme")
    shard.log.hold_applies()
    assert not (await world.create_tenant("acme", ID_1)).rejection_code

    rejected = await world.create_tenant("acme")
    repeated = await world.create_tenant("acme", ID_1)

    assert rejected.rejection_code == "ALREADY_EXISTS"
    assert not repeated.rejection_code
    shard.log.release_applies()


async def test_when_some_commands_fail_the_request_is_indefinite(world, family):
    topic = topic_in(world, 2, family)
    shard = world.home_of_topic(topic)
    tenant = next(n for n in map("tenant-{}".format, range(99)) if world.home(n) is shard)

    def fail(_):
        raise Unavailable("no leader there")

    world.before_read = fail
    commands = [
        pb.Command(create_tenant=pb.CreateTenant(name=tenant)),
        create_topics([topic]),
    ]

    with pytest.raises(ProposalLost):
        await execute(shard, *commands)
    with pytest.raises(Unavailable):
        await execute(shard, create_topics([topic]))


async def test_a_closed_service_leaves_nobody_waiting(world, family):
    topic = topic_in(world, 2, family)
    world.before_read = lambda _: asyncio.Event().wait()
    waiting = asyncio.ensure_future(world.create_topic(topic, ID_1))
    await asyncio.sleep(0)

    world.shards[2].service.close()

    with pytest.raises(ProposalLost):
        await waiting


# Topics ---------------------------------------------------------------------------------------


async def test_each_topic_of_a_batch_is_accepted_or_refused_by_itself(world, family):
    names = list(itertools.islice(names_in(world, 2, family), 3))
    await world.create_topic(names[0])
    specs = [
        pb.TopicSpec(name=names[0]),
        pb.TopicSpec(name=names[1], partitions=4, properties={"b": "2", "a": "1"}),
        pb.TopicSpec(name="persistent://a//b"),
        pb.TopicSpec(name=f"{names[2]}-partition-1"),
        pb.TopicSpec(name=names[1].replace("persistent", "topic")),
        pb.TopicSpec(name=names[1]),
        pb.TopicSpec(name=names[2], partitions=10_001),
    ]

    (result,) = await execute(
        world.shards[2], pb.Command(create_topics=pb.CreateTopics(topics=specs))
    )

    codes = [each.rejection_code for each in result.topics]
    assert codes == [
        "ALREADY_EXISTS",
        "",
        "INVALID_NAME",
        "INVALID_NAME",
        "ALREADY_EXISTS",
        "ALREADY_EXISTS",
        "LIMIT_EXCEEDED",
    ]
    topic = world.shards[2].state.reads.load_topic(names[1])
    assert topic.topic_id == result.topics[1].topic_id
    assert (topic.partitions, topic.properties) == (4, (("a", "1"), ("b", "2")))
    assert topic.namespace_id == world.home(family).state.reads.load_namespace(family).namespace_id


async def test_the_view_has_a_topic_as_it_was_decided(world, family):
    topic = topic_in(world, 2, family)
    await world.create_topic(topic)
    decided = world.shards[2].state.reads.load_topic(topic)

    world.shards[2].next_term()

    assert world.shards[2].state.reads.load_topic(topic) == decided


async def test_a_thousand_topics_are_one_record(world, family):
    names = list(itertools.islice(names_in(world, 2, family), TOPICS_PER_CREATE_MAX))
    before = world.shards[2].log.status.last_index

    (result,) = await execute(world.shards[2], create_topics(names, ID_1))

    assert not any(each.rejection_code for each in result.topics)
    assert world.shards[2].log.status.last_index == before + 1
    assert world.shards[2].state.reads.total(StateKind.TOPIC) == TOPICS_PER_CREATE_MAX


async def test_the_parent_is_read_for_the_first_child_only(world, family):
    names = list(itertools.islice(names_in(world, 2, family), 2))
    world.reads.clear()
    await world.create_topic(names[0])
    await world.create_topic(names[1])

    assert world.reads == [family]


async def test_a_topic_without_a_namespace_is_rejected(world):
    result = await world.create_topic("persistent://acme/nowhere/x")

    assert result.topics[0].rejection_code == "PARENT_NOT_FOUND"


async def test_a_namespace_without_a_tenant_is_rejected(world):
    result = await world.create_namespace("acme/orders")

    assert result.rejection_code == "PARENT_NOT_FOUND"


async def test_deleting_a_topic_ends_its_assignments_and_tells(world, family):
    topic = topic_in(world, 2, family)
    created = await world.create_topic(topic, partitions=2)
    topic_id = created.topics[0].topic_id
    shard = world.shards[2]
    await shard.state.proposer.propose(
        [
            TopicAssigned(topic_id, f"p{n}", f"{topic}-partition-{n}", 1, "b-1", "s-1", "x")
            for n in range(2)
        ]
    )
    owned = list(shard.state.scans.assignments_of_topic(topic_id).values())
    assert shard.state.reads.used_units("s-1") == 2

    (result,) = await execute(shard, pb.Command(delete_topic=pb.DeleteTopic(name=topic)))

    assert result.id == topic_id
    assert shard.unassigned == owned
    assert shard.state.reads.used_units("s-1") == 0
    shard.next_term()
    assert shard.state.scans.assignments_of_topic(topic_id) == {}
    assert shard.state.reads.load_topic(topic) is None
    assert shard.state.reads.used_units("s-1") == 0


async def test_a_topic_with_more_units_than_fit_a_record_is_deleted_all_the_same(world, family):
    topic = topic_in(world, 2, family)
    units = UNITS_PER_RECORD_MAX + 1
    created = await world.create_topic(topic, partitions=units)
    topic_id = created.topics[0].topic_id
    shard = world.shards[2]
    await shard.state.proposer.propose(
        [
            TopicAssigned(topic_id, f"p{n}", f"{topic}-partition-{n}", 1, "b-1", "s-1", "x")
            for n in range(units)
        ]
    )

    await execute(shard, pb.Command(delete_topic=pb.DeleteTopic(name=topic)))

    assert len(shard.unassigned) == units
    assert shard.state.reads.used_units("s-1") == 0
    shard.next_term()
    assert shard.state.scans.assignments_of_topic(topic_id) == {}


async def test_deleting_an_absent_topic_is_rejected(world):
    shard = world.home_of_topic("persistent://a/b/c")

    (result,) = await execute(
        shard, pb.Command(delete_topic=pb.DeleteTopic(name="persistent://a/b/c"))
    )

    assert result.rejection_code == "NOT_FOUND"


# Parents --------------------------------------------------------------------------------------


async def test_an_empty_namespace_is_deleted_and_its_name_is_free_again(world, family):
    first = world.home(family).state.reads.load_namespace(family).namespace_id

    deleted = await world.delete_namespace(family)
    created = await world.create_namespace(family)

    assert not deleted.rejection_code
    assert not created.rejection_code
    assert created.id != first
    topic = topic_in(world, 2, family)
    assert not (await world.create_topic(topic)).topics[0].rejection_code
    assert world.shards[2].state.reads.load_topic(topic).namespace_id == created.id


@pytest.mark.parametrize("child_shard", [1, 2], ids=["same-shard", "other-shard"])
async def test_a_namespace_with_a_topic_is_not_deleted_and_lives_on(world, family, child_shard):
    first, second = itertools.islice(names_in(world, child_shard, family), 2)
    await world.create_topic(first)

    result = await world.delete_namespace(family, ID_1)

    assert result.rejection_code == "NOT_EMPTY"
    assert world.home(family).state.reads.load_namespace(family).life is Life.ACTIVE
    assert not (await world.create_topic(second)).topics[0].rejection_code
    elsewhere = topic_in(world, 3 - child_shard, family)
    assert not (await world.create_topic(elsewhere)).topics[0].rejection_code
    assert await world.delete_namespace(family, ID_1) == result


async def test_a_tenant_with_a_namespace_is_not_deleted(world, family):
    assert (await world.delete_tenant("acme")).rejection_code == "NOT_EMPTY"
    assert not (await world.delete_namespace(family)).rejection_code
    assert not (await world.delete_tenant("acme")).rejection_code


async def test_deleting_an_absent_parent_is_rejected(world):
    assert (await world.delete_tenant("acme")).rejection_code == "NOT_FOUND"
    assert (await world.delete_namespace("a/b", ID_1)).rejection_code == "NOT_FOUND"


async def test_a_child_that_read_its_parent_before_the_deletion_comes_too_late(world, family):
    """1. A create reads the namespace, ACTIVE. 2. The namespace is deleted. 3. The create goes on
    and must not bring a topic without a namespace into the world."""
    topic = topic_in(world, 2, family)
    was_read, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_):
        was_read.set()
        await go_on.wait()

    world.after_read = pause
    create = asyncio.ensure_future(world.create_topic(topic))
    await was_read.wait()
    deleted = await world.delete_namespace(family)
    world.after_read = None
    go_on.set()

    assert not deleted.rejection_code
    assert (await create).topics[0].rejection_code == "PARENT_NOT_FOUND"
    assert world.shards[2].state.reads.load_topic(topic) is None


async def test_a_create_whose_parent_was_replaced_meanwhile_reads_it_again(world, family):
    """1. A create reads the namespace. 2. It is deleted and created again. 3. The create goes on
    under the namespace that has the name by then."""
    topic = topic_in(world, 2, family)
    was_read, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_):
        was_read.set()
        await go_on.wait()

    world.after_read = pause
    create = asyncio.ensure_future(world.create_topic(topic))
    await was_read.wait()
    world.after_read = None
    assert not (await world.delete_namespace(family)).rejection_code
    successor = await world.create_namespace(family)
    go_on.set()

    assert not (await create).topics[0].rejection_code
    assert world.shards[2].state.reads.load_topic(topic).namespace_id == successor.id


async def test_a_create_does_not_wait_for_ever_for_a_gate_that_keeps_changing(world, family):
    attempts = itertools.count(1)

    async def disturb(_):
        await world.close_gate(2, ParentKind.NAMESPACE, family, "another-id", next(attempts))

    world.before_read = disturb
    with pytest.raises(Unavailable):
        await world.create_topic(topic_in(world, 2, family))


@pytest.mark.parametrize("excess", [0, 1])
async def test_parent_read_attempts_max_reads_are_made_and_one_more_is_not(world, family, excess):
    """A gate changes during each read but the last, or during all that are made."""
    changes = itertools.count(1)
    disturbed = PARENT_READ_ATTEMPTS_MAX - 1 + excess

    async def disturb(_):
        attempt = next(changes)
        if attempt <= disturbed:
            await world.close_gate(2, ParentKind.NAMESPACE, family, "another-id", attempt)

    world.before_read = disturb
    topic = topic_in(world, 2, family)
    if not excess:
        assert not (await world.create_topic(topic)).topics[0].rejection_code
    else:
        with pytest.raises(Unavailable, match="keeps changing"):
            await world.create_topic(topic)
    assert next(changes) == PARENT_READ_ATTEMPTS_MAX + 1


async def test_a_child_that_comes_first_keeps_its_parent(world, family):
    """1. The deletion starts. 2. A create that read the parent earlier commits at the other shard
    before its gate is closed. 3. The deletion is refused there and given up."""
    topic = topic_in(world, 2, family)
    was_read, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_):
        was_read.set()
        await go_on.wait()

    world.after_read = pause
    create = asyncio.ensure_future(world.create_topic(topic))
    await was_read.wait()

    async def let_the_create_through(shard_id):
        if shard_id == 2:
            go_on.set()
            await asyncio.wait((create,))

    world.before_close = let_the_create_through
    deleted = await world.delete_namespace(family)

    assert not (await create).topics[0].rejection_code
    assert deleted.rejection_code == "NOT_EMPTY"
    assert world.home(family).state.reads.load_namespace(family).life is Life.ACTIVE


async def test_nothing_is_created_below_a_parent_that_is_being_deleted(world, family):
    topic = topic_in(world, 2, family)
    created = []

    async def create(shard_id):
        if shard_id == 2:
            created.append(await world.create_topic(topic))

    world.before_close = create
    deleted = await world.delete_namespace(family)

    assert created[0].topics[0].rejection_code == "NOT_ALLOWED"
    assert not deleted.rejection_code


async def test_a_deletion_that_meets_trouble_goes_on_when_it_is_repeated(world, family):
    with unreachable(world, 2), pytest.raises(DeadlineExceeded):
        await world.delete_namespace(family, ID_1)
    assert world.home(family).state.reads.load_namespace(family).life is Life.DELETING
    topic = topic_in(world, 2, family)
    assert (await world.create_topic(topic)).topics[0].rejection_code == "NOT_ALLOWED"

    again = await world.delete_namespace(family, ID_1)

    assert not again.rejection_code
    assert world.home(family).state.reads.load_namespace(family) is None


async def test_a_deletion_goes_on_under_the_next_leader(world, family):
    with unreachable(world, 2), pytest.raises(DeadlineExceeded):
        await world.delete_namespace(family)
    world.home(family).next_term()

    assert not (await world.delete_namespace(family)).rejection_code


async def test_a_deletion_that_cannot_be_given_up_everywhere_stays_under_way(world, family):
    await world.create_topic(topic_in(world, 2, family))

    def refuse(_):
        raise Unavailable("no leader there")

    world.before_reopen = refuse
    with pytest.raises(DeadlineExceeded):
        await world.delete_namespace(family)
    assert world.home(family).state.reads.load_namespace(family).life is Life.DELETING
    world.before_reopen = None

    assert (await world.delete_namespace(family)).rejection_code == "NOT_EMPTY"
    assert world.home(family).state.reads.load_namespace(family).life is Life.ACTIVE


async def test_an_order_of_an_earlier_leader_does_not_reopen_what_a_later_one_closed(world, family):
    """1. A leader starts a deletion and is cut off. 2. The next one deletes the namespace.
    3. The first one's word to reopen arrives."""
    home = world.home(family)
    parent_id = home.state.reads.load_namespace(family).namespace_id
    await world.create_topic(topic_in(world, 2, family))
    orders = []

    def note(shard_id):
        orders.append(shard_id)
        raise Unavailable("cut off")

    world.before_reopen = note
    with pytest.raises(DeadlineExceeded):
        await world.delete_namespace(family)
    early = world.shards[1].state.reads.load_gate(ParentKind.NAMESPACE, family).attempt
    world.before_reopen = None
    await execute(
        world.shards[2],
        pb.Command(delete_topic=pb.DeleteTopic(name=topic_in(world, 2, family))),
    )
    home.next_term()
    assert not (await world.delete_namespace(family)).rejection_code

    refused = await world.reopen_gate(1, ParentKind.NAMESPACE, family, parent_id, early)

    assert sorted(orders) == [1, 2]
    assert refused is not None
    assert not world.shards[1].state.reads.load_gate(ParentKind.NAMESPACE, family).is_open


async def test_a_leader_of_a_promoted_survivor_deletes_parents(world, family):
    world.home(family).next_term(2**32)

    assert not (await world.delete_namespace(family)).rejection_code


async def test_two_deletions_of_one_parent_take_turns(world, family):
    first, second = await asyncio.gather(
        world.delete_namespace(family), world.delete_namespace(family)
    )

    assert not first.rejection_code
    assert second.rejection_code == "NOT_FOUND"


async def test_a_lost_leader_leaves_the_deletion_to_the_next(world, family):
    async def depose(shard_id):
        if shard_id == 1:
            world.home(family).log.lose_leadership()

    world.before_close = depose
    with pytest.raises((DeadlineExceeded, ProposalLost)):
        await world.delete_namespace(family)
    world.before_close = None
    world.home(family).next_term()

    assert world.home(family).state.reads.load_namespace(family).life is Life.DELETING
    assert not (await world.delete_namespace(family)).rejection_code


# Reads ----------------------------------------------------------------------------------------


async def test_objects_are_read_in_the_order_asked_for(world, family):
    home = world.home(family)
    topic = topic_in(world, home.shard_id, family)
    await world.create_topic(topic)
    absent = next(
        name
        for name in itertools.islice(names_in(world, home.shard_id, family), 5, None)
        if name != topic
    )
    names = [
        pb.ObjectName(kind=KIND_TOPIC, name=absent),
        pb.ObjectName(kind=KIND_NAMESPACE, name=family),
        pb.ObjectName(kind=KIND_TOPIC, name=topic.removeprefix("persistent://")),
        pb.ObjectName(kind=KIND_TOPIC, name=f"{topic}-partition-0"),
    ]

    items = (await home.reader.get(pb.GetRequest(names=names))).items

    assert [item.WhichOneof("value") for item in items] == [None, "namespace", "topic", None]
    assert items[2].topic.name == topic


async def test_a_follower_answers_as_of_a_position(world):
    result = await world.create_tenant("acme")
    shard = world.home("acme")
    shard.log.lose_leadership()
    names = [pb.ObjectName(kind=KIND_TENANT, name="acme")]

    response = await shard.reader.get(pb.GetRequest(names=names, min_position=result.position))

    assert response.items[0].tenant.tenant_id == result.id
    with pytest.raises(NotLeader):
        await shard.reader.get(pb.GetRequest(names=names))
    assert shard.reader.position >= result.position


async def test_a_read_waits_for_the_position_it_names(world):
    shard = world.home("acme")
    shard.log.hold_applies()
    result = await world.create_tenant("acme")
    names = [pb.ObjectName(kind=KIND_TENANT, name="acme")]
    read = asyncio.ensure_future(
        shard.reader.get(pb.GetRequest(names=names, min_position=result.position))
    )
    await asyncio.sleep(0)
    assert not read.done()

    shard.log.release_applies()

    assert (await read).items[0].tenant.name == "acme"


async def test_a_listing_comes_by_name_in_pages(world, family):
    names = sorted(itertools.islice(names_in(world, 2, family), 5))
    mixed = [names[0].replace("persistent", "non-persistent"), *names]
    await execute(world.shards[2], create_topics(mixed))
    listed, after = [], ""

    while True:
        page = await world.shards[2].reader.list(
            pb.ListRequest(kind=KIND_TOPIC, parent=family, after=after, limit=4)
        )
        listed += [item.name for item in page.items]
        if not page.more_items:
            break
        after = listed[-1]

    assert listed == mixed
    persistent = await world.shards[2].reader.list(
        pb.ListRequest(kind=KIND_TOPIC, parent=family, domain="persistent")
    )
    assert [item.name for item in persistent.items] == names


@pytest.mark.parametrize("one_less", [0, 1])
async def test_page_bytes_max_are_one_page_or_answer_and_one_byte_more_is_too_much(
    world, family, monkeypatch, one_less
):
    names = sorted(itertools.islice(names_in(world, 2, family), 5))
    shard = world.shards[2]
    await execute(shard, create_topics(names))
    listing = pb.ListRequest(kind=KIND_TOPIC, parent=family)
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=KIND_TOPIC, name=name) for name in names])
    whole = await shard.reader.list(listing)
    size_bytes = sum(item.ByteSize() for item in whole.items)
    monkeypatch.setattr(reader, "PAGE_BYTES_MAX", size_bytes - one_less)

    page = await shard.reader.list(listing)

    assert [item.name for item in page.items] == names[: len(names) - one_less]
    assert page.more_items == bool(one_less)
    if one_less:
        with pytest.raises(InvalidRequest, match=f"has {size_bytes} bytes"):
            await shard.reader.get(wanted)
    else:
        assert len((await shard.reader.get(wanted)).items) == len(names)


async def test_an_object_beyond_a_pages_bytes_is_a_page_by_itself(world, family, monkeypatch):
    names = sorted(itertools.islice(names_in(world, 2, family), 2))
    await execute(world.shards[2], create_topics(names))
    monkeypatch.setattr(reader, "PAGE_BYTES_MAX", 1)

    page = await world.shards[2].reader.list(pb.ListRequest(kind=KIND_TOPIC, parent=family))

    assert [item.name for item in page.items] == names[:1]
    assert page.more_items


async def test_parent_reads_in_flight_max_are_read_at_once_and_one_more_waits(world):
    names = [f"tenant-{number}" for number in range(PARENT_READS_IN_FLIGHT_MAX + 1)]
    begun: list[str] = []
    release = asyncio.Event()

    async def held(name: str) -> None:
        begun.append(name)
        await release.wait()

    world.before_read = held
    shard = world.shards[1]
    wanted = [WantedParent(ParentKind.TENANT, name) for name in names]
    reads = asyncio.ensure_future(ParentGates(shard.state, world).read(wanted))
    while len(begun) < PARENT_READS_IN_FLIGHT_MAX:
        await asyncio.sleep(0)
    for _turn in range(10):
        await asyncio.sleep(0)
    at_once = len(begun)
    release.set()

    assert set(await reads) == set(wanted)
    assert (at_once, len(begun)) == (PARENT_READS_IN_FLIGHT_MAX, PARENT_READS_IN_FLIGHT_MAX + 1)


async def test_listings_of_tenants_and_namespaces_end_at_their_parent(world):
    for tenant in ("acme", "acme-2"):
        await world.create_tenant(tenant)
        await world.create_namespace(f"{tenant}/orders")
    tenants, namespaces = [], []

    for shard in world.shards.values():
        page = await shard.reader.list(pb.ListRequest(kind=KIND_TENANT))
        tenants += [item.name for item in page.items]
        page = await shard.reader.list(pb.ListRequest(kind=KIND_NAMESPACE, parent="acme"))
        namespaces += [item.name for item in page.items]

    assert sorted(tenants) == ["acme", "acme-2"]
    assert namespaces == ["acme/orders"]


@pytest.mark.parametrize(
    "request_",
    [
        pb.ListRequest(),
        pb.ListRequest(kind=KIND_TENANT, limit=1_001),
        pb.ListRequest(kind=KIND_NAMESPACE, parent="a/b"),
        pb.ListRequest(kind=KIND_TOPIC, parent="a"),
        pb.ListRequest(kind=KIND_TOPIC, parent="a/b", domain="x"),
    ],
    ids=["kind", "limit", "tenant", "namespace", "domain"],
)
async def test_a_malformed_listing_is_refused(world, request_):
    with pytest.raises(InvalidRequest):
        await world.shards[1].reader.list(request_)


@pytest.mark.parametrize(
    "names",
    [
        [pb.ObjectName(name="acme")],
        [pb.ObjectName(kind=KIND_TENANT, name="a b")],
        [pb.ObjectName(kind=KIND_TENANT, name="acme")] * 1_001,
    ],
    ids=["kind", "name", "too-many"],
)
async def test_a_malformed_get_is_refused(world, names):
    with pytest.raises(InvalidRequest):
        await world.home("acme").reader.get(pb.GetRequest(names=names))


async def test_a_get_of_another_shards_name_is_refused(world):
    other = world.shards[3 - world.home("acme").shard_id]

    with pytest.raises(StaleShardMap):
        await other.reader.get(pb.GetRequest(names=[pb.ObjectName(kind=KIND_TENANT, name="acme")]))


async def test_deletion_attempts_per_term_max_have_numbers_below_the_next_terms(world):
    term = world.shards[1].state.term.number
    turns = Turns(term)
    turns._attempts = DELETION_ATTEMPTS_PER_TERM_MAX - 2

    last = turns.next_attempt()

    assert last == (term_number(term) + 1) * DELETION_ATTEMPTS_PER_TERM_MAX - 1
    with pytest.raises(AssertionError, match="ran out of numbers"):
        turns.next_attempt()
