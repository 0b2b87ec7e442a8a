"""A unit that a rebalance or the balance has moved is not moved again within the grace."""

from __future__ import annotations

import pytest

from shards.moves import paced_moves
from shards.moves.paced_moves import MOVED_UNITS_MAX, MovedUnits

GRACE_S = 600.0
START_MS = 1_700_000_000_000


class SetClock:
    """A clock that a test sets, in seconds; ``ahead_ms`` is how far its wall clock is off."""

    def __init__(self) -> None:
        self.now_s = 10_000.0
        self.ahead_ms = 0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return START_MS + int(1_000 * self.now_s) + self.ahead_ms

    def call_at(self, when: float, callback: object) -> object:
        raise NotImplementedError


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def moved(clock: SetClock) -> MovedUnits:
    return MovedUnits(clock)  # type: ignore[arg-type]


def test_a_unit_rests_until_its_grace_is_over(moved: MovedUnits, clock: SetClock) -> None:
    moved.note(["t"])
    clock.now_s += GRACE_S - 1
    assert moved.is_resting("t", GRACE_S)
    assert not moved.is_resting("another", GRACE_S)

    clock.now_s += 1

    assert not moved.is_resting("t", GRACE_S)


def test_a_former_leaders_moves_count_by_their_age(moved: MovedUnits, clock: SetClock) -> None:
    now_ms = clock.wall_ms()

    moved.restore({"old": now_ms - 601_000, "late": now_ms - 500_000}, 0)

    assert not moved.is_resting("old", GRACE_S)
    assert moved.is_resting("late", GRACE_S)
    clock.now_s += 100
    assert not moved.is_resting("late", GRACE_S)


def test_an_own_move_counts_although_the_log_has_an_earlier_one(
    moved: MovedUnits, clock: SetClock
) -> None:
    moved.note(["t"])

    moved.restore({"t": clock.wall_ms() - 601_000}, 0)

    assert moved.is_resting("t", GRACE_S)


@pytest.mark.parametrize("ahead_ms", [3_600_000, 1])
def test_a_time_ahead_of_this_clock_counts_as_now(
    moved: MovedUnits, clock: SetClock, ahead_ms: int
) -> None:
    moved.restore({"t": clock.wall_ms() + ahead_ms}, clock.wall_ms() + ahead_ms)

    assert moved.is_resting("t", GRACE_S)
    assert not moved.is_known(GRACE_S)
    clock.now_s += GRACE_S
    assert not moved.is_resting("t", GRACE_S)
    assert moved.is_known(GRACE_S)


def test_what_the_wall_clock_does_later_changes_nothing(moved: MovedUnits, clock: SetClock) -> None:
    moved.restore({"t": clock.wall_ms()}, clock.wall_ms())

    clock.ahead_ms = 3_600_000

    assert moved.is_resting("t", GRACE_S)
    assert not moved.is_known(GRACE_S)


def test_nothing_is_known_before_the_log_was_read(moved: MovedUnits, clock: SetClock) -> None:
    clock.now_s += 10 * GRACE_S
    assert not moved.is_known(GRACE_S)

    moved.restore({}, clock.wall_ms() - 200_000)
    assert not moved.is_known(GRACE_S), "the log reaches back for 200 s only"
    clock.now_s += 400
    assert moved.is_known(GRACE_S)


def test_a_log_that_was_read_from_its_beginning_leaves_nothing_unknown(moved: MovedUnits) -> None:
    moved.restore({}, 0)

    assert moved.is_known(GRACE_S)


@pytest.mark.parametrize("more", [0, 1])
def test_moved_units_max_are_remembered_and_one_more_displaces_the_oldest(
    moved: MovedUnits, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    assert MOVED_UNITS_MAX >= 10 * 600, "a grace of ten minutes at the default budget"
    monkeypatch.setattr(paced_moves, "MOVED_UNITS_MAX", 5)

    moved.note([f"t-{number}" for number in range(5 + more)])

    assert moved.is_resting("t-0", GRACE_S) is not bool(more)
    assert moved.is_resting(f"t-{4 + more}", GRACE_S)
