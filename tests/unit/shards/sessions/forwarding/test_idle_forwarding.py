"""Reports of idle units reach the topic controllers of their shards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.placement import IDLE_UNITS_PER_MESSAGE_MAX
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from shards.sessions.forwarding import idle_forwarding
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard

SETTLED_S = 3.0


async def served(shard: Harness, count: int) -> list[LookupAnswer]:
    await shard.start_broker("broker-1")
    topics = await shard.create_topics(*(f"t-{number}" for number in range(count)))
    answers = await shard.lookup(*topics)
    await asyncio.sleep(SETTLED_S)
    return answers


def say_idle(shard: Harness, broker: FakeBroker, units: Sequence[broker_pb.IdleUnit]) -> None:
    assert broker.connection is not None
    message = broker_pb.BrokerMessage(idle=broker_pb.IdleUnits(units=units))
    shard.leader.brokers.sessions.receive(broker.connection, message)


def unit(answer: LookupAnswer, *, epoch: int = 0) -> broker_pb.IdleUnit:
    return broker_pb.IdleUnit(
        topic_id=answer.topic_id, name=answer.topic, epoch=epoch or answer.epoch
    )


@run_by(in_shard)
async def test_idle_units_leave_their_broker_and_come_back_with_the_next_lookup(
    shard: Harness,
) -> None:
    answers = await served(shard, 3)
    broker = shard.brokers["broker-1"]

    say_idle(shard, broker, [unit(answer) for answer in answers[:2]])
    await asyncio.sleep(SETTLED_S)

    assert shard.leader.state.reads.used_units(broker.session_id) == 1
    assert {name for name, _, _ in broker.released} == {one.topic for one in answers[:2]}
    reasons = {event.topic_unassigned.reason for event in await shard.events("topic_unassigned")}
    assert reasons == {"idle"}
    (again,) = await shard.lookup(answers[0].topic)
    assert (again.broker_id, again.epoch) == ("broker-1", 2)


@run_by(in_shard)
async def test_a_unit_that_has_another_epoch_by_now_stays(shard: Harness) -> None:
    (answer,) = await served(shard, 1)
    broker = shard.brokers["broker-1"]

    say_idle(shard, broker, [unit(answer, epoch=7)])
    await asyncio.sleep(SETTLED_S)

    assert shard.leader.state.reads.used_units(broker.session_id) == 1
    assert await shard.events("topic_unassigned") == []


@run_by(in_shard)
async def test_a_message_with_too_many_units_or_a_name_that_is_none_is_refused(
    shard: Harness,
) -> None:
    (answer,) = await served(shard, 1)
    broker = shard.brokers["broker-1"]

    say_idle(shard, broker, [unit(answer, epoch=7)] * IDLE_UNITS_PER_MESSAGE_MAX)
    with pytest.raises(InvalidRequest, match="idle units in one message"):
        say_idle(shard, broker, [unit(answer)] * (IDLE_UNITS_PER_MESSAGE_MAX + 1))
    with pytest.raises(InvalidRequest, match="names an idle unit"):
        say_idle(shard, broker, [broker_pb.IdleUnit(name="persistent://no/")])
    await asyncio.sleep(SETTLED_S)

    assert shard.leader.state.reads.used_units(broker.session_id) == 1


@pytest.mark.parametrize(("excess", "left"), [(0, 0), (1, 1)])
def test_so_many_messages_are_on_their_way_and_what_comes_beyond_is_left_to_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int, left: int
) -> None:
    monkeypatch.setattr(idle_forwarding, "_FORWARDING_MAX", 3)

    async def scenario(shard: Harness) -> None:
        answers = await served(shard, 3 + excess)
        broker = shard.brokers["broker-1"]

        for answer in answers:
            say_idle(shard, broker, [unit(answer)])
        await asyncio.sleep(SETTLED_S)

        assert shard.leader.state.reads.used_units(broker.session_id) == left
        say_idle(shard, broker, [unit(answer) for answer in answers])
        await asyncio.sleep(SETTLED_S)
        assert shard.leader.state.reads.used_units(broker.session_id) == 0

    in_shard(tmp_path, scenario)
