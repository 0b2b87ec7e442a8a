"""The steps of a broker manager, marked in the trace of the request for an assignment."""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.telemetry import lookup_steps, tracing
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT
from protos.nextgen.v1.shard_service_pb2 import ObjectName, TopicAssignment
from shards.sessions.session_metadata import Sent, SessionMetadata

_TENANT, _NAMESPACE, _TOPIC = 13, 14, 15
_ARRIVAL = 3
"""Steps of one read: the request, and the arrival of the object."""


def mark_asked(
    coming: Sequence[TopicAssignment], missing: Sequence[ObjectName], metadata: SessionMetadata
) -> None:
    """Mark steps 13 to 15: the objects that are read from inventories, and those that the session
    has."""
    if tracing.active is None:
        return
    _mark_parents(coming, missing, metadata, arrived=False)
    # The inventory and the controller of a topic are one shard: it came with the request.
    lookup_steps.step(_TOPIC, with_request=True)


def mark_arrived(
    coming: Sequence[TopicAssignment], missing: Sequence[ObjectName], metadata: SessionMetadata
) -> None:
    """Mark steps 16 to 18."""
    if tracing.active is None:
        return
    _mark_parents(coming, missing, metadata, arrived=True)
    lookup_steps.step(_TOPIC + _ARRIVAL, with_request=True)


def note_trace(sent: Sent) -> None:
    """Remember the trace in which a tenant or a namespace was sent."""
    if tracing.active is not None:
        sent.trace_id = tracing.current_trace_id()


def mark_received(sequence: int) -> None:
    """Mark step 12: the assignment has its position in the broker's sequence."""
    lookup_steps.step(12, position=sequence)


def _mark_parents(
    coming: Sequence[TopicAssignment],
    missing: Sequence[ObjectName],
    metadata: SessionMetadata,
    *,
    arrived: bool,
) -> None:
    """Mark the tenant and the namespace of the first assignment: a request has one trace."""
    name = parse_topic(coming[0].name)
    read = {(each.kind == KIND_TENANT, each.name) for each in missing}
    shift = _ARRIVAL if arrived else 0
    for number, is_tenant, parent in (
        (_TENANT, True, name.tenant),
        (_NAMESPACE, False, name.namespace_text),
    ):
        if (is_tenant, parent) in read:
            lookup_steps.step(number + shift)
        else:
            lookup_steps.ahead(number + shift, metadata.trace_of(parent))
