"""Decisions on the subscriptions of a scalable topic and on their consumers."""

from __future__ import annotations

from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    SCALABLE_CONSUMER_NAME_BYTES_MAX,
    SCALABLE_CONSUMERS_MAX,
    SCALABLE_SUBSCRIPTIONS_MAX,
)
from shards.domain.scalable.commands import (
    CreateSubscription,
    DeleteSubscription,
    FinishSubscriptionDeletion,
    GroupCommand,
    MarkDrained,
    MarkSubscriptionReady,
    RegisterConsumer,
    RemoveConsumer,
    SeekSubscription,
)
from shards.domain.scalable.events import (
    ScalableConsumerLeft,
    ScalableConsumerRegistered,
    ScalableSubscriptionCreated,
    ScalableSubscriptionDeleted,
    ScalableSubscriptionDeletionStarted,
    ScalableSubscriptionReady,
    ScalableSubscriptionSought,
    SegmentDrained,
    SubscriptionEvent,
)
from shards.domain.scalable.state import ScalableTopic, Subscription
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase, SubscriptionType

_Decision = Accepted[SubscriptionEvent] | Rejected

_OfPresent = (
    SeekSubscription
    | DeleteSubscription
    | FinishSubscriptionDeletion
    | MarkDrained
    | RemoveConsumer
)
"""Commands about a subscription that should be there."""

_FORGETTING = frozenset({SubscriptionPhase.SEEKING, SubscriptionPhase.DELETING})
"""Phases in which a drained segment may have messages again, or none that count."""

_SHOWN_CHARACTERS_MAX = 80
"""Of a subscription's name in a message."""


def decide(topic: ScalableTopic, command: GroupCommand) -> _Decision:
    """Decide what ``command`` means for the subscriptions of ``topic``.

    Who consumes which segments afterwards is not decided here: see ``decider``.
    """
    match command:
        case CreateSubscription():
            return _decide_create(topic, command)
        case RegisterConsumer():
            return _decide_register(topic, command)
        case MarkSubscriptionReady():
            return _decide_ready(topic, command)
    subscription = topic.subscriptions.get(command.subscription)
    if subscription is None:
        return _decide_absent(topic, command)
    return _decide_present(topic, subscription, command)


def _decide_present(
    topic: ScalableTopic, subscription: Subscription, command: _OfPresent
) -> _Decision:
    match command:
        case SeekSubscription():
            return _decide_seek(topic, subscription, command)
        case DeleteSubscription():
            return _decide_delete(topic, subscription)
        case FinishSubscriptionDeletion():
            return _decide_finish(topic, subscription)
        case MarkDrained():
            return _decide_drained(topic, subscription, command)
        case RemoveConsumer():
            return _decide_remove(topic, subscription, command)
        case _:
            assert_never(command)


def segments_with_cursors(topic: ScalableTopic, subscription: Subscription) -> set[int]:
    """Return the segments that are to have a cursor before the subscription is live.

    A sealed segment has none of a subscription that was created later. The children of an operation
    are looked after by the operation until they are ready.
    """
    is_seeking = subscription.phase is SubscriptionPhase.SEEKING
    wanted = {
        each.segment_id for each in topic.segments.values() if is_seeking or not each.is_sealed
    }
    operation = topic.operation
    if operation is not None and operation.are_children_ready:
        wanted.update([each.segment_id for each in operation.children])
    return wanted


def _decide_create(topic: ScalableTopic, command: CreateSubscription) -> _Decision:
    present = topic.subscriptions.get(command.subscription)
    if present is None:
        return _created(topic, command.subscription, command.type, command.time_ms)
    if present.phase is SubscriptionPhase.DELETING:
        return _deleting(topic, present)
    if present.type is not command.type:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"subscription {_shown(present.name)} of {topic.name} is there already as a "
            f"{present.type}, not a {command.type}: delete it first",
        )
    return Accepted(())


def _created(
    topic: ScalableTopic, name: str, type_: SubscriptionType, time_ms: int
) -> Accepted[SubscriptionEvent] | Rejected:
    refusal = check_subscription_name(name)
    if refusal is not None:
        return refusal
    if len(topic.subscriptions) >= SCALABLE_SUBSCRIPTIONS_MAX and not _is_ending(topic):
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{topic.name} has {len(topic.subscriptions)} subscriptions, "
            f"at most {SCALABLE_SUBSCRIPTIONS_MAX} are allowed",
        )
    created = ScalableSubscriptionCreated(topic.name, topic.topic_id, name, type_, time_ms)
    return Accepted((created,))


def _is_ending(topic: ScalableTopic) -> bool:
    """Whether a classic topic ends this moment: one more subscription of it is carried over, as
    nothing takes the migration back."""
    operation = topic.operation
    return (
        operation is not None
        and operation.kind is ChangeKind.MIGRATE
        and operation.are_children_ready
    )


def _decide_register(topic: ScalableTopic, command: RegisterConsumer) -> _Decision:
    events: tuple[SubscriptionEvent, ...] = ()
    present = topic.subscriptions.get(command.subscription)
    if command.type is SubscriptionType.QUEUE:
        return Rejected(RejectionCode.NOT_ALLOWED, "consumers of a queue are not registered")
    if present is None:
        created = _created(topic, command.subscription, command.type, command.time_ms)
        if isinstance(created, Rejected):
            return created
        events = created.events
    elif present.phase is SubscriptionPhase.DELETING:
        return _deleting(topic, present)
    elif present.type is not command.type:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"subscription {_shown(present.name)} of {topic.name} is a {present.type}, "
            f"its consumers cannot be of a {command.type}",
        )
    elif present.consumers.get(command.consumer) is command.takes_buckets:
        return Accepted(())
    refusal = _check_name("consumer", command.consumer, SCALABLE_CONSUMER_NAME_BYTES_MAX)
    if refusal is not None:
        return refusal
    is_new = present is None or command.consumer not in present.consumers
    count = sum(len(each.consumers) for each in topic.subscriptions.values())
    if is_new and count >= SCALABLE_CONSUMERS_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{topic.name} has {count} registered consumers, "
            f"at most {SCALABLE_CONSUMERS_MAX} are allowed",
        )
    registered = ScalableConsumerRegistered(
        topic.name, topic.topic_id, command.subscription, command.consumer, command.takes_buckets
    )
    return Accepted((*events, registered))


def _decide_ready(topic: ScalableTopic, command: MarkSubscriptionReady) -> _Decision:
    subscription = topic.subscriptions.get(command.subscription)
    if subscription is None:
        return _not_found(topic, command.subscription)
    match subscription.phase:
        case SubscriptionPhase.LIVE:
            return Accepted(())
        case SubscriptionPhase.DELETING:
            return _deleting(topic, subscription)
    missing = segments_with_cursors(topic, subscription).difference(command.segments)
    sought = (subscription.seek_to_ms, subscription.skips_all)
    if missing or sought != (command.seek_to_ms, command.skips_all):
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"subscription {_shown(subscription.name)} of {topic.name} changed meanwhile, or "
            f"{len(missing)} segments lack its cursor",
        )
    ready = ScalableSubscriptionReady(topic.name, topic.topic_id, subscription.name)
    drained = [
        SegmentDrained(topic.name, topic.topic_id, subscription.name, each)
        for each in command.drained
        if (segment := topic.segments.get(each)) is not None and segment.is_sealed
    ]
    return Accepted((ready, *drained))


def _decide_seek(
    topic: ScalableTopic, subscription: Subscription, command: SeekSubscription
) -> _Decision:
    if subscription.phase is SubscriptionPhase.DELETING:
        return _deleting(topic, subscription)
    if subscription.type is SubscriptionType.CHECKPOINT:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"subscription {_shown(subscription.name)} of {topic.name} has no cursors",
        )
    is_under_way = subscription.phase is SubscriptionPhase.SEEKING
    wanted = (command.seek_to_ms, command.skips_all)
    if is_under_way and (subscription.seek_to_ms, subscription.skips_all) == wanted:
        return Accepted(())
    sought = ScalableSubscriptionSought(
        topic.name, topic.topic_id, subscription.name, command.seek_to_ms, command.skips_all
    )
    return Accepted((sought,))


def _decide_finish(topic: ScalableTopic, subscription: Subscription) -> _Decision:
    if subscription.phase is not SubscriptionPhase.DELETING:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"subscription {_shown(subscription.name)} of {topic.name} is not being deleted",
        )
    deleted = ScalableSubscriptionDeleted(topic.name, topic.topic_id, subscription.name)
    return Accepted((deleted,))


def _decide_drained(
    topic: ScalableTopic, subscription: Subscription, command: MarkDrained
) -> _Decision:
    segment = topic.segments.get(command.segment_id)
    if segment is None or subscription.phase in _FORGETTING:
        # It was pruned meanwhile, or the report may be of before a seek.
        return Accepted(())
    if not segment.is_sealed:
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"segment {command.segment_id} of {topic.name} is active"
        )
    if command.segment_id in subscription.drained:
        return Accepted(())
    drained = SegmentDrained(topic.name, topic.topic_id, subscription.name, command.segment_id)
    return Accepted((drained,))


def _decide_delete(topic: ScalableTopic, subscription: Subscription) -> _Decision:
    if subscription.phase is SubscriptionPhase.DELETING:
        return Accepted(())
    started = ScalableSubscriptionDeletionStarted(topic.name, topic.topic_id, subscription.name)
    return Accepted((started,))


def _decide_remove(
    topic: ScalableTopic, subscription: Subscription, command: RemoveConsumer
) -> _Decision:
    if command.consumer not in subscription.consumers:
        return Accepted(())
    left = ScalableConsumerLeft(
        topic.name, topic.topic_id, subscription.name, command.consumer, command.reason
    )
    return Accepted((left,))


def _decide_absent(topic: ScalableTopic, command: _OfPresent) -> _Decision:
    """Decide on a command for a subscription that is not there: to end what it had is done."""
    match command:
        case FinishSubscriptionDeletion() | RemoveConsumer() | MarkDrained():
            return Accepted(())
        case _:
            return _not_found(topic, command.subscription)


def check_subscription_name(name: str) -> Rejected | None:
    """Return why no subscription may be called ``name``, None if one may."""
    return _check_name("subscription", name, SUBSCRIPTION_NAME_BYTES_MAX)


def _check_name(what: str, name: str, bytes_max: int) -> Rejected | None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= bytes_max:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"a {what} name has {size} bytes, 1 to {bytes_max} are allowed",
        )
    if any(0xD800 <= ord(character) < 0xE000 for character in name):
        return Rejected(RejectionCode.INVALID_NAME, f"a {what} name has a lone surrogate")
    return None


def _shown(subscription: str) -> str:
    return ascii(shortened(subscription, _SHOWN_CHARACTERS_MAX))


def _not_found(topic: ScalableTopic, subscription: str) -> Rejected:
    return Rejected(
        RejectionCode.NOT_FOUND, f"{topic.name} has no subscription {_shown(subscription)}"
    )


def _deleting(topic: ScalableTopic, subscription: Subscription) -> Rejected:
    return Rejected(
        RejectionCode.NOT_ALLOWED,
        f"subscription {_shown(subscription.name)} of {topic.name} is being deleted",
    )
