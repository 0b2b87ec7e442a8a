"""Calls of a stock Pulsar cluster's Admin REST v2, repeated while its brokers restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from nextgen.kernel.limits.bulk import SOURCE_ANSWER_BYTES_MAX, SOURCE_REQUESTS_MAX
from nextgen.migration.records import SourceFailed

ATTEMPTS = 5
"""Requests for one answer: a broker that restarts is back after the last pause."""

PAUSE_S = 0.5
"""Pause before the second request; it doubles with each."""

REQUEST_TIMEOUT_S = 60.0

_HEADERS = {"Content-Type": "application/json"}
"""A change without a body is refused without it (415)."""

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_DONE = frozenset({200, 204})
_GONE = frozenset({404, 409, 412})


class AdminRest:
    """The Admin REST at ``url``, such as ``http://broker:8080``. Close it.

    ``headers`` go with each request: an ``Authorization``, if the cluster wants one.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._admin = f"{url.rstrip('/')}/admin/v2"
        self._requests = asyncio.Semaphore(SOURCE_REQUESTS_MAX)
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
            connector=aiohttp.TCPConnector(limit=SOURCE_REQUESTS_MAX),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str) -> Any:
        """Return the JSON at ``path``, None if there is nothing: unset, or not any more.

        Raises:
            SourceFailed: There is no answer, or none that is JSON.
        """
        status, content = await self._call("GET", path)
        if status in _GONE or not content:
            return None
        return _json(f"{self._admin}/{path}", content)

    async def change(self, method: str, path: str) -> bool:
        """Carry out a change that may be repeated; return False if there is no such object.

        Raises:
            SourceFailed: It is not known whether it was carried out, or it was refused.
        """
        status, _ = await self._call(method, path)
        return status not in _GONE

    async def _call(self, method: str, path: str) -> tuple[int, bytes]:
        url, problem = f"{self._admin}/{path}", ""
        async with self._requests:
            for attempt in range(ATTEMPTS):
                if attempt:
                    await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))
                try:
                    async with self._session.request(method, url, headers=_HEADERS) as answer:
                        content = await _bounded(answer)
                        status = answer.status
                except (aiohttp.ClientError, TimeoutError) as error:
                    problem = str(error) or type(error).__name__
                    continue
                if status in _GONE or status in _DONE:
                    return status, content
                problem = f"HTTP {status} {content[:200]!r}"
                if status not in _PASSING:
                    break
        raise SourceFailed(f"{url} does not answer: {problem}")


def part(name: str) -> str:
    """Return a name as one part of a path."""
    return quote(name, safe="")


def path_of(namespace: str) -> str:
    """Return ``tenant/namespace`` as parts of a path."""
    return "/".join(map(part, namespace.split("/")))


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        content += chunk
        if len(content) > SOURCE_ANSWER_BYTES_MAX:
            raise SourceFailed(f"{answer.url} answers more than {SOURCE_ANSWER_BYTES_MAX} bytes")
    return bytes(content)


def _json(url: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceFailed(f"{url} does not answer JSON: {content[:80]!r}") from error
