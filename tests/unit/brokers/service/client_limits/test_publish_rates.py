"""A topic is published to within its rate: connections are not read, and nothing is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nextgen.kernel.governance.client_limits import Rate, TenantLimits, TopicLimits
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle

OTHER = "persistent://public/default/invoices"
FOREIGN = "persistent://acme/default/orders"
READ_MESSAGES = 50
"""Messages that arrive in one read."""


class Flood:
    """A client that sends whenever it is read from."""

    def __init__(self, client: FakeClient, producer_id: int = 0, messages: int = 1) -> None:
        self.client = client
        self.sent = 0
        self.is_over = False
        self._producer_id = producer_id
        self._messages = messages

    async def run(self) -> None:
        while not self.is_over:
            if not self.client.transport.is_reading_paused:
                self._read()
            await asyncio.sleep(0.001)

    def _read(self) -> None:
        frames = []
        for _ in range(READ_MESSAGES):
            command = self.client.command(
                pulsar.BaseCommand.SEND, producer_id=self._producer_id, sequence_id=self.sent
            )
            frames.append(encode_frame(command, payload_of(self.sent, self._messages)))
            self.sent += self._messages
        self.client.transport.receive(b"".join(frames))


def payload_of(sequence_id: int, messages: int) -> bytes:
    metadata = pulsar.MessageMetadata(
        producer_name=f"p{sequence_id}", sequence_id=sequence_id, publish_time=1
    )
    if messages > 1:
        metadata.num_messages_in_batch = messages
    return message_payload(metadata, b"x" * 100)


async def flooded(world: BrokerWorld, seconds: float, *floods: Flood) -> None:
    tasks = [asyncio.ensure_future(flood.run()) for flood in floods]
    await asyncio.sleep(seconds)
    for flood in floods:
        flood.is_over = True
    await asyncio.gather(*tasks)
    await settle()


async def producer(world: BrokerWorld, topic: str = TOPIC, *, port: int = 1) -> FakeClient:
    client = world.broker().client(peer=("127.0.0.1", port))
    await client.producer(topic)
    return client


def stored(world: BrokerWorld, topic: str = TOPIC) -> int:
    found = world.broker().topics.get(topic)
    assert found is not None
    return found.traffic.messages_in


def use(world: BrokerWorld, **limits: object) -> None:
    """Set the service's limits, for topics that are opened later and for open ones."""
    given = TopicLimits(**limits)  # type: ignore[arg-type]
    world.broker().topics.use_limits(given)
    for topic in world.broker().topics:
        topic.use_policy(replace(topic.policy, limits=given))


@pytest.mark.parametrize("connections", [1, 20])
async def test_a_topic_is_published_to_at_its_rate(world: BrokerWorld, connections: int):
    use(world, publish=Rate(messages=200))
    floods = [Flood(await producer(world, port=number)) for number in range(connections)]

    await flooded(world, 20, *floods)

    assert stored(world) == pytest.approx(200 + 20 * 200, abs=4 * READ_MESSAGES)
    assert stored(world) == sum(flood.sent for flood in floods), "nothing is lost"
    for flood in floods:
        assert not flood.client.got(pulsar.BaseCommand.SEND_ERROR)
        assert not flood.client.got(pulsar.BaseCommand.ERROR)
    assert world.broker().front.clients.publish_waits > 0


async def test_messages_of_a_batch_count_one_by_one(world: BrokerWorld):
    use(world, publish=Rate(messages=1_000))
    flood = Flood(await producer(world), messages=10)

    await flooded(world, 10, flood)

    assert stored(world) == pytest.approx(11_000, abs=10 * READ_MESSAGES)


async def test_bytes_have_a_rate_too(world: BrokerWorld):
    use(world, publish=Rate(size_bytes=100_000))
    flood = Flood(await producer(world))

    await flooded(world, 20, flood)

    topic = world.broker().topics.get(TOPIC)
    assert topic.traffic.bytes_in == pytest.approx(2_100_000, rel=0.02)


async def test_a_topic_beside_it_is_not_held_but_one_on_its_connection_is(world: BrokerWorld):
    use(world, publish=Rate(messages=100))
    shared = await producer(world)
    await shared.producer(OTHER, producer_id=1)
    apart = await producer(world, OTHER, port=2)
    flood = Flood(shared)
    await flooded(world, 1, flood)

    assert shared.transport.is_reading_paused
    assert not apart.transport.is_reading_paused


async def test_slower_than_the_rate_nobody_is_held(world: BrokerWorld):
    use(world, publish=Rate(messages=100))
    client = await producer(world)

    for number in range(400):
        client.send(number)
        assert not client.transport.is_reading_paused
        await asyncio.sleep(0.0125)

    assert stored(world) == 400
    assert world.broker().front.clients.publish_waits == 0


async def test_a_rate_that_is_removed_releases_who_was_held(world: BrokerWorld):
    use(world, publish=Rate(messages=1))
    client = await producer(world)
    await flooded(world, 1, Flood(client))
    assert client.transport.is_reading_paused

    use(world)

    assert not client.transport.is_reading_paused
    assert world.broker().topics.get(TOPIC).limits.throttle is None


async def test_a_topic_that_moves_away_releases_who_was_held(world: BrokerWorld):
    use(world, publish=Rate(messages=1))
    client = await producer(world)
    await flooded(world, 1, Flood(client))

    world.move(TOPIC, "b")
    await settle()

    assert not client.transport.is_reading_paused
    assert client.got(pulsar.BaseCommand.CLOSE_PRODUCER)


async def test_a_topic_that_moves_away_waits_for_its_tenants_rate_no_more(world: BrokerWorld):
    use(world, tenant=TenantLimits(publish=Rate(messages=1)))
    client = await producer(world)
    await flooded(world, 0.1, Flood(client))
    assert client.transport.is_reading_paused

    world.move(TOPIC, "b")
    await settle()

    assert not client.transport.is_reading_paused


async def test_a_connection_that_breaks_is_forgotten(world: BrokerWorld):
    use(world, publish=Rate(messages=1))
    client = await producer(world)
    await flooded(world, 1, Flood(client))
    topic = world.broker().topics.get(TOPIC)
    limiter = topic.limits.throttle.limiters[0]
    assert limiter.waiting == 1

    client.leave()
    await settle()

    assert limiter.waiting == 0


async def test_a_held_client_counts_as_alive(world: BrokerWorld):
    use(world, publish=Rate(messages=1))
    client = await producer(world)
    await flooded(world, 1, Flood(client))

    assert await client.connection.is_alive()


async def test_topics_of_a_tenant_share_its_rate_and_others_do_not(world: BrokerWorld):
    """Service-level limits stand for the policy here: each topic has them of its tenant."""
    tenant = TenantLimits(publish=Rate(messages=1_000))
    for topic in (TOPIC, OTHER):
        client = await producer(world, topic)
        world.broker().topics.get(topic).limits.use(TopicLimits(tenant=tenant), ())
        client.leave()
    floods = [
        Flood(await producer(world, TOPIC, port=2)),
        Flood(await producer(world, OTHER, port=3)),
    ]
    foreign = await producer(world, FOREIGN, port=4)

    await flooded(world, 5, *floods)

    both = stored(world, TOPIC) + stored(world, OTHER)
    assert both == pytest.approx(6_000, abs=3 * READ_MESSAGES)
    assert stored(world, TOPIC) == pytest.approx(stored(world, OTHER), abs=3 * READ_MESSAGES)
    await flooded(world, 0.05, Flood(foreign))
    assert not foreign.transport.is_reading_paused


async def test_without_a_rate_a_send_meets_no_throttle(world: BrokerWorld):
    use(world, producers=5)
    await producer(world)

    assert world.broker().topics.get(TOPIC).limits.throttle is None
