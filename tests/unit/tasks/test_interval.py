"""An interval that changes during a wait holds at once."""

from __future__ import annotations

import asyncio

from nextgen.tasks.interval import ChangingInterval
from tests.support.simulated.virtual_time import run_virtual


def test_a_wait_ends_by_the_present_interval_counted_from_its_beginning():
    async def main() -> None:
        now = asyncio.get_running_loop().time
        seconds = 60.0
        interval = ChangingInterval(lambda: seconds)

        async def waited() -> float:
            began_at = now()
            await interval.wait()
            return now() - began_at

        assert await waited() == 60

        for changed_to, expected in ((20.0, 20), (5.0, 10), (90.0, 90)):
            seconds = 60.0
            waiting = asyncio.ensure_future(waited())
            await asyncio.sleep(10)
            seconds = changed_to
            interval.changed()
            assert await waiting == expected

    run_virtual(main)


def test_a_change_before_a_wait_does_not_shorten_it():
    async def main() -> None:
        interval = ChangingInterval(lambda: 60.0)
        interval.changed()
        began_at = asyncio.get_running_loop().time()

        await interval.wait()

        assert asyncio.get_running_loop().time() - began_at == 60

    run_virtual(main)
