"""One broker with its cluster in memory, for the tests of its services and protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.brokers.topic_admin_calls import Admin
from tests.support.brokers.world import BrokerWorld


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


@pytest.fixture
def admin(world: BrokerWorld) -> Admin:
    return Admin(world)
