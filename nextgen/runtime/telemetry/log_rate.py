"""Limits the log lines of one kind: a peer that repeats itself cannot fill a disk.

A kind is a sentence without its values. The first ``LOG_LINES_PER_KIND_MAX`` lines of a window are
written; one line at the window's end has the number of the others. Lines at CRITICAL are always
written: after them the process stops, or serves no more.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from structlog.typing import EventDict, WrappedLogger

from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.inbound import (
    LOG_FIELD_CHARACTERS_MAX,
    LOG_KINDS_MAX,
    LOG_LINES_PER_KIND_MAX,
    LOG_WINDOW_MS,
)

LEFT_OUT = "lines left out"
"""The line that replaces those that were not written, with their ``kind``."""

OTHER_KINDS = "other kinds"
"""The kind of lines beyond ``LOG_KINDS_MAX`` kinds."""

_UNLIMITED = "critical"


@dataclass(slots=True)
class _Window:
    began_at: float
    level: str
    lines: int = 0
    left_out: int = 0


class LogRate:
    """Decides for each line whether it is written. Safe to use from any thread.

    ``write`` is called with level, kind and number of the lines that were left out: when the next
    line of the kind comes after the window, or a window's length after the first one left out.
    """

    def __init__(
        self,
        write: Callable[[str, str, int], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        self._write = write
        self._clock = clock
        self._call_later = call_later or _call_on_a_thread
        self._windows: dict[str, _Window] = {}
        self._is_armed = False
        self._lock = threading.Lock()

    def admits(self, kind: str, level: str) -> bool:
        """Count a line and return whether it is written."""
        if level == _UNLIMITED:
            return True
        with self._lock:
            now = self._clock()
            ended = self._ended(now) if self._is_full_for(kind) else []
            if self._is_full_for(kind):
                kind = OTHER_KINDS
            window = self._windows.get(kind)
            if window is None or self._is_over(window, now):
                if window is not None and window.left_out:
                    ended.append((window.level, kind, window.left_out))
                window = self._windows[kind] = _Window(now, level)
            window.lines += 1
            is_admitted = window.lines <= LOG_LINES_PER_KIND_MAX
            window.left_out += not is_admitted
            must_arm = not is_admitted and not self._is_armed
            self._is_armed = self._is_armed or must_arm
        self._report(ended)
        if must_arm:
            self._call_later(LOG_WINDOW_MS / 1_000, self.flush)
        return is_admitted

    def flush(self) -> None:
        """Write the left-out counts of ended windows. Called again while other windows are open."""
        with self._lock:
            ended = self._ended(self._clock())
            self._is_armed = any(window.left_out for window in self._windows.values())
            must_arm = self._is_armed
        self._report(ended)
        if must_arm:
            self._call_later(LOG_WINDOW_MS / 1_000, self.flush)

    def _ended(self, now: float) -> list[tuple[str, str, int]]:
        """Remove the ended windows; return their left-out counts."""
        over = [kind for kind, window in self._windows.items() if self._is_over(window, now)]
        windows = [(kind, self._windows.pop(kind)) for kind in over]
        return [
            (window.level, kind, window.left_out) for kind, window in windows if window.left_out
        ]

    def _is_full_for(self, kind: str) -> bool:
        return len(self._windows) >= LOG_KINDS_MAX and kind not in self._windows

    @staticmethod
    def _is_over(window: _Window, now: float) -> bool:
        return (now - window.began_at) * 1_000 >= LOG_WINDOW_MS

    def _report(self, ended: list[tuple[str, str, int]]) -> None:
        for level, kind, left_out in ended:
            self._write(level, kind, left_out)


class LimitedLines(logging.Filter):
    """Drops records of libraries beyond ``rate``."""

    def __init__(self, rate: LogRate) -> None:
        super().__init__()
        self._rate = rate

    def filter(self, record: logging.LogRecord) -> bool:
        sentence = str(record.msg).partition("\n")[0]
        kind = shortened(f"{record.name}: {sentence}", LOG_FIELD_CHARACTERS_MAX // 2)
        return self._rate.admits(kind, record.levelname.lower())


def limited(rate: LogRate) -> Callable[[WrappedLogger, str, EventDict], EventDict]:
    """Return the processor that drops lines beyond ``rate``."""

    def process(_logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
        sentence = event.get("event")
        if sentence == LEFT_OUT or rate.admits(str(sentence), level):
            return event
        raise structlog.DropEvent

    return process


def written_with_context() -> Callable[[str, str, int], None]:
    """Return a function that writes ``LEFT_OUT`` lines with the fields of this context."""
    context = contextvars.copy_context()
    logger = structlog.get_logger(__name__)

    def write(level: str, kind: str, left_out: int) -> None:
        # A copy: one context cannot be entered by two threads at a time.
        context.copy().run(getattr(logger, level), LEFT_OUT, kind=kind, lines=left_out)

    return write


def _call_on_a_thread(delay_s: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()
