"""Where Pulsar clients reach a process: one text for both of its ports (ADR 0144).

    pulsar://host:6650    pulsar+ssl://host:6651    pulsar://host:6650,pulsar+ssl://host:6651

Behind it, each after a semicolon, are the addresses of a broker's advertised listeners (ADR 0160),
for clients that name one:

    pulsar://10.0.0.7:6650;internal=pulsar://10.0.0.7:6650;external=pulsar+ssl://b1.example:6651

Brokers register with it and shards hand it on, unread. It is divided where clients are answered,
whose protocol has a field for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from nextgen.kernel.errors import InvalidRequest

PLAIN_SCHEME = "pulsar://"
TLS_SCHEME = "pulsar+ssl://"

_LISTENER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_KEPT = 4_096
"""As many as a cluster may have brokers."""

_PORT_MAX = 65_535


class ServiceUrls(NamedTuple):
    """The URLs of one process; each "" if it has no such port."""

    plain: str
    tls: str


def joined_urls(plain: object | None, tls: object | None) -> str:
    """Return one text for two addresses (host:port); None: there is no such port."""
    urls = (PLAIN_SCHEME, plain), (TLS_SCHEME, tls)
    return ",".join(f"{scheme}{address}" for scheme, address in urls if address is not None)


def with_listeners(urls: str, listeners: Mapping[str, ServiceUrls]) -> str:
    """Return one text for the addresses of clients that name no listener, and of each listener."""
    return ";".join(
        (
            urls,
            *(
                f"{name}={','.join(filter(None, listener))}"
                for name, listener in sorted(listeners.items())
            ),
        )
    )


def has_listeners(text: str) -> bool:
    """Return whether clients may name one, so that none can be sent there without asking it."""
    return ";" in text


@lru_cache(maxsize=_KEPT)
def urls_of_listener(text: str, listener: str) -> ServiceUrls:
    """Return the URLs for clients that name a listener; "" is none.

    Raises:
        InvalidRequest: There is no such listener. In Pulsar's words, for those who look them up.
    """
    if not listener:
        return split_urls(text)
    prefix = f"{listener}="
    for part in text.split(";")[1:]:
        if part.startswith(prefix):
            return split_urls(part.removeprefix(prefix))
    raise InvalidRequest(f"the broker do not have {listener[:64]} listener")


def parse_listeners(text: str) -> dict[str, ServiceUrls]:
    """Return the listeners in Pulsar's ``advertisedListeners``: ``name:pulsar://host:port,...``.

    Raises:
        ValueError: One is malformed, has a scheme twice, or two have one address. The message says
            which.
    """
    listeners: dict[str, ServiceUrls] = {}
    taken: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, url = part.partition(":")
        scheme = next((one for one in (TLS_SCHEME, PLAIN_SCHEME) if url.startswith(one)), "")
        address = url.removeprefix(scheme)
        if not scheme or not _LISTENER.fullmatch(name) or not _is_address(address):
            raise ValueError(f"{part!r} is not NAME:pulsar://host:port or NAME:pulsar+ssl://…")
        if taken.setdefault(address, name) != name:
            raise ValueError(f"{address} is that of two listeners, {taken[address]} and {name}")
        present = listeners.get(name, ServiceUrls("", ""))
        if present.tls if scheme == TLS_SCHEME else present.plain:
            raise ValueError(f"{name} has more than one {scheme} address")
        listeners[name] = (
            present._replace(tls=url) if scheme == TLS_SCHEME else present._replace(plain=url)
        )
    return listeners


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return (
        bool(host)
        and not set(host) & set(" ;,=/@")
        and port.isascii()
        and port.isdigit()
        and 1 <= int(port) <= _PORT_MAX
    )


@lru_cache(maxsize=_KEPT)
def split_urls(text: str) -> ServiceUrls:
    """Return the URLs for clients that name no listener, in such a text or in one URL."""
    text = text.partition(";")[0]
    at = text.find(TLS_SCHEME)
    if at < 0:
        return ServiceUrls(text, "")
    return ServiceUrls(text[:at].removesuffix(","), text[at:])
