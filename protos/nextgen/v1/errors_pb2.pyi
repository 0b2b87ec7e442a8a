from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorDetail(_message.Message):
    __slots__ = ("reason", "message", "indefinite", "leader_hint", "shard_map_version", "rejection_code", "retry_after_ms", "group_id", "asked_position", "oldest_position", "snapshot_position", "last_position", "is_final", "moved_to", "moved_slots", "moved_names", "web_urls", "room")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    INDEFINITE_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    REJECTION_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ASKED_POSITION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    MOVED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MOVED_NAMES_FIELD_NUMBER: _ClassVar[int]
    WEB_URLS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    indefinite: bool
    leader_hint: str
    shard_map_version: int
    rejection_code: str
    retry_after_ms: int
    group_id: int
    asked_position: int
    oldest_position: int
    snapshot_position: int
    last_position: int
    is_final: bool
    moved_to: int
    moved_slots: _containers.RepeatedScalarFieldContainer[int]
    moved_names: _containers.RepeatedCompositeFieldContainer[MovedName]
    web_urls: str
    room: int
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., indefinite: _Optional[bool] = ..., leader_hint: _Optional[str] = ..., shard_map_version: _Optional[int] = ..., rejection_code: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., group_id: _Optional[int] = ..., asked_position: _Optional[int] = ..., oldest_position: _Optional[int] = ..., snapshot_position: _Optional[int] = ..., last_position: _Optional[int] = ..., is_final: _Optional[bool] = ..., moved_to: _Optional[int] = ..., moved_slots: _Optional[_Iterable[int]] = ..., moved_names: _Optional[_Iterable[_Union[MovedName, _Mapping]]] = ..., web_urls: _Optional[str] = ..., room: _Optional[int] = ...) -> None: ...

class MovedName(_message.Message):
    __slots__ = ("routing_key", "slot")
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    routing_key: str
    slot: int
    def __init__(self, routing_key: _Optional[str] = ..., slot: _Optional[int] = ...) -> None: ...
