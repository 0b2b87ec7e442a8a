"""Scalable topics for tests: histories by commands, and commands at random."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected
from nextgen.kernel.scalable.segments import SegmentEnd
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateScalableTopic,
    CreateSubscription,
    DeleteScalableTopic,
    DeleteSubscription,
    FinishSubscriptionDeletion,
    MarkChildrenReady,
    MarkDrained,
    MarkSubscriptionReady,
    PlanLayoutChange,
    PostponePrune,
    PruneSegments,
    RegisterConsumer,
    RemoveConsumer,
    RemoveSegmentStorage,
    ScalableTopicCommand,
    SealSegment,
    SeekSubscription,
)
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import ScalableTopicEvent
from shards.domain.scalable.state import ScalableTopic, ScalableTopicState, evolve
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase, SubscriptionType

NAME = "topic://acme/orders/paid"
END = SegmentEnd(4, 17)
SPLIT, MERGE, REBUCKET = ChangeKind.SPLIT, ChangeKind.MERGE, ChangeKind.REBUCKET
STREAM, CHECKPOINT = SubscriptionType.STREAM, SubscriptionType.CHECKPOINT


def create(segments: int = 1, topic_id: str = "topic-1") -> CreateScalableTopic:
    return CreateScalableTopic(NAME, topic_id, segments, 1_000)


def migrate(partitions: int = 2) -> tuple[CreateScalableTopic, PlanLayoutChange]:
    """Return the commands that a classic topic of ``partitions`` begins to be scalable with."""
    names = [f"persistent://acme/orders/paid-partition-{each}" for each in range(partitions)]
    made = CreateScalableTopic(NAME, "topic-1", 0, 1_000, tuple(names))
    return made, PlanLayoutChange(ChangeKind.MIGRATE, (), 2_000)


def plan(
    kind: ChangeKind, *segments: int, buckets: int = 0, time_ms: int = 2_000
) -> PlanLayoutChange:
    return PlanLayoutChange(kind, segments, time_ms, buckets)


def accepted(topic: ScalableTopicState, command: ScalableTopicCommand) -> list[ScalableTopicEvent]:
    """Return the events of a command that must be accepted."""
    decision = decide(topic, command)
    assert isinstance(decision, Accepted), decision
    return list(decision.events)


def refused(topic: ScalableTopicState, command: ScalableTopicCommand) -> Rejected:
    """Return the refusal of a command that must be refused."""
    decision = decide(topic, command)
    assert isinstance(decision, Rejected), decision
    return decision


def after(topic: ScalableTopicState, *commands: ScalableTopicCommand) -> ScalableTopic:
    """Return the topic after ``commands``, all of which must be accepted."""
    for command in commands:
        for event in accepted(topic, command):
            topic = evolve(topic, event)
    assert topic is not None
    return topic


def new_topic(segments: int = 1) -> ScalableTopic:
    return after(None, create(segments))


def finish(topic: ScalableTopic, time_ms: int = 3_000) -> ScalableTopic:
    """Return the topic after the operation that is under way."""
    operation = topic.operation
    assert operation is not None
    ready = MarkChildrenReady(operation.operation_id, tuple(topic.subscriptions))
    topic = after(topic, ready)
    if operation.kind is ChangeKind.MIGRATE:
        ids = (*topic.segments, *[each.segment_id for each in operation.children])
        for each in topic.subscriptions.values():
            if each.phase is SubscriptionPhase.CREATING:
                topic = after(topic, MarkSubscriptionReady(each.name, ids))
    for segment_id in operation.parents:
        topic = after(topic, SealSegment(operation.operation_id, segment_id, END, time_ms))
    return topic


def changed(
    topic: ScalableTopic, kind: ChangeKind, *segments: int, buckets: int = 0
) -> ScalableTopic:
    """Return the topic after a whole split, merge or rebucket."""
    return finish(after(topic, plan(kind, *segments, buckets=buckets)))


def registered(topic: ScalableTopic, *names: str, takes_buckets: bool = True) -> ScalableTopic:
    """Return the topic with consumers of the stream ``s``."""
    for name in names:
        topic = after(topic, RegisterConsumer("s", name, STREAM, takes_buckets, 1_000))
    return topic


def shares(topic: ScalableTopic, subscription: str = "s") -> dict[str, tuple[int, ...]]:
    """Return the segments of each consumer of a subscription."""
    assigned = topic.subscriptions[subscription].assigned
    return {each.consumer_name: each.segments for each in assigned}


# At random ---------------------------------------------------------------------------------------

_segment_ids = st.integers(0, 12)
_operation_ids = st.integers(0, 6)
_subscriptions = st.sampled_from(["s", "t"])
_consumers = st.sampled_from(["a", "b", "c", "d"])
_types = st.sampled_from(SubscriptionType)

COMMANDS: st.SearchStrategy[ScalableTopicCommand] = st.one_of(
    st.builds(create, st.sampled_from([1, 2, 3]), st.sampled_from(["topic-1", "topic-2"])),
    st.builds(DeleteScalableTopic, st.just(NAME), st.sampled_from(["topic-1", "topic-2"])),
    st.builds(lambda one: plan(SPLIT, one), _segment_ids),
    st.builds(lambda one, two: plan(MERGE, one, two), _segment_ids, _segment_ids),
    st.builds(
        lambda one, buckets: plan(REBUCKET, one, buckets=buckets), _segment_ids, st.integers(0, 3)
    ),
    st.just(PlanLayoutChange(ChangeKind.MIGRATE, (), 2_000)),
    st.builds(
        MarkChildrenReady, _operation_ids, st.sampled_from([(), ("s",), ("s", "t"), ("s", "t")])
    ),
    st.builds(
        SealSegment,
        _operation_ids,
        _segment_ids,
        st.just(END),
        st.just(3_000),
        st.sampled_from([0, 7]),
    ),
    st.builds(AbandonLayoutChange, _operation_ids, st.just("asked")),
    st.builds(PruneSegments, st.lists(_segment_ids, max_size=3).map(tuple)),
    st.builds(PostponePrune, _segment_ids, st.sampled_from([5, 9])),
    st.builds(RemoveSegmentStorage, _segment_ids),
    st.builds(CreateSubscription, _subscriptions, _types, st.just(1_000)),
    st.builds(SeekSubscription, _subscriptions, st.sampled_from([0, 9]), st.booleans()),
    st.builds(
        MarkSubscriptionReady,
        _subscriptions,
        st.just(tuple(range(13))),
        st.sampled_from([0, 9]),
        st.booleans(),
    ),
    st.builds(DeleteSubscription, _subscriptions),
    st.builds(FinishSubscriptionDeletion, _subscriptions),
    st.builds(MarkDrained, _subscriptions, _segment_ids),
    st.builds(RegisterConsumer, _subscriptions, _consumers, _types, st.booleans(), st.just(1_000)),
    st.builds(RemoveConsumer, _subscriptions, _consumers, st.sampled_from(["left", "expired"])),
)
"""Any command; most of a history's are refused."""


@st.composite
def histories(draw: st.DrawFn, commands_max: int = 40) -> Sequence[ScalableTopicCommand]:
    """Draw commands that mostly fit the state that they meet, so that layouts grow."""
    count = draw(st.integers(1, 4))
    commands: list[ScalableTopicCommand] = [create(count)]
    if draw(st.booleans()):
        commands = [*migrate(count)]
    begins_with = len(commands)
    topic: ScalableTopicState = None
    for number in range(draw(st.integers(begins_with, commands_max))):
        command = commands[number] if number < begins_with else _fitting(draw, topic)
        if number >= begins_with:
            commands.append(command)
        decision = decide(topic, command)
        if isinstance(decision, Accepted):
            for event in decision.events:
                topic = evolve(topic, event)
    return commands


def _fitting(draw: st.DrawFn, topic: ScalableTopicState) -> ScalableTopicCommand:
    if topic is None or not draw(st.integers(0, 4)):
        return draw(COMMANDS)
    operation = topic.operation
    if operation is not None and draw(st.integers(0, 2)):
        if not operation.are_children_ready:
            return MarkChildrenReady(operation.operation_id, tuple(topic.subscriptions))
        left = [each for each in operation.parents if each not in operation.sealed]
        return SealSegment(operation.operation_id, draw(st.sampled_from(left)), END, 3_000)
    active = topic.active
    at = draw(st.integers(0, len(active) - 1))
    sealed = [each.segment_id for each in topic.segments.values() if each.is_sealed]
    fitting: list[ScalableTopicCommand] = [
        plan(SPLIT, active[at].segment_id),
        plan(REBUCKET, active[at].segment_id, buckets=draw(st.integers(1, 3))),
        RegisterConsumer("s", draw(_consumers), STREAM, draw(st.booleans()), 1_000),
        RemoveConsumer("s", draw(_consumers), "left"),
    ]
    if at:
        fitting.append(plan(MERGE, active[at - 1].segment_id, active[at].segment_id))
    if sealed:
        fitting.append(MarkDrained("s", draw(st.sampled_from(sealed))))
        fitting.append(PostponePrune(draw(st.sampled_from(sealed)), 9))
    if prunable := topic.prunable:
        fitting.append(PruneSegments((draw(st.sampled_from(prunable)).segment_id,)))
    return draw(st.sampled_from(fitting))
