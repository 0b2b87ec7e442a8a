"""Notes which subscriptions have acknowledged everything in which sealed segments.

The owner of a segment reports it to its manager, and the manager to the shard of the segment's
topic. A mark is decided like a command, so the distribution that follows from it is in its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.scalable import DRAINED_UNITS_PER_MESSAGE_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.replication.ports import Commit
from protos.nextgen.v1.shard_service_pb2 import DrainedMark
from shards.domain.assignment import unit_key
from shards.domain.scalable.commands import MarkDrained
from shards.domain.scalable.decider import decide
from shards.domain.scalable.state import ScalableTopic
from shards.state.shard_state import ShardState


class DrainedMarks:
    """The drain marks of one shard's scalable topics, for one term."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    async def mark(self, marks: Sequence[DrainedMark]) -> list[bool]:
        """Return, in order, whether each mark is settled: noted, or of no use.

        One of a segment that is not recorded as sealed is not settled: the owner knows its end
        before the log does. Nor is one of a topic whose slot leaves meanwhile. May be repeated.

        Raises:
            InvalidRequest: Too many marks, or a name that is none.
            StaleShardMap: A topic has its slot in another shard.
            NotLeader, Overloaded, Refused, ProposalLost: See ``Proposer.propose``.
        """
        if not 0 < len(marks) <= DRAINED_UNITS_PER_MESSAGE_MAX:
            raise InvalidRequest(
                f"{len(marks)} drained units, 1 to {DRAINED_UNITS_PER_MESSAGE_MAX} are allowed"
            )
        names = [_name_of(mark) for mark in marks]
        for name in names:
            self._state.slots.check_key(name.routing_key)
        settled: list[bool] = []
        commits: list[asyncio.Future[Commit]] = []
        for mark, name in zip(marks, names, strict=True):
            if settled:
                # A decision distributes the segments of a topic anew: one a turn of the loop.
                await asyncio.sleep(0)
            settled.append(self._settle(mark, name, commits))
        if commits:
            await asyncio.gather(*commits)
        else:
            await self._state.proposer.confirm()
        return settled

    def _settle(
        self, mark: DrainedMark, name: TopicName, commits: list[asyncio.Future[Commit]]
    ) -> bool:
        """Decide on one mark, and propose what follows. No await: that is the lock."""
        if not self._state.slots.has(slot_of(name.routing_key)):
            return False
        topic = self._topic_of(name)
        if topic is None or not self._is_of_owner(mark):
            return True
        segment_id = _segment_of(topic, name)
        if segment_id is None:
            return True
        decision = decide(topic, MarkDrained(mark.subscription, segment_id))
        if isinstance(decision, Rejected):
            return decision.code is not RejectionCode.NOT_ALLOWED
        if decision.events:
            commits.append(self._state.proposer.propose(decision.events))
        return True

    def _topic_of(self, name: TopicName) -> ScalableTopic | None:
        """Return the scalable topic of a segment's own name, or of a classic name that it had."""
        text = TopicName(Domain.TOPIC, name.tenant, name.namespace, name.base_name).text
        return self._state.reads.load_scalable(text)

    def _is_of_owner(self, mark: DrainedMark) -> bool:
        """Return whether the mark comes from the unit's present assignment. Marks of earlier owners
        are not needed, because the present owner reports by itself."""
        unit = mark.unit
        (assignment,) = self._state.reads.load_assignments([unit_key(unit.topic_id, unit.unit)])
        return (
            assignment is not None
            and assignment.name == unit.name
            and assignment.epoch == unit.epoch
            and assignment.session_id == unit.session_id
        )


def _name_of(mark: DrainedMark) -> TopicName:
    try:
        return parse_topic(mark.unit.name)
    except InvalidName as error:
        raise InvalidRequest(f"a drained unit: {error}") from error


def _segment_of(topic: ScalableTopic, name: TopicName) -> int | None:
    """Return the id of the segment that is stored under a name, None if none is."""
    of_topic = TopicName(Domain.TOPIC, name.tenant, name.namespace, name.base_name)
    if name.segment is not None:
        segment = topic.segments.get(name.segment.segment_id)
        return segment.segment_id if segment and segment.name_in(of_topic) == name.text else None
    for segment in topic.segments.values():
        if segment.legacy_topic_name == name.text:
            return segment.segment_id
    return None
