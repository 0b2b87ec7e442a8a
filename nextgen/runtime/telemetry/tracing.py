"""Spans of this process, and the propagation of traces between processes.

Needs OpenTelemetry's API only; ``trace_export.start_tracing`` brings the SDK and sets ``active``.
Until then every function here costs one check of ``active``:

    if tracing.active is not None:
        ...

Every start and end is read from the monotonic clock, and written as wall time. So the moments of
one process are in order, whichever function recorded them.

Between processes a trace travels as a W3C ``traceparent``: in gRPC's metadata with unary calls, in
the field ``trace_id`` of messages on streams. Another text in that field is passed on and logged.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, Tracer
from opentelemetry.trace.span import TraceFlags
from opentelemetry.util.types import AttributeValue

T = TypeVar("T")

METADATA_KEY = "traceparent"
"""Key of gRPC's metadata (W3C Trace Context, section 3.2)."""

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_ROOT = Context()
_OFFSET_STEP_NS = 100_000
_OFFSET_READS_MAX = 10
_OFFSET_BRACKET_NS_MAX = 5_000
_OFF: AbstractContextManager[Span | None] = nullcontext(None)

active: Tracer | None = None
"""Makes the spans of this process; None: nothing is recorded. Set by ``start_tracing``."""


def span(
    name: str, parent: str | None = None, **attributes: AttributeValue
) -> AbstractContextManager[Span | None]:
    """Return a context manager for work that is a span, the current one inside; None if off.

    ``parent`` is a ``traceparent``; an empty or invalid one begins a trace, and None makes a child
    of the current span. An exception marks the span as failed and propagates.
    """
    if active is None:
        return _OFF
    return _current_span(active, name, parent, attributes)


def begin(name: str, parent: str | None = None, **attributes: AttributeValue) -> Span | None:
    """Return a span that is not the current one; ``end`` ends it. ``parent`` as in ``span``."""
    if active is None:
        return None
    return active.start_span(
        name,
        context=_context_of(parent),
        start_time=_wall_ns(time.monotonic()),
        attributes=attributes,
    )


def end(begun: Span, at: float | None = None) -> None:
    """End a span of ``begin`` at a moment of ``time.monotonic()``, the present by default."""
    begun.end(end_time=_wall_ns(time.monotonic() if at is None else at))


def record(
    name: str,
    began_at: float,
    ended_at: float,
    parent: Span | str | None = None,
    **attributes: AttributeValue,
) -> None:
    """Record work that is over. Times are ``time.monotonic()``'s, in seconds.

    ``parent`` is a span of this process, or as in ``span``.
    """
    if active is None:
        return
    if isinstance(parent, Span):
        context: Context | None = trace.set_span_in_context(parent, _ROOT)
    else:
        context = _context_of(parent)
    child = active.start_span(
        name,
        context=context,
        start_time=_wall_ns(began_at),
        attributes=attributes,
    )
    end(child, ended_at)


def timed(name: str, work: Callable[[], T], **attributes: AttributeValue) -> T:
    """Return the result of ``work``. Its span is a sibling, not the parent, of spans inside it."""
    if active is None:
        return work()
    began_at = time.monotonic()
    try:
        return work()
    finally:
        record(name, began_at, time.monotonic(), None, **attributes)


def traceparent() -> str:
    """Return the current span as a ``traceparent``, "" if there is none.

    A program with its own OpenTelemetry has one here too, whether or not ``active`` is set.
    """
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def outgoing() -> str:
    """As ``traceparent``, if this process records traces; else ""."""
    return "" if active is None else traceparent()


def current_trace_id() -> str:
    """Return the current trace's id for log lines, 32 hexadecimal digits, or ""."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def logged_trace_id(text: str) -> str:
    """Return ``text`` as log lines show it: the id of the trace that it names, or ``text`` itself.

    "" for a trace that is not recorded.
    """
    found = parse_traceparent(text)
    if found is None:
        return text
    return f"{found.trace_id:032x}" if found.trace_flags.sampled else ""


def parse_traceparent(text: str) -> SpanContext | None:
    """Return the remote span that ``text`` names, None if it is not a ``traceparent``."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    context = SpanContext(
        int(found[1], 16),
        int(found[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(found[3], 16)),
    )
    return context if context.is_valid else None


@contextmanager
def _current_span(
    tracer: Tracer, name: str, parent: str | None, attributes: dict[str, AttributeValue]
) -> Iterator[Span]:
    current = tracer.start_span(
        name,
        context=_context_of(parent),
        start_time=_wall_ns(time.monotonic()),
        attributes=attributes,
    )
    with trace.use_span(current, record_exception=False, set_status_on_exception=False):
        try:
            yield current
        except asyncio.CancelledError:
            current.set_attribute("cancelled", True)
            raise
        except BaseException as error:
            fail(current, error)
            raise
        finally:
            end(current)


class _Offset:
    """Wall clock minus monotonic clock in ns, as it was read first.

    No reading is exact: only a difference larger than the reading's own duration is taken for a
    step of the wall clock, and adopted.
    """

    value_ns: int | None = None

    @classmethod
    def current_ns(cls) -> int:
        if cls.value_ns is None:
            cls.value_ns = cls._read_well()
            return cls.value_ns
        found_ns, bracket_ns = cls._read()
        if abs(found_ns - cls.value_ns) > _OFFSET_STEP_NS + bracket_ns:
            cls.value_ns = cls._read_well()
        return cls.value_ns

    @classmethod
    def _read_well(cls) -> int:
        """Return the best of some readings: one during which the process paused is inexact."""
        best_ns, best_bracket_ns = cls._read()
        for _ in range(_OFFSET_READS_MAX - 1):
            if best_bracket_ns <= _OFFSET_BRACKET_NS_MAX:
                break
            found_ns, bracket_ns = cls._read()
            if bracket_ns < best_bracket_ns:
                best_ns, best_bracket_ns = found_ns, bracket_ns
        return best_ns

    @staticmethod
    def _read() -> tuple[int, int]:
        """Return the offset, and the reading's duration: the error is at most half of that."""
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        bracket_ns = time.monotonic_ns() - before_ns
        return wall_ns - before_ns - bracket_ns // 2, bracket_ns


def _wall_ns(monotonic_s: float) -> int:
    return int(monotonic_s * 1e9) + _Offset.current_ns()


def fail(failed: Span, error: BaseException) -> None:
    """Mark a span as failed with ``error``'s kind and sentence; tracebacks are for the logs."""
    kind = getattr(error, "reason", None) or type(error).__name__
    failed.set_status(Status(StatusCode.ERROR, f"{kind}: {error}"))


def _context_of(parent: str | None) -> Context | None:
    if parent is None:
        return None
    remote = parse_traceparent(parent)
    if remote is None:
        return _ROOT
    return trace.set_span_in_context(NonRecordingSpan(remote), _ROOT)
