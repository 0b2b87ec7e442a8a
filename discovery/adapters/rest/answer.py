"""The answers of routes, and the status of each failure."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiohttp import web

from nextgen.kernel.errors import (
    Forbidden,
    InvalidRequest,
    MetadataError,
    Refused,
    ServedElsewhere,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.rest import REST_LONG_ANSWER_BYTES
from nextgen.runtime.servers.http_gate import PROGRESS

JSON = "application/json"
TEXT = "text/plain"

_logger = structlog.get_logger(__name__)

OUR_TROUBLE = 500
"""HTTP statuses from here on are our failures, not the request's."""

_RETRY_AFTER_S = 1
"""Seconds after which a request with a 503 may be repeated, if the error has no time of its own."""

_STATUS_OF_REJECTION: dict[str, int] = {
    RejectionCode.NOT_FOUND: 404,
    RejectionCode.PARENT_NOT_FOUND: 404,
    RejectionCode.ALREADY_EXISTS: 409,
    RejectionCode.NOT_EMPTY: 409,
    RejectionCode.VERSION_MISMATCH: 409,
    RejectionCode.NOT_ALLOWED: 409,
    RejectionCode.PARTITIONED: 409,
    RejectionCode.SCALABLE: 409,
    RejectionCode.INVALID_NAME: 412,
    RejectionCode.LIMIT_EXCEEDED: 412,
    RejectionCode.PARTITIONS_DIFFER: 412,
}
"""Pulsar's statuses by rejection. Other rejections are retryable: 503."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer. Make one with ``content``, ``text``, ``done`` or ``failure``."""

    status: int
    body: bytes | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        if self.body is None:
            return web.Response(status=self.status, headers=self.headers)
        return web.Response(
            body=self.body,
            status=self.status,
            headers=self.headers,
            content_type=self.media_type,
            charset="utf-8" if self.media_type == TEXT else None,
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer of any size, sent piece by piece as fast as the client reads it.

    The first piece is made before anything is sent, so its failure has a status. A later failure
    breaks the connection, so that no client mistakes a part for the whole.
    """

    pieces: AsyncGenerator[bytes]
    first: bytes

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Send the answer to ``request``. Never raises but for cancellation."""
        response = web.StreamResponse(headers={"Content-Type": JSON})
        note_progress = request.get(PROGRESS, _nothing)
        async with aclosing(self.pieces):
            try:
                await response.prepare(request)
                if request.method == "HEAD":
                    return response
                await response.write(self.first)
                async for piece in self.pieces:
                    await response.write(piece)
                    note_progress()
            except ConnectionError:
                pass  # The client is gone.
            except MetadataError as error:
                _logger.warning("an answer was cut off", path=request.path[:80], error=str(error))
                _cut_off(request)
            except Exception:
                _logger.exception("an answer was cut off", path=request.path[:80])
                _cut_off(request)
        return response


async def streamed(pieces: AsyncGenerator[bytes]) -> Stream:
    """Return an answer of these pieces, at least one.

    Raises:
        MetadataError: There was no first piece.
    """
    try:
        return Stream(pieces, await anext(pieces))
    except BaseException:
        await pieces.aclose()
        raise


async def whole_or_streamed(pieces: AsyncGenerator[bytes]) -> Answer | Stream:
    """Return an answer of JSON of any length: with its length and, if it fails, with a status as
    long as it has ``REST_LONG_ANSWER_BYTES`` at most; else as ``streamed``."""
    made: list[bytes] = []
    size = 0
    try:
        async for piece in pieces:
            made.append(piece)
            size += len(piece)
            if size > REST_LONG_ANSWER_BYTES:
                return Stream(pieces, b"".join(made))
    except BaseException:
        await pieces.aclose()
        raise
    return Answer(200, b"".join(made))


async def json_list(batches: AsyncGenerator[Sequence[str]]) -> AsyncGenerator[bytes]:
    """Yield the texts of all batches, none of them empty, as one JSON list."""
    async with aclosing(batches):
        beginning = "["
        async for batch in batches:
            texts = json.dumps(batch, separators=(",", ":"))
            yield (beginning + texts[1:-1]).encode()
            beginning = ","
        yield b"[]" if beginning == "[" else b"]"


def _cut_off(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _nothing() -> None:
    """Stand in for the gate of a server that has none."""


DONE = Answer(204)
"""A write was carried out."""


def content(value: Any, status: int = 200) -> Answer:
    """Return an answer with ``value`` as JSON; None is ``null``."""
    return Answer(status, json.dumps(value, separators=(",", ":")).encode())


def text(value: str, status: int = 200) -> Answer:
    return Answer(status, value.encode(), TEXT)


class RestFailure(Exception):
    """A request is answered with this status and reason. Routes raise it; the frame answers."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or {}


def failure(error: RestFailure | MetadataError) -> Answer:
    """Return the answer to a request that failed because of ``error``."""
    if isinstance(error, RestFailure):
        status, headers = error.status, dict(error.headers)
    else:
        status, headers = status_of(error), {}
    if status == 503:
        # The header counts in whole seconds.
        seconds = -(-getattr(error, "retry_after_ms", 0) // 1_000)
        headers.setdefault("Retry-After", str(seconds or _RETRY_AFTER_S))
    reason = json.dumps({"reason": str(error)}, separators=(",", ":")).encode()
    return Answer(status, reason, headers=headers)


def elsewhere(error: ServedElsewhere, *, scheme: str, path: str) -> Answer:
    """Return the redirect of a request whose topic a stock broker serves. Its Admin REST has the
    same paths. It is asked over TLS if this request came so, where it has both.

    ``path``: of the request, with its query, as it was sent.
    """
    urls = error.web_urls.split(",")
    chosen = next((each for each in urls if each.startswith(f"{scheme}://")), urls[0])
    reason = json.dumps({"reason": str(error)}, separators=(",", ":")).encode()
    return Answer(307, reason, headers={"Location": f"{chosen}{path}"})


def status_of(error: MetadataError) -> int:
    """Return the HTTP status of a request that failed because of ``error``."""
    if isinstance(error, Refused):
        return _STATUS_OF_REJECTION.get(error.code, 503)
    if isinstance(error, Forbidden):
        return 403
    return 400 if isinstance(error, InvalidRequest) else 503
