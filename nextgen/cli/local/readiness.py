"""Requests a process's readiness over HTTP, without a client library."""

from __future__ import annotations

import asyncio

from nextgen.kernel.input.json_fields import parse_json
from nextgen.runtime.security.process_tls import tls_in_use
from nextgen.tasks.timeouts import timeout

ANSWER_TIMEOUT_MS = 1_000
ANSWER_BYTES_MAX = 64 * 1024


async def readiness(http: str) -> tuple[bool, str]:
    """Return whether the process at ``host:port`` is ready, and what it lacks if it is not.

    It is asked over HTTPS if this process uses certificates.
    """
    host, _, port = http.rpartition(":")
    try:
        async with timeout(ANSWER_TIMEOUT_MS / 1000):
            tls = tls_in_use()
            context = None if tls is None else tls.client_context()
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            try:
                writer.write(b"GET /readyz HTTP/1.0\r\nHost: local\r\n\r\n")
                answer = await reader.read(ANSWER_BYTES_MAX)
                while more := await reader.read(ANSWER_BYTES_MAX - len(answer)):
                    answer += more
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        return False, f"no answer on {http} ({error or 'timeout'})"
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " in head.split(b"\r\n", 1)[0]:
        return True, ""
    try:
        return False, ", ".join(parse_json(body)["reasons"])
    except (ValueError, KeyError, TypeError):
        return False, "it answered something that is not understood"
