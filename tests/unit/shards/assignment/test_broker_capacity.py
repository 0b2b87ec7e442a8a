"""No broker gets more units than its capacity, whatever leases say and whichever replica leads."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Refused, SessionExpired
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Topic
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, FakeBroker, Harness, in_shard


def unit(number: int, epoch: int = 1) -> pb.TopicAssignment:
    name = f"persistent://{NAMESPACE}/t-{number}"
    return pb.TopicAssignment(
        topic=Topic(name=name, topic_id=f"id-{number}"), name=name, epoch=epoch, shard_id=1
    )


async def assign(
    shard: Harness, broker: FakeBroker, *numbers: int, epoch: int = 1, prepare: bool = False
) -> pb.AssignResponse:
    units = [unit(number, epoch) for number in numbers]
    request = pb.AssignRequest(
        broker_id=broker.broker_id,
        session_id=broker.session_id,
        assignments=() if prepare else units,
        prepared=units if prepare else (),
    )
    return (await shard.ask(assign=request)).assign


async def release(shard: Harness, broker: FakeBroker, number: int) -> None:
    each = unit(number)
    request = pb.ReleaseRequest(
        broker_id=broker.broker_id,
        session_id=broker.session_id,
        releases=[pb.TopicRelease(topic_id=each.topic.topic_id, name=each.name, epoch=1)],
    )
    await shard.ask(release=request)


async def no_room(
    shard: Harness, broker: FakeBroker, *numbers: int, prepare: bool = False, room: int = 0
) -> str:
    with pytest.raises(Refused) as refused:
        await assign(shard, broker, *numbers, prepare=prepare)
    assert refused.value.code == RejectionCode.NO_CAPACITY
    assert refused.value.room == room
    return str(refused.value)


@run_by(in_shard)
async def test_a_broker_is_given_units_up_to_its_capacity_and_not_one_more(shard: Harness) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=3)
    await assign(shard, broker, 1, 2)

    why = await no_room(shard, broker, 3, 4, room=1)

    assert "broker-1 has 2 of 3 units, there is no room for 2 more" in why
    assert len(broker.assigned) == 2, "none of a request that is refused is delivered"
    await assign(shard, broker, 3)
    await no_room(shard, broker, 4)
    await no_room(shard, broker, 4, prepare=True)


@run_by(in_shard)
async def test_what_a_full_broker_has_may_be_sent_again_and_with_a_later_epoch(
    shard: Harness,
) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=2)
    await assign(shard, broker, 1, 2)

    await assign(shard, broker, 1, 2)
    await assign(shard, broker, 1, epoch=2)

    assert len(broker.assigned) == 5


@run_by(in_shard)
async def test_a_unit_that_is_released_makes_room(shard: Harness) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=1)
    await assign(shard, broker, 1)
    await release(shard, broker, 1)

    await assign(shard, broker, 2)
    await release(shard, broker, 1)

    await no_room(shard, broker, 3)


@run_by(in_shard)
async def test_a_unit_of_a_deleted_topic_counts_until_it_is_released(shard: Harness) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=1)
    await assign(shard, broker, 1)
    session = shard.leader.brokers.sessions.live("broker-1", broker.session_id)
    (sent,) = [each for each in session.metadata if each.kind == KIND_TOPIC]

    session.metadata.forget(sent)

    await no_room(shard, broker, 2)
    await release(shard, broker, 1)
    await assign(shard, broker, 2)


@run_by(in_shard)
async def test_a_new_leader_believes_how_many_units_a_broker_says_it_holds(shard: Harness) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=4)
    await assign(shard, broker, 1, 2)
    shard.next_term()
    await broker.connect()
    assert broker.is_asked_what_it_holds

    await assign(shard, broker, 3)

    # Which units those two are is not known: whether there is room, the report has to say.
    waiting = asyncio.create_task(assign(shard, broker, 1, 2))
    await asyncio.sleep(1)
    assert not waiting.done()
    await report(shard, broker, 1, 2, 3)
    await waiting
    await assign(shard, broker, 4)
    await no_room(shard, broker, 5)


@run_by(in_shard)
async def test_a_new_leader_gives_a_broker_of_an_earlier_release_nothing_before_its_report(
    shard: Harness,
) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=2)
    await assign(shard, broker, 1, 2)
    shard.next_term()
    hello = broker.hello()
    hello.ClearField("units_held")
    broker.connection = await shard.leader.brokers.sessions.connect(hello)
    waiting = asyncio.create_task(assign(shard, broker, 3))
    await asyncio.sleep(1)
    assert not waiting.done()

    await report(shard, broker, 1, 2)

    with pytest.raises(Refused, match="2 of 2 units"):
        await waiting


@run_by(in_shard)
async def test_a_wait_for_the_report_of_a_session_that_ends_fails(shard: Harness) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=1)
    await assign(shard, broker, 1)
    shard.next_term()
    await broker.connect()
    waiting = asyncio.create_task(assign(shard, broker, 2))
    await asyncio.sleep(0.1)

    broker.vanish()

    with pytest.raises(SessionExpired):
        await waiting


@run_by(in_shard)
async def test_what_a_broker_holds_is_known_with_the_last_page_of_its_report(
    shard: Harness,
) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1")
    await assign(shard, broker, 1, 2)
    shard.next_term()
    await broker.connect()
    session = shard.leader.brokers.sessions.live("broker-1", broker.session_id)

    await report(shard, broker, 1, complete=False)
    assert not session.reported.is_set()
    await report(shard, broker, 2)

    assert session.reported.is_set()
    assert session.metadata.units == 2


@run_by(in_shard)
async def test_what_a_broker_is_known_to_have_is_sent_again_before_its_report_is_complete(
    shard: Harness,
) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=2)
    await assign(shard, broker, 1, 2)
    shard.next_term()
    hello = broker.hello()
    hello.ClearField("units_held")
    broker.connection = await shard.leader.brokers.sessions.connect(hello)
    await report(shard, broker, 1, complete=False)

    again = asyncio.create_task(assign(shard, broker, 1))
    await asyncio.sleep(1)

    session = shard.leader.brokers.sessions.live("broker-1", broker.session_id)
    assert session.sequence > session.acked, "it is on its way to a broker that does not sync"
    again.cancel()


@run_by(in_shard)
async def test_what_a_broker_that_comes_back_holds_counts_once(shard: Harness) -> None:
    await shard.create_topics("t-1")
    broker = await shard.start_broker("broker-1", capacity_units=4)
    await assign(shard, broker, 1, 2)

    await broker.connect()

    assert broker.resumed
    assert not broker.is_asked_what_it_holds
    await assign(shard, broker, 3, 4)
    await no_room(shard, broker, 5)


async def report(shard: Harness, broker: FakeBroker, *numbers: int, complete: bool = True) -> None:
    """Have a broker say what it holds."""
    held = broker_pb.HeldMetadata(
        objects=[
            broker_pb.HeldObject(
                kind=KIND_TOPIC,
                name=unit(number).name,
                id=f"id-{number}",
                units=[broker_pb.HeldUnit(epoch=1)],
            )
            for number in numbers
        ],
        complete=complete,
    )
    assert broker.connection is not None
    shard.leader.brokers.sessions.receive(broker.connection, broker_pb.BrokerMessage(held=held))
    await asyncio.sleep(0)
