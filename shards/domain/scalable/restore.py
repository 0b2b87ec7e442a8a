"""The layout of a backup, brought into a shard: the events that make it what the backup says.

Messages may have gone on behind the backup: segments that it has as active may have ended since,
later ones may have taken their ids, or there may be no messages at all. So a restored layout begins
with an operation that ends every segment of the backup at its broker and gives each range that took
messages a new segment. Epochs and ids of segments begin above all that may have been used (ADR
0101).
"""

from __future__ import annotations

from collections.abc import Iterator

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.scalable import (
    BUCKETS_PER_SEGMENT_MAX,
    SCALABLE_SUBSCRIPTIONS_MAX,
    SEGMENTS_PER_TOPIC_MAX,
)
from nextgen.kernel.routing.names import SEGMENT_ID_MAX
from nextgen.kernel.scalable.ranges import HASH_MAX, are_tiling
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.events import (
    LayoutChangePlanned,
    ScalableSubscriptionCreated,
    ScalableSubscriptionDeletionStarted,
    ScalableSubscriptionReady,
    ScalableSubscriptionSought,
    ScalableTopicEvent,
    ScalableTopicRestored,
)
from shards.domain.scalable.groups import check_subscription_name
from shards.domain.scalable.state import ScalableTopic, ScalableTopicState, Subscription
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase, SubscriptionType

ASKED_BY_RESTORE = "restore"


def restore_scalable(
    before: ScalableTopicState,
    wanted: ScalableTopic,
    topic_id: str | None,
    least_number: int,
    time_ms: int,
) -> Accepted[ScalableTopicEvent] | Rejected:
    """Decide the events of a layout; none if it is there.

    ``topic_id`` is that of the topic in the inventory, None if there is none. ``least_number`` is
    above every epoch and segment id that the backed up cluster can have used.
    """
    if topic_id != wanted.topic_id:
        return Rejected(
            RejectionCode.NOT_FOUND, f"the topic of the layout of {wanted.name} does not exist"
        )
    if before is not None:
        # Both came by one restore: the topic has the id of the backup.
        return Accepted(())
    refusal = _check(wanted)
    if refusal is not None:
        return refusal
    restored = ScalableTopicRestored(
        wanted.name,
        wanted.topic_id,
        max(wanted.epoch + 1, least_number),
        max(wanted.next_segment_id, least_number),
        wanted.last_operation_id,
        tuple([wanted.segments[each] for each in sorted(wanted.segments)]),
        wanted.removals,
    )
    subscriptions = [
        event for each in wanted.subscriptions.values() for event in _subscribed(wanted, each)
    ]
    return Accepted((restored, *subscriptions, *_planned(wanted, restored, time_ms)))


def _subscribed(topic: ScalableTopic, subscription: Subscription) -> Iterator[ScalableTopicEvent]:
    """Yield what makes a subscription, without consumers and drain marks: its cursors may have been
    set back behind the backup, and owners report what is drained once they open a segment."""
    place = (topic.name, topic.topic_id, subscription.name)
    yield ScalableSubscriptionCreated(*place, subscription.type, subscription.created_at_ms)
    match subscription.phase:
        case SubscriptionPhase.LIVE if subscription.type is not SubscriptionType.CHECKPOINT:
            yield ScalableSubscriptionReady(*place)
        case SubscriptionPhase.SEEKING:
            yield ScalableSubscriptionSought(
                *place, subscription.seek_to_ms, subscription.skips_all
            )
        case SubscriptionPhase.DELETING:
            yield ScalableSubscriptionDeletionStarted(*place)


def _planned(
    topic: ScalableTopic, restored: ScalableTopicRestored, time_ms: int
) -> Iterator[LayoutChangePlanned]:
    # A topic that has no room for so many goes on with the segments that it has.
    room = SEGMENTS_PER_TOPIC_MAX - len(topic.segments)
    replaced = topic.active[:room]
    # A migration may have gone on behind the backup, so it is begun again.
    is_classic = any(each.legacy_topic_name for each in replaced)
    all_of_them = tuple(sorted([each.segment_id for each in replaced]))
    children = [
        Segment(
            segment_id=restored.next_segment_id + place,
            hash_start=each.hash_start,
            hash_end=each.hash_end,
            created_at_epoch=restored.epoch + 1,
            created_at_ms=time_ms,
            parents=all_of_them if is_classic else (each.segment_id,),
            bucket_starts=each.bucket_starts,
            merge_depth=each.merge_depth,
        )
        for place, each in enumerate(replaced)
    ]
    ended = [each for each in topic.segments.values() if each.is_sealed]
    parents = tuple(sorted([each.segment_id for each in (*ended, *replaced)]))
    if parents:
        yield LayoutChangePlanned(
            topic.name,
            topic.topic_id,
            restored.last_operation_id + 1,
            ChangeKind.MIGRATE if is_classic else ChangeKind.RESTORE,
            parents,
            tuple(children),
            ASKED_BY_RESTORE,
            time_ms,
        )


def _check(wanted: ScalableTopic) -> Rejected | None:
    """Return why nobody could serve such a layout, None if one can."""
    segments = [*wanted.segments.values(), *wanted.removals]
    if not 1 <= len(wanted.segments) <= SEGMENTS_PER_TOPIC_MAX:
        return _unusable(wanted, f"has {len(wanted.segments)} segments")
    if len(wanted.subscriptions) > SCALABLE_SUBSCRIPTIONS_MAX:
        return _unusable(wanted, f"has {len(wanted.subscriptions)} subscriptions")
    if not 0 <= wanted.next_segment_id <= SEGMENT_ID_MAX - SEGMENTS_PER_TOPIC_MAX:
        return _unusable(wanted, "has used all segment ids")
    if not all(_is_possible(each, wanted.next_segment_id) for each in segments):
        return _unusable(wanted, "has an impossible segment")
    if not are_tiling(each.hash_range for each in wanted.active):
        return _unusable(wanted, "has active segments that do not tile the hashes")
    known = wanted.segments.keys()
    if not all(known >= {*each.parents, *each.children} for each in wanted.segments.values()):
        return _unusable(wanted, "has segments with unknown relatives")
    for name in wanted.subscriptions:
        if (refusal := check_subscription_name(name)) is not None:
            return refusal
    return None


def _is_possible(segment: Segment, next_segment_id: int) -> bool:
    return (
        0 <= segment.segment_id < next_segment_id
        and 0 <= segment.hash_start <= segment.hash_end <= HASH_MAX
        and segment.bucket_count <= BUCKETS_PER_SEGMENT_MAX
    )


def _unusable(wanted: ScalableTopic, why: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, f"the layout of {wanted.name} {why}")
