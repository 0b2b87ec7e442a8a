"""A broker's hello, and the answers to it."""

from __future__ import annotations

from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused, SessionExpired
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.broker_kind import KINDS
from nextgen.kernel.limits.cluster import (
    ADDRESS_BYTES_MAX,
    NODE_ID_BYTES_MAX,
    SESSION_HEARTBEAT_MS,
    SESSION_TTL_MS,
    STORED_INTEGER_MAX,
)
from nextgen.kernel.limits.stream import HELD_OBJECTS_PER_MESSAGE_MAX
from protos.nextgen.v1.broker_service_pb2 import BrokerHello, HeldMetadata, SessionEstablished
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import BrokerSessionStatus
from shards.domain.broker_session import Endpoints, EstablishSession
from shards.sessions.session_soft_state import SessionSoftState

LET_GO_S = 10.0
"""Seconds for which what a broker was sent is watched here after another shard has become its
manager: by then that one has it watched, or the session has ended there."""


def check_hello(hello: BrokerHello) -> None:
    """Return if the hello makes sense.

    Raises:
        InvalidRequest: It does not.
    """
    broker_id = hello.broker_id
    if not 0 < len(broker_id.encode()) <= NODE_ID_BYTES_MAX or not broker_id.isprintable():
        raise InvalidRequest(f"a broker id has 1 to {NODE_ID_BYTES_MAX} printable bytes")
    endpoints = hello.endpoints
    if not endpoints.grpc:
        raise InvalidRequest(f"broker {broker_id} does not say where its gRPC listens")
    texts = (endpoints.grpc, endpoints.http, endpoints.pulsar_url, hello.zone, hello.rack)
    for text in texts:
        if len(text.encode()) > ADDRESS_BYTES_MAX:
            raise InvalidRequest(
                f"broker {broker_id} gives an address, zone or rack of {len(text.encode())} bytes, "
                f"at most {ADDRESS_BYTES_MAX} are allowed"
            )
    if hello.kind not in KINDS:
        raise InvalidRequest(
            f"broker {broker_id} is of kind {hello.kind[:200]!a}, which this release does not know"
        )
    if hello.last_sequence > STORED_INTEGER_MAX:
        raise InvalidRequest(
            f"broker {broker_id} reports sequence {hello.last_sequence}, above the largest"
        )


def session_command(
    hello: BrokerHello, session_id: str, at_ms: int, least_epoch: int
) -> EstablishSession:
    """Return the command that begins a session of the broker."""
    return EstablishSession(
        hello.broker_id,
        session_id,
        Endpoints(hello.endpoints.pulsar_url, hello.endpoints.grpc, hello.endpoints.http),
        hello.capacity_units,
        hello.zone,
        hello.rack,
        at_ms,
        least_epoch,
        hello.kind,
    )


def check_held(held: HeldMetadata) -> None:
    """Return if a page of what a broker holds is small enough.

    Raises:
        InvalidRequest: It is not.
    """
    if len(held.objects) > HELD_OBJECTS_PER_MESSAGE_MAX:
        raise InvalidRequest(
            f"a broker reports {len(held.objects)} objects that it holds, "
            f"at most {HELD_OBJECTS_PER_MESSAGE_MAX} are allowed in one message"
        )


def is_same_broker(known: BrokerHello | BrokerRecorded, hello: BrokerHello) -> bool:
    """Return whether the broker is the one that requested or began the session."""
    return (
        known.broker_id == hello.broker_id
        and known.endpoints == hello.endpoints
        and announced_units(known) == hello.capacity_units
        and (known.zone, known.rack, known.kind) == (hello.zone, hello.rack, hello.kind)
    )


def announced_units(known: BrokerHello | BrokerRecorded) -> int:
    """Return the capacity that a broker announced, whatever it was set to since."""
    if isinstance(known, BrokerRecorded) and known.announced_units:
        return known.announced_units
    return known.capacity_units


def is_resumable(session: SessionSoftState, hello: BrokerHello) -> bool:
    """Return whether the broker is the same one, and its holding is the one this leader knows."""
    return is_same_broker(session.record, hello) and session.can_resume(hello.last_sequence)


def status_of(shard_id: int, session: SessionSoftState, now: float) -> BrokerSessionStatus:
    """Return a line about a live session, for status pages."""
    return BrokerSessionStatus(
        broker_id=session.record.broker_id,
        session_id=session.record.session_id,
        epoch=session.record.epoch,
        sent_sequence=session.sequence,
        synced_sequence=session.acked,
        topics=session.load.topics,
        shard_id=shard_id,
        heartbeat_age_ms=max(0, int((now - session.heard_at) * 1000)),
    )


def established_message(
    session: SessionSoftState, resumed: bool, last_sequence: int
) -> SessionEstablished:
    """Return the answer to a hello."""
    return SessionEstablished(
        session_id=session.record.session_id,
        epoch=session.record.epoch,
        resumed=resumed,
        session_ttl_ms=SESSION_TTL_MS,
        heartbeat_ms=SESSION_HEARTBEAT_MS,
        next_sequence=last_sequence + 1,
        report_held=resumed and session.metadata.awaits_report,
        takes_drained=True,
        takes_loads=True,
    )


def session_rejection(rejected: Rejected) -> MetadataError:
    """Return the error with which a caller is refused a session command."""
    if rejected.code is RejectionCode.SESSION_EXPIRED:
        return SessionExpired(rejected.message)
    return Refused(rejected.code, rejected.message)
