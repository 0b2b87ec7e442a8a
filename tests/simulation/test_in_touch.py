"""Whom the simulation takes effective writes to wait for, and cuts that lose one way only."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.cluster_simulation.judges.in_touch import BACK_S, COUNTED_S, InTouch
from tests.support.cluster_simulation.network import Network, pair_of
from tests.support.cluster_simulation.virtual_loop import SimulatedLoop

MANAGER, HOME = 1, 2


class Leaders:
    """Two shards and their leaders; ``pass_time`` samples four times a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.leaders: dict[int, str | None] = {MANAGER: "a", HOME: "b"}
        self.is_cut = False
        self.touch = InTouch(lambda: self.now_s, self.leaders.get, lambda *_: not self.is_cut)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.now_s += 0.25
            self.touch.look((MANAGER, HOME))

    @property
    def counts(self) -> bool:
        return self.touch.counts(MANAGER, HOME)


def test_a_manager_counts_once_it_was_in_touch_for_as_long_as_coming_back_takes():
    leaders = Leaders()
    leaders.pass_time(BACK_S)
    assert not leaders.counts

    leaders.pass_time(0.5)

    assert leaders.counts


def test_a_manager_that_is_cut_off_counts_for_as_long_as_the_leader_waits_for_it():
    leaders = Leaders()
    leaders.pass_time(2 * BACK_S)

    leaders.is_cut = True
    leaders.pass_time(COUNTED_S - 0.25)
    assert leaders.counts
    leaders.pass_time(0.25)
    assert not leaders.counts

    leaders.is_cut = False
    leaders.pass_time(BACK_S)
    assert not leaders.counts, "it may not have caught up"
    leaders.pass_time(0.5)
    assert leaders.counts


def test_a_manager_that_is_cut_off_for_a_moment_counts_all_the_time():
    leaders = Leaders()
    leaders.pass_time(2 * BACK_S)
    leaders.is_cut = True
    leaders.pass_time(2.0)
    leaders.is_cut = False

    for _ in range(8):
        leaders.pass_time(0.25)
        assert leaders.counts


def test_a_manager_counts_behind_a_leader_change_of_the_home():
    """That is when a new leader, which does not know the manager, answered too early."""
    leaders = Leaders()
    leaders.pass_time(2 * BACK_S)

    leaders.leaders[HOME] = None
    leaders.pass_time(1.0)
    leaders.leaders[HOME] = "c"
    leaders.pass_time(3.0)
    assert leaders.counts
    leaders.pass_time(0.5)

    assert not leaders.counts, "the new leader has waited for it by then"


@pytest.fixture
def net() -> Iterator[Network]:
    with closing(SimulatedLoop(lambda: None)) as loop:
        yield Network(loop, random.Random(1))


def test_a_cut_of_one_way_loses_nothing_the_other_way(net: Network):
    net.cut_way("a", "b")

    assert net.is_cut("a", "b")
    assert not net.is_cut("b", "a")
    assert net.is_cut_off("a")
    assert net.is_cut_off("b")
    assert not net.reach("a", "b")
    assert not net.reach("b", "a")
    net.heal()
    assert not net.is_cut_off("a")


def test_a_cut_loses_both_ways(net: Network):
    net.cut(pair_of("b", "a"))

    assert net.is_cut("a", "b")
    assert net.is_cut("b", "a")


def test_hosts_behind_a_slow_link_do_not_count_as_in_touch(net: Network):
    assert net.reach("a", "b")

    net.slow_pairs[pair_of("b", "a")] = 600.0

    assert not net.reach("a", "b")
