"""The connections of one client, shared by all that lives on them."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from nextgen.client.st.connection.link import Link
from nextgen.client.st.errors import AlreadyClosed, ConnectionFailed
from nextgen.client.st.settings import Address, ClientSettings
from nextgen.client.st.wire import error_of
from nextgen.kernel.errors import Unavailable
from nextgen.pulsar.client import GreetingRefused
from protos.pulsar import PulsarApi_pb2 as pulsar

CLIENT_VERSION = "Pulsar NextGen Python"
CONNECT_TIMEOUT_MS = 10_000
"""Longest time to connect and greet, as in stock clients."""

Place = tuple[Address, str, int]
"""Address, the broker behind it if it is a proxy, and the number of the connection there."""


class LinkPool:
    """One connection for each place. Broken ones are replaced at the next ``get``."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._links: dict[Place, Link] = {}
        self._locks: defaultdict[Place, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._is_closed = False
        self._turn = 0
        self._last_number = settings.connections_per_broker

    def __len__(self) -> int:
        return len(self._links)

    async def get(
        self, address: Address, proxied_to: str = "", *, number: int | None = None
    ) -> Link:
        """Return a connection to ``address``, or to the broker behind it.

        Raises:
            ConnectionFailed: No Pulsar server answers there.
            ServerRefused: It does not take the client.
            AlreadyClosed: The client was closed.
        """
        if number is None:
            number = self._turn % self._settings.connections_per_broker
            self._turn += 1
        place = (address, proxied_to, number)
        async with self._locks[place]:
            link = self._links.get(place)
            if link is None or not link.is_open:
                if self._is_closed:
                    raise AlreadyClosed("the client is closed")
                link = await self._open(address, proxied_to)
                self._links[place] = link
                link.closed.add_done_callback(lambda _: self._forget(place, link))
        if self._is_closed:
            link.close()
            raise AlreadyClosed("the client is closed")
        return link

    async def get_own(self, address: Address, proxied_to: str = "") -> Link:
        """Return a connection that nobody else gets. Its user closes it."""
        self._last_number += 1
        return await self.get(address, proxied_to, number=self._last_number)

    async def close(self) -> None:
        """Close all connections, once what was sent is written or the operation's time-out is
        over: a server may have stopped reading."""
        self._is_closed = True
        links = list(self._links.values())
        for link in links:
            link.close()
        if links:
            await asyncio.wait(
                [link.closed for link in links], timeout=self._settings.operation_timeout_ms / 1_000
            )
        for link in links:
            link.abort()
        await asyncio.gather(*(link.closed for link in links))

    def abort(self) -> None:
        """Close all connections at once."""
        self._is_closed = True
        for link in list(self._links.values()):
            link.abort()

    async def _open(self, address: Address, proxied_to: str) -> Link:
        settings = self._settings
        token = self._token()
        try:
            link = await Link.open(
                address.host,
                address.port,
                connect=_greeting(token, proxied_to),
                timeout_ms=min(CONNECT_TIMEOUT_MS, settings.operation_timeout_ms),
                ssl=settings.tls if address.is_tls else None,
            )
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, GreetingRefused):
                raise error_of(cause.code, f"{address}: {cause.message}") from error
            raise ConnectionFailed(str(error)) from error
        if settings.token is not None:
            link.token = self._token
        link.watch_silence(settings.keep_alive_ms)
        return link

    def _token(self) -> str | None:
        """Return a proof of who the client is.

        Raises:
            ConnectionFailed: The function of the program raises, or returns something else.
        """
        token = self._settings.token
        try:
            made = token() if callable(token) else token
        except Exception as error:
            raise ConnectionFailed(f"the function that makes tokens failed: {error!r}") from error
        if made is not None and not isinstance(made, str):
            raise ConnectionFailed(f"the function for tokens returned a {type(made).__name__}")
        return made

    def _forget(self, place: Place, link: Link) -> None:
        if self._links.get(place) is link:
            del self._links[place]
        if not self._locks[place].locked():
            del self._locks[place]


def _greeting(token: str | None, proxied_to: str) -> pulsar.CommandConnect:
    connect = pulsar.CommandConnect(
        client_version=CLIENT_VERSION,
        protocol_version=21,
        feature_flags=pulsar.FeatureFlags(
            supports_scalable_topics=True, supports_auth_refresh=True
        ),
    )
    if token is not None:
        connect.auth_method_name = "token"
        connect.auth_data = token.encode()
    if proxied_to:
        connect.proxy_to_broker_url = proxied_to
    return connect
