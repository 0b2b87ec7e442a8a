"""A broker leaves when it is empty, or when waiting would be of no use."""

from __future__ import annotations

from collections.abc import Callable

from brokers.service.session.departure import (
    ACCEPTED_MS_MAX,
    CUT_OFF_MS_MAX,
    LOOK_MS,
    Departure,
)
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND_MAX, REASSIGN_UNITS_PER_SECOND


class Broker:
    """A broker in a cluster; ``each_look`` happens whenever it has slept."""

    def __init__(self, units: int, *, others: bool = True) -> None:
        self.units_held = units
        self.is_registered = True
        self.others = others
        self.draining = False
        self.accepts = True
        self.asked: list[int] = []
        self.now_ms = 0
        self.each_look: Callable[[], None] = lambda: None

    def ask_drain(self, units_per_second: int) -> None:
        self.asked.append(units_per_second)
        self.draining = self.accepts

    def may_take_units(self) -> bool:
        return self.others

    def is_draining(self) -> bool:
        return self.draining

    async def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
        self.each_look()

    async def leave(self, drain_ms_max: int = 30_000) -> int:
        departure = Departure(self, self, clock=lambda: self.now_ms, sleep=self.sleep)
        return await departure.leave(drain_ms_max)


async def test_a_broker_without_units_leaves_at_once_and_asks_nobody():
    broker = Broker(0)

    assert await broker.leave() == 0
    assert (broker.now_ms, broker.asked) == (0, [])


async def test_a_broker_whose_units_nobody_can_take_leaves_at_once():
    broker = Broker(10, others=False)

    assert await broker.leave() == 10
    assert (broker.now_ms, broker.asked) == (0, [])


async def test_one_that_is_not_to_drain_leaves_at_once():
    broker = Broker(10)

    assert await broker.leave(drain_ms_max=0) == 10
    assert broker.asked == []


async def test_it_leaves_as_soon_as_it_is_empty():
    broker = Broker(3)

    def one_goes() -> None:
        broker.units_held -= 1

    broker.each_look = one_goes

    assert await broker.leave() == 0
    assert broker.now_ms == 3 * LOOK_MS
    assert broker.asked == [REASSIGN_UNITS_PER_SECOND]


async def test_many_units_are_drained_faster_so_that_half_of_the_time_is_enough():
    for units, rate in ((10_000, 667), (10**7, DRAIN_UNITS_PER_SECOND_MAX)):
        broker = Broker(units)
        await broker.leave(drain_ms_max=30_000)
        assert broker.asked == [rate]


async def test_when_its_time_is_up_it_leaves_with_what_it_has():
    broker = Broker(5)

    assert await broker.leave(drain_ms_max=4_000) == 5
    assert broker.now_ms == 4_000


async def test_a_drain_that_is_refused_is_not_waited_for():
    broker = Broker(5)
    broker.accepts = False

    assert await broker.leave() == 5
    assert broker.now_ms == ACCEPTED_MS_MAX


async def test_it_does_not_wait_when_the_last_other_broker_goes():
    """All brokers of a cluster are asked to stop at the same moment."""
    broker = Broker(5)

    def all_others_drain() -> None:
        broker.others = False

    broker.each_look = all_others_drain

    assert await broker.leave() == 5
    assert broker.now_ms == LOOK_MS


async def test_it_waits_for_an_election_and_no_longer():
    broker = Broker(5)
    broker.is_registered = False

    assert await broker.leave() == 5
    assert CUT_OFF_MS_MAX <= broker.now_ms < CUT_OFF_MS_MAX + LOOK_MS
