from protos.nextgen.v1 import layouts_pb2 as _layouts_pb2
from protos.nextgen.v1 import errors_pb2 as _errors_pb2
from protos.nextgen.v1 import events_pb2 as _events_pb2
from protos.nextgen.v1 import inventory_pb2 as _inventory_pb2
from protos.nextgen.v1 import shard_service_pb2 as _shard_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerMessage(_message.Message):
    __slots__ = ("hello", "heartbeat", "sync", "goodbye", "held", "idle", "drain", "drained", "loads")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    hello: BrokerHello
    heartbeat: BrokerHeartbeat
    sync: SyncPosition
    goodbye: BrokerGoodbye
    held: HeldMetadata
    idle: IdleUnits
    drain: DrainWish
    drained: DrainedUnits
    loads: SegmentLoadReports
    def __init__(self, hello: _Optional[_Union[BrokerHello, _Mapping]] = ..., heartbeat: _Optional[_Union[BrokerHeartbeat, _Mapping]] = ..., sync: _Optional[_Union[SyncPosition, _Mapping]] = ..., goodbye: _Optional[_Union[BrokerGoodbye, _Mapping]] = ..., held: _Optional[_Union[HeldMetadata, _Mapping]] = ..., idle: _Optional[_Union[IdleUnits, _Mapping]] = ..., drain: _Optional[_Union[DrainWish, _Mapping]] = ..., drained: _Optional[_Union[DrainedUnits, _Mapping]] = ..., loads: _Optional[_Union[SegmentLoadReports, _Mapping]] = ...) -> None: ...

class BrokerHello(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "session_id", "last_sequence", "endpoints", "capacity_units", "zone", "rack", "units_held", "skips_unknown", "kind")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    UNITS_HELD_FIELD_NUMBER: _ClassVar[int]
    SKIPS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: str
    session_id: str
    last_sequence: int
    endpoints: _events_pb2.BrokerEndpoints
    capacity_units: int
    zone: str
    rack: str
    units_held: int
    skips_unknown: bool
    kind: str
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., last_sequence: _Optional[int] = ..., endpoints: _Optional[_Union[_events_pb2.BrokerEndpoints, _Mapping]] = ..., capacity_units: _Optional[int] = ..., zone: _Optional[str] = ..., rack: _Optional[str] = ..., units_held: _Optional[int] = ..., skips_unknown: _Optional[bool] = ..., kind: _Optional[str] = ...) -> None: ...

class BrokerHeartbeat(_message.Message):
    __slots__ = ("sent_at_ms", "load")
    SENT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    sent_at_ms: int
    load: _events_pb2.LoadReport
    def __init__(self, sent_at_ms: _Optional[int] = ..., load: _Optional[_Union[_events_pb2.LoadReport, _Mapping]] = ...) -> None: ...

class IdleUnits(_message.Message):
    __slots__ = ("units",)
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[IdleUnit]
    def __init__(self, units: _Optional[_Iterable[_Union[IdleUnit, _Mapping]]] = ...) -> None: ...

class IdleUnit(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class DrainedUnits(_message.Message):
    __slots__ = ("units",)
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[DrainedUnit]
    def __init__(self, units: _Optional[_Iterable[_Union[DrainedUnit, _Mapping]]] = ...) -> None: ...

class DrainedUnit(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch", "subscription")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    subscription: str
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., subscription: _Optional[str] = ...) -> None: ...

class SegmentLoadReports(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentLoadReport]
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentLoadReport, _Mapping]]] = ...) -> None: ...

class SegmentLoadReport(_message.Message):
    __slots__ = ("topic_id", "unit", "name", "epoch", "rates")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    unit: str
    name: str
    epoch: int
    rates: _layouts_pb2.SegmentRates
    def __init__(self, topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., rates: _Optional[_Union[_layouts_pb2.SegmentRates, _Mapping]] = ...) -> None: ...

class DrainWish(_message.Message):
    __slots__ = ("units_per_second",)
    UNITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    units_per_second: int
    def __init__(self, units_per_second: _Optional[int] = ...) -> None: ...

class SyncPosition(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class BrokerGoodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeldMetadata(_message.Message):
    __slots__ = ("objects", "complete")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[HeldObject]
    complete: bool
    def __init__(self, objects: _Optional[_Iterable[_Union[HeldObject, _Mapping]]] = ..., complete: _Optional[bool] = ...) -> None: ...

class HeldObject(_message.Message):
    __slots__ = ("kind", "name", "id", "version", "units")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    kind: _inventory_pb2.Kind
    name: str
    id: str
    version: int
    units: _containers.RepeatedCompositeFieldContainer[HeldUnit]
    def __init__(self, kind: _Optional[_Union[_inventory_pb2.Kind, str]] = ..., name: _Optional[str] = ..., id: _Optional[str] = ..., version: _Optional[int] = ..., units: _Optional[_Iterable[_Union[HeldUnit, _Mapping]]] = ...) -> None: ...

class HeldUnit(_message.Message):
    __slots__ = ("unit", "epoch")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    unit: str
    epoch: int
    def __init__(self, unit: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ManagerMessage(_message.Message):
    __slots__ = ("established", "error", "deliveries", "heartbeat_ack", "drained_settled", "loads_recorded")
    ESTABLISHED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_ACK_FIELD_NUMBER: _ClassVar[int]
    DRAINED_SETTLED_FIELD_NUMBER: _ClassVar[int]
    LOADS_RECORDED_FIELD_NUMBER: _ClassVar[int]
    established: SessionEstablished
    error: _errors_pb2.ErrorDetail
    deliveries: Deliveries
    heartbeat_ack: HeartbeatAck
    drained_settled: DrainedUnits
    loads_recorded: SegmentLoadReports
    def __init__(self, established: _Optional[_Union[SessionEstablished, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., heartbeat_ack: _Optional[_Union[HeartbeatAck, _Mapping]] = ..., drained_settled: _Optional[_Union[DrainedUnits, _Mapping]] = ..., loads_recorded: _Optional[_Union[SegmentLoadReports, _Mapping]] = ...) -> None: ...

class SessionEstablished(_message.Message):
    __slots__ = ("session_id", "epoch", "resumed", "session_ttl_ms", "heartbeat_ms", "next_sequence", "report_held", "takes_drained", "takes_loads")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    SESSION_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REPORT_HELD_FIELD_NUMBER: _ClassVar[int]
    TAKES_DRAINED_FIELD_NUMBER: _ClassVar[int]
    TAKES_LOADS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    epoch: int
    resumed: bool
    session_ttl_ms: int
    heartbeat_ms: int
    next_sequence: int
    report_held: bool
    takes_drained: bool
    takes_loads: bool
    def __init__(self, session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., resumed: _Optional[bool] = ..., session_ttl_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., next_sequence: _Optional[int] = ..., report_held: _Optional[bool] = ..., takes_drained: _Optional[bool] = ..., takes_loads: _Optional[bool] = ...) -> None: ...

class HeartbeatAck(_message.Message):
    __slots__ = ("sent_at_ms", "load_refused")
    SENT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_REFUSED_FIELD_NUMBER: _ClassVar[int]
    sent_at_ms: int
    load_refused: str
    def __init__(self, sent_at_ms: _Optional[int] = ..., load_refused: _Optional[str] = ...) -> None: ...

class Deliveries(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("sequence", "tenant", "namespace", "assign", "release", "topic", "removed", "prepare", "moving", "trace_id")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    tenant: _inventory_pb2.Tenant
    namespace: _inventory_pb2.Namespace
    assign: _shard_service_pb2.TopicAssignment
    release: _shard_service_pb2.TopicRelease
    topic: _inventory_pb2.Topic
    removed: MetadataRemoved
    prepare: _shard_service_pb2.TopicAssignment
    moving: _shard_service_pb2.TopicRelease
    trace_id: str
    def __init__(self, sequence: _Optional[int] = ..., tenant: _Optional[_Union[_inventory_pb2.Tenant, _Mapping]] = ..., namespace: _Optional[_Union[_inventory_pb2.Namespace, _Mapping]] = ..., assign: _Optional[_Union[_shard_service_pb2.TopicAssignment, _Mapping]] = ..., release: _Optional[_Union[_shard_service_pb2.TopicRelease, _Mapping]] = ..., topic: _Optional[_Union[_inventory_pb2.Topic, _Mapping]] = ..., removed: _Optional[_Union[MetadataRemoved, _Mapping]] = ..., prepare: _Optional[_Union[_shard_service_pb2.TopicAssignment, _Mapping]] = ..., moving: _Optional[_Union[_shard_service_pb2.TopicRelease, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class MetadataRemoved(_message.Message):
    __slots__ = ("kind", "name", "id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    kind: _inventory_pb2.Kind
    name: str
    id: str
    def __init__(self, kind: _Optional[_Union[_inventory_pb2.Kind, str]] = ..., name: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class SourceRequests(_message.Message):
    __slots__ = ("broker_id", "requests")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    requests: _containers.RepeatedCompositeFieldContainer[SourceRequest]
    def __init__(self, broker_id: _Optional[str] = ..., requests: _Optional[_Iterable[_Union[SourceRequest, _Mapping]]] = ...) -> None: ...

class SourceRequest(_message.Message):
    __slots__ = ("feed_id", "follow", "unfollow", "report", "credit_bytes")
    FEED_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    UNFOLLOW_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    feed_id: int
    follow: FollowSource
    unfollow: str
    report: ShadowReport
    credit_bytes: int
    def __init__(self, feed_id: _Optional[int] = ..., follow: _Optional[_Union[FollowSource, _Mapping]] = ..., unfollow: _Optional[str] = ..., report: _Optional[_Union[ShadowReport, _Mapping]] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class FollowSource(_message.Message):
    __slots__ = ("source", "shadow")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    source: str
    shadow: str
    def __init__(self, source: _Optional[str] = ..., shadow: _Optional[str] = ...) -> None: ...

class ShadowReport(_message.Message):
    __slots__ = ("shadow", "acknowledged")
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    shadow: str
    acknowledged: MessagePosition
    def __init__(self, shadow: _Optional[str] = ..., acknowledged: _Optional[_Union[MessagePosition, _Mapping]] = ...) -> None: ...

class SourceUpdates(_message.Message):
    __slots__ = ("updates",)
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[SourceUpdate]
    def __init__(self, updates: _Optional[_Iterable[_Union[SourceUpdate, _Mapping]]] = ...) -> None: ...

class SourceUpdate(_message.Message):
    __slots__ = ("feed_id", "more", "fed", "changed", "left")
    FEED_ID_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    FED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    feed_id: int
    more: bool
    fed: SourceFed
    changed: SourceChanged
    left: SourceLeft
    def __init__(self, feed_id: _Optional[int] = ..., more: _Optional[bool] = ..., fed: _Optional[_Union[SourceFed, _Mapping]] = ..., changed: _Optional[_Union[SourceChanged, _Mapping]] = ..., left: _Optional[_Union[SourceLeft, _Mapping]] = ...) -> None: ...

class SourceFed(_message.Message):
    __slots__ = ("shadows", "topic_id", "unit", "epoch", "extents", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    shadows: _containers.RepeatedScalarFieldContainer[str]
    topic_id: str
    unit: str
    epoch: int
    extents: _containers.RepeatedCompositeFieldContainer[SourceExtent]
    facts: _containers.ScalarMap[str, bytes]
    def __init__(self, shadows: _Optional[_Iterable[str]] = ..., topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., epoch: _Optional[int] = ..., extents: _Optional[_Iterable[_Union[SourceExtent, _Mapping]]] = ..., facts: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class SourceChanged(_message.Message):
    __slots__ = ("first_ledger_id", "extents", "entries", "facts_changed", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    FIRST_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FACTS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    first_ledger_id: int
    extents: _containers.RepeatedCompositeFieldContainer[SourceExtent]
    entries: _containers.RepeatedCompositeFieldContainer[SourceEntry]
    facts_changed: bool
    facts: _containers.ScalarMap[str, bytes]
    def __init__(self, first_ledger_id: _Optional[int] = ..., extents: _Optional[_Iterable[_Union[SourceExtent, _Mapping]]] = ..., entries: _Optional[_Iterable[_Union[SourceEntry, _Mapping]]] = ..., facts_changed: _Optional[bool] = ..., facts: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class SourceLeft(_message.Message):
    __slots__ = ("shadows", "reason", "message")
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    shadows: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    message: str
    def __init__(self, shadows: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class SourceExtent(_message.Message):
    __slots__ = ("ledger_id", "entries", "bytes", "first_time_ms", "last_time_ms")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entries: int
    bytes: int
    first_time_ms: int
    last_time_ms: int
    def __init__(self, ledger_id: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., first_time_ms: _Optional[int] = ..., last_time_ms: _Optional[int] = ...) -> None: ...

class SourceEntry(_message.Message):
    __slots__ = ("position", "payload", "message_count", "publish_time_ms", "producer_name", "sequence_id")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    position: MessagePosition
    payload: bytes
    message_count: int
    publish_time_ms: int
    producer_name: str
    sequence_id: int
    def __init__(self, position: _Optional[_Union[MessagePosition, _Mapping]] = ..., payload: _Optional[bytes] = ..., message_count: _Optional[int] = ..., publish_time_ms: _Optional[int] = ..., producer_name: _Optional[str] = ..., sequence_id: _Optional[int] = ...) -> None: ...

class ListHeldNamespacesRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: str
    def __init__(self, after: _Optional[str] = ...) -> None: ...

class ListHeldNamespacesResponse(_message.Message):
    __slots__ = ("names", "more")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    more: bool
    def __init__(self, names: _Optional[_Iterable[str]] = ..., more: _Optional[bool] = ...) -> None: ...

class WatchAcknowledgementsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AcknowledgementReport(_message.Message):
    __slots__ = ("broker_id", "session_id", "intervals", "sent_at_ns")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_NS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    intervals: _containers.RepeatedCompositeFieldContainer[AcknowledgementInterval]
    sent_at_ns: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., intervals: _Optional[_Iterable[_Union[AcknowledgementInterval, _Mapping]]] = ..., sent_at_ns: _Optional[int] = ...) -> None: ...

class AcknowledgementInterval(_message.Message):
    __slots__ = ("topic", "topic_id", "unit", "epoch", "first_acked_at_ns", "last_acked_at_ns", "acknowledged")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_ACKED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_ACKED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    unit: str
    epoch: int
    first_acked_at_ns: int
    last_acked_at_ns: int
    acknowledged: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., unit: _Optional[str] = ..., epoch: _Optional[int] = ..., first_acked_at_ns: _Optional[int] = ..., last_acked_at_ns: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class ServesRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ServesResponse(_message.Message):
    __slots__ = ("answers", "broker_id", "session_id")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[Serving]
    broker_id: str
    session_id: str
    def __init__(self, answers: _Optional[_Iterable[_Union[Serving, _Mapping]]] = ..., broker_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class Serving(_message.Message):
    __slots__ = ("topic", "serves", "epoch", "topic_id", "new_broker_id", "new_epoch", "has_metadata", "new_broker_grpc")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SERVES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HAS_METADATA_FIELD_NUMBER: _ClassVar[int]
    NEW_BROKER_GRPC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    serves: bool
    epoch: int
    topic_id: str
    new_broker_id: str
    new_epoch: int
    has_metadata: bool
    new_broker_grpc: str
    def __init__(self, topic: _Optional[str] = ..., serves: _Optional[bool] = ..., epoch: _Optional[int] = ..., topic_id: _Optional[str] = ..., new_broker_id: _Optional[str] = ..., new_epoch: _Optional[int] = ..., has_metadata: _Optional[bool] = ..., new_broker_grpc: _Optional[str] = ...) -> None: ...

class GetBrokerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerStatus(_message.Message):
    __slots__ = ("broker_id", "session_id", "epoch", "applied_sequence", "topics", "namespaces", "tenants", "capacity_units", "counters")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    epoch: int
    applied_sequence: int
    topics: int
    namespaces: int
    tenants: int
    capacity_units: int
    counters: _containers.ScalarMap[str, int]
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., applied_sequence: _Optional[int] = ..., topics: _Optional[int] = ..., namespaces: _Optional[int] = ..., tenants: _Optional[int] = ..., capacity_units: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ...) -> None: ...

class GetMetadataRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[_shard_service_pb2.ObjectName]
    def __init__(self, names: _Optional[_Iterable[_Union[_shard_service_pb2.ObjectName, _Mapping]]] = ...) -> None: ...

class GetMetadataResponse(_message.Message):
    __slots__ = ("items", "broker_id", "session_id", "applied_sequence")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_inventory_pb2.Item]
    broker_id: str
    session_id: str
    applied_sequence: int
    def __init__(self, items: _Optional[_Iterable[_Union[_inventory_pb2.Item, _Mapping]]] = ..., broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., applied_sequence: _Optional[int] = ...) -> None: ...

class GetSchemaRequest(_message.Message):
    __slots__ = ("topic", "version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    version: bytes
    def __init__(self, topic: _Optional[str] = ..., version: _Optional[bytes] = ...) -> None: ...

class GetSchemaResponse(_message.Message):
    __slots__ = ("found", "version", "name", "kind", "data", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FOUND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    found: bool
    version: bytes
    name: str
    kind: int
    data: bytes
    properties: _containers.ScalarMap[str, str]
    def __init__(self, found: _Optional[bool] = ..., version: _Optional[bytes] = ..., name: _Optional[str] = ..., kind: _Optional[int] = ..., data: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetTopicStatsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class GetTopicStatsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicStats]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicStats, _Mapping]]] = ...) -> None: ...

class MessagePosition(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class TopicStats(_message.Message):
    __slots__ = ("topic", "epoch", "producers", "entries", "bytes", "first", "last", "messages_in", "messages_out", "bytes_in", "bytes_out", "subscriptions", "is_fenced", "error", "schema_versions", "backlog_bytes", "is_terminated", "rates_in", "rates_out", "publishers", "deduplicates", "last_publish_time_ms", "classic_clients", "shadow", "feeds")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_TERMINATED_FIELD_NUMBER: _ClassVar[int]
    RATES_IN_FIELD_NUMBER: _ClassVar[int]
    RATES_OUT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATES_FIELD_NUMBER: _ClassVar[int]
    LAST_PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CLASSIC_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    FEEDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    epoch: int
    producers: int
    entries: int
    bytes: int
    first: MessagePosition
    last: MessagePosition
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionStats]
    is_fenced: bool
    error: str
    schema_versions: int
    backlog_bytes: int
    is_terminated: bool
    rates_in: TrafficRates
    rates_out: TrafficRates
    publishers: _containers.RepeatedCompositeFieldContainer[ProducerStats]
    deduplicates: bool
    last_publish_time_ms: int
    classic_clients: int
    shadow: ShadowStats
    feeds: _containers.RepeatedCompositeFieldContainer[ShadowFeedStats]
    def __init__(self, topic: _Optional[str] = ..., epoch: _Optional[int] = ..., producers: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., first: _Optional[_Union[MessagePosition, _Mapping]] = ..., last: _Optional[_Union[MessagePosition, _Mapping]] = ..., messages_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionStats, _Mapping]]] = ..., is_fenced: _Optional[bool] = ..., error: _Optional[str] = ..., schema_versions: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., is_terminated: _Optional[bool] = ..., rates_in: _Optional[_Union[TrafficRates, _Mapping]] = ..., rates_out: _Optional[_Union[TrafficRates, _Mapping]] = ..., publishers: _Optional[_Iterable[_Union[ProducerStats, _Mapping]]] = ..., deduplicates: _Optional[bool] = ..., last_publish_time_ms: _Optional[int] = ..., classic_clients: _Optional[int] = ..., shadow: _Optional[_Union[ShadowStats, _Mapping]] = ..., feeds: _Optional[_Iterable[_Union[ShadowFeedStats, _Mapping]]] = ...) -> None: ...

class ShadowStats(_message.Message):
    __slots__ = ("source", "away", "skipped_entries")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    source: str
    away: str
    skipped_entries: int
    def __init__(self, source: _Optional[str] = ..., away: _Optional[str] = ..., skipped_entries: _Optional[int] = ...) -> None: ...

class ShadowFeedStats(_message.Message):
    __slots__ = ("shadow", "broker_id", "connected_since_ms", "entries_out", "bytes_out", "backlog_entries")
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    shadow: str
    broker_id: str
    connected_since_ms: int
    entries_out: int
    bytes_out: int
    backlog_entries: int
    def __init__(self, shadow: _Optional[str] = ..., broker_id: _Optional[str] = ..., connected_since_ms: _Optional[int] = ..., entries_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., backlog_entries: _Optional[int] = ...) -> None: ...

class TrafficRates(_message.Message):
    __slots__ = ("messages_per_s", "bytes_per_s")
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    messages_per_s: float
    bytes_per_s: float
    def __init__(self, messages_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ...) -> None: ...

class ClientStats(_message.Message):
    __slots__ = ("address", "client_version", "connected_since_ms")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    address: str
    client_version: str
    connected_since_ms: int
    def __init__(self, address: _Optional[str] = ..., client_version: _Optional[str] = ..., connected_since_ms: _Optional[int] = ...) -> None: ...

class ProducerStats(_message.Message):
    __slots__ = ("producer_id", "name", "access_mode", "client", "rates_in", "messages_in", "bytes_in")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    RATES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    name: str
    access_mode: str
    client: ClientStats
    rates_in: TrafficRates
    messages_in: int
    bytes_in: int
    def __init__(self, producer_id: _Optional[int] = ..., name: _Optional[str] = ..., access_mode: _Optional[str] = ..., client: _Optional[_Union[ClientStats, _Mapping]] = ..., rates_in: _Optional[_Union[TrafficRates, _Mapping]] = ..., messages_in: _Optional[int] = ..., bytes_in: _Optional[int] = ...) -> None: ...

class ConsumerStats(_message.Message):
    __slots__ = ("consumer_id", "name", "client", "rates_out", "messages_out", "bytes_out", "available_permits", "unacked_messages", "is_blocked_on_unacked")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    RATES_OUT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_PERMITS_FIELD_NUMBER: _ClassVar[int]
    UNACKED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IS_BLOCKED_ON_UNACKED_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    name: str
    client: ClientStats
    rates_out: TrafficRates
    messages_out: int
    bytes_out: int
    available_permits: int
    unacked_messages: int
    is_blocked_on_unacked: bool
    def __init__(self, consumer_id: _Optional[int] = ..., name: _Optional[str] = ..., client: _Optional[_Union[ClientStats, _Mapping]] = ..., rates_out: _Optional[_Union[TrafficRates, _Mapping]] = ..., messages_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., available_permits: _Optional[int] = ..., unacked_messages: _Optional[int] = ..., is_blocked_on_unacked: _Optional[bool] = ...) -> None: ...

class SubscriptionStats(_message.Message):
    __slots__ = ("name", "kind", "consumers", "backlog_entries", "unacked_messages", "mark_delete", "is_durable", "messages_out", "bytes_out", "delayed_entries", "rates_out", "rows", "active_consumer", "properties", "backlog_bytes")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    UNACKED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    IS_DURABLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RATES_OUT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    consumers: int
    backlog_entries: int
    unacked_messages: int
    mark_delete: MessagePosition
    is_durable: bool
    messages_out: int
    bytes_out: int
    delayed_entries: int
    rates_out: TrafficRates
    rows: _containers.RepeatedCompositeFieldContainer[ConsumerStats]
    active_consumer: str
    properties: _containers.ScalarMap[str, str]
    backlog_bytes: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., consumers: _Optional[int] = ..., backlog_entries: _Optional[int] = ..., unacked_messages: _Optional[int] = ..., mark_delete: _Optional[_Union[MessagePosition, _Mapping]] = ..., is_durable: _Optional[bool] = ..., messages_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., delayed_entries: _Optional[int] = ..., rates_out: _Optional[_Union[TrafficRates, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[ConsumerStats, _Mapping]]] = ..., active_consumer: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., backlog_bytes: _Optional[int] = ...) -> None: ...
