"""Named readers of one replica's log: pins that survive restarts and end by themselves.

<data_directory>/group-<id>/log.readers   the readers; written to a temporary file, then renamed

A pin lasts for the time to live that its reader set, counted from the last renewal, and after a
restart from the restart: neither a clock change nor a downtime of the process ends one early. The
stored position is never ahead of the requested one, so after a crash too much of the log is kept,
never too little.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgpack

from nextgen.kernel.errors import InvalidRequest, Overloaded, PositionCompacted, Unavailable
from nextgen.kernel.limits.stream import (
    LOG_READER_ID_BYTES_MAX,
    LOG_READER_TTL_MS_MAX,
    LOG_READERS_MAX,
    POSITION_MAX,
)
from nextgen.replication.ports import LogReader
from nextgen.replication.retention.log_retention import LogRetention, Pin
from nextgen.storage.checked_file import read_checked, replace_file
from nextgen.storage.disk import Storage
from nextgen.tasks.background import start

READERS_NAME = "log.readers"

_logger = logging.getLogger(__name__)

Blocking = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs something that blocks, away from the event loop."""


@dataclass(frozen=True, slots=True)
class StoredReader:
    """A named reader as it is on disk."""

    reader_id: str
    position: int
    ttl_ms: int


class ReadersFile:
    """The stored readers of the group in ``directory``, which exists. Calls block.

    A damaged file counts as none: its readers get a named error if the log was cut before them.
    """

    def __init__(self, storage: Storage, directory: Path) -> None:
        self._storage = storage
        self._directory = directory
        self.stored = self._load()
        """The stored readers."""

    def store(self, readers: tuple[StoredReader, ...]) -> None:
        """Replace the stored readers, durably and atomically.

        Raises:
            OSError: The disk refuses. The file is unchanged.
        """
        rows = [(one.reader_id, one.position, one.ttl_ms) for one in readers]
        payload: bytes = msgpack.packb(rows)
        path = self._directory / READERS_NAME
        replace_file(self._storage, path, payload, label="readers")
        self.stored = readers

    def _load(self) -> tuple[StoredReader, ...]:
        path = self._directory / READERS_NAME
        payload = read_checked(self._storage, path)
        if payload is None:
            return ()
        if not payload:
            _logger.error("%s is damaged: its readers keep no log any more", path)
            return ()
        return tuple(StoredReader(*one) for one in msgpack.unpackb(payload))


@dataclass(slots=True)
class _Held:
    reader_id: str
    pin: Pin
    position: int
    ttl_ms: int
    expires_at: float
    timer: asyncio.TimerHandle


class NamedReaders:
    """The named readers of one replica. All on the event loop; ``blocking`` writes the file.

    Created from the stored readers BEFORE any part of the log can be removed.
    """

    def __init__(
        self,
        retention: LogRetention,
        file: ReadersFile,
        blocking: Blocking,
    ) -> None:
        self._retention = retention
        self._file = file
        self._blocking = blocking
        self._loop = asyncio.get_running_loop()
        self._held: dict[str, _Held] = {}
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.expired = 0
        """Readers that expired because they did not renew, since the start."""
        for one in file.stored:
            self._restore(one)

    def __repr__(self) -> str:
        return f"<NamedReaders {len(self._held)} expired={self.expired}>"

    @property
    def count(self) -> int:
        return len(self._held)

    def readers(self) -> tuple[LogReader, ...]:
        """Return the readers by name; a broken one stays until it expires or pins again."""
        self._retention.notice_broken()
        now = self._loop.time()
        return tuple(
            LogReader(
                held.reader_id,
                held.position,
                max(0, int((held.expires_at - now) * 1000)),
                held.pin.is_broken,
            )
            for _, held in sorted(self._held.items())
        )

    async def pin(self, reader_id: str, position: int, ttl_ms: int) -> None:
        """See ``ReplicatedLog.pin_reader``."""
        check_reader(reader_id, position, ttl_ms)
        if not ttl_ms:
            self._release(reader_id)
        else:
            self._renew(reader_id, position, ttl_ms)
        await self._store()

    def stop(self) -> list[asyncio.Task[None]]:
        """End every timer; return the tasks that end by it. The file stays as it is."""
        for held in self._held.values():
            held.timer.cancel()
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    # Inside -----------------------------------------------------------------------------------

    def _restore(self, stored: StoredReader) -> None:
        try:
            self._hold(stored.reader_id, stored.position, stored.ttl_ms)
        except (PositionCompacted, Overloaded) as error:
            _logger.warning("reader %s is not pinned again: %s", stored.reader_id, error)

    def _renew(self, reader_id: str, position: int, ttl_ms: int) -> None:
        self._retention.notice_broken()
        held = self._held.get(reader_id)
        if held is None and len(self._held) >= LOG_READERS_MAX:
            raise Overloaded(f"{LOG_READERS_MAX} named readers keep this log already")
        if held is None or held.pin.is_broken:
            self._hold(reader_id, position, ttl_ms)
            return
        held.pin.advance(position)
        held.position, held.ttl_ms = max(held.position, position), ttl_ms
        held.timer.cancel()
        held.expires_at, held.timer = self._expiry(reader_id, ttl_ms)

    def _hold(self, reader_id: str, position: int, ttl_ms: int) -> None:
        pin = self._retention.pin(f"reader {reader_id}", position)
        before = self._held.pop(reader_id, None)
        if before is not None:
            before.timer.cancel()
        expires_at, timer = self._expiry(reader_id, ttl_ms)
        self._held[reader_id] = _Held(reader_id, pin, position, ttl_ms, expires_at, timer)

    def _expiry(self, reader_id: str, ttl_ms: int) -> tuple[float, asyncio.TimerHandle]:
        expires_at = self._loop.time() + ttl_ms / 1000
        return expires_at, self._loop.call_at(expires_at, self._expire, reader_id)

    def _expire(self, reader_id: str) -> None:
        self.expired += 1
        _logger.warning(
            "reader %s did not renew and keeps no log any more, it was at position %s",
            reader_id,
            self._held[reader_id].position,
        )
        self._release(reader_id)
        start("named_readers", self._store_quietly(), self._tasks)

    def _release(self, reader_id: str) -> None:
        held = self._held.pop(reader_id, None)
        if held is not None:
            held.timer.cancel()
            held.pin.release()

    async def _store(self) -> None:
        async with self._writing:
            wanted = tuple(
                StoredReader(held.reader_id, held.position, held.ttl_ms)
                for _, held in sorted(self._held.items())
                if not held.pin.is_broken
            )
            if wanted == self._file.stored:
                return
            try:
                await self._blocking(lambda: self._file.store(wanted))
            except OSError as error:
                raise Unavailable(f"the readers of the log are not on disk: {error}") from error

    async def _store_quietly(self) -> None:
        try:
            await self._store()
        except Unavailable as error:
            # After a restart the log is kept for a vanished reader too, until its pin expires.
            _logger.warning("%s", error)


def check_reader(reader_id: str, position: int, ttl_ms: int) -> None:
    """Raise ``InvalidRequest`` unless all three are within their bounds."""
    size = len(reader_id.encode("utf-8", "backslashreplace"))
    if not 1 <= size <= LOG_READER_ID_BYTES_MAX or not reader_id.isprintable():
        raise InvalidRequest(
            f"a reader's name is 1 to {LOG_READER_ID_BYTES_MAX} bytes that can be printed"
        )
    if not 1 <= position <= POSITION_MAX and ttl_ms:
        raise InvalidRequest(f"a position is 1 to {POSITION_MAX}, this one is {position}")
    if not 0 <= ttl_ms <= LOG_READER_TTL_MS_MAX:
        raise InvalidRequest(
            f"a reader keeps the log for at most {LOG_READER_TTL_MS_MAX} ms, not for {ttl_ms}"
        )
