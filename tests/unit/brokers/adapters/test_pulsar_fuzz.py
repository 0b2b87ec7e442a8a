"""Clients that send anything: nothing fails inside, nothing is left of them."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from brokers.domain.position import ledger_id_of
from nextgen.pulsar.payload import message_payload
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle, until
from tests.support.pulsar.extremes import ExtremeCommands
from tests.support.pulsar.frames import FrameMutator

FRAMES = [2_000, pytest.param(6_000, marks=pytest.mark.slow)]
FRAMES_PER_CLIENT = 150
EXTREME_CLIENTS = 60
EXTREME_COMMANDS = 200


@pytest.mark.parametrize("frames", FRAMES)
@pytest.mark.parametrize("is_session", [False, True], ids=["any bytes", "nearly a client"])
async def test_a_broker_survives_its_clients_and_keeps_nothing_of_them(
    is_session: bool, frames: int
):
    world = BrokerWorld()
    broker = world.broker()
    sent = 0
    with capture_logs() as logs:
        while sent < frames:
            mutator = FrameMutator(
                sent, intact_share=0.97 if is_session else 0.4, is_session=is_session
            )
            client = broker.client()
            for _ in range(FRAMES_PER_CLIENT):
                if client.transport.is_closed:
                    break
                client.transport.receive(mutator.next_frame())
                sent += 1
                if sent % 3 == 0:
                    await settle(1)
            client.leave()
            await settle(60)
            assert [topic for topic in broker.topics if topic.has_clients] == []
            assert broker.front.topic_watches.watchers == 0
        good = await broker.client().producer(f"{TOPIC}-good")
        await world.stop()

    assert good.producer_ready
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


@pytest.mark.parametrize("seed", range(6))
async def test_the_worst_numbers_in_well_formed_commands_break_no_topic(seed: int):
    world = BrokerWorld()
    broker = world.broker()
    extremes = ExtremeCommands(
        seed,
        {
            "topic": (TOPIC,),
            "subscription": ("exclusive", "shared", "failover", "keys"),
            "consumer_id": (0, 1, 2, 3),
            "producer_id": (0, 1),
            "producer_name": ("p", "q"),
            "ledgerId": (ledger_id_of(1, 0),),
            "entryId": (0, 1, 2, 3),
            "messagePermits": (1, 100, 2_000),
            "sequence_id": tuple(range(40)),
            "highest_sequence_id": (0, 5, 40),
            "num_messages_in_batch": (1, 3, 100),
            "num_chunks_from_msg": (1, 2, 3),
            "chunk_id": (0, 1),
        },
    )
    with capture_logs() as logs:
        for _ in range(EXTREME_CLIENTS):
            client = broker.client()
            for producer_id in range(2):
                await client.producer(producer_id=producer_id)
            for kind, name in enumerate(("exclusive", "shared", "failover", "keys")):
                await client.subscribe(name, consumer_id=kind, kind=kind)
            for _ in range(EXTREME_COMMANDS):
                if client.transport.is_closed:
                    break
                command = extremes.command()
                payload = None
                if command.type == pulsar.BaseCommand.SEND:
                    payload = message_payload(extremes.metadata(), b"x")
                client.send_raw(command, payload)
                await settle(2)
            client.leave()
            await settle(60)
            assert not broker.topics.get(TOPIC).has_clients
        await _goes_on_as_ever(broker.client())
        await world.stop()

    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


async def _goes_on_as_ever(client: FakeClient) -> None:
    """Produce to the topic, and read it with every subscription there may be."""
    success = await client.producer(producer_name="late")
    client.send(success.last_sequence_id + 1, producer_name="late")
    await client.receipts(1)
    for kind, name in enumerate(("exclusive", "shared", "failover", "keys")):
        assert isinstance(
            await client.subscribe(name, consumer_id=kind, kind=kind), pulsar.CommandSuccess
        )
        sought = await client.request(
            pulsar.BaseCommand.SEEK, consumer_id=kind, message_publish_time=0
        )
        assert isinstance(sought, pulsar.CommandSuccess)
        await client.subscribe(name, consumer_id=kind, kind=kind)
        await until(
            lambda kind=kind: any(
                message.consumer_id == kind for message in client.got(pulsar.BaseCommand.MESSAGE)
            )
        )
        message = next(
            each for each in client.got(pulsar.BaseCommand.MESSAGE) if each.consumer_id == kind
        )
        answer = await client.answer(client.ack(message, consumer_id=kind))
        assert not answer.HasField("error"), answer.message
