"""Reads the metrics page of a process on loopback."""

from __future__ import annotations

import asyncio

from nextgen.tasks.timeouts import timeout


async def metrics_of(http: str, prefix: str, *, timeout_s: float = 2.0) -> dict[str, float]:
    """Return the samples whose names begin with ``prefix``, without it and without labels.

    Samples that differ in labels only are added up. Empty if nobody answers.
    """
    host, _, port = http.rpartition(":")
    try:
        async with timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(b"GET /metrics HTTP/1.0\r\nHost: local\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return {}
    found: dict[str, float] = {}
    for line in answer.decode().splitlines():
        if line.startswith(prefix):
            name, _, value = line.removeprefix(prefix).rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found
