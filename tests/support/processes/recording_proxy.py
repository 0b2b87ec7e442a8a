"""A proxy in front of an HTTP port that notes each request with its status."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TIMEOUT_S = 60

_OF_ONE_CONNECTION = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer."""

    method: str
    path: str
    status: int
    body: bytes


@dataclass
class Recording:
    """The proxy's URL, and everything that went through it."""

    url: str
    exchanges: list[Exchange] = field(default_factory=list)

    def taken(self) -> list[Exchange]:
        """Return what went through since the last call."""
        taken, self.exchanges = self.exchanges, []
        return taken


@contextmanager
def recording(target: str) -> Iterator[Recording]:
    """Forward HTTP requests to ``target``, host:port."""
    recorded = Recording("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer in two packets would wait for the client's acknowledgement of the first.
        wbufsize = -1
        disable_nagle_algorithm = True

        def _forward(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            connection = HTTPConnection(target, timeout=TIMEOUT_S)
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in _OF_ONE_CONNECTION
            }
            connection.request(self.command, self.path, self.rfile.read(size), headers)
            answer = connection.getresponse()
            body = answer.read()
            recorded.exchanges.append(Exchange(self.command, self.path, answer.status, body))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_ONE_CONNECTION:
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorded.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorded
    finally:
        server.shutdown()
        server.server_close()
