"""Events of broker sessions, stored and in the domain: a part of ``wire_event``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protos.nextgen.v1 import events_pb2 as pb
from shards.domain import broker_session
from shards.domain.broker_session import BrokerSession, BrokerSessionEvent, Endpoints


def to_endpoints(stored: pb.BrokerEndpoints) -> Endpoints:
    return Endpoints(stored.pulsar_url, stored.grpc, stored.http)


def from_endpoints(endpoints: Endpoints) -> pb.BrokerEndpoints:
    return pb.BrokerEndpoints(
        pulsar_url=endpoints.pulsar_url, grpc=endpoints.grpc, http=endpoints.http
    )


def to_recorded(session: BrokerSession) -> pb.BrokerRecorded:
    """Return the session as the cluster manager and the broker directory know it."""
    return pb.BrokerRecorded(
        broker_id=session.broker_id,
        session_id=session.session_id,
        epoch=session.epoch,
        is_live=session.is_live,
        endpoints=from_endpoints(session.endpoints),
        capacity_units=session.capacity_units,
        zone=session.zone,
        rack=session.rack,
        quarantined_until_ms=session.quarantined_until_ms,
        draining=session.draining,
        drain_units_per_second=session.drain_units_per_second,
        revision=session.revision,
    )


def _encode_established(event: broker_session.BrokerSessionEstablished) -> pb.Event:
    return pb.Event(
        broker_session_established=pb.BrokerSessionEstablished(
            broker_id=event.broker_id,
            session_id=event.session_id,
            epoch=event.epoch,
            endpoints=from_endpoints(event.endpoints),
            capacity_units=event.capacity_units,
            zone=event.zone,
            rack=event.rack,
            quarantined_until_ms=event.quarantined_until_ms,
            established_at_ms=event.established_at_ms,
        )
    )


def _encode_drain(event: broker_session.BrokerDrainSet) -> pb.Event:
    return pb.Event(
        broker_drain_set=pb.BrokerDrainSet(
            broker_id=event.broker_id,
            session_id=event.session_id,
            draining=event.draining,
            units_per_second=event.units_per_second,
            revision=event.revision,
        )
    )


def _encode_load(event: broker_session.BrokerLoadReported) -> pb.Event:
    return pb.Event(
        broker_load_reported=pb.BrokerLoadReported(
            broker_id=event.broker_id,
            session_id=event.session_id,
            load=pb.LoadReport.FromString(event.load),
        )
    )


def _encode_ended(event: broker_session.BrokerSessionEnded) -> pb.Event:
    return pb.Event(
        broker_session_ended=pb.BrokerSessionEnded(
            broker_id=event.broker_id,
            session_id=event.session_id,
            epoch=event.epoch,
            reason=event.reason,
        )
    )


def _encode_granted(event: broker_session.CapacityGranted) -> pb.Event:
    return pb.Event(
        capacity_granted=pb.CapacityGranted(
            broker_id=event.broker_id, session_id=event.session_id, units=event.units
        )
    )


def _decode_established(
    stored: pb.BrokerSessionEstablished, time_ms: int
) -> broker_session.BrokerSessionEstablished:
    return broker_session.BrokerSessionEstablished(
        stored.broker_id,
        stored.session_id,
        stored.epoch,
        to_endpoints(stored.endpoints),
        stored.capacity_units,
        stored.zone,
        stored.rack,
        stored.quarantined_until_ms,
        stored.established_at_ms,
    )


ENCODERS: dict[type, Callable[[Any], pb.Event]] = {
    broker_session.BrokerSessionEstablished: _encode_established,
    broker_session.BrokerDrainSet: _encode_drain,
    broker_session.BrokerLoadReported: _encode_load,
    broker_session.BrokerSessionEnded: _encode_ended,
    broker_session.CapacityGranted: _encode_granted,
}

DECODERS: dict[str, Callable[[Any, int], BrokerSessionEvent]] = {
    "broker_session_established": _decode_established,
    "broker_session_ended": lambda stored, _: broker_session.BrokerSessionEnded(
        stored.broker_id, stored.session_id, stored.epoch, stored.reason
    ),
    "broker_drain_set": lambda stored, _: broker_session.BrokerDrainSet(
        stored.broker_id,
        stored.session_id,
        stored.draining,
        stored.units_per_second,
        stored.revision,
    ),
    "broker_load_reported": lambda stored, _: broker_session.BrokerLoadReported(
        stored.broker_id, stored.session_id, stored.load.SerializeToString(deterministic=True)
    ),
    "capacity_granted": lambda stored, _: broker_session.CapacityGranted(
        stored.broker_id, stored.session_id, stored.units
    ),
}
