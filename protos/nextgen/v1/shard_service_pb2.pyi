from protos.nextgen.v1 import layouts_pb2 as _layouts_pb2
from protos.nextgen.v1 import cluster_service_pb2 as _cluster_service_pb2
from protos.nextgen.v1 import errors_pb2 as _errors_pb2
from protos.nextgen.v1 import events_pb2 as _events_pb2
from protos.nextgen.v1 import inventory_pb2 as _inventory_pb2
from protos.nextgen.v1 import policies_pb2 as _policies_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSISTENCY_ASYNC: _ClassVar[Consistency]
    CONSISTENCY_EFFECTIVE: _ClassVar[Consistency]

class TopicForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_FORM_ANY: _ClassVar[TopicForm]
    TOPIC_FORM_WITHOUT_PARTITIONS: _ClassVar[TopicForm]
    TOPIC_FORM_WITH_PARTITIONS: _ClassVar[TopicForm]

class NameUse(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NAME_USE_UNSPECIFIED: _ClassVar[NameUse]
    NAME_USE_FREE: _ClassVar[NameUse]
    NAME_USE_PENDING: _ClassVar[NameUse]
    NAME_USE_CURRENT: _ClassVar[NameUse]
    NAME_USE_FORMER: _ClassVar[NameUse]
    NAME_USE_RESTING: _ClassVar[NameUse]
CONSISTENCY_ASYNC: Consistency
CONSISTENCY_EFFECTIVE: Consistency
TOPIC_FORM_ANY: TopicForm
TOPIC_FORM_WITHOUT_PARTITIONS: TopicForm
TOPIC_FORM_WITH_PARTITIONS: TopicForm
NAME_USE_UNSPECIFIED: NameUse
NAME_USE_FREE: NameUse
NAME_USE_PENDING: NameUse
NAME_USE_CURRENT: NameUse
NAME_USE_FORMER: NameUse
NAME_USE_RESTING: NameUse

class ShardRequest(_message.Message):
    __slots__ = ("request_id", "shard_id", "shard_map_version", "timeout_ms", "trace_id", "takes_batches", "batch", "execute", "get", "list", "lookup", "assign", "grant", "move", "release", "drain", "unassign", "rebalance", "unit_count", "bulk_create", "follow", "topic_units", "cut", "mark_restore", "restore", "mark_drained", "attach_consumers", "detach_consumers", "use_topics", "record_loads", "set_capacity", "copy_slots", "release_slots", "get_outcomes", "get_name_use")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    TAKES_BATCHES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    UNASSIGN_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    UNIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BULK_CREATE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TOPIC_UNITS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    MARK_RESTORE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    MARK_DRAINED_FIELD_NUMBER: _ClassVar[int]
    ATTACH_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DETACH_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    USE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    RECORD_LOADS_FIELD_NUMBER: _ClassVar[int]
    SET_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    COPY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GET_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    GET_NAME_USE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    shard_id: int
    shard_map_version: int
    timeout_ms: int
    trace_id: str
    takes_batches: bool
    batch: _containers.RepeatedScalarFieldContainer[bytes]
    execute: ExecuteRequest
    get: GetRequest
    list: ListRequest
    lookup: ShardLookupRequest
    assign: AssignRequest
    grant: GrantCapacityRequest
    move: MoveRequest
    release: ReleaseRequest
    drain: DrainRequest
    unassign: UnassignRequest
    rebalance: RebalanceRequest
    unit_count: UnitCountRequest
    bulk_create: BulkCreateRequest
    follow: FollowRequest
    topic_units: TopicUnitsRequest
    cut: CutRequest
    mark_restore: MarkRestoreRequest
    restore: RestoreRequest
    mark_drained: MarkDrainedRequest
    attach_consumers: AttachConsumersRequest
    detach_consumers: DetachConsumersRequest
    use_topics: UseTopicsRequest
    record_loads: RecordLoadsRequest
    set_capacity: SetCapacityRequest
    copy_slots: CopySlotsRequest
    release_slots: ReleaseSlotsRequest
    get_outcomes: GetOutcomesRequest
    get_name_use: GetNameUseRequest
    def __init__(self, request_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., shard_map_version: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., trace_id: _Optional[str] = ..., takes_batches: _Optional[bool] = ..., batch: _Optional[_Iterable[bytes]] = ..., execute: _Optional[_Union[ExecuteRequest, _Mapping]] = ..., get: _Optional[_Union[GetRequest, _Mapping]] = ..., list: _Optional[_Union[ListRequest, _Mapping]] = ..., lookup: _Optional[_Union[ShardLookupRequest, _Mapping]] = ..., assign: _Optional[_Union[AssignRequest, _Mapping]] = ..., grant: _Optional[_Union[GrantCapacityRequest, _Mapping]] = ..., move: _Optional[_Union[MoveRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ..., drain: _Optional[_Union[DrainRequest, _Mapping]] = ..., unassign: _Optional[_Union[UnassignRequest, _Mapping]] = ..., rebalance: _Optional[_Union[RebalanceRequest, _Mapping]] = ..., unit_count: _Optional[_Union[UnitCountRequest, _Mapping]] = ..., bulk_create: _Optional[_Union[BulkCreateRequest, _Mapping]] = ..., follow: _Optional[_Union[FollowRequest, _Mapping]] = ..., topic_units: _Optional[_Union[TopicUnitsRequest, _Mapping]] = ..., cut: _Optional[_Union[CutRequest, _Mapping]] = ..., mark_restore: _Optional[_Union[MarkRestoreRequest, _Mapping]] = ..., restore: _Optional[_Union[RestoreRequest, _Mapping]] = ..., mark_drained: _Optional[_Union[MarkDrainedRequest, _Mapping]] = ..., attach_consumers: _Optional[_Union[AttachConsumersRequest, _Mapping]] = ..., detach_consumers: _Optional[_Union[DetachConsumersRequest, _Mapping]] = ..., use_topics: _Optional[_Union[UseTopicsRequest, _Mapping]] = ..., record_loads: _Optional[_Union[RecordLoadsRequest, _Mapping]] = ..., set_capacity: _Optional[_Union[SetCapacityRequest, _Mapping]] = ..., copy_slots: _Optional[_Union[CopySlotsRequest, _Mapping]] = ..., release_slots: _Optional[_Union[ReleaseSlotsRequest, _Mapping]] = ..., get_outcomes: _Optional[_Union[GetOutcomesRequest, _Mapping]] = ..., get_name_use: _Optional[_Union[GetNameUseRequest, _Mapping]] = ...) -> None: ...

class ShardResponse(_message.Message):
    __slots__ = ("request_id", "error", "shard_map_version", "more", "position", "takes_batches", "batch", "execute", "get", "list", "lookup", "assign", "grant", "move", "release", "drain", "unassign", "rebalance", "unit_count", "bulk_create", "follow", "topic_units", "cut", "mark_restore", "restore", "mark_drained", "attach_consumers", "detach_consumers", "use_topics", "record_loads", "set_capacity", "copy_slots", "release_slots", "get_outcomes", "get_name_use")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TAKES_BATCHES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    UNASSIGN_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    UNIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BULK_CREATE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TOPIC_UNITS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    MARK_RESTORE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    MARK_DRAINED_FIELD_NUMBER: _ClassVar[int]
    ATTACH_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DETACH_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    USE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    RECORD_LOADS_FIELD_NUMBER: _ClassVar[int]
    SET_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    COPY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GET_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    GET_NAME_USE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: _errors_pb2.ErrorDetail
    shard_map_version: int
    more: bool
    position: int
    takes_batches: bool
    batch: _containers.RepeatedScalarFieldContainer[bytes]
    execute: ExecuteResponse
    get: GetResponse
    list: ListResponse
    lookup: ShardLookupResponse
    assign: AssignResponse
    grant: GrantCapacityResponse
    move: MoveResponse
    release: ReleaseResponse
    drain: DrainResponse
    unassign: UnassignResponse
    rebalance: RebalanceResponse
    unit_count: UnitCountResponse
    bulk_create: BulkCreateResponse
    follow: FollowResponse
    topic_units: TopicUnitsResponse
    cut: CutResponse
    mark_restore: CutResponse
    restore: RestoreResponse
    mark_drained: MarkDrainedResponse
    attach_consumers: AttachConsumersResponse
    detach_consumers: DetachConsumersResponse
    use_topics: UseTopicsResponse
    record_loads: RecordLoadsResponse
    set_capacity: SetCapacityResponse
    copy_slots: CopySlotsResponse
    release_slots: ReleaseSlotsResponse
    get_outcomes: GetOutcomesResponse
    get_name_use: GetNameUseResponse
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., shard_map_version: _Optional[int] = ..., more: _Optional[bool] = ..., position: _Optional[int] = ..., takes_batches: _Optional[bool] = ..., batch: _Optional[_Iterable[bytes]] = ..., execute: _Optional[_Union[ExecuteResponse, _Mapping]] = ..., get: _Optional[_Union[GetResponse, _Mapping]] = ..., list: _Optional[_Union[ListResponse, _Mapping]] = ..., lookup: _Optional[_Union[ShardLookupResponse, _Mapping]] = ..., assign: _Optional[_Union[AssignResponse, _Mapping]] = ..., grant: _Optional[_Union[GrantCapacityResponse, _Mapping]] = ..., move: _Optional[_Union[MoveResponse, _Mapping]] = ..., release: _Optional[_Union[ReleaseResponse, _Mapping]] = ..., drain: _Optional[_Union[DrainResponse, _Mapping]] = ..., unassign: _Optional[_Union[UnassignResponse, _Mapping]] = ..., rebalance: _Optional[_Union[RebalanceResponse, _Mapping]] = ..., unit_count: _Optional[_Union[UnitCountResponse, _Mapping]] = ..., bulk_create: _Optional[_Union[BulkCreateResponse, _Mapping]] = ..., follow: _Optional[_Union[FollowResponse, _Mapping]] = ..., topic_units: _Optional[_Union[TopicUnitsResponse, _Mapping]] = ..., cut: _Optional[_Union[CutResponse, _Mapping]] = ..., mark_restore: _Optional[_Union[CutResponse, _Mapping]] = ..., restore: _Optional[_Union[RestoreResponse, _Mapping]] = ..., mark_drained: _Optional[_Union[MarkDrainedResponse, _Mapping]] = ..., attach_consumers: _Optional[_Union[AttachConsumersResponse, _Mapping]] = ..., detach_consumers: _Optional[_Union[DetachConsumersResponse, _Mapping]] = ..., use_topics: _Optional[_Union[UseTopicsResponse, _Mapping]] = ..., record_loads: _Optional[_Union[RecordLoadsResponse, _Mapping]] = ..., set_capacity: _Optional[_Union[SetCapacityResponse, _Mapping]] = ..., copy_slots: _Optional[_Union[CopySlotsResponse, _Mapping]] = ..., release_slots: _Optional[_Union[ReleaseSlotsResponse, _Mapping]] = ..., get_outcomes: _Optional[_Union[GetOutcomesResponse, _Mapping]] = ..., get_name_use: _Optional[_Union[GetNameUseResponse, _Mapping]] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("commands", "issued_position", "consistency", "issued")
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_POSITION_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    issued_position: int
    consistency: Consistency
    issued: _containers.RepeatedCompositeFieldContainer[IssuedAt]
    def __init__(self, commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., issued_position: _Optional[int] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., issued: _Optional[_Iterable[_Union[IssuedAt, _Mapping]]] = ...) -> None: ...

class IssuedAt(_message.Message):
    __slots__ = ("shard_id", "position")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    position: int
    def __init__(self, shard_id: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CommandResult]
    def __init__(self, results: _Optional[_Iterable[_Union[CommandResult, _Mapping]]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("command_id", "batch_id", "create_tenant", "set_tenant_properties", "delete_tenant", "create_namespace", "set_namespace_properties", "delete_namespace", "create_topics", "set_topic_properties", "delete_topic", "grow_topic", "admit_shadow", "unlist_shadow", "rename_topic", "point_name", "close_parent_gate", "reopen_parent_gate", "grow_shadows", "set_policies", "change_layout", "create_scalable_subscription", "delete_scalable_subscription", "seek_scalable_subscription", "register_scalable_consumer", "remove_scalable_consumer", "abandon_layout_change")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TENANT_FIELD_NUMBER: _ClassVar[int]
    SET_TENANT_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DELETE_TENANT_FIELD_NUMBER: _ClassVar[int]
    CREATE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SET_NAMESPACE_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DELETE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    SET_TOPIC_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROW_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ADMIT_SHADOW_FIELD_NUMBER: _ClassVar[int]
    UNLIST_SHADOW_FIELD_NUMBER: _ClassVar[int]
    RENAME_TOPIC_FIELD_NUMBER: _ClassVar[int]
    POINT_NAME_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PARENT_GATE_FIELD_NUMBER: _ClassVar[int]
    REOPEN_PARENT_GATE_FIELD_NUMBER: _ClassVar[int]
    GROW_SHADOWS_FIELD_NUMBER: _ClassVar[int]
    SET_POLICIES_FIELD_NUMBER: _ClassVar[int]
    CHANGE_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CREATE_SCALABLE_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DELETE_SCALABLE_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SEEK_SCALABLE_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    REGISTER_SCALABLE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SCALABLE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    ABANDON_LAYOUT_CHANGE_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    batch_id: bytes
    create_tenant: CreateTenant
    set_tenant_properties: SetTenantProperties
    delete_tenant: DeleteTenant
    create_namespace: CreateNamespace
    set_namespace_properties: SetNamespaceProperties
    delete_namespace: DeleteNamespace
    create_topics: CreateTopics
    set_topic_properties: SetTopicProperties
    delete_topic: DeleteTopic
    grow_topic: GrowTopic
    admit_shadow: AdmitShadow
    unlist_shadow: UnlistShadow
    rename_topic: RenameTopic
    point_name: PointName
    close_parent_gate: CloseParentGate
    reopen_parent_gate: ReopenParentGate
    grow_shadows: GrowShadows
    set_policies: SetPolicies
    change_layout: ChangeLayout
    create_scalable_subscription: CreateScalableSubscription
    delete_scalable_subscription: DeleteScalableSubscription
    seek_scalable_subscription: SeekScalableSubscription
    register_scalable_consumer: RegisterScalableConsumer
    remove_scalable_consumer: RemoveScalableConsumer
    abandon_layout_change: AbandonLayoutChange
    def __init__(self, command_id: _Optional[bytes] = ..., batch_id: _Optional[bytes] = ..., create_tenant: _Optional[_Union[CreateTenant, _Mapping]] = ..., set_tenant_properties: _Optional[_Union[SetTenantProperties, _Mapping]] = ..., delete_tenant: _Optional[_Union[DeleteTenant, _Mapping]] = ..., create_namespace: _Optional[_Union[CreateNamespace, _Mapping]] = ..., set_namespace_properties: _Optional[_Union[SetNamespaceProperties, _Mapping]] = ..., delete_namespace: _Optional[_Union[DeleteNamespace, _Mapping]] = ..., create_topics: _Optional[_Union[CreateTopics, _Mapping]] = ..., set_topic_properties: _Optional[_Union[SetTopicProperties, _Mapping]] = ..., delete_topic: _Optional[_Union[DeleteTopic, _Mapping]] = ..., grow_topic: _Optional[_Union[GrowTopic, _Mapping]] = ..., admit_shadow: _Optional[_Union[AdmitShadow, _Mapping]] = ..., unlist_shadow: _Optional[_Union[UnlistShadow, _Mapping]] = ..., rename_topic: _Optional[_Union[RenameTopic, _Mapping]] = ..., point_name: _Optional[_Union[PointName, _Mapping]] = ..., close_parent_gate: _Optional[_Union[CloseParentGate, _Mapping]] = ..., reopen_parent_gate: _Optional[_Union[ReopenParentGate, _Mapping]] = ..., grow_shadows: _Optional[_Union[GrowShadows, _Mapping]] = ..., set_policies: _Optional[_Union[SetPolicies, _Mapping]] = ..., change_layout: _Optional[_Union[ChangeLayout, _Mapping]] = ..., create_scalable_subscription: _Optional[_Union[CreateScalableSubscription, _Mapping]] = ..., delete_scalable_subscription: _Optional[_Union[DeleteScalableSubscription, _Mapping]] = ..., seek_scalable_subscription: _Optional[_Union[SeekScalableSubscription, _Mapping]] = ..., register_scalable_consumer: _Optional[_Union[RegisterScalableConsumer, _Mapping]] = ..., remove_scalable_consumer: _Optional[_Union[RemoveScalableConsumer, _Mapping]] = ..., abandon_layout_change: _Optional[_Union[AbandonLayoutChange, _Mapping]] = ...) -> None: ...

class CreateTenant(_message.Message):
    __slots__ = ("name", "properties", "policies", "is_rename")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    IS_RENAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    policies: _policies_pb2.Policies
    is_rename: bool
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., is_rename: _Optional[bool] = ...) -> None: ...

class SetTenantProperties(_message.Message):
    __slots__ = ("name", "properties", "expected_version", "is_rename")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_RENAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    expected_version: int
    is_rename: bool
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., expected_version: _Optional[int] = ..., is_rename: _Optional[bool] = ...) -> None: ...

class DeleteTenant(_message.Message):
    __slots__ = ("name", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class CreateNamespace(_message.Message):
    __slots__ = ("name", "properties", "policies", "is_rename")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    IS_RENAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    policies: _policies_pb2.Policies
    is_rename: bool
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., is_rename: _Optional[bool] = ...) -> None: ...

class SetNamespaceProperties(_message.Message):
    __slots__ = ("name", "properties", "expected_version", "is_rename")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_RENAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    expected_version: int
    is_rename: bool
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., expected_version: _Optional[int] = ..., is_rename: _Optional[bool] = ...) -> None: ...

class DeleteNamespace(_message.Message):
    __slots__ = ("name", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class TopicSpec(_message.Message):
    __slots__ = ("name", "partitions", "properties", "segments", "migrates")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MIGRATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    properties: _containers.ScalarMap[str, str]
    segments: int
    migrates: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., segments: _Optional[int] = ..., migrates: _Optional[bool] = ...) -> None: ...

class CreateTopics(_message.Message):
    __slots__ = ("topics", "on_demand", "preferred_broker_id")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ON_DEMAND_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSpec]
    on_demand: bool
    preferred_broker_id: str
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSpec, _Mapping]]] = ..., on_demand: _Optional[bool] = ..., preferred_broker_id: _Optional[str] = ...) -> None: ...

class SetTopicProperties(_message.Message):
    __slots__ = ("name", "properties", "expected_version")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.ScalarMap[str, str]
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteTopic(_message.Message):
    __slots__ = ("name", "force", "is_checked", "topic_id", "ended", "form")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    IS_CHECKED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    is_checked: bool
    topic_id: str
    ended: _containers.RepeatedCompositeFieldContainer[EndedUnit]
    form: TopicForm
    def __init__(self, name: _Optional[str] = ..., force: _Optional[bool] = ..., is_checked: _Optional[bool] = ..., topic_id: _Optional[str] = ..., ended: _Optional[_Iterable[_Union[EndedUnit, _Mapping]]] = ..., form: _Optional[_Union[TopicForm, str]] = ...) -> None: ...

class EndedUnit(_message.Message):
    __slots__ = ("unit", "epoch")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    unit: str
    epoch: int
    def __init__(self, unit: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class GrowTopic(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class AdmitShadow(_message.Message):
    __slots__ = ("source", "shard_id", "partitions")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    source: str
    shard_id: int
    partitions: int
    def __init__(self, source: _Optional[str] = ..., shard_id: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class UnlistShadow(_message.Message):
    __slots__ = ("source", "shadow", "shadow_id")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    SHADOW_ID_FIELD_NUMBER: _ClassVar[int]
    source: str
    shadow: str
    shadow_id: str
    def __init__(self, source: _Optional[str] = ..., shadow: _Optional[str] = ..., shadow_id: _Optional[str] = ...) -> None: ...

class RenameTopic(_message.Message):
    __slots__ = ("name", "new_name", "grace_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEW_NAME_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    new_name: str
    grace_ms: int
    def __init__(self, name: _Optional[str] = ..., new_name: _Optional[str] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class PointName(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class GrowShadows(_message.Message):
    __slots__ = ("source", "source_id", "attempt", "partitions")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_id: str
    attempt: int
    partitions: int
    def __init__(self, source: _Optional[str] = ..., source_id: _Optional[str] = ..., attempt: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class CloseParentGate(_message.Message):
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

class ReopenParentGate(_message.Message):
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

class SetPolicies(_message.Message):
    __slots__ = ("kind", "name", "policies", "expected_version", "expects_none")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPECTS_NONE_FIELD_NUMBER: _ClassVar[int]
    kind: _inventory_pb2.Kind
    name: str
    policies: _policies_pb2.Policies
    expected_version: int
    expects_none: bool
    def __init__(self, kind: _Optional[_Union[_inventory_pb2.Kind, str]] = ..., name: _Optional[str] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., expected_version: _Optional[int] = ..., expects_none: _Optional[bool] = ...) -> None: ...

class ChangeLayout(_message.Message):
    __slots__ = ("name", "kind", "segments", "buckets", "asked_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    segments: _containers.RepeatedScalarFieldContainer[int]
    buckets: int
    asked_by: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., segments: _Optional[_Iterable[int]] = ..., buckets: _Optional[int] = ..., asked_by: _Optional[str] = ...) -> None: ...

class AbandonLayoutChange(_message.Message):
    __slots__ = ("name", "operation_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    operation_id: int
    def __init__(self, name: _Optional[str] = ..., operation_id: _Optional[int] = ...) -> None: ...

class CreateScalableSubscription(_message.Message):
    __slots__ = ("name", "subscription", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    subscription: str
    type: str
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class DeleteScalableSubscription(_message.Message):
    __slots__ = ("name", "subscription")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    subscription: str
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class SeekScalableSubscription(_message.Message):
    __slots__ = ("name", "subscription", "seek_to_ms", "skips_all")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SEEK_TO_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPS_ALL_FIELD_NUMBER: _ClassVar[int]
    name: str
    subscription: str
    seek_to_ms: int
    skips_all: bool
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ..., seek_to_ms: _Optional[int] = ..., skips_all: _Optional[bool] = ...) -> None: ...

class RegisterScalableConsumer(_message.Message):
    __slots__ = ("name", "subscription", "consumer_name", "type", "takes_buckets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TAKES_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    subscription: str
    consumer_name: str
    type: str
    takes_buckets: bool
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_name: _Optional[str] = ..., type: _Optional[str] = ..., takes_buckets: _Optional[bool] = ...) -> None: ...

class RemoveScalableConsumer(_message.Message):
    __slots__ = ("name", "subscription", "consumer_name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    subscription: str
    consumer_name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("rejection_code", "message", "position", "id", "version", "topics", "operation_id", "has_shadows", "topic_hashes", "gate_slots", "gate_attempt")
    REJECTION_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_SHADOWS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_HASHES_FIELD_NUMBER: _ClassVar[int]
    GATE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GATE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    rejection_code: str
    message: str
    position: int
    id: str
    version: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    operation_id: int
    has_shadows: bool
    topic_hashes: _containers.RepeatedScalarFieldContainer[int]
    gate_slots: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRange]
    gate_attempt: int
    def __init__(self, rejection_code: _Optional[str] = ..., message: _Optional[str] = ..., position: _Optional[int] = ..., id: _Optional[str] = ..., version: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ..., operation_id: _Optional[int] = ..., has_shadows: _Optional[bool] = ..., topic_hashes: _Optional[_Iterable[int]] = ..., gate_slots: _Optional[_Iterable[_Union[_events_pb2.SlotRange, _Mapping]]] = ..., gate_attempt: _Optional[int] = ...) -> None: ...

class TopicOutcome(_message.Message):
    __slots__ = ("topic_id", "rejection_code", "message", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    REJECTION_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    rejection_code: str
    message: str
    partitions: int
    def __init__(self, topic_id: _Optional[str] = ..., rejection_code: _Optional[str] = ..., message: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class UseTopicsRequest(_message.Message):
    __slots__ = ("names", "preferred_broker_id")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    preferred_broker_id: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., preferred_broker_id: _Optional[str] = ...) -> None: ...

class UseTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class BulkCreateRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class BulkCreateResponse(_message.Message):
    __slots__ = ("created", "existing", "refusals")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    created: int
    existing: int
    refusals: _containers.RepeatedCompositeFieldContainer[BulkRefusal]
    def __init__(self, created: _Optional[int] = ..., existing: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[BulkRefusal, _Mapping]]] = ...) -> None: ...

class BulkRefusal(_message.Message):
    __slots__ = ("place", "rejection_code", "message")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    REJECTION_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    place: int
    rejection_code: str
    message: str
    def __init__(self, place: _Optional[int] = ..., rejection_code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CutRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CutResponse(_message.Message):
    __slots__ = ("position", "least_epoch", "restore_id", "restore_phase", "tenants", "namespaces", "topics", "scalable_topics", "slots_digest", "settled_move_id")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LEAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    RESTORE_PHASE_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SETTLED_MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    position: int
    least_epoch: int
    restore_id: str
    restore_phase: str
    tenants: int
    namespaces: int
    topics: int
    scalable_topics: int
    slots_digest: int
    settled_move_id: int
    def __init__(self, position: _Optional[int] = ..., least_epoch: _Optional[int] = ..., restore_id: _Optional[str] = ..., restore_phase: _Optional[str] = ..., tenants: _Optional[int] = ..., namespaces: _Optional[int] = ..., topics: _Optional[int] = ..., scalable_topics: _Optional[int] = ..., slots_digest: _Optional[int] = ..., settled_move_id: _Optional[int] = ...) -> None: ...

class MarkRestoreRequest(_message.Message):
    __slots__ = ("restore_id", "phase", "least_epoch")
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LEAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    restore_id: str
    phase: str
    least_epoch: int
    def __init__(self, restore_id: _Optional[str] = ..., phase: _Optional[str] = ..., least_epoch: _Optional[int] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("restore_id", "items", "shadow_sources")
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_SOURCES_FIELD_NUMBER: _ClassVar[int]
    restore_id: str
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    shadow_sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, restore_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ..., shadow_sources: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("created", "existing")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    created: int
    existing: int
    def __init__(self, created: _Optional[int] = ..., existing: _Optional[int] = ...) -> None: ...

class CopySlotsRequest(_message.Message):
    __slots__ = ("move_id", "ranges", "scanned_kind", "scanned_after", "tail_position", "rows_max")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SCANNED_KIND_FIELD_NUMBER: _ClassVar[int]
    SCANNED_AFTER_FIELD_NUMBER: _ClassVar[int]
    TAIL_POSITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRange]
    scanned_kind: str
    scanned_after: str
    tail_position: int
    rows_max: int
    def __init__(self, move_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_events_pb2.SlotRange, _Mapping]]] = ..., scanned_kind: _Optional[str] = ..., scanned_after: _Optional[str] = ..., tail_position: _Optional[int] = ..., rows_max: _Optional[int] = ...) -> None: ...

class CopySlotsResponse(_message.Message):
    __slots__ = ("rows", "scanned_kind", "scanned_after", "tail_position", "is_behind")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SCANNED_KIND_FIELD_NUMBER: _ClassVar[int]
    SCANNED_AFTER_FIELD_NUMBER: _ClassVar[int]
    TAIL_POSITION_FIELD_NUMBER: _ClassVar[int]
    IS_BEHIND_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRow]
    scanned_kind: str
    scanned_after: str
    tail_position: int
    is_behind: bool
    def __init__(self, rows: _Optional[_Iterable[_Union[_events_pb2.SlotRow, _Mapping]]] = ..., scanned_kind: _Optional[str] = ..., scanned_after: _Optional[str] = ..., tail_position: _Optional[int] = ..., is_behind: _Optional[bool] = ...) -> None: ...

class ReleaseSlotsRequest(_message.Message):
    __slots__ = ("move_id", "ranges", "to_shard", "tail_position")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TO_SHARD_FIELD_NUMBER: _ClassVar[int]
    TAIL_POSITION_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRange]
    to_shard: int
    tail_position: int
    def __init__(self, move_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_events_pb2.SlotRange, _Mapping]]] = ..., to_shard: _Optional[int] = ..., tail_position: _Optional[int] = ...) -> None: ...

class ReleaseSlotsResponse(_message.Message):
    __slots__ = ("from_position", "rows", "session_units", "tenant_units", "least_epoch", "is_early")
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SESSION_UNITS_FIELD_NUMBER: _ClassVar[int]
    TENANT_UNITS_FIELD_NUMBER: _ClassVar[int]
    LEAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_EARLY_FIELD_NUMBER: _ClassVar[int]
    from_position: int
    rows: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRow]
    session_units: _containers.RepeatedCompositeFieldContainer[_events_pb2.CountedUnits]
    tenant_units: _containers.RepeatedCompositeFieldContainer[_events_pb2.CountedUnits]
    least_epoch: int
    is_early: bool
    def __init__(self, from_position: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[_events_pb2.SlotRow, _Mapping]]] = ..., session_units: _Optional[_Iterable[_Union[_events_pb2.CountedUnits, _Mapping]]] = ..., tenant_units: _Optional[_Iterable[_Union[_events_pb2.CountedUnits, _Mapping]]] = ..., least_epoch: _Optional[int] = ..., is_early: _Optional[bool] = ...) -> None: ...

class GetOutcomesRequest(_message.Message):
    __slots__ = ("command_ids", "batch_ids", "issued", "asked_shards")
    COMMAND_IDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    ASKED_SHARDS_FIELD_NUMBER: _ClassVar[int]
    command_ids: _containers.RepeatedScalarFieldContainer[bytes]
    batch_ids: _containers.RepeatedScalarFieldContainer[bytes]
    issued: _containers.RepeatedCompositeFieldContainer[IssuedAt]
    asked_shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, command_ids: _Optional[_Iterable[bytes]] = ..., batch_ids: _Optional[_Iterable[bytes]] = ..., issued: _Optional[_Iterable[_Union[IssuedAt, _Mapping]]] = ..., asked_shards: _Optional[_Iterable[int]] = ...) -> None: ...

class GetOutcomesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[KnownOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[KnownOutcome, _Mapping]]] = ...) -> None: ...

class KnownOutcome(_message.Message):
    __slots__ = ("command_id", "outcome", "position")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    outcome: bytes
    position: int
    def __init__(self, command_id: _Optional[bytes] = ..., outcome: _Optional[bytes] = ..., position: _Optional[int] = ...) -> None: ...

class GetNameUseRequest(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class GetNameUseResponse(_message.Message):
    __slots__ = ("use", "until_ms")
    USE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    use: NameUse
    until_ms: int
    def __init__(self, use: _Optional[_Union[NameUse, str]] = ..., until_ms: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("names", "min_position", "subscriber_id")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_ID_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[ObjectName]
    min_position: int
    subscriber_id: str
    def __init__(self, names: _Optional[_Iterable[_Union[ObjectName, _Mapping]]] = ..., min_position: _Optional[int] = ..., subscriber_id: _Optional[str] = ...) -> None: ...

class ObjectName(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: _inventory_pb2.Kind
    name: str
    def __init__(self, kind: _Optional[_Union[_inventory_pb2.Kind, str]] = ..., name: _Optional[str] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    def __init__(self, items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("kind", "parent", "after", "limit", "domain", "min_position", "prefix", "names_only", "bytes_max", "count_only", "properties", "shadows_of")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_OF_FIELD_NUMBER: _ClassVar[int]
    kind: _inventory_pb2.Kind
    parent: str
    after: str
    limit: int
    domain: str
    min_position: int
    prefix: str
    names_only: bool
    bytes_max: int
    count_only: bool
    properties: _containers.ScalarMap[str, str]
    shadows_of: str
    def __init__(self, kind: _Optional[_Union[_inventory_pb2.Kind, str]] = ..., parent: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., domain: _Optional[str] = ..., min_position: _Optional[int] = ..., prefix: _Optional[str] = ..., names_only: _Optional[bool] = ..., bytes_max: _Optional[int] = ..., count_only: _Optional[bool] = ..., properties: _Optional[_Mapping[str, str]] = ..., shadows_of: _Optional[str] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("items", "more_items", "names", "partitions", "counted", "next_after", "slots_digest")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MORE_ITEMS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    more_items: bool
    names: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    counted: CountedObjects
    next_after: str
    slots_digest: int
    def __init__(self, items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ..., more_items: _Optional[bool] = ..., names: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[int]] = ..., counted: _Optional[_Union[CountedObjects, _Mapping]] = ..., next_after: _Optional[str] = ..., slots_digest: _Optional[int] = ...) -> None: ...

class CountedObjects(_message.Message):
    __slots__ = ("objects", "units", "position")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    objects: int
    units: int
    position: int
    def __init__(self, objects: _Optional[int] = ..., units: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class ShardLookupRequest(_message.Message):
    __slots__ = ("topics", "used", "preferred_broker_id")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    used: _containers.RepeatedCompositeFieldContainer[UsedEpoch]
    preferred_broker_id: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., used: _Optional[_Iterable[_Union[UsedEpoch, _Mapping]]] = ..., preferred_broker_id: _Optional[str] = ...) -> None: ...

class UsedEpoch(_message.Message):
    __slots__ = ("topic", "topic_id", "epoch", "used_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    USED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    epoch: int
    used_epoch: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., epoch: _Optional[int] = ..., used_epoch: _Optional[int] = ...) -> None: ...

class ShardLookupResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.LookupAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[_inventory_pb2.LookupAnswer, _Mapping]]] = ...) -> None: ...

class AssignRequest(_message.Message):
    __slots__ = ("broker_id", "session_id", "assignments", "prepared", "term")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    assignments: _containers.RepeatedCompositeFieldContainer[TopicAssignment]
    prepared: _containers.RepeatedCompositeFieldContainer[TopicAssignment]
    term: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., assignments: _Optional[_Iterable[_Union[TopicAssignment, _Mapping]]] = ..., prepared: _Optional[_Iterable[_Union[TopicAssignment, _Mapping]]] = ..., term: _Optional[int] = ...) -> None: ...

class TopicAssignment(_message.Message):
    __slots__ = ("topic", "unit", "name", "epoch", "shard_id", "take_over")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVER_FIELD_NUMBER: _ClassVar[int]
    topic: _inventory_pb2.Topic
    unit: str
    name: str
    epoch: int
    shard_id: int
    take_over: bool
    def __init__(self, topic: _Optional[_Union[_inventory_pb2.Topic, _Mapping]] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., shard_id: _Optional[int] = ..., take_over: _Optional[bool] = ...) -> None: ...

class AssignResponse(_message.Message):
    __slots__ = ("sequence", "synced", "watched")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    synced: bool
    watched: bool
    def __init__(self, sequence: _Optional[int] = ..., synced: _Optional[bool] = ..., watched: _Optional[bool] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("home_shard_id", "term", "node_id")
    HOME_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    home_shard_id: int
    term: int
    node_id: str
    def __init__(self, home_shard_id: _Optional[int] = ..., term: _Optional[int] = ..., node_id: _Optional[str] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("follows", "idle")
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    follows: bool
    idle: _containers.RepeatedCompositeFieldContainer[IdleManager]
    def __init__(self, follows: _Optional[bool] = ..., idle: _Optional[_Iterable[_Union[IdleManager, _Mapping]]] = ...) -> None: ...

class IdleManager(_message.Message):
    __slots__ = ("shard_id", "term")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    term: int
    def __init__(self, shard_id: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("broker_id", "session_id", "releases", "announced")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    releases: _containers.RepeatedCompositeFieldContainer[TopicRelease]
    announced: _containers.RepeatedCompositeFieldContainer[TopicRelease]
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., releases: _Optional[_Iterable[_Union[TopicRelease, _Mapping]]] = ..., announced: _Optional[_Iterable[_Union[TopicRelease, _Mapping]]] = ...) -> None: ...

class TopicRelease(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch", "new_broker_id", "new_epoch", "new_broker_grpc", "new_broker_url", "is_deleted")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_BROKER_GRPC_FIELD_NUMBER: _ClassVar[int]
    NEW_BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    new_broker_id: str
    new_epoch: int
    new_broker_grpc: str
    new_broker_url: str
    is_deleted: bool
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., new_broker_id: _Optional[str] = ..., new_epoch: _Optional[int] = ..., new_broker_grpc: _Optional[str] = ..., new_broker_url: _Optional[str] = ..., is_deleted: _Optional[bool] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("sequence", "synced")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    synced: bool
    def __init__(self, sequence: _Optional[int] = ..., synced: _Optional[bool] = ...) -> None: ...

class TopicUnitsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TopicUnitsResponse(_message.Message):
    __slots__ = ("topic_id", "units")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    units: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.UnitAssignment]
    def __init__(self, topic_id: _Optional[str] = ..., units: _Optional[_Iterable[_Union[_inventory_pb2.UnitAssignment, _Mapping]]] = ...) -> None: ...

class MoveRequest(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[TopicMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[TopicMove, _Mapping]]] = ...) -> None: ...

class TopicMove(_message.Message):
    __slots__ = ("topic", "target_broker_id", "expected_epoch", "asked_by", "balance")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TARGET_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    target_broker_id: str
    expected_epoch: int
    asked_by: str
    balance: _events_pb2.BalanceSeen
    def __init__(self, topic: _Optional[str] = ..., target_broker_id: _Optional[str] = ..., expected_epoch: _Optional[int] = ..., asked_by: _Optional[str] = ..., balance: _Optional[_Union[_events_pb2.BalanceSeen, _Mapping]] = ...) -> None: ...

class MoveResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.LookupAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[_inventory_pb2.LookupAnswer, _Mapping]]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("broker_id", "undo", "units_per_second")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    undo: bool
    units_per_second: int
    def __init__(self, broker_id: _Optional[str] = ..., undo: _Optional[bool] = ..., units_per_second: _Optional[int] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: _events_pb2.BrokerRecorded
    def __init__(self, broker: _Optional[_Union[_events_pb2.BrokerRecorded, _Mapping]] = ...) -> None: ...

class SetCapacityRequest(_message.Message):
    __slots__ = ("broker_id", "capacity_units")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    capacity_units: int
    def __init__(self, broker_id: _Optional[str] = ..., capacity_units: _Optional[int] = ...) -> None: ...

class SetCapacityResponse(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: _events_pb2.BrokerRecorded
    def __init__(self, broker: _Optional[_Union[_events_pb2.BrokerRecorded, _Mapping]] = ...) -> None: ...

class UnassignRequest(_message.Message):
    __slots__ = ("units", "reason")
    UNITS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.UnitAssignment]
    reason: str
    def __init__(self, units: _Optional[_Iterable[_Union[_inventory_pb2.UnitAssignment, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class UnassignResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[UnassignOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[UnassignOutcome, _Mapping]]] = ...) -> None: ...

class UnassignOutcome(_message.Message):
    __slots__ = ("name", "unassigned", "message", "under_way", "failed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNASSIGNED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    name: str
    unassigned: bool
    message: str
    under_way: bool
    failed: bool
    def __init__(self, name: _Optional[str] = ..., unassigned: _Optional[bool] = ..., message: _Optional[str] = ..., under_way: _Optional[bool] = ..., failed: _Optional[bool] = ...) -> None: ...

class MarkDrainedRequest(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[DrainedMark]
    def __init__(self, marks: _Optional[_Iterable[_Union[DrainedMark, _Mapping]]] = ...) -> None: ...

class DrainedMark(_message.Message):
    __slots__ = ("unit", "subscription")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    unit: _inventory_pb2.UnitAssignment
    subscription: str
    def __init__(self, unit: _Optional[_Union[_inventory_pb2.UnitAssignment, _Mapping]] = ..., subscription: _Optional[str] = ...) -> None: ...

class MarkDrainedResponse(_message.Message):
    __slots__ = ("settled",)
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    settled: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, settled: _Optional[_Iterable[bool]] = ...) -> None: ...

class RecordLoadsRequest(_message.Message):
    __slots__ = ("samples",)
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[SegmentSample]
    def __init__(self, samples: _Optional[_Iterable[_Union[SegmentSample, _Mapping]]] = ...) -> None: ...

class SegmentSample(_message.Message):
    __slots__ = ("unit", "rates")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    unit: _inventory_pb2.UnitAssignment
    rates: _layouts_pb2.SegmentRates
    def __init__(self, unit: _Optional[_Union[_inventory_pb2.UnitAssignment, _Mapping]] = ..., rates: _Optional[_Union[_layouts_pb2.SegmentRates, _Mapping]] = ...) -> None: ...

class RecordLoadsResponse(_message.Message):
    __slots__ = ("recorded",)
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    recorded: _containers.RepeatedCompositeFieldContainer[RecordedRates]
    def __init__(self, recorded: _Optional[_Iterable[_Union[RecordedRates, _Mapping]]] = ...) -> None: ...

class RecordedRates(_message.Message):
    __slots__ = ("rates",)
    RATES_FIELD_NUMBER: _ClassVar[int]
    rates: _layouts_pb2.SegmentRates
    def __init__(self, rates: _Optional[_Union[_layouts_pb2.SegmentRates, _Mapping]] = ...) -> None: ...

class AttachConsumersRequest(_message.Message):
    __slots__ = ("node_id", "incarnation", "consumers")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    incarnation: str
    consumers: _containers.RepeatedCompositeFieldContainer[AttachedConsumer]
    def __init__(self, node_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., consumers: _Optional[_Iterable[_Union[AttachedConsumer, _Mapping]]] = ...) -> None: ...

class AttachedConsumer(_message.Message):
    __slots__ = ("topic", "subscription", "consumer_name", "attachment", "moved_attachment")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    MOVED_ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    consumer_name: str
    attachment: int
    moved_attachment: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_name: _Optional[str] = ..., attachment: _Optional[int] = ..., moved_attachment: _Optional[int] = ...) -> None: ...

class AttachConsumersResponse(_message.Message):
    __slots__ = ("is_known", "attachments", "ended")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    attachments: _containers.RepeatedScalarFieldContainer[int]
    ended: _containers.RepeatedCompositeFieldContainer[AttachedConsumer]
    def __init__(self, is_known: _Optional[bool] = ..., attachments: _Optional[_Iterable[int]] = ..., ended: _Optional[_Iterable[_Union[AttachedConsumer, _Mapping]]] = ...) -> None: ...

class DetachConsumersRequest(_message.Message):
    __slots__ = ("node_id", "incarnation", "consumers", "have_left")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    HAVE_LEFT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    incarnation: str
    consumers: _containers.RepeatedCompositeFieldContainer[AttachedConsumer]
    have_left: bool
    def __init__(self, node_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., consumers: _Optional[_Iterable[_Union[AttachedConsumer, _Mapping]]] = ..., have_left: _Optional[bool] = ...) -> None: ...

class DetachConsumersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ("plan_only", "units_per_second", "stop")
    PLAN_ONLY_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    plan_only: bool
    units_per_second: int
    stop: bool
    def __init__(self, plan_only: _Optional[bool] = ..., units_per_second: _Optional[int] = ..., stop: _Optional[bool] = ...) -> None: ...

class RebalanceResponse(_message.Message):
    __slots__ = ("moves", "count", "before", "after", "reason", "under_way", "evacuating")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    EVACUATING_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[PlannedMove]
    count: int
    before: _containers.RepeatedCompositeFieldContainer[BrokerUnits]
    after: _containers.RepeatedCompositeFieldContainer[BrokerUnits]
    reason: str
    under_way: int
    evacuating: int
    def __init__(self, moves: _Optional[_Iterable[_Union[PlannedMove, _Mapping]]] = ..., count: _Optional[int] = ..., before: _Optional[_Iterable[_Union[BrokerUnits, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[BrokerUnits, _Mapping]]] = ..., reason: _Optional[str] = ..., under_way: _Optional[int] = ..., evacuating: _Optional[int] = ...) -> None: ...

class PlannedMove(_message.Message):
    __slots__ = ("name", "from_broker_id", "to_broker_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    TO_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    from_broker_id: str
    to_broker_id: str
    def __init__(self, name: _Optional[str] = ..., from_broker_id: _Optional[str] = ..., to_broker_id: _Optional[str] = ...) -> None: ...

class UnitCountRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnitCountResponse(_message.Message):
    __slots__ = ("brokers", "under_way", "evacuating")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    EVACUATING_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerUnits]
    under_way: int
    evacuating: int
    def __init__(self, brokers: _Optional[_Iterable[_Union[BrokerUnits, _Mapping]]] = ..., under_way: _Optional[int] = ..., evacuating: _Optional[int] = ...) -> None: ...

class BrokerUnits(_message.Message):
    __slots__ = ("broker_id", "session_id", "units", "load_permille")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    LOAD_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    units: int
    load_permille: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., units: _Optional[int] = ..., load_permille: _Optional[int] = ...) -> None: ...

class GrantCapacityRequest(_message.Message):
    __slots__ = ("broker_id", "session_id", "units")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    units: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., units: _Optional[int] = ...) -> None: ...

class GrantCapacityResponse(_message.Message):
    __slots__ = ("units",)
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: int
    def __init__(self, units: _Optional[int] = ...) -> None: ...

class ReadEventsRequest(_message.Message):
    __slots__ = ("shard_id", "from_position", "follow", "events_max", "types", "key_prefix")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    EVENTS_MAX_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    from_position: int
    follow: bool
    events_max: int
    types: _containers.RepeatedScalarFieldContainer[str]
    key_prefix: str
    def __init__(self, shard_id: _Optional[int] = ..., from_position: _Optional[int] = ..., follow: _Optional[bool] = ..., events_max: _Optional[int] = ..., types: _Optional[_Iterable[str]] = ..., key_prefix: _Optional[str] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("error", "events", "next_position", "oldest_position", "commit_position", "snapshot_position")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_POSITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_POSITION_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.ErrorDetail
    events: _containers.RepeatedCompositeFieldContainer[_events_pb2.Event]
    next_position: int
    oldest_position: int
    commit_position: int
    snapshot_position: int
    def __init__(self, error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., events: _Optional[_Iterable[_Union[_events_pb2.Event, _Mapping]]] = ..., next_position: _Optional[int] = ..., oldest_position: _Optional[int] = ..., commit_position: _Optional[int] = ..., snapshot_position: _Optional[int] = ...) -> None: ...

class PinLogRequest(_message.Message):
    __slots__ = ("shard_id", "reader_id", "position", "ttl_ms")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    READER_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    reader_id: str
    position: int
    ttl_ms: int
    def __init__(self, shard_id: _Optional[int] = ..., reader_id: _Optional[str] = ..., position: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class PinLogResponse(_message.Message):
    __slots__ = ("error", "oldest_position", "readers")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OLDEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.ErrorDetail
    oldest_position: int
    readers: _containers.RepeatedCompositeFieldContainer[LogReader]
    def __init__(self, error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., oldest_position: _Optional[int] = ..., readers: _Optional[_Iterable[_Union[LogReader, _Mapping]]] = ...) -> None: ...

class LogReader(_message.Message):
    __slots__ = ("reader_id", "position", "expires_in_ms", "is_broken")
    READER_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    IS_BROKEN_FIELD_NUMBER: _ClassVar[int]
    reader_id: str
    position: int
    expires_in_ms: int
    is_broken: bool
    def __init__(self, reader_id: _Optional[str] = ..., position: _Optional[int] = ..., expires_in_ms: _Optional[int] = ..., is_broken: _Optional[bool] = ...) -> None: ...

class WatchShardRequest(_message.Message):
    __slots__ = ("open", "add", "remove", "renew")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    open: WatchOpen
    add: WatchAdd
    remove: WatchRemove
    renew: WatchRenew
    def __init__(self, open: _Optional[_Union[WatchOpen, _Mapping]] = ..., add: _Optional[_Union[WatchAdd, _Mapping]] = ..., remove: _Optional[_Union[WatchRemove, _Mapping]] = ..., renew: _Optional[_Union[WatchRenew, _Mapping]] = ...) -> None: ...

class WatchOpen(_message.Message):
    __slots__ = ("shard_id", "subscriber_id")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    subscriber_id: str
    def __init__(self, shard_id: _Optional[int] = ..., subscriber_id: _Optional[str] = ...) -> None: ...

class WatchAdd(_message.Message):
    __slots__ = ("watch_id", "kinds", "prefix", "names", "from_position", "without_snapshot", "leased", "acknowledged", "creations")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    kinds: _containers.RepeatedScalarFieldContainer[_inventory_pb2.Kind]
    prefix: str
    names: _containers.RepeatedScalarFieldContainer[str]
    from_position: int
    without_snapshot: bool
    leased: bool
    acknowledged: bool
    creations: bool
    def __init__(self, watch_id: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[_inventory_pb2.Kind, str]]] = ..., prefix: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., from_position: _Optional[int] = ..., without_snapshot: _Optional[bool] = ..., leased: _Optional[bool] = ..., acknowledged: _Optional[bool] = ..., creations: _Optional[bool] = ...) -> None: ...

class WatchRemove(_message.Message):
    __slots__ = ("watch_id",)
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    def __init__(self, watch_id: _Optional[int] = ...) -> None: ...

class WatchRenew(_message.Message):
    __slots__ = ("acked_position", "asked_at_ms", "behind", "complete_term", "creations_may_wait", "may_rest")
    ACKED_POSITION_FIELD_NUMBER: _ClassVar[int]
    ASKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TERM_FIELD_NUMBER: _ClassVar[int]
    CREATIONS_MAY_WAIT_FIELD_NUMBER: _ClassVar[int]
    MAY_REST_FIELD_NUMBER: _ClassVar[int]
    acked_position: int
    asked_at_ms: int
    behind: _containers.RepeatedScalarFieldContainer[int]
    complete_term: int
    creations_may_wait: bool
    may_rest: bool
    def __init__(self, acked_position: _Optional[int] = ..., asked_at_ms: _Optional[int] = ..., behind: _Optional[_Iterable[int]] = ..., complete_term: _Optional[int] = ..., creations_may_wait: _Optional[bool] = ..., may_rest: _Optional[bool] = ...) -> None: ...

class WatchShardUpdate(_message.Message):
    __slots__ = ("error", "watch_id", "position", "reset", "items", "snapshot_complete", "events", "ttl_ms", "confirmed_at_ms", "names_creations", "created")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NAMES_CREATIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.ErrorDetail
    watch_id: int
    position: int
    reset: bool
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    snapshot_complete: bool
    events: _containers.RepeatedCompositeFieldContainer[_events_pb2.Event]
    ttl_ms: int
    confirmed_at_ms: int
    names_creations: bool
    created: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., watch_id: _Optional[int] = ..., position: _Optional[int] = ..., reset: _Optional[bool] = ..., items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ..., snapshot_complete: _Optional[bool] = ..., events: _Optional[_Iterable[_Union[_events_pb2.Event, _Mapping]]] = ..., ttl_ms: _Optional[int] = ..., confirmed_at_ms: _Optional[int] = ..., names_creations: _Optional[bool] = ..., created: _Optional[_Iterable[str]] = ...) -> None: ...

class GetNodeStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node_id", "replicas", "shard_map_version", "sessions", "counters")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    replicas: _containers.RepeatedCompositeFieldContainer[_cluster_service_pb2.ReplicaStatus]
    shard_map_version: int
    sessions: _containers.RepeatedCompositeFieldContainer[BrokerSessionStatus]
    counters: _containers.ScalarMap[str, int]
    def __init__(self, node_id: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[_cluster_service_pb2.ReplicaStatus, _Mapping]]] = ..., shard_map_version: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[BrokerSessionStatus, _Mapping]]] = ..., counters: _Optional[_Mapping[str, int]] = ...) -> None: ...

class BrokerSessionStatus(_message.Message):
    __slots__ = ("broker_id", "session_id", "epoch", "sent_sequence", "synced_sequence", "topics", "shard_id", "heartbeat_age_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SENT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    epoch: int
    sent_sequence: int
    synced_sequence: int
    topics: int
    shard_id: int
    heartbeat_age_ms: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., sent_sequence: _Optional[int] = ..., synced_sequence: _Optional[int] = ..., topics: _Optional[int] = ..., shard_id: _Optional[int] = ..., heartbeat_age_ms: _Optional[int] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("shard_id", "target")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    target: str
    def __init__(self, shard_id: _Optional[int] = ..., target: _Optional[str] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifyReplicaRequest(_message.Message):
    __slots__ = ("shard_id", "at_position")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    AT_POSITION_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    at_position: int
    def __init__(self, shard_id: _Optional[int] = ..., at_position: _Optional[int] = ...) -> None: ...

class VerifyReplicaResponse(_message.Message):
    __slots__ = ("error", "shard_id", "node_id", "from_position", "position", "events_replayed", "rebuilt_digest", "stored_digest", "scanned_digest", "digest_at_position", "covers_at_position")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_REPLAYED_FIELD_NUMBER: _ClassVar[int]
    REBUILT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STORED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SCANNED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_AT_POSITION_FIELD_NUMBER: _ClassVar[int]
    COVERS_AT_POSITION_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.ErrorDetail
    shard_id: int
    node_id: str
    from_position: int
    position: int
    events_replayed: int
    rebuilt_digest: int
    stored_digest: int
    scanned_digest: int
    digest_at_position: int
    covers_at_position: bool
    def __init__(self, error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., shard_id: _Optional[int] = ..., node_id: _Optional[str] = ..., from_position: _Optional[int] = ..., position: _Optional[int] = ..., events_replayed: _Optional[int] = ..., rebuilt_digest: _Optional[int] = ..., stored_digest: _Optional[int] = ..., scanned_digest: _Optional[int] = ..., digest_at_position: _Optional[int] = ..., covers_at_position: _Optional[bool] = ...) -> None: ...
