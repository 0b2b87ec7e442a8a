"""Events of broker sessions, stored and in the domain: a part of ``wire.event``."""

from __future__ import annotations

from typing import Any

from nextgen.client.wire.fields import FieldMap
from protos.nextgen.v1 import events_pb2 as pb
from shards.domain import broker_session
from shards.domain.broker_session import BrokerSession, Endpoints

ENDPOINTS = FieldMap(Endpoints, pb.BrokerEndpoints)


def to_recorded(session: BrokerSession) -> pb.BrokerRecorded:
    """Return the session as the cluster manager and the broker directory know it."""
    return pb.BrokerRecorded(
        broker_id=session.broker_id,
        session_id=session.session_id,
        epoch=session.epoch,
        is_live=session.is_live,
        endpoints=ENDPOINTS.to_stored(session.endpoints),
        capacity_units=session.capacity_units,
        zone=session.zone,
        rack=session.rack,
        quarantined_until_ms=session.quarantined_until_ms,
        draining=session.draining,
        drain_units_per_second=session.drain_units_per_second,
        revision=session.revision,
        announced_units=session.announced_units,
        kind=session.kind,
    )


def _pack_load(stored: pb.LoadReport) -> bytes:
    return stored.SerializeToString(deterministic=True)


SESSION_EVENTS: dict[str, FieldMap[Any, Any]] = {
    "broker_session_established": FieldMap(
        broker_session.BrokerSessionEstablished,
        pb.BrokerSessionEstablished,
        converted={"endpoints": ENDPOINTS.one},
    ),
    "broker_session_ended": FieldMap(broker_session.BrokerSessionEnded, pb.BrokerSessionEnded),
    "broker_drain_set": FieldMap(broker_session.BrokerDrainSet, pb.BrokerDrainSet),
    "broker_capacity_set": FieldMap(broker_session.BrokerCapacitySet, pb.BrokerCapacitySet),
    "broker_load_reported": FieldMap(
        broker_session.BrokerLoadReported,
        pb.BrokerLoadReported,
        converted={"load": (pb.LoadReport.FromString, _pack_load)},
    ),
    "capacity_granted": FieldMap(broker_session.CapacityGranted, pb.CapacityGranted),
}
"""By the name of the payload."""
