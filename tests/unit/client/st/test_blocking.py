"""The blocking face of the client, from several threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from nextgen.client import st
from nextgen.client.st.errors import AlreadyClosed, InvalidSettings, TimedOut, TopicNotFound
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_namespaces import Namespaces
from tests.unit.client.st.fake_server import FakeServer

EARLIEST = st.InitialPosition.EARLIEST


def produce_and_consume(url: str) -> None:
    with st.BlockingPulsarClient(url) as client:
        producer = client.create_producer(TOPIC, schema=st.schemas.string)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: producer.send(f"{number}", key="k"), range(20)))
        stored = [producer.submit(f"{number}") for number in range(20, 25)]
        producer.flush()
        assert all(each.done() or each.result(1) for each in stored)

        queue = client.queue_consumer(
            TOPIC, "q", schema=st.schemas.string, initial_position=EARLIEST
        )
        found = []
        for message in queue:
            queue.acknowledge(message)
            found.append(message.value)
            if len(found) == 25:
                break
        assert sorted(map(int, found)) == list(range(25))
        with pytest.raises(TimedOut):
            queue.receive(timeout_ms=20)

        stream = client.stream_consumer(TOPIC, "s", initial_position=EARLIEST)
        message = [stream.receive(1_000) for _ in range(25)][-1]
        stream.acknowledge_cumulative(message)
        every = client.namespace_queue_consumer("public/default", "all", initial_position=EARLIEST)
        for _ in range(25):
            every.acknowledge(every.receive(1_000))
        ordered = client.namespace_stream_consumer(
            "public/default", "ordered", initial_position=EARLIEST
        )
        message = [ordered.receive(1_000) for _ in range(25)][-1]
        ordered.acknowledge_cumulative(message)
        reader = client.reader(TOPIC)
        assert reader.has_message_available()
        reader.receive()
        with client.checkpoint_consumer(TOPIC, checkpoint=reader.checkpoint()) as later:
            assert sum(1 for _ in range(24) if later.receive(1_000)) == 24
        with pytest.raises(TopicNotFound):
            client.create_producer("topic://public/default/none", create_if_missing=False)
    client.close()
    with pytest.raises(AlreadyClosed):
        client.create_producer(TOPIC)
    with pytest.raises(AlreadyClosed):
        producer.send("late")


async def test_threads_may_produce_and_consume(server: FakeServer) -> None:
    server.create(TOPIC, 2)
    Namespaces(server, has_all=True)

    await asyncio.to_thread(produce_and_consume, server.url)

    assert not any(each.name == "nextgen-scalable-client" for each in threading.enumerate())


async def test_shutdown_ends_at_once_and_fails_what_waits(server: FakeServer) -> None:
    server.create(TOPIC)
    server.answers = lambda connection, command: command.type == pulsar.BaseCommand.SEND

    def shut_down() -> None:
        client = st.BlockingPulsarClient(server.url)
        stored = client.create_producer(TOPIC).submit(b"x")
        client.shutdown()
        with pytest.raises((AlreadyClosed, CancelledError)):
            stored.result(1)
        client.close()

    await asyncio.to_thread(shut_down)

    assert not any(each.name == "nextgen-scalable-client" for each in threading.enumerate())


def test_wrong_settings_leave_no_thread() -> None:
    with pytest.raises(InvalidSettings):
        st.BlockingPulsarClient("nowhere")

    assert not any(each.name == "nextgen-scalable-client" for each in threading.enumerate())
