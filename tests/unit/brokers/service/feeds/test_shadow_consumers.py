"""A consumer of a shadow while source and shadow move, brokers die and lists change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.adapters.ledger.shadow_ledger import FedLedgers
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.feed_world import SOURCE, FeedWorld, list_shadows
from tests.support.brokers.shadow_world import EARLIEST, SHADOW, MemorySources
from tests.support.brokers.world import BrokerWorld, FakeClient

BROKERS = ("a", "b", "c")
STEPS = 50
SEEDS = range(20)
SETTLED_S = 60
WAKES_S = 4
"""Clients that are silent for longer than a keep-alive interval are dropped."""

KINDS = pulsar.CommandSubscribe.SubType.values()

Place = tuple[int, int]


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


class Trouble:
    """One source, one shadow of it with a consumer, and what happens to them."""

    def __init__(self, world: BrokerWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.feeds = FeedWorld(world)
        sources = MemorySources(world.disk)
        world.shadows_of = lambda broker_id: FedLedgers(sources, self.feeds.feeds(broker_id))
        for broker_id in BROKERS:
            world.broker(broker_id).store.segment_bytes = 300
        self.producer: FakeClient | None = None
        self.consumer: FakeClient | None = None
        self.is_listed = True
        self.sent = 0
        self.published: list[Place] = []
        self.seen: list[Place] = []
        self.acknowledged: set[Place] = set()
        self.acking: dict[int, Place] = {}
        self._looked_at = 0
        world.assign(SOURCE, "a")
        self.assign_shadow("b")

    def owner(self, name: str) -> str:
        return self.world.directory.owners[name][0]

    def other(self, name: str) -> str:
        return self.random.choice([each for each in BROKERS if each != self.owner(name)])

    def assign_shadow(self, broker_id: str) -> None:
        properties = {SHADOW_SOURCE_PROPERTY: SOURCE}
        self.world.assign(SHADOW, broker_id, properties=properties)
        self.lose_consumer()

    # What happens ----------------------------------------------------------------------------

    async def publish(self) -> None:
        producer = await self.source()
        count = self.random.randint(1, 6)
        for _ in range(count):
            producer.send(self.sent, b"x" * self.random.choice((10, 10, 200, 70_000)))
            self.sent += 1
        before = len(self.receipts)
        self.receipts = await producer.receipts(before + count)
        self.published += [(ledger, entry) for _, ledger, entry in self.receipts[before:]]

    async def source(self) -> FakeClient:
        topic = self.world.broker(self.owner(SOURCE)).topics.get(SOURCE)
        if topic is None or not topic.is_usable or self.producer is None:
            self.producer = self.world.broker(self.owner(SOURCE)).client()
            self.receipts: list[tuple[int, int, int]] = []
            await self.producer.producer(SOURCE, producer_name=f"p{self.sent}")
            topic = self.world.broker(self.owner(SOURCE)).topics.get(SOURCE)
            assert topic is not None
        list_shadows(topic, *([SHADOW] if self.is_listed else []))
        return self.producer

    async def move_source(self) -> None:
        self.world.move(SOURCE, self.other(SOURCE))
        self.producer = None

    async def kill_source(self) -> None:
        gone = self.owner(SOURCE)
        self.feeds.die(gone)
        await asyncio.sleep(self.random.choice((0, 0.05, 1)))
        self.world.assign(SOURCE, self.other(SOURCE))
        self.feeds.dead.discard(gone)
        self.producer = None

    async def move_shadow(self) -> None:
        before, epoch = self.world.directory.owners[SHADOW]
        to = self.other(SHADOW)
        self.look()
        self.assign_shadow(to)
        self.world.release(SHADOW, before, epoch, to)

    async def take_shadow(self) -> None:
        """Assign the shadow to another broker without a release at its former owner."""
        self.look()
        self.assign_shadow(self.other(SHADOW))

    async def relist(self) -> None:
        self.is_listed = not self.is_listed
        await self.source()

    async def consume(self) -> None:
        """Be connected; acknowledge some of what came."""
        if self.consumer is None or self.consumer.got(pulsar.BaseCommand.CLOSE_CONSUMER):
            self.lose_consumer()
            self.consumer = self.world.broker(self.owner(SHADOW)).client()
            answer = await self._answer(
                pulsar.BaseCommand.SUBSCRIBE,
                topic=SHADOW,
                subscription="sub",
                subType=self.kind,
                consumer_id=0,
                **EARLIEST,
            )
            if not isinstance(answer, pulsar.CommandSuccess):
                self.lose_consumer()
                return
            self._flow(10_000)
        self.look()
        for place in self.seen[-self.random.randint(1, 10) :]:
            if self.random.random() < 0.7 and place in self.held:
                self.acking[self.consumer.ack(self.held.pop(place))] = place

    # What is seen ----------------------------------------------------------------------------

    def lose_consumer(self) -> None:
        if self.consumer is not None:
            self.consumer.leave()
        self.consumer = None
        self.held: dict[Place, Any] = {}
        self.acking.clear()
        self._looked_at = 0

    def look(self) -> None:
        """Take what came. What was acknowledged durably never comes again."""
        if self.consumer is None:
            return
        commands = self.consumer.look()
        for command in commands[self._looked_at :]:
            if command.type == pulsar.BaseCommand.MESSAGE:
                message = command.message
                place = (message.message_id.ledgerId, message.message_id.entryId)
                assert place not in self.acknowledged, f"{place} comes again"
                self.held[place] = message
                if place not in self.seen:
                    self.seen.append(place)
            elif command.type == pulsar.BaseCommand.ACK_RESPONSE:
                answer = command.ackResponse
                place = self.acking.pop(answer.request_id)
                if not answer.message:
                    self.acknowledged.add(place)
        self._looked_at = len(commands)

    async def step(self) -> None:
        steps: list[tuple[Any, int]] = [
            (self.publish, 10),
            (self.consume, 12),
            (self.move_source, 1),
            (self.kill_source, 1),
            (self.move_shadow, 1),
            (self.take_shadow, 1),
            (self.relist, 1),
        ]
        kinds, weights = zip(*steps, strict=True)
        (step,) = self.random.choices(kinds, weights)
        await step()
        if self.random.random() < 0.3:
            await asyncio.sleep(self.random.choice((0, 0.001, 0.1, 2)))

    async def end(self) -> None:
        """End all trouble, and have everything read and acknowledged."""
        self.is_listed = True
        await self.publish()
        for _ in range(SETTLED_S):
            await self.consume()
            await asyncio.sleep(1)
            self.look()
            for place, message in list(self.held.items()):
                del self.held[place]
                assert self.consumer is not None
                self.acking[self.consumer.ack(message)] = place
            if len(self.seen) >= len(self.published) and not self.acking:
                break

    async def wakes(self) -> None:
        """What is new arrives though the consumer does nothing, and so what was missed."""
        for misses in (False, True):
            self.is_listed = not misses
            await self.source()
            await asyncio.sleep(WAKES_S)
            await self.publish()
            self.is_listed = True
            await self.source()
            await asyncio.sleep(WAKES_S)
            self.look()
            assert self.seen == self.published, "missed" if misses else "new"

    async def _answer(self, kind: int, **fields: Any) -> Any:
        assert self.consumer is not None
        request_id = self.consumer.start(kind, **fields)
        for _ in range(SETTLED_S):
            if self.consumer._answers(request_id):
                return self.consumer._answers(request_id)[-1]
            await asyncio.sleep(0.1)
        raise AssertionError("no answer")

    def _flow(self, permits: int) -> None:
        assert self.consumer is not None
        kind = pulsar.BaseCommand.FLOW
        self.consumer.send_raw(self.consumer.command(kind, consumer_id=0, messagePermits=permits))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_consumer_of_a_shadow_gets_everything_in_order_whatever_happens(
    world: BrokerWorld, seed: int
) -> None:
    """At least once, and not again behind an acknowledgement that was answered."""
    trouble = Trouble(world, seed)
    await trouble.publish()
    for _ in range(STEPS):
        await trouble.step()

    await trouble.end()
    await trouble.wakes()

    assert len(trouble.published) > 10
    assert trouble.seen == trouble.published
    await trouble.feeds.stop()
