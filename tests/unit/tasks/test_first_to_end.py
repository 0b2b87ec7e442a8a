"""Work side by side: the first that ends, ends all."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.tasks.first_to_end import run_until_first


async def _nothing() -> None:
    await asyncio.sleep(0)


async def _fail() -> None:
    raise ValueError("it broke")


class Endless:
    """Work that ends only when it is cancelled, and says when it is gone."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.is_gone = False

    async def run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.is_gone = True


async def test_when_one_ends_the_others_are_cancelled_and_waited_for() -> None:
    others = [Endless(), Endless()]

    await run_until_first(others[0].run(), _nothing(), others[1].run())

    assert [each.is_gone for each in others] == [True, True]


async def test_what_one_fails_with_is_raised_once_the_others_are_gone() -> None:
    other = Endless()

    with pytest.raises(ValueError, match="it broke"):
        await run_until_first(other.run(), _fail())

    assert other.is_gone


async def test_a_caller_that_is_cancelled_leaves_nothing_running() -> None:
    other = Endless()
    running = asyncio.create_task(run_until_first(other.run()))
    await other.began.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert other.is_gone
