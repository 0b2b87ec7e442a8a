"""What is under way for one scalable topic: tried until it is done, or until the term ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from nextgen.kernel.errors import MetadataError, NotLeader
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import SubscriptionPhase
from shards.metrics import ShardMetrics
from shards.ports import BrokerDirectory, Clock, SegmentBrokers
from shards.scalable.change_progress import ChangeProgress
from shards.scalable.layout_change import LayoutChange
from shards.scalable.scaling.scale_policies import NamespacePolicies
from shards.scalable.segment_removal import SegmentRemoval
from shards.scalable.segment_units import (
    SegmentLookups,
    SegmentMoves,
    SegmentUnassigns,
    SegmentUnits,
)
from shards.scalable.subscription_cursors import SubscriptionCursors
from shards.scalable.topic_decisions import TopicDecisions
from shards.state.shard_state import ShardState

_PAUSE_SECONDS_MIN = 0.02
_PAUSE_SECONDS_MAX = 1.0
"""The pause after an attempt that failed; it doubles after each one."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkDependencies:
    """What the work on all topics of a shard needs; the same for all of them."""

    state: ShardState
    lookups: SegmentLookups
    moves: SegmentMoves
    unassigns: SegmentUnassigns
    brokers: SegmentBrokers
    removal: SegmentRemoval
    clock: Clock
    metrics: ShardMetrics
    policies: NamespacePolicies
    directory: BrokerDirectory
    has_ended: Callable[[str, str], bool]
    """Whether a session of a broker has ended, by the ids of both."""


class TopicWork:
    """Resumes the pending operations of one topic, in two tasks that end when nothing is pending.

    Changes and removals do not wait for each other: messages may take long to go, and no client
    waits for it. ``on_idle`` is called when a task has ended.
    """

    def __init__(
        self, name: str, dependencies: WorkDependencies, on_idle: Callable[[], None]
    ) -> None:
        self._progress = ChangeProgress(dependencies.metrics, dependencies.clock)
        self.decisions = TopicDecisions(dependencies.state, name, self._progress)
        units = SegmentUnits(
            parse_topic(name),
            dependencies.lookups,
            dependencies.moves,
            dependencies.unassigns,
            dependencies.clock,
        )
        self._change = LayoutChange(self.decisions, units, dependencies.brokers, dependencies.clock)
        self._cursors = SubscriptionCursors(self.decisions, units, dependencies.brokers)
        self._removal = dependencies.removal
        self._on_idle = on_idle
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<TopicWork {self.decisions.name} tasks={sorted(self._tasks)}>"

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    def resume(self, topic: ScalableTopic) -> None:
        """Resume the pending operations of ``topic``. A task that pauses goes on at once."""
        self._progress.see(topic)
        if has_changes(topic):
            self._resume("changes", lambda: keep("layout_change", self._carry_changes_on))
        if topic.removals:
            self._resume("removals", lambda: keep("segment_removal", self._carry_removals_on))

    def close(self) -> None:
        """Stop at once; the next leader goes on."""
        for task in self._tasks.values():
            task.cancel()
        self.decisions.note_change()

    def _resume(self, what: str, begin: Callable[[], asyncio.Task[None]]) -> None:
        if what in self._tasks:
            self._wakes[what].set()
            return
        self._wakes[what] = asyncio.Event()
        task = self._tasks[what] = begin()

        def end(_: asyncio.Task[None]) -> None:
            del self._tasks[what]
            self.decisions.note_change()
            self._on_idle()

        task.add_done_callback(end)

    async def _carry_changes_on(self) -> None:
        await self._repeat("changes", has_changes, self._carry_changes)

    async def _carry_removals_on(self) -> None:
        await self._repeat("removals", lambda topic: bool(topic.removals), self._carry_removals)

    async def _repeat(
        self,
        what: str,
        is_wanted: Callable[[ScalableTopic], bool],
        carry: Callable[[ScalableTopic], Awaitable[bool]],
    ) -> None:
        """Call ``carry`` while it ``is_wanted``; pause after each time that it returns False."""
        pause_s = _PAUSE_SECONDS_MIN
        while (topic := self._load()) is not None and is_wanted(topic):
            self._wakes[what].clear()
            if await carry(topic):
                pause_s = _PAUSE_SECONDS_MIN
                continue
            with contextlib.suppress(TimeoutError):
                async with timeout(pause_s):
                    await self._wakes[what].wait()
            pause_s = min(2 * pause_s, _PAUSE_SECONDS_MAX)

    def _load(self) -> ScalableTopic | None:
        try:
            topic = self.decisions.load()
        except NotLeader:
            return None
        self._progress.see(topic)
        return topic

    async def _carry_changes(self, topic: ScalableTopic) -> bool:
        """Carry everything but removals on by a step; return whether no step failed.

        The layout comes first: writers of a range may be waiting for it.
        """
        is_done = True
        if topic.operation is not None:
            is_done = await self._tried(self._change.step(topic, topic.operation))
        for name in _unsettled(topic):
            present = self._load()
            subscription = None if present is None else present.subscriptions.get(name)
            if present is None or subscription is None:
                continue
            if subscription.phase is not SubscriptionPhase.LIVE:
                is_done &= await self._tried(self._cursors.step(present, subscription))
        return is_done

    async def _carry_removals(self, topic: ScalableTopic) -> bool:
        is_done = True
        for segment in topic.removals:
            is_done &= await self._tried(self._removal.remove(self.decisions, topic, segment))
        return is_done

    async def _tried(self, step: Awaitable[None]) -> bool:
        try:
            await step
        except MetadataError as error:
            if not self.decisions.is_over:
                _logger.info("not done yet", topic=self.decisions.name, why=str(error))
            return False
        return True


def has_changes(topic: ScalableTopic) -> bool:
    """Whether something of the layout or of its cursors was begun and is not finished."""
    return topic.operation is not None or any(_unsettled(topic))


def _unsettled(topic: ScalableTopic) -> list[str]:
    return [
        each.name
        for each in topic.subscriptions.values()
        if each.phase is not SubscriptionPhase.LIVE
    ]
