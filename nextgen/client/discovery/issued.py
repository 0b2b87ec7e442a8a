"""When a command was issued: the positions that the shards had reached before it was sent.

A shard that has forgotten outcomes behind such a position refuses the command as possibly carried
out. So a repetition is safe at any later time and at any discovery node (ADR 0053).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from nextgen.kernel.errors import Indefinite, InvalidRequest, MetadataError, Unavailable
from nextgen.kernel.limits.write import ISSUED_POSITIONS_FRESH_MS
from nextgen.tasks.background import start
from protos.nextgen.v1.discovery_service_pb2 import GetPositionsResponse

ReadPositions = Callable[[], Awaitable[GetPositionsResponse]]

_FIELD = "issued"


def is_command(request: Message) -> bool:
    """Return whether ``request`` is a write, which carries the positions it was issued at."""
    return _FIELD in request.DESCRIPTOR.fields_by_name


def is_issued(request: Message) -> bool:
    """Return whether ``request`` is a write and already carries positions."""
    return is_command(request) and bool(getattr(request, _FIELD))


def take_back(request: Any) -> None:
    """Remove the positions from ``request``, which was certainly not carried out."""
    request.ClearField(_FIELD)


class IssuedPositions:
    """The positions that one client knows, for all the commands it sends. One event loop.

    Commands that need newer positions share one read. ``close`` it at the end.
    """

    def __init__(self) -> None:
        self._positions = GetPositionsResponse()
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Have the next command read the positions again: a shard may be missing."""
        self._read_at = None

    async def close(self) -> None:
        """Cancel the read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    async def stamp(self, request: Any, read: ReadPositions, timeout_ms: float) -> None:
        """Put positions into ``request`` that are at most ``ISSUED_POSITIONS_FRESH_MS`` old.

        ``read`` requests them from a discovery node. A node of an earlier release cannot answer:
        ``request`` then carries none and counts as issued when it arrives there.

        Raises:
            MetadataError: No positions could be read. Definite: the command was not sent.
        """
        if not self._is_fresh():
            if self._reading is None:
                self._reading = start("issued_positions", self._read(read), expected=MetadataError)
                self._reading.add_done_callback(self._end_read)
            reading = self._reading
            done, _ = await asyncio.wait((reading,), timeout=timeout_ms / 1_000)
            if not done or reading.cancelled():
                raise Unavailable("no discovery node has returned the positions of the shards")
            reading.result()
        take_back(request)
        getattr(request, _FIELD).extend(self._positions.positions)

    def _end_read(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            # Mark the exception as retrieved: all waiters may have been cancelled.
            reading.exception()

    def _is_fresh(self) -> bool:
        if self._read_at is None:
            return False
        age_s = asyncio.get_running_loop().time() - self._read_at
        return age_s <= ISSUED_POSITIONS_FRESH_MS / 1_000

    async def _read(self, read: ReadPositions) -> None:
        # Positions are as old as their request: the answer may be long under way.
        asked_at = asyncio.get_running_loop().time()
        try:
            positions = await read()
        except InvalidRequest:
            positions = GetPositionsResponse()
        except Indefinite as error:
            raise Unavailable(f"no positions to issue a command at: {error}") from error
        else:
            if not positions.positions:
                raise Unavailable("no shard has been reached by this discovery node yet")
        self._positions = positions
        self._read_at = asked_at
