"""How far the shards are, for clients that are about to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from discovery.service.admin.positions import PositionService
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.write import POSITION_FRESH_MS, POSITION_WAIT_MS
from nextgen.kernel.routing.slots import SLOT_COUNT, SlotTable
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import ShardMapChanged, ShardPlacement
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

TIMEOUT_MS = 5_000


class Shards:
    """Shards that go on by one position with each read, and may be silent."""

    def __init__(self) -> None:
        self.positions = {1: 100, 2: 200}
        self.silent: set[int] = set()
        self.reads: list[int] = []

    async def call(self, shard_id: int, request: ShardRequest, *, timeout_ms: int) -> ShardResponse:
        assert request.HasField("get")
        assert not request.get.min_position, "a follower may be far behind"
        self.reads.append(shard_id)
        if shard_id in self.silent:
            await asyncio.sleep(timeout_ms / 1_000)
            raise Unavailable(f"shard {shard_id} has no leader")
        self.positions[shard_id] += 1
        return ShardResponse(position=self.positions[shard_id])


class Directory:
    def __init__(self) -> None:
        self.view = ClusterView()

    def know_shards(self) -> None:
        placements = [ShardPlacement(shard_id=shard_id, replicas=["n"]) for shard_id in (1, 2)]
        owners = SlotTable(1, (1,) * SLOT_COUNT).to_bytes()
        shard_map = ShardMapChanged(version=1, slot_owners=owners, shards=placements)
        self.view.apply(ClusterUpdate(shard_map=shard_map))


class World:
    def __init__(self, *, knows_shards: bool = True) -> None:
        self.shards = Shards()
        self.directory = Directory()
        if knows_shards:
            self.directory.know_shards()
        shards: Any = self.shards
        clock = asyncio.get_running_loop().time
        self.service = PositionService(shards, self.directory, clock)

    async def positions(self) -> dict[int, int]:
        response = await self.service.positions(pb.GetPositionsRequest(), TIMEOUT_MS)
        return {each.shard_id: each.position for each in response.positions}


@run_by(run_virtual)
async def test_each_shard_says_how_far_it_is() -> None:
    world = World()

    assert await world.positions() == {1: 101, 2: 201}


@run_by(run_virtual)
async def test_those_who_ask_at_the_same_time_share_one_read_of_each_shard() -> None:
    world = World()

    await asyncio.gather(*(world.positions() for _ in range(100)))

    assert sorted(world.shards.reads) == [1, 2]


@pytest.mark.parametrize(("late_ms", "reads"), [(0, 2), (1, 4)])
@run_by(run_virtual)
async def test_positions_are_read_again_when_they_are_old(*, late_ms: int, reads: int) -> None:
    world = World()
    await world.positions()
    await asyncio.sleep((POSITION_FRESH_MS + late_ms) / 1_000)

    await world.positions()

    assert len(world.shards.reads) == reads


@run_by(run_virtual)
async def test_a_shard_that_never_answered_is_left_out_and_holds_the_others_up_for_a_bounded_time():
    world = World()
    world.shards.silent = {2}
    began = asyncio.get_running_loop().time()

    assert await world.positions() == {1: 101}

    waited_s = asyncio.get_running_loop().time() - began
    assert waited_s <= POSITION_WAIT_MS / 1_000 + 0.001
    await world.service.stop()


@run_by(run_virtual)
async def test_a_shard_that_does_not_answer_any_more_is_given_as_it_was() -> None:
    world = World()
    await world.positions()
    world.shards.silent = {2}
    await asyncio.sleep(60)

    assert await world.positions() == {1: 102, 2: 201}
    await world.service.stop()


@run_by(run_virtual)
async def test_without_a_shard_map_it_says_so() -> None:
    world = World(knows_shards=False)

    with pytest.raises(Unavailable, match="no shard map"):
        await world.positions()


@run_by(run_virtual)
async def test_a_stop_ends_what_is_being_read() -> None:
    world = World()
    world.shards.silent = {1, 2}
    await world.positions()

    await world.service.stop()

    assert [task for task in asyncio.all_tasks() if "_read_from" in repr(task)] == []
