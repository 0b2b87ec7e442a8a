"""The dispatcher: every request gets exactly one final answer, whatever goes wrong."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.placement import SLOT_ADOPTION_WAIT_MS
from nextgen.kernel.routing.hashing import slot_of
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT
from shards.domain.shard import SlotsAdopted
from shards.domain.slots.events import (
    SCAN_DONE,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReleased,
)
from shards.node.request_dispatcher import RequestDispatcher
from tests.support.observability.traced import recorded_traces
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard


def get_tenant(shard_id: int = 1, min_position: int = 0) -> pb.ShardRequest:
    names = [pb.ObjectName(kind=KIND_TENANT, name="acme")]
    request = pb.GetRequest(names=names, min_position=min_position)
    return pb.ShardRequest(request_id=3, shard_id=shard_id, get=request)


@run_by(in_shard)
async def test_an_answer_carries_request_id_and_map_version(shard: Harness) -> None:
    answer = await shard.dispatcher.answer(get_tenant())

    assert (answer.request_id, answer.shard_map_version) == (3, 1)
    assert not answer.HasField("error")


class OtherLeader:
    """Of another shard that the node leads, as far as new leaders of home shards ask it."""

    def __init__(self, term: int, *, is_idle: bool = True, is_over: bool = False) -> None:
        self.term = term
        self.state = SimpleNamespace(term=SimpleNamespace(is_over=is_over))
        self.brokers = self
        self.followed: list[pb.FollowRequest] = []
        self._is_idle = is_idle

    def follow_idly(self, request: pb.FollowRequest) -> bool:
        self.followed.append(request)
        return self._is_idle


@run_by(in_shard)
async def test_one_answer_to_a_new_leader_is_that_of_all_managers_of_the_node(
    shard: Harness,
) -> None:
    others = {
        2: OtherLeader(7),
        3: OtherLeader(8, is_idle=False),
        4: OtherLeader(9, is_over=True),
        6: OtherLeader(3),
    }
    replicas: dict[int, Any] = {
        shard_id: SimpleNamespace(leader=leader) for shard_id, leader in others.items()
    }
    replicas[1], replicas[5] = shard.replicas[1], SimpleNamespace(leader=None)
    dispatcher = RequestDispatcher(replicas, shard.cluster_view)
    request = pb.FollowRequest(home_shard_id=9, term=4, node_id="node-9")

    answer = await dispatcher.answer(pb.ShardRequest(request_id=3, shard_id=1, follow=request))

    assert [(each.shard_id, each.term) for each in answer.follow.idle] == [(2, 7), (6, 3)]
    assert not answer.follow.follows
    assert [len(others[shard_id].followed) for shard_id in (2, 3, 4, 6)] == [1, 1, 0, 1]
    assert others[2].followed == [request]


@run_by(in_shard)
async def test_a_request_without_a_known_body_is_refused(shard: Harness) -> None:
    answer = await shard.dispatcher.answer(pb.ShardRequest(request_id=3, shard_id=1))

    assert answer.error.reason == "INVALID_REQUEST"


@run_by(in_shard)
async def test_a_shard_that_is_not_in_the_map_means_a_stale_map(shard: Harness) -> None:
    answer = await shard.dispatcher.answer(get_tenant(shard_id=9))

    assert answer.error.reason == "STALE_SHARD_MAP"
    assert answer.error.shard_map_version == 1


@run_by(in_shard)
async def test_a_shard_without_a_replica_here_is_somebody_elses(shard: Harness) -> None:
    dispatcher = RequestDispatcher({}, shard.cluster_view)

    answer = await dispatcher.answer(get_tenant())

    assert answer.error.reason == "NOT_LEADER"


@run_by(in_shard)
async def test_a_follower_names_the_leader_and_still_reads_by_position(shard: Harness) -> None:
    await shard.create_topics("t")
    shard.log.lose_leadership("node-2")  # type: ignore[arg-type]

    for body in (
        {"lookup": pb.ShardLookupRequest(topics=[f"persistent://{NAMESPACE}/t"])},
        {"execute": pb.ExecuteRequest()},
        {"assign": pb.AssignRequest()},
        {"grant": pb.GrantCapacityRequest()},
        {"move": pb.MoveRequest()},
        {"release": pb.ReleaseRequest()},
        {"get": pb.GetRequest()},
        {"list": pb.ListRequest()},
    ):
        refused = await shard.dispatcher.answer(pb.ShardRequest(shard_id=1, **body))
        assert refused.error.reason == "NOT_LEADER", body
        assert refused.error.leader_hint == "node-2:1"
    read = await shard.dispatcher.answer(get_tenant(min_position=2))

    assert read.get.items[0].tenant.name == "acme"
    assert read.position >= 2


@run_by(in_shard)
async def test_a_read_behind_a_position_that_never_comes_ends_at_its_deadline(
    shard: Harness,
) -> None:
    request = get_tenant(min_position=1_000)
    request.timeout_ms = 300
    started = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(request)

    assert answer.error.reason == "DEADLINE_EXCEEDED"
    assert answer.error.indefinite
    assert asyncio.get_running_loop().time() - started < 0.4


@run_by(in_shard)
async def test_our_own_mistake_fails_one_request_only(shard: Harness) -> None:
    async def broken(*_arguments: object, **_named: object) -> None:
        raise KeyError("a mistake of ours")

    shard.leader.topics.lookup = broken  # type: ignore[assignment,method-assign]
    lookup = pb.ShardLookupRequest(topics=["persistent://a/b/c"])

    answer = await shard.dispatcher.answer(pb.ShardRequest(shard_id=1, lookup=lookup))

    assert answer.error.indefinite
    assert "a mistake of ours" in answer.error.message
    assert not (await shard.dispatcher.answer(get_tenant())).HasField("error")


@run_by(in_shard)
async def test_the_short_cut_exists_only_while_the_shard_is_led_here(shard: Harness) -> None:
    assert shard.dispatcher.local(2) is None
    local = shard.dispatcher.local(1)
    assert local is not None
    request = get_tenant()
    request.timeout_ms = 1_000
    assert (await local(request)).get.items

    shard.log.lose_leadership()

    assert shard.dispatcher.local(1) is None


@run_by(in_shard)
async def test_a_request_with_another_text_as_trace_id_is_answered(shard: Harness) -> None:
    request = get_tenant()
    request.trace_id = "order-17"
    with recorded_traces() as recorded:
        answer = await shard.dispatcher.answer(request)

    assert not answer.HasField("error")
    assert recorded.one("shard.get").parent is None


def create_tenant(consistency: int, timeout_ms: int) -> pb.ShardRequest:
    command = pb.Command(command_id=b"c" * 16, create_tenant=pb.CreateTenant(name="fresh"))
    request = pb.ShardRequest(request_id=3, shard_id=1, timeout_ms=timeout_ms)
    request.execute.commands.append(command)
    request.execute.consistency = consistency  # type: ignore[assignment]
    return request


@run_by(in_shard)
async def test_an_effective_write_that_ends_at_its_deadline_is_committed_and_can_be_waited_on(
    shard: Harness,
) -> None:
    """The leader has just begun: it does not know yet who subscribes."""
    late = await shard.dispatcher.answer(create_tenant(pb.CONSISTENCY_EFFECTIVE, 50))
    committed = await shard.dispatcher.answer(create_tenant(pb.CONSISTENCY_ASYNC, 50))
    effective = await shard.dispatcher.answer(create_tenant(pb.CONSISTENCY_EFFECTIVE, 5_000))

    assert late.error.reason == "DEADLINE_EXCEEDED"
    assert not committed.HasField("error")
    assert effective.execute == committed.execute


@run_by(in_shard)
async def test_a_consistency_that_is_not_known_is_refused_and_nothing_is_written(
    shard: Harness,
) -> None:
    answer = await shard.dispatcher.answer(create_tenant(2, 1_000))

    assert answer.error.reason == "INVALID_REQUEST"
    assert shard.leader.state.reads.load_tenant("fresh") is None


def tenant_in(slots: tuple[int, int]) -> str:
    names = (f"tenant-{number}" for number in range(1_000))
    return next(name for name in names if slots[0] <= slot_of(name) <= slots[1])


def create(name: str) -> pb.ShardRequest:
    command = pb.Command(create_tenant=pb.CreateTenant(name=name))
    return pb.ShardRequest(shard_id=1, execute=pb.ExecuteRequest(commands=[command]))


async def begin_to_come(shard: Harness, slots: tuple[int, int]) -> None:
    """Let the shard be one that has all slots but these, which are on their way to it."""
    propose = shard.leader.state.proposer.propose
    await propose([SlotsReleased(1, (slots,), 2, (), (), 0), SlotRowsRemoved(1, (), True)])
    await propose([SlotsIncoming(2, (slots,), 2, 1), SlotRowsCopied(2, (), SCAN_DONE, "", 5)])


@run_by(in_shard)
async def test_a_request_for_coming_slots_is_carried_out_once_they_are_adopted(
    shard: Harness,
) -> None:
    slots = (4_000, 6_000)
    await begin_to_come(shard, slots)
    name = tenant_in(slots)

    asked = asyncio.ensure_future(shard.dispatcher.answer(create(name)))
    await asyncio.sleep(SLOT_ADOPTION_WAIT_MS / 2_000)
    assert not asked.done()
    everything = ((0, SLOT_COUNT - 1),)
    shard.leader.state.proposer.propose([SlotsAdopted(everything, 3, 2, (slots,), 2, 9)])

    answer = await asked
    assert not answer.HasField("error")
    assert answer.execute.results[0].id
    assert shard.leader.state.reads.load_tenant(name) is not None


@run_by(in_shard)
async def test_a_request_for_slots_that_do_not_come_in_time_means_a_stale_map(
    shard: Harness,
) -> None:
    slots = (4_000, 6_000)
    await begin_to_come(shard, slots)
    began = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(create(tenant_in(slots)))

    assert answer.error.reason == "STALE_SHARD_MAP"
    waited_ms = (asyncio.get_running_loop().time() - began) * 1_000
    assert SLOT_ADOPTION_WAIT_MS <= waited_ms + 1 <= SLOT_ADOPTION_WAIT_MS + 50


@run_by(in_shard)
async def test_a_request_for_slots_that_left_is_told_where_they_went_at_once(
    shard: Harness,
) -> None:
    slots = (4_000, 6_000)
    release = SlotsReleased(1, (slots,), 2, (), (), 0)
    await shard.leader.state.proposer.propose([release])
    began = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(create(tenant_in(slots)))

    assert answer.error.reason == "STALE_SHARD_MAP"
    assert answer.error.moved_to == 2
    assert list(answer.error.moved_slots) == [4_000, 6_000]
    assert (asyncio.get_running_loop().time() - began) * 1_000 < SLOT_ADOPTION_WAIT_MS
