"""Policies between their wire form (``policies.proto``) and ``nextgen.kernel.governance.policies``.

The conversion is lossless: a field or an enum number that this release does not know is kept in
``Policies.unknown`` and written back to its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from google.protobuf.unknown_fields import UnknownFieldSet

from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    Permissions,
    SubscriptionAuthMode,
    SubscriptionPermission,
    SubscriptionPermissions,
    in_order,
)
from nextgen.kernel.governance.policies import (
    NO_POLICIES,
    AntiAffinity,
    AutoCreation,
    BacklogAction,
    BacklogQuota,
    PlacementRules,
    Policies,
    Retention,
    SchemaCompatibility,
)
from nextgen.kernel.limits.placement import PERMISSIONS_UNPACKED_MAX, POLICIES_BYTES_MAX
from protos.nextgen.v1 import policies_pb2 as pb

_UNPACKED_MAX = 1_024
"""Size of the cache of policies by their bytes: the namespaces that a process serves at a time."""

_EARLIER_AUTH_MODE = "subscriptionAuthMode"
"""The name by which earlier releases stored ``subscription_auth_mode`` as JSON."""

_Value = TypeVar("_Value")

ACTIONS: Mapping[int, BacklogAction] = MappingProxyType(
    {
        pb.BacklogQuota.ACTION_PRODUCER_REQUEST_HOLD: BacklogAction.PRODUCER_REQUEST_HOLD,
        pb.BacklogQuota.ACTION_PRODUCER_EXCEPTION: BacklogAction.PRODUCER_EXCEPTION,
        pb.BacklogQuota.ACTION_CONSUMER_BACKLOG_EVICTION: BacklogAction.CONSUMER_BACKLOG_EVICTION,
    }
)
COMPATIBILITIES: Mapping[int, SchemaCompatibility] = MappingProxyType(
    {
        number: SchemaCompatibility(name.removeprefix("SCHEMA_COMPATIBILITY_").lower())
        for name, number in pb.SchemaCompatibility.items()
        if number
    }
)
ANTI_AFFINITIES: Mapping[int, AntiAffinity] = MappingProxyType(
    {
        pb.PlacementRules.ANTI_AFFINITY_NONE: AntiAffinity.NONE,
        pb.PlacementRules.ANTI_AFFINITY_BROKER: AntiAffinity.BROKER,
        pb.PlacementRules.ANTI_AFFINITY_ZONE: AntiAffinity.ZONE,
    }
)
AUTH_ACTIONS: Mapping[int, AuthAction] = MappingProxyType(
    {
        number: AuthAction(name.removeprefix("AUTH_ACTION_").lower())
        for name, number in pb.AuthAction.items()
        if number
    }
)
AUTH_MODES: Mapping[int, SubscriptionAuthMode] = MappingProxyType(
    {
        number: SubscriptionAuthMode(name.removeprefix("SUBSCRIPTION_AUTH_MODE_").lower())
        for name, number in pb.SubscriptionAuthMode.items()
        if number
    }
)
_ACTION_NUMBERS: Mapping[AuthAction, pb.AuthAction] = MappingProxyType(
    {action: getattr(pb, f"AUTH_ACTION_{action.name}") for action in AuthAction}
)


def policies_from_proto(message: pb.Policies) -> Policies:
    """Return the policies in ``message``, unchecked: ``check_policies`` checks them."""
    placement = message.placement
    stored = dict(message.stored)
    auth_mode = AUTH_MODES.get(message.subscription_auth_mode)
    if earlier := _EARLIER_AUTH_MODES.get(stored.get(_EARLIER_AUTH_MODE, "")):
        del stored[_EARLIER_AUTH_MODE]
        if not message.subscription_auth_mode:
            auth_mode = earlier
    return Policies(
        retention=Retention(
            _optional(message.retention, "time_ms"), _optional(message.retention, "size_bytes")
        ),
        message_ttl_ms=_optional(message, "message_ttl_ms"),
        backlog_quota=BacklogQuota(
            _optional(message.backlog_quota, "size_bytes"),
            ACTIONS.get(message.backlog_quota.action),
        ),
        auto_creation=AutoCreation(
            _optional(message.auto_creation, "is_allowed"),
            _optional(message.auto_creation, "is_partitioned"),
            _optional(message.auto_creation, "default_partitions"),
        ),
        deduplication=_optional(message, "deduplication"),
        schema_compatibility=COMPATIBILITIES.get(message.schema_compatibility),
        schema_auto_update=_optional(message, "schema_auto_update"),
        topics_max=_optional(message, "topics_max"),
        placement=PlacementRules(
            pinned_brokers=tuple(placement.pinned_brokers),
            excluded_brokers=tuple(placement.excluded_brokers),
            zones=tuple(placement.zones),
            racks=tuple(placement.racks),
            affinity_group=placement.affinity_group,
            anti_affinity=ANTI_AFFINITIES.get(placement.anti_affinity),
            units_per_broker_max=placement.units_per_broker_max,
        ),
        idle_time_ms=_optional(message, "idle_time_ms"),
        capacity_share_percent=_optional(message, "capacity_share_percent"),
        shadow_topics=tuple(message.shadow_topics),
        shadow_backlog_keep=_optional(message, "shadow_backlog_keep"),
        shadow_backlog_reset_entries=_optional(message, "shadow_backlog_reset_entries"),
        permissions=_permissions(message) if message.permissions else (),
        subscription_permissions=_subscription_permissions(message),
        subscription_auth_mode=auth_mode,
        stored=tuple(sorted(stored.items())) if stored else (),
        unknown=_unknown(message),
    )


def policies_to_proto(policies: Policies) -> pb.Policies:
    """Return ``policies`` as a message. Unset policies are unset fields."""
    message = pb.Policies.FromString(policies.unknown)
    _set(message, "message_ttl_ms", policies.message_ttl_ms)
    _set(message, "deduplication", policies.deduplication)
    _set(message, "schema_auto_update", policies.schema_auto_update)
    _set(message, "topics_max", policies.topics_max)
    _set(message, "idle_time_ms", policies.idle_time_ms)
    _set(message, "capacity_share_percent", policies.capacity_share_percent)
    message.shadow_topics.extend(policies.shadow_topics)
    _set(message, "shadow_backlog_keep", policies.shadow_backlog_keep)
    _set(message, "shadow_backlog_reset_entries", policies.shadow_backlog_reset_entries)
    for permission in policies.permissions:
        _add_permission(message, permission)
    for each in policies.subscription_permissions:
        held = message.subscription_permissions.add(subscription=each.subscription)
        held.roles.extend(each.roles)
        held.MergeFromString(each.unknown)
    if policies.stored:
        message.stored.update(policies.stored)
    _set(
        message,
        "schema_compatibility",
        _number(COMPATIBILITIES, policies.schema_compatibility),
    )
    _set(message, "subscription_auth_mode", _number(AUTH_MODES, policies.subscription_auth_mode))
    retention, quota, creation = policies.retention, policies.backlog_quota, policies.auto_creation
    if retention != Retention():
        _set(message.retention, "time_ms", retention.time_ms)
        _set(message.retention, "size_bytes", retention.size_bytes)
    if quota != BacklogQuota():
        _set(message.backlog_quota, "size_bytes", quota.size_bytes)
        _set(message.backlog_quota, "action", _number(ACTIONS, quota.action))
    if creation != AutoCreation():
        _set(message.auto_creation, "is_allowed", creation.is_allowed)
        _set(message.auto_creation, "is_partitioned", creation.is_partitioned)
        _set(message.auto_creation, "default_partitions", creation.default_partitions)
    if policies.placement != PlacementRules():
        _set_placement(message.placement, policies.placement)
    return message


def unpack_policies(packed: bytes) -> Policies:
    """Return the policies that objects and events keep as ``packed``; b"" is ``NO_POLICIES``."""
    if not packed:
        return NO_POLICIES
    return _unpack_large(packed) if len(packed) > POLICIES_BYTES_MAX else _unpack(packed)


@lru_cache(maxsize=_UNPACKED_MAX)
def _unpack(packed: bytes) -> Policies:
    return policies_from_proto(pb.Policies.FromString(packed))


@lru_cache(maxsize=PERMISSIONS_UNPACKED_MAX)
def _unpack_large(packed: bytes) -> Policies:
    return policies_from_proto(pb.Policies.FromString(packed))


def pack_policies(policies: Policies) -> bytes:
    """Return ``policies`` as the bytes kept in objects and events: b"" for ``NO_POLICIES``."""
    return policies_to_proto(policies).SerializeToString(deterministic=True)


def unknown_choice(message: pb.Policies) -> str:
    """Return the field whose enum number this release does not know, "" if there is none."""
    for field, number, known in (
        ("backlog_quota.action", message.backlog_quota.action, ACTIONS),
        ("schema_compatibility", message.schema_compatibility, COMPATIBILITIES),
        ("placement.anti_affinity", message.placement.anti_affinity, ANTI_AFFINITIES),
        ("subscription_auth_mode", message.subscription_auth_mode, AUTH_MODES),
    ):
        if number and number not in known:
            return f"{field} is {number}, which is none of its choices"
    for permission in message.permissions:
        for action in permission.actions:
            if action not in AUTH_ACTIONS:
                return f"permissions has action {action}, which is none of its choices"
    return ""


def _permissions(message: pb.Policies) -> Permissions:
    return tuple(sorted(map(_permission, message.permissions), key=lambda each: each.role))


@cache
def _actions(numbers: frozenset[int]) -> tuple[AuthAction, ...]:
    """Return known actions in their order. There are few sets of them, and thousands of roles."""
    return in_order(AUTH_ACTIONS[number] for number in numbers)


def _permission(message: pb.Permission) -> Permission:
    numbers = frozenset(message.actions)
    known = numbers.intersection(AUTH_ACTIONS)
    unknown = b""
    if known != numbers or len(UnknownFieldSet(message)):
        rest = pb.Permission()
        rest.CopyFrom(message)
        rest.ClearField("role")
        rest.ClearField("actions")
        rest.actions.extend(number for number in message.actions if number not in AUTH_ACTIONS)
        unknown = rest.SerializeToString(deterministic=True)
    return Permission(message.role, _actions(known), unknown)


def _add_permission(message: pb.Policies, permission: Permission) -> None:
    held = message.permissions.add(role=permission.role)
    held.actions.extend(_ACTION_NUMBERS[action] for action in permission.actions)
    if permission.unknown:
        held.MergeFromString(permission.unknown)


def _subscription_permissions(message: pb.Policies) -> SubscriptionPermissions:
    found = []
    for each in message.subscription_permissions:
        unknown = b""
        if len(UnknownFieldSet(each)):
            rest = pb.SubscriptionPermission()
            rest.CopyFrom(each)
            rest.ClearField("subscription")
            rest.ClearField("roles")
            unknown = rest.SerializeToString(deterministic=True)
        found.append(SubscriptionPermission(each.subscription, tuple(sorted(each.roles)), unknown))
    return tuple(sorted(found, key=lambda each: each.subscription))


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _set(message: Any, field: str, value: Any) -> None:
    if value is not None:
        setattr(message, field, value)


def _set_placement(message: pb.PlacementRules, rules: PlacementRules) -> None:
    message.pinned_brokers.extend(rules.pinned_brokers)
    message.excluded_brokers.extend(rules.excluded_brokers)
    message.zones.extend(rules.zones)
    message.racks.extend(rules.racks)
    _set(message, "affinity_group", rules.affinity_group or None)
    _set(message, "anti_affinity", _number(ANTI_AFFINITIES, rules.anti_affinity))
    _set(message, "units_per_broker_max", rules.units_per_broker_max or None)


def _number(numbers: Mapping[int, _Value], value: _Value | None) -> int | None:
    """Return the number of a choice."""
    return next((number for number, each in numbers.items() if each == value), None)


def _unknown(message: pb.Policies) -> bytes:
    """Return ``message`` without the fields that this release knows, serialised."""
    rest = pb.Policies()
    rest.CopyFrom(message)
    for field in ("stored", "permissions", "subscription_permissions"):
        rest.ClearField(field)
    for part in (rest.retention, rest.backlog_quota, rest.auto_creation, rest.placement):
        _forget_known(part)
    _forget_known(rest)
    return rest.SerializeToString(deterministic=True)


_CHOICES: Mapping[str, Mapping[int, Any]] = MappingProxyType(
    {
        "action": ACTIONS,
        "schema_compatibility": COMPATIBILITIES,
        "anti_affinity": ANTI_AFFINITIES,
        "subscription_auth_mode": AUTH_MODES,
    }
)
_EARLIER_AUTH_MODES: Mapping[str, SubscriptionAuthMode] = MappingProxyType(
    {'"None"': SubscriptionAuthMode.NONE, '"Prefix"': SubscriptionAuthMode.PREFIX}
)


def _forget_known(message: Any) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            if not value.ByteSize():
                message.ClearField(field.name)
        elif field.type != field.TYPE_ENUM or value in _CHOICES[field.name]:
            message.ClearField(field.name)
