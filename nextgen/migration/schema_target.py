"""Puts schemas of topics into a cluster of this project, over its Admin REST.

A topic's schemas are kept by the broker that serves it, with its messages, so each topic with a
schema is opened there. A version that is there already is not added again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import aiohttp

from nextgen.client.client import Client
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_topic
from nextgen.migration.pulsar_cluster import schemas_in
from nextgen.migration.records import SchemaVersion, SourceFailed

ATTEMPTS = 8
"""Requests for one answer: a broker that takes a topic over answers within seconds."""

PAUSE_S = 0.25
"""Pause before the second request; it doubles with each."""

REQUEST_TIMEOUT_S = 30.0

_PASSING = frozenset({408, 412, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 409, 422})


class AdminSchemas:
    """See ``SchemaTarget``. ``close`` it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session: aiohttp.ClientSession | None = None
        self._nodes: list[str] = []
        self._opening = asyncio.Lock()

    async def add_missing(self, topic: str, schemas: Sequence[SchemaVersion]) -> int:
        """See ``SchemaTarget``."""
        name = parse_topic(topic)
        path = f"schemas/{name.namespace_text}/{quote(name.local_name, safe='')}"
        try:
            present = schemas_in(topic, await self._call("GET", f"{path}/schemas"))
        except SourceFailed as error:
            raise Unavailable(str(error)) from error
        known = {_identity(each) for each in present}
        missing = [each for each in schemas if _identity(each) not in known]
        for each in missing:
            body = {
                "type": each.type,
                "schema": each.text,
                "properties": dict(each.properties),
            }
            await self._call("POST", f"{path}/schema", body)
        return len(missing)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _opened(self) -> aiohttp.ClientSession:
        """Return the session, once the nodes that it is used with are known."""
        async with self._opening:
            if self._session is None:
                nodes = (await self._client.cluster()).nodes
                self._nodes = [each.http for each in nodes if each.kind == "discovery"]
                timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
                self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer's JSON, None for 404: a topic that was never opened has no schema."""
        session = await self._opened()
        problem = "no discovery node has an address for HTTP"
        for attempt in range(ATTEMPTS if self._nodes else 0):
            if attempt:
                await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))
            url = f"http://{self._nodes[attempt % len(self._nodes)]}/admin/v2/{path}"
            try:
                async with session.request(method, url, json=body) as answer:
                    status, text = answer.status, await answer.text()
                    if status < 300:
                        return await answer.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                problem = str(error) or type(error).__name__
                continue
            if status == 404 and method == "GET":
                return None
            problem = f"HTTP {status} {text[:200]}"
            if status in _REFUSED:
                raise Refused(RejectionCode.NOT_ALLOWED, problem)
            if status not in _PASSING:
                break
        raise Unavailable(f"the schemas of {path} cannot be written: {problem}")


def _identity(schema: SchemaVersion) -> tuple[str, str, frozenset[tuple[str, str]]]:
    return schema.type, schema.text, frozenset(schema.properties.items())
