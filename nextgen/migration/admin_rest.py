"""Calls of a stock Pulsar cluster's Admin REST v2, repeated while its brokers restart."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import aiohttp

from nextgen.kernel.limits.bulk import SOURCE_ANSWER_BYTES_MAX, SOURCE_REQUESTS_MAX
from nextgen.migration.records import SourceFailed
from nextgen.runtime.security.tls_alert import alert_in, dialled

ATTEMPTS = 5
"""Requests for one answer: a broker that restarts is back after the last pause."""

PAUSE_S = 0.5
"""Pause before the second request; it doubles with each."""

REQUEST_TIMEOUT_S = 60.0

_HEADERS = {"Content-Type": "application/json"}
"""A change without a body is refused without it (415)."""

REDIRECTS_MAX = 5
"""Brokers that an answer may come from: each redirects to the one that has the namespace."""

_REASON_CHARACTERS_MAX = 200
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_DONE = frozenset({200, 204})
_GONE = frozenset({404, 409, 412})
_REDIRECTED = frozenset({301, 302, 307, 308})
"""Pulsar's own is 307; others come from what stands before its brokers."""

_REDIRECTS = frozenset({("http", "http"), ("http", "https"), ("https", "https")})
"""From which scheme to which: who has proved a role by TLS proves none without."""


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """How a cluster lets one in to its Admin REST."""

    token: str = field(default="", repr=False)
    """Proves a role of the cluster; empty: none is sent."""
    tls: ssl.SSLContext | None = None
    """Which authorities are trusted, and the certificate of this side; None: the machine's, and
    none."""
    is_certified: bool = False
    """``tls`` has a certificate, which proves a role as well."""


OPEN = AdminAccess()
"""Of a cluster that asks for nothing."""


class AdminRest:
    """The Admin REST at ``url``, such as ``http://broker:8080``. Close it.

    Redirects to other brokers of the cluster are followed with the token and the certificate, as
    Pulsar's own client does, but never from HTTPS to HTTP. No error has the token in its text.
    """

    def __init__(self, url: str, access: AdminAccess = OPEN) -> None:
        self._admin = f"{url.rstrip('/')}/admin/v2"
        self._token = access.token
        self._tls = access.tls
        self._is_certified = access.is_certified
        self._headers = dict(_HEADERS)
        if access.token:
            self._headers["Authorization"] = f"Bearer {access.token}"
        self._requests = asyncio.Semaphore(SOURCE_REQUESTS_MAX)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
            connector=aiohttp.TCPConnector(
                limit=SOURCE_REQUESTS_MAX, ssl=True if access.tls is None else access.tls
            ),
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
                    status, content = await self._answer(method, url)
                except (aiohttp.ClientError, TimeoutError) as error:
                    problem = str(error) or type(error).__name__
                    continue
                if status in _GONE or status in _DONE:
                    return status, content
                if status in (401, 403):
                    raise SourceFailed(self._not_let_in(status, content, f"{method} {url}"))
                problem = f"HTTP {status} {self._shown(content)}"
                if status not in _PASSING:
                    break
        raise SourceFailed(f"{url} does not answer: {problem}")

    async def _answer(self, method: str, url: str) -> tuple[int, bytes]:
        """Return status and content of one request, from whichever broker it is for."""
        for _ in range(REDIRECTS_MAX):
            try:
                # aiohttp would leave the token out on the way to another broker.
                async with self._session.request(
                    method, url, headers=self._headers, allow_redirects=False
                ) as answer:
                    content = await _bounded(answer)
            except aiohttp.ClientConnectorCertificateError as error:
                why = error.certificate_error
                raise SourceFailed(f"the certificate of {url} is not trusted: {why}") from error
            except aiohttp.ClientError as error:
                if alert := await _alert_of(error, url, self._tls):
                    raise SourceFailed(self._tls_refused(url, alert)) from error
                raise
            if answer.status not in _REDIRECTED:
                return answer.status, content
            url = self._redirected(url, answer.headers.get("Location", ""))
        raise SourceFailed(f"{url} redirects again and again")

    def _redirected(self, url: str, location: str) -> str:
        following = urljoin(url, location)
        if (urlsplit(url).scheme, urlsplit(following).scheme) not in _REDIRECTS:
            raise SourceFailed(f"{url} redirects to {following}, which is not followed")
        return following

    def _not_let_in(self, status: int, content: bytes, request: str) -> str:
        proofs = {"token": bool(self._token), "certificate": self._is_certified}
        proof = " or ".join(each for each, is_given in proofs.items() if is_given)
        if status == 403:
            what = "the role is not permitted to" if proof else "nobody without a token may"
        elif proof:
            what = f"the {proof} is not accepted for"
        else:
            what = "Pulsar asks for a token for"
        return f"{what} {request} (HTTP {status} {self._shown(content)})"

    def _tls_refused(self, url: str, alert: str) -> str:
        what = "with this certificate" if self._is_certified else "without a certificate"
        return f"{url} refuses a connection {what}: {alert}"

    def _shown(self, content: bytes) -> str:
        """Return the beginning of an answer for people, without the token if it repeats that."""
        text = content.decode("utf-8", "replace")
        if self._token:
            text = text.replace(self._token, "...")
        return repr(text[:_REASON_CHARACTERS_MAX])


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


async def _alert_of(error: aiohttp.ClientError, url: str, tls: ssl.SSLContext | None) -> str:
    """Return why the broker of ``url`` broke TLS off, "" if it did not, or is not known to have."""
    if alert := alert_in(error):
        return alert
    parts = urlsplit(url)
    is_lost = isinstance(error, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError)
    if not is_lost or parts.scheme != "https" or parts.hostname is None:
        return ""
    try:
        context = tls or ssl.create_default_context()
        async with dialled(parts.hostname, parts.port or 443, context) as reader:
            await reader.read(1)
    except (OSError, TimeoutError) as failure:
        return alert_in(failure)
    return ""


def _json(url: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceFailed(f"{url} does not answer JSON: {content[:80]!r}") from error
