"""What consumers are made with."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self

from nextgen.client.st.domain.redelivery import RedeliveryBackoff
from nextgen.client.st.errors import InvalidSettings
from nextgen.client.st.settings import not_negative, positive, refuse_unsupported, texts
from nextgen.kernel.limits.scalable import ST_RECEIVER_QUEUE_DEFAULT, ST_RECEIVER_QUEUE_MAX
from nextgen.kernel.routing.names import InvalidName, NamespaceName, parse_namespace
from nextgen.kernel.routing.property_filter import InvalidFilter, PropertyFilter, property_filter

UNSUPPORTED = {
    "crypto_key_reader": "decrypt the payload in a custom schema",
    "transaction": "this client has no transactions",
    "retry_letter_topic": "acknowledge negatively; Java's V5 client has no use for it either",
    "read_compacted": "segments are not compacted",
    "replicate_subscription_state": "scalable topics are not replicated",
    "ack_group_time_ms": "acknowledgements of one turn of the event loop go together",
    "ack_group_messages_max": "acknowledgements of one turn of the event loop go together",
}
"""Settings of the Java client that this one does not have, and what to do."""


_MULTIPLIER_MAX = 1_000

QUEUE_ONLY = frozenset(
    {
        "priority_level",
        "negative_ack_delay_ms",
        "negative_ack_backoff",
        "ack_timeout_ms",
        "ack_timeout_backoff",
        "dead_letter",
    }
)
"""Settings of consumers that acknowledge each message by itself."""

NOT_OF_NAMESPACES = frozenset({"create_if_missing"})
"""Settings that consumers of a namespace do not have."""


class InitialPosition(Enum):
    """Where a new subscription begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """When a message goes to another topic instead of coming again.

    It may come again ``max_redeliveries`` times. ``topic`` is the consumed one with ``-DLQ`` behind
    its name by default. Of a topic without subscriptions servers keep nothing, so
    ``initial_subscription`` is made there before the first message.
    """

    max_redeliveries: int
    topic: str = ""
    initial_subscription: str = ""

    def of(self, consumed: str) -> DeadLetterPolicy:
        """Return the policy with its topic filled in."""
        return replace(self, topic=self.topic or f"{consumed}-DLQ")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of one consumer; the methods of ``PulsarClient`` document them."""

    consumer_name: str = field(default_factory=lambda: f"consumer-{secrets.token_hex(5)}")
    initial_position: InitialPosition = InitialPosition.LATEST
    receiver_queue: int = ST_RECEIVER_QUEUE_DEFAULT
    priority_level: int = 0
    negative_ack_delay_ms: int = 60_000
    negative_ack_backoff: RedeliveryBackoff | None = None
    ack_timeout_ms: int = 0
    ack_timeout_backoff: RedeliveryBackoff | None = None
    dead_letter: DeadLetterPolicy | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    create_if_missing: bool = True

    @classmethod
    def of(cls, given: dict[str, Any], *, refused: frozenset[str] = frozenset()) -> Self:
        """Return checked settings. ``refused``: those that this kind of consumer does not have.

        Raises:
            NotSupported: A setting of the Java client that this one does not have.
            InvalidSettings: Any other problem.
        """
        for name in refused & set(given):
            raise InvalidSettings(f"{name} is not for this kind of consumer")
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
        not_negative("ack_timeout_ms", settings.ack_timeout_ms)
        for name in ("negative_ack_backoff", "ack_timeout_backoff"):
            _check_backoff(name, getattr(settings, name))
        if settings.ack_timeout_backoff is not None and not settings.ack_timeout_ms:
            raise InvalidSettings("ack_timeout_backoff needs ack_timeout_ms")
        _check_dead_letter(settings.dead_letter)
        texts("properties", settings.properties)
        texts("subscription_properties", settings.subscription_properties)
        return settings


def _check_backoff(name: str, backoff: Any) -> None:
    if backoff is None:
        return
    if not isinstance(backoff, RedeliveryBackoff):
        raise InvalidSettings(f"{name} is {backoff!r}, not a RedeliveryBackoff")
    not_negative(f"first_ms of {name}", backoff.first_ms)
    not_negative(f"last_ms of {name}", backoff.last_ms)
    multiplier = backoff.multiplier
    if not isinstance(multiplier, int | float) or not 1 <= multiplier <= _MULTIPLIER_MAX:
        raise InvalidSettings(
            f"multiplier of {name} is {multiplier!r}, it must be from 1 to {_MULTIPLIER_MAX}"
        )


def _check_dead_letter(policy: Any) -> None:
    if policy is None:
        return
    if not isinstance(policy, DeadLetterPolicy):
        raise InvalidSettings(f"dead_letter is {policy!r}, not a DeadLetterPolicy")
    positive("max_redeliveries of dead_letter", policy.max_redeliveries)
    for name in ("topic", "initial_subscription"):
        if not isinstance(getattr(policy, name), str):
            raise InvalidSettings(f"{name} of dead_letter is no name")


def checked_namespace(text: str) -> NamespaceName:
    """Return the name of a namespace.

    Raises:
        InvalidSettings: It is none.
    """
    try:
        return parse_namespace(text)
    except (InvalidName, AttributeError) as error:
        raise InvalidSettings(f"namespace is {text!r}, not tenant/namespace") from error


def checked_filters(given: Mapping[str, str] | None) -> PropertyFilter:
    """Return the properties that topics must have.

    Raises:
        InvalidSettings: They are none, or more than a topic may have.
    """
    texts("property_filters", given or {})
    try:
        return property_filter((given or {}).items())
    except InvalidFilter as error:
        raise InvalidSettings(f"property_filters: {error}") from error


def checked_subscription(name: str) -> str:
    """Return the name of a subscription.

    Raises:
        InvalidSettings: It is none.
    """
    if not isinstance(name, str) or not name:
        raise InvalidSettings(f"subscription is {name!r}, not a name")
    return name
