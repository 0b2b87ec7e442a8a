"""Enforced policies as Pulsar writes them: in minutes, megabytes and words of its own.

Each policy is a pair of functions between ``Policies`` and a JSON value, in which None is unset.
What this cluster can express more finely than Pulsar is rounded up when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from nextgen.kernel.governance.permissions import SubscriptionAuthMode
from nextgen.kernel.governance.policies import (
    FOR_EVER,
    NO_AUTO_CREATION,
    NO_QUOTA,
    NO_RETENTION,
    AutoCreation,
    BacklogAction,
    BacklogQuota,
    Policies,
    Retention,
    SchemaCompatibility,
)

_MINUTE_MS = 60_000
_SECOND_MS = 1_000
_MEGABYTE = 1024 * 1024
_UNBOUNDED = -1
"""A limit of Pulsar that does not bound."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """A policy that has a field of its own."""

    read: Callable[[Policies], Any]
    write: Callable[[Policies, Any], Policies]


def _read_retention(policies: Policies) -> Any:
    retention = policies.retention
    if retention == NO_RETENTION:
        return None
    return {
        "retentionTimeInMinutes": _divided(retention.time_ms or 0, _MINUTE_MS),
        "retentionSizeInMB": _divided(retention.size_bytes or 0, _MEGABYTE),
    }


def _write_retention(policies: Policies, value: Any) -> Policies:
    if value is None:
        return replace(policies, retention=NO_RETENTION)
    time, size = value["retentionTimeInMinutes"], value["retentionSizeInMB"]
    return replace(
        policies,
        retention=Retention(_multiplied(time, _MINUTE_MS), _multiplied(size, _MEGABYTE)),
    )


def _read_ttl(policies: Policies) -> Any:
    ttl_ms = policies.message_ttl_ms
    return None if ttl_ms is None else _divided(ttl_ms, _SECOND_MS)


def _write_ttl(policies: Policies, value: Any) -> Policies:
    return replace(policies, message_ttl_ms=None if value is None else value * _SECOND_MS)


def _read_idle(policies: Policies) -> Any:
    idle_ms = policies.idle_time_ms
    return None if idle_ms is None else _divided(idle_ms, _SECOND_MS)


def _write_idle(policies: Policies, value: Any) -> Policies:
    return replace(policies, idle_time_ms=None if value is None else value * _SECOND_MS)


def _read_quota(policies: Policies) -> Any:
    quota = policies.backlog_quota
    if quota == NO_QUOTA:
        return None
    action = quota.action or BacklogAction.PRODUCER_EXCEPTION
    return {
        "limit": quota.size_bytes or _UNBOUNDED,
        "limitSize": quota.size_bytes or _UNBOUNDED,
        "limitTime": _UNBOUNDED,
        "policy": action.value,
    }


def _write_quota(policies: Policies, value: Any) -> Policies:
    if value is None:
        return replace(policies, backlog_quota=NO_QUOTA)
    size_bytes = max(0, value["limitSize"])
    quota = BacklogQuota(size_bytes, BacklogAction(value["policy"]))
    return replace(policies, backlog_quota=quota)


def _read_auto_creation(policies: Policies) -> Any:
    rule = policies.auto_creation
    if rule == NO_AUTO_CREATION:
        return None
    return {
        "allowAutoTopicCreation": rule.is_allowed is not False,
        "topicType": "partitioned" if rule.is_partitioned else "non-partitioned",
        "defaultNumPartitions": rule.default_partitions,
    }


def _write_auto_creation(policies: Policies, value: Any) -> Policies:
    if value is None:
        return replace(policies, auto_creation=NO_AUTO_CREATION)
    if not value["allowAutoTopicCreation"]:
        return replace(policies, auto_creation=AutoCreation(is_allowed=False))
    is_partitioned = value["topicType"] == "partitioned"
    partitions = value["defaultNumPartitions"] if is_partitioned else None
    return replace(policies, auto_creation=AutoCreation(True, is_partitioned, partitions))


def _read_compatibility(policies: Policies) -> Any:
    strategy = policies.schema_compatibility
    return None if strategy is None else strategy.value.upper()


def _write_compatibility(policies: Policies, value: Any) -> Policies:
    strategy = None if value is None else SchemaCompatibility(value.lower())
    return replace(policies, schema_compatibility=strategy)


_AUTO_UPDATES: Mapping[str, SchemaCompatibility] = MappingProxyType(
    {
        "AutoUpdateDisabled": SchemaCompatibility.ALWAYS_INCOMPATIBLE,
        "Backward": SchemaCompatibility.BACKWARD,
        "Forward": SchemaCompatibility.FORWARD,
        "Full": SchemaCompatibility.FULL,
        "AlwaysCompatible": SchemaCompatibility.ALWAYS_COMPATIBLE,
        "BackwardTransitive": SchemaCompatibility.BACKWARD_TRANSITIVE,
        "ForwardTransitive": SchemaCompatibility.FORWARD_TRANSITIVE,
        "FullTransitive": SchemaCompatibility.FULL_TRANSITIVE,
    }
)
AUTO_UPDATES = tuple(_AUTO_UPDATES)
"""The older names of schema compatibilities."""


def _read_auto_update(policies: Policies) -> Any:
    strategy = policies.schema_compatibility
    return next((name for name, each in _AUTO_UPDATES.items() if each is strategy), None)


def _write_auto_update(policies: Policies, value: Any) -> Policies:
    strategy = None if value is None else _AUTO_UPDATES[value]
    return replace(policies, schema_compatibility=strategy)


def _read_auto_update_allowed(policies: Policies) -> Any:
    return policies.schema_auto_update


def _write_auto_update_allowed(policies: Policies, value: Any) -> Policies:
    return replace(policies, schema_auto_update=value)


def _read_deduplication(policies: Policies) -> Any:
    return policies.deduplication


def _write_deduplication(policies: Policies, value: Any) -> Policies:
    return replace(policies, deduplication=value)


def _read_topics_max(policies: Policies) -> Any:
    return policies.topics_max


def _write_topics_max(policies: Policies, value: Any) -> Policies:
    return replace(policies, topics_max=value)


def _read_auth_mode(policies: Policies) -> Any:
    mode = policies.subscription_auth_mode
    return None if mode is None else mode.value.capitalize()


def _write_auth_mode(policies: Policies, value: Any) -> Policies:
    mode = None if value is None else SubscriptionAuthMode(value.lower())
    return replace(policies, subscription_auth_mode=mode)


RETENTION = Enforced(_read_retention, _write_retention)
MESSAGE_TTL = Enforced(_read_ttl, _write_ttl)
IDLE_UNLOAD = Enforced(_read_idle, _write_idle)
BACKLOG_QUOTA = Enforced(_read_quota, _write_quota)
AUTO_CREATION = Enforced(_read_auto_creation, _write_auto_creation)
COMPATIBILITY = Enforced(_read_compatibility, _write_compatibility)
AUTO_UPDATE = Enforced(_read_auto_update, _write_auto_update)
AUTO_UPDATE_ALLOWED = Enforced(_read_auto_update_allowed, _write_auto_update_allowed)
DEDUPLICATION = Enforced(_read_deduplication, _write_deduplication)
TOPICS_MAX = Enforced(_read_topics_max, _write_topics_max)
SUBSCRIPTION_AUTH_MODE = Enforced(_read_auth_mode, _write_auth_mode)


def quota_problem(policies: Policies) -> str:
    """Return why quota and retention contradict each other, "" if they do not.

    Messages that are kept for a subscription's backlog must fit into what is kept.
    """
    quota, kept = policies.backlog_quota.size_bytes or 0, policies.retention.size_bytes or 0
    if kept > 0 and quota >= kept:
        return f"the backlog quota of {quota} bytes is not below the {kept} bytes that are kept"
    return ""


def with_stored(policies: Policies, name: str, text: str | None) -> Policies:
    """Return ``policies`` with a policy stored as JSON; None removes it."""
    stored = dict(policies.stored)
    if text is None:
        stored.pop(name, None)
    else:
        stored[name] = text
    return replace(policies, stored=tuple(sorted(stored.items())))


def _divided(value: int, unit: int) -> int:
    return FOR_EVER if value == FOR_EVER else -(-value // unit)


def _multiplied(value: int, unit: int) -> int:
    return FOR_EVER if value == FOR_EVER else value * unit
