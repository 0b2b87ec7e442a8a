"""Lookup answers, assignments and releases as protobuf."""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.placement import SHARE_RETRY_MS
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment, TopicRelease
from shards.domain.assignment import Assignment
from shards.domain.topic import Topic
from shards.wire.inventory import topic_message

_RETRYABLE = frozenset(
    {RejectionCode.NO_BROKER, RejectionCode.NO_CAPACITY, RejectionCode.SHARE_EXCEEDED}
)
"""Retryable rejections: a broker may register, capacity may be leased or freed."""


def served_answer(
    assignment: Assignment, broker: BrokerRecorded, *, shard_id: int, position: int
) -> LookupAnswer:
    """Return the answer that ``broker`` serves a unit, as of ``position`` in the shard's log."""
    return LookupAnswer(
        topic=assignment.name,
        broker_id=assignment.broker_id,
        broker_url=broker.endpoints.pulsar_url,
        broker_grpc=broker.endpoints.grpc,
        epoch=assignment.epoch,
        session_id=assignment.session_id,
        topic_id=assignment.topic_id,
        shard_id=shard_id,
        position=position,
    )


def rejected_answer(
    name: str, rejected: Rejected, *, shard_id: int, position: int, partitions: int = 0
) -> LookupAnswer:
    """Return the answer that no broker serves a name, and why."""
    is_partitioned = rejected.code is RejectionCode.PARTITIONED
    return LookupAnswer(
        topic=name,
        shard_id=shard_id,
        position=position,
        rejection_code=rejected.code.value,
        message=rejected.message,
        partitions=partitions if is_partitioned else 0,
        retryable=rejected.code in _RETRYABLE,
        retry_after_ms=SHARE_RETRY_MS if rejected.code is RejectionCode.SHARE_EXCEEDED else 0,
    )


def assignment_message(
    topic: Topic, assignment: Assignment, shard_id: int, *, take_over: bool = False
) -> TopicAssignment:
    """Return an assignment for its broker, the topic's own metadata included."""
    return TopicAssignment(
        topic=topic_message(topic),
        unit=assignment.unit,
        name=assignment.name,
        epoch=assignment.epoch,
        shard_id=shard_id,
        take_over=take_over,
    )


def release_message(
    ended: Assignment,
    successor: Assignment | None,
    broker: BrokerRecorded | None,
    *,
    is_deleted: bool = False,
) -> TopicRelease:
    """Return the release for the old owner. ``broker`` serves ``successor``, if known.

    ``is_deleted``: the topic's deletion is committed, so the unit's messages may be removed.
    """
    release = TopicRelease(
        topic_id=ended.topic_id,
        unit=ended.unit,
        name=ended.name,
        epoch=ended.epoch,
        is_deleted=is_deleted,
    )
    if successor is not None:
        release.new_broker_id = successor.broker_id
        release.new_epoch = successor.epoch
    if broker is not None:
        release.new_broker_grpc = broker.endpoints.grpc
        release.new_broker_url = broker.endpoints.pulsar_url
    return release
