"""What operators do to one open topic: its subscriptions, its cursors, its messages.

Every operation is durable when it returns. All but ``skip`` may be repeated without harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.cursor import before
from brokers.ports.ledger import LedgerReader
from brokers.service.subscriptions.start import SubscriptionStart
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.topic import Topic
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import (
    SUBSCRIPTION_NAME_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_MAX,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a topic: exactly one of the fields is set, else it is the end of the topic."""

    is_earliest: bool = False
    behind: Position | None = None
    """Everything up to and including this position lies before the place."""
    publish_time_ms: int | None = None


LATEST = Place()


async def create_subscription(
    topic: Topic, name: str, place: Place, properties: Mapping[str, str]
) -> None:
    """Create a durable subscription without a consumer, which gets what is behind ``place``.

    Raises:
        Refused: ALREADY_EXISTS; NOT_ALLOWED for a topic that is not persistent.
        InvalidRequest: The name or the properties exceed a limit.
        Refusal: The topic has too many subscriptions, or it is closing.
        Fenced, StorageFailed, LedgerDamaged: It may have been created, or not.
    """
    _check_name(name)
    _check_properties(properties)
    _check_persistent(topic)
    mark_delete = await mark_delete_of(place, topic.ledger)
    if topic.has_subscription(name):
        raise Refused(
            RejectionCode.ALREADY_EXISTS, f"{topic.unit.name} has a subscription {name!r}"
        )
    start = SubscriptionStart(mark_delete=mark_delete, properties=properties)
    await topic.create_subscription(name, start)


async def delete_subscription(topic: Topic, name: str, *, is_forced: bool) -> None:
    """Delete a subscription; ``is_forced`` disconnects its consumers, who may create it anew.

    Raises:
        Refused: NOT_FOUND; NOT_EMPTY: consumers are connected, and it is not forced.
        Refusal: The subscription is being reset, or the topic is closing.
        Fenced, StorageFailed: It may have been deleted, or not.
    """
    subscription = subscription_of(topic, name)
    if subscription.consumers and not is_forced:
        raise Refused(
            RejectionCode.NOT_EMPTY,
            f"subscription {name!r} of {topic.unit.name} has {len(subscription.consumers)} "
            "connected consumers",
        )
    await topic.delete_subscription(subscription, is_forced=is_forced)


async def update_subscription(topic: Topic, name: str, properties: Mapping[str, str]) -> None:
    """Replace a subscription's properties.

    Raises:
        Refused: NOT_FOUND.
        InvalidRequest: The properties exceed a limit.
        Refusal: The subscription is being reset, or the topic is closing.
        Fenced, StorageFailed: They may have been replaced, or not.
    """
    _check_properties(properties)
    await subscription_of(topic, name).use_properties(properties)


def subscription_of(topic: Topic, name: str) -> Subscription:
    """Return a subscription.

    Raises:
        Refused: NOT_FOUND.
        Refusal: The topic is closing.
    """
    if not topic.is_usable:
        raise Refusal(
            ServerError.SERVICE_NOT_READY, f"{topic.unit.name} is closing: look it up again"
        )
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise Refused(RejectionCode.NOT_FOUND, f"{topic.unit.name} has no subscription {name!r}")
    return subscription


async def mark_delete_of(place: Place, ledger: LedgerReader) -> Position:
    """Return the mark-delete position of a subscription that begins at ``place``.

    Raises:
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    if place.is_earliest:
        return before(ledger.first)
    if place.publish_time_ms is not None:
        return await ledger.before_time(place.publish_time_ms)
    return ledger.last if place.behind is None else min(place.behind, ledger.last)


def _check_persistent(topic: Topic) -> None:
    if not topic.unit.is_persistent:
        raise Refused(
            RejectionCode.NOT_ALLOWED, f"{topic.unit.name} is not persistent: it stores nothing"
        )


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRequest("a subscription needs a name")
    if len(name.encode()) > SUBSCRIPTION_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"a subscription's name has at most {SUBSCRIPTION_NAME_BYTES_MAX} bytes"
        )


def _check_properties(properties: Mapping[str, str]) -> None:
    # Check the number first: empty properties have no bytes.
    if len(properties) > SUBSCRIPTION_PROPERTIES_MAX:
        raise InvalidRequest(f"a subscription has at most {SUBSCRIPTION_PROPERTIES_MAX} properties")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > SUBSCRIPTION_PROPERTIES_BYTES_MAX:
        raise InvalidRequest(
            f"a subscription's properties have at most {SUBSCRIPTION_PROPERTIES_BYTES_MAX} bytes"
        )
