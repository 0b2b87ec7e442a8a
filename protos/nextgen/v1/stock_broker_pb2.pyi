from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStockBrokerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StockBroker(_message.Message):
    __slots__ = ("broker", "pulsar_version")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    PULSAR_VERSION_FIELD_NUMBER: _ClassVar[int]
    broker: str
    pulsar_version: str
    def __init__(self, broker: _Optional[str] = ..., pulsar_version: _Optional[str] = ...) -> None: ...

class ListOpenTopicsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class OpenTopics(_message.Message):
    __slots__ = ("by_topic", "topics")
    BY_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    by_topic: bool
    topics: _containers.RepeatedCompositeFieldContainer[OpenTopic]
    def __init__(self, by_topic: _Optional[bool] = ..., topics: _Optional[_Iterable[_Union[OpenTopic, _Mapping]]] = ...) -> None: ...

class OpenTopic(_message.Message):
    __slots__ = ("topic", "owned", "bundle_owner")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_OWNER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    owned: bool
    bundle_owner: str
    def __init__(self, topic: _Optional[str] = ..., owned: _Optional[bool] = ..., bundle_owner: _Optional[str] = ...) -> None: ...

class ClaimTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ClaimTopicsResponse(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[TopicClaim]
    def __init__(self, claims: _Optional[_Iterable[_Union[TopicClaim, _Mapping]]] = ...) -> None: ...

class TopicClaim(_message.Message):
    __slots__ = ("topic", "broker_id", "rejection_code", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    REJECTION_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_id: str
    rejection_code: str
    message: str
    def __init__(self, topic: _Optional[str] = ..., broker_id: _Optional[str] = ..., rejection_code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CloseForeignTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class CloseForeignTopicsResponse(_message.Message):
    __slots__ = ("closed", "kept", "failed")
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    closed: int
    kept: int
    failed: int
    def __init__(self, closed: _Optional[int] = ..., kept: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...
