"""Spans, their parents, and what they cost while tracing is off."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from nextgen.kernel.errors import Unavailable
from nextgen.runtime.telemetry import tracing
from nextgen.runtime.telemetry.logs import configure_logging
from tests.support.observability.traced import recorded_traces

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


def test_nothing_is_recorded_and_nothing_made_while_nobody_wants_traces() -> None:
    with tracing.span("a", TRACEPARENT) as first, tracing.span("b") as second:
        assert first is None
        assert second is None
        assert tracing.outgoing() == ""
    assert tracing.begin("c") is None
    assert tracing.span("a") is tracing.span("b", "", attribute=1)


def test_a_span_is_a_child_of_the_one_that_is_current() -> None:
    with recorded_traces() as recorded, tracing.span("outer", ""), tracing.span("inner"):
        pass

    outer, inner = recorded.one("outer"), recorded.one("inner")
    assert outer.parent is None
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id


def test_a_traceparent_of_another_process_is_the_parent() -> None:
    with recorded_traces() as recorded, tracing.span("here", TRACEPARENT):
        assert tracing.current_trace_id() == TRACE
        sent = tracing.outgoing()

    span = recorded.one("here")
    assert span.parent is not None
    assert span.parent.is_remote
    assert f"{span.parent.span_id:016x}" == SPAN
    assert sent == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_an_empty_parent_begins_a_trace_whatever_is_current() -> None:
    with recorded_traces() as recorded, tracing.span("outer", ""), tracing.span("inner", ""):
        pass

    assert recorded.one("inner").parent is None
    assert recorded.one("inner").context.trace_id != recorded.one("outer").context.trace_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "order-17",
        TRACEPARENT.upper(),
        TRACEPARENT[:-1],
        f"{TRACEPARENT}0",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{TRACEPARENT}\n",
    ],
)
def test_a_text_that_is_no_traceparent_names_no_span(text: str) -> None:
    assert tracing.parse_traceparent(text) is None
    assert tracing.logged_trace_id(text) == text


def test_a_later_version_may_have_more_behind_its_flags() -> None:
    parsed = tracing.parse_traceparent(f"01-{TRACE}-{SPAN}-01-more")

    assert parsed is not None
    assert f"{parsed.trace_id:032x}" == TRACE


def test_a_line_names_a_trace_only_if_it_is_recorded() -> None:
    assert tracing.logged_trace_id(TRACEPARENT) == TRACE
    assert tracing.logged_trace_id(f"00-{TRACE}-{SPAN}-00") == ""


def test_an_error_marks_the_span_by_its_kind_and_goes_on() -> None:
    with recorded_traces() as recorded, pytest.raises(Unavailable), tracing.span("fails", ""):
        raise Unavailable("no leader")

    assert recorded.one("fails").status.description == "UNAVAILABLE: no leader"
    assert not recorded.one("fails").events


async def test_a_cancelled_span_is_no_failure() -> None:
    async def wait() -> None:
        with tracing.span("waits", ""):
            await asyncio.Event().wait()

    with recorded_traces() as recorded:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    span = recorded.one("waits")
    assert span.status.is_unset
    assert dict(span.attributes or {}) == {"cancelled": True}


def test_recorded_steps_that_touch_are_in_order() -> None:
    now = time.monotonic()
    with recorded_traces() as recorded, tracing.span("whole", ""):
        tracing.record("first", now - 3, now - 2)
        tracing.record("second", now - 2, now - 1)

    first, second = recorded.one("first"), recorded.one("second")
    assert first.end_time == second.start_time
    assert abs((first.end_time or 0) - (first.start_time or 0) - 1_000_000_000) < 1_000
    assert abs((second.end_time or 0) / 1e9 - (time.time() - 1)) < 60


_FUTURE_NS = 9 * 10**18
"""Later than the present: what is not read from these clocks is out of order."""


class _Clocks:
    """Two clocks that every reading moves on by ``read_ns``, the wall's by more at times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *wall_reads_ns: int) -> None:
        self.now_ns = 1_000_000_000_000
        self.step_ns = 0
        self._wall_reads_ns = list(wall_reads_ns)
        monkeypatch.setattr(tracing, "time", self)
        monkeypatch.setattr(tracing._Offset, "value_ns", None)

    def monotonic_ns(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def time_ns(self) -> int:
        """The process may be stopped behind the reading and before its next one."""
        self.now_ns += 100
        found_ns = self.now_ns + _FUTURE_NS + self.step_ns
        if self._wall_reads_ns:
            self.now_ns += self._wall_reads_ns.pop(0)
        return found_ns


def test_moments_of_one_process_are_in_order_whichever_thread_records_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each reading of the wall clock takes another time: as wide as a reading's jitter gets.
    clocks = _Clocks(monkeypatch, *(number * 7_919 % 90_000 for number in range(100)))
    with recorded_traces() as recorded:
        for _ in range(20):
            with tracing.span("outer", ""):
                begun = tracing.begin("begun")
                tracing.record("recorded", clocks.monotonic(), clocks.monotonic(), begun)
                assert begun is not None
                tracing.end(begun)

    for inner, middle, outer in zip(*[iter(recorded.spans)] * 3, strict=True):
        starts = [span.start_time or 0 for span in (outer, middle, inner)]
        ends = [span.end_time or 0 for span in (inner, middle, outer)]
        assert starts + ends == sorted(set(starts + ends))


def test_a_process_that_stands_still_while_it_reads_its_clocks_is_believed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = _Clocks(monkeypatch, 50_000_000, 0, 70_000_000, 3_000)
    with recorded_traces() as recorded:
        tracing.record("first", 1_000.0, 1_000.0, "")
        tracing.record("second", 1_000.0, 1_000.0, "")

    assert clocks.now_ns > 1_000_120_000_000
    first, second = recorded.one("first"), recorded.one("second")
    assert abs((first.start_time or 0) - _FUTURE_NS - 10**12) < 1_000
    assert first.start_time == second.start_time


def test_a_step_of_the_wall_clock_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = _Clocks(monkeypatch)
    with recorded_traces() as recorded:
        tracing.record("before", 1_000.0, 1_000.0, "")
        clocks.step_ns = 3_600 * 10**9
        tracing.record("after", 1_000.0, 1_000.0, "")

    took_ns = (recorded.one("after").start_time or 0) - (recorded.one("before").start_time or 0)
    assert abs(took_ns - clocks.step_ns) < 1_000


def test_what_begins_in_timed_work_is_beside_it() -> None:
    def work() -> int:
        span = tracing.begin("commit")
        assert span is not None
        tracing.end(span)
        return 7

    with recorded_traces() as recorded, tracing.span("request", ""):
        assert tracing.timed("decide", work) == 7

    request = recorded.one("request").context.span_id
    for name in ("decide", "commit"):
        parent = recorded.one(name).parent
        assert parent is not None
        assert parent.span_id == request


def test_a_program_with_its_own_opentelemetry_is_asked_for_its_span() -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("the caller's")

    assert tracing.traceparent() == ""
    with tracer.start_as_current_span("theirs") as span:
        context = span.get_span_context()
        assert tracing.traceparent()[3:52] == f"{context.trace_id:032x}-{context.span_id:016x}"


def test_a_log_line_names_the_trace_it_belongs_to(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="info", log_format="json")
    logger = structlog.get_logger()

    with recorded_traces(), tracing.span("here", TRACEPARENT):
        logger.info("inside")
    logger.info("outside")

    inside, outside = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert inside["trace_id"] == TRACE
    assert "trace_id" not in outside
