"""The scalable-topics client against this project's servers."""

from __future__ import annotations

import pytest

from tests.support.callers.stock_client import PulsarSystem
from tests.support.scalable_client.checks import CHECKS, Check
from tests.support.scalable_client.servers import NotThere, OwnServer


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_client_keeps_its_promises(system: PulsarSystem, check: Check) -> None:
    server = OwnServer(system)
    try:
        await check(server, f"own-{check.__name__}")
    except NotThere as reason:
        pytest.skip(str(reason))
