"""Carries out the pending change of a subscription: creates, sets or deletes its cursors.

A seek clears the drain marks. Where it sets the cursor back, the owner gives the segment up, so
that no report of before counts; where it goes to the end, the segment is drained. A deletion has
owners give up all segments that may have ended, for a later subscription of the same name.

A subscription is live only with a cursor in every segment that takes messages. Which segments those
are is decided by the aggregate, in one order with the changes of the layout.
"""

from __future__ import annotations

from collections.abc import Iterable

from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.commands import FinishSubscriptionDeletion, MarkSubscriptionReady
from shards.domain.scalable.groups import segments_with_cursors
from shards.domain.scalable.state import ScalableTopic, Subscription
from shards.domain.scalable.vocabulary import SubscriptionPhase, SubscriptionType
from shards.ports import SegmentBrokers, SegmentUnit
from shards.scalable.layout_change import all_of
from shards.scalable.segment_units import SegmentUnits
from shards.scalable.topic_decisions import TopicDecisions


class SubscriptionCursors:
    """The cursors of one topic's subscriptions, for one term."""

    def __init__(
        self, decisions: TopicDecisions, units: SegmentUnits, brokers: SegmentBrokers
    ) -> None:
        self._decisions = decisions
        self._units = units
        self._brokers = brokers

    async def step(self, topic: ScalableTopic, subscription: Subscription) -> None:
        """Carry out the pending change of a subscription that is not live.

        Raises:
            MetadataError: It is not done, or only in some segments. Repeat it.
        """
        # Nothing is asked of a broker before the phase is committed: see ``layout_change``.
        if subscription.phase is SubscriptionPhase.DELETING:
            await self._drop(topic, subscription)
        else:
            await self._set(topic, subscription)

    async def _set(self, topic: ScalableTopic, subscription: Subscription) -> None:
        wanted = segments_with_cursors(topic, subscription)
        await all_of(
            self._set_in(segment, topic, subscription)
            for segment in _segments(topic)
            if segment.segment_id in wanted
        )
        is_seeking = subscription.phase is SubscriptionPhase.SEEKING
        drained = [
            each.segment_id
            for each in topic.segments.values()
            if is_seeking and each.is_sealed and _place_in(each, subscription) is None
        ]
        # Refused if the layout has other segments by now, or another seek came: then once more.
        command = MarkSubscriptionReady(
            subscription.name,
            tuple(sorted(wanted)),
            subscription.seek_to_ms,
            subscription.skips_all,
            tuple(drained),
        )
        await self._decisions.decide(topic.topic_id, command)

    async def _set_in(
        self, segment: Segment, topic: ScalableTopic, subscription: Subscription
    ) -> None:
        name = subscription.name
        is_seeking = subscription.phase is SubscriptionPhase.SEEKING
        place = _place_in(segment, subscription)

        async def set_it(unit: SegmentUnit, limit_ms: int) -> None:
            await self._brokers.ready(unit, [name], timeout_ms=limit_ms)
            if is_seeking:
                await self._brokers.seek(unit, name, place, timeout_ms=limit_ms)

        await self._units.at_owner(
            segment, set_it, may_be_planned=segment.segment_id not in topic.segments
        )
        if is_seeking and place is not None and _may_have_ended(topic, segment):
            await self._end_reports(segment)

    async def _drop(self, topic: ScalableTopic, subscription: Subscription) -> None:
        name = subscription.name
        if subscription.type is not SubscriptionType.CHECKPOINT:
            await all_of(
                self._units.at_owner(
                    segment,
                    lambda unit, limit_ms: self._brokers.drop(unit, name, timeout_ms=limit_ms),
                    may_be_planned=segment.segment_id not in topic.segments,
                )
                for segment in _segments(topic)
            )
            # When all cursors are gone: an attempt that is repeated finds the segments open.
            await all_of(
                self._end_reports(segment)
                for segment in _segments(topic)
                if _may_have_ended(topic, segment)
            )
        await self._decisions.decide(topic.topic_id, FinishSubscriptionDeletion(name))

    async def _end_reports(self, segment: Segment) -> None:
        """Let no report of before count that a segment is drained: it may still arrive, and only
        those of the present assignment count (ADR 0111)."""
        await self._units.unload(segment)


def _segments(topic: ScalableTopic) -> Iterable[Segment]:
    """Return the segments of the layout, and those that an operation is making."""
    yield from topic.segments.values()
    if topic.operation is not None:
        yield from topic.operation.children


def _may_have_ended(topic: ScalableTopic, segment: Segment) -> bool:
    """Whether a segment is sealed, or a parent that an operation may have ended already."""
    operation = topic.operation
    if operation is not None and operation.are_children_ready:
        return segment.is_sealed or segment.segment_id in operation.parents
    return segment.is_sealed


def _place_in(segment: Segment, subscription: Subscription) -> int | None:
    """Return the publish time that a seek goes to in a segment, None for its end."""
    to_ms = subscription.seek_to_ms
    if subscription.skips_all or (segment.is_sealed and segment.sealed_at_ms < to_ms):
        return None
    # Everything in it was published later: brokers need not search.
    return 0 if segment.created_at_ms >= to_ms else to_ms
