"""What a leader orders to be kept of outcomes: by its monotonic clock and by positions."""

from __future__ import annotations

import pytest

from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_MAX_MS
from nextgen.kernel.limits.write import (
    COMMAND_REPEATED_MS_MAX,
    ISSUED_POSITIONS_FRESH_MS,
    OUTCOME_WINDOW_MS,
    OUTCOME_WINDOW_POSITIONS,
)
from shards.state.outcome_retention import SAMPLE_MS, OutcomeRetention

WINDOW_S = OUTCOME_WINDOW_MS / 1_000
BUSY = 10 * OUTCOME_WINDOW_POSITIONS


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_window_is_longer_than_any_client_of_the_library_repeats_a_command() -> None:
    assert COMMAND_REPEATED_MS_MAX >= REQUEST_TIMEOUT_MAX_MS
    assert OUTCOME_WINDOW_MS >= 1.5 * (COMMAND_REPEATED_MS_MAX + ISSUED_POSITIONS_FRESH_MS)


def test_the_first_order_of_a_term_keeps_everything() -> None:
    retention = OutcomeRetention(Clock(), position=BUSY)

    assert retention.order(BUSY) == 1


def test_there_is_one_order_for_each_sample() -> None:
    clock = Clock()
    retention = OutcomeRetention(clock, position=BUSY)
    retention.order(BUSY)

    clock.now_s += (SAMPLE_MS - 1) / 1_000
    early = retention.order(BUSY)
    clock.now_s += 0.001
    in_time = retention.order(BUSY)

    assert (early, in_time) == (0, 1)


@pytest.mark.parametrize(("late_s", "kept_from"), [(-0.1, 1), (0.0, 500), (0.1, 500)])
def test_outcomes_of_before_the_term_are_kept_for_the_whole_window(
    late_s: float, kept_from: int
) -> None:
    clock = Clock()
    retention = OutcomeRetention(clock, position=500)

    clock.now_s += WINDOW_S + late_s

    assert retention.order(BUSY) == kept_from


def test_what_is_old_is_kept_while_too_few_events_followed() -> None:
    clock = Clock()
    retention = OutcomeRetention(clock, position=500)
    clock.now_s += WINDOW_S + 1
    last = OUTCOME_WINDOW_POSITIONS + 100

    assert retention.order(last) == 101


def test_an_order_keeps_what_was_recorded_within_the_window() -> None:
    """A sample each second: what is forgotten is a window old, and at most two samples more."""
    clock = Clock()
    position = 1
    retention = OutcomeRetention(clock, position)
    positions: dict[float, int] = {clock.now_s: position}
    for _ in range(400):
        clock.now_s += 1.0
        position += 10_000
        positions[clock.now_s] = position

        kept_from = retention.order(position)

        within = [at for at_s, at in positions.items() if at_s > clock.now_s - WINDOW_S]
        assert kept_from <= min(within)
        if clock.now_s - 1_000.0 > WINDOW_S:
            assert kept_from >= min(within) - 2 * 10_000


def test_a_rejection_that_moved_no_position_is_kept_as_long_as_the_rest() -> None:
    """1. Position 500 is seen. 2. A window later a rejection is recorded there. 3. Events follow:
    the rejection stands at 500 as well, and is young."""
    clock = Clock()
    retention = OutcomeRetention(clock, position=500)
    clock.now_s += WINDOW_S + 1

    assert retention.order(BUSY) <= 500
