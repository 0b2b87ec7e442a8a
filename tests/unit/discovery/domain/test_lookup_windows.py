"""Lookups cut into minutes: each counts once, in the minute in which it was answered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from discovery.domain.lookup_windows import LookupTally, LookupWindows
from nextgen.kernel.governance.lookup_slo import LOOKUP_MS_MAX, LOOKUP_WINDOW_MS, added

START_MS = 1_763_800_020_000
"""20 s into a minute."""

MINUTE_MS = START_MS - 20_000 if (START_MS - 20_000) % 60_000 == 0 else START_MS // 60_000 * 60_000


def windows() -> LookupWindows:
    return LookupWindows("d1", "w1-5", START_MS)


def test_a_window_begins_with_its_minute_and_ends_with_it():
    tally, made = LookupTally(), windows()
    tally.add(3)

    assert made.advance(MINUTE_MS + LOOKUP_WINDOW_MS - 1, tally) is None
    window = made.advance(MINUTE_MS + LOOKUP_WINDOW_MS, tally)

    assert window is not None
    assert (window.node_id, window.process, window.began_at_ms) == ("d1", "w1-5", MINUTE_MS)
    assert (window.lookups, window.errors) == (1, 0)
    assert made.ends_at_ms == MINUTE_MS + 2 * LOOKUP_WINDOW_MS


def test_a_minute_in_which_nobody_asked_is_none():
    tally, made = LookupTally(), windows()

    assert made.advance(MINUTE_MS + LOOKUP_WINDOW_MS, tally) is None
    assert made.ends_at_ms == MINUTE_MS + 2 * LOOKUP_WINDOW_MS


def test_answers_of_the_cache_are_of_the_first_class():
    tally, made = LookupTally(), windows()
    tally.at_once += 5
    tally.add(0.4, lookups=2)

    window = made.finish(START_MS, tally)

    assert window is not None
    assert window.latency_counts[0] == window.lookups == 7


def test_expired_requests_count_as_failed_whatever_the_answer():
    tally = LookupTally()
    tally.add(LOOKUP_MS_MAX)
    tally.add(LOOKUP_MS_MAX + 1, lookups=4, failed=1)

    assert (tally.errors, tally.latency_counts[-1], tally.latency_counts[-2]) == (4, 4, 1)


def test_a_lookup_that_was_given_up_counts_only_after_the_promised_time():
    tally = LookupTally()
    tally.given_up(LOOKUP_MS_MAX)
    assert sum(tally.counts()) == 0

    tally.given_up(LOOKUP_MS_MAX + 1)

    assert (sum(tally.counts()), tally.errors) == (1, 1)


def test_a_clock_that_is_set_back_opens_no_window_a_second_time():
    tally, made = LookupTally(), windows()
    tally.add(1)
    first = made.advance(MINUTE_MS + LOOKUP_WINDOW_MS, tally)
    tally.add(1)

    assert made.advance(MINUTE_MS - 10 * LOOKUP_WINDOW_MS, tally) is None
    second = made.advance(MINUTE_MS + 2 * LOOKUP_WINDOW_MS, tally)

    assert first is not None
    assert second is not None
    assert second.began_at_ms == first.began_at_ms + LOOKUP_WINDOW_MS


def test_after_a_long_pause_the_next_window_is_that_of_the_present_minute():
    tally, made = LookupTally(), windows()
    tally.add(1)

    window = made.advance(MINUTE_MS + 7 * LOOKUP_WINDOW_MS + 5, tally)

    assert window is not None
    assert window.began_at_ms == MINUTE_MS
    assert made.ends_at_ms == MINUTE_MS + 8 * LOOKUP_WINDOW_MS


@given(
    st.lists(st.tuples(st.integers(0, 90_000), st.floats(0, 4_000), st.integers(0, 3)), max_size=60)
)
def test_no_lookup_is_lost_and_none_counts_twice(steps):
    tally, made, now_ms = LookupTally(), windows(), START_MS
    found, ends = [], []
    for wait_ms, latency_ms, at_once in steps:
        now_ms += wait_ms
        found.append(made.advance(now_ms, tally))
        tally.add(latency_ms, failed=1)
        tally.at_once += at_once
    found.append(made.finish(now_ms, tally))

    total, errors = (0,) * len(tally.counts()), 0
    for window in filter(None, found):
        total, errors = added(total, window.latency_counts), errors + window.errors
        ends.append(window.began_at_ms)
        assert window.began_at_ms % LOOKUP_WINDOW_MS == 0
    assert (total, errors) == (tally.counts(), tally.errors)
    assert ends == sorted(set(ends))
