"""A rate is shared in turn, and lets nobody wait for ever."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from brokers.service.client_limits.rate_limiter import RateLimiter
from nextgen.kernel.governance.client_limits import Rate
from nextgen.kernel.limits.inbound import RATE_SLICE_MS


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_there_is_room_until_the_rate_is_spent():
    limiter = RateLimiter(Rate(messages=10))

    assert limiter.take(9, 1_000_000)
    assert limiter.room() == pytest.approx(1)
    assert not limiter.take(1, 0)
    assert limiter.room() == 0
    await asyncio.sleep(0.5)
    assert limiter.room() == pytest.approx(5)


async def test_bytes_are_bounded_too():
    limiter = RateLimiter(Rate(messages=1_000, size_bytes=100))

    assert not limiter.take(1, 150)
    await asyncio.sleep(0.49)
    assert limiter.room() == 0
    await asyncio.sleep(0.76)
    assert limiter.room() == pytest.approx(0.5), "of the size of the last one"


async def test_one_that_waits_is_called_once_there_is_room():
    limiter = RateLimiter(Rate(messages=100))
    called: list[float] = []
    began = now_s()

    limiter.take(200, 0)
    limiter.wait(lambda: called.append(now_s() - began))
    await asyncio.sleep(10)

    assert called == [pytest.approx(1 + RATE_SLICE_MS / 1_000)]


async def test_those_that_wait_have_their_turns():
    """Each takes all there is and waits again: with a favourite the others would starve."""
    limiter = RateLimiter(Rate(messages=100))
    turns: list[str] = []

    def waiter(name: str):
        def turn() -> None:
            turns.append(name)
            limiter.take(int(limiter.room()) or 1, 0)
            limiter.wait(turn)

        return turn

    limiter.take(100, 0)
    for name in "abc":
        limiter.wait(waiter(name))
    await asyncio.sleep(3)

    assert turns[:6] == list("abcabc")
    assert max(map(turns.count, "abc")) - min(map(turns.count, "abc")) <= 1


async def test_few_of_many_are_woken_at_a_time():
    limiter = RateLimiter(Rate(messages=1_000))
    woken: list[int] = []
    limiter.take(1_000, 0)
    for number in range(320):
        limiter.wait(partial(woken.append, number))

    while not woken:
        await asyncio.sleep(0.001)

    assert len(woken) <= 20, "each may charge all that it has sent already"
    await asyncio.sleep(1)
    assert woken == list(range(320))


async def test_one_that_is_forgotten_is_not_called():
    limiter = RateLimiter(Rate(messages=1))
    called: list[str] = []

    def waiter() -> None:
        called.append("waiter")

    limiter.take(1, 0)
    limiter.wait(waiter)
    limiter.forget(waiter)
    await asyncio.sleep(5)

    assert called == []
    assert limiter.waiting == 0


async def test_a_closed_limiter_calls_all_and_bounds_nothing():
    limiter = RateLimiter(Rate(messages=1))
    called: list[int] = []
    limiter.take(1_000_000, 0)
    for number in range(3):
        limiter.wait(lambda number=number: called.append(number))

    limiter.close()

    assert called == [0, 1, 2]
    assert limiter.take(1_000_000, 0)
    assert limiter.room() == float("inf")


async def test_a_higher_rate_shortens_the_wait():
    limiter = RateLimiter(Rate(messages=1))
    called: list[float] = []
    began = now_s()
    limiter.take(101, 0)
    limiter.wait(lambda: called.append(now_s() - began))

    await asyncio.sleep(1)
    limiter.change(Rate(messages=100))
    await asyncio.sleep(5)

    assert called == [pytest.approx(2, abs=0.1)]


async def test_a_relative_rate_adds_what_is_published():
    published = [0.0, 0.0]
    limiter = RateLimiter(
        Rate(messages=10, is_relative=True), published=lambda: (published[0], published[1])
    )
    limiter.take(10, 0)

    published[0] = 90.0
    await asyncio.sleep(1)
    assert limiter.room() == pytest.approx(100)
    published[0] = 0.0
    await asyncio.sleep(1)
    assert limiter.room() == pytest.approx(10)
