from protos.nextgen.v1 import layouts_pb2 as _layouts_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("position", "term", "shard_id", "time_ms", "causation_id", "schema_version", "tenant_created", "tenant_properties_set", "tenant_deletion_started", "tenant_deletion_aborted", "tenant_deleted", "namespace_created", "namespace_properties_set", "namespace_deletion_started", "namespace_deletion_aborted", "namespace_deleted", "topic_created", "topic_properties_set", "topic_deleted", "topic_partitions_grown", "policy_set", "policy_cleared", "topic_assigned", "topic_unassigned", "broker_session_established", "broker_session_ended", "broker_drain_set", "broker_load_reported", "broker_capacity_set", "capacity_granted", "capacity_leased", "capacity_lease_released", "slots_adopted", "restore_marked", "slots_incoming", "slot_rows_copied", "slots_released", "slots_refused", "slots_reclaimed", "slot_rows_removed", "topic_name_pointed", "topic_name_freed", "topic_renamed", "parent_gate_opened", "parent_gate_closed", "shadow_source_created", "shadow_shard_recorded", "shadow_source_held", "shadow_source_removed", "node_registered", "shard_map_changed", "broker_recorded", "lookup_window_recorded", "quotas_set", "configuration_set", "node_excluded", "shard_changed", "plan_changed", "slot_move_changed", "node_state_set", "scalable_topic_created", "scalable_topic_deleted", "layout_change_planned", "segment_children_ready", "segment_sealed", "layout_changed", "layout_change_abandoned", "segment_storage_removed", "scalable_topic_restored", "scalable_subscription_created", "scalable_subscription_sought", "scalable_subscription_ready", "scalable_subscription_deletion_started", "scalable_subscription_deleted", "segment_drained", "segment_prune_postponed", "segment_loads_recorded", "auto_scale_decided", "scalable_consumer_registered", "scalable_consumer_left", "segments_assigned")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSATION_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENANT_CREATED_FIELD_NUMBER: _ClassVar[int]
    TENANT_PROPERTIES_SET_FIELD_NUMBER: _ClassVar[int]
    TENANT_DELETION_STARTED_FIELD_NUMBER: _ClassVar[int]
    TENANT_DELETION_ABORTED_FIELD_NUMBER: _ClassVar[int]
    TENANT_DELETED_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_CREATED_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_PROPERTIES_SET_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_DELETION_STARTED_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_DELETION_ABORTED_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_DELETED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PROPERTIES_SET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DELETED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PARTITIONS_GROWN_FIELD_NUMBER: _ClassVar[int]
    POLICY_SET_FIELD_NUMBER: _ClassVar[int]
    POLICY_CLEARED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_UNASSIGNED_FIELD_NUMBER: _ClassVar[int]
    BROKER_SESSION_ESTABLISHED_FIELD_NUMBER: _ClassVar[int]
    BROKER_SESSION_ENDED_FIELD_NUMBER: _ClassVar[int]
    BROKER_DRAIN_SET_FIELD_NUMBER: _ClassVar[int]
    BROKER_LOAD_REPORTED_FIELD_NUMBER: _ClassVar[int]
    BROKER_CAPACITY_SET_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_GRANTED_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_LEASED_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_LEASE_RELEASED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_ADOPTED_FIELD_NUMBER: _ClassVar[int]
    RESTORE_MARKED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_INCOMING_FIELD_NUMBER: _ClassVar[int]
    SLOT_ROWS_COPIED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_RECLAIMED_FIELD_NUMBER: _ClassVar[int]
    SLOT_ROWS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_POINTED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FREED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_RENAMED_FIELD_NUMBER: _ClassVar[int]
    PARENT_GATE_OPENED_FIELD_NUMBER: _ClassVar[int]
    PARENT_GATE_CLOSED_FIELD_NUMBER: _ClassVar[int]
    SHADOW_SOURCE_CREATED_FIELD_NUMBER: _ClassVar[int]
    SHADOW_SHARD_RECORDED_FIELD_NUMBER: _ClassVar[int]
    SHADOW_SOURCE_HELD_FIELD_NUMBER: _ClassVar[int]
    SHADOW_SOURCE_REMOVED_FIELD_NUMBER: _ClassVar[int]
    NODE_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_CHANGED_FIELD_NUMBER: _ClassVar[int]
    BROKER_RECORDED_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_WINDOW_RECORDED_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_SET_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_SET_FIELD_NUMBER: _ClassVar[int]
    NODE_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    SHARD_CHANGED_FIELD_NUMBER: _ClassVar[int]
    PLAN_CHANGED_FIELD_NUMBER: _ClassVar[int]
    SLOT_MOVE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    NODE_STATE_SET_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_CREATED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_DELETED_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_CHANGE_PLANNED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_CHILDREN_READY_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_SEALED_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_CHANGED_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_CHANGE_ABANDONED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_STORAGE_REMOVED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_RESTORED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_SUBSCRIPTION_CREATED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_SUBSCRIPTION_SOUGHT_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_SUBSCRIPTION_READY_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_SUBSCRIPTION_DELETION_STARTED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_SUBSCRIPTION_DELETED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_DRAINED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_PRUNE_POSTPONED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_LOADS_RECORDED_FIELD_NUMBER: _ClassVar[int]
    AUTO_SCALE_DECIDED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_CONSUMER_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_CONSUMER_LEFT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    position: int
    term: int
    shard_id: int
    time_ms: int
    causation_id: bytes
    schema_version: int
    tenant_created: TenantCreated
    tenant_properties_set: TenantPropertiesSet
    tenant_deletion_started: TenantDeletionStarted
    tenant_deletion_aborted: TenantDeletionAborted
    tenant_deleted: TenantDeleted
    namespace_created: NamespaceCreated
    namespace_properties_set: NamespacePropertiesSet
    namespace_deletion_started: NamespaceDeletionStarted
    namespace_deletion_aborted: NamespaceDeletionAborted
    namespace_deleted: NamespaceDeleted
    topic_created: TopicCreated
    topic_properties_set: TopicPropertiesSet
    topic_deleted: TopicDeleted
    topic_partitions_grown: TopicPartitionsGrown
    policy_set: PolicySet
    policy_cleared: PolicyCleared
    topic_assigned: TopicAssigned
    topic_unassigned: TopicUnassigned
    broker_session_established: BrokerSessionEstablished
    broker_session_ended: BrokerSessionEnded
    broker_drain_set: BrokerDrainSet
    broker_load_reported: BrokerLoadReported
    broker_capacity_set: BrokerCapacitySet
    capacity_granted: CapacityGranted
    capacity_leased: CapacityLeased
    capacity_lease_released: CapacityLeaseReleased
    slots_adopted: SlotsAdopted
    restore_marked: RestoreMarked
    slots_incoming: SlotsIncoming
    slot_rows_copied: SlotRowsCopied
    slots_released: SlotsReleased
    slots_refused: SlotsRefused
    slots_reclaimed: SlotsReclaimed
    slot_rows_removed: SlotRowsRemoved
    topic_name_pointed: TopicNamePointed
    topic_name_freed: TopicNameFreed
    topic_renamed: TopicRenamed
    parent_gate_opened: ParentGateOpened
    parent_gate_closed: ParentGateClosed
    shadow_source_created: ShadowSourceCreated
    shadow_shard_recorded: ShadowShardRecorded
    shadow_source_held: ShadowSourceHeld
    shadow_source_removed: ShadowSourceRemoved
    node_registered: NodeRegistered
    shard_map_changed: ShardMapChanged
    broker_recorded: BrokerRecorded
    lookup_window_recorded: LookupWindowRecorded
    quotas_set: QuotasSet
    configuration_set: ConfigurationSet
    node_excluded: NodeExcluded
    shard_changed: ShardChanged
    plan_changed: PlanChanged
    slot_move_changed: SlotMoveChanged
    node_state_set: NodeStateSet
    scalable_topic_created: ScalableTopicCreated
    scalable_topic_deleted: ScalableTopicDeleted
    layout_change_planned: LayoutChangePlanned
    segment_children_ready: SegmentChildrenReady
    segment_sealed: SegmentSealed
    layout_changed: LayoutChanged
    layout_change_abandoned: LayoutChangeAbandoned
    segment_storage_removed: SegmentStorageRemoved
    scalable_topic_restored: ScalableTopicRestored
    scalable_subscription_created: ScalableSubscriptionCreated
    scalable_subscription_sought: ScalableSubscriptionSought
    scalable_subscription_ready: ScalableSubscriptionReady
    scalable_subscription_deletion_started: ScalableSubscriptionDeletionStarted
    scalable_subscription_deleted: ScalableSubscriptionDeleted
    segment_drained: SegmentDrained
    segment_prune_postponed: SegmentPrunePostponed
    segment_loads_recorded: SegmentLoadsRecorded
    auto_scale_decided: AutoScaleDecided
    scalable_consumer_registered: ScalableConsumerRegistered
    scalable_consumer_left: ScalableConsumerLeft
    segments_assigned: SegmentsAssigned
    def __init__(self, position: _Optional[int] = ..., term: _Optional[int] = ..., shard_id: _Optional[int] = ..., time_ms: _Optional[int] = ..., causation_id: _Optional[bytes] = ..., schema_version: _Optional[int] = ..., tenant_created: _Optional[_Union[TenantCreated, _Mapping]] = ..., tenant_properties_set: _Optional[_Union[TenantPropertiesSet, _Mapping]] = ..., tenant_deletion_started: _Optional[_Union[TenantDeletionStarted, _Mapping]] = ..., tenant_deletion_aborted: _Optional[_Union[TenantDeletionAborted, _Mapping]] = ..., tenant_deleted: _Optional[_Union[TenantDeleted, _Mapping]] = ..., namespace_created: _Optional[_Union[NamespaceCreated, _Mapping]] = ..., namespace_properties_set: _Optional[_Union[NamespacePropertiesSet, _Mapping]] = ..., namespace_deletion_started: _Optional[_Union[NamespaceDeletionStarted, _Mapping]] = ..., namespace_deletion_aborted: _Optional[_Union[NamespaceDeletionAborted, _Mapping]] = ..., namespace_deleted: _Optional[_Union[NamespaceDeleted, _Mapping]] = ..., topic_created: _Optional[_Union[TopicCreated, _Mapping]] = ..., topic_properties_set: _Optional[_Union[TopicPropertiesSet, _Mapping]] = ..., topic_deleted: _Optional[_Union[TopicDeleted, _Mapping]] = ..., topic_partitions_grown: _Optional[_Union[TopicPartitionsGrown, _Mapping]] = ..., policy_set: _Optional[_Union[PolicySet, _Mapping]] = ..., policy_cleared: _Optional[_Union[PolicyCleared, _Mapping]] = ..., topic_assigned: _Optional[_Union[TopicAssigned, _Mapping]] = ..., topic_unassigned: _Optional[_Union[TopicUnassigned, _Mapping]] = ..., broker_session_established: _Optional[_Union[BrokerSessionEstablished, _Mapping]] = ..., broker_session_ended: _Optional[_Union[BrokerSessionEnded, _Mapping]] = ..., broker_drain_set: _Optional[_Union[BrokerDrainSet, _Mapping]] = ..., broker_load_reported: _Optional[_Union[BrokerLoadReported, _Mapping]] = ..., broker_capacity_set: _Optional[_Union[BrokerCapacitySet, _Mapping]] = ..., capacity_granted: _Optional[_Union[CapacityGranted, _Mapping]] = ..., capacity_leased: _Optional[_Union[CapacityLeased, _Mapping]] = ..., capacity_lease_released: _Optional[_Union[CapacityLeaseReleased, _Mapping]] = ..., slots_adopted: _Optional[_Union[SlotsAdopted, _Mapping]] = ..., restore_marked: _Optional[_Union[RestoreMarked, _Mapping]] = ..., slots_incoming: _Optional[_Union[SlotsIncoming, _Mapping]] = ..., slot_rows_copied: _Optional[_Union[SlotRowsCopied, _Mapping]] = ..., slots_released: _Optional[_Union[SlotsReleased, _Mapping]] = ..., slots_refused: _Optional[_Union[SlotsRefused, _Mapping]] = ..., slots_reclaimed: _Optional[_Union[SlotsReclaimed, _Mapping]] = ..., slot_rows_removed: _Optional[_Union[SlotRowsRemoved, _Mapping]] = ..., topic_name_pointed: _Optional[_Union[TopicNamePointed, _Mapping]] = ..., topic_name_freed: _Optional[_Union[TopicNameFreed, _Mapping]] = ..., topic_renamed: _Optional[_Union[TopicRenamed, _Mapping]] = ..., parent_gate_opened: _Optional[_Union[ParentGateOpened, _Mapping]] = ..., parent_gate_closed: _Optional[_Union[ParentGateClosed, _Mapping]] = ..., shadow_source_created: _Optional[_Union[ShadowSourceCreated, _Mapping]] = ..., shadow_shard_recorded: _Optional[_Union[ShadowShardRecorded, _Mapping]] = ..., shadow_source_held: _Optional[_Union[ShadowSourceHeld, _Mapping]] = ..., shadow_source_removed: _Optional[_Union[ShadowSourceRemoved, _Mapping]] = ..., node_registered: _Optional[_Union[NodeRegistered, _Mapping]] = ..., shard_map_changed: _Optional[_Union[ShardMapChanged, _Mapping]] = ..., broker_recorded: _Optional[_Union[BrokerRecorded, _Mapping]] = ..., lookup_window_recorded: _Optional[_Union[LookupWindowRecorded, _Mapping]] = ..., quotas_set: _Optional[_Union[QuotasSet, _Mapping]] = ..., configuration_set: _Optional[_Union[ConfigurationSet, _Mapping]] = ..., node_excluded: _Optional[_Union[NodeExcluded, _Mapping]] = ..., shard_changed: _Optional[_Union[ShardChanged, _Mapping]] = ..., plan_changed: _Optional[_Union[PlanChanged, _Mapping]] = ..., slot_move_changed: _Optional[_Union[SlotMoveChanged, _Mapping]] = ..., node_state_set: _Optional[_Union[NodeStateSet, _Mapping]] = ..., scalable_topic_created: _Optional[_Union[ScalableTopicCreated, _Mapping]] = ..., scalable_topic_deleted: _Optional[_Union[ScalableTopicDeleted, _Mapping]] = ..., layout_change_planned: _Optional[_Union[LayoutChangePlanned, _Mapping]] = ..., segment_children_ready: _Optional[_Union[SegmentChildrenReady, _Mapping]] = ..., segment_sealed: _Optional[_Union[SegmentSealed, _Mapping]] = ..., layout_changed: _Optional[_Union[LayoutChanged, _Mapping]] = ..., layout_change_abandoned: _Optional[_Union[LayoutChangeAbandoned, _Mapping]] = ..., segment_storage_removed: _Optional[_Union[SegmentStorageRemoved, _Mapping]] = ..., scalable_topic_restored: _Optional[_Union[ScalableTopicRestored, _Mapping]] = ..., scalable_subscription_created: _Optional[_Union[ScalableSubscriptionCreated, _Mapping]] = ..., scalable_subscription_sought: _Optional[_Union[ScalableSubscriptionSought, _Mapping]] = ..., scalable_subscription_ready: _Optional[_Union[ScalableSubscriptionReady, _Mapping]] = ..., scalable_subscription_deletion_started: _Optional[_Union[ScalableSubscriptionDeletionStarted, _Mapping]] = ..., scalable_subscription_deleted: _Optional[_Union[ScalableSubscriptionDeleted, _Mapping]] = ..., segment_drained: _Optional[_Union[SegmentDrained, _Mapping]] = ..., segment_prune_postponed: _Optional[_Union[SegmentPrunePostponed, _Mapping]] = ..., segment_loads_recorded: _Optional[_Union[SegmentLoadsRecorded, _Mapping]] = ..., auto_scale_decided: _Optional[_Union[AutoScaleDecided, _Mapping]] = ..., scalable_consumer_registered: _Optional[_Union[ScalableConsumerRegistered, _Mapping]] = ..., scalable_consumer_left: _Optional[_Union[ScalableConsumerLeft, _Mapping]] = ..., segments_assigned: _Optional[_Union[SegmentsAssigned, _Mapping]] = ...) -> None: ...

class DecidedCommand(_message.Message):
    __slots__ = ("command_id", "outcome", "time_ms", "events", "outcomes_kept_from")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_KEPT_FROM_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    outcome: bytes
    time_ms: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    outcomes_kept_from: int
    def __init__(self, command_id: _Optional[bytes] = ..., outcome: _Optional[bytes] = ..., time_ms: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., outcomes_kept_from: _Optional[int] = ...) -> None: ...

class TenantCreated(_message.Message):
    __slots__ = ("tenant_id", "name", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    name: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TenantPropertiesSet(_message.Message):
    __slots__ = ("name", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TenantDeletionStarted(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TenantDeletionAborted(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TenantDeleted(_message.Message):
    __slots__ = ("name", "tenant_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    tenant_id: str
    def __init__(self, name: _Optional[str] = ..., tenant_id: _Optional[str] = ...) -> None: ...

class NamespaceCreated(_message.Message):
    __slots__ = ("namespace_id", "name", "tenant_id", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    namespace_id: str
    name: str
    tenant_id: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, namespace_id: _Optional[str] = ..., name: _Optional[str] = ..., tenant_id: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NamespacePropertiesSet(_message.Message):
    __slots__ = ("name", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NamespaceDeletionStarted(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class NamespaceDeletionAborted(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class NamespaceDeleted(_message.Message):
    __slots__ = ("name", "namespace_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace_id: str
    def __init__(self, name: _Optional[str] = ..., namespace_id: _Optional[str] = ...) -> None: ...

class TopicCreated(_message.Message):
    __slots__ = ("topic_id", "name", "partitions", "properties", "namespace_id")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    name: str
    partitions: int
    properties: _containers.ScalarMap[str, str]
    namespace_id: str
    def __init__(self, topic_id: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., namespace_id: _Optional[str] = ...) -> None: ...

class TopicPropertiesSet(_message.Message):
    __slots__ = ("name", "properties", "topic_id")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., topic_id: _Optional[str] = ...) -> None: ...

class TopicDeleted(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "forced", "former_names")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FORCED_FIELD_NUMBER: _ClassVar[int]
    FORMER_NAMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    partitions: int
    forced: bool
    former_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., partitions: _Optional[int] = ..., forced: _Optional[bool] = ..., former_names: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicPartitionsGrown(_message.Message):
    __slots__ = ("name", "topic_id", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    partitions: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class TopicNamePointed(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class TopicNameFreed(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class TopicRenamed(_message.Message):
    __slots__ = ("name", "topic_id", "new_name", "namespace_id", "former_names", "dropped_names", "partitions", "properties", "version", "created_time_ms", "policies", "policies_version")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    FORMER_NAMES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_NAMES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    new_name: str
    namespace_id: str
    former_names: _containers.RepeatedCompositeFieldContainer[OldName]
    dropped_names: _containers.RepeatedScalarFieldContainer[str]
    partitions: int
    properties: _containers.ScalarMap[str, str]
    version: int
    created_time_ms: int
    policies: bytes
    policies_version: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., new_name: _Optional[str] = ..., namespace_id: _Optional[str] = ..., former_names: _Optional[_Iterable[_Union[OldName, _Mapping]]] = ..., dropped_names: _Optional[_Iterable[str]] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., created_time_ms: _Optional[int] = ..., policies: _Optional[bytes] = ..., policies_version: _Optional[int] = ...) -> None: ...

class OldName(_message.Message):
    __slots__ = ("name", "until_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    until_ms: int
    def __init__(self, name: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class PolicySet(_message.Message):
    __slots__ = ("scope", "name", "policy", "version", "object_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    scope: str
    name: str
    policy: bytes
    version: int
    object_id: str
    def __init__(self, scope: _Optional[str] = ..., name: _Optional[str] = ..., policy: _Optional[bytes] = ..., version: _Optional[int] = ..., object_id: _Optional[str] = ...) -> None: ...

class PolicyCleared(_message.Message):
    __slots__ = ("scope", "name", "version", "object_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    scope: str
    name: str
    version: int
    object_id: str
    def __init__(self, scope: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., object_id: _Optional[str] = ...) -> None: ...

class TopicAssigned(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch", "broker_id", "session_id", "reason", "decision", "used_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    USED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    broker_id: str
    session_id: str
    reason: str
    decision: PlacementDecision
    used_epoch: int
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., reason: _Optional[str] = ..., decision: _Optional[_Union[PlacementDecision, _Mapping]] = ..., used_epoch: _Optional[int] = ...) -> None: ...

class PlacementDecision(_message.Message):
    __slots__ = ("rule", "candidates", "excluded", "compared", "asked_by", "balance")
    RULE_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    rule: str
    candidates: int
    excluded: int
    compared: _containers.RepeatedCompositeFieldContainer[CandidateSeen]
    asked_by: str
    balance: BalanceSeen
    def __init__(self, rule: _Optional[str] = ..., candidates: _Optional[int] = ..., excluded: _Optional[int] = ..., compared: _Optional[_Iterable[_Union[CandidateSeen, _Mapping]]] = ..., asked_by: _Optional[str] = ..., balance: _Optional[_Union[BalanceSeen, _Mapping]] = ...) -> None: ...

class BalanceSeen(_message.Message):
    __slots__ = ("from_permille", "to_permille", "unit_permille")
    FROM_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    TO_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    UNIT_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    from_permille: int
    to_permille: int
    unit_permille: int
    def __init__(self, from_permille: _Optional[int] = ..., to_permille: _Optional[int] = ..., unit_permille: _Optional[int] = ...) -> None: ...

class CandidateSeen(_message.Message):
    __slots__ = ("broker_id", "units_used", "units_leased", "load_permille")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_USED_FIELD_NUMBER: _ClassVar[int]
    UNITS_LEASED_FIELD_NUMBER: _ClassVar[int]
    LOAD_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    units_used: int
    units_leased: int
    load_permille: int
    def __init__(self, broker_id: _Optional[str] = ..., units_used: _Optional[int] = ..., units_leased: _Optional[int] = ..., load_permille: _Optional[int] = ...) -> None: ...

class TopicUnassigned(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch", "reason")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    reason: str
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class BrokerEndpoints(_message.Message):
    __slots__ = ("pulsar_url", "grpc", "http")
    PULSAR_URL_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    pulsar_url: str
    grpc: str
    http: str
    def __init__(self, pulsar_url: _Optional[str] = ..., grpc: _Optional[str] = ..., http: _Optional[str] = ...) -> None: ...

class BrokerSessionEstablished(_message.Message):
    __slots__ = ("broker_id", "session_id", "epoch", "endpoints", "capacity_units", "zone", "rack", "quarantined_until_ms", "established_at_ms", "kind")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ESTABLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    epoch: int
    endpoints: BrokerEndpoints
    capacity_units: int
    zone: str
    rack: str
    quarantined_until_ms: int
    established_at_ms: int
    kind: str
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., endpoints: _Optional[_Union[BrokerEndpoints, _Mapping]] = ..., capacity_units: _Optional[int] = ..., zone: _Optional[str] = ..., rack: _Optional[str] = ..., quarantined_until_ms: _Optional[int] = ..., established_at_ms: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class BrokerSessionEnded(_message.Message):
    __slots__ = ("broker_id", "session_id", "epoch", "reason")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    epoch: int
    reason: str
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class BrokerDrainSet(_message.Message):
    __slots__ = ("broker_id", "session_id", "draining", "units_per_second", "revision")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    draining: bool
    units_per_second: int
    revision: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., draining: _Optional[bool] = ..., units_per_second: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class BrokerCapacitySet(_message.Message):
    __slots__ = ("broker_id", "session_id", "capacity_units", "revision", "granted_units")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    GRANTED_UNITS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    capacity_units: int
    revision: int
    granted_units: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., capacity_units: _Optional[int] = ..., revision: _Optional[int] = ..., granted_units: _Optional[int] = ...) -> None: ...

class BrokerLoadReported(_message.Message):
    __slots__ = ("broker_id", "session_id", "load")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    load: LoadReport
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("topics", "cpu_fraction", "memory_bytes", "messages_in_per_second", "messages_out_per_second", "bytes_in_per_second", "bytes_out_per_second", "connections", "measured_at_ms", "memory_limit_bytes", "cores", "busiest", "open_topics", "producers", "consumers", "bound")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CPU_FRACTION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    BUSIEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_TOPICS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    topics: int
    cpu_fraction: float
    memory_bytes: int
    messages_in_per_second: float
    messages_out_per_second: float
    bytes_in_per_second: float
    bytes_out_per_second: float
    connections: int
    measured_at_ms: int
    memory_limit_bytes: int
    cores: int
    busiest: _containers.RepeatedCompositeFieldContainer[TopicLoad]
    open_topics: int
    producers: int
    consumers: int
    bound: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topics: _Optional[int] = ..., cpu_fraction: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., messages_in_per_second: _Optional[float] = ..., messages_out_per_second: _Optional[float] = ..., bytes_in_per_second: _Optional[float] = ..., bytes_out_per_second: _Optional[float] = ..., connections: _Optional[int] = ..., measured_at_ms: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., cores: _Optional[int] = ..., busiest: _Optional[_Iterable[_Union[TopicLoad, _Mapping]]] = ..., open_topics: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., bound: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicLoad(_message.Message):
    __slots__ = ("name", "unit", "messages_in_per_second", "messages_out_per_second", "bytes_in_per_second", "bytes_out_per_second", "producers", "consumers", "measured_at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    messages_in_per_second: float
    messages_out_per_second: float
    bytes_in_per_second: float
    bytes_out_per_second: float
    producers: int
    consumers: int
    measured_at_ms: int
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., messages_in_per_second: _Optional[float] = ..., messages_out_per_second: _Optional[float] = ..., bytes_in_per_second: _Optional[float] = ..., bytes_out_per_second: _Optional[float] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., measured_at_ms: _Optional[int] = ...) -> None: ...

class CapacityGranted(_message.Message):
    __slots__ = ("broker_id", "session_id", "units")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    units: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., units: _Optional[int] = ...) -> None: ...

class CapacityLeased(_message.Message):
    __slots__ = ("broker_id", "session_id", "shard_id", "units", "expires_at_ms", "version", "units_used", "term")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNITS_USED_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    shard_id: int
    units: int
    expires_at_ms: int
    version: int
    units_used: int
    term: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., shard_id: _Optional[int] = ..., units: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., version: _Optional[int] = ..., units_used: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class CapacityLeaseReleased(_message.Message):
    __slots__ = ("broker_id", "session_id", "shard_id", "reason")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    shard_id: int
    reason: str
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., shard_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SlotRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class SlotsAdopted(_message.Message):
    __slots__ = ("ranges", "shard_map_version", "move_id", "came", "from_shard", "from_position", "session_units", "tenant_units", "least_epoch")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    CAME_FIELD_NUMBER: _ClassVar[int]
    FROM_SHARD_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    SESSION_UNITS_FIELD_NUMBER: _ClassVar[int]
    TENANT_UNITS_FIELD_NUMBER: _ClassVar[int]
    LEAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[SlotRange]
    shard_map_version: int
    move_id: int
    came: _containers.RepeatedCompositeFieldContainer[SlotRange]
    from_shard: int
    from_position: int
    session_units: _containers.RepeatedCompositeFieldContainer[CountedUnits]
    tenant_units: _containers.RepeatedCompositeFieldContainer[CountedUnits]
    least_epoch: int
    def __init__(self, ranges: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ..., shard_map_version: _Optional[int] = ..., move_id: _Optional[int] = ..., came: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ..., from_shard: _Optional[int] = ..., from_position: _Optional[int] = ..., session_units: _Optional[_Iterable[_Union[CountedUnits, _Mapping]]] = ..., tenant_units: _Optional[_Iterable[_Union[CountedUnits, _Mapping]]] = ..., least_epoch: _Optional[int] = ...) -> None: ...

class CountedUnits(_message.Message):
    __slots__ = ("of", "units")
    OF_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    of: str
    units: int
    def __init__(self, of: _Optional[str] = ..., units: _Optional[int] = ...) -> None: ...

class SlotsIncoming(_message.Message):
    __slots__ = ("move_id", "ranges", "from_shard", "tail_position")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    FROM_SHARD_FIELD_NUMBER: _ClassVar[int]
    TAIL_POSITION_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[SlotRange]
    from_shard: int
    tail_position: int
    def __init__(self, move_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ..., from_shard: _Optional[int] = ..., tail_position: _Optional[int] = ...) -> None: ...

class SlotRowsCopied(_message.Message):
    __slots__ = ("move_id", "rows", "scanned_kind", "scanned_after", "tail_position")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SCANNED_KIND_FIELD_NUMBER: _ClassVar[int]
    SCANNED_AFTER_FIELD_NUMBER: _ClassVar[int]
    TAIL_POSITION_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    rows: _containers.RepeatedCompositeFieldContainer[SlotRow]
    scanned_kind: str
    scanned_after: str
    tail_position: int
    def __init__(self, move_id: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[SlotRow, _Mapping]]] = ..., scanned_kind: _Optional[str] = ..., scanned_after: _Optional[str] = ..., tail_position: _Optional[int] = ...) -> None: ...

class SlotRow(_message.Message):
    __slots__ = ("kind", "key", "tenant", "namespace", "topic", "scalable_topic", "topic_loads", "shadow_source", "assignment", "broker_session", "topic_name", "former_name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_LOADS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    BROKER_SESSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    FORMER_NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: str
    tenant: TenantRow
    namespace: NamespaceRow
    topic: TopicRow
    scalable_topic: _layouts_pb2.ScalableTopic
    topic_loads: _layouts_pb2.TopicLoads
    shadow_source: ShadowSourceRow
    assignment: AssignmentRow
    broker_session: BrokerSessionRow
    topic_name: TopicNameRow
    former_name: FormerNameRow
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[str] = ..., tenant: _Optional[_Union[TenantRow, _Mapping]] = ..., namespace: _Optional[_Union[NamespaceRow, _Mapping]] = ..., topic: _Optional[_Union[TopicRow, _Mapping]] = ..., scalable_topic: _Optional[_Union[_layouts_pb2.ScalableTopic, _Mapping]] = ..., topic_loads: _Optional[_Union[_layouts_pb2.TopicLoads, _Mapping]] = ..., shadow_source: _Optional[_Union[ShadowSourceRow, _Mapping]] = ..., assignment: _Optional[_Union[AssignmentRow, _Mapping]] = ..., broker_session: _Optional[_Union[BrokerSessionRow, _Mapping]] = ..., topic_name: _Optional[_Union[TopicNameRow, _Mapping]] = ..., former_name: _Optional[_Union[FormerNameRow, _Mapping]] = ...) -> None: ...

class TenantRow(_message.Message):
    __slots__ = ("tenant_id", "name", "properties", "version", "life", "policies", "policies_version")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    name: str
    properties: _containers.ScalarMap[str, str]
    version: int
    life: int
    policies: bytes
    policies_version: int
    def __init__(self, tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., life: _Optional[int] = ..., policies: _Optional[bytes] = ..., policies_version: _Optional[int] = ...) -> None: ...

class NamespaceRow(_message.Message):
    __slots__ = ("namespace_id", "name", "tenant_id", "properties", "version", "life", "policies", "policies_version")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    namespace_id: str
    name: str
    tenant_id: str
    properties: _containers.ScalarMap[str, str]
    version: int
    life: int
    policies: bytes
    policies_version: int
    def __init__(self, namespace_id: _Optional[str] = ..., name: _Optional[str] = ..., tenant_id: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., life: _Optional[int] = ..., policies: _Optional[bytes] = ..., policies_version: _Optional[int] = ...) -> None: ...

class TopicRow(_message.Message):
    __slots__ = ("topic_id", "name", "partitions", "version", "namespace_id", "created_time_ms", "properties", "policies", "policies_version", "former_names")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    FORMER_NAMES_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    name: str
    partitions: int
    version: int
    namespace_id: str
    created_time_ms: int
    properties: _containers.ScalarMap[str, str]
    policies: bytes
    policies_version: int
    former_names: _containers.RepeatedCompositeFieldContainer[OldName]
    def __init__(self, topic_id: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., version: _Optional[int] = ..., namespace_id: _Optional[str] = ..., created_time_ms: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., policies: _Optional[bytes] = ..., policies_version: _Optional[int] = ..., former_names: _Optional[_Iterable[_Union[OldName, _Mapping]]] = ...) -> None: ...

class TopicNameRow(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class FormerNameRow(_message.Message):
    __slots__ = ("name", "topic_id", "current", "until_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    current: str
    until_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., current: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ShadowSourceRow(_message.Message):
    __slots__ = ("name", "topic_id", "shards", "is_deleting", "growing_to")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    IS_DELETING_FIELD_NUMBER: _ClassVar[int]
    GROWING_TO_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    shards: _containers.RepeatedScalarFieldContainer[int]
    is_deleting: bool
    growing_to: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., shards: _Optional[_Iterable[int]] = ..., is_deleting: _Optional[bool] = ..., growing_to: _Optional[int] = ...) -> None: ...

class AssignmentRow(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch", "broker_id", "session_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    broker_id: str
    session_id: str
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., broker_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class BrokerSessionRow(_message.Message):
    __slots__ = ("broker_id", "session_id", "epoch", "is_live", "endpoints", "capacity_units", "zone", "granted_units", "rack", "quarantined_until_ms", "draining", "drain_units_per_second", "revision", "started_at_ms", "announced_units", "kind")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_UNITS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRAIN_UNITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_UNITS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    epoch: int
    is_live: bool
    endpoints: BrokerEndpoints
    capacity_units: int
    zone: str
    granted_units: int
    rack: str
    quarantined_until_ms: int
    draining: bool
    drain_units_per_second: int
    revision: int
    started_at_ms: _containers.RepeatedScalarFieldContainer[int]
    announced_units: int
    kind: str
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., is_live: _Optional[bool] = ..., endpoints: _Optional[_Union[BrokerEndpoints, _Mapping]] = ..., capacity_units: _Optional[int] = ..., zone: _Optional[str] = ..., granted_units: _Optional[int] = ..., rack: _Optional[str] = ..., quarantined_until_ms: _Optional[int] = ..., draining: _Optional[bool] = ..., drain_units_per_second: _Optional[int] = ..., revision: _Optional[int] = ..., started_at_ms: _Optional[_Iterable[int]] = ..., announced_units: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class SlotsReleased(_message.Message):
    __slots__ = ("move_id", "ranges", "to_shard", "session_units", "tenant_units", "least_epoch")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TO_SHARD_FIELD_NUMBER: _ClassVar[int]
    SESSION_UNITS_FIELD_NUMBER: _ClassVar[int]
    TENANT_UNITS_FIELD_NUMBER: _ClassVar[int]
    LEAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[SlotRange]
    to_shard: int
    session_units: _containers.RepeatedCompositeFieldContainer[CountedUnits]
    tenant_units: _containers.RepeatedCompositeFieldContainer[CountedUnits]
    least_epoch: int
    def __init__(self, move_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ..., to_shard: _Optional[int] = ..., session_units: _Optional[_Iterable[_Union[CountedUnits, _Mapping]]] = ..., tenant_units: _Optional[_Iterable[_Union[CountedUnits, _Mapping]]] = ..., least_epoch: _Optional[int] = ...) -> None: ...

class SlotsRefused(_message.Message):
    __slots__ = ("move_id", "reason")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    reason: str
    def __init__(self, move_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SlotsReclaimed(_message.Message):
    __slots__ = ("move_id",)
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    def __init__(self, move_id: _Optional[int] = ...) -> None: ...

class SlotRowsRemoved(_message.Message):
    __slots__ = ("move_id", "keys", "is_last")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    keys: _containers.RepeatedCompositeFieldContainer[SlotKey]
    is_last: bool
    def __init__(self, move_id: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[SlotKey, _Mapping]]] = ..., is_last: _Optional[bool] = ...) -> None: ...

class SlotKey(_message.Message):
    __slots__ = ("kind", "key")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: str
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class RestoreMarked(_message.Message):
    __slots__ = ("restore_id", "phase", "least_epoch")
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LEAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    restore_id: str
    phase: str
    least_epoch: int
    def __init__(self, restore_id: _Optional[str] = ..., phase: _Optional[str] = ..., least_epoch: _Optional[int] = ...) -> None: ...

class ParentGateOpened(_message.Message):
    __slots__ = ("parent_kind", "parent_name", "parent_id", "attempt")
    PARENT_KIND_FIELD_NUMBER: _ClassVar[int]
    PARENT_NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    parent_kind: str
    parent_name: str
    parent_id: str
    attempt: int
    def __init__(self, parent_kind: _Optional[str] = ..., parent_name: _Optional[str] = ..., parent_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ParentGateClosed(_message.Message):
    __slots__ = ("parent_kind", "parent_name", "parent_id", "attempt")
    PARENT_KIND_FIELD_NUMBER: _ClassVar[int]
    PARENT_NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    parent_kind: str
    parent_name: str
    parent_id: str
    attempt: int
    def __init__(self, parent_kind: _Optional[str] = ..., parent_name: _Optional[str] = ..., parent_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ShadowSourceCreated(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class ShadowShardRecorded(_message.Message):
    __slots__ = ("name", "topic_id", "shard_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    shard_id: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., shard_id: _Optional[int] = ...) -> None: ...

class ShadowSourceHeld(_message.Message):
    __slots__ = ("name", "topic_id", "is_deleting", "growing_to")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    IS_DELETING_FIELD_NUMBER: _ClassVar[int]
    GROWING_TO_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    is_deleting: bool
    growing_to: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., is_deleting: _Optional[bool] = ..., growing_to: _Optional[int] = ...) -> None: ...

class ShadowSourceRemoved(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class NodeRegistered(_message.Message):
    __slots__ = ("node_id", "kind", "grpc", "raft_host", "raft_port", "http", "zone")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    RAFT_HOST_FIELD_NUMBER: _ClassVar[int]
    RAFT_PORT_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    kind: str
    grpc: str
    raft_host: str
    raft_port: int
    http: str
    zone: str
    def __init__(self, node_id: _Optional[str] = ..., kind: _Optional[str] = ..., grpc: _Optional[str] = ..., raft_host: _Optional[str] = ..., raft_port: _Optional[int] = ..., http: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class NodeStateSet(_message.Message):
    __slots__ = ("node_id", "state", "since_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    state: str
    since_ms: int
    def __init__(self, node_id: _Optional[str] = ..., state: _Optional[str] = ..., since_ms: _Optional[int] = ...) -> None: ...

class ShardPlacement(_message.Message):
    __slots__ = ("shard_id", "replicas", "joining", "leaving", "configuration_index", "has_led")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    HAS_LED_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    replicas: _containers.RepeatedScalarFieldContainer[str]
    joining: _containers.RepeatedScalarFieldContainer[str]
    leaving: _containers.RepeatedScalarFieldContainer[str]
    configuration_index: int
    has_led: bool
    def __init__(self, shard_id: _Optional[int] = ..., replicas: _Optional[_Iterable[str]] = ..., joining: _Optional[_Iterable[str]] = ..., leaving: _Optional[_Iterable[str]] = ..., configuration_index: _Optional[int] = ..., has_led: _Optional[bool] = ...) -> None: ...

class SlotMoveChanged(_message.Message):
    __slots__ = ("move_id", "ranges", "from_shard", "to_shard", "phase", "reason", "from_position", "to_position", "shard_map_version", "plan_id")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    FROM_SHARD_FIELD_NUMBER: _ClassVar[int]
    TO_SHARD_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    TO_POSITION_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[SlotRange]
    from_shard: int
    to_shard: int
    phase: str
    reason: str
    from_position: int
    to_position: int
    shard_map_version: int
    plan_id: int
    def __init__(self, move_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ..., from_shard: _Optional[int] = ..., to_shard: _Optional[int] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., from_position: _Optional[int] = ..., to_position: _Optional[int] = ..., shard_map_version: _Optional[int] = ..., plan_id: _Optional[int] = ...) -> None: ...

class PlanChanged(_message.Message):
    __slots__ = ("plan_id", "kind", "phase", "wanted", "added", "removed", "retired", "last_shard_id", "is_automatic", "request_id", "reason", "began_at_ms", "ended_at_ms")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    LAST_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    IS_AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    plan_id: int
    kind: str
    phase: str
    wanted: _containers.RepeatedCompositeFieldContainer[SlotRun]
    added: _containers.RepeatedScalarFieldContainer[int]
    removed: _containers.RepeatedScalarFieldContainer[int]
    retired: _containers.RepeatedScalarFieldContainer[int]
    last_shard_id: int
    is_automatic: bool
    request_id: str
    reason: str
    began_at_ms: int
    ended_at_ms: int
    def __init__(self, plan_id: _Optional[int] = ..., kind: _Optional[str] = ..., phase: _Optional[str] = ..., wanted: _Optional[_Iterable[_Union[SlotRun, _Mapping]]] = ..., added: _Optional[_Iterable[int]] = ..., removed: _Optional[_Iterable[int]] = ..., retired: _Optional[_Iterable[int]] = ..., last_shard_id: _Optional[int] = ..., is_automatic: _Optional[bool] = ..., request_id: _Optional[str] = ..., reason: _Optional[str] = ..., began_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ...) -> None: ...

class ShardMapChanged(_message.Message):
    __slots__ = ("version", "slot_owners", "shards")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOT_OWNERS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    slot_owners: bytes
    shards: _containers.RepeatedCompositeFieldContainer[ShardPlacement]
    def __init__(self, version: _Optional[int] = ..., slot_owners: _Optional[bytes] = ..., shards: _Optional[_Iterable[_Union[ShardPlacement, _Mapping]]] = ...) -> None: ...

class SlotRun(_message.Message):
    __slots__ = ("first", "last", "shard_id")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    shard_id: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class ShardChanged(_message.Message):
    __slots__ = ("version", "changed", "slots", "removed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: _containers.RepeatedCompositeFieldContainer[ShardPlacement]
    slots: _containers.RepeatedCompositeFieldContainer[SlotRun]
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., changed: _Optional[_Iterable[_Union[ShardPlacement, _Mapping]]] = ..., slots: _Optional[_Iterable[_Union[SlotRun, _Mapping]]] = ..., removed: _Optional[_Iterable[int]] = ...) -> None: ...

class BrokerRecorded(_message.Message):
    __slots__ = ("broker_id", "session_id", "epoch", "is_live", "endpoints", "capacity_units", "zone", "rack", "quarantined_until_ms", "draining", "drain_units_per_second", "revision", "announced_units", "kind")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRAIN_UNITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_UNITS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    epoch: int
    is_live: bool
    endpoints: BrokerEndpoints
    capacity_units: int
    zone: str
    rack: str
    quarantined_until_ms: int
    draining: bool
    drain_units_per_second: int
    revision: int
    announced_units: int
    kind: str
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., is_live: _Optional[bool] = ..., endpoints: _Optional[_Union[BrokerEndpoints, _Mapping]] = ..., capacity_units: _Optional[int] = ..., zone: _Optional[str] = ..., rack: _Optional[str] = ..., quarantined_until_ms: _Optional[int] = ..., draining: _Optional[bool] = ..., drain_units_per_second: _Optional[int] = ..., revision: _Optional[int] = ..., announced_units: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class LookupWindowRecorded(_message.Message):
    __slots__ = ("node_id", "process", "began_at_ms", "lookups", "errors", "too_slow", "latency_counts", "is_bad", "why_bad")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    TOO_SLOW_FIELD_NUMBER: _ClassVar[int]
    LATENCY_COUNTS_FIELD_NUMBER: _ClassVar[int]
    IS_BAD_FIELD_NUMBER: _ClassVar[int]
    WHY_BAD_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    process: str
    began_at_ms: int
    lookups: int
    errors: int
    too_slow: int
    latency_counts: _containers.RepeatedScalarFieldContainer[int]
    is_bad: bool
    why_bad: str
    def __init__(self, node_id: _Optional[str] = ..., process: _Optional[str] = ..., began_at_ms: _Optional[int] = ..., lookups: _Optional[int] = ..., errors: _Optional[int] = ..., too_slow: _Optional[int] = ..., latency_counts: _Optional[_Iterable[int]] = ..., is_bad: _Optional[bool] = ..., why_bad: _Optional[str] = ...) -> None: ...

class QuotasSet(_message.Message):
    __slots__ = ("version", "brokers", "tenants", "source")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerQuota]
    tenants: _containers.RepeatedCompositeFieldContainer[TenantQuota]
    source: str
    def __init__(self, version: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerQuota, _Mapping]]] = ..., tenants: _Optional[_Iterable[_Union[TenantQuota, _Mapping]]] = ..., source: _Optional[str] = ...) -> None: ...

class BrokerQuota(_message.Message):
    __slots__ = ("broker_id", "units")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    units: int
    def __init__(self, broker_id: _Optional[str] = ..., units: _Optional[int] = ...) -> None: ...

class TenantQuota(_message.Message):
    __slots__ = ("tenant", "units")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    units: int
    def __init__(self, tenant: _Optional[str] = ..., units: _Optional[int] = ...) -> None: ...

class ConfigurationSet(_message.Message):
    __slots__ = ("version", "settings")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    version: int
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, version: _Optional[int] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class NodeExcluded(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class ScalableTopicCreated(_message.Message):
    __slots__ = ("name", "topic_id", "segments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    segments: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.TopicSegment]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[_layouts_pb2.TopicSegment, _Mapping]]] = ...) -> None: ...

class ScalableTopicDeleted(_message.Message):
    __slots__ = ("name", "topic_id", "segments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    segments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., segments: _Optional[_Iterable[str]] = ...) -> None: ...

class LayoutChangePlanned(_message.Message):
    __slots__ = ("name", "topic_id", "operation_id", "kind", "parents", "children", "asked_by", "planned_at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    PLANNED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    operation_id: int
    kind: str
    parents: _containers.RepeatedScalarFieldContainer[int]
    children: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.TopicSegment]
    asked_by: str
    planned_at_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., operation_id: _Optional[int] = ..., kind: _Optional[str] = ..., parents: _Optional[_Iterable[int]] = ..., children: _Optional[_Iterable[_Union[_layouts_pb2.TopicSegment, _Mapping]]] = ..., asked_by: _Optional[str] = ..., planned_at_ms: _Optional[int] = ...) -> None: ...

class SegmentChildrenReady(_message.Message):
    __slots__ = ("name", "topic_id", "operation_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    operation_id: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., operation_id: _Optional[int] = ...) -> None: ...

class SegmentSealed(_message.Message):
    __slots__ = ("name", "topic_id", "operation_id", "segment_id", "end", "stored_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    operation_id: int
    segment_id: int
    end: _layouts_pb2.SegmentEnd
    stored_bytes: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., operation_id: _Optional[int] = ..., segment_id: _Optional[int] = ..., end: _Optional[_Union[_layouts_pb2.SegmentEnd, _Mapping]] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class LayoutChanged(_message.Message):
    __slots__ = ("name", "topic_id", "epoch", "kind", "operation_id", "changed", "removed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    epoch: int
    kind: str
    operation_id: int
    changed: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.TopicSegment]
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., epoch: _Optional[int] = ..., kind: _Optional[str] = ..., operation_id: _Optional[int] = ..., changed: _Optional[_Iterable[_Union[_layouts_pb2.TopicSegment, _Mapping]]] = ..., removed: _Optional[_Iterable[int]] = ...) -> None: ...

class LayoutChangeAbandoned(_message.Message):
    __slots__ = ("name", "topic_id", "operation_id", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    operation_id: int
    reason: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., operation_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SegmentStorageRemoved(_message.Message):
    __slots__ = ("name", "topic_id", "segment_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    segment_id: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., segment_id: _Optional[int] = ...) -> None: ...

class SegmentPrunePostponed(_message.Message):
    __slots__ = ("name", "topic_id", "segment_id", "until_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    segment_id: int
    until_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., segment_id: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class SegmentLoadsRecorded(_message.Message):
    __slots__ = ("topic", "topic_id", "loads")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    loads: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.SegmentLoad]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., loads: _Optional[_Iterable[_Union[_layouts_pb2.SegmentLoad, _Mapping]]] = ...) -> None: ...

class AutoScaleDecided(_message.Message):
    __slots__ = ("name", "topic_id", "operation_id", "kind", "segments", "buckets", "reason", "evaluated_at_ms", "groups", "policy", "policies_version", "loads", "clocks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    operation_id: int
    kind: str
    segments: _containers.RepeatedScalarFieldContainer[int]
    buckets: int
    reason: str
    evaluated_at_ms: int
    groups: _layouts_pb2.GroupSizes
    policy: str
    policies_version: int
    loads: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.SegmentLoad]
    clocks: _layouts_pb2.ScaleClocks
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., operation_id: _Optional[int] = ..., kind: _Optional[str] = ..., segments: _Optional[_Iterable[int]] = ..., buckets: _Optional[int] = ..., reason: _Optional[str] = ..., evaluated_at_ms: _Optional[int] = ..., groups: _Optional[_Union[_layouts_pb2.GroupSizes, _Mapping]] = ..., policy: _Optional[str] = ..., policies_version: _Optional[int] = ..., loads: _Optional[_Iterable[_Union[_layouts_pb2.SegmentLoad, _Mapping]]] = ..., clocks: _Optional[_Union[_layouts_pb2.ScaleClocks, _Mapping]] = ...) -> None: ...

class ScalableTopicRestored(_message.Message):
    __slots__ = ("name", "topic_id", "epoch", "next_segment_id", "last_operation_id", "segments", "removals")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    epoch: int
    next_segment_id: int
    last_operation_id: int
    segments: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.TopicSegment]
    removals: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.TopicSegment]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., epoch: _Optional[int] = ..., next_segment_id: _Optional[int] = ..., last_operation_id: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[_layouts_pb2.TopicSegment, _Mapping]]] = ..., removals: _Optional[_Iterable[_Union[_layouts_pb2.TopicSegment, _Mapping]]] = ...) -> None: ...

class ScalableSubscriptionCreated(_message.Message):
    __slots__ = ("name", "topic_id", "subscription", "type", "created_at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    type: str
    created_at_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[str] = ..., created_at_ms: _Optional[int] = ...) -> None: ...

class ScalableSubscriptionSought(_message.Message):
    __slots__ = ("name", "topic_id", "subscription", "seek_to_ms", "skips_all")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SEEK_TO_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPS_ALL_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    seek_to_ms: int
    skips_all: bool
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ..., seek_to_ms: _Optional[int] = ..., skips_all: _Optional[bool] = ...) -> None: ...

class ScalableSubscriptionReady(_message.Message):
    __slots__ = ("name", "topic_id", "subscription")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class ScalableSubscriptionDeletionStarted(_message.Message):
    __slots__ = ("name", "topic_id", "subscription")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class ScalableSubscriptionDeleted(_message.Message):
    __slots__ = ("name", "topic_id", "subscription")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class SegmentDrained(_message.Message):
    __slots__ = ("name", "topic_id", "subscription", "segment_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    segment_id: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ..., segment_id: _Optional[int] = ...) -> None: ...

class ScalableConsumerRegistered(_message.Message):
    __slots__ = ("name", "topic_id", "subscription", "consumer_name", "takes_buckets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    TAKES_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    consumer_name: str
    takes_buckets: bool
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_name: _Optional[str] = ..., takes_buckets: _Optional[bool] = ...) -> None: ...

class ScalableConsumerLeft(_message.Message):
    __slots__ = ("name", "topic_id", "subscription", "consumer_name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    consumer_name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SegmentsAssigned(_message.Message):
    __slots__ = ("name", "topic_id", "subscription", "assigned")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    subscription: str
    assigned: _containers.RepeatedCompositeFieldContainer[_layouts_pb2.ConsumerSegments]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., subscription: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[_layouts_pb2.ConsumerSegments, _Mapping]]] = ...) -> None: ...
