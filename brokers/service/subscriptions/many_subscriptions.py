"""Work on all subscriptions of a topic, of which there may be thousands, in turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from brokers.service.subscriptions.subscription import Subscription
from nextgen.kernel.limits.pulsar import SUBSCRIPTIONS_PER_TURN
from nextgen.tasks.background import join


class WakeUps:
    """Wakes a topic's subscriptions after appends, at most ``SUBSCRIPTIONS_PER_TURN`` in a turn.

    Appends during a round cause one more round. ``subscriptions`` are the topic's.
    """

    def __init__(self, subscriptions: Mapping[str, Subscription]) -> None:
        self._subscriptions = subscriptions
        self._waiting: list[Subscription] = []
        """The rest of the present round, the next one last."""
        self._is_due = False

    def appended(self) -> None:
        """Wake all subscriptions, soon."""
        if self._waiting:
            self._is_due = True
            return
        self._begin()

    def _begin(self) -> None:
        self._is_due = False
        self._waiting = list(self._subscriptions.values())[::-1]
        self._turn()

    def _turn(self) -> None:
        waiting = self._waiting
        woken = waiting[-SUBSCRIPTIONS_PER_TURN:]
        del waiting[-SUBSCRIPTIONS_PER_TURN:]
        for subscription in reversed(woken):
            subscription.appended()
        if waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        elif self._is_due:
            asyncio.get_running_loop().call_soon(self._begin)


async def for_all(
    subscriptions: Iterable[Subscription],
    work: Callable[[Subscription], Coroutine[Any, Any, None]],
) -> None:
    """Do ``work`` for all, side by side; it begins for ``SUBSCRIPTIONS_PER_TURN`` in a turn."""
    tasks = []
    for number, subscription in enumerate(list(subscriptions), start=1):
        tasks.append(join(work(subscription)))
        if number % SUBSCRIPTIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
