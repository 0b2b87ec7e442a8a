"""Removes the messages of segments that left their layout: pruned ones, and children not needed.

    assignment ended ─▶ its broker releases the unit ─▶ messages gone ─▶ segment forgotten

Nothing assigns such a segment again, as its layout does not list it. The broker leaves a mark, so
that a late owner does not open it either (ADR 0085).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.events.generations import last_epoch_of_generation
from nextgen.kernel.governance.broker_kind import BrokerKind
from nextgen.kernel.limits.cluster import ASSIGN_TIMEOUT_MS
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.kernel.scalable.segments import Segment
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from shards.domain import assignment as assignments
from shards.domain import topic as topics
from shards.domain.assignment import (
    REASON_SEGMENT_REMOVED,
    Assignment,
    UnassignTopic,
    unit_key,
)
from shards.domain.scalable.commands import RemoveSegmentStorage
from shards.domain.scalable.state import ScalableTopic
from shards.ports import BrokerDirectory, SegmentBrokers, SegmentUnit
from shards.scalable.topic_decisions import TopicDecisions
from shards.state.shard_state import ShardState

_REMOVE_MS = ASSIGN_TIMEOUT_MS
"""For one removal. One that takes longer goes on at the broker, and the next call waits for it."""


class Releases(Protocol):
    """Releases of units at their brokers; ``MoveFinisher`` makes them."""

    async def remove_units(self, ended: Sequence[Assignment]) -> Sequence[Assignment]:
        """Release removed units; return those that no live broker has released.

        Raises:
            MetadataError: A broker was not reached.
        """


class SegmentRemoval:
    """Removes segments of one shard's topics, for one term."""

    def __init__(
        self,
        state: ShardState,
        releases: Releases,
        directory: BrokerDirectory,
        brokers: SegmentBrokers,
        on_topic_deleted: Callable[[str], object],
    ) -> None:
        """``on_topic_deleted`` is called with the namespace of each classic topic that goes with
        the last of its units."""
        self._on_topic_deleted = on_topic_deleted
        self._state = state
        self._releases = releases
        self._directory = directory
        self._brokers = brokers

    async def remove(
        self, decisions: TopicDecisions, topic: ScalableTopic, segment: Segment
    ) -> None:
        """Remove the messages of a segment in the topic's ``removals``, then the segment.

        Raises:
            MetadataError: It is not done. Repeat it.
        """
        # That it left the layout may be a decision which is lost with the term.
        await decisions.confirm()
        assignment = self._assignment(topic, segment)
        if assignment is not None:
            await self._end(assignment)
            await self._remove_messages(assignment)
        # Without one no broker was ever given it, so it has no messages.
        if segment.legacy_topic_name and _is_last_classic(decisions.load(), segment):
            await self._delete_classic(parse_topic(segment.legacy_topic_name))
        await decisions.decide(topic.topic_id, RemoveSegmentStorage(segment.segment_id))

    def _assignment(self, topic: ScalableTopic, segment: Segment) -> Assignment | None:
        topic_id = topic.topic_id
        if segment.legacy_topic_name:
            classic = self._state.reads.load_topic(parse_topic(segment.legacy_topic_name).base_text)
            if classic is None:
                return None
            topic_id = classic.topic_id
        key = unit_key(topic_id, segment.unit.text)
        (assignment,) = self._state.reads.load_assignments([key])
        return assignment

    async def _delete_classic(self, name: TopicName) -> None:
        """Delete the classic topic, of which no unit has messages any more."""
        classic = self._state.reads.load_topic(name.base_text)
        if classic is None:
            return
        decision = topics.decide(classic, topics.DeleteTopic(name.base_text, classic.topic_id))
        assert not isinstance(decision, Rejected), "a topic that exists can be deleted"
        commit = self._state.proposer.propose(decision.events)
        self._on_topic_deleted(name.namespace_text)
        await commit

    async def _end(self, assignment: Assignment) -> None:
        order = UnassignTopic(assignment.topic_id, assignment.unit, REASON_SEGMENT_REMOVED)
        decision = assignments.decide(assignment, order)
        assert not isinstance(decision, Rejected), "any assignment can end"
        if decision.events:
            await self._state.proposer.propose(decision.events)

    async def _remove_messages(self, ended: Assignment) -> None:
        if await self._releases.remove_units([ended]):
            raise Unavailable(f"no broker is there to remove {ended.name}")
        broker = self._broker_for(ended)
        # Lost replicas may have given later epochs than this leader knows, of its generation.
        known = max(ended.epoch, self._state.least_epoch)
        unit = SegmentUnit(
            ended.name,
            ended.topic_id,
            ended.unit,
            last_epoch_of_generation(known),
            broker.endpoints.grpc,
        )
        await self._brokers.remove(unit, timeout_ms=_REMOVE_MS)

    def _broker_for(self, ended: Assignment) -> BrokerRecorded:
        """Return the owner of an ended assignment if it lives, else any live embedded broker."""
        owner = self._directory.session(ended.session_id)
        live = [owner] if owner is not None else self._directory.live()
        for each in live:
            if each.endpoints.grpc and each.kind == BrokerKind.EMBEDDED:
                return each
        raise Unavailable(f"no broker is there to remove {ended.name}")


def _is_last_classic(topic: ScalableTopic | None, segment: Segment) -> bool:
    """Whether no other segment of a topic is a unit of the classic topic."""
    if topic is None:
        return False
    left = [*topic.segments.values(), *topic.removals]
    return not any(
        each.legacy_topic_name and each.segment_id != segment.segment_id for each in left
    )
