"""The wheel, in virtual time."""

from __future__ import annotations

import asyncio

from nextgen.pulsar.keep_alive import TICK_MS_MIN, KeepAlive
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual


class Client:
    def __init__(self, *, leaves: KeepAlive | None = None) -> None:
        self.keep_alive_bucket = 0
        self.checked_at_s: list[float] = []
        self._leaves = leaves

    def check_alive(self) -> None:
        self.checked_at_s.append(asyncio.get_running_loop().time() - 1_000)
        if self._leaves is not None:
            self._leaves.discard(self)


@run_by(run_virtual)
async def test_each_connection_is_looked_at_once_an_interval() -> None:
    wheel = KeepAlive(interval_ms=30_000)
    clients = [Client() for _ in range(50)]
    for client in clients:
        wheel.add(client)
        await asyncio.sleep(0.7)
    started_s = [0.7 * number for number in range(50)]
    await asyncio.sleep(120)
    wheel.close()

    for client, added_s in zip(clients, started_s, strict=True):
        first, *later = client.checked_at_s
        assert 28.999 <= first - added_s <= 30.001
        assert later
        gaps = [b - a for a, b in zip(client.checked_at_s, later, strict=False)]
        assert all(abs(gap - 30) < 0.001 for gap in gaps)


@run_by(run_virtual)
async def test_one_that_left_is_not_looked_at() -> None:
    wheel = KeepAlive(interval_ms=30_000)
    stays, leaves = Client(), Client()
    wheel.add(stays)
    wheel.add(leaves)
    assert len(wheel) == 2
    wheel.discard(leaves)
    wheel.discard(leaves)
    assert (len(wheel), list(wheel)) == (1, [stays])
    await asyncio.sleep(31)
    wheel.close()
    assert (len(stays.checked_at_s), len(leaves.checked_at_s)) == (1, 0)


@run_by(run_virtual)
async def test_one_may_leave_while_it_is_looked_at_and_then_the_timer_rests() -> None:
    wheel = KeepAlive(interval_ms=30_000)
    first = Client(leaves=wheel)
    wheel.add(first)
    waiter = asyncio.create_task(wheel.wait_until_empty())
    await asyncio.sleep(100)
    assert len(first.checked_at_s) == 1
    await waiter

    second = Client()
    wheel.add(second)
    await asyncio.sleep(31)
    wheel.close()
    assert len(second.checked_at_s) == 1


@run_by(run_virtual)
async def test_a_short_interval_is_not_polled_more_often_than_allowed() -> None:
    wheel = KeepAlive(interval_ms=100)
    client = Client()
    wheel.add(client)
    await asyncio.sleep(TICK_MS_MIN * 5.5 / 1000)
    wheel.close()
    assert len(client.checked_at_s) == 5
