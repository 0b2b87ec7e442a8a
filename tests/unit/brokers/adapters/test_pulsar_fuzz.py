"""Clients that send anything: nothing fails inside, nothing is left of them."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.support.broker_world import TOPIC, BrokerWorld, settle
from tests.support.pulsar_frames import FrameMutator

FRAMES = 6_000
FRAMES_PER_CLIENT = 150


@pytest.mark.parametrize("is_session", [False, True], ids=["any bytes", "nearly a client"])
async def test_a_broker_survives_its_clients_and_keeps_nothing_of_them(is_session: bool):
    world = BrokerWorld()
    broker = world.broker()
    sent = 0
    with capture_logs() as logs:
        while sent < FRAMES:
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
        good = await broker.client().producer(f"{TOPIC}-good")
        await world.stop()

    assert good.producer_ready
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []
