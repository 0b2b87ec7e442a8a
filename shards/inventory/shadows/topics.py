"""Shadows in their own shard: they grow with their source, and are unlisted before they go."""

from __future__ import annotations

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Accepted, Rejected
from nextgen.kernel.limits.cluster import UNITS_PER_RECORD_MAX
from protos.nextgen.v1.shard_service_pb2 import CommandResult, DeleteTopic
from shards.domain import parent_gate, topic
from shards.domain.parent_gate import ParentKind, ReopenParentGate
from shards.domain.topic import GrowTopic, Topic
from shards.inventory.command_answer import Answer, answer_gate, conclude, finish, record
from shards.inventory.topic_deletion import TopicDeletion
from shards.ports import ShadowDirectory
from shards.state.shard_state import ShardState
from shards.wire.command import OnShadows, OnTopic
from shards.wire.event import DomainEvent


class ShadowTopics:
    """Carries out what concerns shadows of one shard, for one term."""

    def __init__(
        self, state: ShardState, directory: ShadowDirectory, topics: TopicDeletion
    ) -> None:
        self._state = state
        self._directory = directory
        self._topics = topics

    def grow(self, command: OnShadows) -> Answer:
        """Give all shadows of a source their partitions.

        The event of the gate comes in any case: a create that read the source before has to read it
        again. The last record carries it.
        """
        body, state = command.body, self._state
        gate = state.reads.load_gate(ParentKind.TOPIC, body.source)
        order = ReopenParentGate(ParentKind.TOPIC, body.source, body.source_id, body.attempt)
        decision = parent_gate.decide(gate, order)
        if isinstance(decision, Rejected):
            answer = conclude(state, command.command_id, decision, CommandResult())
            return answer_gate(state, answer, body.attempt if gate is None else gate.attempt)
        events: list[DomainEvent] = []
        for name in state.scans.shadows_of(body.source):
            before = state.reads.load_topic(name)
            growth = GrowTopic(name, body.partitions, follows_source=True)
            grown = topic.decide(before, growth)
            if isinstance(grown, Accepted):
                events += grown.events
            if len(events) >= UNITS_PER_RECORD_MAX:
                record(state, b"", events, CommandResult())
                events = []
        events += decision.events
        answer = record(state, command.command_id, events, CommandResult())
        return answer_gate(state, answer, body.attempt)

    async def delete(self, command: OnTopic, before: Topic, body: DeleteTopic) -> CommandResult:
        """Delete a shadow, which its source no longer lists then.

        If that fails behind the first step, the shadow is there and gets nothing new: the deletion
        may be repeated.

        Raises:
            MetadataError: The source's shard could not be reached, or leadership moved.
        """
        state, name = self._state, command.name.base_text
        if self._topics.refusal(name, before, body) is None:
            refused = await self._directory.unlist_shadow(before.source, name, before.topic_id)
            if refused is not None:
                raise Unavailable(f"{name} is not taken out of its source: {refused.message}")
            state.slots.check(command.slot)
        present = state.reads.load_topic(name)
        if present is None or present.topic_id != before.topic_id:
            gone = CommandResult(id=before.topic_id)
            return await finish(state, conclude(state, command.command_id, Accepted(()), gone))
        answer = self._topics.delete(command.command_id, name, present, body)
        return await finish(state, answer)
