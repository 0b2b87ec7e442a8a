"""Creating topics, up to a thousand in one record, each accepted or refused by itself.

Of topics that clients begin to use the policies of their namespaces decide which come into being,
and with how many partitions. The rule must be the present namespace's: see ``Unavailable``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.routing.names import Domain, TopicName, parse_topic
from protos.nextgen.v1.shard_service_pb2 import TopicOutcome, TopicSpec
from shards.domain import topic
from shards.domain.parent_gate import ParentKind
from shards.domain.policies import NO_PACKED_POLICIES
from shards.domain.renames.names import TopicNameFreed
from shards.domain.scalable import decider as scalable
from shards.domain.scalable.commands import CreateScalableTopic, PlanLayoutChange
from shards.domain.scalable.events import ScalableTopicEvent
from shards.domain.scalable.state import ScalableTopicState, evolve
from shards.domain.scalable.vocabulary import ChangeKind
from shards.domain.states import StateKind
from shards.domain.topic import (
    CreateTopic,
    Topic,
    TopicPoliciesSet,
    TopicState,
    taken_by_twin,
    twin_of,
    unit_names,
)
from shards.inventory.batch_parts import result_of_part, strip_part
from shards.inventory.command_answer import Answer, record
from shards.inventory.forced_deletions import ForcedDeletions
from shards.inventory.parents.gates import Admission, ParentGates, ParentReads, WantedParent
from shards.inventory.renames.pointers import NamePointers, NameUses
from shards.inventory.scalable.commands import OnScalableDecided, note_decided
from shards.inventory.shadows.admissions import ShadowAdmissions
from shards.inventory.topic_bounds import PoliciesByNamespace, TopicBounds, kind_for
from shards.ports import AssignAhead
from shards.state.shard_state import ShardState
from shards.wire.command import NewTopic, OnNewTopics
from shards.wire.event import DomainEvent, to_properties
from shards.wire.inventory import rejected_topic

Admissions = Mapping[str, Admission | Rejected]
"""By namespace."""
_Decision = Accepted[topic.TopicEvent | ScalableTopicEvent] | Rejected
_NONE_FREED: Accepted[TopicNameFreed] | Rejected = Accepted(())


class TopicCreation:
    """Decides creates of topics for one shard, for one term."""

    def __init__(
        self,
        state: ShardState,
        gates: ParentGates,
        bounds: TopicBounds | None,
        forced: ForcedDeletions,
        pointers: NamePointers,
        on_scalable: OnScalableDecided | None = None,
        assign_ahead: AssignAhead | None = None,
    ) -> None:
        """``on_scalable`` is called with each topic that a migration was begun of,
        ``assign_ahead`` with the units of topics on demand."""
        self._state = state
        self._gates = gates
        self._bounds = bounds
        self._forced = forced
        self._pointers = pointers
        self._on_scalable = on_scalable
        self._assign_ahead = assign_ahead

    def attempt(
        self,
        command: OnNewTopics,
        policies: PoliciesByNamespace,
        uses: NameUses,
        reads: ParentReads,
    ) -> Answer | list[WantedParent]:
        """Decide and propose; or return the parents that must be read first.

        ``policies`` are those of the command's namespaces; they are read only where there are
        bounds. ``uses`` is what homes said about names that may be those of renamed topics.

        Raises:
            Unavailable: A name may have become a renamed topic's since, or a namespace was created
                that is not known here yet.
        """
        wanted = [WantedParent(ParentKind.NAMESPACE, name) for name in namespaces_of(command)]
        wanted += sources_of(command)
        found = self._gates.admit(wanted, reads)
        unread = [parent for parent, admission in found.items() if admission is None]
        if unread:
            return unread
        admissions: dict[str, Admission | Rejected] = {}
        shadows = ShadowAdmissions(self._state)
        for parent, admission in found.items():
            assert admission is not None, "all parents are known"
            if parent.kind is ParentKind.NAMESPACE:
                admissions[parent.name] = admission
            else:
                shadows.add(parent, admission)
        return self._create(command, policies, uses, admissions, shadows)

    def _create(
        self,
        command: OnNewTopics,
        policies: PoliciesByNamespace,
        uses: NameUses,
        admissions: Admissions,
        shadows: ShadowAdmissions,
    ) -> Answer:
        topics = [each for each in command.topics if isinstance(each, NewTopic)]
        topic_ids = iter(self._state.ids.mint_all([each.slot for each in topics]))
        names = self._names_read(topics)
        present = dict(zip(names, self._state.reads.load_topics(names), strict=True))
        time_ms = self._state.now_ms()
        forced = self._forced if command.on_demand else None
        have_pointers = self._state.names.have_pointers
        kinds = _kinds(admissions, policies)
        added: Counter[str] = Counter()
        events: list[DomainEvent] = []
        outcomes: list[TopicOutcome] = []
        created: list[Topic] = []
        wanted = _by_policies(command, present, admissions, policies)
        for new in wanted:
            if not isinstance(new, NewTopic):
                outcomes.append(rejected_topic(new) if isinstance(new, Rejected) else new)
                continue
            topic_id = next(topic_ids)
            namespace = new.name.namespace_text
            name = new.name.base_text
            before = present[name]
            if new.spec.migrates and new.refusal is None and before is not None:
                outcomes.append(self._migrate_again(before, time_ms, events))
                continue
            freed = self._freed(new, before, uses) if have_pointers else _NONE_FREED
            decision = self._bounded(
                (freed if isinstance(freed, Rejected) else None)
                or shadows.refusal(new, before)
                or self._check_migration(new, present)
                or _decide(new, topic_id, admissions, kinds, present, time_ms, forced),
                namespace,
                policies,
                added[namespace],
            )
            if isinstance(decision, Rejected):
                present[name] = before
                outcomes.append(rejected_topic(decision))
                continue
            added[namespace] += 1
            if added[namespace] == 1:
                admission = admissions[namespace]
                assert isinstance(admission, Admission)
                events += admission.events
            assert isinstance(freed, Accepted), "a taken name is refused"
            events += shadows.opened_by(new)
            events += freed.events
            events += decision.events
            outcomes.append(TopicOutcome(topic_id=topic_id))
            after = present[name]
            assert after is not None, "an accepted topic is there"
            created.append(after)
        _add_partitions(command, present, outcomes)
        result = result_of_part(command, outcomes)
        answer = record(self._state, command.command_id, events, result, time_ms=time_ms)
        strip_part(result, len(outcomes))
        self._note_migrations(topics, answer)
        if command.on_demand and answer.commit is not None:
            self._assign_units(created, command.preferred_broker_id)
        if self._bounds is not None:
            for namespace, count in added.items():
                self._bounds.note(namespace, count)
        return answer

    def _freed(
        self, new: NewTopic, before: TopicState, uses: NameUses
    ) -> Accepted[TopicNameFreed] | Rejected:
        """Return the events that take a new topic's name from renamed ones, or why it is theirs."""
        if before is not None or new.refusal is not None:
            return _NONE_FREED
        return self._pointers.admit(new.name, uses)

    def _bounded(
        self, decision: _Decision, namespace: str, policies: PoliciesByNamespace, added: int
    ) -> _Decision:
        """Return ``decision``, or why the namespace is full."""
        if self._bounds is None or isinstance(decision, Rejected):
            return decision
        return self._bounds.check(namespace, policies[namespace], added) or decision

    def _check_migration(self, new: NewTopic, present: Mapping[str, TopicState]) -> Rejected | None:
        """Return why a classic topic is not replaced by a scalable one, None if it may be.

        A scalable topic has no shadows, and is none.
        """
        classic = present.get(twin_of(new.name)) if new.spec.migrates else None
        if classic is None:
            return None
        if classic.source:
            why = f"it is a shadow of {classic.source}"
        elif self._state.reads.load_shadow_source(classic.name) is not None:
            why = "shadows were created of it"
        else:
            return None
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"topic {classic.name} cannot become scalable: {why}"
        )

    def _migrate_again(
        self, before: Topic, time_ms: int, events: list[DomainEvent]
    ) -> TopicOutcome:
        """Begin a migration again that was taken back, or join the one that is under way."""
        layout = self._state.reads.load_scalable(before.name)
        if layout is not None and layout.topic_id == before.topic_id:
            decision = scalable.decide(layout, PlanLayoutChange(ChangeKind.MIGRATE, (), time_ms))
            if isinstance(decision, Accepted):
                events += decision.events
                return TopicOutcome(topic_id=before.topic_id)
        exists = f"topic {before.name} already exists"
        return rejected_topic(Rejected(RejectionCode.ALREADY_EXISTS, exists))

    def _assign_units(self, created: Sequence[Topic], preferred_broker_id: str) -> None:
        """Assign the units of topics that clients have just begun to use.

        Segments are left to their lookups, which follow the layout.
        """
        units = [
            parse_topic(unit)
            for topic in created
            if parse_topic(topic.name).domain is not Domain.TOPIC
            for unit in unit_names(topic)
        ]
        if units and self._assign_ahead is not None:
            self._assign_ahead(units, preferred_broker_id)

    def _note_migrations(self, topics: Sequence[NewTopic], answer: Answer) -> None:
        if answer.commit is None or self._on_scalable is None:
            return
        for each in topics:
            if each.spec.migrates:
                note_decided(self._on_scalable, each.name.base_text, answer.commit)

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


def sources_of(command: OnNewTopics) -> list[WantedParent]:
    """Return the sources of the command's valid shadows, with the partitions of these."""
    return [
        WantedParent(ParentKind.TOPIC, each.source, each.spec.partitions)
        for each in command.topics
        if isinstance(each, NewTopic) and each.source
    ]


def existing_topic(topic: Topic) -> TopicOutcome:
    """Return the outcome for a topic that is used and was there before."""
    return TopicOutcome(
        topic_id=topic.topic_id,
        rejection_code=RejectionCode.ALREADY_EXISTS.value,
        message=f"topic {topic.name} already exists",
        partitions=topic.partitions,
    )


def _by_policies(
    command: OnNewTopics,
    present: Mapping[str, TopicState],
    admissions: Admissions,
    policies: PoliciesByNamespace,
) -> tuple[NewTopic | Rejected | TopicOutcome, ...]:
    """Return the command's topics. If policies decide, the absent ones have the partitions that
    their namespace gives them, or its refusal.

    Raises:
        Unavailable: The policies that are known here are not those of the present namespace.
    """
    if not command.by_policy:
        return command.topics
    return tuple(
        [
            each
            if not isinstance(each, NewTopic) or present[each.name.base_text] is not None
            else _by_policy(each, admissions, policies)
            for each in command.topics
        ]
    )


def _by_policy(new: NewTopic, admissions: Admissions, policies: PoliciesByNamespace) -> NewTopic:
    namespace = new.name.namespace_text
    admission = admissions.get(namespace)
    if new.refusal is not None or not isinstance(admission, Admission):
        return new
    namespace_id, rule = policies.on_demand(namespace)
    if namespace_id != admission.parent_id:
        # It was created, perhaps with policies, since the watch has last brought it.
        raise Unavailable(f"the policies of namespace {namespace} are not known here yet")
    if not rule.is_allowed:
        why = rule.problem or "its policy forbids it"
        refusal = Rejected(
            RejectionCode.NOT_FOUND,
            f"topic {new.name.base_text} does not exist, and namespace {namespace} "
            f"does not create topics on demand: {why}",
        )
        return replace(new, refusal=refusal)
    if new.name.domain is Domain.TOPIC or not rule.partitions:
        return new
    return replace(new, spec=TopicSpec(name=new.spec.name, partitions=rule.partitions))


def _add_partitions(
    command: OnNewTopics, present: Mapping[str, TopicState], outcomes: Sequence[TopicOutcome]
) -> None:
    """Have the outcomes say how many partitions a topic has, also one that existed."""
    if not command.by_policy:
        return
    for new, outcome in zip(command.topics, outcomes, strict=True):
        topic = present[new.name.base_text] if isinstance(new, NewTopic) else None
        if topic is not None:
            outcome.partitions = topic.partitions


def _kinds(admissions: Admissions, policies: PoliciesByNamespace) -> dict[str, str]:
    """Return the kind of brokers that serve the topics of each namespace that exists."""
    return {
        namespace: kind_for(policies, namespace, admission.parent_id)
        for namespace, admission in admissions.items()
        if isinstance(admission, Admission)
    }


def _decide(
    new: NewTopic,
    topic_id: str,
    admissions: Admissions,
    kinds: Mapping[str, str],
    present: dict[str, TopicState],
    time_ms: int,
    forced: ForcedDeletions | None,
) -> _Decision:
    if new.refusal is not None:
        return new.refusal
    name = new.name.base_text
    before = present[name]
    admission = admissions[new.name.namespace_text]
    if isinstance(admission, Rejected):
        return admission
    twin = present.get(twin_of(new.name))
    if new.spec.migrates:
        if twin is None:
            absent = f"topic {twin_of(new.name)} does not exist"
            return Rejected(RejectionCode.NOT_FOUND, absent)
        kind = kinds[new.name.namespace_text]
        return _migrate(new, topic_id, admission.parent_id, kind, twin, present, time_ms)
    if before is None and twin is not None:
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
        kinds[new.name.namespace_text],
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


def _migrate(
    new: NewTopic,
    topic_id: str,
    namespace_id: str,
    broker_kind: str,
    classic: Topic,
    present: dict[str, TopicState],
    time_ms: int,
) -> _Decision:
    """Decide that a scalable topic replaces ``classic``, whose units are its first segments."""
    name = new.name.base_text
    order = CreateTopic(
        topic_id, new.name, namespace_id, time_ms, 0, classic.properties, broker_kind
    )
    created = topic.decide(None, order)
    if isinstance(created, Rejected):
        return created
    units = unit_names(classic)
    layout = scalable.decide(None, CreateScalableTopic(name, topic_id, 0, time_ms, units))
    if isinstance(layout, Rejected):
        return layout
    before: ScalableTopicState = None
    planned = scalable.decide(
        fold(evolve, before, layout.events), PlanLayoutChange(ChangeKind.MIGRATE, (), time_ms)
    )
    assert isinstance(planned, Accepted), "a layout of classic units alone is migrated"
    present[name] = fold(topic.evolve, None, created.events)
    policies: tuple[topic.TopicEvent, ...] = ()
    if classic.policies != NO_PACKED_POLICIES:
        policies = (TopicPoliciesSet(name, topic_id, classic.policies, 1),)
        present[name] = fold(topic.evolve, present[name], policies)
    return Accepted((*created.events, *policies, *layout.events, *planned.events))
