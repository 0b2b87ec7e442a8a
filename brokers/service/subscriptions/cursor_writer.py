"""Writes a cursor: one write at a time, each with all acknowledgements before its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from brokers.domain.topic_facts import CURSOR_PREFIX
from brokers.ports.ledger import Fenced, StorageFailed, TopicLedger
from nextgen.kernel.limits.pulsar import CURSOR_CLOSE_MS_MAX, CURSOR_WRITE_DELAY_MS

_logger = structlog.get_logger(__name__)


def cursor_key(name: str) -> str:
    """Return the key of a subscription's cursor in a ledger's facts."""
    return CURSOR_PREFIX + name


def settled(error: Exception | None) -> asyncio.Future[None]:
    """Return a done future: failed with ``error``, or successful."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        # Mark the exception as retrieved: the caller may not await the future.
        future.exception()
    return future


class CursorWriter:
    """Makes one durable subscription's acknowledgements durable.

    Encoding a cursor costs time in proportion to its holes, so it is done once per write and not
    once per acknowledgement. A write that no caller awaits is delayed by
    ``CURSOR_WRITE_DELAY_MS``.
    """

    def __init__(self, ledger: TopicLedger, key: str, encode: Callable[[], bytes]) -> None:
        self._ledger = ledger
        self._key = key
        self._encode = encode
        self._is_dirty = False
        self._writing: asyncio.Future[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._delay: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._failure: Exception | None = None

    def changed(self) -> None:
        """Note that the cursor differs from the last written one. It is written some time later."""
        if self._failure is not None:
            return
        self._is_dirty = True
        if self._delay is None and self._writing is None and self._soon is None:
            self._delay = asyncio.get_running_loop().call_later(
                CURSOR_WRITE_DELAY_MS / 1_000, self._write
            )

    def stored(self) -> asyncio.Future[None]:
        """Return a future that is fulfilled when all changes so far are durable.

        It fails with ``Fenced`` or ``StorageFailed``; then every later one fails too.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        # The caller may no longer await the future when it fails.
        waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._failure is not None:
            waiter.set_exception(self._failure)
        elif not self._is_dirty and self._writing is None:
            waiter.set_result(None)
        elif not self._is_dirty and self._writing is not None:
            self._follow(self._writing, [waiter])
        else:
            self._waiters.append(waiter)
            if self._writing is None and self._soon is None:
                # Not at once, so that the write includes other ACKs of the same socket read.
                self._soon = loop.call_soon(self._write)
        return waiter

    async def settle(self, timeout_ms: int = CURSOR_CLOSE_MS_MAX) -> bool:
        """Wait until all changes so far are durable; return False if that takes too long."""
        stored = self.stored()
        await asyncio.wait((stored,), timeout=timeout_ms / 1_000)
        return stored.done() and stored.exception() is None

    def close(self, error: Exception) -> None:
        """Write nothing more. Pending and later futures fail with ``error``."""
        for handle in (self._delay, self._soon):
            if handle is not None:
                handle.cancel()
        self._delay = self._soon = None
        self._is_dirty = False
        self._fail(error)

    def _write(self) -> None:
        if self._delay is not None:
            self._delay.cancel()
        self._delay = self._soon = None
        if not self._is_dirty or self._writing is not None:
            return
        self._is_dirty = False
        waiters, self._waiters = self._waiters, []
        try:
            self._writing = self._ledger.put_state(self._key, self._encode())
        except Exception as error:
            # Fail the waiting callers, which no one else would. A later cursor may be storable.
            _logger.exception("cursor refused by storage", key=self._key)
            _fail(waiters, StorageFailed(f"the cursor cannot be stored: {error}"))
            return
        self._follow(self._writing, waiters)
        self._writing.add_done_callback(self._written)

    def _follow(self, writing: asyncio.Future[None], waiters: list[asyncio.Future[None]]) -> None:
        def settle(written: asyncio.Future[None]) -> None:
            failure = None if written.cancelled() else written.exception()
            for waiter in waiters:
                if waiter.done():
                    continue
                if written.cancelled():
                    waiter.cancel()
                elif failure is not None:
                    waiter.set_exception(failure)
                else:
                    waiter.set_result(None)

        writing.add_done_callback(settle)

    def _written(self, written: asyncio.Future[None]) -> None:
        self._writing = None
        if written.cancelled():
            return
        failure = written.exception()
        if isinstance(failure, Fenced | StorageFailed):
            self._fail(failure)
        elif self._waiters:
            self._write()
        elif self._is_dirty:
            self.changed()

    def _fail(self, failure: Exception) -> None:
        """Fail all futures: a failed ledger fails until it is opened again."""
        self._failure = self._failure or failure
        waiters, self._waiters = self._waiters, []
        _fail(waiters, failure)


def _fail(waiters: Sequence[asyncio.Future[None]], failure: Exception) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(failure)
