"""The most expensive gRPC messages and HTTP requests, and what sends one and waits."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio

from discovery.adapters.resources.lookups import Lookups
from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from nextgen.tasks.timeouts import timeout
from tests.support.costly_messages import costly_messages
from tests.support.raw_calls import Method, Shape, call_once, every_method
from tests.support.stall_budget import Send

ANSWER_S_MAX = 30
STREAM_S_MAX = 0.4
"""A stream may well stay open: it had its message by then."""

SETTLED_S = 0.02
PROBE_ROUTES = ("/metrics", "/livez", "/readyz")
LINE_BYTES = 8_000
"""A line or a header just below what an HTTP server takes."""

MANY = 5_000

GIVEN: dict[str, Any] = {
    "cluster_id": "test",
    "node_id": "a-client",
    "kind": "client",
    "broker_id": "broker-1",
    "shard_id": 1,
    "tenant": "stall",
    "namespace": "stall/budget",
    "topic": lambda number: f"persistent://stall/budget/t-{number}",
    "topics": lambda number: f"persistent://stall/budget/t-{number}",
    "name": lambda number: f"persistent://stall/budget/t-{number}",
    "names": lambda number: f"persistent://stall/budget/t-{number}",
    "command_id": lambda number: number.to_bytes(16, "big"),
    "timeout_ms": 1_000,
    "request_id": 7,
}


def grpc_methods(server: str) -> list[Method]:
    """Return the methods that a kind of process serves."""
    return [method for method in every_method() if method.server == server]


def grpc_messages(
    server: str, *, bytes_max: int = GRPC_MESSAGE_BYTES_MAX, with_long: bool = False
) -> Iterator[tuple[str, Method, bytes]]:
    """Yield messages for every method of a server, each full of another of its fields."""
    for method in grpc_methods(server):
        for message in costly_messages(
            method.request, bytes_max=bytes_max, given=GIVEN, with_long=with_long
        ):
            yield f"{method.name}.{message.name}", method, message.data


def grpc_sender(channel: grpc.aio.Channel, http: str, method: Method, data: bytes) -> Send:
    """Return what sends a message and waits until the process has dealt with it."""
    return partial(_send_message, channel, http, method, data)


async def _send_message(channel: grpc.aio.Channel, http: str, method: Method, data: bytes) -> None:
    limit = ANSWER_S_MAX if method.shape is Shape.SINGLE else STREAM_S_MAX
    if isinstance(channel, ProvingChannel):
        await channel.learn_challenge(ANSWER_S_MAX)
    # Not again if grpc.aio loses the status: each call costs, and each is a line in the log.
    await call_once(channel, method, [data], deadline_s=limit)
    await settled(http)


def http_requests(server: str) -> Iterator[tuple[str, bytes]]:
    """Yield requests to every route of a server: long, of many parts, or many at once."""
    routes = [
        *PROBE_ROUTES,
        "/" + "x" * LINE_BYTES,
        *(_discovery_routes() if server == "discovery" else ()),
    ]
    for route in routes:
        shown = re.sub("x{20,}", "x...", route)
        plain = re.sub(r"\{[\w-]+\}", "a", _with_domain(route))
        for what, filler in (("long", "x"), ("escaped", "%C3%A9"), ("split", "/")):
            room = LINE_BYTES // max(1, route.count("{")) // len(filler)
            path = re.sub(r"\{[\w-]+\}", filler * room, _with_domain(route))
            yield f"GET {shown} {what}", _get(path)
        yield (
            f"GET {shown} with a query of many",
            _get(plain + "?" + "a&" * (LINE_BYTES // 2 - 200)),
        )
        yield f"GET {shown} with a long query", _get(plain + "?mode=" + "x" * (LINE_BYTES - 200))
        yield (
            f"GET {shown} with many headers",
            _get(plain, b"".join(b"a%d: b\r\n" % n for n in range(MANY))),
        )
        yield (
            f"GET {shown} with long headers",
            _get(plain, b"".join(b"a%d: %b\r\n" % (n, b"x" * LINE_BYTES) for n in range(50))),
        )
        yield (
            f"GET {shown} with a body",
            _get(plain, b"Content-Length: 4000000\r\n") + bytes(4_000_000),
        )
        yield (
            f"GET {shown} in many chunks",
            _get(plain, b"Transfer-Encoding: chunked\r\n") + b"1\r\nx\r\n" * 500_000,
        )
        yield (
            f"GET {shown} many at once",
            _get(plain, b"", close=False) * (50 if route == "/metrics" else MANY),
        )


def http_sender(endpoint: str, data: bytes) -> Send:
    return partial(_send_request, endpoint, data)


def _with_domain(route: str) -> str:
    return route.replace("{domain}", "persistent").replace("{topic-domain}", "persistent")


def _discovery_routes() -> list[str]:
    # Only the paths are looked at: nothing of it is called.
    nothing = cast(Any, None)
    return [route.path for route in Lookups(nothing, nothing).routes()]


def _get(path: str, headers: bytes = b"", *, close: bool = True) -> bytes:
    ending = b"Connection: close\r\n" if close else b""
    return b"GET %b HTTP/1.1\r\nHost: a\r\n%b%b\r\n" % (path.encode(), ending, headers)


async def _send_request(endpoint: str, data: bytes) -> None:
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionError, TimeoutError):
        writer.write(data)
        async with timeout(STREAM_S_MAX):
            while await reader.read(256 * 1024):
                pass
    writer.transport.abort()
    await settled(endpoint)


async def settled(http: str) -> None:
    """Return once the process answers others again, and has done what it began meanwhile."""
    host, _, port = http.rpartition(":")
    async with timeout(ANSWER_S_MAX):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_get("/livez"))
        with contextlib.suppress(ConnectionError):
            while await reader.read(4_096):
                pass
        writer.close()
    await asyncio.sleep(SETTLED_S)
