"""Our errors as Pulsar's codes: what a client is told decides whether and when it tries again."""

from __future__ import annotations

from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from protos.pulsar.PulsarApi_pb2 import ServerError

_OF_REJECTION: dict[str, ServerError] = {
    RejectionCode.NOT_FOUND: ServerError.TopicNotFound,
    RejectionCode.PARENT_NOT_FOUND: ServerError.TopicNotFound,
    RejectionCode.INVALID_NAME: ServerError.InvalidTopicName,
    RejectionCode.ALREADY_EXISTS: ServerError.NotAllowedError,
    RejectionCode.NOT_EMPTY: ServerError.NotAllowedError,
    RejectionCode.LIMIT_EXCEEDED: ServerError.NotAllowedError,
    RejectionCode.NOT_ALLOWED: ServerError.NotAllowedError,
    RejectionCode.PARTITIONED: ServerError.NotAllowedError,
    # What another attempt may find otherwise.
    RejectionCode.VERSION_MISMATCH: ServerError.MetadataError,
    RejectionCode.NO_CAPACITY: ServerError.MetadataError,
    RejectionCode.SHARE_EXCEEDED: ServerError.MetadataError,
    RejectionCode.NO_BROKER: ServerError.MetadataError,
    RejectionCode.SESSION_EXPIRED: ServerError.MetadataError,
    RejectionCode.STALE_EPOCH: ServerError.MetadataError,
}


def server_error_of(error: MetadataError) -> ServerError:
    """Return the code under which a Pulsar client hears of ``error``.

    Trouble that may pass, overload included, is ``MetadataError``: every stock client tries again
    on the connection it has. ``ServiceNotReady`` and ``TooManyRequests`` would cost Java's clients
    their connection and are final to others. What repeating cannot change gets a code that ends
    the attempts.
    """
    if isinstance(error, Refused):
        # A code that this release does not know is a refusal nonetheless.
        return _OF_REJECTION.get(error.code, ServerError.NotAllowedError)
    if isinstance(error, InvalidRequest):
        return ServerError.NotAllowedError
    return ServerError.MetadataError
