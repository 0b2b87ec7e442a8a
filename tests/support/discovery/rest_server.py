"""Routes of the Admin REST, served on loopback by the frame alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry
from yarl import URL

from discovery.adapters.rest.frame import RestFrame
from discovery.adapters.rest.route import Route
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from nextgen.pulsar.metadata_commands import MetadataCommands
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authorization.authorizer import Authorizer
from nextgen.runtime.servers.probes import Probes


@dataclass
class Reply:
    """What a client got."""

    status: int
    body: bytes
    headers: Any
    json: Any
    """None if the body is not JSON."""

    @property
    def reason(self) -> str:
        return self.json["reason"]


class RestClient:
    """Sends paths as they are given, without encoding them."""

    def __init__(self, session: aiohttp.ClientSession, port: int, frame: RestFrame) -> None:
        self._session = session
        self.port = port
        self.frame = frame

    async def call(self, method: str, path: str, **more: Any) -> Reply:
        address = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self._session.request(method, address, **more) as response:
            body = await response.read()
            is_json = response.content_type == "application/json" and body
            return Reply(
                response.status,
                body,
                response.headers,
                _json(body) if is_json else None,
            )


def _json(body: bytes) -> Any:
    """Return None for a text without quotes, as Pulsar sends some."""
    try:
        return json.loads(body)
    except ValueError:
        return None


@asynccontextmanager
async def serving(
    routes: Iterable[Route],
    authenticator: Authenticator | None = None,
    authorizer: Authorizer | None = None,
) -> AsyncIterator[RestClient]:
    """Serve ``routes``, and give a client of them."""
    counters = DiscoveryCounters()
    dispatcher = CommandDispatcher(MetadataCommands(None), counters)  # type: ignore[arg-type]
    frame = RestFrame(routes, dispatcher, counters, authenticator, authorizer)
    probes = Probes(lambda: (True, []), CollectorRegistry(), routes=frame.mounted())
    port = await probes.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield RestClient(session, port, frame)
    finally:
        await probes.stop()
