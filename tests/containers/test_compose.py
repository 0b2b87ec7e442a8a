"""The compose file as a user starts it, from the host: create, look up, produce, consume, kill.

All of it over TLS, with the operator's certificate and token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pulsar
import pytest

from nextgen.client import Client
from nextgen.client.transport.channel import close_channel, open_channel, with_token
from nextgen.kernel.errors import Refused
from nextgen.runtime.security.node_identity import NodeRole
from protos.nextgen.v1 import broker_service_pb2, broker_service_pb2_grpc
from protos.nextgen.v1 import discovery_service_pb2 as discovery
from protos.nextgen.v1 import discovery_service_pb2_grpc as discovery_grpc
from tests.containers.compose import BROKERS, DISCOVERY, SERVICE_URL

FIRST_LOOKUP_S_MAX = 180
SENDS_BEFORE_THE_KILL = 500
SENDS_AFTER_THE_KILL = 500
SENDING_S_MAX = 60
IN_FLIGHT_MAX = 500
LOOKUP_MS_MAX = 30_000
"""A container that dies takes its address along, as a machine does: some of those that talked to it
find out by silence only, which takes seconds, and what they do then is waited for."""
RECEIVE_MS = 30_000
ANSWER_S_MAX = 20

pytestmark = pytest.mark.containers


@contextlib.asynccontextmanager
async def _published(address: str, role: NodeRole) -> AsyncIterator[grpc.aio.Channel]:
    channel = with_token(open_channel(address, role))
    try:
        yield channel
    finally:
        await close_channel(channel)


async def _first_lookup_s(started: float) -> float:
    async with Client(DISCOVERY) as client:
        while True:
            try:
                # A repetition finds what an earlier attempt has made.
                with contextlib.suppress(Refused):
                    await client.create_tenant("acme")
                with contextlib.suppress(Refused):
                    await client.create_namespace("acme/orders")
                await client.create_topics([f"persistent://acme/orders/t-{i}" for i in range(200)])
                answers = await client.lookup(["persistent://acme/orders/t-0"])
                assert answers[0].broker_id
                return time.monotonic() - started
            except Exception:
                assert time.monotonic() - started < FIRST_LOOKUP_S_MAX, "no lookup in time"
                await asyncio.sleep(0.5)


async def _looked_up_and_served(names: list[str]) -> None:
    """Every name is looked up from the host and confirmed by the broker that was named."""
    async with Client(DISCOVERY, timeout_ms=LOOKUP_MS_MAX) as client:
        answers = await client.lookup(names)
    for answer in answers:
        assert answer.broker_grpc, f"{answer.topic}: {answer.rejection_code} {answer.message}"
        async with _published(BROKERS[answer.broker_id], NodeRole.BROKER) as channel:
            broker = broker_service_pb2_grpc.BrokerServiceStub(channel)
            request = broker_service_pb2.ServesRequest(topics=[answer.topic])
            serving = (await broker.Serves(request, timeout=ANSWER_S_MAX)).answers[0]
        assert serving.serves
        assert serving.epoch == answer.epoch


async def _leader_of_a_shard() -> str:
    async with _published(DISCOVERY[0], NodeRole.DISCOVERY) as channel:
        stub = discovery_grpc.DiscoveryServiceStub(channel)
        cluster = await stub.GetCluster(discovery.GetClusterRequest(), timeout=ANSWER_S_MAX)
    return str(cluster.leaders[0].node_id)


async def _create_until_accepted(name: str) -> None:
    async with Client(DISCOVERY) as client:
        deadline = time.monotonic() + FIRST_LOOKUP_S_MAX
        while True:
            try:
                await client.create_topics([name])
            except Exception:
                assert time.monotonic() < deadline, f"{name} could not be created after the kill"
                await asyncio.sleep(0.2)
            else:
                return


async def test_a_client_on_the_host_works_before_and_after_a_shard_leaders_container_dies(
    compose, operator, capsys
):
    started = compose.started

    first_lookup_s = await _first_lookup_s(started)
    names = [f"persistent://acme/orders/t-{i}" for i in range(200)]
    await _looked_up_and_served(names[:50])
    victim = await _leader_of_a_shard()
    compose.kill(victim)
    await _looked_up_and_served(names)
    for number in range(40):
        await _create_until_accepted(f"persistent://acme/orders/after-{number}")
    await _looked_up_and_served([f"persistent://acme/orders/after-{n}" for n in range(40)])
    compose.run("start", victim)

    with capsys.disabled():
        print(json.dumps({"first_lookup_s": round(first_lookup_s, 1), "killed": victim}))


class Sender:
    """A producer that sends numbers until it is stopped; records what was acknowledged."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._producer = client.create_producer(
            topic,
            send_timeout_millis=30_000,
            max_pending_messages=IN_FLIGHT_MAX,
            block_if_queue_full=True,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.acknowledged: list[int] = []
        self.failed: list[tuple[int, str]] = []
        self.gap_s_max = 0.0
        self._last_s = time.monotonic()

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + SENDING_S_MAX
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} acks, {self.failed[:3]}"
            time.sleep(0.05)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.send_async(str(number).encode(), self._noted(number))
            number += 1
            time.sleep(0.002)
        self._producer.flush()

    def _noted(self, number: int) -> Any:
        def note(result: Any, _message_id: Any) -> None:
            if result.name != "Ok":
                self.failed.append((number, result.name))
                return
            now = time.monotonic()
            self.gap_s_max = max(self.gap_s_max, now - self._last_s)
            self._last_s = now
            self.acknowledged.append(number)

        return note


async def _brokers_live(count: int) -> None:
    async with Client(DISCOVERY) as client:
        deadline = time.monotonic() + FIRST_LOOKUP_S_MAX
        while True:
            try:
                live = [broker for broker in (await client.cluster()).brokers if broker.is_live]
            except Exception:
                live = []
            if len(live) == count:
                return
            assert time.monotonic() < deadline, f"{len(live)} brokers are live, not {count}"
            await asyncio.sleep(0.5)


async def _owner_of(topic: str) -> str:
    async with Client(DISCOVERY) as client:
        (location,) = await client.lookup([topic])
    return location.broker_id


def test_a_stock_client_on_the_host_loses_nothing_when_its_brokers_container_dies(
    compose, operator, tmp_path, capsys
):
    asyncio.run(_brokers_live(3))
    topic = "persistent://public/default/orders"
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(tmp_path / "pulsar-client.log"))
    client = pulsar.Client(
        SERVICE_URL,
        authentication=pulsar.AuthenticationToken(operator.token),
        tls_trust_certs_file_path=str(operator.ca_file),
        tls_validate_hostname=True,
        operation_timeout_seconds=60,
        logger=logger,
    )
    try:
        consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
        with Sender(client, topic) as sender:
            sender.wait_for(SENDS_BEFORE_THE_KILL)
            victim = asyncio.run(_owner_of(topic))
            compose.kill(victim)
            sender.wait_for(len(sender.acknowledged) + SENDS_AFTER_THE_KILL)
        assert sender.failed == []
        missing = set(sender.acknowledged)
        received: list[int] = []
        while missing:
            message = consumer.receive(timeout_millis=RECEIVE_MS)
            received.append(int(message.data()))
            missing.discard(received[-1])
            consumer.acknowledge(message)
        successor = asyncio.run(_owner_of(topic))
    finally:
        client.close()
    compose.run("start", victim)

    first_seen = list(dict.fromkeys(received))
    with capsys.disabled():
        print(
            json.dumps(
                {
                    "sent": len(sender.acknowledged),
                    "lost": len(missing),
                    "delivered_again": len(received) - len(first_seen),
                    "publish_gap_ms_max": round(sender.gap_s_max * 1000),
                    "killed": victim,
                }
            )
        )
    assert successor != victim
    assert sender.acknowledged == sorted(sender.acknowledged)
    assert first_seen == sorted(first_seen), "delivered out of order"
