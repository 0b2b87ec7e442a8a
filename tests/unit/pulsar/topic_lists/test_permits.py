"""Memory permits: granted in order, waited for, refused, and always returned."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.listing import TOPIC_LISTS_IN_FLIGHT_BYTES_MAX, TOPIC_LISTS_WAITING_MAX
from nextgen.pulsar.topic_lists.permits import MemoryPermits


async def hold(permits: MemoryPermits, size_bytes: int, until: asyncio.Event) -> None:
    async with permits.hold(size_bytes):
        await until.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_lists_wait_beyond_topic_lists_in_flight_bytes_max() -> None:
    permits, until = MemoryPermits(), asyncio.Event()
    first = asyncio.create_task(hold(permits, TOPIC_LISTS_IN_FLIGHT_BYTES_MAX, until))
    await settle()
    assert (permits.bytes_held, permits.waiting) == (TOPIC_LISTS_IN_FLIGHT_BYTES_MAX, 0)

    one_more = asyncio.create_task(hold(permits, 1, until))
    await settle()
    assert permits.waiting == 1

    until.set()
    await asyncio.gather(first, one_more)
    assert (permits.bytes_held, permits.waiting) == (0, 0)


async def test_a_list_larger_than_everything_is_granted_alone() -> None:
    permits = MemoryPermits(10)
    async with permits.hold(1_000):
        assert permits.bytes_held == 10
    assert permits.bytes_held == 0


async def test_small_lists_do_not_overtake_a_large_one() -> None:
    permits, until = MemoryPermits(10), asyncio.Event()
    order: list[int] = []

    async def note(size_bytes: int) -> None:
        async with permits.hold(size_bytes):
            order.append(size_bytes)

    first = asyncio.create_task(hold(permits, 5, until))
    await settle()
    others = [asyncio.create_task(note(size)) for size in (9, 1)]
    await settle()
    assert order == []

    until.set()
    await asyncio.gather(first, *others)
    assert order == [9, 1]


async def test_at_most_topic_lists_waiting_max_wait() -> None:
    permits, until = MemoryPermits(1, wait_ms_max=60_000), asyncio.Event()
    async with permits.hold(1):
        waiting = [
            asyncio.create_task(hold(permits, 1, until)) for _ in range(TOPIC_LISTS_WAITING_MAX)
        ]
        await settle()
        assert permits.waiting == TOPIC_LISTS_WAITING_MAX

        with pytest.raises(Overloaded, match="wait for memory"):  # TOPIC_LISTS_WAITING_MAX + 1
            async with permits.hold(1):
                pass
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert (permits.bytes_held, permits.waiting, permits.refused) == (0, 0, 1)


async def test_a_list_that_waits_too_long_is_refused() -> None:
    permits = MemoryPermits(1, wait_ms_max=1)
    async with permits.hold(1):
        with pytest.raises(Overloaded, match="for 1 ms"):
            async with permits.hold(1):
                pass
    assert (permits.bytes_held, permits.waiting, permits.refused) == (0, 0, 1)


async def test_a_grant_that_nobody_takes_is_returned() -> None:
    permits, until = MemoryPermits(1), asyncio.Event()
    first = asyncio.create_task(hold(permits, 1, until))
    await settle()
    second = asyncio.create_task(hold(permits, 1, until))
    await settle()

    until.set()
    await first  # The second one is granted in the same turn as it is cancelled.
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)

    assert (permits.bytes_held, permits.waiting) == (0, 0)
