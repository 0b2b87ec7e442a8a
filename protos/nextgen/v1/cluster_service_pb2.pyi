from protos.nextgen.v1 import errors_pb2 as _errors_pb2
from protos.nextgen.v1 import events_pb2 as _events_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeMessage(_message.Message):
    __slots__ = ("hello", "leader", "broker", "heartbeat", "members", "load", "window", "slot_move", "shard_sizes")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SLOT_MOVE_FIELD_NUMBER: _ClassVar[int]
    SHARD_SIZES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    leader: LeaderReport
    broker: BrokerReport
    heartbeat: NodeHeartbeat
    members: MembersReport
    load: BrokerLoad
    window: _events_pb2.LookupWindowRecorded
    slot_move: SlotMoveReport
    shard_sizes: ShardSizes
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., leader: _Optional[_Union[LeaderReport, _Mapping]] = ..., broker: _Optional[_Union[BrokerReport, _Mapping]] = ..., heartbeat: _Optional[_Union[NodeHeartbeat, _Mapping]] = ..., members: _Optional[_Union[MembersReport, _Mapping]] = ..., load: _Optional[_Union[BrokerLoad, _Mapping]] = ..., window: _Optional[_Union[_events_pb2.LookupWindowRecorded, _Mapping]] = ..., slot_move: _Optional[_Union[SlotMoveReport, _Mapping]] = ..., shard_sizes: _Optional[_Union[ShardSizes, _Mapping]] = ...) -> None: ...

class BrokerLoad(_message.Message):
    __slots__ = ("broker_id", "session_id", "load")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    load: _events_pb2.LoadReport
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., load: _Optional[_Union[_events_pb2.LoadReport, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("cluster_id", "node_id", "kind", "grpc", "raft_host", "raft_port", "http", "shard_map_version", "takes_deltas", "zone")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    RAFT_HOST_FIELD_NUMBER: _ClassVar[int]
    RAFT_PORT_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    TAKES_DELTAS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: str
    kind: str
    grpc: str
    raft_host: str
    raft_port: int
    http: str
    shard_map_version: int
    takes_deltas: bool
    zone: str
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[str] = ..., kind: _Optional[str] = ..., grpc: _Optional[str] = ..., raft_host: _Optional[str] = ..., raft_port: _Optional[int] = ..., http: _Optional[str] = ..., shard_map_version: _Optional[int] = ..., takes_deltas: _Optional[bool] = ..., zone: _Optional[str] = ...) -> None: ...

class LeaderReport(_message.Message):
    __slots__ = ("shard_id", "term", "node_id", "grpc")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    term: int
    node_id: str
    grpc: str
    def __init__(self, shard_id: _Optional[int] = ..., term: _Optional[int] = ..., node_id: _Optional[str] = ..., grpc: _Optional[str] = ...) -> None: ...

class MembersReport(_message.Message):
    __slots__ = ("shard_id", "term", "configuration_index", "voters", "learners")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    term: int
    configuration_index: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    learners: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, shard_id: _Optional[int] = ..., term: _Optional[int] = ..., configuration_index: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., learners: _Optional[_Iterable[str]] = ...) -> None: ...

class BrokerReport(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: _events_pb2.BrokerRecorded
    def __init__(self, broker: _Optional[_Union[_events_pb2.BrokerRecorded, _Mapping]] = ...) -> None: ...

class NodeHeartbeat(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class ShardSizes(_message.Message):
    __slots__ = ("shards", "disk_free_bytes")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[ShardSize]
    disk_free_bytes: int
    def __init__(self, shards: _Optional[_Iterable[_Union[ShardSize, _Mapping]]] = ..., disk_free_bytes: _Optional[int] = ...) -> None: ...

class ShardSize(_message.Message):
    __slots__ = ("shard_id", "term", "topics", "rows", "commands_per_second")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    term: int
    topics: int
    rows: int
    commands_per_second: float
    def __init__(self, shard_id: _Optional[int] = ..., term: _Optional[int] = ..., topics: _Optional[int] = ..., rows: _Optional[int] = ..., commands_per_second: _Optional[float] = ...) -> None: ...

class SlotMoveReport(_message.Message):
    __slots__ = ("move_id", "shard_id", "term", "phase", "from_position", "to_position", "rows_copied", "reason", "session_units", "ranges", "from_shard", "to_shard")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    TO_POSITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_COPIED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SESSION_UNITS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    FROM_SHARD_FIELD_NUMBER: _ClassVar[int]
    TO_SHARD_FIELD_NUMBER: _ClassVar[int]
    move_id: int
    shard_id: int
    term: int
    phase: str
    from_position: int
    to_position: int
    rows_copied: int
    reason: str
    session_units: _containers.RepeatedCompositeFieldContainer[_events_pb2.CountedUnits]
    ranges: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRange]
    from_shard: int
    to_shard: int
    def __init__(self, move_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., term: _Optional[int] = ..., phase: _Optional[str] = ..., from_position: _Optional[int] = ..., to_position: _Optional[int] = ..., rows_copied: _Optional[int] = ..., reason: _Optional[str] = ..., session_units: _Optional[_Iterable[_Union[_events_pb2.CountedUnits, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_events_pb2.SlotRange, _Mapping]]] = ..., from_shard: _Optional[int] = ..., to_shard: _Optional[int] = ...) -> None: ...

class ClusterUpdate(_message.Message):
    __slots__ = ("full", "error", "shard_map", "leaders", "brokers", "nodes", "transfers", "manager_endpoints", "heartbeat_sequence", "loads", "quotas", "configuration", "excluded_nodes", "map_delta", "slot_moves")
    FULL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    MANAGER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_NODES_FIELD_NUMBER: _ClassVar[int]
    MAP_DELTA_FIELD_NUMBER: _ClassVar[int]
    SLOT_MOVES_FIELD_NUMBER: _ClassVar[int]
    full: bool
    error: _errors_pb2.ErrorDetail
    shard_map: _events_pb2.ShardMapChanged
    leaders: _containers.RepeatedCompositeFieldContainer[LeaderReport]
    brokers: _containers.RepeatedCompositeFieldContainer[_events_pb2.BrokerRecorded]
    nodes: _containers.RepeatedCompositeFieldContainer[_events_pb2.NodeRegistered]
    transfers: _containers.RepeatedCompositeFieldContainer[LeadershipTransfer]
    manager_endpoints: _containers.RepeatedScalarFieldContainer[str]
    heartbeat_sequence: int
    loads: _containers.RepeatedCompositeFieldContainer[BrokerLoad]
    quotas: _events_pb2.QuotasSet
    configuration: _events_pb2.ConfigurationSet
    excluded_nodes: _containers.RepeatedScalarFieldContainer[str]
    map_delta: ShardMapDelta
    slot_moves: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotMoveChanged]
    def __init__(self, full: _Optional[bool] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., shard_map: _Optional[_Union[_events_pb2.ShardMapChanged, _Mapping]] = ..., leaders: _Optional[_Iterable[_Union[LeaderReport, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[_events_pb2.BrokerRecorded, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[_events_pb2.NodeRegistered, _Mapping]]] = ..., transfers: _Optional[_Iterable[_Union[LeadershipTransfer, _Mapping]]] = ..., manager_endpoints: _Optional[_Iterable[str]] = ..., heartbeat_sequence: _Optional[int] = ..., loads: _Optional[_Iterable[_Union[BrokerLoad, _Mapping]]] = ..., quotas: _Optional[_Union[_events_pb2.QuotasSet, _Mapping]] = ..., configuration: _Optional[_Union[_events_pb2.ConfigurationSet, _Mapping]] = ..., excluded_nodes: _Optional[_Iterable[str]] = ..., map_delta: _Optional[_Union[ShardMapDelta, _Mapping]] = ..., slot_moves: _Optional[_Iterable[_Union[_events_pb2.SlotMoveChanged, _Mapping]]] = ...) -> None: ...

class ShardMapDelta(_message.Message):
    __slots__ = ("from_version", "version", "slots", "changed", "removed")
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    from_version: int
    version: int
    slots: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRun]
    changed: _containers.RepeatedCompositeFieldContainer[_events_pb2.ShardPlacement]
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, from_version: _Optional[int] = ..., version: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[_events_pb2.SlotRun, _Mapping]]] = ..., changed: _Optional[_Iterable[_Union[_events_pb2.ShardPlacement, _Mapping]]] = ..., removed: _Optional[_Iterable[int]] = ...) -> None: ...

class LeadershipTransfer(_message.Message):
    __slots__ = ("shard_id", "target")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    target: str
    def __init__(self, shard_id: _Optional[int] = ..., target: _Optional[str] = ...) -> None: ...

class LeaseCapacityRequest(_message.Message):
    __slots__ = ("shard_id", "term", "uses", "units_wanted", "returns")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    UNITS_WANTED_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    term: int
    uses: _containers.RepeatedCompositeFieldContainer[LeaseUse]
    units_wanted: int
    returns: _containers.RepeatedCompositeFieldContainer[LeaseReturn]
    def __init__(self, shard_id: _Optional[int] = ..., term: _Optional[int] = ..., uses: _Optional[_Iterable[_Union[LeaseUse, _Mapping]]] = ..., units_wanted: _Optional[int] = ..., returns: _Optional[_Iterable[_Union[LeaseReturn, _Mapping]]] = ...) -> None: ...

class LeaseReturn(_message.Message):
    __slots__ = ("broker_id", "session_id", "units", "version")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    units: int
    version: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., units: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class LeaseUse(_message.Message):
    __slots__ = ("broker_id", "session_id", "units_used")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_USED_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    units_used: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., units_used: _Optional[int] = ...) -> None: ...

class CapacityLease(_message.Message):
    __slots__ = ("broker_id", "session_id", "units", "ttl_ms", "version", "units_to_keep")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNITS_TO_KEEP_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    units: int
    ttl_ms: int
    version: int
    units_to_keep: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., units: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., version: _Optional[int] = ..., units_to_keep: _Optional[int] = ...) -> None: ...

class LeaseCapacityResponse(_message.Message):
    __slots__ = ("leases", "refused")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[CapacityLease]
    refused: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, leases: _Optional[_Iterable[_Union[CapacityLease, _Mapping]]] = ..., refused: _Optional[_Iterable[str]] = ...) -> None: ...

class GetCapacityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCapacityResponse(_message.Message):
    __slots__ = ("accounts",)
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[BrokerAccount]
    def __init__(self, accounts: _Optional[_Iterable[_Union[BrokerAccount, _Mapping]]] = ...) -> None: ...

class BrokerAccount(_message.Message):
    __slots__ = ("broker_id", "session_id", "is_live", "capacity_units", "granted_units", "leases", "quota_units")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_UNITS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_UNITS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_UNITS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    session_id: str
    is_live: bool
    capacity_units: int
    granted_units: int
    leases: _containers.RepeatedCompositeFieldContainer[ShardLease]
    quota_units: int
    def __init__(self, broker_id: _Optional[str] = ..., session_id: _Optional[str] = ..., is_live: _Optional[bool] = ..., capacity_units: _Optional[int] = ..., granted_units: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[ShardLease, _Mapping]]] = ..., quota_units: _Optional[int] = ...) -> None: ...

class ShardLease(_message.Message):
    __slots__ = ("shard_id", "units", "units_used", "expires_at_ms", "version")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    UNITS_USED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    units: int
    units_used: int
    expires_at_ms: int
    version: int
    def __init__(self, shard_id: _Optional[int] = ..., units: _Optional[int] = ..., units_used: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class ChangeReplicasRequest(_message.Message):
    __slots__ = ("shard_id", "node_id", "change")
    class Change(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CHANGE_UNSPECIFIED: _ClassVar[ChangeReplicasRequest.Change]
        CHANGE_ADD: _ClassVar[ChangeReplicasRequest.Change]
        CHANGE_REMOVE: _ClassVar[ChangeReplicasRequest.Change]
        CHANGE_CANCEL: _ClassVar[ChangeReplicasRequest.Change]
    CHANGE_UNSPECIFIED: ChangeReplicasRequest.Change
    CHANGE_ADD: ChangeReplicasRequest.Change
    CHANGE_REMOVE: ChangeReplicasRequest.Change
    CHANGE_CANCEL: ChangeReplicasRequest.Change
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    node_id: str
    change: ChangeReplicasRequest.Change
    def __init__(self, shard_id: _Optional[int] = ..., node_id: _Optional[str] = ..., change: _Optional[_Union[ChangeReplicasRequest.Change, str]] = ...) -> None: ...

class ChangeReplicasResponse(_message.Message):
    __slots__ = ("placement", "shard_map_version")
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    placement: _events_pb2.ShardPlacement
    shard_map_version: int
    def __init__(self, placement: _Optional[_Union[_events_pb2.ShardPlacement, _Mapping]] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class PlanSlotsRequest(_message.Message):
    __slots__ = ("kind", "shard_id", "into_shard", "ranges", "shards", "dry_run", "request_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    INTO_SHARD_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    shard_id: int
    into_shard: int
    ranges: _containers.RepeatedCompositeFieldContainer[_events_pb2.SlotRange]
    shards: int
    dry_run: bool
    request_id: str
    def __init__(self, kind: _Optional[str] = ..., shard_id: _Optional[int] = ..., into_shard: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_events_pb2.SlotRange, _Mapping]]] = ..., shards: _Optional[int] = ..., dry_run: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class PlanSlotsResponse(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: SlotPlan
    def __init__(self, plan: _Optional[_Union[SlotPlan, _Mapping]] = ...) -> None: ...

class SlotPlan(_message.Message):
    __slots__ = ("plan", "slots", "slots_left", "rows_left", "moves_left", "moves_done", "moves", "waits_for", "shard_map_version", "added")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_LEFT_FIELD_NUMBER: _ClassVar[int]
    ROWS_LEFT_FIELD_NUMBER: _ClassVar[int]
    MOVES_LEFT_FIELD_NUMBER: _ClassVar[int]
    MOVES_DONE_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    plan: _events_pb2.PlanChanged
    slots: int
    slots_left: int
    rows_left: int
    moves_left: int
    moves_done: int
    moves: _containers.RepeatedCompositeFieldContainer[SlotMoveProgress]
    waits_for: str
    shard_map_version: int
    added: _containers.RepeatedCompositeFieldContainer[_events_pb2.ShardPlacement]
    def __init__(self, plan: _Optional[_Union[_events_pb2.PlanChanged, _Mapping]] = ..., slots: _Optional[int] = ..., slots_left: _Optional[int] = ..., rows_left: _Optional[int] = ..., moves_left: _Optional[int] = ..., moves_done: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[SlotMoveProgress, _Mapping]]] = ..., waits_for: _Optional[str] = ..., shard_map_version: _Optional[int] = ..., added: _Optional[_Iterable[_Union[_events_pb2.ShardPlacement, _Mapping]]] = ...) -> None: ...

class SlotMoveProgress(_message.Message):
    __slots__ = ("move", "rows_copied")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ROWS_COPIED_FIELD_NUMBER: _ClassVar[int]
    move: _events_pb2.SlotMoveChanged
    rows_copied: int
    def __init__(self, move: _Optional[_Union[_events_pb2.SlotMoveChanged, _Mapping]] = ..., rows_copied: _Optional[int] = ...) -> None: ...

class GetPlansRequest(_message.Message):
    __slots__ = ("plans_max",)
    PLANS_MAX_FIELD_NUMBER: _ClassVar[int]
    plans_max: int
    def __init__(self, plans_max: _Optional[int] = ...) -> None: ...

class GetPlansResponse(_message.Message):
    __slots__ = ("plans", "shards")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[SlotPlan]
    shards: _containers.RepeatedCompositeFieldContainer[SlotShard]
    def __init__(self, plans: _Optional[_Iterable[_Union[SlotPlan, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[SlotShard, _Mapping]]] = ...) -> None: ...

class SlotShard(_message.Message):
    __slots__ = ("shard_id", "slots", "is_retired", "leader", "size", "placement")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    IS_RETIRED_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    slots: int
    is_retired: bool
    leader: str
    size: ShardSize
    placement: _events_pb2.ShardPlacement
    def __init__(self, shard_id: _Optional[int] = ..., slots: _Optional[int] = ..., is_retired: _Optional[bool] = ..., leader: _Optional[str] = ..., size: _Optional[_Union[ShardSize, _Mapping]] = ..., placement: _Optional[_Union[_events_pb2.ShardPlacement, _Mapping]] = ...) -> None: ...

class StopPlanRequest(_message.Message):
    __slots__ = ("plan_id", "reason")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    plan_id: int
    reason: str
    def __init__(self, plan_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class StopPlanResponse(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: SlotPlan
    def __init__(self, plan: _Optional[_Union[SlotPlan, _Mapping]] = ...) -> None: ...

class SetNodeStateRequest(_message.Message):
    __slots__ = ("node_id", "state")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    state: str
    def __init__(self, node_id: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class SetNodeStateResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: ShardNode
    def __init__(self, node: _Optional[_Union[ShardNode, _Mapping]] = ...) -> None: ...

class ShardNode(_message.Message):
    __slots__ = ("node_id", "zone", "state", "since_ms", "is_connected", "replicas", "joining", "leaving", "leaders")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    zone: str
    state: str
    since_ms: int
    is_connected: bool
    replicas: int
    joining: int
    leaving: int
    leaders: int
    def __init__(self, node_id: _Optional[str] = ..., zone: _Optional[str] = ..., state: _Optional[str] = ..., since_ms: _Optional[int] = ..., is_connected: _Optional[bool] = ..., replicas: _Optional[int] = ..., joining: _Optional[int] = ..., leaving: _Optional[int] = ..., leaders: _Optional[int] = ...) -> None: ...

class ReplicaMove(_message.Message):
    __slots__ = ("shard_id", "source", "target")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    source: str
    target: str
    def __init__(self, shard_id: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class GetReplicaPlanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BalanceReplicasRequest(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    def __init__(self, stop: _Optional[bool] = ...) -> None: ...

class ReplicaPlan(_message.Message):
    __slots__ = ("nodes", "moves", "under_way", "is_on", "is_requested", "waits_for", "replication_factor")
    NODES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    IS_ON_FIELD_NUMBER: _ClassVar[int]
    IS_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[ShardNode]
    moves: _containers.RepeatedCompositeFieldContainer[ReplicaMove]
    under_way: _containers.RepeatedCompositeFieldContainer[ReplicaMove]
    is_on: bool
    is_requested: bool
    waits_for: str
    replication_factor: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[ShardNode, _Mapping]]] = ..., moves: _Optional[_Iterable[_Union[ReplicaMove, _Mapping]]] = ..., under_way: _Optional[_Iterable[_Union[ReplicaMove, _Mapping]]] = ..., is_on: _Optional[bool] = ..., is_requested: _Optional[bool] = ..., waits_for: _Optional[str] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class SetQuotasRequest(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _events_pb2.QuotasSet
    def __init__(self, quotas: _Optional[_Union[_events_pb2.QuotasSet, _Mapping]] = ...) -> None: ...

class SetQuotasResponse(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _events_pb2.QuotasSet
    def __init__(self, quotas: _Optional[_Union[_events_pb2.QuotasSet, _Mapping]] = ...) -> None: ...

class GetQuotasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetQuotasResponse(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _events_pb2.QuotasSet
    def __init__(self, quotas: _Optional[_Union[_events_pb2.QuotasSet, _Mapping]] = ...) -> None: ...

class SetConfigurationRequest(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: _events_pb2.ConfigurationSet
    def __init__(self, configuration: _Optional[_Union[_events_pb2.ConfigurationSet, _Mapping]] = ...) -> None: ...

class SetConfigurationResponse(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: _events_pb2.ConfigurationSet
    def __init__(self, configuration: _Optional[_Union[_events_pb2.ConfigurationSet, _Mapping]] = ...) -> None: ...

class GetConfigurationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetConfigurationResponse(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: _events_pb2.ConfigurationSet
    def __init__(self, configuration: _Optional[_Union[_events_pb2.ConfigurationSet, _Mapping]] = ...) -> None: ...

class ExcludeNodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class ExcludeNodeResponse(_message.Message):
    __slots__ = ("excluded_nodes",)
    EXCLUDED_NODES_FIELD_NUMBER: _ClassVar[int]
    excluded_nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, excluded_nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class GetClusterStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetManagerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("group_id", "node_id", "role", "term", "leader_id", "last_index", "commit_index", "commit_position", "applied_index", "applied_position", "first_position", "view_lag_ms", "journal_bytes", "elections", "voters", "learners", "configuration_index", "progress", "disk_trouble", "digest", "divergence")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_POSITION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_POSITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    VIEW_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ELECTIONS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DISK_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCE_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    node_id: str
    role: str
    term: int
    leader_id: str
    last_index: int
    commit_index: int
    commit_position: int
    applied_index: int
    applied_position: int
    first_position: int
    view_lag_ms: float
    journal_bytes: int
    elections: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    learners: _containers.RepeatedScalarFieldContainer[str]
    configuration_index: int
    progress: _containers.RepeatedCompositeFieldContainer[MemberProgress]
    disk_trouble: str
    digest: ViewDigest
    divergence: str
    def __init__(self, group_id: _Optional[int] = ..., node_id: _Optional[str] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., leader_id: _Optional[str] = ..., last_index: _Optional[int] = ..., commit_index: _Optional[int] = ..., commit_position: _Optional[int] = ..., applied_index: _Optional[int] = ..., applied_position: _Optional[int] = ..., first_position: _Optional[int] = ..., view_lag_ms: _Optional[float] = ..., journal_bytes: _Optional[int] = ..., elections: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., learners: _Optional[_Iterable[str]] = ..., configuration_index: _Optional[int] = ..., progress: _Optional[_Iterable[_Union[MemberProgress, _Mapping]]] = ..., disk_trouble: _Optional[str] = ..., digest: _Optional[_Union[ViewDigest, _Mapping]] = ..., divergence: _Optional[str] = ...) -> None: ...

class MemberProgress(_message.Message):
    __slots__ = ("node_id", "is_connected", "match_index", "applied_index", "gets_snapshot")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    GETS_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    is_connected: bool
    match_index: int
    applied_index: int
    gets_snapshot: bool
    def __init__(self, node_id: _Optional[str] = ..., is_connected: _Optional[bool] = ..., match_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., gets_snapshot: _Optional[bool] = ...) -> None: ...

class ViewDigest(_message.Message):
    __slots__ = ("index", "position", "digest")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    index: int
    position: int
    digest: int
    def __init__(self, index: _Optional[int] = ..., position: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...
