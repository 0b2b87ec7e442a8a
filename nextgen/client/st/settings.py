"""Settings of a client, and the addresses in them. Wrong ones fail before anything is opened."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from nextgen.client.st.errors import InvalidSettings, NotSupported
from nextgen.kernel.limits.pulsar import PULSAR_KEEP_ALIVE_MS
from nextgen.kernel.limits.scalable import (
    ST_CONNECTIONS_PER_BROKER_MAX,
    ST_MEMORY_BYTES_DEFAULT,
    ST_OPERATION_TIMEOUT_MS_DEFAULT,
)

PLAIN_SCHEME = "pulsar"
TLS_SCHEME = "pulsar+ssl"
_PORTS = {PLAIN_SCHEME: 6650, TLS_SCHEME: 6651}

Token = str | Callable[[], str]
"""A token, or a function that returns one each time the client proves who it is. It is called on
the event loop."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    is_tls: bool = False

    def __str__(self) -> str:
        scheme = TLS_SCHEME if self.is_tls else PLAIN_SCHEME
        return f"{scheme}://{self.host_and_port}"

    @property
    def host_and_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a ``PulsarClient`` is made with; its documentation has the meaning of each."""

    service_url: str
    operation_timeout_ms: int = ST_OPERATION_TIMEOUT_MS_DEFAULT
    memory_limit_bytes: int = ST_MEMORY_BYTES_DEFAULT
    keep_alive_ms: int = PULSAR_KEEP_ALIVE_MS
    connections_per_broker: int = 1
    listener_name: str = ""
    token: Token | None = None
    tls: ssl.SSLContext | None = None

    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses in the service URL."""
        scheme, separator, hosts = self.service_url.partition("://")
        if not separator:
            raise InvalidSettings(f"service URL {self.service_url!r} has no scheme like pulsar://")
        return tuple(parse_address(f"{scheme}://{each.strip()}") for each in hosts.split(","))

    def checked(self) -> ClientSettings:
        """Return the settings, with a TLS context if their URL asks for one.

        Raises:
            InvalidSettings: One is out of its range or contradicts another.
        """
        for name in ("operation_timeout_ms", "memory_limit_bytes", "keep_alive_ms"):
            positive(name, getattr(self, name))
        positive(
            "connections_per_broker",
            self.connections_per_broker,
            at_most=ST_CONNECTIONS_PER_BROKER_MAX,
        )
        if not isinstance(self.listener_name, str):
            raise InvalidSettings(f"listener_name is {self.listener_name!r}, not a name")
        if not (self.token is None or isinstance(self.token, str) or callable(self.token)):
            raise InvalidSettings("token is neither a string nor a function that returns one")
        if self.tls is not None and not isinstance(self.tls, ssl.SSLContext):
            raise InvalidSettings(f"tls is {self.tls!r}, not an ssl.SSLContext")
        is_tls = self.addresses()[0].is_tls
        if self.tls is not None and not is_tls:
            raise InvalidSettings(f"tls needs a service URL that begins with {TLS_SCHEME}://")
        if is_tls and self.tls is None:
            return replace(self, tls=ssl.create_default_context())
        return self


def parse_address(url: str) -> Address:
    """Return the address in ``pulsar://host:port``; the port may be left out.

    Raises:
        InvalidSettings: It is no such URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSettings(f"URL {url!r} has no host and port: {error}") from error
    if parts.scheme not in _PORTS:
        raise InvalidSettings(f"URL {url!r} begins neither with pulsar:// nor with pulsar+ssl://")
    if not host or parts.path or parts.query or parts.username is not None:
        raise InvalidSettings(f"URL {url!r} is not of the form {parts.scheme}://host:port")
    return Address(host, port or _PORTS[parts.scheme], parts.scheme == TLS_SCHEME)


def positive(name: str, value: Any, *, at_most: int | None = None) -> None:
    """Check a whole number above 0.

    Raises:
        InvalidSettings: ``value`` is something else.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or value < 1 or (at_most is not None and value > at_most):
        limit = "" if at_most is None else f" and at most {at_most}"
        raise InvalidSettings(f"{name} is {value!r}, it must be a whole number above 0{limit}")


def not_negative(name: str, value: Any) -> None:
    """Check a whole number from 0 on.

    Raises:
        InvalidSettings: ``value`` is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidSettings(f"{name} is {value!r}, it must be a whole number from 0 on")


def texts(name: str, value: Any) -> None:
    """Check a mapping from strings to strings.

    Raises:
        InvalidSettings: ``value`` is something else.
    """
    is_mapping = isinstance(value, Mapping)
    if not is_mapping or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise InvalidSettings(f"{name} is {value!r}, not a mapping from strings to strings")


def refuse_unsupported(given: dict[str, Any], known: dict[str, str]) -> None:
    """Refuse arguments that this client does not have.

    ``known``: those that the Java client has, with what to do instead.

    Raises:
        NotSupported: One of ``known`` was given.
        InvalidSettings: Another one was given.
    """
    for name in given:
        if name in known:
            raise NotSupported(f"{name} is not supported: {known[name]}")
        raise InvalidSettings(f"there is no setting {name}")
