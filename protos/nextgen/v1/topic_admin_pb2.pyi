from protos.nextgen.v1 import broker_service_pb2 as _broker_service_pb2
from protos.nextgen.v1 import policies_pb2 as _policies_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdminUnit(_message.Message):
    __slots__ = ("topic_id", "unit", "epoch", "name")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    epoch: int
    name: str
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., epoch: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class TopicPlace(_message.Message):
    __slots__ = ("earliest", "latest", "position", "publish_time_ms", "is_excluded")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    IS_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    earliest: Earliest
    latest: Latest
    position: _broker_service_pb2.MessagePosition
    publish_time_ms: int
    is_excluded: bool
    def __init__(self, earliest: _Optional[_Union[Earliest, _Mapping]] = ..., latest: _Optional[_Union[Latest, _Mapping]] = ..., position: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., publish_time_ms: _Optional[int] = ..., is_excluded: _Optional[bool] = ...) -> None: ...

class Earliest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Latest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class GetInternalStatsRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class TopicInternalStats(_message.Message):
    __slots__ = ("entries_added", "entries", "bytes", "pending_entries", "last", "is_terminated", "ledgers", "cursors", "schema_versions", "retention")
    ENTRIES_ADDED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PENDING_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    IS_TERMINATED_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    entries_added: int
    entries: int
    bytes: int
    pending_entries: int
    last: _broker_service_pb2.MessagePosition
    is_terminated: bool
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerExtent]
    cursors: _containers.RepeatedCompositeFieldContainer[CursorStats]
    schema_versions: int
    retention: StoredRetention
    def __init__(self, entries_added: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., pending_entries: _Optional[int] = ..., last: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., is_terminated: _Optional[bool] = ..., ledgers: _Optional[_Iterable[_Union[LedgerExtent, _Mapping]]] = ..., cursors: _Optional[_Iterable[_Union[CursorStats, _Mapping]]] = ..., schema_versions: _Optional[int] = ..., retention: _Optional[_Union[StoredRetention, _Mapping]] = ...) -> None: ...

class StoredRetention(_message.Message):
    __slots__ = ("time_ms", "size_bytes")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    size_bytes: int
    def __init__(self, time_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class LedgerExtent(_message.Message):
    __slots__ = ("ledger_id", "entries", "bytes")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entries: int
    bytes: int
    def __init__(self, ledger_id: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class CursorStats(_message.Message):
    __slots__ = ("subscription", "mark_delete", "read", "acked_entries", "acked_ranges", "backlog_entries", "acked", "messages_out", "properties", "is_active")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    ACKED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ACKED_RANGES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    mark_delete: _broker_service_pb2.MessagePosition
    read: _broker_service_pb2.MessagePosition
    acked_entries: int
    acked_ranges: int
    backlog_entries: int
    acked: _containers.RepeatedCompositeFieldContainer[EntryRange]
    messages_out: int
    properties: _containers.ScalarMap[str, str]
    is_active: bool
    def __init__(self, subscription: _Optional[str] = ..., mark_delete: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., read: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., acked_entries: _Optional[int] = ..., acked_ranges: _Optional[int] = ..., backlog_entries: _Optional[int] = ..., acked: _Optional[_Iterable[_Union[EntryRange, _Mapping]]] = ..., messages_out: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., is_active: _Optional[bool] = ...) -> None: ...

class EntryRange(_message.Message):
    __slots__ = ("ledger_id", "first_entry", "last_entry")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry: int
    last_entry: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ...) -> None: ...

class CreateSubscriptionRequest(_message.Message):
    __slots__ = ("unit", "subscription", "start", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    start: TopicPlace
    properties: _containers.ScalarMap[str, str]
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., start: _Optional[_Union[TopicPlace, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ("unit", "subscription", "is_forced")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_FORCED_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    is_forced: bool
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., is_forced: _Optional[bool] = ...) -> None: ...

class DeleteSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateSubscriptionRequest(_message.Message):
    __slots__ = ("unit", "subscription", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SkipMessagesRequest(_message.Message):
    __slots__ = ("unit", "subscription", "entries", "is_all")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    IS_ALL_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    entries: int
    is_all: bool
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., entries: _Optional[int] = ..., is_all: _Optional[bool] = ...) -> None: ...

class SkipMessagesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetCursorRequest(_message.Message):
    __slots__ = ("unit", "subscription", "place")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    place: TopicPlace
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., place: _Optional[_Union[TopicPlace, _Mapping]] = ...) -> None: ...

class ResetCursorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExpireMessagesRequest(_message.Message):
    __slots__ = ("unit", "subscription", "older_than_s", "up_to", "is_excluded")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_S_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    IS_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    older_than_s: int
    up_to: _broker_service_pb2.MessagePosition
    is_excluded: bool
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., older_than_s: _Optional[int] = ..., up_to: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., is_excluded: _Optional[bool] = ...) -> None: ...

class ExpireMessagesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeekMessageRequest(_message.Message):
    __slots__ = ("unit", "subscription", "number")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    number: int
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("unit", "position", "offset")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    position: _broker_service_pb2.MessagePosition
    offset: int
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., position: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class ExamineMessageRequest(_message.Message):
    __slots__ = ("unit", "from_latest", "number")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    FROM_LATEST_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    from_latest: bool
    number: int
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., from_latest: _Optional[bool] = ..., number: _Optional[int] = ...) -> None: ...

class StoredEntry(_message.Message):
    __slots__ = ("position", "payload", "publish_time_ms", "message_count", "payload_bytes")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    position: _broker_service_pb2.MessagePosition
    payload: bytes
    publish_time_ms: int
    message_count: int
    payload_bytes: int
    def __init__(self, position: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., payload: _Optional[bytes] = ..., publish_time_ms: _Optional[int] = ..., message_count: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class GetLastMessageIdRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class TerminateRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class LastMessageId(_message.Message):
    __slots__ = ("position", "batch_index", "stored_bytes", "subscriptions")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    position: _broker_service_pb2.MessagePosition
    batch_index: int
    stored_bytes: int
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, position: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., batch_index: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., subscriptions: _Optional[_Iterable[str]] = ...) -> None: ...

class TruncateRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class TruncateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrimRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class TrimResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FindByTimeRequest(_message.Message):
    __slots__ = ("unit", "publish_time_ms")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    publish_time_ms: int
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., publish_time_ms: _Optional[int] = ...) -> None: ...

class FoundPosition(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: _broker_service_pb2.MessagePosition
    def __init__(self, position: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ...) -> None: ...

class AnalyzeBacklogRequest(_message.Message):
    __slots__ = ("unit", "subscription", "start")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    subscription: str
    start: _broker_service_pb2.MessagePosition
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., subscription: _Optional[str] = ..., start: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ...) -> None: ...

class BacklogAnalysis(_message.Message):
    __slots__ = ("entries", "messages", "is_aborted", "first", "last")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IS_ABORTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    entries: int
    messages: int
    is_aborted: bool
    first: _broker_service_pb2.MessagePosition
    last: _broker_service_pb2.MessagePosition
    def __init__(self, entries: _Optional[int] = ..., messages: _Optional[int] = ..., is_aborted: _Optional[bool] = ..., first: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ..., last: _Optional[_Union[_broker_service_pb2.MessagePosition, _Mapping]] = ...) -> None: ...

class EndUnitRequest(_message.Message):
    __slots__ = ("unit", "is_forced", "is_check_only")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    IS_FORCED_FIELD_NUMBER: _ClassVar[int]
    IS_CHECK_ONLY_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    is_forced: bool
    is_check_only: bool
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., is_forced: _Optional[bool] = ..., is_check_only: _Optional[bool] = ...) -> None: ...

class EndUnitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveUnitRequest(_message.Message):
    __slots__ = ("unit",)
    UNIT_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ...) -> None: ...

class RemoveUnitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicSchema(_message.Message):
    __slots__ = ("name", "kind", "data", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: int
    data: bytes
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[int] = ..., data: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SchemaVersion(_message.Message):
    __slots__ = ("version", "schema")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    version: int
    schema: TopicSchema
    def __init__(self, version: _Optional[int] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ...) -> None: ...

class ListSchemasRequest(_message.Message):
    __slots__ = ("unit", "first_version")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_VERSION_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    first_version: int
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., first_version: _Optional[int] = ...) -> None: ...

class ListSchemasResponse(_message.Message):
    __slots__ = ("versions", "has_more")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[SchemaVersion]
    has_more: bool
    def __init__(self, versions: _Optional[_Iterable[_Union[SchemaVersion, _Mapping]]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class CheckSchemaRequest(_message.Message):
    __slots__ = ("unit", "schema", "is_find_only")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    IS_FIND_ONLY_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    schema: TopicSchema
    is_find_only: bool
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ..., is_find_only: _Optional[bool] = ...) -> None: ...

class CheckSchemaResponse(_message.Message):
    __slots__ = ("version", "is_compatible", "obstacle", "strategy")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_COMPATIBLE_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    version: int
    is_compatible: bool
    obstacle: str
    strategy: _policies_pb2.SchemaCompatibility
    def __init__(self, version: _Optional[int] = ..., is_compatible: _Optional[bool] = ..., obstacle: _Optional[str] = ..., strategy: _Optional[_Union[_policies_pb2.SchemaCompatibility, str]] = ...) -> None: ...

class AddSchemaRequest(_message.Message):
    __slots__ = ("unit", "schema")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    schema: TopicSchema
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ...) -> None: ...

class AddSchemaResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DeleteSchemaRequest(_message.Message):
    __slots__ = ("unit", "is_forced")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    IS_FORCED_FIELD_NUMBER: _ClassVar[int]
    unit: AdminUnit
    is_forced: bool
    def __init__(self, unit: _Optional[_Union[AdminUnit, _Mapping]] = ..., is_forced: _Optional[bool] = ...) -> None: ...

class DeleteSchemaResponse(_message.Message):
    __slots__ = ("next_version",)
    NEXT_VERSION_FIELD_NUMBER: _ClassVar[int]
    next_version: int
    def __init__(self, next_version: _Optional[int] = ...) -> None: ...
