from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicSegment(_message.Message):
    __slots__ = ("segment_id", "hash_start", "hash_end", "created_at_epoch", "created_at_ms", "parents", "children", "is_sealed", "sealed_at_epoch", "sealed_at_ms", "end", "bucket_starts", "merge_depth", "legacy_topic_name")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_START_FIELD_NUMBER: _ClassVar[int]
    HASH_END_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    IS_SEALED_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BUCKET_STARTS_FIELD_NUMBER: _ClassVar[int]
    MERGE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    LEGACY_TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    hash_start: int
    hash_end: int
    created_at_epoch: int
    created_at_ms: int
    parents: _containers.RepeatedScalarFieldContainer[int]
    children: _containers.RepeatedScalarFieldContainer[int]
    is_sealed: bool
    sealed_at_epoch: int
    sealed_at_ms: int
    end: SegmentEnd
    bucket_starts: _containers.RepeatedScalarFieldContainer[int]
    merge_depth: int
    legacy_topic_name: str
    def __init__(self, segment_id: _Optional[int] = ..., hash_start: _Optional[int] = ..., hash_end: _Optional[int] = ..., created_at_epoch: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., parents: _Optional[_Iterable[int]] = ..., children: _Optional[_Iterable[int]] = ..., is_sealed: _Optional[bool] = ..., sealed_at_epoch: _Optional[int] = ..., sealed_at_ms: _Optional[int] = ..., end: _Optional[_Union[SegmentEnd, _Mapping]] = ..., bucket_starts: _Optional[_Iterable[int]] = ..., merge_depth: _Optional[int] = ..., legacy_topic_name: _Optional[str] = ...) -> None: ...

class SegmentEnd(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class LayoutOperation(_message.Message):
    __slots__ = ("operation_id", "kind", "parents", "children", "asked_by", "planned_at_ms", "are_children_ready", "sealed")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    PLANNED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ARE_CHILDREN_READY_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    operation_id: int
    kind: str
    parents: _containers.RepeatedScalarFieldContainer[int]
    children: _containers.RepeatedCompositeFieldContainer[TopicSegment]
    asked_by: str
    planned_at_ms: int
    are_children_ready: bool
    sealed: _containers.RepeatedCompositeFieldContainer[SealedParent]
    def __init__(self, operation_id: _Optional[int] = ..., kind: _Optional[str] = ..., parents: _Optional[_Iterable[int]] = ..., children: _Optional[_Iterable[_Union[TopicSegment, _Mapping]]] = ..., asked_by: _Optional[str] = ..., planned_at_ms: _Optional[int] = ..., are_children_ready: _Optional[bool] = ..., sealed: _Optional[_Iterable[_Union[SealedParent, _Mapping]]] = ...) -> None: ...

class SealedParent(_message.Message):
    __slots__ = ("segment_id", "end")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    end: SegmentEnd
    def __init__(self, segment_id: _Optional[int] = ..., end: _Optional[_Union[SegmentEnd, _Mapping]] = ...) -> None: ...

class ScalableSubscription(_message.Message):
    __slots__ = ("name", "type", "phase", "created_at_ms", "consumers", "drained", "assigned", "seek_to_ms", "skips_all")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    SEEK_TO_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPS_ALL_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    phase: str
    created_at_ms: int
    consumers: _containers.RepeatedCompositeFieldContainer[ScalableConsumer]
    drained: _containers.RepeatedScalarFieldContainer[int]
    assigned: _containers.RepeatedCompositeFieldContainer[ConsumerSegments]
    seek_to_ms: int
    skips_all: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., phase: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., consumers: _Optional[_Iterable[_Union[ScalableConsumer, _Mapping]]] = ..., drained: _Optional[_Iterable[int]] = ..., assigned: _Optional[_Iterable[_Union[ConsumerSegments, _Mapping]]] = ..., seek_to_ms: _Optional[int] = ..., skips_all: _Optional[bool] = ...) -> None: ...

class ScalableConsumer(_message.Message):
    __slots__ = ("name", "takes_buckets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAKES_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    takes_buckets: bool
    def __init__(self, name: _Optional[str] = ..., takes_buckets: _Optional[bool] = ...) -> None: ...

class ConsumerSegments(_message.Message):
    __slots__ = ("consumer_name", "segments", "shared")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    segments: _containers.RepeatedScalarFieldContainer[int]
    shared: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, consumer_name: _Optional[str] = ..., segments: _Optional[_Iterable[int]] = ..., shared: _Optional[_Iterable[int]] = ...) -> None: ...

class SegmentRates(_message.Message):
    __slots__ = ("messages_in", "messages_out", "bytes_in", "bytes_out")
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float
    def __init__(self, messages_in: _Optional[float] = ..., messages_out: _Optional[float] = ..., bytes_in: _Optional[float] = ..., bytes_out: _Optional[float] = ...) -> None: ...

class SegmentLoad(_message.Message):
    __slots__ = ("segment_id", "rates", "recorded_at_ms", "cold_since_ms")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    RECORDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    COLD_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    rates: SegmentRates
    recorded_at_ms: int
    cold_since_ms: int
    def __init__(self, segment_id: _Optional[int] = ..., rates: _Optional[_Union[SegmentRates, _Mapping]] = ..., recorded_at_ms: _Optional[int] = ..., cold_since_ms: _Optional[int] = ...) -> None: ...

class TopicLoads(_message.Message):
    __slots__ = ("topic_id", "loads", "clocks")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    loads: _containers.RepeatedCompositeFieldContainer[SegmentLoad]
    clocks: ScaleClocks
    def __init__(self, topic_id: _Optional[str] = ..., loads: _Optional[_Iterable[_Union[SegmentLoad, _Mapping]]] = ..., clocks: _Optional[_Union[ScaleClocks, _Mapping]] = ...) -> None: ...

class ScaleClocks(_message.Message):
    __slots__ = ("split_at_ms", "merge_at_ms", "rebucket_at_ms")
    SPLIT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MERGE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REBUCKET_AT_MS_FIELD_NUMBER: _ClassVar[int]
    split_at_ms: int
    merge_at_ms: int
    rebucket_at_ms: int
    def __init__(self, split_at_ms: _Optional[int] = ..., merge_at_ms: _Optional[int] = ..., rebucket_at_ms: _Optional[int] = ...) -> None: ...

class GroupSizes(_message.Message):
    __slots__ = ("consumers", "sharing")
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    consumers: int
    sharing: int
    def __init__(self, consumers: _Optional[int] = ..., sharing: _Optional[int] = ...) -> None: ...

class ScalableTopic(_message.Message):
    __slots__ = ("topic_id", "name", "epoch", "next_segment_id", "version", "segments", "operation", "last_operation_id", "removals", "subscriptions", "postponed", "sealed_bytes")
    class PostponedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class SealedBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    LAST_OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    POSTPONED_FIELD_NUMBER: _ClassVar[int]
    SEALED_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    name: str
    epoch: int
    next_segment_id: int
    version: int
    segments: _containers.RepeatedCompositeFieldContainer[TopicSegment]
    operation: LayoutOperation
    last_operation_id: int
    removals: _containers.RepeatedCompositeFieldContainer[TopicSegment]
    subscriptions: _containers.RepeatedCompositeFieldContainer[ScalableSubscription]
    postponed: _containers.ScalarMap[int, int]
    sealed_bytes: _containers.ScalarMap[int, int]
    def __init__(self, topic_id: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., next_segment_id: _Optional[int] = ..., version: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[TopicSegment, _Mapping]]] = ..., operation: _Optional[_Union[LayoutOperation, _Mapping]] = ..., last_operation_id: _Optional[int] = ..., removals: _Optional[_Iterable[_Union[TopicSegment, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[ScalableSubscription, _Mapping]]] = ..., postponed: _Optional[_Mapping[int, int]] = ..., sealed_bytes: _Optional[_Mapping[int, int]] = ...) -> None: ...
