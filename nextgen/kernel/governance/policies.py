"""Policies of tenants, namespaces and topics: their values, checks, and merging.

``None`` means *not set*, as do an empty tuple, an empty group and 0 units in ``PlacementRules``:
the level above decides, and the program's default applies if no level sets it.
``merge`` lets a topic's value win over its namespace's, and that over its tenant's, field by field.
Permissions add up: what either permits is permitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.auto_scale_policy import AUTO_SCALE_POLICY, refused_override
from nextgen.kernel.governance.client_limits import TENANT_LIMITS
from nextgen.kernel.governance.client_limits import refused as refused_limit
from nextgen.kernel.governance.permissions import (
    Permissions,
    SubscriptionAuthMode,
    SubscriptionPermissions,
    check_permissions,
    check_subscription_permissions,
    union,
)
from nextgen.kernel.limits.cluster import (
    NAME_PART_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    STORED_INTEGER_MAX,
)
from nextgen.kernel.limits.placement import (
    PLACEMENT_NAMES_MAX,
    STORED_POLICIES_MAX,
    STORED_POLICY_NAME_BYTES_MAX,
)
from nextgen.kernel.limits.shadow import SHADOWS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import Domain, InvalidName, parse_topic

FOR_EVER = -1
"""As a retention's time: messages are kept for ever. As its size: all messages are kept."""

COUNT_MAX = 2**32 - 1
"""Largest number of topics or units in a policy: the wire has no room for more."""

_SHOWN_CHARACTERS_MAX = 80


class PolicyLevel(StrEnum):
    """The kind of object that a policy is set on. Stored as the scope of events: never renamed."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class BacklogAction(StrEnum):
    """The action when a subscription's backlog exceeds its quota."""

    PRODUCER_REQUEST_HOLD = "producer_request_hold"
    PRODUCER_EXCEPTION = "producer_exception"
    CONSUMER_BACKLOG_EVICTION = "consumer_backlog_eviction"


class SchemaCompatibility(StrEnum):
    """Which schemas may follow the ones that a topic has."""

    ALWAYS_INCOMPATIBLE = "always_incompatible"
    ALWAYS_COMPATIBLE = "always_compatible"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL_TRANSITIVE = "full_transitive"


class AntiAffinity(StrEnum):
    """The failure domain that two partitions of one topic must not share."""

    NONE = "none"
    BROKER = "broker"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, and how many bytes of, fully acknowledged messages are kept."""

    time_ms: int | None = None
    """Time to keep them; or ``FOR_EVER``."""

    size_bytes: int | None = None
    """Bytes to keep at most; ``FOR_EVER``: all."""


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """The largest backlog of a subscription, and the action beyond it."""

    size_bytes: int | None = None
    """Largest backlog in bytes; 0: no bound."""

    action: BacklogAction | None = None


@dataclass(frozen=True, slots=True)
class AutoCreation:
    """Whether requests for missing topics create them, and how."""

    is_allowed: bool | None = None
    is_partitioned: bool | None = None
    default_partitions: int | None = None


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """The brokers that a unit may be assigned to. Without rules: any."""

    pinned_brokers: tuple[str, ...] = ()
    """The only brokers that a unit may be assigned to; empty: no such restriction."""

    excluded_brokers: tuple[str, ...] = ()
    """Brokers that a unit is never assigned to."""

    zones: tuple[str, ...] = ()
    """Only brokers of these zones."""

    racks: tuple[str, ...] = ()
    """Only brokers of these racks."""

    affinity_group: str = ""
    """Units of one group go to one broker while it has room."""

    anti_affinity: AntiAffinity | None = None
    """Between the partitions of one topic."""

    units_per_broker_max: int = 0
    """Units of one topic on one broker."""


NO_RETENTION = Retention()
NO_QUOTA = BacklogQuota()
NO_AUTO_CREATION = AutoCreation()
NO_RULES = PlacementRules()


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one object, or the merge of several."""

    retention: Retention = NO_RETENTION
    message_ttl_ms: int | None = None
    """0: messages do not expire."""

    backlog_quota: BacklogQuota = NO_QUOTA
    auto_creation: AutoCreation = NO_AUTO_CREATION
    deduplication: bool | None = None
    schema_compatibility: SchemaCompatibility | None = None
    schema_auto_update: bool | None = None
    """Whether clients may add versions to a topic's schema. Operators always may."""

    topics_max: int | None = None
    """Topics of one namespace; 0: no bound."""

    placement: PlacementRules = NO_RULES
    idle_time_ms: int | None = None
    """A unit without clients for this long is unassigned; 0: never."""

    capacity_share_percent: int | None = None
    """Tenants only: the part of each shard's leased capacity that is reserved for the tenant."""

    shadow_topics: tuple[str, ...] = ()
    """Topics only: canonical names of the shadows that this source feeds."""

    shadow_backlog_keep: bool | None = None
    """Whether a source keeps entries until each shadow that it feeds has acknowledged them."""

    shadow_backlog_reset_entries: int | None = None
    """A shadow's subscription with a longer backlog goes on at the end; 0: never."""

    permissions: Permissions = ()
    """Namespaces and topics: which roles may do what. A topic's add to its namespace's."""

    subscription_permissions: SubscriptionPermissions = ()
    """Namespaces only: subscriptions that only certain roles may use."""

    subscription_auth_mode: SubscriptionAuthMode | None = None
    """Namespaces only: whether a subscription's name begins with its role."""

    stored: tuple[tuple[str, str], ...] = ()
    """Policies of Pulsar without a field here: name and JSON, ascending by name."""

    unknown: bytes = b""
    """Fields of a later release, in their own form: stored and returned, never merged."""


NO_POLICIES = Policies()


def merge(
    tenant: Policies = NO_POLICIES,
    namespace: Policies = NO_POLICIES,
    topic: Policies = NO_POLICIES,
) -> Policies:
    """Return the merged policies of a topic, from those of topic, namespace and tenant."""
    return _over(topic, _over(namespace, tenant))


def check_policies(policies: Policies, level: PolicyLevel) -> Rejected | None:
    """Return why ``policies`` may not be set at ``level``; None if they may.

    The message begins with the name of the field.
    """
    return (
        _check_numbers(policies)
        or _check_auto_creation(policies.auto_creation, level)
        or _check_topics_max(policies, level)
        or _check_capacity_share(policies, level)
        or _check_placement(policies.placement)
        or _check_shadows(policies.shadow_topics, level)
        or _check_who_may(policies, level)
        or _check_stored(policies.stored, level)
    )


# Merging ------------------------------------------------------------------------------------------


def _over(upper: Policies, lower: Policies) -> Policies:
    """Return ``lower``, overridden by every field that ``upper`` sets."""
    if upper == NO_POLICIES:
        return lower if not lower.unknown else _over_fields(upper, lower)
    return _over_fields(upper, lower)


def _over_fields(upper: Policies, lower: Policies) -> Policies:
    return Policies(
        retention=Retention(
            _first(upper.retention.time_ms, lower.retention.time_ms),
            _first(upper.retention.size_bytes, lower.retention.size_bytes),
        ),
        message_ttl_ms=_first(upper.message_ttl_ms, lower.message_ttl_ms),
        backlog_quota=BacklogQuota(
            _first(upper.backlog_quota.size_bytes, lower.backlog_quota.size_bytes),
            upper.backlog_quota.action or lower.backlog_quota.action,
        ),
        auto_creation=AutoCreation(
            upper.auto_creation.is_allowed
            if upper.auto_creation.is_allowed is not None
            else lower.auto_creation.is_allowed,
            upper.auto_creation.is_partitioned
            if upper.auto_creation.is_partitioned is not None
            else lower.auto_creation.is_partitioned,
            _first(upper.auto_creation.default_partitions, lower.auto_creation.default_partitions),
        ),
        deduplication=(
            upper.deduplication if upper.deduplication is not None else lower.deduplication
        ),
        schema_compatibility=upper.schema_compatibility or lower.schema_compatibility,
        schema_auto_update=(
            upper.schema_auto_update
            if upper.schema_auto_update is not None
            else lower.schema_auto_update
        ),
        topics_max=_first(upper.topics_max, lower.topics_max),
        placement=_rules_over(upper.placement, lower.placement),
        idle_time_ms=_first(upper.idle_time_ms, lower.idle_time_ms),
        capacity_share_percent=_first(upper.capacity_share_percent, lower.capacity_share_percent),
        shadow_topics=upper.shadow_topics or lower.shadow_topics,
        shadow_backlog_keep=(
            upper.shadow_backlog_keep
            if upper.shadow_backlog_keep is not None
            else lower.shadow_backlog_keep
        ),
        shadow_backlog_reset_entries=_first(
            upper.shadow_backlog_reset_entries, lower.shadow_backlog_reset_entries
        ),
        permissions=union(upper.permissions, lower.permissions),
        subscription_permissions=upper.subscription_permissions or lower.subscription_permissions,
        subscription_auth_mode=upper.subscription_auth_mode or lower.subscription_auth_mode,
        stored=_stored_over(upper.stored, lower.stored),
    )


def _rules_over(upper: PlacementRules, lower: PlacementRules) -> PlacementRules:
    if lower == NO_RULES:
        return upper
    return PlacementRules(
        pinned_brokers=upper.pinned_brokers or lower.pinned_brokers,
        excluded_brokers=upper.excluded_brokers or lower.excluded_brokers,
        zones=upper.zones or lower.zones,
        racks=upper.racks or lower.racks,
        affinity_group=upper.affinity_group or lower.affinity_group,
        anti_affinity=upper.anti_affinity or lower.anti_affinity,
        units_per_broker_max=upper.units_per_broker_max or lower.units_per_broker_max,
    )


def _stored_over(
    upper: tuple[tuple[str, str], ...], lower: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    if not (upper and lower):
        return upper or lower
    return tuple(sorted({**dict(lower), **dict(upper)}.items()))


def _first(upper: int | None, lower: int | None) -> int | None:
    return upper if upper is not None else lower


# Checking -----------------------------------------------------------------------------------------


def _check_numbers(policies: Policies) -> Rejected | None:
    units_max = policies.placement.units_per_broker_max
    reset_entries = policies.shadow_backlog_reset_entries
    for field, number, least, most in (
        ("retention.time_ms", policies.retention.time_ms, FOR_EVER, STORED_INTEGER_MAX),
        ("retention.size_bytes", policies.retention.size_bytes, FOR_EVER, STORED_INTEGER_MAX),
        ("message_ttl_ms", policies.message_ttl_ms, 0, STORED_INTEGER_MAX),
        ("backlog_quota.size_bytes", policies.backlog_quota.size_bytes, 0, STORED_INTEGER_MAX),
        ("topics_max", policies.topics_max, 0, COUNT_MAX),
        ("placement.units_per_broker_max", units_max, 0, COUNT_MAX),
        ("idle_time_ms", policies.idle_time_ms, 0, STORED_INTEGER_MAX),
        ("capacity_share_percent", policies.capacity_share_percent, 0, 100),
        ("shadow_backlog_reset_entries", reset_entries, 0, STORED_INTEGER_MAX),
    ):
        if number is not None and not least <= number <= most:
            return _exceeded(f"{field} is {number}, it may be {least} to {most}")
    return None


def _check_auto_creation(rule: AutoCreation, level: PolicyLevel) -> Rejected | None:
    if rule == NO_AUTO_CREATION:
        return None
    if level is PolicyLevel.TOPIC:
        return _nonsense("auto_creation cannot be set for a topic, which exists already")
    partitions = rule.default_partitions
    if partitions is None:
        return None
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        return _exceeded(
            f"auto_creation.default_partitions is {partitions}, it may be "
            f"1 to {PARTITIONS_PER_TOPIC_MAX}"
        )
    if rule.is_partitioned is False:
        return _nonsense(
            f"auto_creation.default_partitions is {partitions} though is_partitioned is false"
        )
    return None


def _check_topics_max(policies: Policies, level: PolicyLevel) -> Rejected | None:
    if policies.topics_max is not None and level is PolicyLevel.TOPIC:
        return _nonsense("topics_max cannot be set for a topic, it bounds a namespace")
    return None


def _check_capacity_share(policies: Policies, level: PolicyLevel) -> Rejected | None:
    if policies.capacity_share_percent is not None and level is not PolicyLevel.TENANT:
        return _nonsense(
            f"capacity_share_percent cannot be set for a {level.value}, it is a tenant's share"
        )
    return None


def _check_placement(rules: PlacementRules) -> Rejected | None:
    for field, names in (
        ("placement.pinned_brokers", rules.pinned_brokers),
        ("placement.excluded_brokers", rules.excluded_brokers),
        ("placement.zones", rules.zones),
        ("placement.racks", rules.racks),
        ("placement.affinity_group", (rules.affinity_group,) if rules.affinity_group else ()),
    ):
        if (refusal := _check_names(field, names)) is not None:
            return refusal
    both = sorted({*rules.pinned_brokers} & {*rules.excluded_brokers})
    if both:
        return _nonsense(
            f"placement.pinned_brokers and placement.excluded_brokers both name {both[0]!a}"
        )
    return None


def _check_shadows(names: tuple[str, ...], level: PolicyLevel) -> Rejected | None:
    if names and level is not PolicyLevel.TOPIC:
        return _nonsense(f"shadow_topics cannot be set for a {level.value}, they are a topic's")
    if len(names) > SHADOWS_PER_TOPIC_MAX:
        return _exceeded(f"shadow_topics has {len(names)} names, at most {SHADOWS_PER_TOPIC_MAX}")
    seen: set[str] = set()
    for text in names:
        try:
            name = parse_topic(text)
        except InvalidName as error:
            return _nonsense(f"shadow_topics has a name that no topic can have: {error}")
        if name.domain is not Domain.PERSISTENT or name.base_text != text:
            shown = ascii(text[:_SHOWN_CHARACTERS_MAX])
            return _nonsense(f"shadow_topics has {shown}, which is no persistent topic's full name")
        if text in seen:
            return _nonsense(f"shadow_topics has {text[:_SHOWN_CHARACTERS_MAX]!a} twice")
        seen.add(text)
    return None


def _check_who_may(policies: Policies, level: PolicyLevel) -> Rejected | None:
    if policies.permissions and level is PolicyLevel.TENANT:
        return _nonsense("permissions cannot be set for a tenant, its admins are in adminRoles")
    for field, is_set in (
        ("subscription_permissions", bool(policies.subscription_permissions)),
        ("subscription_auth_mode", policies.subscription_auth_mode is not None),
    ):
        if is_set and level is not PolicyLevel.NAMESPACE:
            return _nonsense(f"{field} cannot be set for a {level.value}, but for a namespace")
    return check_permissions(policies.permissions) or check_subscription_permissions(
        policies.subscription_permissions
    )


def _check_stored(stored: tuple[tuple[str, str], ...], level: PolicyLevel) -> Rejected | None:
    if len(stored) > STORED_POLICIES_MAX:
        return _exceeded(f"stored has {len(stored)} policies, at most {STORED_POLICIES_MAX}")
    for name, value in stored:
        if not 0 < len(name.encode()) <= STORED_POLICY_NAME_BYTES_MAX:
            return _exceeded(
                f"stored has a name of {len(name.encode())} bytes, "
                f"1 to {STORED_POLICY_NAME_BYTES_MAX}"
            )
        if name == AUTO_SCALE_POLICY and (refused := refused_override(value)):
            return _nonsense(refused)
        if refused := refused_limit(name, value):
            return _nonsense(refused)
        if name == TENANT_LIMITS and level is not PolicyLevel.TENANT:
            return _nonsense(f"{name} cannot be set for a {level.value}, it is a tenant's ceiling")
    return None


def _check_names(field: str, names: tuple[str, ...]) -> Rejected | None:
    if len(names) > PLACEMENT_NAMES_MAX:
        return _exceeded(f"{field} has {len(names)} names, at most {PLACEMENT_NAMES_MAX}")
    seen: set[str] = set()
    for name in names:
        shown = ascii(name[:_SHOWN_CHARACTERS_MAX])
        if not 0 < len(name.encode()) <= NAME_PART_BYTES_MAX:
            return _exceeded(
                f"{field} has a name of {len(name.encode())} bytes, 1 to {NAME_PART_BYTES_MAX}"
            )
        if not name.isprintable() or name != name.strip():
            return _nonsense(f"{field} has {shown}, which nothing can be called")
        if name in seen:
            return _nonsense(f"{field} has {shown} twice")
        seen.add(name)
    return None


def _exceeded(message: str) -> Rejected:
    return Rejected(RejectionCode.LIMIT_EXCEEDED, message)


def _nonsense(message: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, message)
