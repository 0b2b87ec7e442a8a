"""Numbers of clients: as many as may be, one beyond, and room again when one leaves."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest

from brokers.adapters.pulsar.connection import BrokerConnection
from brokers.domain.refusal import Refusal
from brokers.ports.client_info import ClientInfo
from brokers.service.client_limits.broker_clients import BrokerClients, Use
from brokers.service.client_limits.subscribe_counts import SubscribeCounts
from nextgen.kernel.governance.access import Principal
from nextgen.kernel.governance.client_limits import (
    NO_TENANT_LIMITS,
    BrokerLimits,
    TenantLimits,
    TopicLimits,
)
from nextgen.kernel.limits.inbound import SUBSCRIBERS_COUNTED_MAX
from nextgen.pulsar.greeting import NO_REQUEST_ID
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle
from tests.support.pulsar.transport import MemoryTransport

SHARED = pulsar.CommandSubscribe.Shared
OTHER = "persistent://public/default/invoices"
FOREIGN = "persistent://acme/default/orders"


def use(world: BrokerWorld, **limits: object) -> None:
    given = TopicLimits(**limits)  # type: ignore[arg-type]
    world.broker().topics.use_limits(given)
    for topic in world.broker().topics:
        topic.use_policy(replace(topic.policy, limits=given))


def client_at(world: BrokerWorld, port: int, host: str = "127.0.0.1") -> FakeClient:
    return world.broker().client(peer=(host, port))


async def test_a_topic_has_so_many_producers(world):
    use(world, producers=2)
    clients = [client_at(world, port) for port in range(3)]

    answers = [await client.producer() for client in clients]

    assert answers[1].producer_ready
    assert answers[2].error == pulsar.ProducerBusy
    assert "max producers limit: 2" in answers[2].message
    assert world.broker().front.clients.refused[Use.PRODUCER] == 1
    clients[0].leave()
    await settle()
    assert (await clients[2].producer()).producer_ready


async def test_a_lower_number_ends_nobody(world):
    clients = [client_at(world, port) for port in range(3)]
    for client in clients:
        await client.producer()

    use(world, producers=1)
    await settle()

    assert len(world.broker().topics.get(TOPIC).producers) == 3
    assert (await client_at(world, 9).producer()).error == pulsar.ProducerBusy


async def test_a_topic_has_so_many_consumers(world):
    use(world, consumers=2)
    clients = [client_at(world, port) for port in range(3)]

    answers = [
        await client.subscribe(f"s{number}", kind=SHARED) for number, client in enumerate(clients)
    ]

    assert isinstance(answers[1], pulsar.CommandSuccess)
    assert answers[2].error == pulsar.ConsumerBusy
    assert "s2" not in world.broker().topics.get(TOPIC).subscriptions, "it is not left behind"
    clients[0].leave()
    await settle()
    assert isinstance(await clients[2].subscribe("s2"), pulsar.CommandSuccess)


async def test_consumers_that_come_at_once_are_counted_too(world):
    use(world, consumers=2)
    client = client_at(world, 1)

    requests = [
        client.start(
            pulsar.BaseCommand.SUBSCRIBE,
            topic=TOPIC,
            subscription=f"s{number}",
            subType=SHARED,
            consumer_id=number,
        )
        for number in range(5)
    ]
    answers = [await client.answer(request) for request in requests]

    refused = [answer for answer in answers if not isinstance(answer, pulsar.CommandSuccess)]
    assert [answer.error for answer in refused] == 3 * [pulsar.ConsumerBusy]
    assert world.broker().topics.get(TOPIC).consumers == 2


async def test_a_subscription_has_so_many_consumers(world):
    use(world, subscription_consumers=2)
    clients = [client_at(world, port) for port in range(4)]

    answers = [await client.subscribe("sub", kind=SHARED) for client in clients[:3]]

    assert isinstance(answers[1], pulsar.CommandSuccess)
    assert answers[2].error == pulsar.ConsumerBusy
    assert isinstance(await clients[3].subscribe("other", kind=SHARED), pulsar.CommandSuccess)


async def test_a_topic_has_so_many_subscriptions(world):
    use(world, subscriptions=2)
    client = client_at(world, 1)

    answers = [await client.subscribe(f"s{number}", consumer_id=number) for number in range(3)]

    assert isinstance(answers[1], pulsar.CommandSuccess)
    assert answers[2].error == pulsar.NotAllowedError
    assert "maximum number of subscriptions" in answers[2].message
    again = await client_at(world, 2).subscribe("s0", kind=pulsar.CommandSubscribe.Exclusive)
    assert again.error == pulsar.ConsumerBusy, "a subscription that is there is no new one"


async def test_a_consumer_subscribes_so_often_in_a_period(world):
    use(world, subscribes=2, subscribe_period_seconds=10)

    async def subscribe(name: str = "c") -> object:
        client = client_at(world, 1)
        answer = await client.subscribe(consumer_name=name, permits=0)
        client.leave()
        await settle()
        return answer

    answers = [await subscribe() for _ in range(3)]
    assert isinstance(answers[1], pulsar.CommandSuccess)
    assert answers[2].error == pulsar.NotAllowedError
    assert "subscribe rate limit" in answers[2].message
    assert isinstance(await subscribe("another"), pulsar.CommandSuccess)
    await asyncio.sleep(10)
    assert isinstance(await subscribe(), pulsar.CommandSuccess)


def test_so_many_subscribers_are_counted():
    """SUBSCRIBERS_COUNTED_MAX: beyond it the one that came first is forgotten."""
    counts = SubscribeCounts(lambda: 100.0)
    for number in range(SUBSCRIBERS_COUNTED_MAX):
        assert counts.admit(number, 1, 60)
    assert not counts.admit(0, 1, 60)

    assert counts.admit("one more", 1, 60)

    assert counts.admit(0, 1, 60)
    assert len(counts._counts) == SUBSCRIBERS_COUNTED_MAX


# Tenants ------------------------------------------------------------------------------------------


async def test_a_tenant_has_so_many_producers_over_all_its_topics(world):
    use(world, tenant=TenantLimits(producers=2))
    client = client_at(world, 1)

    assert (await client.producer(TOPIC, producer_id=0)).producer_ready
    assert (await client.producer(OTHER, producer_id=1)).producer_ready
    refused = await client.producer(OTHER, producer_id=2)

    assert refused.error == pulsar.ProducerBusy
    assert "tenant public" in refused.message
    assert (await client.producer(FOREIGN, producer_id=3)).producer_ready
    await client.request(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=0)
    assert (await client.producer(OTHER, producer_id=2)).producer_ready


async def test_a_tenant_has_so_many_consumers_over_all_its_topics(world):
    use(world, tenant=TenantLimits(consumers=1))
    client = client_at(world, 1)

    assert isinstance(await client.subscribe(), pulsar.CommandSuccess)
    refused = await client.subscribe(topic=OTHER, consumer_id=1)

    assert refused.error == pulsar.ConsumerBusy
    await client.request(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=0)
    assert isinstance(await client.subscribe(topic=OTHER, consumer_id=1), pulsar.CommandSuccess)


async def test_a_tenant_is_used_by_so_many_connections(world):
    use(world, tenant=TenantLimits(connections=2))
    clients = [client_at(world, port) for port in range(3)]

    assert (await clients[0].producer(TOPIC)).producer_ready
    assert (await clients[0].producer(OTHER, producer_id=1)).producer_ready
    assert isinstance(await clients[1].subscribe(), pulsar.CommandSuccess)
    refused = await clients[2].producer()

    assert refused.error == pulsar.NotAllowedError
    assert "maximum number of connections" in refused.message
    clients[0].leave()
    await settle()
    assert (await clients[2].producer()).producer_ready


async def test_what_a_refused_consumer_would_take_is_free(world):
    use(world, tenant=TenantLimits(consumers=2))
    await client_at(world, 1).subscribe()
    for port in range(2, 8):
        busy = await client_at(world, port).subscribe()
        assert busy.error == pulsar.ConsumerBusy, "it is exclusive"
        assert "exclusive" in busy.message

    assert isinstance(await client_at(world, 9).subscribe("other"), pulsar.CommandSuccess)


def test_a_tenant_that_nobody_uses_is_forgotten():
    clients = BrokerClients()
    client = ClientInfo("10.0.0.1:1", "")
    claim = clients.claim(Use.PRODUCER, clients.tenant("acme"), NO_TENANT_LIMITS, client)
    gc.collect()
    assert clients.tenant("acme").producers == 1

    claim.release()
    gc.collect()

    assert len(clients._tenants) == 0


# Connections and roles ----------------------------------------------------------------------------


def refusal_of(client: FakeClient) -> pulsar.CommandError:
    answer = client.got(pulsar.BaseCommand.ERROR)[0]
    assert answer.request_id == NO_REQUEST_ID
    assert client.transport.is_closed
    return answer


async def test_a_broker_has_so_many_connections(world):
    world.broker_limits = BrokerLimits(connections=2)
    clients = [client_at(world, port, f"10.0.0.{port}") for port in range(3)]

    assert [len(each.got(pulsar.BaseCommand.CONNECTED)) for each in clients] == [1, 1, 0]
    assert refusal_of(clients[2]).error == pulsar.NotAllowedError
    assert "Reached the maximum number of connections" in refusal_of(clients[2]).message
    clients[0].leave()
    await settle()
    assert client_at(world, 9).got(pulsar.BaseCommand.CONNECTED)
    assert client_at(world, 10).got(pulsar.BaseCommand.ERROR), "the refused one left no room"


async def test_an_address_has_so_many_connections(world):
    world.broker_limits = BrokerLimits(address_connections=2)
    clients = [client_at(world, port, "10.0.0.1") for port in range(3)]

    assert refusal_of(clients[2]).error == pulsar.NotAllowedError
    assert "on address 10.0.0.1" in refusal_of(clients[2]).message
    assert client_at(world, 1, "10.0.0.2").got(pulsar.BaseCommand.CONNECTED)
    clients[0].leave()
    await settle()
    assert client_at(world, 9, "10.0.0.1").got(pulsar.BaseCommand.CONNECTED)


async def test_clients_without_a_role_count_by_their_address(world):
    world.broker_limits = BrokerLimits(role_connections=1, role_producers=2)
    client = client_at(world, 1, "10.0.0.1")

    refused = client_at(world, 2, "10.0.0.1")

    assert "address 10.0.0.1" in refusal_of(refused).message
    assert client_at(world, 2, "10.0.0.2").got(pulsar.BaseCommand.CONNECTED)
    for number in range(2):
        assert (await client.producer(producer_id=number)).producer_ready
    assert (await client.producer(producer_id=2)).error == pulsar.ProducerBusy
    client.leave()
    await settle()
    assert client_at(world, 2, "10.0.0.1").got(pulsar.BaseCommand.CONNECTED)


async def test_a_connection_of_a_role_that_has_too_many_is_refused(world):
    world.broker_limits = BrokerLimits(role_connections=1)
    broker = world.broker()

    def connected(host: str, role: str) -> MemoryTransport:
        connection = BrokerConnection(broker.keep_alive, broker.front.shared)
        transport = MemoryTransport(connection, peer=(host, 1))
        connect = pulsar.CommandConnect(client_version="test", protocol_version=20)
        connection.admit(connect, Principal(role))
        return transport

    first, second = connected("10.0.0.1", "app"), connected("10.0.0.2", "app")
    other = connected("10.0.0.1", "other")
    await settle()

    assert first.commands()[-1].type == pulsar.BaseCommand.CONNECTED
    assert other.commands()[-1].type == pulsar.BaseCommand.CONNECTED
    refused = second.commands()[-1].error
    assert (refused.request_id, refused.error) == (NO_REQUEST_ID, pulsar.NotAllowedError)
    assert "role app" in refused.message
    assert second.is_closed


async def test_a_role_counts_wherever_it_connects_from():
    clients = BrokerClients(lambda: BrokerLimits(role_connections=2, role_consumers=1))
    tenant = clients.tenant("acme")

    def at(port: int, role: str = "app") -> ClientInfo:
        return ClientInfo(f"10.0.0.{port}:1", "", role)

    first, _ = clients.admit(at(1)), clients.admit(at(2))
    with pytest.raises(Refusal, match="role app reached the maximum number of connections") as no:
        clients.admit(at(3))
    assert no.value.code == pulsar.NotAllowedError
    clients.admit(at(3, "other"))
    clients.admit(at(1, ""))
    first.release()
    first.release()
    clients.admit(at(3))
    with pytest.raises(Refusal):
        clients.admit(at(4))

    claim = clients.claim(Use.CONSUMER, tenant, NO_TENANT_LIMITS, at(1))
    with pytest.raises(Refusal, match="consumers at this broker: 1") as busy:
        clients.claim(Use.CONSUMER, tenant, NO_TENANT_LIMITS, at(2))
    assert busy.value.code == pulsar.ConsumerBusy
    clients.claim(Use.PRODUCER, tenant, NO_TENANT_LIMITS, at(2))
    claim.release()
    clients.claim(Use.CONSUMER, tenant, NO_TENANT_LIMITS, at(2))
    assert (tenant.producers, tenant.consumers, tenant.connections) == (1, 1, 1)


async def test_a_role_that_looks_like_an_address_is_none():
    clients = BrokerClients(lambda: BrokerLimits(role_connections=1))

    clients.admit(ClientInfo("10.0.0.1:1", "", ""))
    clients.admit(ClientInfo("10.0.0.2:1", "", "10.0.0.1"))
