"""What clients may use of a topic, of a tenant's topics, and of a broker (ADR 0151, ADR 0152).

    broker's setting ◀─ tenant's policy ◀─ namespace's ◀─ topic's: the last one that is set counts
    tenantLimits: a ceiling for all topics of the tenant together, at each broker

Policies are Pulsar's JSON, stored by name. ``refused`` is strict: it is for whoever sets one.
``limits_of`` is lenient: what cannot be read counts as not set, as an earlier release stored it
without a check.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from nextgen.kernel.limits.inbound import RATE_PERIOD_SECONDS_MAX
from nextgen.kernel.limits.pulsar import CONSUMER_UNACKED_MAX, SUBSCRIPTION_UNACKED_MAX

TENANT_LIMITS: Final = "tenantLimits"
"""Name of the policy with a tenant's ceiling. Only tenants have it."""

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_EXACT_MAX: Final = 2**53
"""Settings are read as floating-point numbers: they hold whole numbers up to this one."""

_SUBSCRIBE_PERIOD_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages and bytes in a period; 0: no bound."""

    messages: int = 0
    size_bytes: int = 0
    period_seconds: int = 1
    is_relative: bool = False
    """Whether the rate at which the topic is published to is added."""

    def __bool__(self) -> bool:
        return bool(self.messages or self.size_bytes)


NO_RATE: Final = Rate()


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What all topics of a tenant may use together at one broker; 0: no bound."""

    publish: Rate = NO_RATE
    dispatch: Rate = NO_RATE
    producers: int = 0
    consumers: int = 0
    connections: int = 0
    """Connections with a producer or consumer of the tenant's topics."""


NO_TENANT_LIMITS: Final = TenantLimits()


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What clients may use of one topic, or of one partition; 0: no bound."""

    publish: Rate = NO_RATE
    dispatch: Rate = NO_RATE
    """To all subscriptions together."""
    subscription_dispatch: Rate = NO_RATE
    """To each subscription that ``named_dispatch`` does not name."""
    named_dispatch: tuple[tuple[str, Rate], ...] = ()
    subscribes: int = 0
    """SUBSCRIBE commands of one consumer in a period."""
    subscribe_period_seconds: int = _SUBSCRIBE_PERIOD_SECONDS
    producers: int = 0
    consumers: int = 0
    subscription_consumers: int = 0
    subscriptions: int = 0
    consumer_unacked: int = CONSUMER_UNACKED_MAX
    """Never more than the default, which bounds memory: 0 and larger numbers mean the default."""
    subscription_unacked: int = SUBSCRIPTION_UNACKED_MAX
    tenant: TenantLimits = NO_TENANT_LIMITS


NO_LIMITS: Final = TopicLimits()


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What clients may use of one broker; 0: no bound."""

    connections: int = 0
    address_connections: int = 0
    """Of one IP address."""
    role_connections: int = 0
    """Of one role; clients without one count by their IP address."""
    role_producers: int = 0
    role_consumers: int = 0


NO_BROKER_LIMITS: Final = BrokerLimits()


class _Unreadable(ValueError):
    """A policy makes no sense. The message begins with a field's name."""


@dataclass(frozen=True, slots=True)
class _Number:
    """One number of a policy; ``least`` to ``most`` are allowed."""

    least: int
    most: int


_MESSAGES: Final = _Number(-1, _INT_MAX)
_BYTES: Final = _Number(-1, _LONG_MAX)
_PERIOD: Final = _Number(1, RATE_PERIOD_SECONDS_MAX)
_COUNT: Final = _Number(0, _INT_MAX)

_Form = Mapping[str, _Number | type[bool]]

_PUBLISH_RATE: Final[_Form] = {
    "publishThrottlingRateInMsg": _MESSAGES,
    "publishThrottlingRateInByte": _BYTES,
}
_DISPATCH_RATE: Final[_Form] = {
    "dispatchThrottlingRateInMsg": _MESSAGES,
    "dispatchThrottlingRateInByte": _BYTES,
    "relativeToPublishRate": bool,
    "ratePeriodInSecond": _PERIOD,
}
_SUBSCRIBE_RATE: Final[_Form] = {
    "subscribeThrottlingRatePerConsumer": _MESSAGES,
    "ratePeriodInSecond": _PERIOD,
}
_TENANT: Final[_Form] = {
    "publishRateInMsgs": _MESSAGES,
    "publishRateInBytes": _BYTES,
    "dispatchRateInMsgs": _MESSAGES,
    "dispatchRateInBytes": _BYTES,
    "maxProducers": _COUNT,
    "maxConsumers": _COUNT,
    "maxConnections": _COUNT,
}
TENANT_LIMIT_FIELDS: Final = tuple(_TENANT)
"""The fields of ``tenantLimits``: rates under the names of Pulsar's resource groups."""

_COUNTS: Final[Mapping[str, str]] = {
    "maxProducersPerTopic": "producers",
    "maxConsumersPerTopic": "consumers",
    "maxConsumersPerSubscription": "subscription_consumers",
    "maxSubscriptionsPerTopic": "subscriptions",
    "maxUnackedMessagesPerConsumer": "consumer_unacked",
    "maxUnackedMessagesPerSubscription": "subscription_unacked",
}
"""Policies that are a number, and the fields that they are."""


def refused(name: str, text: str) -> str:
    """Return why a stored policy may not have this JSON, "" if it may or is none of these."""
    reader = _READERS.get(name)
    if reader is None:
        return ""
    try:
        reader(_loaded(text))
    except _Unreadable as error:
        return f"{name}: {error}"
    return ""


def problem(name: str, value: Any) -> str:
    """Return why a policy may not have this value, in JSON's own types; "" if it may."""
    try:
        _READERS[name](value)
    except _Unreadable as error:
        return str(error)
    return ""


@lru_cache(maxsize=1_024)
def limits_of(stored: tuple[tuple[str, str], ...], service: TopicLimits) -> TopicLimits:
    """Return ``service``, overridden by those of the ``stored`` policies that can be read."""
    found: dict[str, Any] = {}
    for name, text in stored:
        reader = _READERS.get(name)
        if reader is not None:
            try:
                found |= reader(_loaded(text))
            except _Unreadable:
                continue
    return replace(service, **found) if found else service


# Reading ------------------------------------------------------------------------------------------


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _Unreadable("it is no JSON") from None


def _fields(form: _Form, value: Any) -> dict[str, Any]:
    """Return the checked fields of an object; those that are null are left out."""
    if not isinstance(value, dict):
        raise _Unreadable("it is no object")
    for name in value:
        if name not in form:
            raise _Unreadable(f"{ascii(name)[:80]} is none of {', '.join(form)}")
    given = {name: each for name, each in value.items() if each is not None}
    for name, each in given.items():
        kind = form[name]
        if not isinstance(kind, _Number):
            if not isinstance(each, bool):
                raise _Unreadable(f"{name} is neither true nor false")
            continue
        _check_number(name, kind, each)
    return given


def _check_number(name: str, number: _Number, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Unreadable(f"{name} is no whole number")
    if not number.least <= value <= number.most:
        # An integer of JSON may be too long to be shown.
        raise _Unreadable(f"{name} is not {number.least} to {number.most}")


def _publish_rate(value: Any) -> dict[str, Any]:
    given = _fields(_PUBLISH_RATE, value)
    messages, size_bytes = (_bound(given.get(name)) for name in _PUBLISH_RATE)
    return {"publish": Rate(messages, size_bytes)}


def _dispatch_rate(value: Any) -> Rate:
    given = _fields(_DISPATCH_RATE, value)
    return Rate(
        _bound(given.get("dispatchThrottlingRateInMsg")),
        _bound(given.get("dispatchThrottlingRateInByte")),
        given.get("ratePeriodInSecond", 1),
        given.get("relativeToPublishRate", False),
    )


def _named_rates(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unreadable("it is no object")
    return {"named_dispatch": tuple((name, _dispatch_rate(each)) for name, each in value.items())}


def _subscribe_rate(value: Any) -> dict[str, Any]:
    given = _fields(_SUBSCRIBE_RATE, value)
    return {
        "subscribes": _bound(given.get("subscribeThrottlingRatePerConsumer")),
        "subscribe_period_seconds": given.get("ratePeriodInSecond", _SUBSCRIBE_PERIOD_SECONDS),
    }


def _tenant_limits(value: Any) -> dict[str, Any]:
    given = _fields(_TENANT, value)
    limits = TenantLimits(
        Rate(_bound(given.get("publishRateInMsgs")), _bound(given.get("publishRateInBytes"))),
        Rate(_bound(given.get("dispatchRateInMsgs")), _bound(given.get("dispatchRateInBytes"))),
        producers=given.get("maxProducers", 0),
        consumers=given.get("maxConsumers", 0),
        connections=given.get("maxConnections", 0),
    )
    return {"tenant": limits}


def _count_reader(name: str) -> Callable[[Any], dict[str, Any]]:
    def read(value: Any) -> dict[str, Any]:
        _check_number(name, _COUNT, value)
        return {_COUNTS[name]: _unacked(_COUNTS[name], value)}

    return read


def _unacked(field: str, value: int) -> int:
    most: int = getattr(NO_LIMITS, field)
    return (min(value, most) or most) if most else value


def _bound(rate: int | None) -> int:
    return max(rate or 0, 0)


_READERS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "publishRate": _publish_rate,
    "dispatchRate": lambda value: {"dispatch": _dispatch_rate(value)},
    "subscriptionDispatchRate": lambda value: {"subscription_dispatch": _dispatch_rate(value)},
    "subscriptionDispatchRates": _named_rates,
    "subscribeRate": _subscribe_rate,
    TENANT_LIMITS: _tenant_limits,
    **{name: _count_reader(name) for name in _COUNTS},
}
LIMIT_POLICIES: Final = tuple(_READERS)
"""The names of all policies that are read here."""

LIMIT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "publishRate": tuple(_PUBLISH_RATE),
    "dispatchRate": tuple(_DISPATCH_RATE),
    "subscriptionDispatchRate": tuple(_DISPATCH_RATE),
    "subscribeRate": tuple(_SUBSCRIBE_RATE),
    TENANT_LIMITS: TENANT_LIMIT_FIELDS,
    **dict.fromkeys(_COUNTS, ()),
}
"""The fields of each that is an object; none: it is a number. Rates by subscription have others."""


# Settings of brokers ------------------------------------------------------------------------------

_RELATIVE: Final = "dispatchThrottlingRateRelativeToPublishRate"

LIMIT_SWITCHES: Final = (_RELATIVE,)
LIMIT_NUMBERS: Final[Mapping[str, tuple[int, int, int]]] = {
    "maxPublishRatePerTopicInMessages": (0, 0, _INT_MAX),
    "maxPublishRatePerTopicInBytes": (0, 0, _EXACT_MAX),
    "dispatchThrottlingRatePerTopicInMsg": (0, 0, _INT_MAX),
    "dispatchThrottlingRatePerTopicInByte": (0, 0, _EXACT_MAX),
    "dispatchThrottlingRatePerSubscriptionInMsg": (0, 0, _INT_MAX),
    "dispatchThrottlingRatePerSubscriptionInByte": (0, 0, _EXACT_MAX),
    "subscribeThrottlingRatePerConsumer": (0, 0, _INT_MAX),
    "subscribeRatePeriodPerConsumerInSecond": (
        _SUBSCRIBE_PERIOD_SECONDS,
        1,
        RATE_PERIOD_SECONDS_MAX,
    ),
    "maxProducersPerTopic": (0, 0, _INT_MAX),
    "maxConsumersPerTopic": (0, 0, _INT_MAX),
    "maxConsumersPerSubscription": (0, 0, _INT_MAX),
    "maxSubscriptionsPerTopic": (0, 0, _INT_MAX),
    "maxUnackedMessagesPerConsumer": (CONSUMER_UNACKED_MAX, 0, CONSUMER_UNACKED_MAX),
    "maxUnackedMessagesPerSubscription": (
        SUBSCRIPTION_UNACKED_MAX,
        0,
        SUBSCRIPTION_UNACKED_MAX,
    ),
    "brokerMaxConnections": (0, 0, _INT_MAX),
    "brokerMaxConnectionsPerIp": (0, 0, _INT_MAX),
    "brokerMaxConnectionsPerRole": (0, 0, _INT_MAX),
    "brokerMaxProducersPerRole": (0, 0, _INT_MAX),
    "brokerMaxConsumersPerRole": (0, 0, _INT_MAX),
}
"""Default, least and most of each whole number. 0: no bound."""

LIMIT_SETTINGS: Final[Mapping[str, bool | int]] = {
    **{name: default for name, (default, _, _) in LIMIT_NUMBERS.items()},
    **dict.fromkeys(LIMIT_SWITCHES, False),
}
"""The defaults of all of them."""

LIMIT_SUMMARIES: Final[Mapping[str, str]] = {
    "maxPublishRatePerTopicInMessages": "messages published to a topic per second; 0: no bound",
    "maxPublishRatePerTopicInBytes": "the same in bytes",
    "dispatchThrottlingRatePerTopicInMsg": "messages dispatched of a topic per second, to all "
    "subscriptions together; 0: no bound",
    "dispatchThrottlingRatePerTopicInByte": "the same in bytes",
    "dispatchThrottlingRatePerSubscriptionInMsg": "messages dispatched to a subscription per "
    "second; 0: no bound",
    "dispatchThrottlingRatePerSubscriptionInByte": "the same in bytes",
    "subscribeThrottlingRatePerConsumer": "subscribes of a consumer in a period; 0: no bound",
    "subscribeRatePeriodPerConsumerInSecond": "seconds of that period",
    "maxProducersPerTopic": "producers of a topic; 0: no bound",
    "maxConsumersPerTopic": "consumers of a topic; 0: no bound",
    "maxConsumersPerSubscription": "consumers of a subscription; 0: no bound",
    "maxSubscriptionsPerTopic": "subscriptions of a topic; 0: no bound",
    "maxUnackedMessagesPerConsumer": "messages that a Shared or Key_Shared consumer may leave "
    "unacknowledged; 0: the default",
    "maxUnackedMessagesPerSubscription": "the same for all consumers of a subscription",
    "brokerMaxConnections": "connections to a broker; 0: no bound",
    "brokerMaxConnectionsPerIp": "connections to a broker from one IP address; 0: no bound",
    "brokerMaxConnectionsPerRole": "connections to a broker of one role, or from one IP address "
    "without a role; 0: no bound",
    "brokerMaxProducersPerRole": "producers of one role at a broker; 0: no bound",
    "brokerMaxConsumersPerRole": "consumers of one role at a broker; 0: no bound",
    _RELATIVE: "whether the rate at which the topic is published to is added to what may be "
    "dispatched",
}


def topic_limits_of(values: Mapping[str, Any]) -> TopicLimits:
    """Return the level below all policies, by settings that are checked already."""

    def rate(messages: str, size_bytes: str, *, is_relative: bool = False) -> Rate:
        return Rate(values[messages], values[size_bytes], 1, is_relative)

    counts: dict[str, Any] = {
        field: _unacked(field, values[name]) for name, field in _COUNTS.items()
    }
    return TopicLimits(
        publish=rate("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"),
        dispatch=rate(
            "dispatchThrottlingRatePerTopicInMsg",
            "dispatchThrottlingRatePerTopicInByte",
            is_relative=values[_RELATIVE],
        ),
        subscription_dispatch=rate(
            "dispatchThrottlingRatePerSubscriptionInMsg",
            "dispatchThrottlingRatePerSubscriptionInByte",
            is_relative=values[_RELATIVE],
        ),
        subscribes=values["subscribeThrottlingRatePerConsumer"],
        subscribe_period_seconds=values["subscribeRatePeriodPerConsumerInSecond"],
        **counts,
    )


def broker_limits_of(values: Mapping[str, Any]) -> BrokerLimits:
    """Return what clients may use of a broker, by settings that are checked already."""
    return BrokerLimits(
        values["brokerMaxConnections"],
        values["brokerMaxConnectionsPerIp"],
        values["brokerMaxConnectionsPerRole"],
        values["brokerMaxProducersPerRole"],
        values["brokerMaxConsumersPerRole"],
    )
