"""``MetadataError`` <-> ``ErrorDetail`` <-> a failed gRPC call.

Both directions are total: every error can be sent, and every detail can be raised, even one whose
reason this release does not know. A unary call carries the detail in its trailing metadata
under ``ERROR_METADATA_KEY``; streams carry it beside each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Definite,
    Forbidden,
    Indefinite,
    InvalidRequest,
    JournalCorrupted,
    MetadataError,
    NotLeader,
    OutcomeForgotten,
    Overloaded,
    PositionAhead,
    PositionCompacted,
    ProposalLost,
    Refused,
    RefusesToStart,
    ServedElsewhere,
    SessionExpired,
    StaleShardMap,
    TransferFailed,
    Unauthenticated,
    Unavailable,
    WrongCluster,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import ERROR_MESSAGE_CHARACTERS_MAX, SLOT_COUNT
from protos.nextgen.v1.errors_pb2 import ErrorDetail

ERROR_METADATA_KEY = "nextgen-error-bin"

NOT_CONNECTED = "failed to connect to all addresses"
"""The prefix of gRPC's details for a call that never left this process."""


class ReportedDefinite(Definite):
    """A definite error of another process, of a kind that has no class here."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ReportedIndefinite(Indefinite):
    """An indefinite error of another process, of a kind that has no class here."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


_BY_REASON: dict[str, type[MetadataError]] = {
    kind.reason: kind
    for kind in (
        Unavailable,
        SessionExpired,
        Unauthenticated,
        Forbidden,
        InvalidRequest,
        TransferFailed,
        RefusesToStart,
        WrongCluster,
        JournalCorrupted,
        ProposalLost,
        OutcomeForgotten,
        DeadlineExceeded,
        ConnectionLost,
    )
}
"""The kinds whose only field is a message."""

_OF_POSITIONS = frozenset({PositionCompacted.reason, PositionAhead.reason})
"""The kinds whose message is generated from their positions."""

_STATUS_BY_REASON: dict[str, grpc.StatusCode] = {
    NotLeader.reason: grpc.StatusCode.FAILED_PRECONDITION,
    ServedElsewhere.reason: grpc.StatusCode.FAILED_PRECONDITION,
    StaleShardMap.reason: grpc.StatusCode.FAILED_PRECONDITION,
    Unavailable.reason: grpc.StatusCode.UNAVAILABLE,
    Overloaded.reason: grpc.StatusCode.RESOURCE_EXHAUSTED,
    SessionExpired.reason: grpc.StatusCode.FAILED_PRECONDITION,
    Unauthenticated.reason: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden.reason: grpc.StatusCode.PERMISSION_DENIED,
    InvalidRequest.reason: grpc.StatusCode.INVALID_ARGUMENT,
    TransferFailed.reason: grpc.StatusCode.ABORTED,
    RefusesToStart.reason: grpc.StatusCode.FAILED_PRECONDITION,
    WrongCluster.reason: grpc.StatusCode.FAILED_PRECONDITION,
    JournalCorrupted.reason: grpc.StatusCode.DATA_LOSS,
    ProposalLost.reason: grpc.StatusCode.ABORTED,
    OutcomeForgotten.reason: grpc.StatusCode.FAILED_PRECONDITION,
    DeadlineExceeded.reason: grpc.StatusCode.DEADLINE_EXCEEDED,
    ConnectionLost.reason: grpc.StatusCode.ABORTED,
    PositionCompacted.reason: grpc.StatusCode.OUT_OF_RANGE,
    PositionAhead.reason: grpc.StatusCode.OUT_OF_RANGE,
}

_STATUS_BY_REJECTION: dict[str, grpc.StatusCode] = {
    RejectionCode.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    RejectionCode.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    RejectionCode.PARENT_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    RejectionCode.NOT_EMPTY: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.VERSION_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.LIMIT_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RejectionCode.INVALID_NAME: grpc.StatusCode.INVALID_ARGUMENT,
    RejectionCode.NOT_ALLOWED: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.PARTITIONED: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.SCALABLE: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.IN_USE: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.JUST_DELETED: grpc.StatusCode.UNAVAILABLE,
    RejectionCode.NOT_PARTITIONED: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.FEWER_PARTITIONS: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.NO_CAPACITY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RejectionCode.SHARE_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RejectionCode.NO_BROKER: grpc.StatusCode.UNAVAILABLE,
    RejectionCode.SESSION_EXPIRED: grpc.StatusCode.FAILED_PRECONDITION,
    RejectionCode.STALE_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
}


def to_detail(error: MetadataError, *, shard_map_version: int = 0) -> ErrorDetail:
    """Return the detail of ``error``. ``shard_map_version`` is that of the sender's map.

    A message is cut at ``ERROR_MESSAGE_CHARACTERS_MAX``.
    """
    detail = ErrorDetail(
        reason=error.reason,
        message=_printable(str(error)),
        indefinite=isinstance(error, Indefinite),
        shard_map_version=shard_map_version,
        retry_after_ms=error.retry_after_ms,
    )
    if isinstance(error, Refused):
        detail.rejection_code = error.code
        if error.room is not None:
            detail.room = error.room
    elif isinstance(error, ServedElsewhere):
        detail.web_urls = error.web_urls
    elif isinstance(error, NotLeader):
        detail.leader_hint = error.leader_hint or ""
        detail.group_id = error.group_id
    elif isinstance(error, StaleShardMap):
        detail.shard_map_version = max(shard_map_version, error.shard_map_version)
        detail.moved_to = error.moved_to
        detail.moved_slots.extend(chain.from_iterable(error.moved_slots))
        for routing_key, slot in error.moved_names.items():
            detail.moved_names.add(routing_key=routing_key, slot=slot)
    elif isinstance(error, PositionCompacted):
        detail.asked_position = error.asked
        detail.oldest_position = error.oldest
        detail.snapshot_position = error.snapshot_position
    elif isinstance(error, PositionAhead):
        detail.asked_position = error.asked
        detail.last_position = error.last
        detail.is_final = error.is_final
    return detail


def from_detail(detail: ErrorDetail) -> MetadataError:
    """Return the error in ``detail``. An unknown reason keeps its name."""
    if detail.reason == Refused.reason:
        room = detail.room if detail.HasField("room") else None
        return Refused(detail.rejection_code, detail.message, room=room)
    if detail.reason == ServedElsewhere.reason and not detail.indefinite:
        return ServedElsewhere(detail.web_urls)
    if detail.reason == NotLeader.reason:
        return NotLeader(detail.group_id, detail.leader_hint or None)
    if detail.reason == StaleShardMap.reason:
        return StaleShardMap(
            detail.message,
            detail.shard_map_version,
            moved_to=detail.moved_to,
            moved_slots=_ranges(detail.moved_slots),
            moved_names={
                each.routing_key: each.slot for each in detail.moved_names if each.slot < SLOT_COUNT
            },
        )
    if detail.reason == Overloaded.reason and not detail.indefinite:
        return Overloaded(detail.message, detail.retry_after_ms)
    if detail.reason in _OF_POSITIONS and not detail.indefinite:
        return _position_error(detail)
    kind = _BY_REASON.get(detail.reason)
    if kind is not None and issubclass(kind, Indefinite) == detail.indefinite:
        return kind(detail.message)
    if detail.indefinite:
        return ReportedIndefinite(detail.reason, detail.message)
    return ReportedDefinite(detail.reason, detail.message)


def _ranges(edges: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of slots that ``edges`` has in pairs; none if one is malformed."""
    pairs = [*zip(edges[::2], edges[1::2], strict=False)]
    is_sound = len(edges) % 2 == 0 and all(first <= last < SLOT_COUNT for first, last in pairs)
    return pairs if is_sound else []


def _position_error(detail: ErrorDetail) -> MetadataError:
    if detail.reason == PositionAhead.reason:
        return PositionAhead(detail.asked_position, detail.last_position, is_final=detail.is_final)
    return PositionCompacted(
        detail.asked_position, detail.oldest_position, detail.snapshot_position
    )


def status_code(error: MetadataError) -> grpc.StatusCode:
    """Return the gRPC status of a unary call that fails with ``error``."""
    if isinstance(error, Refused):
        return _STATUS_BY_REJECTION.get(error.code, grpc.StatusCode.FAILED_PRECONDITION)
    fallback = (
        grpc.StatusCode.ABORTED
        if isinstance(error, Indefinite)
        else grpc.StatusCode.FAILED_PRECONDITION
    )
    return _STATUS_BY_REASON.get(error.reason, fallback)


async def abort(
    context: grpc.aio.ServicerContext[Any, Any],
    error: MetadataError,
    *,
    shard_map_version: int = 0,
) -> NoReturn:
    """End the call of a ``grpc.aio`` servicer with ``error``, detail in the trailing metadata."""
    detail = to_detail(error, shard_map_version=shard_map_version)
    await context.abort(
        status_code(error), detail.message, ((ERROR_METADATA_KEY, detail.SerializeToString()),)
    )
    raise AssertionError("context.abort() returned")


def raise_for_rpc(error: grpc.RpcError) -> NoReturn:
    """Raise the error of a failed call: its detail if it carries one, else one for its status.

    Without a detail the error is indefinite, unless gRPC reports that nothing was sent or that the
    request was refused unread.
    """
    raise error_of_rpc(error) from error


def error_of_rpc(error: grpc.RpcError) -> MetadataError:
    """Return the error that ``raise_for_rpc`` would raise."""
    detail = _trailing_detail(error)
    if detail is not None:
        return from_detail(detail)
    code = error.code() if hasattr(error, "code") else None
    text = str(error.details() if hasattr(error, "details") else error) or "no details"
    name = code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
    return _error_of_status(name, f"{text} (gRPC status {name})")


def _error_of_status(status: str, message: str) -> MetadataError:
    if status == "UNAVAILABLE":
        return Unavailable(message) if NOT_CONNECTED in message else ConnectionLost(message)
    if status in {"INVALID_ARGUMENT", "UNIMPLEMENTED", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED"}:
        # Without our detail these come from gRPC: message too large, method not served.
        return InvalidRequest(message)
    if status == "UNAUTHENTICATED":
        return Unauthenticated(message)
    if status == "DEADLINE_EXCEEDED":
        return DeadlineExceeded(message)
    return ConnectionLost(message)


def _trailing_detail(error: grpc.RpcError) -> ErrorDetail | None:
    trailing: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in trailing or ():
        if key == ERROR_METADATA_KEY and isinstance(value, bytes):
            try:
                return ErrorDetail.FromString(value)
            except DecodeError:
                return None
    return None


def _printable(message: str) -> str:
    """Return ``message`` cut to fit metadata, without characters that UTF-8 cannot encode."""
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= ERROR_MESSAGE_CHARACTERS_MAX:
        return text
    return text[: ERROR_MESSAGE_CHARACTERS_MAX - 3] + "..."
