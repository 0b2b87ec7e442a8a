"""A unit that its owner gives up so that its topic can be deleted: what its clients see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.domain.refusal import Refusal, ServerError
from brokers.service.topics import open_topics
from nextgen.kernel.errors import Refused
from nextgen.kernel.routing.names import parse_topic
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle, topic_id_of, until

CLOSE_PRODUCER = pulsar.BaseCommand.CLOSE_PRODUCER
CLOSE_CONSUMER = pulsar.BaseCommand.CLOSE_CONSUMER
SEND_RECEIPT = pulsar.BaseCommand.SEND_RECEIPT
VOLATILE = TOPIC.replace("persistent", "non-persistent")


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    world.broker("a")
    yield world
    await world.stop()


async def end(world: BrokerWorld, epoch: int = 1, topic: str = TOPIC, **how: Any) -> None:
    given = {"is_forced": False, **how}
    key = (topic_id_of(topic), "")
    await world.broker("a").topics.end_assigned(parse_topic(topic), key, epoch, **given)


async def test_a_unit_without_clients_and_subscriptions_ends(world: BrokerWorld) -> None:
    world.assign(TOPIC, "a")

    await end(world)

    assert len(world.broker("a").topics) == 0
    assert (await world.broker("a").client().producer()).error == pulsar.ServiceNotReady


@pytest.mark.parametrize("is_check_only", [True, False])
@pytest.mark.parametrize(
    ("client", "use"),
    [
        ("producer", "1 producers"),
        ("consumer", "1 consumers, 1 subscriptions"),
        ("subscription", "1 subscriptions"),
    ],
)
async def test_a_unit_in_use_is_refused_and_serves_on(
    world: BrokerWorld, client: str, use: str, is_check_only: bool
) -> None:
    world.assign(TOPIC, "a")
    connected = world.broker("a").client()
    if client == "producer":
        await connected.producer()
    else:
        await connected.subscribe()
        if client == "subscription":
            connected.transport.close()
            connected.connection.connection_lost(None)
            await settle()

    with pytest.raises(Refused, match=use) as refused:
        await end(world, is_check_only=is_check_only)

    assert refused.value.code == "IN_USE"
    assert (await world.broker("a").client().producer()).producer_ready


async def test_a_check_ends_nothing(world: BrokerWorld) -> None:
    world.assign(TOPIC, "a")

    await end(world, is_check_only=True)

    assert (await world.broker("a").client().producer()).producer_ready


@pytest.mark.parametrize("topic", [TOPIC, VOLATILE])
async def test_a_forced_end_closes_all_clients_and_acknowledges_nothing_behind_it(
    world: BrokerWorld, topic: str
) -> None:
    world.assign(topic, "a")
    client = world.broker("a").client()
    await client.producer(topic)
    await client.subscribe(topic=topic)
    client.send(0)
    await client.until_got(SEND_RECEIPT)

    await end(world, topic=topic, is_forced=True)
    receipts = len(client.got(SEND_RECEIPT))
    client.send(1)
    await settle()

    assert len(client.got(CLOSE_PRODUCER)) == len(client.got(CLOSE_CONSUMER)) == 1
    assert len(client.got(SEND_RECEIPT)) == receipts == 1
    assert (await client.producer(topic, producer_id=5)).error == pulsar.ServiceNotReady
    assert world.directory.raised == []


async def test_a_producer_that_connects_during_the_check_is_counted_or_refused(
    world: BrokerWorld,
) -> None:
    """Whichever comes first: no producer is let in and then closed by an end that is not forced."""
    world.assign(TOPIC, "a")
    await world.broker("a").client().producer(producer_id=9)
    world.broker("a").topics.get(TOPIC).producers.end_all("")  # type: ignore[union-attr]
    client = world.broker("a").client()
    connecting = asyncio.ensure_future(client.producer())

    outcome = (await asyncio.gather(end(world), return_exceptions=True))[0]
    answer = await connecting

    let_in = isinstance(answer, pulsar.CommandProducerSuccess)
    assert let_in is isinstance(outcome, Refused)
    assert not (let_in and client.got(CLOSE_PRODUCER))


async def test_an_end_of_another_epoch_is_refused(world: BrokerWorld) -> None:
    world.assign(TOPIC, "a")

    with pytest.raises(Refusal) as refused:
        await end(world, epoch=2, is_forced=True)

    assert refused.value.code == ServerError.SERVICE_NOT_READY
    assert (await world.broker("a").client().producer()).producer_ready


async def test_an_end_may_be_repeated(world: BrokerWorld) -> None:
    world.assign(TOPIC, "a")
    await world.broker("a").client().producer()

    await asyncio.gather(*(end(world, is_forced=True) for _ in range(3)))
    await end(world)

    assert world.broker("a").store.opened == 1


async def test_an_end_goes_on_though_its_caller_gave_up(world: BrokerWorld) -> None:
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    ending = asyncio.ensure_future(end(world, is_forced=True))
    await asyncio.sleep(0)

    ending.cancel()

    await until(lambda: len(world.broker("a").topics) == 0)
    assert len(client.got(CLOSE_PRODUCER)) == 1


async def test_a_topic_that_was_not_deleted_after_all_is_served_in_a_later_epoch(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.assign(TOPIC, "a")
    await end(world)
    monkeypatch.setattr(open_topics, "ENDED_UNIT_PAUSE_MS", 0)

    first = await world.broker("a").client().producer()
    await settle()

    assert first.error == pulsar.ServiceNotReady
    assert world.directory.raised == [(TOPIC, 1, 1)]
    assert (await world.broker("a").client().producer()).producer_ready
