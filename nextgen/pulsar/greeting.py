"""What a server tells a client at CONNECT, and what the client has to prove before."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from nextgen.kernel.limits.pulsar import PULSAR_FEATURE_SETS_MAX, PULSAR_MESSAGE_BYTES_MAX
from nextgen.pulsar.topic_lists.session import TopicWatches
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authorization.authorizer import Authorizer
from protos.pulsar.PulsarApi_pb2 import FeatureFlags

PROTOCOL_VERSION: Final = 21
"""The highest version of the protocol. Later features are announced by feature flags."""

SERVER_VERSION: Final = "Pulsar NextGen"
"""The server version that clients log. Some refuse an empty one."""

NO_REQUEST_ID: Final = 2**64 - 1
"""The request id of an ERROR that answers no request: -1, unsigned."""


def _default_features() -> FeatureFlags:
    return FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)


@dataclass(frozen=True, slots=True)
class Greeting:
    """The content of a server's CONNECTED. One for all connections of a server."""

    server_version: str = SERVER_VERSION
    feature_flags: FeatureFlags = field(default_factory=_default_features)
    message_bytes_max: int = PULSAR_MESSAGE_BYTES_MAX
    authenticator: Authenticator | None = None
    """Who checks what clients send with CONNECT; None: nobody, and they are anonymous."""
    authorizer: Authorizer | None = None
    """Who decides what clients may do; None: everybody may do everything."""


def greeting_with(
    watches: TopicWatches | None,
    *,
    has_scalable: bool = False,
    authenticator: Authenticator | None = None,
    authorizer: Authorizer | None = None,
) -> Greeting:
    """Return the greeting of a server whose clients may watch topic lists, if there are any.

    ``has_scalable``: it serves the commands of scalable topics.
    """
    greeting = Greeting(authenticator=authenticator, authorizer=authorizer)
    if watches is not None:
        watches.settings.announce(greeting.feature_flags)
    if has_scalable:
        greeting.feature_flags.supports_scalable_topics = True
    return greeting


@lru_cache(maxsize=PULSAR_FEATURE_SETS_MAX)
def shared_flags(encoded: bytes) -> FeatureFlags:
    """Return the flags in ``encoded``; one object for all connections with equal flags."""
    return FeatureFlags.FromString(encoded)
