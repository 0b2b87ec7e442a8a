"""The leader carries out plans: what it pushes, what reports do, how the next leader goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_manager.service.connection import NodeConnection
from nextgen.kernel.errors import InvalidRequest, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.placement import (
    SHARD_SIZE_WAIT_MS,
    SLOT_MOVE_ROWS_MAX,
    SLOT_MOVE_STALLED_MS,
    SLOT_REQUEST_ID_CHARACTERS_MAX,
)
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from tests.unit.cluster_manager.fakes import (
    ManagerUnderTest,
    broker,
    heartbeat,
    hello,
    leader,
    settle,
    taken,
)


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    manager = ManagerUnderTest(tmp_path)
    yield manager
    manager.manager.stop()
    await manager.log.stop()


class Shards:
    """Two shard nodes, a and b, that lead shards 1 and 2."""

    def __init__(self, under: ManagerUnderTest, a: NodeConnection, b: NodeConnection) -> None:
        self.under, self.a, self.b = under, a, b

    @classmethod
    async def joined(cls, under: ManagerUnderTest) -> Shards:
        a, b = await under.join_shard_nodes()
        shards = cls(under, a, b)
        shards.lead(1, a)
        shards.lead(2, b)
        # So large that sixteen slots go at once.
        await shards.sizes(a, 1, 8_192 * SLOT_MOVE_ROWS_MAX // 16)
        await shards.sizes(b, 2, 0)
        return shards

    def lead(self, shard_id: int, node: NodeConnection) -> None:
        self.under.manager.receive(node, leader(shard_id, 3, node.node_id))

    async def report(self, node: NodeConnection, shard_id: int, phase: str, **fields) -> None:
        report = cluster_pb.SlotMoveReport(move_id=1, shard_id=shard_id, phase=phase, **fields)
        self.under.manager.receive(node, cluster_pb.NodeMessage(slot_move=report))
        await settle()

    async def adopt(self, **fields) -> None:
        await self.report(self.b, 2, "adopted", from_position=40, to_position=9, **fields)

    async def sizes(self, node: NodeConnection, shard_id: int, rows: int, term: int = 3) -> None:
        size = cluster_pb.ShardSize(shard_id=shard_id, term=term, rows=rows, topics=rows // 2)
        message = cluster_pb.NodeMessage(shard_sizes=cluster_pb.ShardSizes(shards=[size]))
        self.under.manager.receive(node, message)
        await settle()


async def plan(under: ManagerUnderTest, kind: str, **fields) -> cluster_pb.SlotPlan:
    request = cluster_pb.PlanSlotsRequest(kind=kind, **fields)
    response = await under.manager.plan_slots(request)
    await settle()
    return response.plan


async def plans(under: ManagerUnderTest) -> cluster_pb.GetPlansResponse:
    return await under.manager.plans(cluster_pb.GetPlansRequest())


def some_slots(under: ManagerUnderTest, shard_id: int, count: int) -> list[events_pb.SlotRange]:
    """Return the shard's first slots, as the ring has placed them."""
    shard_map = under.manager.leader_term.committed.shard_map
    slots = shard_map.table.slots_of(shard_id)[:count]
    return [events_pb.SlotRange(first=slot, last=slot) for slot in slots]


async def moves_pushed(node: NodeConnection) -> list[tuple[int, str]]:
    return [
        (move.move_id, move.phase) for update in await taken(node) for move in update.slot_moves
    ]


async def test_a_plan_s_move_is_pushed_reported_flipped_and_done(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await taken(shards.a)
    ranges = some_slots(one, 1, 10)

    planned = await plan(one, "move_slots", into_shard=2, ranges=ranges)
    assert (planned.slots, planned.slots_left, planned.plan.phase) == (10, 10, "running")
    assert await moves_pushed(shards.a) == [(1, "planned")]

    version = one.manager.leader_term.committed.shard_map.version
    await shards.report(shards.b, 2, "copying", rows_copied=77)
    (shown,) = (await plans(one)).plans
    assert [(move.move.phase, move.rows_copied) for move in shown.moves] == [("planned", 77)]

    await shards.adopt()
    (update,) = [each for each in await taken(shards.a) if each.slot_moves]
    # Nodes learn of both in one update.
    assert update.slot_moves[0].phase == "adopted"
    assert update.shard_map.version == version + 1
    table = SlotTable.from_bytes(update.shard_map.version, update.shard_map.slot_owners)
    assert {table.owners[each.first] for each in ranges} == {2}

    await shards.report(shards.a, 1, "cleaned")
    (shown,) = (await plans(one)).plans
    assert (shown.plan.phase, shown.slots_left, shown.moves_done) == ("done", 0, 1)
    assert shown.plan.ended_at_ms > 0
    assert list(shown.moves) == []


async def test_leased_units_go_along(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    one.manager.receive(shards.a, broker())
    await settle()
    for shard_id in (1, 2):
        request = cluster_pb.LeaseCapacityRequest(
            shard_id=shard_id,
            term=3,
            uses=[cluster_pb.LeaseUse(broker_id="broker-1", session_id="s-1", units_used=5)],
        )
        await one.manager.lease_capacity(request)

    def units() -> list[int]:
        account = one.manager.leader_term.committed.ledger.accounts["broker-1"]
        return [account.leases[shard_id].units for shard_id in (1, 2)]

    before = units()
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 3))
    await shards.adopt(session_units=[events_pb.CountedUnits(of="s-1", units=4)])

    assert units() == [before[0] - 4, before[1] + 4]


async def test_plans_are_listed_without_their_slots_of_which_there_may_be_thousands(
    one: ManagerUnderTest,
) -> None:
    await Shards.joined(one)
    for _ in range(3):
        made = await plan(one, "rebalance")
    planned = await plan(one, "split", shard_id=1)
    assert len(planned.plan.wanted) > 500

    listed = (await plans(one)).plans
    newest = (await one.manager.plans(cluster_pb.GetPlansRequest(plans_max=2))).plans

    assert [each.plan.plan_id for each in listed] == [4, 3, 2, 1]
    assert [each.plan.plan_id for each in newest] == [4, made.plan.plan_id]
    assert [len(each.plan.wanted) for each in listed] == [0] * 4
    assert (listed[0].slots, listed[0].slots_left) == (4_096, 4_096)


async def test_a_node_that_joins_is_told_the_moves_that_are_not_over(
    one: ManagerUnderTest,
) -> None:
    shards = await Shards.joined(one)
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 10))

    assert await moves_pushed(await one.manager.join(hello("a"))) == [(1, "planned")]
    await shards.adopt()
    again = await one.manager.join(hello("a"))
    assert await moves_pushed(again) == [(1, "adopted")]
    await shards.report(again, 1, "cleaned")
    assert await moves_pushed(await one.manager.join(hello("a"))) == []


async def test_a_late_report_is_answered_with_the_record_to_its_sender_alone(
    one: ManagerUnderTest,
) -> None:
    shards = await Shards.joined(one)
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 10))
    await shards.report(shards.b, 2, "refused", reason="the disk is full")
    await shards.report(shards.a, 1, "reclaimed")
    for node in (shards.a, shards.b):
        await taken(node)

    await shards.report(shards.a, 1, "released")

    assert await moves_pushed(shards.a) == [(1, "taken_back")]
    assert await moves_pushed(shards.b) == []
    await shards.adopt()
    assert await moves_pushed(shards.b) == [(1, "taken_back")]


async def test_a_refused_move_stops_the_plan(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 40))

    await shards.report(shards.b, 2, "refused", reason="the disk is full")
    await shards.report(shards.a, 1, "reclaimed")

    (shown,) = (await plans(one)).plans
    assert shown.plan.phase == "stopped"
    assert "the disk is full" in shown.plan.reason
    assert [move.move.phase for move in shown.moves] == ["taken_back"]
    assert shown.slots_left == 40


async def test_the_next_leader_goes_on_with_the_plan(one: ManagerUnderTest, tmp_path: Path) -> None:
    shards = await Shards.joined(one)
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 40))
    await shards.adopt()

    one.log.lose_leadership()
    await settle()
    one.log.become_leader()
    await settle()
    shards = await Shards.joined(one)
    assert [move for move in await moves_pushed(shards.a)] == [(1, "adopted")]
    await shards.report(shards.a, 1, "cleaned")

    # Sixteen slots have moved.
    assert await moves_pushed(shards.a) == [(1, "done"), (2, "planned")]
    (shown,) = (await plans(one)).plans
    assert shown.slots_left == 24


async def test_an_operator_stops_a_plan(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 40))

    stopped = await one.manager.stop_plan(cluster_pb.StopPlanRequest())

    assert stopped.plan.plan.phase == "stopping"
    assert stopped.plan.plan.reason == "an operator stopped it"
    assert [move.move.phase for move in stopped.plan.moves] == ["stopping"]
    await shards.adopt()
    await shards.report(shards.a, 1, "cleaned")
    (shown,) = (await plans(one)).plans
    assert (shown.plan.phase, shown.slots_left) == ("stopped", 24)
    with pytest.raises(Refused) as refused:
        await one.manager.stop_plan(cluster_pb.StopPlanRequest())
    assert refused.value.code is RejectionCode.NOT_FOUND


async def test_a_dry_run_records_nothing(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await shards.sizes(shards.a, 1, 8_192 * 500)
    before = one.manager.leader_term.committed

    planned = await plan(one, "split", shard_id=1, dry_run=True)

    assert one.manager.leader_term.committed == before
    assert planned.slots == planned.slots_left == 4_096
    assert (planned.rows_left, planned.moves_left) == (4_096 * 500, 41)
    assert list(planned.plan.added) == [3]
    assert [len(placement.replicas) for placement in planned.added] == [2]
    with pytest.raises(Refused):
        await plan(one, "split", shard_id=9, dry_run=True)


async def test_the_same_request_twice_makes_one_plan(one: ManagerUnderTest) -> None:
    await Shards.joined(one)

    first = await plan(one, "add_shards", shards=1, request_id="r-1")
    again = await plan(one, "add_shards", shards=1, request_id="r-1")

    assert first.plan.plan_id == again.plan.plan_id == 1
    assert len(one.manager.leader_term.committed.shard_map.placements) == 3
    with pytest.raises(Refused) as refused:
        await plan(one, "add_shards", shards=1, request_id="r-2")
    assert "plan 1 (add_shards) is running" in str(refused.value)


async def test_added_shards_are_done_when_they_are_led(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await plan(one, "add_shards", shards=1)
    (shown,) = (await plans(one)).plans
    assert (shown.plan.phase, shown.waits_for) == ("running", "shard 3 has no leader yet")

    shards.lead(3, shards.a)
    await settle()

    answer = await plans(one)
    assert answer.plans[0].plan.phase == "done"
    assert [(shard.shard_id, shard.slots, shard.leader) for shard in answer.shards] == [
        (1, 8_192, "a"),
        (2, 8_192, "b"),
        (3, 0, "a"),
    ]


async def test_no_plan_is_made_before_every_shard_has_been_led(one: ManagerUnderTest) -> None:
    await one.join_shard_nodes()

    with pytest.raises(Unavailable):
        await plan(one, "split", shard_id=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "unmerge"},
        {"kind": "split", "request_id": "x" * (SLOT_REQUEST_ID_CHARACTERS_MAX + 1)},
    ],
)
async def test_an_invalid_request_is_refused(one: ManagerUnderTest, fields: dict) -> None:
    await Shards.joined(one)

    with pytest.raises(InvalidRequest):
        await plan(one, **fields)
    longest = "x" * SLOT_REQUEST_ID_CHARACTERS_MAX
    assert (await plan(one, "rebalance", request_id=longest)).plan.request_id == longest


async def test_sizes_of_a_deposed_leader_and_of_unknown_shards_are_ignored(
    one: ManagerUnderTest,
) -> None:
    shards = await Shards.joined(one)
    await shards.sizes(shards.a, 1, 200, term=4)
    await shards.sizes(shards.b, 1, 100, term=3)
    await shards.sizes(shards.b, 9, 100)

    sizes = {shard.shard_id: shard.size.rows for shard in (await plans(one)).shards}

    assert sizes == {1: 200, 2: 0}


async def test_a_new_leader_waits_for_the_size_of_a_shard_but_not_for_ever(
    one: ManagerUnderTest,
) -> None:
    a, b = await one.join_shard_nodes()
    shards = Shards(one, a, b)
    shards.lead(1, a)
    shards.lead(2, b)
    await settle()
    planned = await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 40))
    assert planned.waits_for == "shard 1 has not reported its size"
    assert one.manager.leader_term.committed.slot_moves.moves == {}

    for _ in range(SHARD_SIZE_WAIT_MS // 1_000 + 1):
        one.clock.advance(1_000)
        for node in (a, b):
            one.manager.receive(node, heartbeat(1))
        await settle()

    assert await moves_pushed(a) == [(1, "planned")]


async def test_a_plan_goes_on_when_the_size_is_reported(one: ManagerUnderTest) -> None:
    a, b = await one.join_shard_nodes()
    shards = Shards(one, a, b)
    shards.lead(1, a)
    shards.lead(2, b)
    await settle()
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 40))

    await shards.sizes(a, 1, 8_192 * SLOT_MOVE_ROWS_MAX // 16)

    (move,) = one.manager.leader_term.committed.slot_moves.under_way
    assert sum(last + 1 - first for first, last in move.ranges) == 16


async def test_a_plan_that_does_not_fit_on_a_disk_is_refused(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await shards.sizes(shards.a, 1, 8_192 * 500)
    # Of a disk of which nothing is known nothing is said.
    assert (await plan(one, "merge", shard_id=1, into_shard=2, dry_run=True)).slots == 8_192

    full = cluster_pb.ShardSizes(disk_free_bytes=1_000_000)
    one.manager.receive(shards.b, cluster_pb.NodeMessage(shard_sizes=full))

    with pytest.raises(Refused, match="MiB to b, which has 0 MiB of its disk left"):
        await plan(one, "merge", shard_id=1, into_shard=2)


async def test_slot_move_stalled_ms_without_news_a_move_is_taken_back(
    one: ManagerUnderTest,
) -> None:
    shards = await Shards.joined(one)
    await plan(one, "move_slots", into_shard=2, ranges=some_slots(one, 1, 10))

    async def wait(ms: int) -> str:
        # The nodes go on sending heartbeats.
        for _ in range(ms // 1_000):
            one.clock.advance(1_000)
            for node in (shards.a, shards.b):
                one.manager.receive(node, heartbeat(1))
            await settle()
        return one.manager.leader_term.committed.slot_moves.moves[1].phase.value

    assert await wait(SLOT_MOVE_STALLED_MS - 60_000) == "planned"
    await shards.report(shards.b, 2, "copying", rows_copied=5)
    assert await wait(120_000) == "planned"
    assert await wait(SLOT_MOVE_STALLED_MS) == "stopping"
    (shown,) = (await plans(one)).plans
    assert "nothing was heard of move 1" in shown.plan.reason


async def test_only_shard_nodes_report_moves(one: ManagerUnderTest) -> None:
    await Shards.joined(one)
    stranger = await one.manager.join(hello("d", "discovery"))

    for message in (
        cluster_pb.NodeMessage(slot_move=cluster_pb.SlotMoveReport(move_id=1)),
        cluster_pb.NodeMessage(shard_sizes=cluster_pb.ShardSizes()),
    ):
        with pytest.raises(InvalidRequest):
            one.manager.receive(stranger, message)


async def test_a_report_that_is_not_known_ends_the_stream(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)

    with pytest.raises(InvalidRequest):
        await shards.report(shards.a, 1, "vanished")


async def test_no_slot_of_the_map_is_ever_without_an_owner(one: ManagerUnderTest) -> None:
    shards = await Shards.joined(one)
    await plan(one, "merge", shard_id=1, into_shard=2)
    await shards.adopt()

    owners = one.manager.leader_term.committed.shard_map.table.owners

    assert len(owners) == SLOT_COUNT
    assert set(owners) == {1, 2}
