"""What consumers are made with."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from nextgen.client.st.errors import InvalidSettings
from nextgen.client.st.settings import not_negative, positive, refuse_unsupported
from nextgen.kernel.limits.scalable import ST_RECEIVER_QUEUE_DEFAULT, ST_RECEIVER_QUEUE_MAX

UNSUPPORTED = {
    "crypto_key_reader": "decrypt the payload in a custom schema",
    "transaction": "this client has no transactions",
    "dead_letter_policy": "count redeliveries by message.redelivery_count",
    "retry_enabled": "acknowledge negatively",
    "ack_timeout_ms": "acknowledge negatively",
    "consumer_group": "readers have no groups here; use a stream consumer",
    "read_compacted": "segments are not compacted",
}
"""Settings of the Java client that this one does not have, and what to do."""


class InitialPosition(Enum):
    """Where a new subscription begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of one consumer; the methods of ``PulsarClient`` document them."""

    consumer_name: str = field(default_factory=lambda: f"consumer-{secrets.token_hex(5)}")
    initial_position: InitialPosition = InitialPosition.LATEST
    receiver_queue: int = ST_RECEIVER_QUEUE_DEFAULT
    priority_level: int = 0
    negative_ack_delay_ms: int = 60_000
    create_if_missing: bool = True

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Return checked settings.

        Raises:
            NotSupported: A setting of the Java client that this one does not have.
            InvalidSettings: Any other problem.
        """
        known = set(cls.__dataclass_fields__)
        refuse_unsupported({name: given[name] for name in given if name not in known}, UNSUPPORTED)
        settings = cls(**given)
        if not isinstance(settings.consumer_name, str) or not settings.consumer_name:
            raise InvalidSettings(f"consumer_name is {settings.consumer_name!r}, not a name")
        if not isinstance(settings.initial_position, InitialPosition):
            raise InvalidSettings(f"initial_position is {settings.initial_position!r}")
        positive("receiver_queue", settings.receiver_queue, at_most=ST_RECEIVER_QUEUE_MAX)
        not_negative("priority_level", settings.priority_level)
        not_negative("negative_ack_delay_ms", settings.negative_ack_delay_ms)
        return settings


def checked_subscription(name: str) -> str:
    """Return the name of a subscription.

    Raises:
        InvalidSettings: It is none.
    """
    if not isinstance(name, str) or not name:
        raise InvalidSettings(f"subscription is {name!r}, not a name")
    return name
