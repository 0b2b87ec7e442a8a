"""What the other side of a connection says when it breaks TLS off."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nextgen.tasks.timeouts import timeout

_DIAL_MS_MAX = 1_000
"""For a handshake and the other side's answer to it. Nothing is known of a port that is slower."""

_ALERT = "_ALERT_"
"""Between the version and the alert in the reason of an error that the other side sent."""


def alert_in(error: BaseException) -> str:
    """Return the alert that ``error`` or one of its causes is, "" if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and _ALERT in (cause.reason or ""):
            return cause.reason.partition(_ALERT)[2].replace("_", " ").lower()
        cause = cause.__cause__
    return ""


@asynccontextmanager
async def dialled(
    host: str, port: int, context: ssl.SSLContext
) -> AsyncIterator[asyncio.StreamReader]:
    """Connect to a port by TLS, and yield what it says before anything is sent.

    A certificate is judged behind the handshake (RFC 8446, 4.4.2). Who has sent a request by then
    may find the connection reset, and the alert lost; who only reads gets it.

    Raises:
        OSError: It breaks off; ``alert_in`` has why, if it says so.
        TimeoutError: It says nothing for a second.
    """
    async with timeout(_DIAL_MS_MAX / 1_000):
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=host
        )
        try:
            yield reader
        finally:
            writer.transport.abort()
