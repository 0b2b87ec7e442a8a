"""How often a source's broker writes to a stream, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from brokers.adapters.broker_service.source_streams import follow_sources
from brokers.adapters.cluster.source_wire import request_to_proto
from brokers.ports.source_stream import FeedCredit, FollowSource
from brokers.service.feeds.source_sessions import LocalSourceStream, SourceSessions
from nextgen.kernel.limits.shadow import FEED_PAUSE_MS, FEED_REQUESTS_PER_MESSAGE_MAX
from protos.nextgen.v1 import broker_service_pb2 as wire
from tests.support.brokers.feed_world import SHADOW, SOURCE, publish, source_at
from tests.support.brokers.world import BrokerWorld, settle


class Written:
    """The context of a call: what is written, and when."""

    def __init__(self) -> None:
        self.at_ms: list[float] = []
        self.messages: list[wire.SourceUpdates] = []

    async def write(self, message: wire.SourceUpdates) -> None:
        self.at_ms.append(asyncio.get_running_loop().time() * 1_000)
        self.messages.append(message)


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


async def test_what_comes_within_feed_pause_ms_is_sent_together_and_the_first_at_once(
    world: BrokerWorld,
) -> None:
    _, client = await source_at(world, "a", SHADOW)
    is_over = asyncio.Event()

    async def requests() -> AsyncIterator[wire.SourceRequests]:
        begin = [FeedCredit(10_000), FollowSource(1, SOURCE, SHADOW)]
        yield wire.SourceRequests(broker_id="b", requests=map(request_to_proto, begin))
        await is_over.wait()

    written = Written()
    sessions = SourceSessions(world.broker("a").topics)
    serving = asyncio.create_task(follow_sources(sessions, requests(), written))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    assert len(written.messages) == 1

    now_ms = asyncio.get_running_loop().time() * 1_000
    for number in range(5):
        await publish(client, number, number + 1)
        await settle()
    await asyncio.sleep(1)
    is_over.set()
    await serving

    after = [round(at_ms - now_ms) for at_ms in written.at_ms[1:]]
    counts = [len(message.updates[0].changed.entries) for message in written.messages[1:]]
    assert (after, counts) == ([0, FEED_PAUSE_MS], [1, 4])


async def test_a_broker_with_many_shadows_of_its_own_sources_does_other_work_between(
    world: BrokerWorld,
) -> None:
    sessions = SourceSessions(world.broker("a").topics)
    stream = LocalSourceStream(sessions, "a")
    sources = 2 * FEED_REQUESTS_PER_MESSAGE_MAX
    for number in range(sources):
        stream.send(FollowSource(number + 1, f"{SOURCE}-{number}", SHADOW))
    taken: list[int] = []
    serving = asyncio.create_task(stream.run(lambda _update: taken.append(turns)))
    turns = 0

    while len(taken) < sources:
        await asyncio.sleep(0)
        turns += 1

    assert len(set(taken)) >= sources / 100
    serving.cancel()
