"""Decisions on the segments of a scalable topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX, SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.scalable.buckets import buckets_of_new_topic, equal_buckets
from nextgen.kernel.scalable.layout_operations import (
    Child,
    children_of_merge,
    children_of_rebucket,
    children_of_split,
)
from nextgen.kernel.scalable.ranges import WHOLE_RANGE, initial_ranges
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    MarkChildrenReady,
    PlanLayoutChange,
    PostponePrune,
    PruneSegments,
    RemoveSegmentStorage,
    SealSegment,
    SegmentCommand,
)
from shards.domain.scalable.events import (
    LayoutChangeAbandoned,
    LayoutChanged,
    LayoutChangePlanned,
    LayoutEvent,
    SegmentChildrenReady,
    SegmentPrunePostponed,
    SegmentSealed,
    SegmentStorageRemoved,
)
from shards.domain.scalable.state import LayoutOperation, ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase

_Decision = Accepted[LayoutEvent] | Rejected
_PARENTS = {ChangeKind.SPLIT: 1, ChangeKind.MERGE: 2}
"""How many there are. Any number of segments may be given other buckets in one operation."""


def decide(topic: ScalableTopic, command: SegmentCommand) -> _Decision:
    """Decide what ``command`` means for the segments of ``topic``."""
    match command:
        case PlanLayoutChange():
            return _decide_plan(topic, command)
        case MarkChildrenReady():
            return _decide_ready(topic, command)
        case SealSegment():
            return _decide_seal(topic, command)
        case AbandonLayoutChange():
            return _decide_abandon(topic, command)
        case PruneSegments():
            return _decide_prune(topic, command)
        case PostponePrune():
            return _decide_postpone(topic, command)
        case RemoveSegmentStorage():
            if any(each.segment_id == command.segment_id for each in topic.removals):
                removed = SegmentStorageRemoved(topic.name, topic.topic_id, command.segment_id)
                return Accepted((removed,))
            return Accepted(())
        case _:
            assert_never(command)


# Beginning -----------------------------------------------------------------------------------


def _decide_plan(topic: ScalableTopic, command: PlanLayoutChange) -> _Decision:
    operation = topic.operation
    if operation is not None:
        return _decide_plan_again(topic, operation, command)
    if command.kind is ChangeKind.MIGRATE:
        parents = _classic_units(topic, command.segments)
    else:
        parents = _active_segments(topic, command.segments, command.kind)
    if isinstance(parents, Rejected):
        return parents
    parent_ids = tuple([each.segment_id for each in parents])
    made = _children(topic, command, parents)
    if isinstance(made, Rejected):
        return made
    if len(topic.segments) + len(made) > SEGMENTS_PER_TOPIC_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{topic.name} has {len(topic.segments)} segments, with {len(made)} more it would have "
            f"more than {SEGMENTS_PER_TOPIC_MAX}",
        )
    children = [
        child.numbered(topic.next_segment_id + place, topic.epoch + 1, command.time_ms)
        for place, child in enumerate(made)
    ]
    planned = LayoutChangePlanned(
        topic.name,
        topic.topic_id,
        topic.last_operation_id + 1,
        command.kind,
        parent_ids,
        tuple(children),
        command.asked_by,
        command.time_ms,
    )
    return Accepted((planned,))


def _decide_plan_again(
    topic: ScalableTopic, operation: LayoutOperation, command: PlanLayoutChange
) -> _Decision:
    is_same = (operation.kind, operation.parents) == (command.kind, command.segments)
    if command.kind is ChangeKind.MIGRATE:
        is_same = operation.kind is ChangeKind.MIGRATE
    if is_same and command.kind is ChangeKind.REBUCKET:
        is_same = operation.children[0].bucket_count == command.buckets
    if is_same:
        return Accepted(())
    return Rejected(
        RejectionCode.NOT_ALLOWED,
        f"operation {operation.operation_id} of {topic.name} is under way: "
        f"{operation.kind} of {_listed(operation.parents)}",
    )


def _active_segments(
    topic: ScalableTopic, segment_ids: Sequence[int], kind: ChangeKind
) -> list[Segment] | Rejected:
    wanted = _PARENTS.get(kind, max(1, len(set(segment_ids))))
    if kind not in (*_PARENTS, ChangeKind.REBUCKET) or len(segment_ids) != wanted:
        return Rejected(RejectionCode.NOT_ALLOWED, f"no {kind} of {len(segment_ids)} segments")
    segments = []
    for segment_id in segment_ids:
        segment = topic.segments.get(segment_id)
        if segment is None:
            return _no_segment(topic, segment_id)
        if segment.is_sealed:
            return Rejected(
                RejectionCode.NOT_ALLOWED, f"segment {segment_id} of {topic.name} is sealed"
            )
        if segment.legacy_topic_name:
            return _not_allowed(
                topic, segment, f"is {segment.legacy_topic_name}: migrate the topic first"
            )
        segments.append(segment)
    return segments


def _classic_units(topic: ScalableTopic, segment_ids: Sequence[int]) -> list[Segment] | Rejected:
    """Return the classic topic's units, all of which a migration replaces."""
    active = topic.active
    if segment_ids or not all(each.legacy_topic_name for each in active):
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"topic {topic.name} is scalable: nothing is to be migrated"
        )
    return sorted(active, key=lambda each: each.segment_id)


def _children(
    topic: ScalableTopic, command: PlanLayoutChange, parents: Sequence[Segment]
) -> list[Child] | Rejected:
    first = parents[0]
    match command.kind:
        case ChangeKind.SPLIT:
            if first.hash_range.size == 1:
                return _not_allowed(topic, first, "has a range of one value, it cannot be split")
            return children_of_split(first)
        case ChangeKind.MERGE:
            second = parents[1]
            if not first.hash_range.is_adjacent(second.hash_range):
                return _not_allowed(topic, first, f"is not adjacent to segment {second.segment_id}")
            return children_of_merge(first, second)
        case ChangeKind.MIGRATE:
            ids = tuple([each.segment_id for each in parents])
            buckets = buckets_of_new_topic(len(parents))
            return [Child(within, buckets, 0, ids) for within in initial_ranges(len(parents))]
        case _:
            return _rebucketed(topic, command, parents)


def _rebucketed(
    topic: ScalableTopic, command: PlanLayoutChange, parents: Sequence[Segment]
) -> list[Child] | Rejected:
    """Return a successor for each of ``parents``, in its range."""
    if not 1 <= command.buckets <= BUCKETS_PER_SEGMENT_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{command.buckets} entry buckets, a segment has 1 to {BUCKETS_PER_SEGMENT_MAX}",
        )
    buckets = equal_buckets(command.buckets)
    for each in parents:
        if buckets == each.bucket_starts:
            return _not_allowed(topic, each, f"has {command.buckets} entry buckets already")
    return children_of_rebucket(parents, command.buckets)


# Going on ------------------------------------------------------------------------------------


def _decide_ready(topic: ScalableTopic, command: MarkChildrenReady) -> _Decision:
    operation = _under_way(topic, command.operation_id)
    if isinstance(operation, Rejected):
        return operation
    if operation.are_children_ready:
        return Accepted(())
    missing = {name for name, each in topic.subscriptions.items() if each.has_cursors}
    missing.difference_update(command.subscriptions)
    if missing:
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"the children of operation {operation.operation_id} of {topic.name} lack "
            f"{len(missing)} subscriptions, such as {min(missing)!r}",
        )
    return Accepted((SegmentChildrenReady(topic.name, topic.topic_id, command.operation_id),))


def _decide_seal(topic: ScalableTopic, command: SealSegment) -> _Decision:
    segment = topic.segments.get(command.segment_id)
    if segment is not None and segment.is_sealed and not _is_parent(topic, command.segment_id):
        return Accepted(())
    operation = _under_way(topic, command.operation_id)
    if isinstance(operation, Rejected):
        return operation
    if command.segment_id not in operation.parents:
        return _no_segment(topic, command.segment_id)
    if not operation.are_children_ready:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"the children of operation {operation.operation_id} of {topic.name} are not ready",
        )
    if command.segment_id in operation.sealed:
        return Accepted(())
    sealed = SegmentSealed(
        topic.name,
        topic.topic_id,
        command.operation_id,
        command.segment_id,
        command.end,
        command.stored_bytes,
    )
    ends = {**operation.sealed, command.segment_id: command.end}
    if len(ends) < len(operation.parents):
        return Accepted((sealed,))
    if operation.kind is ChangeKind.MIGRATE and (late := _without_cursors(topic)):
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"the segments that follow {topic.name} lack {len(late)} subscriptions, such as "
            f"{min(late)!r}",
        )
    return Accepted((sealed, _committed(topic, operation, ends, command.time_ms)))


def _committed(
    topic: ScalableTopic,
    operation: LayoutOperation,
    ends: Mapping[int, SegmentEnd],
    time_ms: int,
) -> LayoutChanged:
    epoch = topic.epoch + 1
    changed = [
        _ended(topic.segments[each], operation, ends[each], epoch, time_ms)
        for each in operation.parents
    ]
    changed += [
        replace(each, created_at_epoch=epoch, created_at_ms=time_ms) for each in operation.children
    ]
    changed.sort(key=lambda each: each.segment_id)
    return LayoutChanged(
        topic.name,
        topic.topic_id,
        epoch,
        operation.kind,
        operation.operation_id,
        tuple(changed),
    )


def _ended(
    segment: Segment, operation: LayoutOperation, end: SegmentEnd, epoch: int, time_ms: int
) -> Segment:
    if segment.is_sealed:
        # Of a backup: what is there of its messages is what brokers have now.
        return replace(segment, end=end)
    children = [
        each.segment_id for each in operation.children if segment.segment_id in each.parents
    ]
    return replace(
        _of_any_key(segment),
        children=tuple(children),
        is_sealed=True,
        sealed_at_epoch=epoch,
        sealed_at_ms=time_ms,
        end=end,
    )


def _without_cursors(topic: ScalableTopic) -> list[str]:
    """Return the subscriptions that were carried over and may lack a cursor in a segment."""
    return [
        each.name
        for each in topic.subscriptions.values()
        if each.phase is SubscriptionPhase.CREATING
    ]


def _of_any_key(segment: Segment) -> Segment:
    """Return a segment that is sealed, with the range that its messages are of.

    Producers of classic topics do not choose a partition by the ranges of hashes.
    """
    if not segment.legacy_topic_name:
        return segment
    return replace(segment, hash_start=WHOLE_RANGE.start, hash_end=WHOLE_RANGE.end)


def _decide_abandon(topic: ScalableTopic, command: AbandonLayoutChange) -> _Decision:
    operation = topic.operation
    if operation is None or operation.operation_id != command.operation_id:
        if 0 < command.operation_id <= topic.last_operation_id:
            return Accepted(())
        return _no_operation(topic, command.operation_id)
    if operation.kind is ChangeKind.RESTORE:
        # Segments may have ended behind the backup, and nothing else would replace them.
        return _goes_on(f"operation {operation.operation_id} of {topic.name} follows a restore")
    if operation.are_children_ready:
        # From that event on an order to end a parent may be on its way to the parent's owner, of
        # this leader or of an earlier one, and nothing calls it back.
        return _goes_on(
            f"the children of operation {operation.operation_id} of {topic.name} are ready"
        )
    abandoned = LayoutChangeAbandoned(
        topic.name, topic.topic_id, command.operation_id, command.reason
    )
    return Accepted((abandoned,))


# Pruning -------------------------------------------------------------------------------------


def _decide_prune(topic: ScalableTopic, command: PruneSegments) -> _Decision:
    gone: set[int] = set()
    drained = topic.drained
    for segment_id in command.segments:
        segment = topic.segments.get(segment_id)
        if segment is None:
            if not 0 <= segment_id < topic.next_segment_id:
                return _no_segment(topic, segment_id)
            continue  # It was pruned before, or never came into the layout.
        if not segment.is_sealed:
            return _not_allowed(topic, segment, "is active")
        if segment_id not in drained:
            return _not_allowed(topic, segment, "is not drained for every subscription")
        if _is_parent(topic, segment_id):
            return _not_allowed(topic, segment, "is a parent of the operation that is under way")
        gone.add(segment_id)
    for segment_id in sorted(gone):
        if not gone.issuperset(topic.segments[segment_id].parents):
            segment = topic.segments[segment_id]
            return _not_allowed(topic, segment, "has a parent that stays in the layout")
    if not gone:
        return Accepted(())
    changed = [
        replace(
            each,
            parents=tuple([one for one in each.parents if one not in gone]),
            children=tuple([one for one in each.children if one not in gone]),
        )
        for each in topic.segments.values()
        if each.segment_id not in gone and not gone.isdisjoint((*each.parents, *each.children))
    ]
    pruned = LayoutChanged(
        topic.name,
        topic.topic_id,
        topic.epoch + 1,
        ChangeKind.PRUNE,
        0,
        tuple(changed),
        tuple(sorted(gone)),
    )
    return Accepted((pruned,))


def _decide_postpone(topic: ScalableTopic, command: PostponePrune) -> _Decision:
    segment = topic.segments.get(command.segment_id)
    if segment is None or topic.postponed.get(command.segment_id) == command.until_ms:
        return Accepted(())
    if not segment.is_sealed:
        return _not_allowed(topic, segment, "is active")
    postponed = SegmentPrunePostponed(
        topic.name, topic.topic_id, command.segment_id, command.until_ms
    )
    return Accepted((postponed,))


# Refusals ------------------------------------------------------------------------------------


def _under_way(topic: ScalableTopic, operation_id: int) -> LayoutOperation | Rejected:
    operation = topic.operation
    if operation is None or operation.operation_id != operation_id:
        return _no_operation(topic, operation_id)
    return operation


def _is_parent(topic: ScalableTopic, segment_id: int) -> bool:
    return topic.operation is not None and segment_id in topic.operation.parents


def _goes_on(why: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, f"{why}: it can only go on")


def _no_operation(topic: ScalableTopic, operation_id: int) -> Rejected:
    return Rejected(
        RejectionCode.NOT_FOUND, f"no operation {operation_id} of {topic.name} is under way"
    )


def _no_segment(topic: ScalableTopic, segment_id: int) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"{topic.name} has no segment {segment_id}")


def _not_allowed(topic: ScalableTopic, segment: Segment, why: str) -> Rejected:
    return Rejected(
        RejectionCode.NOT_ALLOWED, f"segment {segment.segment_id} of {topic.name} {why}"
    )


def _listed(segment_ids: Iterable[int]) -> str:
    return ", ".join(map(str, segment_ids))
