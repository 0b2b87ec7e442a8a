"""Sources and their shadows under random trouble: nothing is lost, early or out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.service.topics.topic import Topic
from tests.support.brokers.feed_world import SOURCE, FeedWorld, ShadowEnd, list_shadows
from tests.support.brokers.world import BrokerWorld, FakeClient

BROKERS = ("a", "b", "c")
SHADOWS = tuple(f"{SOURCE}-shadow-{number}" for number in range(3))
STEPS = 60
SEEDS = range(40)


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


class Trouble:
    """One source, shadows of it at all brokers, and what happens to them."""

    def __init__(self, world: BrokerWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.feeds = FeedWorld(world)
        self.listed: set[str] = set(SHADOWS)
        self.shadows: dict[str, tuple[str, ShadowEnd]] = {}
        self.published = 0
        self.client: FakeClient | None = None
        for broker_id in BROKERS:
            world.broker(broker_id).store.segment_bytes = 300
        world.assign(SOURCE, "a")

    @property
    def owner(self) -> str:
        return self.world.directory.owners[SOURCE][0]

    async def topic(self) -> Topic:
        """Return the source at its owner, which is opened if need be."""
        topic = self.world.broker(self.owner).topics.get(SOURCE)
        if topic is None or not topic.is_usable or self.client is None:
            self.client = self.world.broker(self.owner).client()
            answer = await self.client.producer(SOURCE, producer_name=f"p{self.published}")
            assert answer.request_id, answer
            topic = self.world.broker(self.owner).topics.get(SOURCE)
            assert topic is not None
        if topic.policy.shadow_topics != tuple(sorted(self.listed)):
            list_shadows(topic, *sorted(self.listed))
        return topic

    async def publish(self) -> None:
        await self.topic()
        assert self.client is not None
        for _ in range(self.random.randint(1, 8)):
            size = self.random.choice((10, 10, 10, 200, 70_000))
            self.client.send(self.published, b"x" * size)
            self.published += 1
        if self.random.random() < 0.7:
            await asyncio.sleep(0.001)

    async def move(self) -> None:
        to = self.random.choice([each for each in BROKERS if each != self.owner])
        self.world.broker(to)
        self.world.move(SOURCE, to)
        self.client = None

    async def die(self) -> None:
        """The owner is gone, and has not let go; another one is found by the next lookup."""
        gone = self.owner
        self.feeds.die(gone)
        await asyncio.sleep(self.random.choice((0, 0.05, 1)))
        to = self.random.choice([each for each in BROKERS if each != gone])
        self.world.assign(SOURCE, to)
        self.feeds.dead.discard(gone)
        self.client = None

    async def relist(self) -> None:
        self.listed ^= {self.random.choice(SHADOWS)}
        await self.topic()

    async def trim(self) -> None:
        topic = await self.topic()
        extents = topic.ledger.extents
        if extents:
            extent = self.random.choice(extents)
            await topic.ledger.trim(type(topic.ledger.last)(extent.ledger_id, 2**62))
            topic.followers.changed()

    async def toggle(self) -> None:
        """A shadow is opened at a broker, or closed."""
        name = self.random.choice(SHADOWS)
        if name in self.shadows:
            _, end = self.shadows.pop(name)
            assert end.follow is not None
            end.follow.close()
        else:
            broker_id = self.random.choice(BROKERS)
            self.shadows[name] = broker_id, self.feeds.shadow(broker_id, SOURCE, name)

    async def end_sessions(self) -> None:
        feeds = self.feeds.feeds(self.random.choice(BROKERS))
        feeds.sessions_changed(lambda broker_id, _: broker_id == self.owner)

    async def step(self) -> None:
        steps: list[tuple[Any, int]] = [
            (self.publish, 10),
            (self.toggle, 4),
            (self.move, 2),
            (self.die, 1),
            (self.relist, 2),
            (self.trim, 1),
            (self.end_sessions, 1),
        ]
        kinds, weights = zip(*steps, strict=True)
        (step,) = self.random.choices(kinds, weights)
        await step()
        if self.random.random() < 0.3:
            await asyncio.sleep(self.random.choice((0, 0.001, 0.1, 2)))

    async def settle(self) -> Topic:
        """End all trouble, and return when every shadow could have found its source."""
        self.listed = set(SHADOWS)
        topic = await self.topic()
        await asyncio.sleep(30)
        return topic


@pytest.mark.parametrize("seed", SEEDS)
async def test_shadows_have_what_their_source_has_whatever_happened(
    world: BrokerWorld, seed: int
) -> None:
    """``ShadowEnd`` checks order, and that nothing goes back, at each call."""
    trouble = Trouble(world, seed)
    for _ in range(STEPS):
        await trouble.step()
    for name in SHADOWS:
        if name not in trouble.shadows:
            trouble.shadows[name] = "c", trouble.feeds.shadow("c", SOURCE, name)

    topic = await trouble.settle()

    assert trouble.published
    for _, shadow in trouble.shadows.values():
        assert shadow.is_fed, shadow.aways[-3:]
        assert list(shadow.extents.values()) == list(topic.ledger.extents)
    assert sorted({feed.shadow for feed in topic.followers.feeds}) == sorted(SHADOWS)
    await trouble.feeds.stop()
