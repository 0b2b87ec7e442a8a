"""Diagnostics on standard error: JSON lines for machines, coloured lines for people.

Standard output stays free for what a command prints. Records of libraries that use ``logging``
(grpc, aiohttp, asyncio) come out in the same form.

A line may contain text from a peer, and a peer may cause any number of lines. So fields are cut to
``LOG_FIELD_CHARACTERS_MAX``, and ``log_rate`` limits the lines of each kind.
"""

from __future__ import annotations

import logging
import os
import sys
from enum import StrEnum
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.inbound import (
    LOG_EVENT_CHARACTERS_MAX,
    LOG_EXCEPTION_CHARACTERS_MAX,
    LOG_FIELD_CHARACTERS_MAX,
    LOG_ITEMS_MAX,
)
from nextgen.runtime.telemetry import tracing
from nextgen.runtime.telemetry.log_rate import LimitedLines, LogRate, limited, written_with_context

LEVEL_VARIABLE = "NEXTGEN_LOG_LEVEL"
FORMAT_VARIABLE = "NEXTGEN_LOG_FORMAT"

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_TRACEBACKS = frozenset({"exception", "stack"})
_OF_LIBRARIES = frozenset({"exc_info", "stack_info", "_record", "_from_structlog"})
"""Fields of a line that a renderer turns into text, and that are not cut."""

_MIDDLE = "\n...\n"


class LogFormat(StrEnum):
    """The format of a line."""

    JSON = "json"
    CONSOLE = "console"


def configure_logging(
    *, level: str | None = None, log_format: str | None = None, **context: object
) -> None:
    """Set up diagnostics for this process; ``context`` (component, node id) is on every line.

    Level and format default to ``NEXTGEN_LOG_LEVEL`` (default ``info``) and
    ``NEXTGEN_LOG_FORMAT`` (default ``console`` on a terminal, else ``json``).

    Raises:
        RefusesToStart: A level or format that does not exist.
    """
    threshold = _threshold(level or os.environ.get(LEVEL_VARIABLE) or "info")
    renderer = _renderer(_format(log_format or os.environ.get(FORMAT_VARIABLE)))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.contextvars.bind_contextvars(**context)
    rate = LogRate(written_with_context())
    structlog.configure(
        processors=[limited(rate), *shared, *_endings(renderer)],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    _route_libraries(threshold, shared, renderer, rate)


def _add_trace_id(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the id of the trace that a line belongs to."""
    if tracing.active is not None and "trace_id" not in event:
        trace_id = tracing.current_trace_id()
        if trace_id:
            event["trace_id"] = trace_id
    return event


def _endings(renderer: Processor) -> list[Processor]:
    """Return the processors that render a line. The console renders tracebacks itself."""
    if isinstance(renderer, structlog.processors.JSONRenderer):
        return [structlog.processors.format_exc_info, cut_fields, renderer]
    return [cut_fields, renderer]


def cut_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut each field of a line to its limit."""
    for name, value in event.items():
        if name == "event":
            event[name] = shortened(str(value), LOG_EVENT_CHARACTERS_MAX)
        elif name in _TRACEBACKS:
            event[name] = _without_middle(str(value))
        elif name not in _OF_LIBRARIES:
            event[name] = _cut(value)
    return event


def _cut(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_cut(item) for item in list(value)[:LOG_ITEMS_MAX]]
    if isinstance(value, dict):
        return {str(_cut(key)): _cut(value[key]) for key in list(value)[:LOG_ITEMS_MAX]}
    return shortened(str(value), LOG_FIELD_CHARACTERS_MAX)


def _without_middle(text: str) -> str:
    if len(text) <= LOG_EXCEPTION_CHARACTERS_MAX:
        return text
    half = (LOG_EXCEPTION_CHARACTERS_MAX - len(_MIDDLE)) // 2
    return text[:half] + _MIDDLE + text[-half:]


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to standard error as it is by then. A command that a program runs within itself may
    have one of its own that is closed when the command ends, while libraries still have to say
    what became of its connections."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _route_libraries(
    threshold: int, shared: list[Processor], renderer: Processor, rate: LogRate
) -> None:
    handler = _Stderr()
    handler.addFilter(LimitedLines(rate))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_endings(renderer),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries log every connection at INFO; operators want the cluster's own lines.
    root.setLevel(max(threshold, logging.WARNING) if threshold > logging.DEBUG else threshold)


def _threshold(level: str) -> int:
    try:
        return _LEVELS[level.lower()]
    except KeyError:
        known = ", ".join(_LEVELS)
        raise RefusesToStart(f"log level {level!r} does not exist, use one of {known}") from None


def _format(name: str | None) -> LogFormat:
    if not name:
        return LogFormat.CONSOLE if sys.stderr.isatty() else LogFormat.JSON
    try:
        return LogFormat(name.lower())
    except ValueError:
        raise RefusesToStart(f"log format {name!r} does not exist, use json or console") from None


def _renderer(log_format: LogFormat) -> Processor:
    if log_format is LogFormat.JSON:
        return structlog.processors.JSONRenderer(default=str)
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
