"""Pins keep the log, within bounds; the log is cut a few files at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.snapshot import (
    LOG_CUT_SEGMENTS_MAX,
    LOG_PINS_MAX,
    LOG_TAIL_BYTES_MAX,
    PINNED_LOG_BYTES_MAX,
)
from nextgen.replication.ports import PositionCompacted
from nextgen.replication.retention.log_retention import LogRetention

SEGMENT_BYTES = 8 * 1024 * 1024
ENTRIES_PER_SEGMENT = 10
SEGMENTS = 100


class CountedLog:
    """A log of one event per entry, ten entries per segment. Durable when ``turn`` says so."""

    def __init__(self) -> None:
        self.first_index = 1
        self.last_index = SEGMENTS * ENTRIES_PER_SEGMENT
        self.most_at_once = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def base_position(self) -> int:
        return self.first_index - 1

    def index_of_position(self, position: int) -> int:
        return min(position, self.last_index + 1)

    def bytes_before(self, index: int) -> int:
        return self._segments_before(index) * SEGMENT_BYTES

    def cut_before(self, index: int, *, segments_max: int | None = None) -> bool:
        segments = self._segments_before(index)
        dropped = min(segments, segments_max or segments)
        self.most_at_once = max(self.most_at_once, dropped)
        self.first_index += dropped * ENTRIES_PER_SEGMENT
        return dropped < segments

    def when_durable(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def turn(self) -> bool:
        """Let what waits become durable; False if nothing waits."""
        if not self._waiting:
            return False
        self._waiting.popleft()()
        return True

    def settle(self) -> None:
        while self.turn():
            pass

    def _segments_before(self, index: int) -> int:
        return max(0, (index - self.first_index) // ENTRIES_PER_SEGMENT)


async def test_the_log_is_cut_behind_a_snapshot_and_not_elsewhere() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    retention.pin("events", 1).release()
    log.settle()
    assert log.first_index == 1

    retention.allow_cut_before(501)
    log.settle()

    assert log.first_index == 501


async def test_the_last_entries_that_the_view_has_stay_if_they_are_small() -> None:
    log = CountedLog()
    retention = LogRetention(log)

    retention.view_durable(500, tail_entries=8)
    log.settle()

    assert log.first_index == 491


async def test_no_more_than_so_many_bytes_that_the_view_has_stay() -> None:
    segments = LOG_TAIL_BYTES_MAX // SEGMENT_BYTES
    log = CountedLog()
    retention = LogRetention(log)

    retention.view_durable(500, tail_entries=10_000)
    log.settle()

    assert log.first_index == 501 - segments * ENTRIES_PER_SEGMENT


async def test_files_go_a_few_at_a_time() -> None:
    log = CountedLog()
    retention = LogRetention(log)

    retention.allow_cut_before(501)
    assert log.first_index == 1 + LOG_CUT_SEGMENTS_MAX * ENTRIES_PER_SEGMENT
    log.settle()

    assert log.most_at_once == LOG_CUT_SEGMENTS_MAX
    assert log.first_index == 501


async def test_a_wait_for_a_cut_ends_when_it_is_durable_and_when_everything_ends() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    retention.allow_cut_before(101)
    log.settle()
    await retention.wait_cut()

    retention.allow_cut_before(501)
    retention.stop()
    await retention.wait_cut()

    assert log.first_index < 501


async def test_a_pin_keeps_the_log_until_it_advances_and_is_released() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    pin = retention.pin("events", 400)

    retention.allow_cut_before(501)
    log.settle()
    assert (log.first_index, retention.pin_count) == (391, 1)
    assert retention.pinned_bytes == 11 * SEGMENT_BYTES

    pin.advance(450)
    pin.advance(420)
    retention.allow_cut_before(502)
    log.settle()
    assert log.first_index == 441

    pin.release()
    pin.release()
    log.settle()
    assert (log.first_index, retention.pin_count, retention.pinned_bytes) == (501, 0, 0)
    assert not pin.is_broken


async def test_a_pin_of_what_is_gone_is_refused() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    retention.allow_cut_before(501)
    log.settle()

    with pytest.raises(PositionCompacted) as raised:
        retention.pin("events", 500)

    assert raised.value.oldest == 501
    assert retention.pin("events", 501)


async def test_there_are_so_many_pins_and_not_one_more() -> None:
    retention = LogRetention(CountedLog())
    pins = [retention.pin(f"{number}", 1) for number in range(LOG_PINS_MAX)]

    with pytest.raises(Overloaded):
        retention.pin("one more", 1)

    pins[0].release()
    assert retention.pin("one more", 1)


async def test_pins_keep_so_many_bytes_and_not_one_file_more() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    segments = PINNED_LOG_BYTES_MAX // SEGMENT_BYTES
    pin = retention.pin("events", 1)

    retention.allow_cut_before(1 + segments * ENTRIES_PER_SEGMENT)
    log.settle()
    assert (pin.is_broken, retention.pinned_bytes) == (False, PINNED_LOG_BYTES_MAX)

    retention.allow_cut_before(1 + (segments + 1) * ENTRIES_PER_SEGMENT)
    log.settle()
    assert (pin.is_broken, retention.pin_count) == (True, 0)
    assert log.first_index == 1 + (segments + 1) * ENTRIES_PER_SEGMENT


async def test_the_pin_that_keeps_most_is_broken_and_no_other() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    fast, slow = retention.pin("fast", 900), retention.pin("slow", 100)

    retention.allow_cut_before(901)
    log.settle()

    assert (slow.is_broken, fast.is_broken) == (True, False)
    assert log.first_index == 891


async def test_a_log_that_was_replaced_by_a_snapshot_breaks_the_pins_before_it() -> None:
    log = CountedLog()
    retention = LogRetention(log)
    before, behind = retention.pin("before", 100), retention.pin("behind", 700)
    log.first_index = 601

    retention.allow_cut_before(651)
    log.settle()

    assert (before.is_broken, behind.is_broken) == (True, False)
    assert log.first_index == 651
