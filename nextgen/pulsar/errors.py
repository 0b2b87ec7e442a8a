"""Our errors as Pulsar's codes: a client's retries depend on the code that it gets."""

from __future__ import annotations

from nextgen.kernel.errors import Forbidden, InvalidRequest, MetadataError, Refused
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
    RejectionCode.SCALABLE: ServerError.NotAllowedError,
    RejectionCode.IN_USE: ServerError.NotAllowedError,
    RejectionCode.NOT_PARTITIONED: ServerError.NotAllowedError,
    RejectionCode.FEWER_PARTITIONS: ServerError.NotAllowedError,
    RejectionCode.PARTITIONS_DIFFER: ServerError.NotAllowedError,
    # Another attempt may succeed.
    RejectionCode.VERSION_MISMATCH: ServerError.MetadataError,
    RejectionCode.JUST_DELETED: ServerError.MetadataError,
    RejectionCode.NO_CAPACITY: ServerError.MetadataError,
    RejectionCode.SHARE_EXCEEDED: ServerError.MetadataError,
    RejectionCode.NO_BROKER: ServerError.MetadataError,
    RejectionCode.SESSION_EXPIRED: ServerError.MetadataError,
    RejectionCode.STALE_EPOCH: ServerError.MetadataError,
}


def server_error_of(error: MetadataError) -> ServerError:
    """Return the code with which a Pulsar client gets ``error``.

    A failure that may pass, overload included, is ``MetadataError``: every stock client retries it
    on the connection it has. ``ServiceNotReady`` and ``TooManyRequests`` would cost Java's clients
    their connection and are final for others. A failure that a retry cannot change gets a code that
    ends the retries.
    """
    if isinstance(error, Refused):
        # A rejection code that this release does not know is still a refusal.
        return _OF_REJECTION.get(error.code, ServerError.NotAllowedError)
    if isinstance(error, Forbidden):
        return ServerError.AuthorizationError
    if isinstance(error, InvalidRequest):
        return ServerError.NotAllowedError
    return ServerError.MetadataError
