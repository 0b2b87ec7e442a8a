"""The HTTP server of every process: ``/metrics``, ``/livez``, ``/readyz``, and its own routes.

Live means that the event loop turns. Ready means that the process can do its work at the moment;
when it cannot, the answer lists the reasons.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from nextgen.kernel.limits.pulsar import HTTP_BODY_BYTES_MAX
from nextgen.runtime.security.process_tls import ClientTls
from nextgen.runtime.servers.http_gate import HttpGate
from nextgen.runtime.servers.ports_check import port_refusal
from nextgen.runtime.servers.tls_door import TlsDoor

BACKLOG = 128
"""Connections the kernel completes before they are accepted."""

Readiness = Callable[[], tuple[bool, list[str]]]
"""Returns whether the process is ready, and the reasons if it is not. Must not block."""


class _NotOurMistake(logging.Filter):
    """Drops aiohttp's traceback for a malformed request: its sender gets a 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


_NOT_OUR_MISTAKE = _NotOurMistake()


class Probes:
    """The probe server. ``port`` is the bound port once started.

    ``routes`` are served beside the probes. No probe reads a body; lines and headers have aiohttp's
    bounds, 8 KiB each. ``gate`` bounds connections and their time without a request.
    """

    def __init__(
        self,
        readiness: Readiness,
        registry: CollectorRegistry = REGISTRY,
        *,
        routes: Sequence[web.RouteDef] = (),
        gate: HttpGate | None = None,
    ) -> None:
        self._readiness = readiness
        self._registry = registry
        self._routes = tuple(routes)
        self._gate = HttpGate() if gate is None else gate
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._door: TlsDoor | None = None
        self.port = 0

    async def start(self, host: str, port: int, tls: ClientTls | None = None) -> int:
        """Listen and return the bound port, which matters when ``port`` is 0. With ``tls``: HTTPS.

        Raises:
            RefusesToStart: The port is taken.
        """
        assert self._runner is None, "the probes run already"
        application = web.Application(
            client_max_size=HTTP_BODY_BYTES_MAX, middlewares=[self._gate.middleware]
        )
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/livez", self._live)
        application.router.add_get("/readyz", self._ready)
        application.router.add_routes(self._routes)
        logging.getLogger("aiohttp.server").addFilter(_NOT_OUR_MISTAKE)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._gate.handlers = runner.server
        try:
            loop = asyncio.get_running_loop()
            factory: Callable[[], asyncio.Protocol] = self._gate
            if tls is not None:
                factory = self._door = TlsDoor(tls.server_context, self._gate)
            self._listener = await loop.create_server(factory, host, port, backlog=BACKLOG)
        except OSError as error:
            await runner.cleanup()
            raise port_refusal(host, port, "metrics and health probes", error) from error
        self._runner = runner
        self.port = self._listener.sockets[0].getsockname()[1]
        return self.port

    async def stop(self) -> None:
        """Stop listening. Harmless when not started."""
        runner, self._runner = self._runner, None
        if self._listener is not None:
            self._listener.close()
        if self._door is not None:
            self._door.close()
        if runner is not None:
            await runner.cleanup()
        self._gate.close()

    async def _metrics(self, _request: web.Request) -> web.Response:
        page = generate_latest(self._registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _live(self, _request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, _request: web.Request) -> web.Response:
        ready, reasons = self._readiness()
        status = 200 if ready else 503
        return web.json_response({"ready": ready, "reasons": reasons}, status=status)
