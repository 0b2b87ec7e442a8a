"""Topics in bulk on a shard's leader: the rules of ordinary creates, once each, and in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from nextgen.kernel.errors import (
    InvalidRequest,
    NotLeader,
    Overloaded,
    StaleShardMap,
)
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.bulk import (
    BULK_NAMES_BYTES_MAX,
    BULK_NAMES_MAX,
    BULK_RECORDS_AHEAD_MAX,
    BULK_REQUESTS_MAX,
)
from nextgen.kernel.limits.cluster import RECORD_BYTES_MAX
from nextgen.replication.ports import AppliedPoint, LogStatus, MemberProgress, NodeId
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.parent_gate import ParentGateOpened
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated
from shards.inventory.bulk_turns import majority_applied
from shards.inventory.service import InventoryService
from shards.projections.tables import OUTCOMES
from shards.wire.event import decode_events
from tests.support.logs.memory_log import MemoryLog
from tests.support.shards.world import (
    MemoryView,
    ShardReplica,
    World,
    create_topics,
    names_in,
)

NAMESPACE = "acme/orders"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=2)
    for shard in made.shards.values():
        await shard.state.proposer.confirm()
    await made.create_tenant("acme")
    await made.create_namespace(NAMESPACE)
    yield made
    made.close()


def names(world: World, shard_id: int, count: int, namespace: str = NAMESPACE) -> list[str]:
    """Return names whose home is the shard, ascending."""
    coming = names_in(world, shard_id, namespace)
    return sorted(next(coming) for _ in range(count))


async def bulk(shard: ShardReplica, wanted: Sequence[str]) -> pb.BulkCreateResponse:
    return await shard.service.create_in_bulk(pb.BulkCreateRequest(names=wanted))


def told(answer: pb.BulkCreateResponse) -> tuple[int, int, dict[int, str]]:
    refusals = {each.place: each.rejection_code for each in answer.refusals}
    return answer.created, answer.existing, refusals


async def test_topics_in_bulk_are_as_if_created_one_by_one(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 50)

    assert told(await bulk(shard, wanted)) == (50, 0, {})

    one = wanted[0].replace("topic-", "alone-")
    home = world.home_of_topic(one)
    await world.run(home, create_topics([one]))
    alone = home.state.reads.load_topic(one)
    assert alone is not None
    for name in wanted:
        topic = shard.state.reads.load_topic(name)
        assert topic is not None
        assert (topic.version, topic.partitions, topic.properties) == (1, 0, ())
        assert topic.namespace_id == alone.namespace_id
        assert len(topic.topic_id) == len(alone.topic_id)
    assert len({shard.state.reads.load_topic(name).topic_id for name in wanted}) == 50  # type: ignore[union-attr]


async def test_they_share_one_record_and_leave_no_outcome(world: World) -> None:
    shard = world.shards[1]
    entries = []
    shard.log.on_commit(entries.extend)

    await bulk(shard, names(world, 1, 40))

    (record,) = [record for entry in entries for record in entry.records]
    decided = DecidedCommand.FromString(record.payload)
    # The gate of their namespace is opened once for all of them.
    types = [type(event) for event in decode_events(decided)]
    assert types == [ParentGateOpened, *[TopicCreated] * 40]
    assert (decided.command_id, decided.outcome) == (b"", b"")
    assert not shard.query(f"SELECT * FROM {OUTCOMES.name} WHERE outcome = x''")


async def test_the_same_again_finds_all_existing_and_changes_nothing(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 30)
    await bulk(shard, wanted)
    before, position = shard.view.dump(), shard.log.status.commit_position

    assert told(await bulk(shard, wanted)) == (0, 30, {})

    assert shard.log.status.commit_position == position
    assert shard.view.dump() == before


async def test_what_is_in_flight_counts_as_existing(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 10)
    shard.log.hold_commits()
    first = asyncio.create_task(bulk(shard, wanted[:6]))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(bulk(shard, wanted))
    await asyncio.sleep(0.01)
    shard.log.release_commits()
    assert [told(await first), told(await second)] == [(6, 0, {}), (4, 6, {})]


async def test_names_far_apart_are_found_one_by_one(world: World) -> None:
    shard = world.shards[1]
    lots = names(world, 1, 400)
    await bulk(shard, lots)
    ends = [lots[0], lots[-1]]
    assert told(await bulk(shard, ends)) == (0, 2, {})


async def test_a_topic_that_was_deleted_is_created_again(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 3)
    await bulk(shard, wanted)
    await world.delete_topic(wanted[1])
    assert told(await bulk(shard, wanted)) == (1, 2, {})


async def test_what_is_no_name_is_refused_by_its_place(world: World) -> None:
    shard = world.shards[1]
    (good,) = names(world, 1, 1)
    wanted = sorted(
        [
            good,
            f"{good}-partition-3",
            "persistent://acme/orders/ x",
            "persistent://acme/orders",
            "topic-in-default",
        ]
    )
    answer = await bulk(shard, wanted)
    assert answer.created == 1
    refused = {wanted[each.place]: each.rejection_code for each in answer.refusals}
    assert refused == {name: "INVALID_NAME" for name in wanted if name != good}


async def test_topics_without_their_namespace_are_refused(world: World) -> None:
    shard = world.shards[1]
    lost = names(world, 1, 2, "acme/nowhere")
    found = names(world, 1, 2)
    answer = await bulk(shard, sorted(lost + found))
    assert answer.created == 2
    assert {each.rejection_code for each in answer.refusals} == {"PARENT_NOT_FOUND"}
    assert {each.place for each in answer.refusals} == {0, 1}


async def test_topics_of_a_namespace_that_is_going_are_refused(world: World) -> None:
    shard = world.shards[1]
    await world.delete_namespace(NAMESPACE)
    answer = await bulk(shard, names(world, 1, 3))
    assert (answer.created, len(answer.refusals)) == (0, 3)


async def test_a_slot_of_another_shard_refuses_the_whole(world: World) -> None:
    shard = world.shards[1]
    wanted = sorted(names(world, 1, 3) + names(world, 2, 1))
    with pytest.raises(StaleShardMap):
        await bulk(shard, wanted)
    assert shard.state.scans.existing_topics(wanted) == set()


class Bounds:
    """The namespace may have so many topics."""

    def __init__(self, world: World, topics_max: int) -> None:
        self.served_by = world.served_by
        self.policies = Policies(topics_max=topics_max) if topics_max else NO_POLICIES

    def known(self, namespace: str) -> Policies | None:
        return None

    @asynccontextmanager
    async def deciding(self, _namespaces: Iterable[str]) -> AsyncIterator[Bounds]:
        yield self

    def of(self, _namespace: str) -> Policies:
        return self.policies


async def test_a_bound_counts_topics_of_both_kinds(world: World) -> None:
    shard = world.shards[1]
    shard.service = InventoryService(shard.state, world, policies=Bounds(world, 20))
    wanted = names(world, 1, 12)
    await shard.service.execute(pb.ExecuteRequest(commands=[create_topics(wanted[:4])]))

    answer = await bulk(shard, wanted[4:])

    # Half of the slots: half of the bound.
    assert answer.created == 6
    assert [each.rejection_code for each in answer.refusals] == ["LIMIT_EXCEEDED"] * 2


async def test_a_bound_counts_what_earlier_requests_created(world: World) -> None:
    shard = world.shards[1]
    shard.service = InventoryService(shard.state, world, policies=Bounds(world, 20))
    wanted = names(world, 1, 12)

    answers = [await bulk(shard, wanted[:6]), await bulk(shard, wanted[6:])]

    assert [(answer.created, len(answer.refusals)) for answer in answers] == [(6, 0), (4, 2)]


@pytest.mark.parametrize("wanted", [["b", "a"], ["a", "a"]])
async def test_names_that_do_not_ascend_are_refused(world: World, wanted: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="ascend"):
        await bulk(world.shards[1], wanted)


async def test_a_request_has_so_many_names_at_most(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, BULK_NAMES_MAX + 1)
    for wrong in ([], wanted):
        with pytest.raises(InvalidRequest, match=f"1 to {BULK_NAMES_MAX}"):
            await bulk(shard, wrong)
    assert (await bulk(shard, wanted[:-1])).created == BULK_NAMES_MAX


async def test_a_request_has_so_many_bytes_at_most_and_its_record_fits(world: World) -> None:
    shard = world.shards[1]
    padded = (f"{name}-".ljust(1_024, "x") for name in names(world, 1, 2_000))
    fitting = [name for name in padded if world.home_of_topic(name).shard_id == 1]
    long = fitting[: BULK_NAMES_BYTES_MAX // 1_024]
    assert sum(map(len, long)) == BULK_NAMES_BYTES_MAX
    entries = []
    shard.log.on_commit(entries.extend)
    assert (await bulk(shard, sorted(long))).created == len(long)
    (record,) = [record for entry in entries for record in entry.records]
    assert len(record.payload) < RECORD_BYTES_MAX // 2
    with pytest.raises(InvalidRequest, match="bytes in bulk"):
        await bulk(shard, [*sorted(long), "q"])
    # Bytes of UTF-8 are meant, not characters.
    with pytest.raises(InvalidRequest, match="bytes in bulk"):
        await bulk(shard, ["é" * (BULK_NAMES_BYTES_MAX // 2 + 1)])


async def test_a_record_of_scalable_topics_has_their_names_twice_and_fits(world: World) -> None:
    shard = world.shards[1]
    padded = (f"topic://acme/orders/{number}-".ljust(1_024, "x") for number in range(2_000))
    fitting = [name for name in padded if world.home_of_topic(name).shard_id == 1]
    entries = []
    shard.log.on_commit(entries.extend)
    long = sorted(fitting[: BULK_NAMES_BYTES_MAX // 1_024])
    assert (await bulk(shard, long)).created == BULK_NAMES_BYTES_MAX // 1_024
    (record,) = [record for entry in entries for record in entry.records]
    assert len(record.payload) < RECORD_BYTES_MAX


async def test_the_views_are_never_left_behind_by_more_than_a_few_records(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 10 * (BULK_RECORDS_AHEAD_MAX + 2))
    shard.log.hold_applies()
    before = shard.log.status.last_index
    blocks = [wanted[start : start + 10] for start in range(0, len(wanted), 10)]
    loads = [asyncio.create_task(bulk(shard, block)) for block in blocks]
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert shard.log.status.last_index - before == BULK_RECORDS_AHEAD_MAX
    assert sum(load.done() for load in loads) == BULK_RECORDS_AHEAD_MAX

    # An ordinary command does not wait for that room.
    other = next(name for name in names(world, 1, 200) if name not in wanted)
    (result,) = (
        await shard.service.execute(pb.ExecuteRequest(commands=[create_topics([other])]))
    ).results
    assert not result.topics[0].rejection_code

    shard.log.release_applies()
    assert [(await load).created for load in loads] == [10] * len(blocks)


async def test_one_request_more_than_may_wait_is_refused(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, BULK_REQUESTS_MAX + 1)
    shard.log.hold_commits()
    loads = [asyncio.create_task(bulk(shard, [name])) for name in wanted[:-1]]
    await asyncio.sleep(0.01)
    with pytest.raises(Overloaded):
        await bulk(shard, wanted[-1:])
    shard.log.release_commits()
    assert sum([(await load).created for load in loads]) == BULK_REQUESTS_MAX
    assert (await bulk(shard, wanted[-1:])).created == 1


async def test_a_leader_that_is_deposed_answers_nobody(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 5)
    service = shard.service
    await bulk(shard, wanted)
    shard.next_term()
    with pytest.raises(NotLeader):
        await service.create_in_bulk(pb.BulkCreateRequest(names=wanted))
    assert told(await bulk(shard, wanted)) == (0, 5, {})


async def test_a_wait_for_views_fails_when_the_leader_is_deposed(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, BULK_RECORDS_AHEAD_MAX + 1)
    shard.log.hold_applies()
    for name in wanted[:-1]:
        await bulk(shard, [name])
    waiting = asyncio.create_task(bulk(shard, wanted[-1:]))
    await asyncio.sleep(0.01)
    assert not waiting.done()

    shard.state.term.end()

    async with timeout(30):
        with pytest.raises(NotLeader):
            await waiting


async def test_only_a_confirmed_leader_answers_which_objects_exist(world: World) -> None:
    shard = world.shards[1]
    wanted = names(world, 1, 5)
    await bulk(shard, wanted)
    shard.log.lose_quorum()
    with pytest.raises(NotLeader):
        await bulk(shard, wanted)


async def test_what_bulk_created_does_not_push_out_what_is_in_use(world: World) -> None:
    shard = world.shards[1]
    first, *rest = names(world, 1, 60)
    await world.create_topic(first)
    await bulk(shard, rest)
    others = set(names(world, 1, 100)) - {first, *rest}
    for name in others:
        await world.create_topic(name)  # Now and then a leader looks at what its view has.
    found, unknown = shard.state.reads._cache.find(StateKind.TOPIC, [first, *rest])
    assert (set(found), unknown) == ({first}, rest)


def status(applied: int, others: Sequence[int], voters: int) -> LogStatus:
    """Return a leader's status: what its own view and some of the others have folded."""
    members = tuple(NodeId(f"node-{number}") for number in range(voters))
    progress = tuple(
        MemberProgress(members[number], True, 99, index, False)
        for number, index in enumerate(others, start=1)
    )
    made = MemoryLog(MemoryView()).status
    return replace(made, members=members, progress=progress, applied=AppliedPoint(applied, 1, 1))


@pytest.mark.parametrize(
    ("applied", "others", "voters", "expected"),
    [
        (7, (), 1, 7),
        (7, (5, 3), 3, 5),
        (4, (9, 3), 3, 4),
        (7, (5,), 3, 5),
        (7, (), 3, 0),
        (9, (8, 2, 1, 7), 5, 7),
    ],
)
async def test_a_majority_of_views_is_the_leaders_own_and_the_fastest_others(
    applied: int, others: tuple[int, ...], voters: int, expected: int
) -> None:
    assert majority_applied(status(applied, others, voters)) == expected
