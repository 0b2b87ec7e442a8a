from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
import structlog

from nextgen.kernel.limits.inbound import (
    LOG_EVENT_CHARACTERS_MAX,
    LOG_EXCEPTION_CHARACTERS_MAX,
    LOG_FIELD_CHARACTERS_MAX,
    LOG_ITEMS_MAX,
    LOG_KINDS_MAX,
    LOG_LINES_PER_KIND_MAX,
    LOG_WINDOW_MS,
)
from nextgen.runtime.telemetry.log_rate import LEFT_OUT, OTHER_KINDS, LogRate
from nextgen.runtime.telemetry.logs import configure_logging, cut_fields

Written = list[tuple[str, str, int]]


class RateWorld:
    """A clock and a timer that the test moves, and what was written."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.written: Written = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.rate = LogRate(
            lambda level, kind, lines: self.written.append((level, kind, lines)),
            clock=lambda: self.now_s,
            call_later=lambda delay_s, call: self.timers.append((self.now_s + delay_s, call)),
        )

    def lines(self, kind: str, count: int, level: str = "info") -> int:
        """Return how many of so many lines are written."""
        return sum(self.rate.admits(kind, level) for _ in range(count))

    def pass_window(self) -> None:
        self.now_s += LOG_WINDOW_MS / 1_000
        due = [call for at_s, call in self.timers if at_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_s]
        for call in due:
            call()


@pytest.fixture
def world() -> RateWorld:
    return RateWorld()


def test_log_lines_per_kind_max_are_written_and_one_more_is_left_out(world: RateWorld) -> None:
    assert world.lines("closed", LOG_LINES_PER_KIND_MAX) == LOG_LINES_PER_KIND_MAX
    assert world.timers == []

    assert world.lines("closed", 1) == 0
    assert world.lines("opened", 1) == 1


def test_the_number_of_lines_left_out_is_written_though_none_follows(world: RateWorld) -> None:
    world.lines("closed", LOG_LINES_PER_KIND_MAX + 7)
    assert world.written == []

    world.pass_window()

    assert world.written == [("info", "closed", 7)]
    assert world.timers == []


def test_after_log_window_ms_lines_are_written_again(world: RateWorld) -> None:
    world.lines("closed", LOG_LINES_PER_KIND_MAX + 1)
    world.now_s += LOG_WINDOW_MS / 1_000 - 0.001
    assert world.lines("closed", 1) == 0

    world.now_s += 0.001

    assert world.lines("closed", 1) == 1
    assert world.written == [("info", "closed", 2)]
    world.pass_window()
    assert world.written == [("info", "closed", 2)]


def test_a_flood_that_goes_on_is_counted_in_every_window(world: RateWorld) -> None:
    for _ in range(3):
        world.lines("closed", 1_000, "warning")
        world.pass_window()

    left_out = 1_000 - LOG_LINES_PER_KIND_MAX
    assert world.written == [("warning", "closed", left_out)] * 3


def test_log_kinds_max_are_counted_apart_and_one_more_with_all_others(world: RateWorld) -> None:
    for number in range(LOG_KINDS_MAX):
        assert world.lines(f"kind {number}", 1) == 1

    written = sum(world.lines(f"another {number}", 1) for number in range(1_000))

    assert written == LOG_LINES_PER_KIND_MAX
    assert world.lines("kind 0", LOG_LINES_PER_KIND_MAX) == LOG_LINES_PER_KIND_MAX - 1
    world.pass_window()
    left_out = 1_000 - LOG_LINES_PER_KIND_MAX
    assert set(world.written) == {("info", OTHER_KINDS, left_out), ("info", "kind 0", 1)}
    assert world.lines("another 0", 1) == 1


def test_critical_lines_are_always_written(world: RateWorld) -> None:
    assert world.lines("broken", 1_000, "critical") == 1_000


# Lines of a process --------------------------------------------------------------------------


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("is_librarys", [False, True], ids=["ours", "a library's"])
def test_a_repeated_line_is_written_a_few_times_whatever_its_values(
    capsys: pytest.CaptureFixture[str], is_librarys: bool
) -> None:
    configure_logging(log_format="json", node_id="broker-1")

    for number in range(10 * LOG_LINES_PER_KIND_MAX):
        if is_librarys:
            logging.getLogger("grpc").error("invalid metadata of %d", number)
        else:
            structlog.get_logger().info("ack refused", peer=number)

    assert len(lines(capsys)) == LOG_LINES_PER_KIND_MAX


def test_a_line_about_lines_left_out_has_the_fields_of_its_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Callable[[], None]] = []
    monkeypatch.setattr(
        "nextgen.runtime.telemetry.log_rate._call_on_a_thread",
        lambda _delay_s, call: timers.append(call),
    )
    configure_logging(log_format="json", node_id="broker-1")
    for _ in range(LOG_LINES_PER_KIND_MAX + 3):
        structlog.get_logger().warning("ack refused")
    monkeypatch.setattr("nextgen.runtime.telemetry.log_rate.LOG_WINDOW_MS", 0)
    (flush,) = timers

    flush()

    last = lines(capsys)[-1]
    assert last.pop("timestamp")
    assert last == {
        "event": LEFT_OUT,
        "kind": "ack refused",
        "level": "warning",
        "lines": 3,
        "node_id": "broker-1",
    }


def cut(**fields: object) -> dict[str, object]:
    return dict(cut_fields(None, "info", dict(fields)))


def test_log_field_characters_max_are_written_of_a_field_and_one_more_is_cut() -> None:
    at_limit = "x" * LOG_FIELD_CHARACTERS_MAX

    assert cut(reason=at_limit, number=7, ratio=0.5, none=None, is_live=True) == {
        "reason": at_limit,
        "number": 7,
        "ratio": 0.5,
        "none": None,
        "is_live": True,
    }
    assert cut(reason=at_limit + "x")["reason"] == at_limit[:-3] + "..."
    assert cut(why=ValueError("y" * 1_000))["why"] == "y" * (LOG_FIELD_CHARACTERS_MAX - 3) + "..."
    assert cut(names=[at_limit + "x"], known={"a" * 1_000: at_limit + "x"}) == {
        "names": [at_limit[:-3] + "..."],
        "known": {"a" * (LOG_FIELD_CHARACTERS_MAX - 3) + "...": at_limit[:-3] + "..."},
    }


def test_log_items_max_are_written_of_a_list_and_one_more_is_not() -> None:
    items = list(range(LOG_ITEMS_MAX + 1))

    assert cut(shards=items[:-1])["shards"] == items[:-1]
    assert cut(shards=items)["shards"] == items[:-1]


def test_log_event_characters_max_are_written_of_a_sentence_and_one_more_is_cut() -> None:
    at_limit = "x" * LOG_EVENT_CHARACTERS_MAX

    assert cut(event=at_limit)["event"] == at_limit
    assert cut(event=at_limit + "x")["event"] == at_limit[:-3] + "..."


def test_log_exception_characters_max_are_written_of_a_traceback_and_of_more_both_ends() -> None:
    at_limit = "a" * (LOG_EXCEPTION_CHARACTERS_MAX - 3) + "end"

    assert cut(exception=at_limit)["exception"] == at_limit
    longer = str(cut(exception="begin" + at_limit)["exception"])
    assert len(longer) <= LOG_EXCEPTION_CHARACTERS_MAX
    assert (longer[:6], longer[-4:]) == ("begina", "aend")
