"""Background tasks: kept alive, or their end reported."""

import asyncio
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import TASK_RESTART_MS_MAX, TASK_RESTART_MS_MIN
from nextgen.tasks.background import KEPT, failures, join, keep, start


@pytest.fixture(autouse=True)
def _no_failures_before() -> None:
    failures.clear()


class Work:
    """Works until it is broken; knows when it was begun."""

    def __init__(self) -> None:
        self.begun_at_ms: list[int] = []
        self.break_with: BaseException | None = None
        self.returns = False

    async def run(self) -> None:
        self.begun_at_ms.append(round(asyncio.get_running_loop().time() * 1_000))
        while not self.returns:
            if self.break_with is not None:
                raise self.break_with
            await asyncio.sleep(0.01)


def attempts() -> list[asyncio.Task[None]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(KEPT)]


@pytest.mark.parametrize(
    "error", [ValueError("broken"), AssertionError(), asyncio.CancelledError()]
)
async def test_kept_work_that_breaks_begins_again_and_is_counted(error: BaseException) -> None:
    work = Work()
    keeper = keep("work", work.run)
    await asyncio.sleep(1)

    work.break_with = error
    await asyncio.sleep(0.05)
    work.break_with = None
    await asyncio.sleep(1)

    assert len(work.begun_at_ms) == 2
    assert failures == {"work": 1}
    assert not keeper.done()


async def test_kept_work_that_was_cancelled_begins_again() -> None:
    work = Work()
    keeper = keep("work", work.run)
    await asyncio.sleep(0.1)

    for _ in range(3):
        [attempt] = attempts()
        attempt.cancel()
        await asyncio.sleep(1)

    assert len(work.begun_at_ms) == 4
    assert failures == {"work": 3}
    assert not keeper.done()


async def test_pauses_between_attempts_double_up_to_the_longest() -> None:
    work = Work()
    work.break_with = ValueError("broken")
    keep("work", work.run)
    await asyncio.sleep(60)

    begun = work.begun_at_ms
    pauses = [after - before for before, after in pairwise(begun)]
    doubled = [TASK_RESTART_MS_MIN * 2**times for times in range(len(pauses))]
    assert pauses == pytest.approx([min(each, TASK_RESTART_MS_MAX) for each in doubled], abs=2)


async def test_work_that_ran_for_long_begins_again_after_the_shortest_pause() -> None:
    work = Work()
    work.break_with = ValueError("broken")
    keep("work", work.run)
    await asyncio.sleep(20)
    work.break_with = None
    await asyncio.sleep(2 * TASK_RESTART_MS_MAX / 1_000)

    work.break_with = ValueError("broken again")
    await asyncio.sleep(0.05)
    work.break_with = None
    await asyncio.sleep(2 * TASK_RESTART_MS_MIN / 1_000)

    assert len(attempts()) == 1


async def test_kept_work_that_returns_is_over() -> None:
    work = Work()
    keeper = keep("work", work.run)
    await asyncio.sleep(0.1)

    work.returns = True
    await keeper

    assert failures == {}


@pytest.mark.parametrize("is_pausing", [False, True])
async def test_cancelling_the_keeper_ends_the_work(is_pausing: bool) -> None:
    work = Work()
    work.break_with = ValueError("broken") if is_pausing else None
    keeper = keep("work", work.run)
    await asyncio.sleep(0.05)

    keeper.cancel()
    await asyncio.wait((keeper,))

    assert keeper.cancelled()
    assert attempts() == []


async def test_a_keeper_that_is_cancelled_as_its_work_breaks_ends() -> None:
    async def break_when_cancelled() -> None:
        try:
            await asyncio.sleep(9)
        finally:
            raise ValueError("broken at the end")

    keeper = keep("work", break_when_cancelled)
    await asyncio.sleep(1)
    keeper.cancel()
    await asyncio.wait((keeper,))

    assert keeper.cancelled()


async def fail(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def test_a_started_task_that_fails_is_counted_and_its_owner_hears_of_it() -> None:
    heard: list[BaseException] = []
    holder: set[asyncio.Task[None]] = set()
    error = ValueError("broken")

    task = start("work", fail(error), holder, on_failure=heard.append)
    assert holder == {task}
    await asyncio.wait((task,))
    await asyncio.sleep(0)

    assert (heard, failures, holder) == ([error], {"work": 1}, set())


async def test_a_started_task_that_ends_as_if_cancelled_is_counted() -> None:
    heard: list[BaseException] = []

    start("work", fail(asyncio.CancelledError()), on_failure=heard.append)
    await asyncio.sleep(0.1)

    assert failures == {"work": 1}
    assert [type(error) for error in heard] == [asyncio.CancelledError]


async def test_an_expected_error_is_heard_of_and_not_counted() -> None:
    heard: list[BaseException] = []
    error = Unavailable("for the moment")

    start("work", fail(error), on_failure=heard.append, expected=Unavailable)
    await asyncio.sleep(0.1)

    assert (heard, failures) == ([error], {})


async def test_a_started_task_that_its_owner_cancels_is_no_failure() -> None:
    heard: list[BaseException] = []
    task = start("work", asyncio.sleep(9), on_failure=heard.append)
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(1)

    assert (heard, failures) == ([], {})


async def test_a_joined_task_raises_where_it_is_awaited() -> None:
    with pytest.raises(ValueError, match="broken"):
        await join(fail(ValueError("broken")))

    assert failures == {}


BROKEN_THREAD = """
import time
from nextgen.tasks.threads import start_thread
start_thread("writer", lambda: 1 / 0)
time.sleep(60)
"""


def test_a_thread_that_breaks_ends_its_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BROKEN_THREAD], capture_output=True, text=True, timeout=30
    )

    assert ended.returncode == os.EX_SOFTWARE
    assert "ZeroDivisionError" in ended.stdout + ended.stderr
