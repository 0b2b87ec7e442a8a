"""A fake server and clients of it that leave nothing running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nextgen.client import st
from tests.unit.client.st.fake_server import FakeServer

TOPIC = "topic://public/default/t"


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as started:
        yield started
    for _ in range(20):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            break
        await asyncio.sleep(0.01)
    assert left == set(), "a task is left behind"


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[st.PulsarClient]:
    async with st.PulsarClient(server.url, operation_timeout_ms=3_000) as opened:
        yield opened
