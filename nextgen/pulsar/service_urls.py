"""Where Pulsar clients reach a process: one text for both of its ports (ADR 0144).

    pulsar://host:6650    pulsar+ssl://host:6651    pulsar://host:6650,pulsar+ssl://host:6651

Brokers register with it and shards hand it on, unread. It is divided where clients are answered,
whose protocol has a field for each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

PLAIN_SCHEME = "pulsar://"
TLS_SCHEME = "pulsar+ssl://"

_KEPT = 4_096
"""As many as a cluster may have brokers."""


class ServiceUrls(NamedTuple):
    """The URLs of one process; each "" if it has no such port."""

    plain: str
    tls: str


def joined_urls(plain: object | None, tls: object | None) -> str:
    """Return one text for two addresses (host:port); None: there is no such port."""
    urls = (PLAIN_SCHEME, plain), (TLS_SCHEME, tls)
    return ",".join(f"{scheme}{address}" for scheme, address in urls if address is not None)


@lru_cache(maxsize=_KEPT)
def split_urls(text: str) -> ServiceUrls:
    """Return the URLs in what ``joined_urls`` made, or in one URL."""
    at = text.find(TLS_SCHEME)
    if at < 0:
        return ServiceUrls(text, "")
    return ServiceUrls(text[:at].removesuffix(","), text[at:])
