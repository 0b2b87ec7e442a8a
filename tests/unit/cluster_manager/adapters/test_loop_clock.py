"""Timers on the loop are never early."""

from __future__ import annotations

import asyncio

from cluster_manager.adapters.loop_clock import LoopClock


async def test_a_timers_callback_sees_its_due_time_reached() -> None:
    clock = LoopClock()
    due_ms = clock.monotonic_ms() + 3
    called: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    clock.call_at(due_ms, lambda: called.set_result(clock.monotonic_ms()))

    assert await called >= due_ms


async def test_a_cancelled_timer_is_not_called() -> None:
    clock = LoopClock()
    calls: list[str] = []

    cancel = clock.call_at(clock.monotonic_ms(), lambda: calls.append("cancelled"))
    cancel()
    done = asyncio.Event()
    clock.call_at(clock.monotonic_ms() + 1, done.set)
    await done.wait()

    assert calls == []
