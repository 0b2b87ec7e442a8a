"""The most expensive gRPC messages and HTTP requests, and what sends one and waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import grpc
import grpc.aio

from discovery.adapters.administration.catalogue import AdminServices, all_routes
from discovery.adapters.administration.clusters import LocalCluster
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.route import Route
from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from nextgen.kernel.limits.rest import REST_QUERY_PARAMETERS_MAX
from nextgen.tasks.timeouts import timeout
from tests.support.callers.raw_calls import Method, Shape, call_once, every_method
from tests.support.costs.messages import costly_messages
from tests.support.costs.stall_budget import Send

ANSWER_S_MAX = 30
STREAM_S_MAX = 0.4
"""A stream may well stay open: it had its message by then."""

PROBE_ROUTES = ("/metrics", "/livez", "/readyz")
LINE_BYTES = 8_000
"""A line or a header just below what an HTTP server takes."""

MANY = 5_000
LOOKUP = "/lookup/v2/topic/{topic-domain}/{tenant}/{namespace}/{topic}"
TOPICS_OF_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}/topics"

NAMES = {
    "domain": "persistent",
    "topic-domain": "persistent",
    "tenant": "stall",
    "namespace": "rest",
    "topic": "topic",
    "subscription": "sub",
    "cluster": "local",
}
"""Of objects in requests to the Admin REST; the cluster under test has no other use of them."""

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
) -> Iterator[tuple[str, Method, Callable[[], bytes]]]:
    """Yield what serialises a message, for every method of a server and field of its requests."""
    for method in grpc_methods(server):
        for message in costly_messages(
            method.request, bytes_max=bytes_max, given=GIVEN, with_long=with_long
        ):
            yield f"{method.name}.{message.name}", method, message.serialise


def grpc_sender(
    channel: grpc.aio.Channel, http: str, method: Method, serialise: Callable[[], bytes]
) -> Send:
    """Return what sends a message and waits until the process has dealt with it."""
    return partial(_send_message, channel, http, method, serialise)


async def _send_message(
    channel: grpc.aio.Channel, http: str, method: Method, serialise: Callable[[], bytes]
) -> None:
    limit = ANSWER_S_MAX if method.shape is Shape.SINGLE else STREAM_S_MAX
    if isinstance(channel, ProvingChannel):
        await channel.learn_challenge(ANSWER_S_MAX)
    # Not again if grpc.aio loses the status: each call costs, and each is a line in the log.
    await call_once(channel, method, [serialise()], deadline_s=limit)
    await settled(http)


def http_requests(server: str) -> Iterator[tuple[str, bytes]]:
    """Yield requests to every route of a server: long, of many parts, or many at once."""
    for path in (*PROBE_ROUTES, "/" + "x" * LINE_BYTES):
        yield from _requests_to(path)
    if server != "discovery":
        return
    routes = _discovery_routes()
    # What every route has from the server and the frame is measured at two of them.
    for path in (LOOKUP, TOPICS_OF_NAMESPACE):
        assert any(path == route.path for route in routes)
        yield from _requests_to(path)
    for route in routes:
        yield from _requests_of(route)


def _requests_to(route: str) -> Iterator[tuple[str, bytes]]:
    """Yield requests that cost the server something before it looks for a route, or there."""
    shown = re.sub("x{20,}", "x...", route)
    plain = _filled(route)
    for what, filler in (("long", "x"), ("escaped", "%C3%A9"), ("split", "/")):
        yield f"GET {shown} {what}", _get(_long(route, filler))
    yield f"GET {shown} with a query of many", _get(plain + "?" + "a&" * (LINE_BYTES // 2 - 200))
    yield f"GET {shown} with a long query", _get(plain + "?mode=" + "x" * (LINE_BYTES - 200))
    yield (
        f"GET {shown} with many headers",
        _get(plain, b"".join(b"a%d: b\r\n" % n for n in range(MANY))),
    )
    yield (
        f"GET {shown} with long headers",
        _get(plain, b"".join(b"a%d: %b\r\n" % (n, b"x" * LINE_BYTES) for n in range(50))),
    )
    yield f"GET {shown} with a body", _get(plain, b"Content-Length: 4000000\r\n") + bytes(4_000_000)
    yield (
        f"GET {shown} in many chunks",
        _get(plain, b"Transfer-Encoding: chunked\r\n") + b"1\r\nx\r\n" * 500_000,
    )
    yield (
        f"GET {shown} many at once",
        _get(plain, b"", close=False) * (50 if route == "/metrics" else MANY),
    )


def _requests_of(route: Route) -> Iterator[tuple[str, bytes]]:
    """Yield what one route reads, at its limits: names, a query, bodies of each form."""
    shown = f"{route.method} {route.path}"
    # What other requests name stays.
    is_deletion = shown in (f"DELETE {TOPIC}", f"DELETE {TOPIC}/partitions")
    plain = _filled(route.path.replace("{topic}", "gone") if is_deletion else route.path)
    yield f"{shown} long", _request(route.method, _long(route.path, "x"))
    many = "&".join(f"{name}={'x' * 100}" for name in _query_names(route))
    yield f"{shown} with a full query", _request(route.method, f"{plain}?{many}")
    if route.body is None:
        yield shown, _request(route.method, plain)
        return
    for what, body in _costly_bodies(route.body.bytes_max):
        headers = (
            b"Connection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            % len(body)
        )
        data = _request(route.method, plain, headers) + body
        yield f"{shown} with {what}", data


def _query_names(route: Route) -> list[str]:
    others = (f"a{number}" for number in range(REST_QUERY_PARAMETERS_MAX))
    return [*route.query, *others][:REST_QUERY_PARAMETERS_MAX]


def _costly_bodies(bytes_max: int) -> Iterator[tuple[str, bytes]]:
    """Yield JSON of the largest size that takes long to read, or makes much of little."""
    yield "nested lists", b"[" * bytes_max
    yield "many numbers", _listed(b"1", bytes_max)
    yield "many texts", _listed(b'"x"', bytes_max)
    yield "one text", b'"%b"' % (b"x" * (bytes_max - 2))
    yield "one number", b"9" * bytes_max
    pairs = (json.dumps(f"{number:x}").encode() + b':""' for number in range(bytes_max // 8))
    members = b",".join(pairs)[: bytes_max - 2].rpartition(b",")[0]
    yield "many members", b"{%b}" % members


def _listed(item: bytes, bytes_max: int) -> bytes:
    return b"[" + b",".join([item] * ((bytes_max - 1) // (len(item) + 1))) + b"]"


def http_sender(endpoint: str, data: bytes) -> Send:
    return partial(_send_request, endpoint, data)


def _filled(path: str) -> str:
    """Return a route's path with names of objects that may be there."""
    return re.sub(r"\{([\w-]+)\}", lambda match: NAMES.get(match[1], "1"), path)


def _long(path: str, filler: str) -> str:
    """Return a route's path that is as long as a line may be."""
    wanted = path.replace("{domain}", "persistent").replace("{topic-domain}", "persistent")
    room = LINE_BYTES // max(1, path.count("{")) // len(filler)
    return re.sub(r"\{[\w-]+\}", filler * room, wanted)


def _discovery_routes() -> list[Route]:
    # The routes are only looked at: nothing of them is called.
    services: dict[str, Any] = dict.fromkeys(each.name for each in fields(AdminServices))
    return all_routes(AdminServices(**services | {"local": LocalCluster("local", "", "")}))


def _get(path: str, headers: bytes = b"", *, close: bool = True) -> bytes:
    ending = b"Connection: close\r\n" if close else b""
    return _request("GET", path, ending + headers)


def _request(method: str, path: str, headers: bytes = b"Connection: close\r\n") -> bytes:
    beginning = f"{method} {path} HTTP/1.1\r\nHost: a\r\n".encode()
    return beginning + headers + b"\r\n"


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
    """Return once the process answers other requests again and has finished its own work."""
    host, _, port = http.rpartition(":")
    async with timeout(ANSWER_S_MAX):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_get("/livez"))
        with contextlib.suppress(ConnectionError):
            while await reader.read(4_096):
                pass
        writer.close()
