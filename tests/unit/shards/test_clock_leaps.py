"""A wall clock that leaps by an hour changes no decision of a shard."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.limits.cluster import CAPACITY_LEASE_TTL_MS
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, VirtualClock, in_shard

HOUR_MS = 3_600_000
ID_1 = b"command-00000001"
ID_2 = b"command-00000002"


class WallClock:
    """The wall clock of every shard of a test, as it is set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def read(self, clock: VirtualClock) -> int:
        return 1_700_000_000_000 + int(clock.monotonic() * 1000) + self.ahead_ms


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    wall = WallClock()
    monkeypatch.setattr(VirtualClock, "wall_ms", lambda clock: wall.read(clock))
    return wall


def missing(command_id: bytes) -> pb.Command:
    body = pb.DeleteTopic(name=f"persistent://{NAMESPACE}/missing")
    return pb.Command(command_id=command_id, delete_topic=body)


def set_colour(topic: str, command_id: bytes) -> pb.Command:
    body = pb.SetTopicProperties(name=topic, properties={"colour": "blue"})
    return pb.Command(command_id=command_id, set_topic_properties=body)


@pytest.mark.parametrize("leap_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("next_term", [False, True])
@run_by(in_shard)
async def test_sessions_leases_assignments_and_outcomes_stay(
    shard: Harness, *, wall: WallClock, leap_ms: int, next_term: bool
) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    (before,) = await shard.lookup(topic)
    commands = [set_colour(topic, ID_1), missing(ID_2)]
    first = await shard.leader.inventory.execute(pb.ExecuteRequest(commands=commands))
    leased = shard.leader.leases.units_leased

    wall.ahead_ms = leap_ms
    if next_term:
        shard.next_term()
        await broker.connect()
    await asyncio.sleep(10)

    (after,) = await shard.lookup(topic)
    again = await shard.leader.inventory.execute(pb.ExecuteRequest(commands=commands))
    assert (after.broker_id, after.epoch) == (before.broker_id, before.epoch)
    assert after.session_id == before.session_id == broker.session_id
    assert list(again.results) == list(first.results)
    assert shard.leader.leases.units_leased == leased
    (cold,) = await shard.lookup(*(await shard.create_topics("cold")))
    assert cold.broker_id == "broker-1"


@pytest.mark.parametrize("leap_ms", [HOUR_MS, -HOUR_MS])
@run_by(in_shard)
async def test_a_move_under_way_is_finished_by_the_next_leader(
    shard: Harness, *, wall: WallClock, leap_ms: int
) -> None:
    """1. A move is committed. 2. Its leader is replaced before the old owner was told. 3. The
    next leader's clock differs by an hour."""
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    second = await shard.start_broker("broker-2")
    await asyncio.sleep(CAPACITY_LEASE_TTL_MS / 10_000)
    second.hangs_at = "assign"
    moving = asyncio.ensure_future(shard.move((topic, "broker-2")))
    await asyncio.sleep(0.1)
    assert second.assigned, "the move was not committed"
    wall.ahead_ms = leap_ms

    shard.next_term()
    second.hangs_at = ""
    await first.connect()
    await second.connect()
    await asyncio.gather(moving, return_exceptions=True)

    async with timeout(20):
        while not first.released:
            await asyncio.sleep(0.1)
    assert first.released[0][0] == topic
