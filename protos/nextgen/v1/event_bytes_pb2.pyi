from protos.nextgen.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DecidedCommandBytes(_message.Message):
    __slots__ = ("command_id", "time_ms", "events")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    time_ms: int
    events: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, command_id: _Optional[bytes] = ..., time_ms: _Optional[int] = ..., events: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DecidedEventBytes(_message.Message):
    __slots__ = ("command_id", "time_ms", "event")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    time_ms: int
    event: bytes
    def __init__(self, command_id: _Optional[bytes] = ..., time_ms: _Optional[int] = ..., event: _Optional[bytes] = ...) -> None: ...

class EventBatchBytes(_message.Message):
    __slots__ = ("error", "events", "next_position", "oldest_position", "commit_position", "snapshot_position")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_POSITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_POSITION_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.ErrorDetail
    events: _containers.RepeatedScalarFieldContainer[bytes]
    next_position: int
    oldest_position: int
    commit_position: int
    snapshot_position: int
    def __init__(self, error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., events: _Optional[_Iterable[bytes]] = ..., next_position: _Optional[int] = ..., oldest_position: _Optional[int] = ..., commit_position: _Optional[int] = ..., snapshot_position: _Optional[int] = ...) -> None: ...
