from protos.nextgen.v1 import events_pb2 as _events_pb2
from protos.nextgen.v1 import layouts_pb2 as _layouts_pb2
from protos.nextgen.v1 import policies_pb2 as _policies_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_TENANT: _ClassVar[Kind]
    KIND_NAMESPACE: _ClassVar[Kind]
    KIND_TOPIC: _ClassVar[Kind]
    KIND_ASSIGNMENT: _ClassVar[Kind]
    KIND_SCALABLE_TOPIC: _ClassVar[Kind]

class LifeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIFE_STATE_ACTIVE: _ClassVar[LifeState]
    LIFE_STATE_DELETING: _ClassVar[LifeState]
KIND_UNSPECIFIED: Kind
KIND_TENANT: Kind
KIND_NAMESPACE: Kind
KIND_TOPIC: Kind
KIND_ASSIGNMENT: Kind
KIND_SCALABLE_TOPIC: Kind
LIFE_STATE_ACTIVE: LifeState
LIFE_STATE_DELETING: LifeState

class Tenant(_message.Message):
    __slots__ = ("tenant_id", "name", "properties", "version", "state", "policies", "policies_version")
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
    STATE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    name: str
    properties: _containers.ScalarMap[str, str]
    version: int
    state: LifeState
    policies: _policies_pb2.Policies
    policies_version: int
    def __init__(self, tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., state: _Optional[_Union[LifeState, str]] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., policies_version: _Optional[int] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("namespace_id", "name", "tenant_id", "properties", "version", "state", "policies", "policies_version")
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
    STATE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    namespace_id: str
    name: str
    tenant_id: str
    properties: _containers.ScalarMap[str, str]
    version: int
    state: LifeState
    policies: _policies_pb2.Policies
    policies_version: int
    def __init__(self, namespace_id: _Optional[str] = ..., name: _Optional[str] = ..., tenant_id: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., state: _Optional[_Union[LifeState, str]] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., policies_version: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic_id", "name", "partitions", "properties", "version", "namespace_id", "created_time_ms", "policies", "policies_version", "former_names")
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
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_VERSION_FIELD_NUMBER: _ClassVar[int]
    FORMER_NAMES_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    name: str
    partitions: int
    properties: _containers.ScalarMap[str, str]
    version: int
    namespace_id: str
    created_time_ms: int
    policies: _policies_pb2.Policies
    policies_version: int
    former_names: _containers.RepeatedCompositeFieldContainer[_events_pb2.OldName]
    def __init__(self, topic_id: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., namespace_id: _Optional[str] = ..., created_time_ms: _Optional[int] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., policies_version: _Optional[int] = ..., former_names: _Optional[_Iterable[_Union[_events_pb2.OldName, _Mapping]]] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("kind", "name", "tenant", "namespace", "topic", "assignment", "scalable_topic", "pointer")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    POINTER_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    name: str
    tenant: Tenant
    namespace: Namespace
    topic: Topic
    assignment: UnitAssignment
    scalable_topic: _layouts_pb2.ScalableTopic
    pointer: TopicPointer
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., name: _Optional[str] = ..., tenant: _Optional[_Union[Tenant, _Mapping]] = ..., namespace: _Optional[_Union[Namespace, _Mapping]] = ..., topic: _Optional[_Union[Topic, _Mapping]] = ..., assignment: _Optional[_Union[UnitAssignment, _Mapping]] = ..., scalable_topic: _Optional[_Union[_layouts_pb2.ScalableTopic, _Mapping]] = ..., pointer: _Optional[_Union[TopicPointer, _Mapping]] = ...) -> None: ...

class TopicPointer(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    def __init__(self, topic_id: _Optional[str] = ...) -> None: ...

class ItemPage(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ...) -> None: ...

class UnitAssignment(_message.Message):
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

class LookupAnswer(_message.Message):
    __slots__ = ("topic", "broker_id", "broker_url", "broker_grpc", "epoch", "session_id", "topic_id", "shard_id", "position", "rejection_code", "message", "partitions", "retryable", "under_way", "is_former", "retry_after_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    BROKER_GRPC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REJECTION_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    IS_FORMER_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_id: str
    broker_url: str
    broker_grpc: str
    epoch: int
    session_id: str
    topic_id: str
    shard_id: int
    position: int
    rejection_code: str
    message: str
    partitions: int
    retryable: bool
    under_way: bool
    is_former: bool
    retry_after_ms: int
    def __init__(self, topic: _Optional[str] = ..., broker_id: _Optional[str] = ..., broker_url: _Optional[str] = ..., broker_grpc: _Optional[str] = ..., epoch: _Optional[int] = ..., session_id: _Optional[str] = ..., topic_id: _Optional[str] = ..., shard_id: _Optional[int] = ..., position: _Optional[int] = ..., rejection_code: _Optional[str] = ..., message: _Optional[str] = ..., partitions: _Optional[int] = ..., retryable: _Optional[bool] = ..., under_way: _Optional[bool] = ..., is_former: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
