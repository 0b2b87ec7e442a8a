"""Answers every request to the Admin REST: finds its route, reads it, gives failures their codes.

    307  a stock broker serves the topic: its own Admin REST does it
    404  unknown path          405  known path, other method    406  Accept leaves the answer out
    412  bad name              413  body too large              415  body of another type
    400  bad query or body     403  not authorized              503  trouble that passes
    401  the client has not proved its role

Errors are JSON with a ``reason``. Query parameters that a route does not read are ignored, so
``authoritative`` is: any discovery node serves any request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import structlog
from aiohttp import web

from discovery.adapters.rest.answer import (
    OUR_TROUBLE,
    Answer,
    RestFailure,
    Stream,
    elsewhere,
    failure,
)
from discovery.adapters.rest.openapi import openapi_document
from discovery.adapters.rest.request import (
    RestRequest,
    check_accepts,
    check_media_type,
    media_type_of,
    parameters,
    parsed_body,
    quoted,
    read_body,
    shown,
)
from discovery.adapters.rest.route import Body, Route
from discovery.adapters.rest.table import RouteTable, variables
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from nextgen.kernel.errors import MetadataError, Overloaded, ServedElsewhere, Unauthenticated
from nextgen.kernel.governance.access import (
    ANONYMOUS,
    CLUSTER,
    Action,
    Principal,
    Resource,
    ResourceKind,
)
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.inbound import LOG_FIELD_CHARACTERS_MAX
from nextgen.kernel.limits.rest import REST_TENANT_REQUESTS_MAX
from nextgen.kernel.routing.names import InvalidName
from nextgen.pulsar.policies.refusal import PolicyRefused
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.header import HEADER, ORIGINAL, credentials_in
from nextgen.runtime.security.authorization.authorizer import Authorizer

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="Pulsar", Basic realm="Pulsar"'}
_OPENAPI_PATH = "/openapi.json"
_MOUNTED = ("/admin", "/lookup")
"""Beginnings of the paths of all routes."""

_logger = structlog.get_logger(__name__)


class RestFrame:
    """The HTTP face of one discovery node. Requests are bounded together with the Pulsar port's.

    probes = Probes(readiness, routes=RestFrame(routes, dispatcher, counters).mounted())
    """

    def __init__(
        self,
        routes: Iterable[Route],
        dispatcher: CommandDispatcher,
        counters: DiscoveryCounters,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """``authenticator``: checks who clients are, before anything of a request is looked at.

        ``authorizer``: decides what they may do, before anything is begun.
        """
        self._authenticator = authenticator
        self._authorizer = authorizer
        self.table = RouteTable(routes)
        self._dispatcher = dispatcher
        self._counters = counters
        self._document: Answer | None = None
        self._under_way: Counter[str] = Counter()
        """Requests that are being worked on, by tenant; by route where none is named."""

    def mounted(self) -> list[web.RouteDef]:
        """Return the routes for the process's HTTP server."""
        return [
            *(web.route("*", beginning + "/{rest:(?s:.*)}", self.handle) for beginning in _MOUNTED),
            web.get(_OPENAPI_PATH, self._openapi),
        ]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request. Never raises."""
        self._counters.http_requests += 1
        try:
            principal = await self._authenticate(request)
        except (RestFailure, MetadataError) as error:
            return failure(error).response()
        routes, parts = self.table.find(request.rel_url.raw_path)
        route = routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            return failure(_unserved(request, routes)).response()
        clock = asyncio.get_running_loop().time
        began_at = clock()
        answer = await self._answer(route, parts, request, principal)
        if not isinstance(answer, Answer):
            return answer
        if route.is_lookup:
            failed = int(answer.status >= OUR_TROUBLE)
            self._counters.tally.add((clock() - began_at) * 1_000, failed=failed)
        return answer.response()

    async def _answer(
        self, route: Route, parts: Sequence[str], request: web.Request, principal: Principal
    ) -> Answer | web.StreamResponse:
        """Return the answer, or what is left of it when it was sent piece by piece."""
        try:
            wanted = _head(route, parts, request)
            await self._authorize(principal, asked(route, wanted), wanted.parts)
            await _take_body(route, wanted, request)
            if route.besides is not None and self._authorizer is not None:
                await self._authorize(principal, route.besides(wanted), wanted.parts)
            with self._room(route, wanted):
                answer = await self._dispatcher.answer(partial(route.work, wanted))
                return await answer.send(request) if isinstance(answer, Stream) else answer
        except InvalidName as error:
            return failure(RestFailure(412, str(error)))
        except PolicyRefused as error:
            return failure(RestFailure(error.status, str(error)))
        except ServedElsewhere as error:
            return elsewhere(error, scheme=request.scheme, path=request.raw_path)
        except (RestFailure, MetadataError) as error:
            return failure(error)
        except Exception as error:
            # The client must be answered even if this is a mistake of ours.
            path = shortened(request.raw_path, LOG_FIELD_CHARACTERS_MAX)
            _logger.exception("a request over HTTP failed", method=route.method, path=path)
            return failure(RestFailure(500, repr(error)))

    async def _authorize(
        self,
        principal: Principal,
        needs: Iterable[tuple[Action, Resource]],
        parts: Mapping[str, str],
    ) -> None:
        """Return if the client may do all of it.

        Raises:
            Forbidden: It may not.
            Unavailable: Permissions cannot be read at the moment.
        """
        if self._authorizer is not None:
            for action, resource in needs:
                subscription = parts.get("subscription", "") if action is Action.CONSUME else ""
                await self._authorizer.check(principal, action, resource, subscription)

    @contextmanager
    def _room(self, route: Route, wanted: RestRequest) -> Iterator[None]:
        """Count a request for its tenant.

        Raises:
            Overloaded: Too many requests of the tenant are being worked on.
        """
        if route.is_lookup:
            # Lookups wait by tenant at their shards.
            yield
            return
        key = wanted.parts.get("tenant") or route.path
        if self._under_way[key] >= REST_TENANT_REQUESTS_MAX:
            self._counters.pulsar_overloads += 1
            raise Overloaded(f"{self._under_way[key]} requests about {key} are being worked on")
        self._under_way[key] += 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    async def _authenticate(self, request: web.Request) -> Principal:
        """Return the client's identity.

        Raises:
            RestFailure: It has proved none.
            Overloaded: Too many passwords wait to be checked.
        """
        if self._authenticator is None:
            return ANONYMOUS
        transport = request.transport
        certificate = transport and transport.get_extra_info("peercert")
        header = request.headers.get(HEADER)
        try:
            credentials = credentials_in(header, certificate or None, self._authenticator)
            found = self._authenticator.authenticate_now(credentials)
            if found is None:
                found = await self._authenticator.authenticate(credentials)
        except Unauthenticated as error:
            raise RestFailure(401, str(error), _CHALLENGE) from error
        return self._authenticator.principal(found.role, request.headers.get(ORIGINAL, ""))

    async def _openapi(self, request: web.Request) -> web.Response:
        try:
            await self._authenticate(request)
        except (RestFailure, MetadataError) as error:
            return failure(error).response()
        if self._document is None:
            self._document = openapi_document(self.table.routes)
        return self._document.response()


def asked(route: Route, request: RestRequest) -> list[tuple[Action, Resource]]:
    """Return what the client of a request has to be allowed, by its path.

    Raises:
        InvalidName: A part of the path is no name.
    """
    return [(route.action, _resource(request, route.scope))]


def _head(route: Route, parts: Sequence[str], request: web.Request) -> RestRequest:
    """Return the request without its body."""
    check_accepts(request.headers.get("Accept", ""), route.media_type)
    named = variables(route, parts)
    values = parameters(request.rel_url.raw_query_string)
    return RestRequest(
        named,
        {name: given[-1] for name, given in values.items()},
        values,
        headers=request.headers,
        topic_domain=route.topic_domain,
    )


async def _take_body(route: Route, wanted: RestRequest, request: web.Request) -> None:
    if route.body is not None and request.body_exists:
        wanted.body, wanted.media_type = await _read_body(route.body, request)
    elif route.body is not None and route.body.is_required:
        raise RestFailure(400, "the request has no body")


async def _read_body(body: Body, request: web.Request) -> tuple[object, str]:
    data = await read_body(request, body.bytes_max)
    if not data and not body.is_required:
        return None, ""
    media_type = media_type_of(request)
    check_media_type(media_type, body.media_types)
    return parsed_body(quoted(data) if body.is_text else data, body.type), media_type


def _resource(request: RestRequest, scope: ResourceKind | None) -> Resource:
    """Return the resource that the path names, or the one of kind ``scope`` that contains it.

    Raises:
        InvalidName: A part of it is malformed.
    """
    parts = request.parts
    if scope is ResourceKind.CLUSTER:
        return CLUSTER
    if "topic" in parts and scope in (None, ResourceKind.TOPIC):
        return Resource.topic(request.topic().text)
    if "namespace" in parts and scope is not ResourceKind.TENANT:
        return Resource.namespace(request.namespace().text)
    return Resource.tenant(request.tenant()) if "tenant" in parts else CLUSTER


def _unserved(request: web.Request, routes: Mapping[str, Route]) -> RestFailure:
    if not routes:
        return RestFailure(404, f"there is nothing at {shown(request.rel_url.raw_path)}")
    allowed = ", ".join(sorted(routes))
    reason = f"{request.method[:20]} is not allowed here, only {allowed}"
    return RestFailure(405, reason, {"Allow": allowed})
