"""Kinds of brokers, and which kind has the messages of a namespace.

Brokers of different kinds keep messages in different places: embedded ones in the ledger directory,
stock Apache Pulsar brokers in BookKeeper. A topic at a broker of the wrong kind would seem to be
empty, and what is sent there would be missing where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

BROKER_KIND_PROPERTY = "nextgen.brokers"
"""Of a namespace, given when it is created; of its topics, copied when they are. Never changed."""


class BrokerKind(StrEnum):
    """Stored: a value never changes. A session of a later release may be of another kind."""

    EMBEDDED = ""
    STOCK = "stock"


KINDS = frozenset(BrokerKind)


def broker_kind_of(properties: Mapping[str, str]) -> BrokerKind:
    """Return the kind of brokers that serve an object with ``properties``, which were checked."""
    return BrokerKind(properties.get(BROKER_KIND_PROPERTY, ""))


def shown_kind(kind: str) -> str:
    """Return a kind for messages and listings."""
    return kind or "embedded"
