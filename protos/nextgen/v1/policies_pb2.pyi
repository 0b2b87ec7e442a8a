from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuthAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTH_ACTION_UNSPECIFIED: _ClassVar[AuthAction]
    AUTH_ACTION_PRODUCE: _ClassVar[AuthAction]
    AUTH_ACTION_CONSUME: _ClassVar[AuthAction]
    AUTH_ACTION_FUNCTIONS: _ClassVar[AuthAction]
    AUTH_ACTION_SOURCES: _ClassVar[AuthAction]
    AUTH_ACTION_SINKS: _ClassVar[AuthAction]
    AUTH_ACTION_PACKAGES: _ClassVar[AuthAction]

class SubscriptionAuthMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBSCRIPTION_AUTH_MODE_UNSPECIFIED: _ClassVar[SubscriptionAuthMode]
    SUBSCRIPTION_AUTH_MODE_NONE: _ClassVar[SubscriptionAuthMode]
    SUBSCRIPTION_AUTH_MODE_PREFIX: _ClassVar[SubscriptionAuthMode]

class SchemaCompatibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEMA_COMPATIBILITY_UNSPECIFIED: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_ALWAYS_INCOMPATIBLE: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_ALWAYS_COMPATIBLE: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_BACKWARD: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_FORWARD: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_FULL: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_BACKWARD_TRANSITIVE: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_FORWARD_TRANSITIVE: _ClassVar[SchemaCompatibility]
    SCHEMA_COMPATIBILITY_FULL_TRANSITIVE: _ClassVar[SchemaCompatibility]
AUTH_ACTION_UNSPECIFIED: AuthAction
AUTH_ACTION_PRODUCE: AuthAction
AUTH_ACTION_CONSUME: AuthAction
AUTH_ACTION_FUNCTIONS: AuthAction
AUTH_ACTION_SOURCES: AuthAction
AUTH_ACTION_SINKS: AuthAction
AUTH_ACTION_PACKAGES: AuthAction
SUBSCRIPTION_AUTH_MODE_UNSPECIFIED: SubscriptionAuthMode
SUBSCRIPTION_AUTH_MODE_NONE: SubscriptionAuthMode
SUBSCRIPTION_AUTH_MODE_PREFIX: SubscriptionAuthMode
SCHEMA_COMPATIBILITY_UNSPECIFIED: SchemaCompatibility
SCHEMA_COMPATIBILITY_ALWAYS_INCOMPATIBLE: SchemaCompatibility
SCHEMA_COMPATIBILITY_ALWAYS_COMPATIBLE: SchemaCompatibility
SCHEMA_COMPATIBILITY_BACKWARD: SchemaCompatibility
SCHEMA_COMPATIBILITY_FORWARD: SchemaCompatibility
SCHEMA_COMPATIBILITY_FULL: SchemaCompatibility
SCHEMA_COMPATIBILITY_BACKWARD_TRANSITIVE: SchemaCompatibility
SCHEMA_COMPATIBILITY_FORWARD_TRANSITIVE: SchemaCompatibility
SCHEMA_COMPATIBILITY_FULL_TRANSITIVE: SchemaCompatibility

class Policies(_message.Message):
    __slots__ = ("retention", "message_ttl_ms", "backlog_quota", "auto_creation", "deduplication", "schema_compatibility", "topics_max", "placement", "idle_time_ms", "capacity_share_percent", "stored", "schema_auto_update", "shadow_topics", "shadow_backlog_keep", "shadow_backlog_reset_entries", "permissions", "subscription_permissions", "subscription_auth_mode")
    class StoredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_QUOTA_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATION_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    TOPICS_MAX_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_SHARE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_AUTO_UPDATE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_TOPICS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_BACKLOG_KEEP_FIELD_NUMBER: _ClassVar[int]
    SHADOW_BACKLOG_RESET_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_AUTH_MODE_FIELD_NUMBER: _ClassVar[int]
    retention: RetentionPolicy
    message_ttl_ms: int
    backlog_quota: BacklogQuota
    auto_creation: AutoCreation
    deduplication: bool
    schema_compatibility: SchemaCompatibility
    topics_max: int
    placement: PlacementRules
    idle_time_ms: int
    capacity_share_percent: int
    stored: _containers.ScalarMap[str, str]
    schema_auto_update: bool
    shadow_topics: _containers.RepeatedScalarFieldContainer[str]
    shadow_backlog_keep: bool
    shadow_backlog_reset_entries: int
    permissions: _containers.RepeatedCompositeFieldContainer[Permission]
    subscription_permissions: _containers.RepeatedCompositeFieldContainer[SubscriptionPermission]
    subscription_auth_mode: SubscriptionAuthMode
    def __init__(self, retention: _Optional[_Union[RetentionPolicy, _Mapping]] = ..., message_ttl_ms: _Optional[int] = ..., backlog_quota: _Optional[_Union[BacklogQuota, _Mapping]] = ..., auto_creation: _Optional[_Union[AutoCreation, _Mapping]] = ..., deduplication: _Optional[bool] = ..., schema_compatibility: _Optional[_Union[SchemaCompatibility, str]] = ..., topics_max: _Optional[int] = ..., placement: _Optional[_Union[PlacementRules, _Mapping]] = ..., idle_time_ms: _Optional[int] = ..., capacity_share_percent: _Optional[int] = ..., stored: _Optional[_Mapping[str, str]] = ..., schema_auto_update: _Optional[bool] = ..., shadow_topics: _Optional[_Iterable[str]] = ..., shadow_backlog_keep: _Optional[bool] = ..., shadow_backlog_reset_entries: _Optional[int] = ..., permissions: _Optional[_Iterable[_Union[Permission, _Mapping]]] = ..., subscription_permissions: _Optional[_Iterable[_Union[SubscriptionPermission, _Mapping]]] = ..., subscription_auth_mode: _Optional[_Union[SubscriptionAuthMode, str]] = ...) -> None: ...

class Permission(_message.Message):
    __slots__ = ("role", "actions")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    role: str
    actions: _containers.RepeatedScalarFieldContainer[AuthAction]
    def __init__(self, role: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[AuthAction, str]]] = ...) -> None: ...

class SubscriptionPermission(_message.Message):
    __slots__ = ("subscription", "roles")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscription: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ...) -> None: ...

class RetentionPolicy(_message.Message):
    __slots__ = ("time_ms", "size_bytes")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    size_bytes: int
    def __init__(self, time_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class BacklogQuota(_message.Message):
    __slots__ = ("size_bytes", "action")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[BacklogQuota.Action]
        ACTION_PRODUCER_REQUEST_HOLD: _ClassVar[BacklogQuota.Action]
        ACTION_PRODUCER_EXCEPTION: _ClassVar[BacklogQuota.Action]
        ACTION_CONSUMER_BACKLOG_EVICTION: _ClassVar[BacklogQuota.Action]
    ACTION_UNSPECIFIED: BacklogQuota.Action
    ACTION_PRODUCER_REQUEST_HOLD: BacklogQuota.Action
    ACTION_PRODUCER_EXCEPTION: BacklogQuota.Action
    ACTION_CONSUMER_BACKLOG_EVICTION: BacklogQuota.Action
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    action: BacklogQuota.Action
    def __init__(self, size_bytes: _Optional[int] = ..., action: _Optional[_Union[BacklogQuota.Action, str]] = ...) -> None: ...

class AutoCreation(_message.Message):
    __slots__ = ("is_allowed", "is_partitioned", "default_partitions")
    IS_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    IS_PARTITIONED_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    is_allowed: bool
    is_partitioned: bool
    default_partitions: int
    def __init__(self, is_allowed: _Optional[bool] = ..., is_partitioned: _Optional[bool] = ..., default_partitions: _Optional[int] = ...) -> None: ...

class PlacementRules(_message.Message):
    __slots__ = ("pinned_brokers", "excluded_brokers", "zones", "racks", "affinity_group", "anti_affinity", "units_per_broker_max")
    class AntiAffinity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ANTI_AFFINITY_UNSPECIFIED: _ClassVar[PlacementRules.AntiAffinity]
        ANTI_AFFINITY_NONE: _ClassVar[PlacementRules.AntiAffinity]
        ANTI_AFFINITY_BROKER: _ClassVar[PlacementRules.AntiAffinity]
        ANTI_AFFINITY_ZONE: _ClassVar[PlacementRules.AntiAffinity]
    ANTI_AFFINITY_UNSPECIFIED: PlacementRules.AntiAffinity
    ANTI_AFFINITY_NONE: PlacementRules.AntiAffinity
    ANTI_AFFINITY_BROKER: PlacementRules.AntiAffinity
    ANTI_AFFINITY_ZONE: PlacementRules.AntiAffinity
    PINNED_BROKERS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_BROKERS_FIELD_NUMBER: _ClassVar[int]
    ZONES_FIELD_NUMBER: _ClassVar[int]
    RACKS_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_GROUP_FIELD_NUMBER: _ClassVar[int]
    ANTI_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_BROKER_MAX_FIELD_NUMBER: _ClassVar[int]
    pinned_brokers: _containers.RepeatedScalarFieldContainer[str]
    excluded_brokers: _containers.RepeatedScalarFieldContainer[str]
    zones: _containers.RepeatedScalarFieldContainer[str]
    racks: _containers.RepeatedScalarFieldContainer[str]
    affinity_group: str
    anti_affinity: PlacementRules.AntiAffinity
    units_per_broker_max: int
    def __init__(self, pinned_brokers: _Optional[_Iterable[str]] = ..., excluded_brokers: _Optional[_Iterable[str]] = ..., zones: _Optional[_Iterable[str]] = ..., racks: _Optional[_Iterable[str]] = ..., affinity_group: _Optional[str] = ..., anti_affinity: _Optional[_Union[PlacementRules.AntiAffinity, str]] = ..., units_per_broker_max: _Optional[int] = ...) -> None: ...
