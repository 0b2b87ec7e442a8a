from protos.nextgen.v1 import cluster_service_pb2 as _cluster_service_pb2
from protos.nextgen.v1 import errors_pb2 as _errors_pb2
from protos.nextgen.v1 import events_pb2 as _events_pb2
from protos.nextgen.v1 import inventory_pb2 as _inventory_pb2
from protos.nextgen.v1 import policies_pb2 as _policies_pb2
from protos.nextgen.v1 import shard_service_pb2 as _shard_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LookupRequest(_message.Message):
    __slots__ = ("request_id", "topics", "trace_id", "fresh", "min_epochs", "positions")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    MIN_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    trace_id: str
    fresh: bool
    min_epochs: _containers.RepeatedScalarFieldContainer[int]
    positions: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    def __init__(self, request_id: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., trace_id: _Optional[str] = ..., fresh: _Optional[bool] = ..., min_epochs: _Optional[_Iterable[int]] = ..., positions: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("answers", "request_id", "error", "shard_map_version", "fresh")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.LookupAnswer]
    request_id: int
    error: _errors_pb2.ErrorDetail
    shard_map_version: int
    fresh: bool
    def __init__(self, answers: _Optional[_Iterable[_Union[_inventory_pb2.LookupAnswer, _Mapping]]] = ..., request_id: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., shard_map_version: _Optional[int] = ..., fresh: _Optional[bool] = ...) -> None: ...

class GetPositionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPositionsResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("id", "version", "shard_id", "position", "shard_map_version")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    shard_id: int
    position: int
    shard_map_version: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., shard_id: _Optional[int] = ..., position: _Optional[int] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class CreateTenantRequest(_message.Message):
    __slots__ = ("command_id", "name", "properties", "issued", "consistency")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    properties: _containers.ScalarMap[str, str]
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("command_id", "name", "properties", "policies", "issued", "consistency")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    properties: _containers.ScalarMap[str, str]
    policies: _policies_pb2.Policies
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class SetPropertiesRequest(_message.Message):
    __slots__ = ("command_id", "name", "properties", "expected_version", "issued", "consistency")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    properties: _containers.ScalarMap[str, str]
    expected_version: int
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., expected_version: _Optional[int] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("command_id", "name", "force", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    force: bool
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., force: _Optional[bool] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class RenameTopicRequest(_message.Message):
    __slots__ = ("command_id", "name", "new_name", "grace_ms", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEW_NAME_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    new_name: str
    grace_ms: int
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., new_name: _Optional[str] = ..., grace_ms: _Optional[int] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class RenameParentRequest(_message.Message):
    __slots__ = ("name", "new_name", "grace_ms", "token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEW_NAME_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    new_name: str
    grace_ms: int
    token: str
    def __init__(self, name: _Optional[str] = ..., new_name: _Optional[str] = ..., grace_ms: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class RenameParentResponse(_message.Message):
    __slots__ = ("is_done", "renamed", "checked", "namespace", "next_token")
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    RENAMED_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    is_done: bool
    renamed: int
    checked: int
    namespace: str
    next_token: str
    def __init__(self, is_done: _Optional[bool] = ..., renamed: _Optional[int] = ..., checked: _Optional[int] = ..., namespace: _Optional[str] = ..., next_token: _Optional[str] = ...) -> None: ...

class UpdatePartitionsRequest(_message.Message):
    __slots__ = ("command_id", "name", "partitions", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    partitions: int
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class SetPoliciesRequest(_message.Message):
    __slots__ = ("command_id", "name", "policies", "expected_version", "expects_none", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPECTS_NONE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    policies: _policies_pb2.Policies
    expected_version: int
    expects_none: bool
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., expected_version: _Optional[int] = ..., expects_none: _Optional[bool] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class GetPoliciesRequest(_message.Message):
    __slots__ = ("name", "merged")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    merged: bool
    def __init__(self, name: _Optional[str] = ..., merged: _Optional[bool] = ...) -> None: ...

class GetPoliciesResponse(_message.Message):
    __slots__ = ("policies", "version", "merged", "shard_id", "position")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    policies: _policies_pb2.Policies
    version: int
    merged: _policies_pb2.Policies
    shard_id: int
    position: int
    def __init__(self, policies: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., version: _Optional[int] = ..., merged: _Optional[_Union[_policies_pb2.Policies, _Mapping]] = ..., shard_id: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class UnloadTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class UnloadTopicsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[_shard_service_pb2.UnassignOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[_shard_service_pb2.UnassignOutcome, _Mapping]]] = ...) -> None: ...

class UpdateLayoutRequest(_message.Message):
    __slots__ = ("command_id", "name", "kind", "segments", "buckets", "force", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    kind: str
    segments: _containers.RepeatedScalarFieldContainer[int]
    buckets: int
    force: bool
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., segments: _Optional[_Iterable[int]] = ..., buckets: _Optional[int] = ..., force: _Optional[bool] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class ScalableSubscriptionRequest(_message.Message):
    __slots__ = ("command_id", "name", "subscription", "type", "seek_to_ms", "skips_all", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SEEK_TO_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPS_ALL_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    name: str
    subscription: str
    type: str
    seek_to_ms: int
    skips_all: bool
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., name: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[str] = ..., seek_to_ms: _Optional[int] = ..., skips_all: _Optional[bool] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("command_id", "topics", "issued", "consistency")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    topics: _containers.RepeatedCompositeFieldContainer[_shard_service_pb2.TopicSpec]
    issued: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    consistency: _shard_service_pb2.Consistency
    def __init__(self, command_id: _Optional[bytes] = ..., topics: _Optional[_Iterable[_Union[_shard_service_pb2.TopicSpec, _Mapping]]] = ..., issued: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., consistency: _Optional[_Union[_shard_service_pb2.Consistency, str]] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("topics", "positions", "shard_map_version")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[_shard_service_pb2.TopicOutcome]
    positions: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    shard_map_version: int
    def __init__(self, topics: _Optional[_Iterable[_Union[_shard_service_pb2.TopicOutcome, _Mapping]]] = ..., positions: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class ShardPosition(_message.Message):
    __slots__ = ("shard_id", "position")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    position: int
    def __init__(self, shard_id: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class GetObjectRequest(_message.Message):
    __slots__ = ("name", "min_position")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_position: int
    def __init__(self, name: _Optional[str] = ..., min_position: _Optional[int] = ...) -> None: ...

class GetObjectResponse(_message.Message):
    __slots__ = ("item", "shard_id", "position")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    item: _inventory_pb2.Item
    shard_id: int
    position: int
    def __init__(self, item: _Optional[_Union[_inventory_pb2.Item, _Mapping]] = ..., shard_id: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class ListObjectsRequest(_message.Message):
    __slots__ = ("parent", "page_token", "page_size", "domain", "prefix", "names_only", "packed_names")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    PACKED_NAMES_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_token: str
    page_size: int
    domain: str
    prefix: str
    names_only: bool
    packed_names: bool
    def __init__(self, parent: _Optional[str] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ..., domain: _Optional[str] = ..., prefix: _Optional[str] = ..., names_only: _Optional[bool] = ..., packed_names: _Optional[bool] = ...) -> None: ...

class ListObjectsResponse(_message.Message):
    __slots__ = ("items", "next_page_token", "names", "partitions")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    next_page_token: str
    names: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class CountTopicsRequest(_message.Message):
    __slots__ = ("parent", "domain", "prefix")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    parent: str
    domain: str
    prefix: str
    def __init__(self, parent: _Optional[str] = ..., domain: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class CountTopicsResponse(_message.Message):
    __slots__ = ("topics", "units", "positions")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    topics: int
    units: int
    positions: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    def __init__(self, topics: _Optional[int] = ..., units: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ...) -> None: ...

class MoveTopicsRequest(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[_shard_service_pb2.TopicMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[_shard_service_pb2.TopicMove, _Mapping]]] = ...) -> None: ...

class MoveTopicsResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.LookupAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[_inventory_pb2.LookupAnswer, _Mapping]]] = ...) -> None: ...

class GetClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCountersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCountersResponse(_message.Message):
    __slots__ = ("counters",)
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    counters: _containers.ScalarMap[str, int]
    def __init__(self, counters: _Optional[_Mapping[str, int]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("prefix", "names", "without_snapshot", "pattern", "known_hash")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    names: _containers.RepeatedScalarFieldContainer[str]
    without_snapshot: bool
    pattern: str
    known_hash: str
    def __init__(self, prefix: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., without_snapshot: _Optional[bool] = ..., pattern: _Optional[str] = ..., known_hash: _Optional[str] = ..., **kwargs) -> None: ...

class TopicListUpdate(_message.Message):
    __slots__ = ("whole", "created", "deleted", "hash", "more")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    whole: bool
    created: _containers.RepeatedScalarFieldContainer[str]
    deleted: _containers.RepeatedScalarFieldContainer[str]
    hash: str
    more: bool
    def __init__(self, whole: _Optional[bool] = ..., created: _Optional[_Iterable[str]] = ..., deleted: _Optional[_Iterable[str]] = ..., hash: _Optional[str] = ..., more: _Optional[bool] = ...) -> None: ...

class WatchUpdate(_message.Message):
    __slots__ = ("events", "positions", "error", "shard_id", "reset", "items", "snapshot_complete", "shard_map", "leaders", "list")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_events_pb2.Event]
    positions: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    error: _errors_pb2.ErrorDetail
    shard_id: int
    reset: bool
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    snapshot_complete: bool
    shard_map: _events_pb2.ShardMapChanged
    leaders: _containers.RepeatedCompositeFieldContainer[_cluster_service_pb2.LeaderReport]
    list: TopicListUpdate
    def __init__(self, events: _Optional[_Iterable[_Union[_events_pb2.Event, _Mapping]]] = ..., positions: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., shard_id: _Optional[int] = ..., reset: _Optional[bool] = ..., items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ..., snapshot_complete: _Optional[bool] = ..., shard_map: _Optional[_Union[_events_pb2.ShardMapChanged, _Mapping]] = ..., leaders: _Optional[_Iterable[_Union[_cluster_service_pb2.LeaderReport, _Mapping]]] = ..., list: _Optional[_Union[TopicListUpdate, _Mapping]] = ...) -> None: ...
