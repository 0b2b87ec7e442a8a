"""Groups of tasks leave the cancellation of the task that waits for them as it was."""

import asyncio

import pytest

from nextgen.tasks.cancellation import cancel_requests
from nextgen.tasks.groups import TaskGroup


async def fail_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise ValueError("a member failed")


async def end_slowly() -> None:
    """Need a second to end when cancelled."""
    try:
        await asyncio.sleep(100)
    finally:
        await asyncio.sleep(1)


async def failing_group(body_s: float) -> None:
    """Fail after a second, and take another second to end."""
    async with TaskGroup() as group:
        group.create_task(fail_after(1))
        group.create_task(end_slowly())
        await asyncio.sleep(body_s)


async def test_a_member_that_fails_while_the_group_is_awaited_leaves_no_cancel_request() -> None:
    for _ in range(3):
        with pytest.raises(ExceptionGroup):
            await failing_group(body_s=0)

    assert cancel_requests() == 0


async def test_a_member_that_fails_during_the_block_leaves_no_cancel_request() -> None:
    with pytest.raises(ExceptionGroup):
        await failing_group(body_s=9)

    assert cancel_requests() == 0


async def test_a_group_whose_members_all_succeed_raises_nothing() -> None:
    async with TaskGroup() as group:
        sleeping = group.create_task(asyncio.sleep(1, "slept"))

    assert sleeping.result() == "slept"
    assert cancel_requests() == 0


async def test_a_group_that_is_cancelled_raises_cancelled_error() -> None:
    async def grouped() -> None:
        async with TaskGroup() as group:
            group.create_task(asyncio.sleep(9))

    task = asyncio.ensure_future(grouped())
    asyncio.get_running_loop().call_later(1, task.cancel)
    await asyncio.wait((task,))
    assert task.cancelled()


@pytest.mark.parametrize("body_s", [0, 9], ids=["awaited", "in the block"])
async def test_a_cancellation_while_a_failed_group_ends_is_not_lost(body_s: float) -> None:
    async def forgiving() -> None:
        for _ in range(5):
            try:
                await failing_group(body_s)
            except ExceptionGroup:
                await asyncio.sleep(10)

    task = asyncio.ensure_future(forgiving())
    asyncio.get_running_loop().call_later(1.5, task.cancel)
    done, _ = await asyncio.wait((task,), timeout=5)
    assert done
    assert task.cancelled()
