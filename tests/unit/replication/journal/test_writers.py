"""The threads that journals share: order, hung and slow disks, and how results come back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from nextgen.kernel.limits.cluster import JOURNAL_THREADS_MAX
from nextgen.replication.journal.writers import SLOW_WORK_MS, PooledRunner, WriterPool

GROUPS = 64


class Gate:
    """Work that hangs until it is opened, as a sync of a stuck disk does."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_open = threading.Event()
        self._has_begun = asyncio.Event()

    def work(self) -> None:
        self._loop.call_soon_threadsafe(self._has_begun.set)
        self._is_open.wait()

    async def has_begun(self) -> None:
        await self._has_begun.wait()

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
async def gates() -> AsyncIterator[Callable[[], Gate]]:
    """Makes gates that are open when the test ends."""
    made: list[Gate] = []

    def make() -> Gate:
        made.append(Gate())
        return made[-1]

    yield make
    for gate in made:
        gate.open()


def posting(runner: PooledRunner, callback: Callable[[], None]) -> Callable[[], None]:
    return lambda: runner.post(callback)


async def done_by(runner: PooledRunner, work: Callable[[], object] = lambda: None) -> None:
    """Run ``work`` with ``runner`` and wait for its result."""
    done = asyncio.Event()

    def run() -> None:
        work()
        runner.post(done.set)

    runner.submit(run)
    await done.wait()


async def test_work_runs_on_another_thread_and_its_result_comes_back_to_the_loop() -> None:
    runner, threads = WriterPool().runner(), []
    done = asyncio.Event()

    def work() -> None:
        threads.append(threading.current_thread())
        runner.post(lambda: (threads.append(threading.current_thread()), done.set()))

    runner.submit(work)
    await done.wait()
    runner.close()

    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread()


async def test_one_thread_writes_the_journals_of_all_groups_while_their_disk_is_quick() -> None:
    pool = WriterPool()
    runners, threads = [pool.runner() for _ in range(GROUPS)], set()

    for runner in runners:
        await done_by(runner, lambda: threads.add(threading.current_thread()))

    assert len(threads) == 1
    assert pool.thread_count == 1


async def test_a_journal_whose_sync_hangs_does_not_stop_the_others(
    gates: Callable[[], Gate],
) -> None:
    pool, gate = WriterPool(), gates()
    pool.runner().submit(gate.work)
    await gate.has_begun()

    await asyncio.gather(*(done_by(pool.runner()) for _ in range(GROUPS)))


async def test_all_threads_but_one_may_hang(gates: Callable[[], Gate]) -> None:
    pool = WriterPool()
    for gate in [gates() for _ in range(JOURNAL_THREADS_MAX - 1)]:
        pool.runner().submit(gate.work)
        await gate.has_begun()

    await done_by(pool.runner())

    assert pool.thread_count == JOURNAL_THREADS_MAX


async def test_journal_threads_max_write_at_once_and_one_more_journal_waits(
    gates: Callable[[], Gate],
) -> None:
    pool, made = WriterPool(), [gates() for _ in range(JOURNAL_THREADS_MAX)]
    for gate in made:
        pool.runner().submit(gate.work)
    for gate in made:
        await gate.has_begun()

    waiting = asyncio.ensure_future(done_by(pool.runner()))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert pool.thread_count == JOURNAL_THREADS_MAX

    made[-1].open()
    await waiting


async def test_while_a_disk_is_slow_journals_are_written_at_the_same_time_without_delay(
    gates: Callable[[], Gate],
) -> None:
    pool, hung = WriterPool(), gates()
    pool.runner().submit(hung.work)
    await hung.has_begun()
    await done_by(pool.runner())  # By a second thread.
    hung.open()
    both, ended = threading.Barrier(2), threading.Semaphore(0)

    def meet() -> None:
        both.wait()
        ended.release()

    await _rest(pool)
    for _ in range(2):
        pool.runner().submit(meet)
    # The loop stands still, so no timer of the pool helps.
    ended.acquire()
    ended.acquire()

    assert pool.thread_count == 2


async def test_works_that_all_take_long_are_a_slow_disk() -> None:
    pool = WriterPool()

    await done_by(pool.runner(), partial(time.sleep, 2 * SLOW_WORK_MS / 1_000))
    await _rest(pool)  # The time of a work is noted behind its result.

    assert pool.is_disk_slow


async def test_one_work_that_takes_long_is_no_slow_disk() -> None:
    pool = WriterPool()
    runner = pool.runner()
    for _ in range(3):
        await done_by(runner)
    assert not pool.is_disk_slow

    await done_by(runner, partial(time.sleep, 2 * SLOW_WORK_MS / 1_000))
    await _rest(pool)

    assert not pool.is_disk_slow


async def test_results_that_are_there_when_the_loop_looks_wake_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, loop = WriterPool(), asyncio.get_running_loop()
    calls, arrived, ended = [], [], threading.Semaphore(0)
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(
        loop, "call_soon_threadsafe", lambda *given: (calls.append(given), wake(*given))
    )
    for number in range(10):
        runner = pool.runner()

        def work(runner: PooledRunner = runner, number: int = number) -> None:
            runner.post(partial(arrived.append, number))
            ended.release()

        runner.submit(work)
    for _ in range(10):
        ended.acquire()  # The loop stands still.

    await asyncio.sleep(0)

    assert arrived == list(range(10))
    assert len(calls) == 1


async def test_a_callback_that_fails_takes_no_other_with_it() -> None:
    runner, ended = WriterPool().runner(), threading.Event()
    failures, done = [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )

    def work() -> None:
        runner.post(lambda: [][1])
        runner.post(done.set)
        ended.set()

    runner.submit(work)
    ended.wait()
    await done.wait()

    assert [type(failure) for failure in failures] == [IndexError]


async def test_works_of_one_journal_run_in_order_and_none_after_its_end() -> None:
    runner, done = WriterPool().runner(), []
    last = asyncio.Event()
    for number in range(100):
        runner.submit(partial(done.append, number))
    runner.submit(posting(runner, last.set))
    await last.wait()
    runner.close()

    runner.submit(partial(done.append, 100))
    runner.close()

    assert done == list(range(100))


async def test_works_of_one_journal_run_one_at_a_time_however_slow_its_disk_is(
    gates: Callable[[], Gate],
) -> None:
    pool, gate, done = WriterPool(), gates(), []
    runner = pool.runner()
    runner.submit(gate.work)
    await gate.has_begun()
    runner.submit(partial(done.append, "second"))
    await done_by(pool.runner())  # By a second thread, which had the second work before.
    assert done == []

    gate.open()
    await done_by(runner)

    assert done == ["second"]


async def test_a_journal_that_is_closed_waits_for_what_runs_and_drops_the_rest(
    gates: Callable[[], Gate],
) -> None:
    runner, gate, done = WriterPool().runner(), gates(), []

    def work() -> None:
        gate.work()
        done.append("first")

    runner.submit(work)
    runner.submit(partial(done.append, "second"))
    await gate.has_begun()
    threading.Timer(0.05, gate.open).start()
    runner.close()

    assert done == ["first"]


async def test_with_the_last_journal_the_threads_end_and_another_begins_anew() -> None:
    pool = WriterPool()
    first, second = pool.runner(), pool.runner()
    threads: list[threading.Thread] = []
    for runner in (first, second):
        await done_by(runner, lambda: threads.append(threading.current_thread()))

    first.close()
    assert threads[0].is_alive()
    second.close()
    assert not threads[0].is_alive()
    assert pool.thread_count == 0

    await done_by(pool.runner(), lambda: threads.append(threading.current_thread()))
    assert threads[2] is not threads[0]


async def test_a_timer_that_is_due_after_the_end_does_not_fire() -> None:
    runner, fired = WriterPool().runner(), []
    runner.submit(lambda: None)
    runner.call_later(0, lambda: fired.append("late"))

    runner.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert fired == []


async def test_a_timer_fires_on_the_loop() -> None:
    runner, fired = WriterPool().runner(), asyncio.Event()
    runner.submit(lambda: None)

    runner.call_later(0, fired.set)
    await fired.wait()

    runner.close()


def test_without_a_loop_nobody_is_called_back() -> None:
    runner, called = WriterPool().runner(), []

    runner.post(lambda: called.append("post"))
    runner.call_later(0, lambda: called.append("timer"))
    runner.close()

    assert called == []


def test_after_the_loop_has_ended_nobody_is_called_back() -> None:
    runner, called = WriterPool().runner(), []

    async def use() -> None:
        runner.submit(lambda: None)

    asyncio.run(use())
    runner.post(lambda: called.append("post"))
    runner.call_later(0, lambda: called.append("timer"))
    runner.close()

    assert called == []


async def _rest(pool: WriterPool) -> None:
    """Return when no thread of the pool has work."""
    while not pool.is_idle:
        await asyncio.sleep(0.001)
