"""Errors of the scalable-topics client.

ScalableTopicError
├── Definite
│   ├── InvalidSettings        a setting contradicts the documentation or another setting
│   ├── NotSupported           the server, or this client, does not have the feature
│   ├── TopicNotFound          no such topic, or it was deleted
│   ├── ServerRefused          a final answer of the server; ``code`` is its ServerError
│   ├── MalformedLayout        a layout of segments that cannot be one
│   ├── NoActiveSegment        the layout has no segment that takes messages
│   ├── UncoveredHash          no active segment has the hash of the key
│   ├── SchemaMismatch         a value, or a payload, does not fit the schema
│   ├── InvalidCheckpoint      the bytes are no checkpoint of this topic
│   ├── MemoryLimitReached     messages that wait to be stored fill the memory limit
│   └── AlreadyClosed          the client, producer or consumer was closed
└── Indefinite
    ├── TimedOut               no answer in time: the request may have been carried out
    ├── ConnectionFailed       no connection, or it broke; another attempt may succeed
    └── SendFailed             the message may or may not be stored
"""

from __future__ import annotations

from nextgen.kernel.errors import Definite, Indefinite, MetadataError


class ScalableTopicError(MetadataError):
    """Base class of all errors below."""

    reason = "SCALABLE_TOPIC"


class InvalidSettings(ScalableTopicError, Definite, ValueError):
    """A setting is out of its range or contradicts another one."""


class NotSupported(ScalableTopicError, Definite):
    """The server or this client does not have the feature."""


class TopicNotFound(ScalableTopicError, Definite):
    """There is no such topic, or it was deleted."""


class ServerRefused(ScalableTopicError, Definite):
    """The server refused for good. ``code`` is a value of Pulsar's ``ServerError``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class MalformedLayout(ScalableTopicError, Definite):
    """The server's layout of segments cannot be one."""


class NoActiveSegment(ScalableTopicError, Definite):
    """The layout has no segment that takes messages."""


class UncoveredHash(ScalableTopicError, Definite):
    """No active segment has the hash of the message's key."""


class SegmentGone(ScalableTopicError, Definite):
    """The segment takes no messages any more, or does not exist."""


class MessageTooLarge(ScalableTopicError, Definite):
    """The message has more bytes than the server takes."""


class SchemaMismatch(ScalableTopicError, Definite):
    """A value or a payload does not fit the schema."""


class InvalidCheckpoint(ScalableTopicError, Definite):
    """The bytes are no checkpoint, or one of another topic."""


class MemoryLimitReached(ScalableTopicError, Definite):
    """Messages that wait to be stored fill the memory limit; nothing was sent."""


class AlreadyClosed(ScalableTopicError, Definite):
    """The client, producer or consumer was closed."""


class TimedOut(ScalableTopicError, Indefinite):
    """No answer in time; the request may have been carried out."""


class ConnectionFailed(ScalableTopicError, Indefinite):
    """There is no connection, or it broke."""


class SendFailed(ScalableTopicError, Indefinite):
    """The message may or may not be stored."""
