"""Traces of the test's own process, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nextgen.runtime.telemetry import trace_export, tracing


def wait_for_spans_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process that stops wait for what is written however slow the machine is.

    In production it gives up soon, and the spans that are not written by then are lost.
    """
    monkeypatch.setattr(trace_export, "TRACE_STOP_MS_MAX", 60_000)


class Recorded:
    """The spans that ended, in that order."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@contextmanager
def recorded_traces() -> Iterator[Recorded]:
    """Record every span while the body runs."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert tracing.active is None, "one at a time"
    tracing.active = provider.get_tracer("test")
    try:
        yield Recorded(exporter)
    finally:
        tracing.active = None
        provider.shutdown()
