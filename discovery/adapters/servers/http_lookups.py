"""Lookups over HTTP, for clients with an ``http://`` service URL and for admin tools.

    /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}                where is it served?
    /admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions            how many has it?
    /admin/v2/namespaces/{tenant}/{namespace}/topics                      which are there?
    /admin/v2/schemas/{tenant}/{namespace}/{topic}/schema[/{version}]     which schema?

The paths are read as they were sent: a part is decoded after the path was cut, so that a topic's
name may contain any character. Errors are JSON with a ``reason``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote

import structlog
from aiohttp import web

from discovery.ports import Directory
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import (
    Domain,
    InvalidName,
    TopicName,
    parse_namespace,
    parse_topic,
)
from nextgen.pulsar.metadata_commands import StoredSchema, TopicDirectory
from protos.pulsar.PulsarApi_pb2 import Schema

_OUR_TROUBLE = 500
"""From this HTTP status on it is not the request's fault."""

_SCHEMA_VERSION_BYTES = 8
_DOMAINS_LISTED = {
    "PERSISTENT": Domain.PERSISTENT.value,
    "NON_PERSISTENT": Domain.NON_PERSISTENT.value,
    "ALL": "",
}
_STATUS_OF_REJECTION: dict[str, int] = {
    RejectionCode.NOT_FOUND: 404,
    RejectionCode.PARENT_NOT_FOUND: 404,
    RejectionCode.INVALID_NAME: 400,
    RejectionCode.NOT_ALLOWED: 409,
    RejectionCode.LIMIT_EXCEEDED: 409,
    RejectionCode.PARTITIONED: 409,
}

Content = Mapping[str, Any] | list[str]
Work = Callable[[list[str], Mapping[str, str]], Awaitable[Content]]
"""Answers a request of which the changing parts of the path and the query are given."""

_logger = structlog.get_logger(__name__)


class HttpLookups:
    """Answers from the same directory as the Pulsar port, and is bounded together with it."""

    def __init__(
        self,
        topics: TopicDirectory,
        cluster: Directory,
        dispatcher: CommandDispatcher,
        counters: DiscoveryCounters,
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._dispatcher = dispatcher
        self._counters = counters

    def routes(self) -> list[web.RouteDef]:
        """Return what is to be added to the process's HTTP server."""
        topic = "/{tenant}/{namespace}/{topic}"
        return [
            self._get(f"/lookup/v2/topic/{{domain}}{topic}", self._lookup),
            self._get("/admin/v2/namespaces/{tenant}/{namespace}/topics", self._list),
            self._get(f"/admin/v2/schemas{topic}/schema", self._schema),
            self._get(f"/admin/v2/schemas{topic}/schema/{{version}}", self._schema),
            self._get(f"/admin/v2/{{domain}}{topic}/partitions", self._partitions),
        ]

    async def _lookup(self, parts: list[str], _query: Mapping[str, str]) -> Content:
        name = _topic_name(*parts)
        try:
            url = (await self._topics.locate(name, create=False)).broker_url
        except Refused as error:
            # A topic with partitions is served by none, and clients only want a connection.
            if error.code != RejectionCode.PARTITIONED:
                raise
            url = self._topics.any_broker_url(name.text) or ""
        if not url:
            raise Unavailable(f"there is no broker that speaks Pulsar for {name.text}")
        # Without brokerUrlTls, empty or not, the C++ client crashes.
        return {
            "brokerUrl": url,
            "brokerUrlTls": "",
            "httpUrl": self._http_url(url),
            "httpUrlTls": "",
            "nativeUrl": url,
        }

    async def _partitions(self, parts: list[str], query: Mapping[str, str]) -> Content:
        create = query.get("checkAllowAutoCreation", "false").lower() == "true"
        return {"partitions": await self._topics.partitions(_topic_name(*parts), create=create)}

    async def _list(self, parts: list[str], query: Mapping[str, str]) -> Content:
        mode = query.get("mode", "PERSISTENT").upper()
        if mode not in _DOMAINS_LISTED:
            known = ", ".join(_DOMAINS_LISTED)
            raise InvalidRequest(f"mode {mode[:80]!a} does not exist, known are {known}")
        return await self._topics.topics_of_namespace(
            parse_namespace("/".join(parts)), domain=_DOMAINS_LISTED[mode]
        )

    async def _schema(self, parts: list[str], _query: Mapping[str, str]) -> Content:
        name = _topic_name(Domain.PERSISTENT.value, *parts[:3])
        version = _schema_version(parts[3]) if len(parts) > 3 else None
        stored = await self._topics.schema(name, version)
        if stored is None:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} has no such schema")
        return _schema_content(stored)

    def _http_url(self, broker_url: str) -> str:
        """Return where the broker that has this Pulsar URL speaks HTTP; empty if nowhere."""
        for broker in self._cluster.view.brokers.values():
            if broker.is_live and broker.endpoints.pulsar_url == broker_url:
                return f"http://{broker.endpoints.http}" if broker.endpoints.http else ""
        return ""

    def _get(self, path: str, work: Work) -> web.RouteDef:
        """Return a route whose changing parts are given to ``work`` in the order of the path."""
        places = [place for place, part in enumerate(path.split("/")) if part.startswith("{")]

        async def handle(request: web.Request) -> web.Response:
            self._counters.http_requests += 1
            tally, clock = self._counters.tally, asyncio.get_running_loop().time
            began_at = clock()
            response = await respond(request)
            if work == self._lookup:
                failed = int(response.status >= _OUR_TROUBLE)
                tally.add((clock() - began_at) * 1_000, failed=failed)
            return response

        async def respond(request: web.Request) -> web.Response:
            path, _, query = request.raw_path.partition("?")
            try:
                sent = path.split("/")
                parts = [unquote(sent[place], errors="strict") for place in places]
                asked = {key: values[-1] for key, values in parse_qs(query).items()}
                content = await self._dispatcher.answer(
                    partial(work, parts, asked), is_listing=work == self._list
                )
                return web.json_response(content)
            except (InvalidName, UnicodeDecodeError, IndexError) as error:
                return _failure(400, str(error))
            except MetadataError as error:
                return _failure(status_of(error), str(error), error.retry_after_ms)
            except Exception as error:
                # Whoever asks must be answered even if this is a mistake of ours.
                _logger.exception("a request over HTTP failed", path=path)
                return _failure(503, repr(error))

        return web.get(path, handle)


def status_of(error: MetadataError) -> int:
    """Return the HTTP status of a request that failed because of ``error``."""
    if isinstance(error, Refused):
        return _STATUS_OF_REJECTION.get(error.code, 503)
    return 400 if isinstance(error, InvalidRequest) else 503


def _failure(status: int, reason: str, retry_after_ms: int = 0) -> web.Response:
    # The header counts in whole seconds.
    headers = {"Retry-After": str(-(-retry_after_ms // 1_000))} if retry_after_ms else None
    return web.json_response({"reason": reason}, status=status, headers=headers)


def _topic_name(domain: str, tenant: str, namespace: str, topic: str) -> TopicName:
    return parse_topic(f"{domain}://{tenant}/{namespace}/{topic}")


def _schema_version(text: str) -> bytes:
    """Return the eight bytes of a version's number.

    Raises:
        InvalidRequest: It is no such number.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequest(f"schema version {text[:80]!a} is not a number")
    try:
        return int(text).to_bytes(_SCHEMA_VERSION_BYTES, "big")
    except OverflowError as error:
        raise InvalidRequest(f"schema version {text[:80]!a} is beyond 64 bits") from error


def _schema_content(stored: StoredSchema) -> Content:
    kind = Schema.Type.DESCRIPTOR.values_by_number.get(stored.kind)
    return {
        "version": int.from_bytes(stored.version, "big"),
        "type": kind.name.upper() if kind is not None else str(stored.kind),
        "timestamp": 0,
        "data": stored.data.decode("utf-8", "replace"),
        "properties": dict(stored.properties),
    }
