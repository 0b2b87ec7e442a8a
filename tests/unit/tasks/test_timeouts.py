"""Time limits, whatever the task's ``cancelling()`` count was before."""

import asyncio

import pytest

from nextgen.tasks.cancellation import cancel_requests
from nextgen.tasks.timeouts import timeout, timeout_at


async def left_with_a_cancel_request() -> None:
    """Swallow one cancellation of the running task, as code outside this project may."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)


async def test_an_expired_timeout_raises_timeout_error() -> None:
    with pytest.raises(TimeoutError):
        async with timeout(1) as limit:
            await asyncio.sleep(2)
    assert limit.expired()


async def test_an_expired_timeout_raises_timeout_error_though_a_request_was_left_over() -> None:
    await left_with_a_cancel_request()

    with pytest.raises(TimeoutError):
        async with timeout(1):
            await asyncio.sleep(2)

    assert cancel_requests() == 1


async def test_an_inner_timeout_leaves_the_outer_one_its_time() -> None:
    await left_with_a_cancel_request()

    loop = asyncio.get_running_loop()
    ended_at = []

    async def nested() -> None:
        async with timeout_at(outer_ends_at):
            with pytest.raises(TimeoutError):
                async with timeout(1):
                    await asyncio.sleep(9)
            ended_at.append(loop.time())
            await asyncio.sleep(9)

    outer_ends_at = loop.time() + 3
    with pytest.raises(TimeoutError):
        await nested()

    assert [*ended_at, loop.time()] == pytest.approx([outer_ends_at - 2, outer_ends_at], abs=0.01)


async def test_a_block_that_ends_in_time_raises_nothing() -> None:
    async with timeout(2):
        await asyncio.sleep(1)
    async with timeout(None):
        await asyncio.sleep(100)


async def test_a_timeout_can_be_moved() -> None:
    now = asyncio.get_running_loop().time()

    async def moved() -> None:
        async with timeout_at(now + 5) as limit:
            limit.reschedule(now + 1)
            await asyncio.sleep(3)

    with pytest.raises(TimeoutError):
        await moved()


@pytest.mark.parametrize("left_over", [False, True])
async def test_a_cancellation_at_the_same_moment_has_priority(left_over: bool) -> None:
    async def limited() -> None:
        if left_over:
            await left_with_a_cancel_request()
        async with timeout(1):
            await asyncio.sleep(9)

    task = asyncio.ensure_future(limited())
    asyncio.get_running_loop().call_later(1, task.cancel)
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_another_error_of_the_block_goes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="of the block"):
        async with timeout(1):
            raise ValueError("of the block")
