"""Consumers of a namespace: topics come, go and fail while messages flow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from nextgen.client import st
from nextgen.client.st.consuming import namespace_consumer
from nextgen.client.st.domain.topic_names import NamesChange, TopicNames
from nextgen.client.st.errors import (
    AlreadyClosed,
    ConnectionFailed,
    InvalidSettings,
    NotSupported,
    ServerRefused,
    TimedOut,
)
from nextgen.client.st.watching import namespace_watch
from nextgen.kernel.limits.scalable import ST_NAMESPACE_TOPICS_MAX
from nextgen.kernel.routing.names import NamespaceName
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.fake_namespaces import Namespaces
from tests.unit.client.st.fake_server import Command, FakeConnection, FakeServer

NAMESPACE = "public/default"
A, B, C = (f"topic://{NAMESPACE}/{local}" for local in "abc")
EARLIEST: dict[str, Any] = {"initial_position": st.InitialPosition.EARLIEST}


@pytest.fixture
def namespaces(server: FakeServer) -> Namespaces:
    return Namespaces(server)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a thousandth of theirs."""

    class QuickBackoff(namespace_watch.Backoff):
        def next_ms(self) -> int:
            return max(1, super().next_ms() // 50)

    monkeypatch.setattr(namespace_watch, "Backoff", QuickBackoff)
    monkeypatch.setattr(namespace_consumer, "Backoff", QuickBackoff)


async def until(condition: Callable[[], object]) -> None:
    async with timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def send(client: st.PulsarClient, topic: str, *values: str) -> None:
    async with await client.create_producer(topic, schema=st.schemas.string) as producer:
        for value in values:
            await producer.send(value, key=value)


async def received(consumer: Any, count: int) -> list[st.Message[str]]:
    return [await consumer.receive(timeout_ms=10_000) for _ in range(count)]


def values_of(messages: list[st.Message[str]]) -> list[tuple[str, str]]:
    return sorted((each.topic, each.value) for each in messages)


@pytest.fixture
async def queue(
    client: st.PulsarClient, namespaces: Namespaces
) -> AsyncIterator[st.NamespaceQueueConsumer[str]]:
    namespaces.create(A, B)
    async with await client.namespace_queue_consumer(
        NAMESPACE, "s", schema=st.schemas.string, **EARLIEST
    ) as consumer:
        yield consumer


async def test_a_queue_has_the_messages_of_all_topics_and_acknowledges_each(
    client: st.PulsarClient, server: FakeServer, queue: st.NamespaceQueueConsumer[str]
):
    await send(client, A, "1", "2")
    await send(client, B, "3")
    messages = await received(queue, 3)
    assert values_of(messages) == [(A, "1"), (A, "2"), (B, "3")]
    assert queue.topics == (A, B)

    for each in messages:
        await queue.acknowledge(each)
    await until(lambda: acknowledged(server, "s") == 3)
    assert queue.receive_nowait() is None


def acknowledged(server: FakeServer, subscription: str) -> int:
    return sum(
        len(each.subscriptions[subscription].acknowledged)
        for each in server.segments.values()
        if subscription in each.subscriptions
    )


async def test_what_was_acknowledged_negatively_comes_again(
    client: st.PulsarClient, namespaces: Namespaces
):
    namespaces.create(A)
    async with await client.namespace_queue_consumer(
        NAMESPACE, "s", negative_ack_delay_ms=1, **EARLIEST
    ) as consumer:
        await send(client, A, "1")
        await consumer.negative_acknowledge(await consumer.receive(timeout_ms=10_000))
        assert (await consumer.receive(timeout_ms=10_000)).data == b"1"


async def test_topics_come_and_go(
    client: st.PulsarClient, namespaces: Namespaces, queue: st.NamespaceQueueConsumer[str]
):
    namespaces.create(C)
    await send(client, C, "new")
    (message,) = await received(queue, 1)
    assert (message.topic, message.value) == (C, "new")

    namespaces.change(removed=(C,))
    await until(lambda: queue.topics == (A, B))
    await send(client, C, "later")
    await queue.acknowledge(message)
    await queue.negative_acknowledge(message)
    with pytest.raises(TimedOut):
        await queue.receive(timeout_ms=50)

    namespaces.change(added=(C,))
    assert values_of(await received(queue, 2)) == [(C, "later"), (C, "new")]


async def test_what_waits_of_a_topic_that_left_is_dropped_and_nothing_acknowledged(
    client: st.PulsarClient,
    server: FakeServer,
    namespaces: Namespaces,
    queue: st.NamespaceQueueConsumer[str],
):
    await send(client, A, "1", "2")
    await until(lambda: len(queue.inbox) == 2)
    namespaces.change(removed=(A,))
    await until(lambda: queue.topics == (B,))
    await send(client, B, "3")

    assert values_of(await received(queue, 1)) == [(B, "3")]
    assert acknowledged(server, "s") == 0


async def test_a_topic_that_was_made_anew_is_consumed_anew(
    client: st.PulsarClient,
    server: FakeServer,
    namespaces: Namespaces,
    queue: st.NamespaceQueueConsumer[str],
):
    former = queue.consumer_of(A)
    server.create(A, created_at_ms=2)
    namespaces.change(added=(A,), removed=(A,))
    await until(lambda: queue.consumer_of(A) is not former and queue.topics == (A, B))
    await send(client, A, "anew")
    assert values_of(await received(queue, 1)) == [(A, "anew")]


async def test_a_topic_that_fails_is_tried_again_and_disturbs_no_other(
    client: st.PulsarClient, namespaces: Namespaces, queue: st.NamespaceQueueConsumer[str]
):
    namespaces.change(added=(C,))
    await until(lambda: C in queue.failing)
    await send(client, A, "1")
    assert values_of(await received(queue, 1)) == [(A, "1")]

    namespaces.create(C)
    await send(client, C, "2")
    assert values_of(await received(queue, 1)) == [(C, "2")]
    assert queue.failing == {}


async def test_the_watch_goes_on_with_the_hash_of_its_list_at_another_connection(
    client: st.PulsarClient, namespaces: Namespaces, queue: st.NamespaceQueueConsumer[str]
):
    known = topics_hash([A, B])
    namespaces.drop_connections()
    await until(lambda: len(namespaces.requests) == 2)
    assert namespaces.requests[1].current_hash == known
    await until(lambda: queue.topics == (A, B))

    namespaces.drop_connections()
    namespaces.server.create(C)
    namespaces.names = {A, C}
    await until(lambda: queue.topics == (A, C))
    await send(client, C, "1")
    assert values_of(await received(queue, 1)) == [(C, "1")]


async def test_a_watch_that_is_refused_later_is_opened_again(
    namespaces: Namespaces, queue: st.NamespaceQueueConsumer[str]
):
    (watch_id,) = namespaces.watches
    namespaces.send(watch_id, error=pulsar.TooManyRequests, message="later")
    await until(lambda: len(namespaces.requests) == 2 and namespaces.closed == 1)
    namespaces.create(C)
    await until(lambda: queue.topics == (A, B, C))


async def test_filters_go_to_the_server(client: st.PulsarClient, namespaces: Namespaces):
    filters = {"b": "2", "a": "1"}
    async with await client.namespace_queue_consumer(NAMESPACE, "s", property_filters=filters):
        (request,) = namespaces.requests
        found = {each.key: each.value for each in request.property_filters}
        assert (request.namespace, found) == (NAMESPACE, filters)
        assert not request.HasField("current_hash")
    await until(lambda: namespaces.closed == 1)


async def test_a_stream_acknowledges_in_all_topics_what_was_enqueued_before_a_message(
    client: st.PulsarClient, server: FakeServer, namespaces: Namespaces
):
    namespaces.create(A, B)
    async with await client.namespace_stream_consumer(
        NAMESPACE, "s", schema=st.schemas.string, consumer_name="me", **EARLIEST
    ) as consumer:
        await send(client, A, "1")
        (first,) = await received(consumer, 1)
        await send(client, B, "2")
        (second,) = await received(consumer, 1)
        await send(client, A, "3")
        (third,) = await received(consumer, 1)
        await consumer.acknowledge_cumulative(second)
        await until(lambda: acknowledged(server, "s") == 2)
        assert {first.number < second.number < third.number} == {True}

        await consumer.acknowledge_cumulative(third)
        await until(lambda: acknowledged(server, "s") == 3)
    assert all("me" not in each.members for each in server.topics.values())


# Failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pulsar.NotAllowedError, ServerRefused),
        (pulsar.AuthorizationError, ServerRefused),
        (pulsar.ServiceNotReady, ConnectionFailed),
    ],
)
async def test_a_watch_that_is_refused_at_first_fails_at_once(
    client: st.PulsarClient, namespaces: Namespaces, code: int, error: type[Exception]
):
    namespaces.refusal = code
    with pytest.raises(error):
        await client.namespace_queue_consumer(NAMESPACE, "s")


async def test_a_server_that_never_answers_costs_the_operation_timeout(
    server: FakeServer, namespaces: Namespaces
):
    namespaces.is_silent = True
    async with st.PulsarClient(server.url, operation_timeout_ms=100) as client:
        with pytest.raises(TimedOut):
            await client.namespace_queue_consumer(NAMESPACE, "s")
    assert namespaces.closed == 1


async def test_a_change_before_the_list_is_an_error(
    client: st.PulsarClient, namespaces: Namespaces
):
    namespaces.is_silent = True
    opening = asyncio.ensure_future(client.namespace_queue_consumer(NAMESPACE, "s"))
    await until(lambda: namespaces.watches)
    namespaces.change(added=(A,))
    with pytest.raises(ConnectionFailed, match="a change before the list"):
        await opening


async def test_a_server_without_scalable_topics_is_refused(server: FakeServer):
    server.features = pulsar.FeatureFlags()
    async with st.PulsarClient(server.url) as client:
        with pytest.raises(NotSupported):
            await client.namespace_queue_consumer(NAMESPACE, "s")


async def test_a_topic_that_refuses_the_consumer_at_first_fails_it(
    client: st.PulsarClient, server: FakeServer, namespaces: Namespaces
):
    namespaces.create(A, B)
    answer = namespaces.answer

    def refuse(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        subscribe = command.subscribe
        if command.type == Command.SUBSCRIBE and subscribe.topic.startswith(f"segment://{B[8:]}"):
            connection.refuse(subscribe.request_id, pulsar.IncompatibleSchema)
            return True
        return answer(connection, command)

    server.answers = refuse
    with pytest.raises(ServerRefused, match="IncompatibleSchema"):
        await client.namespace_queue_consumer(NAMESPACE, "s")
    await until(lambda: namespaces.closed == 1)


async def test_a_topic_that_is_listed_and_absent_is_no_failure(
    client: st.PulsarClient, namespaces: Namespaces
):
    namespaces.create(A)
    namespaces.names.add(C)
    async with await client.namespace_queue_consumer(NAMESPACE, "s", **EARLIEST) as consumer:
        assert consumer.topics == (A,)
        assert set(consumer.failing) == {C}
        assert C not in namespaces.server.topics


async def test_a_closed_consumer_ends_its_receivers_and_closes_its_watch(
    namespaces: Namespaces, queue: st.NamespaceQueueConsumer[str]
):
    waiting = asyncio.ensure_future(queue.receive())
    await asyncio.sleep(0)
    await queue.close()
    await queue.close()
    with pytest.raises(AlreadyClosed):
        await waiting
    assert [message async for message in queue] == []
    await until(lambda: namespaces.closed == 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"namespace": "one"},
        {"namespace": "a/b/c"},
        {"namespace": None},
        {"property_filters": {"a": 1}},
        {"property_filters": {"a": "x" * 20_000}},
        {"subscription": ""},
        {"create_if_missing": True},
    ],
)
async def test_bad_settings_are_refused(client: st.PulsarClient, settings: dict[str, Any]):
    given = {"namespace": NAMESPACE, "subscription": "s"} | settings
    for make in (client.namespace_queue_consumer, client.namespace_stream_consumer):
        with pytest.raises(InvalidSettings):
            await make(**given)


async def test_st_namespace_topics_max_are_consumed_and_one_more_is_an_error(
    client: st.PulsarClient, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
):
    assert namespace_consumer.ST_NAMESPACE_TOPICS_MAX == ST_NAMESPACE_TOPICS_MAX
    monkeypatch.setattr(namespace_consumer, "ST_NAMESPACE_TOPICS_MAX", 2)
    namespaces.create(A, B)
    async with await client.namespace_queue_consumer(NAMESPACE, "s", **EARLIEST) as consumer:
        assert consumer.topics == (A, B)
        namespaces.create(C)
        with pytest.raises(NotSupported, match="more than 2 topics"):
            await consumer.receive(timeout_ms=10_000)
    with pytest.raises(NotSupported, match="more than 2 topics"):
        await client.namespace_queue_consumer(NAMESPACE, "s", **EARLIEST)


async def test_st_topics_opening_max_are_opened_at_a_time_and_one_more_waits(
    client: st.PulsarClient, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(namespace_consumer, "ST_TOPICS_OPENING_MAX", 2)
    namespaces.create(A, B, C)
    answer, gate = namespaces.answer, asyncio.Event()
    asked: list[str] = []

    def hold(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.SCALABLE_TOPIC_LOOKUP and not gate.is_set():
            asked.append(command.scalableTopicLookup.topic)
            return True
        return answer(connection, command)

    namespaces.server.answers = hold
    opening = asyncio.ensure_future(client.namespace_queue_consumer(NAMESPACE, "s"))
    await until(lambda: len(asked) == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(asked) == 2
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)


def test_names_that_are_no_topics_of_the_namespace_count_for_the_hash_alone():
    names = TopicNames(NamespaceName("public", "default"))
    strange = ["persistent://public/default/x", "topic://other/default/x", "", "topic://a", A]
    assert names.replace(strange) == NamesChange((), (A,))
    assert names.hash == topics_hash(strange)
    assert names.apply([A, "topic://a"], [A, B]) == NamesChange((A,), (A, B))
    assert names.replace([B]) == NamesChange((A,), ())
    assert len(names) == 1
