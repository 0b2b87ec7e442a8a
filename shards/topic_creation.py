"""Creating topics, up to a thousand in one record, each accepted or refused by itself."""

from __future__ import annotations

from collections.abc import Mapping

from nextgen.kernel.decider import Accepted, Rejected, fold
from protos.nextgen.v1.shard_service_pb2 import CommandResult, TopicOutcome
from shards.command_answer import Answer, record
from shards.domain import topic
from shards.domain.parent_gate import ParentKind
from shards.domain.topic import CreateTopic, TopicState
from shards.parent_gates import Admission, ParentGates, ParentRead
from shards.shard_state import ShardState
from shards.wire import rejected_topic
from shards.wire_command import NewTopic, OnNewTopics
from shards.wire_event import DomainEvent, to_properties

Admissions = Mapping[str, Admission | Rejected]


class TopicCreation:
    """Decides creates of topics for one shard, for one term."""

    def __init__(self, state: ShardState, gates: ParentGates) -> None:
        self._state = state
        self._gates = gates

    def attempt(self, command: OnNewTopics, reads: dict[str, ParentRead]) -> Answer | list[str]:
        """Decide and propose; or return the namespaces that must be read first."""
        wanted = {
            each.name.namespace_text: None
            for each in command.topics
            if isinstance(each, NewTopic) and each.refusal is None
        }
        admissions: dict[str, Admission | Rejected] = {}
        unread: list[str] = []
        for name, admission in self._gates.admit(ParentKind.NAMESPACE, wanted, reads).items():
            if admission is None:
                unread.append(name)
            else:
                admissions[name] = admission
        return unread or self._create(command, admissions)

    def _create(self, command: OnNewTopics, admissions: Admissions) -> Answer:
        topics = [each for each in command.topics if isinstance(each, NewTopic)]
        topic_ids = iter(self._state.mint_all([each.slot for each in topics]))
        names = [each.name.base_text for each in topics]
        present = dict(zip(names, self._state.load_topics(names), strict=True))
        time_ms = self._state.now_ms()

        opened: set[str] = set()
        events: list[DomainEvent] = []
        outcomes: list[TopicOutcome] = []
        for new in command.topics:
            if isinstance(new, Rejected):
                outcomes.append(rejected_topic(new))
                continue
            topic_id = next(topic_ids)
            decision = _decide(new, topic_id, admissions, present, time_ms)
            if isinstance(decision, Rejected):
                outcomes.append(rejected_topic(decision))
                continue
            namespace = new.name.namespace_text
            if namespace not in opened:
                opened.add(namespace)
                admission = admissions[namespace]
                assert isinstance(admission, Admission)
                events += admission.events
            events += decision.events
            outcomes.append(TopicOutcome(topic_id=topic_id))
        result = CommandResult(topics=outcomes)
        return record(self._state, command.command_id, events, result, time_ms=time_ms)


def _decide(
    new: NewTopic,
    topic_id: str,
    admissions: Admissions,
    present: dict[str, TopicState],
    time_ms: int,
) -> Accepted[topic.TopicEvent] | Rejected:
    if new.refusal is not None:
        return new.refusal
    name = new.name.base_text
    before = present[name]
    admission = admissions[new.name.namespace_text]
    if isinstance(admission, Rejected):
        return admission
    command = CreateTopic(
        topic_id,
        new.name,
        admission.parent_id,
        time_ms,
        new.spec.partitions,
        to_properties(new.spec.properties),
    )
    decision = topic.decide(before, command)
    if isinstance(decision, Accepted):
        # The same name may come again in the same batch.
        present[name] = fold(topic.evolve, before, decision.events)
    return decision
