"""Prunes sealed segments that nobody needs any more, for one term.

    drained for every subscription, no parents left ─▶ examined at its broker ─▶ pruned ─▶ removed
                                                        ╰─ retention not over ─▶ postponed

Topics with such a segment are found by an index of the view, ordered by the time of the next look
that is in their state. So no topic is read for which there is nothing to do, and a new leader
examines nothing before its time. What the shard does not know is known to the segment's broker: the
retention in force, and the subscriptions that clients have made there by themselves.
See docs/flows/scalable-topics.md and ADR 0124.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.scalable import (
    PRUNE_LOOK_MS,
    PRUNE_TOPICS_AT_ONCE_MAX,
    PRUNE_TOPICS_PER_LOOK_MAX,
)
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.commands import PostponePrune, PruneSegments
from shards.domain.scalable.retention import examined_again_ms, kept_until_ms
from shards.domain.scalable.state import ScalableTopic
from shards.scalable.layout_change import all_of
from shards.scalable.segment_units import SegmentUnits
from shards.scalable.topic_decisions import TopicDecisions
from shards.scalable.topic_work import WorkDependencies

_logger = structlog.get_logger(__name__)


class Pruning:
    """Prunes the scalable topics of one shard.

    ``on_pruned`` is called with the name of a topic of which segments are to be removed.
    """

    def __init__(
        self, shard_id: int, dependencies: WorkDependencies, on_pruned: Callable[[str], object]
    ) -> None:
        self._shard_id = shard_id
        self._state = dependencies.state
        self._dependencies = dependencies
        self._on_pruned = on_pruned

    def __repr__(self) -> str:
        return f"<Pruning shard={self._shard_id}>"

    async def run(self) -> None:
        """Run until the term is over."""
        while not self._state.term.is_over:
            try:
                await self._look()
            except MetadataError as error:
                if not self._state.term.is_over:
                    _logger.info("not pruned", shard=self._shard_id, why=str(error))
            await asyncio.sleep(PRUNE_LOOK_MS / 1_000)

    async def _look(self) -> None:
        """Examine the topics that are due for longest."""
        now_ms = self._state.now_ms()
        names = self._state.scans.scalable_to_prune(now_ms, PRUNE_TOPICS_PER_LOOK_MAX)
        if names:
            await all_of(
                (self._examine(name, now_ms) for name in names), at_once=PRUNE_TOPICS_AT_ONCE_MAX
            )

    async def _examine(self, name: str, now_ms: int) -> None:
        """Examine the segments of one topic that are due, and prune those that may go.

        Raises:
            MetadataError: Leadership moved, or the topic changed meanwhile.
        """
        topic = self._state.reads.load_scalable(name)
        if topic is None:
            return
        decisions = TopicDecisions(self._state, name)
        gone: list[int] = []
        for segment in topic.prunable:
            number = segment.segment_id
            if topic.postponed.get(number, 0) > now_ms:
                continue
            until_ms = await self._kept_until_ms(topic, segment, now_ms)
            if until_ms <= now_ms:
                gone.append(number)
            else:
                await decisions.decide(topic.topic_id, PostponePrune(number, until_ms))
        if gone:
            # Refused if a subscription was set back meanwhile, or is new.
            await decisions.decide(topic.topic_id, PruneSegments(tuple(gone)))
            self._on_pruned(name)

    async def _kept_until_ms(self, topic: ScalableTopic, segment: Segment, now_ms: int) -> int:
        given = self._dependencies
        units = SegmentUnits(
            parse_topic(topic.name), given.lookups, given.moves, given.unassigns, given.clock
        )
        try:
            usage = await units.at_owner(
                segment, lambda unit, limit_ms: given.brokers.usage(unit, timeout_ms=limit_ms)
            )
        except MetadataError as error:
            self._state.term.check()
            _logger.info("segment not examined", topic=topic.name, why=str(error))
            return examined_again_ms(segment, now_ms)
        return kept_until_ms(topic, segment, usage, now_ms)
