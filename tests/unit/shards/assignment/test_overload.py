"""More than a shard can have on its way is refused at once, and nothing else suffers."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import Overloaded
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.assignment import topic_controller
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard

IN_FLIGHT_MAX = 20


@pytest.fixture(autouse=True)
def few_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_controller, "UNITS_IN_FLIGHT_MAX", IN_FLIGHT_MAX)


async def waiting_units(shard: Harness, count: int) -> list[asyncio.Task[object]]:
    """Have so many units on their way to a broker that hangs."""
    topics = await shard.create_topics(*(f"wait-{number}" for number in range(count)))
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(shard.lookup(topic)) for topic in topics
    ]
    await asyncio.sleep(0.2)
    assert shard.leader.topics.units_in_flight == count
    return tasks


@run_by(in_shard)
async def test_units_in_flight_max_are_assigned_and_one_more_is_refused_and_may_be_tried_again(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    broker.is_hanging = True
    waiting = await waiting_units(shard, IN_FLIGHT_MAX - 1)
    last, beyond = await shard.create_topics("last", "beyond")
    waiting.append(asyncio.create_task(shard.lookup(last)))
    await asyncio.sleep(0.1)
    events = len(await shard.events("topic_assigned"))
    asked_at = shard.clock.monotonic()

    with pytest.raises(Overloaded, match="units in flight"):
        await shard.lookup(beyond)

    assert shard.clock.monotonic() == asked_at, "at once"
    assert shard.leader.topics.units_in_flight == IN_FLIGHT_MAX
    assert len(await shard.events("topic_assigned")) == events, "nothing was decided for it"
    broker.wake()
    await asyncio.gather(*waiting)
    (answer,) = await shard.lookup(beyond)
    assert answer.broker_id == "broker-1"
    assert shard.leader.topics.units_in_flight == 0


@run_by(in_shard)
async def test_what_is_served_is_answered_while_a_shard_is_full(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (served,) = await shard.create_topics("served")
    await shard.lookup(served)
    broker.is_hanging = True
    waiting = await waiting_units(shard, IN_FLIGHT_MAX)

    (answer,) = await shard.lookup(served)

    assert answer.broker_id == "broker-1"
    broker.wake()
    await asyncio.gather(*waiting)


@run_by(in_shard)
async def test_a_batch_that_would_go_beyond_the_limit_is_refused_as_a_whole(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    topics = await shard.create_topics(*(f"t-{number}" for number in range(IN_FLIGHT_MAX + 1)))

    request = pb.ShardRequest(
        shard_id=1, timeout_ms=1_000, lookup=pb.ShardLookupRequest(topics=topics)
    )
    response = await shard.dispatcher.answer(request)
    answers = await shard.lookup(*topics[:IN_FLIGHT_MAX])

    assert isinstance(from_detail(response.error), Overloaded)
    assert {answer.broker_id for answer in answers} == {"broker-1"}


@run_by(in_shard)
async def test_the_background_gives_way_to_lookups_and_ends_all_the_same(shard: Harness) -> None:
    """Lost units wait, and are refused, while the shard is full; then they go on."""
    first = await shard.start_broker("broker-1")
    lost = await shard.create_topics(*(f"lost-{number}" for number in range(IN_FLIGHT_MAX)))
    await shard.lookup(*lost)
    second = await shard.start_broker("broker-2")
    first.vanish()
    second.is_hanging = True
    waiting = await waiting_units(shard, IN_FLIGHT_MAX - 5)
    await asyncio.sleep(1.0)
    assert shard.leader.topics.units_in_flight <= IN_FLIGHT_MAX

    second.wake()
    await asyncio.gather(*waiting)
    await asyncio.sleep(30.0)

    assert shard.leader.state.reads.used_units(first.session_id) == 0
