"""Where the spans of this process go: to a collector (OTLP over gRPC), into a file, or both.

Only this module needs OpenTelemetry's SDK, and imports it when something is configured: a process
without traces pays for neither its import nor its memory. Spans are written by a thread.

A line of a trace file is one ended span:

    {"trace_id": "…32…", "span_id": "…16…", "parent_id": "…16…", "name": "shard.execute",
     "start_ns": …, "end_ns": …, "error": "", "process": "shard-node-1", "component": "shards",
     "attributes": {…}}
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.trace import TRACE_FLUSH_MS, TRACE_STOP_MS_MAX
from nextgen.runtime.settings import TraceSettings
from nextgen.runtime.telemetry import tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

TRACE_SPANS_WAITING_MAX = 8_192
"""Ended spans of a process that wait to be written or sent; beyond it they are dropped: a trace
is worth less than the work it describes. Some 8 MiB."""

TRACE_BATCH_SPANS_MAX = 512
"""Spans written or sent at once."""

TRACE_FILE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a trace file; then it becomes ``<name>.1``, in place of the one before, and another is
begun. Some 30,000 spans, and twice as much on disk."""

TRACE_ATTRIBUTES_MAX = 16
"""Attributes of one span."""

TRACE_ATTRIBUTE_CHARACTERS_MAX = 256
"""Characters of one attribute: a topic's name may be longer, and is cut."""

DISTRIBUTION = "pulsar-nextgen"


def version() -> str:
    """Return the release that is installed, ``unknown`` when run from a bare source tree."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def start_tracing(settings: TraceSettings, *, component: str, node_id: str) -> Callable[[], None]:
    """Record spans from here on if ``settings`` have a destination; return the stop function.

    Stopping waits at most ``TRACE_STOP_MS_MAX`` for recorded spans to be written.

    Raises:
        RefusesToStart: The trace file cannot be written.
    """
    if not settings.is_on:
        return _nothing
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.ratio)),
        resource=Resource(
            {
                "service.name": f"nextgen-{component}",
                "service.instance.id": node_id,
                "service.version": version(),
            }
        ),
        shutdown_on_exit=False,
        span_limits=SpanLimits(
            max_span_attributes=TRACE_ATTRIBUTES_MAX,
            max_span_attribute_length=TRACE_ATTRIBUTE_CHARACTERS_MAX,
        ),
    )
    for exporter in _exporters(settings, component, node_id):
        provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=TRACE_SPANS_WAITING_MAX,
                max_export_batch_size=TRACE_BATCH_SPANS_MAX,
                schedule_delay_millis=TRACE_FLUSH_MS,
            )
        )
    tracing.active = provider.get_tracer("nextgen", version())

    def stop() -> None:
        tracing.active = None
        # A daemon: a collector that hangs must not keep the process.
        thread = threading.Thread(target=provider.shutdown, name="trace-stop", daemon=True)
        thread.start()
        thread.join(TRACE_STOP_MS_MAX / 1_000)

    return stop


class TraceFile:
    """A file of JSON lines with at most ``bytes_max`` bytes, and the one before it."""

    def __init__(self, path: Path, *, bytes_max: int = TRACE_FILE_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def write(self, lines: Sequence[bytes]) -> None:
        """Append ``lines``, each with its line end. Raises ``OSError``."""
        for line in lines:
            if self._file.tell() and self._file.tell() + len(line) > self._bytes_max:
                self._rotate()
            self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
        self._file = self._path.open("ab")


def trace_path(given: Path, node_id: str) -> Path:
    """Return this process' trace file: ``given``, or one of its own in that directory."""
    return given / f"{node_id}.{os.getpid()}.jsonl" if given.is_dir() else given


def _exporters(settings: TraceSettings, component: str, node_id: str) -> list[SpanExporter]:
    exporters: list[SpanExporter] = []
    if settings.file is not None:
        path = trace_path(settings.file, node_id)
        try:
            file = TraceFile(path)
        except OSError as error:
            raise RefusesToStart(f"the trace file {path} cannot be written: {error}") from error
        exporters.append(_file_exporter(file, component, node_id))
    if settings.otlp_endpoint:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        exporters.append(
            OTLPSpanExporter(
                endpoint=settings.otlp_endpoint,
                insecure=not settings.otlp_endpoint.startswith("https://"),
            )
        )
    return exporters


def _file_exporter(file: TraceFile, component: str, node_id: str) -> SpanExporter:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class FileSpanExporter(SpanExporter):
        """Called by one thread."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            try:
                file.write([_line(each, component, node_id) for each in spans])
            except OSError:
                # A full disk costs spans, and nothing else.
                return SpanExportResult.FAILURE
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            file.close()

    return FileSpanExporter()


def _line(ended: ReadableSpan, component: str, node_id: str) -> bytes:
    context = ended.get_span_context()
    assert context is not None, "an ended span has a context"
    line: dict[str, Any] = {
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_id": f"{ended.parent.span_id:016x}" if ended.parent is not None else "",
        "name": ended.name,
        "start_ns": ended.start_time,
        "end_ns": ended.end_time,
        "error": "" if ended.status.is_ok else ended.status.description or "",
        "process": node_id,
        "component": component,
        "attributes": dict(ended.attributes or {}),
    }
    return json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"


def _nothing() -> None:
    return None
