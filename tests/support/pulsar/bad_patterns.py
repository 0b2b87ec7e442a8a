"""Patterns of subscriptions, and the error codes that a watcher and a listing get for each."""

from __future__ import annotations

from typing import NamedTuple

from nextgen.kernel.limits.listing import SUBSCRIPTION_PATTERN_CHARACTERS
from protos.pulsar import PulsarApi_pb2 as pulsar

SCHEME = "persistent://"
LONGEST = "acme/orders/".ljust(SUBSCRIPTION_PATTERN_CHARACTERS, "x")


class PatternCase(NamedTuple):
    """None: no error. ``filtered``: whether a listing has only the topics that match."""

    pattern: str
    watcher: int | None
    listing: int | None
    filtered: bool = False


CASES = {
    "longest": PatternCase(LONGEST, None, None, filtered=True),
    # A watcher's scheme does not count, that of a listing does.
    "longest behind its scheme": PatternCase(SCHEME + LONGEST, None, None),
    "one too long": PatternCase(f"{LONGEST}x", pulsar.NotAllowedError, None),
    "does not compile": PatternCase(
        "acme/orders/(a", pulsar.InvalidTopicName, pulsar.MetadataError
    ),
    "refers back": PatternCase(r"acme/orders/(a)\1", pulsar.NotAllowedError, None),
    "looks ahead": PatternCase("acme/orders/(?!a).*", pulsar.NotAllowedError, None),
    "explodes elsewhere": PatternCase("acme/orders/(a+)+$", None, None, filtered=True),
    "another scheme": PatternCase(
        "http://acme/orders/.*", pulsar.InvalidTopicName, pulsar.MetadataError
    ),
}
