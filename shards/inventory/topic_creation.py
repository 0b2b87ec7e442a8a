"""Creating topics, up to a thousand in one record, each accepted or refused by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nextgen.kernel.events.decider import Accepted, Rejected, fold
from nextgen.kernel.routing.names import Domain, TopicName
from protos.nextgen.v1.shard_service_pb2 import CommandResult, TopicOutcome
from shards.domain import topic
from shards.domain.parent_gate import ParentKind
from shards.domain.scalable import decider as scalable
from shards.domain.scalable.commands import CreateScalableTopic
from shards.domain.scalable.events import ScalableTopicEvent
from shards.domain.states import StateKind
from shards.domain.topic import CreateTopic, TopicState, taken_by_twin, twin_of
from shards.inventory.command_answer import Answer, record
from shards.inventory.forced_deletions import ForcedDeletions
from shards.inventory.parent_gates import Admission, ParentGates, ParentRead
from shards.inventory.topic_bounds import PoliciesByNamespace, TopicBounds
from shards.state.shard_state import ShardState
from shards.wire.command import NewTopic, OnNewTopics
from shards.wire.event import DomainEvent, to_properties
from shards.wire.inventory import rejected_topic

Admissions = Mapping[str, Admission | Rejected]


class TopicCreation:
    """Decides creates of topics for one shard, for one term."""

    def __init__(
        self,
        state: ShardState,
        gates: ParentGates,
        bounds: TopicBounds | None,
        forced: ForcedDeletions,
    ) -> None:
        self._state = state
        self._gates = gates
        self._bounds = bounds
        self._forced = forced

    def attempt(
        self, command: OnNewTopics, policies: PoliciesByNamespace, reads: dict[str, ParentRead]
    ) -> Answer | list[str]:
        """Decide and propose; or return the namespaces that must be read first.

        ``policies`` are those of the command's namespaces; they are read only where there are
        bounds.
        """
        wanted = dict.fromkeys(namespaces_of(command))
        admissions: dict[str, Admission | Rejected] = {}
        unread: list[str] = []
        for name, admission in self._gates.admit(ParentKind.NAMESPACE, wanted, reads).items():
            if admission is None:
                unread.append(name)
            else:
                admissions[name] = admission
        return unread or self._create(command, policies, admissions)

    def _create(
        self, command: OnNewTopics, policies: PoliciesByNamespace, admissions: Admissions
    ) -> Answer:
        topics = [each for each in command.topics if isinstance(each, NewTopic)]
        topic_ids = iter(self._state.ids.mint_all([each.slot for each in topics]))
        names = self._names_read(topics)
        present = dict(zip(names, self._state.reads.load_topics(names), strict=True))
        time_ms = self._state.now_ms()
        forced = self._forced if command.on_demand else None

        added: Counter[str] = Counter()
        events: list[DomainEvent] = []
        outcomes: list[TopicOutcome] = []
        for new in command.topics:
            if isinstance(new, Rejected):
                outcomes.append(rejected_topic(new))
                continue
            topic_id = next(topic_ids)
            namespace = new.name.namespace_text
            name = new.name.base_text
            before = present[name]
            decision = _decide(new, topic_id, admissions, present, time_ms, forced)
            if isinstance(decision, Accepted) and self._bounds is not None:
                full = self._bounds.check(namespace, policies[namespace], added[namespace])
                if full is not None:
                    present[name] = before
                    decision = full
            if isinstance(decision, Rejected):
                outcomes.append(rejected_topic(decision))
                continue
            added[namespace] += 1
            if added[namespace] == 1:
                admission = admissions[namespace]
                assert isinstance(admission, Admission)
                events += admission.events
            events += decision.events
            outcomes.append(TopicOutcome(topic_id=topic_id))
        result = CommandResult(topics=outcomes)
        answer = record(self._state, command.command_id, events, result, time_ms=time_ms)
        if self._bounds is not None:
            for namespace, count in added.items():
                self._bounds.note(namespace, count)
        return answer

    def _names_read(self, topics: Sequence[NewTopic]) -> list[str]:
        """Return the names that a decision on ``topics`` reads: theirs, and those of twins.

        Nearly no shard has scalable topics, and classic ones have no twins there.
        """
        names = [each.name.base_text for each in topics]
        has_scalable = self._state.reads.total(StateKind.SCALABLE_TOPIC) > 0
        if has_scalable or any(each.name.domain is Domain.TOPIC for each in topics):
            names += [twin for each in topics if (twin := twin_of(each.name))]
        return names


def namespaces_of(command: OnNewTopics) -> list[str]:
    """Return the namespaces of the command's valid topics, each once."""
    names = [
        each.name.namespace_text
        for each in command.topics
        if isinstance(each, NewTopic) and each.refusal is None
    ]
    return list(dict.fromkeys(names))


def _decide(
    new: NewTopic,
    topic_id: str,
    admissions: Admissions,
    present: dict[str, TopicState],
    time_ms: int,
    forced: ForcedDeletions | None,
) -> Accepted[topic.TopicEvent | ScalableTopicEvent] | Rejected:
    if new.refusal is not None:
        return new.refusal
    name = new.name.base_text
    before = present[name]
    admission = admissions[new.name.namespace_text]
    if isinstance(admission, Rejected):
        return admission
    if before is None and present.get(twin_of(new.name)) is not None:
        return taken_by_twin(new.name)
    if forced is not None and before is None and (too_early := forced.check(name)) is not None:
        return too_early
    command = CreateTopic(
        topic_id,
        new.name,
        admission.parent_id,
        time_ms,
        new.spec.partitions,
        to_properties(new.spec.properties),
    )
    decision = topic.decide(before, command)
    if isinstance(decision, Rejected):
        return decision
    # The same name may occur again in the same batch.
    present[name] = fold(topic.evolve, before, decision.events)
    layout = first_layout(new.name, topic_id, new.spec.segments or 1, time_ms)
    return Accepted((*decision.events, *layout))


def first_layout(
    name: TopicName, topic_id: str, segments: int, time_ms: int
) -> tuple[ScalableTopicEvent, ...]:
    """Return the events that give a new topic its segments: none for a classic topic.

    The number of ``segments`` is allowed.
    """
    if name.domain is not Domain.TOPIC:
        return ()
    layout = scalable.decide(None, CreateScalableTopic(name.base_text, topic_id, segments, time_ms))
    assert isinstance(layout, Accepted), "a new topic has no layout, and its segments were checked"
    return layout.events
