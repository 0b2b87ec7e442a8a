"""The steps of a split, merge, rebucket or migration. A new leader resumes with the next step.

    planned ─▶ children assigned, open, with every cursor ─▶ ready ─▶ parents ended ─▶ committed
       ╰─ for too long ─▶ taken back

Every step may be repeated: brokers answer a repetition as they did the first call. Nothing is asked
of a broker before the events that allow it are committed: each step begins with a lookup, and a
lookup is answered once all that was decided before it is certain.
See docs/flows/scalable-topics.md and ADR 0119.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.scalable import LAYOUT_CHANGE_READY_MS, SEGMENTS_AT_ONCE_MAX
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateSubscription,
    MarkChildrenReady,
    SealSegment,
)
from shards.domain.scalable.state import LayoutOperation, ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType
from shards.ports import Clock, SegmentBrokers
from shards.scalable.segment_units import SegmentUnits
from shards.scalable.topic_decisions import TopicDecisions

_REASON_CHARACTERS_MAX = 200

_logger = structlog.get_logger(__name__)


class LayoutChange:
    """Carries on the operations of one topic, for one term."""

    def __init__(
        self,
        decisions: TopicDecisions,
        units: SegmentUnits,
        brokers: SegmentBrokers,
        clock: Clock,
    ) -> None:
        self._decisions = decisions
        self._units = units
        self._brokers = brokers
        self._clock = clock
        self._tried: tuple[int, float] = (0, 0.0)
        """The operation that was tried last, and when this leader began with it."""
        self._found: set[str] = set()
        """The subscriptions that its parents have, as far as they are known here."""
        self._given: set[str] = set()
        """Those of them that its children were given, and that the topic does not know."""

    async def step(self, topic: ScalableTopic, operation: LayoutOperation) -> None:
        """Carry the operation on by one step.

        Raises:
            MetadataError: The step failed, all or in part. Repeat it.
        """
        if self._tried[0] != operation.operation_id:
            self._tried = (operation.operation_id, self._clock.monotonic())
            self._found.clear()
            self._given.clear()
        if operation.are_children_ready:
            await self._seal(topic, operation)
            return
        try:
            await self._make_ready(topic, operation)
        except MetadataError as error:
            tried_s = self._clock.monotonic() - self._tried[1]
            is_early = tried_s * 1_000 < LAYOUT_CHANGE_READY_MS
            if self._decisions.is_over or is_early or operation.kind is ChangeKind.RESTORE:
                raise
            await self._take_back(topic, operation, str(error))

    async def _make_ready(self, topic: ScalableTopic, operation: LayoutOperation) -> None:
        if operation.kind is ChangeKind.MIGRATE:
            classic = [topic.segments[each] for each in operation.parents]
            if await self._carry_over(topic, classic):
                return  # The children get their cursors with the next step.
        names = [each.name for each in topic.subscriptions.values() if each.has_cursors]
        works = self._opened(operation.children, names)
        if operation.kind is not ChangeKind.MIGRATE:
            works += [self._find_subscriptions(topic, each) for each in operation.parents]
        await all_of(works)
        await self._give_unknown(topic, operation)
        # Refused if there are other subscriptions by now: then the next step makes their cursors.
        command = MarkChildrenReady(operation.operation_id, tuple(names))
        await self._decisions.decide(topic.topic_id, command)

    async def _seal(self, topic: ScalableTopic, operation: LayoutOperation) -> None:
        """End the parents that have not ended, together: writers of each wait for all of them."""
        parents = [topic.segments[each] for each in operation.parents]
        await all_of(
            self._seal_one(topic, operation, parent)
            for parent in parents
            if parent.segment_id not in operation.sealed
        )

    async def _seal_one(
        self, topic: ScalableTopic, operation: LayoutOperation, parent: Segment
    ) -> None:
        sealed = await self._units.at_owner(
            parent, lambda unit, limit_ms: self._brokers.seal(unit, timeout_ms=limit_ms)
        )
        if operation.kind is ChangeKind.MIGRATE:
            # One may have been created since the children were ready. Whatever is created from here
            # on misses nothing: the unit has ended.
            await self._carry_over(topic, [parent])
        else:
            self._found.update(sealed.subscriptions)
            await self._give_unknown(topic, operation)
        now_ms = self._decisions.now_ms()
        command = SealSegment(
            operation.operation_id, parent.segment_id, sealed.end, now_ms, sealed.stored_bytes
        )
        await self._decisions.decide(topic.topic_id, command)

    async def _carry_over(self, topic: ScalableTopic, classic: Sequence[Segment]) -> bool:
        """Have the subscriptions of classic units in the scalable topic; return whether it lacked
        one. Where units differ in a subscription's type, a STREAM it is."""
        found: dict[str, SubscriptionType] = {}

        async def look(segment: Segment) -> None:
            answer = await self._units.at_owner(
                segment,
                lambda unit, limit_ms: self._brokers.subscriptions(unit, timeout_ms=limit_ms),
            )
            for name, type_ in answer.items():
                if found.setdefault(name, type_) is not type_:
                    found[name] = SubscriptionType.STREAM

        await all_of(look(each) for each in classic)
        missing = {name: type_ for name, type_ in found.items() if name not in topic.subscriptions}
        for name, type_ in sorted(missing.items()):
            command = CreateSubscription(name, type_, self._decisions.now_ms())
            await self._decisions.decide(topic.topic_id, command)
        return bool(missing)

    # Subscriptions that clients made at the parents, and that the topic does not know. They, too,
    # begin at the children's beginnings: nobody may be connected when the layout changes.

    async def _find_subscriptions(self, topic: ScalableTopic, parent: int) -> None:
        names = await self._units.at_owner(
            topic.segments[parent],
            lambda unit, limit_ms: self._brokers.subscriptions(unit, timeout_ms=limit_ms),
        )
        self._found.update(names)

    async def _give_unknown(self, topic: ScalableTopic, operation: LayoutOperation) -> None:
        """Have the cursors of subscriptions that were found at parents in all children."""
        names = sorted(self._found - self._given - topic.subscriptions.keys())
        if names:
            await all_of(self._opened(operation.children, names))
            self._given.update(names)

    def _opened(
        self, children: Iterable[Segment], names: Sequence[str]
    ) -> list[Coroutine[Any, Any, None]]:
        return [
            self._units.at_owner(
                child,
                lambda unit, limit_ms: self._brokers.ready(unit, names, timeout_ms=limit_ms),
                may_be_planned=True,
            )
            for child in children
        ]

    async def _take_back(self, topic: ScalableTopic, operation: LayoutOperation, why: str) -> None:
        _logger.warning(
            "taking a layout change back", topic=topic.name, kind=operation.kind.value, why=why
        )
        reason = shortened(why, _REASON_CHARACTERS_MAX)
        command = AbandonLayoutChange(operation.operation_id, reason)
        await self._decisions.decide(topic.topic_id, command)


async def all_of(
    works: Iterable[Coroutine[Any, Any, Any]], *, at_once: int = SEGMENTS_AT_ONCE_MAX
) -> None:
    """Carry out all ``works``, ``at_once`` at one time.

    Raises:
        MetadataError: The first of those that were raised. All works were tried.
    """
    waiting = iter(works)
    errors: list[Exception] = []

    async def carry_out() -> None:
        for work in waiting:
            try:
                await work
            except MetadataError as error:
                errors.append(error)

    try:
        await asyncio.gather(*(carry_out() for _ in range(at_once)))
    finally:
        # Cancelled, maybe before the first of them began.
        for work in waiting:
            work.close()
    for error in errors:
        raise error
