"""Nothing of a process is closed while one of its groups hands over."""

from __future__ import annotations

import asyncio

from nextgen.replication.host.handovers import Handovers
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual


@run_by(run_virtual)
async def test_waiters_continue_when_the_last_handover_ends() -> None:
    handovers = Handovers()
    await handovers.wait()
    handovers.begin()
    handovers.begin()
    waiting = [asyncio.ensure_future(handovers.wait()) for _ in range(3)]

    handovers.end()
    await asyncio.sleep(1)
    assert not any(each.done() for each in waiting)

    handovers.end()
    await asyncio.gather(*waiting)


@run_by(run_virtual)
async def test_a_handover_that_begins_meanwhile_is_waited_for_too() -> None:
    handovers = Handovers()
    handovers.begin()
    waiting = asyncio.ensure_future(handovers.wait())
    await asyncio.sleep(0)

    handovers.end()
    handovers.begin()
    await asyncio.sleep(1)
    assert not waiting.done()

    handovers.end()
    await waiting
