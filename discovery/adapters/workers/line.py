"""The channel between a worker and the process that started it: reports, one per line of text.

The channel is a pair of connected sockets, one of which the worker inherits. A worker reports every
``WORKER_REPORT_MS`` and on request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

from discovery.service.report import Report
from nextgen.kernel.limits.pulsar import WORKER_REPORT_BYTES_MAX, WORKER_REPORT_MS

_ASK = b"?"
_END = b"\n"

_logger = structlog.get_logger(__name__)


class WorkerEnd(asyncio.Protocol):
    """The worker's end. Make it with ``open``; ``close`` it at the end."""

    def __init__(self, report: Callable[[], Report]) -> None:
        self._report = report
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, descriptor: int, report: Callable[[], Report]) -> WorkerEnd:
        """Begin to report over an inherited socket."""
        line = socket.socket(fileno=descriptor)
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        _, end = await loop.create_connection(lambda: cls(report), sock=line)
        return end

    def close(self) -> None:
        """Report a last time and close the line."""
        if self._transport is not None:
            self._say()
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's does not derive.
        self._tick()

    def data_received(self, data: bytes) -> None:
        self._say()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._say()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WORKER_REPORT_MS / 1_000, self._tick)

    def _say(self) -> None:
        # A parent that does not read is about to end, and does not need the report.
        if self._transport is not None and not self._transport.get_write_buffer_size():
            self._transport.write(self._report().to_json().encode() + _END)


class ParentEnd(asyncio.Protocol):
    """The parent's end of one worker's line. ``latest`` is None until the first report."""

    def __init__(self) -> None:
        self.latest: Report | None = None
        self.ended = asyncio.Event()
        """Set when the worker has ended and all its messages have been read."""
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: list[asyncio.Future[None]] = []

    @classmethod
    async def open(cls, line: socket.socket) -> ParentEnd:
        """Begin to listen; ``line`` belongs to the end from here on."""
        line.setblocking(False)
        _, end = await asyncio.get_running_loop().create_connection(cls, sock=line)
        return end

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def refresh(self) -> None:
        """Return once ``latest`` is of a moment after this call, or the worker has ended."""
        if self._transport is not None:
            reported = asyncio.get_running_loop().create_future()
            self._waiting.append(reported)
            self._transport.write(_ASK)
            await reported

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's does not derive.

    def data_received(self, data: bytes) -> None:
        self._received += data
        *lines, rest = self._received.split(_END)
        self._received = bytearray(rest)
        try:
            if len(rest) > WORKER_REPORT_BYTES_MAX:
                raise ValueError(f"more than {WORKER_REPORT_BYTES_MAX} bytes without an end")
            for line in lines:
                self.latest = Report.from_json(line.decode())
        except ValueError as error:
            _logger.error("a worker reports what cannot be read", error=str(error))
            self.close()
            return
        if lines:
            self._tell_all()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.ended.set()
        self._tell_all()

    def _tell_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for reported in waiting:
            if not reported.done():
                reported.set_result(None)
