"""Splits and merges the scalable topics of one shard by themselves, for one term.

    loads, consumers, policies, operations ─▶ noted ─▶ evaluated ─┬─▶ an operation is begun
                                 a cool-down is over ─────╯       ╰─▶ noted for a later time

A topic is evaluated when something about it changed, and when what held it back by time is over: no
tick goes over all topics. What is noted is soft. A new leader evaluates every topic that has loads
or consumers once; all that the decision looks at is in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import Callable, Collection, Sequence
from itertools import chain

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy, InvalidAutoScale
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.governance.service_settings import ServiceSettings
from nextgen.kernel.limits.scalable import AUTO_SCALE_CLOCK_LEAP_MS
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable import auto_scale
from nextgen.kernel.scalable.auto_scale import Action, Decision
from nextgen.kernel.scalable.segment_load import is_believed
from nextgen.tasks.background import keep, report, start
from nextgen.tasks.interval import ChangingInterval
from nextgen.tasks.timeouts import timeout
from shards.domain.scalable.commands import PlanLayoutChange
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import AutoScaleDecided, LayoutChangePlanned
from shards.domain.scalable.loads import TopicLoads, of_topic, record
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind
from shards.domain.topic import Topic
from shards.metrics import ShardMetrics
from shards.ports import BrokerDirectory, Clock
from shards.scalable.scaling.ownerless_segments import OwnerlessSegments
from shards.scalable.scaling.scale_policies import NamespacePolicies, resolved
from shards.state.shard_state import ShardState

AUTO_SCALE = "auto_scale"
"""The requester of an operation that ``AutoScaler`` started. Stored in events: never renamed."""

_AT_A_TIME = 64
"""Topics that are evaluated before another look at what is due."""

_PAGE = 256
_RETRY_SECONDS = 1.0
"""Pause before a topic is evaluated again whose namespace's policies could not be read."""

_FAILED_SECONDS = 10.0
"""Pause before a topic is evaluated again whose evaluation failed."""

_logger = structlog.get_logger(__name__)


class AutoScaler:
    """Evaluates the scalable topics of one shard. ``begin`` carries on an operation that was
    planned; call it AFTER the commit."""

    def __init__(
        self,
        state: ShardState,
        policies: NamespacePolicies,
        directory: BrokerDirectory,
        clock: Clock,
        metrics: ShardMetrics,
        has_ended: Callable[[str, str], bool],
        begin: Callable[[str], object],
    ) -> None:
        self._state = state
        self._policies = policies
        self._directory = directory
        self._evaluated_by = _own(directory.settings())
        """The settings by which topics are evaluated."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._interval = ChangingInterval(lambda: self._interval_seconds)
        self._clock = clock
        self._metrics = metrics
        self._begin = begin
        self.ownerless = OwnerlessSegments(state, directory, has_ended, clock, self._note_at)
        self._due: dict[str, float] = {}
        """By topic: when it is to be evaluated, in seconds of the monotonic clock."""
        self._order: list[tuple[float, str]] = []
        """A heap of the same; entries that ``_due`` does not have are outdated."""
        self._topics: dict[str, set[str]] = {}
        """By namespace: the topics that were evaluated in this term."""
        self._wake = asyncio.Event()
        self._wall_offset_ms = self._offset_ms()
        self._leapt_at_ms = 0
        """When the wall clock leapt last in this term, as it shows since then; 0: never."""
        self._evaluating = asyncio.Lock()
        self._unread: dict[str, set[str]] = {}
        """By namespace that is being read: its topics that are due."""
        self._reading: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<AutoScaler shard={self._state.shard_id} due={len(self._due)}>"

    def start(self) -> None:
        """Begin with every topic that has loads or consumers."""
        self._unsubscribe = self._directory.on_change(self._settings_changed)
        self._tasks = [keep("auto_scale", self._run), keep("auto_scale_tick", self._tick)]
        self.ownerless.start()

    def close(self) -> None:
        self._unsubscribe()
        self.ownerless.close()
        for task in (*self._tasks, *self._reading):
            task.cancel()

    def note(self, name: str) -> None:
        """Evaluate the topic soon: something about it has changed."""
        self._note_at(name, self._clock.monotonic())

    def note_namespace(self, changed: str) -> None:
        """Evaluate the topics of a namespace or tenant: its policies have changed."""
        for namespace, names in self._topics.items():
            if namespace == changed or namespace.startswith(f"{changed}/"):
                for name in names:
                    self.note(name)

    def _settings_changed(self) -> None:
        """Evaluate every topic if its settings are others than before."""
        before, self._evaluated_by = self._evaluated_by, _own(self._directory.settings())
        if before != self._evaluated_by:
            self._interval.changed()
            for names in self._topics.values():
                for name in names:
                    self.note(name)

    @property
    def _interval_seconds(self) -> float:
        return self._directory.settings().auto_scale_interval_ms / 1_000

    def _note_at(self, name: str, at: float) -> None:
        if self._due.get(name, math.inf) > at:
            self._due[name] = at
            heapq.heappush(self._order, (at, name))
            self._wake.set()

    # ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._note_all()
        while not self._state.term.is_over:
            names = self._take_due()
            if not names:
                await self._wait()
                continue
            to_read: list[str] = []
            for name in names:
                namespace = parse_topic(name).namespace_text
                policies = self._policies.known(namespace)
                if policies is not None:
                    await self._try(name, namespace, policies)
                elif (waiting := self._unread.get(namespace)) is not None:
                    waiting.add(name)
                else:
                    self._unread[namespace] = {name}
                    to_read.append(namespace)
            if to_read:
                # Their shard may have no leader: the topics of other namespaces do not wait.
                start("auto_scale_policies", self._read_and_try(to_read), self._reading)

    async def _read_and_try(self, namespaces: Sequence[str]) -> None:
        """Read namespaces and evaluate their topics that are due."""
        try:
            found = await self._policies.find(namespaces)
        except Exception as error:
            self._metrics.note_auto_scale("failed")
            report("auto_scale_policies", error)
            again_at = self._clock.monotonic() + _FAILED_SECONDS
            for name in chain.from_iterable(map(self._unread.pop, namespaces)):
                self._note_at(name, again_at)
            return
        for namespace in namespaces:
            for name in self._unread.pop(namespace):
                await self._try(name, namespace, found[namespace])

    async def _tick(self) -> None:
        """Evaluate topics of namespaces that are not watched: their policies may have changed."""
        while not self._state.term.is_over:
            await self._interval.wait()
            for namespace in tuple(self._topics):
                if self._policies.known(namespace) is None:
                    self.note_namespace(namespace)

    async def _note_all(self) -> None:
        scans = self._state.scans
        for page in (scans.scalable_with_loads, scans.scalable_with_consumers):
            after = ""
            with contextlib.suppress(MetadataError):  # The term is over.
                while names := page(after, _PAGE):
                    for name in names:
                        self.note(name)
                    after = names[-1]
                    await asyncio.sleep(0)

    def _take_due(self) -> Collection[str]:
        now = self._clock.monotonic()
        names: list[str] = []
        while self._order and self._order[0][0] <= now and len(names) < _AT_A_TIME:
            at, name = heapq.heappop(self._order)
            if self._due.get(name) == at:
                # Removed before it is evaluated: whatever comes meanwhile is noted anew.
                del self._due[name]
                names.append(name)
        return names

    async def _wait(self) -> None:
        self._wake.clear()
        left = self._order[0][0] - self._clock.monotonic() if self._order else None
        with contextlib.suppress(TimeoutError):
            async with timeout(left):
                await self._wake.wait()

    async def _try(self, name: str, namespace: str, policies: Policies | MetadataError) -> None:
        """Evaluate one topic. Whatever is wrong with it, the others are evaluated."""
        now = self._clock.monotonic()
        if isinstance(policies, MetadataError):
            self._note_at(name, now + _RETRY_SECONDS)
            return
        try:
            async with self._evaluating:
                if not self._state.term.is_over:
                    await self._evaluate(name, namespace, policies)
            await asyncio.sleep(0)
        except InvalidAutoScale as error:
            self._metrics.note_auto_scale("invalid_policy")
            _logger.warning("a topic is not scaled", topic=name, why=str(error))
        except MetadataError as error:
            if not self._state.term.is_over:
                self._metrics.note_auto_scale("refused")
                _logger.info("a topic is not scaled now", topic=name, why=str(error))
                self._note_at(name, now + self._interval_seconds)
        except Exception as error:
            self._metrics.note_auto_scale("failed")
            report("auto_scale_evaluation", error)
            self._note_at(name, now + _FAILED_SECONDS)

    async def _evaluate(self, name: str, namespace: str, policies: Policies) -> None:
        """Evaluate one topic and begin what is to be done.

        Raises:
            InvalidAutoScale: Its policy makes no sense. A change of it notes the topic again.
            MetadataError: The operation was refused, or leadership moved.
        """
        reads = self._state.reads
        topic = reads.load_scalable(name)
        if topic is None:
            self._topics.get(namespace, set()).discard(name)
            self.ownerless.forget(name)
            return
        self._topics.setdefault(namespace, set()).add(name)
        if topic.operation is not None:
            return  # Its end notes the topic again.
        inventory = reads.load_topic(name)
        policy = resolved(self._directory.settings().auto_scale, policies, inventory)
        now_ms = self._now_ms()
        loads = self._marked(topic, policy, now_ms)
        decision = auto_scale.decide(
            tuple(topic.segments.values()),
            loads.loads,
            topic.group_sizes,
            policy,
            loads.clocks,
            now_ms,
        )
        self._count(loads, decision, now_ms)
        if decision.again_at_ms:
            left_s = (decision.again_at_ms - now_ms) / 1_000
            self._note_at(name, self._clock.monotonic() + left_s)
        if decision.action is not None:
            await self._plan(topic, inventory, loads, policy, decision.action, now_ms)

    def _marked(self, topic: ScalableTopic, policy: AutoScalePolicy, now_ms: int) -> TopicLoads:
        """Return the loads, marked as cold by the present policy, and without traffic of segments
        that have no owner. No await: that is the lock."""
        before = self._state.reads.load_loads(topic.name)
        if before is None:
            return of_topic(topic, None)
        silent = self.ownerless.silent(topic, of_topic(topic, before))
        event = record(topic, before, silent, policy, now_ms, self._leapt_at_ms)
        if event is not None:
            self._state.check_not_restoring()
            self._state.proposer.propose((event,))
            self.ownerless.recorded(topic.name, silent)
            before = self._state.reads.load_loads(topic.name)
        return of_topic(topic, before)

    def _now_ms(self) -> int:
        """Return what the wall clock shows, and note whether it leapt since the last evaluation."""
        now_ms, offset_ms = self._state.now_ms(), self._offset_ms()
        if abs(offset_ms - self._wall_offset_ms) > AUTO_SCALE_CLOCK_LEAP_MS:
            self._leapt_at_ms = now_ms
            self._metrics.note_auto_scale("clock_leap")
        self._wall_offset_ms = offset_ms
        return now_ms

    def _offset_ms(self) -> float:
        return self._state.now_ms() - 1_000 * self._clock.monotonic()

    def _count(self, loads: TopicLoads, decision: Decision, now_ms: int) -> None:
        self._metrics.note_auto_scale("evaluated")
        clocks = loads.clocks
        times = [each.recorded_at_ms for each in loads.loads.values()]
        times += (clocks.split_at_ms, clocks.merge_at_ms, clocks.rebucket_at_ms)
        if not all(is_believed(each, now_ms) for each in times):
            self._metrics.note_auto_scale("clock_leap")
        if decision.action is not None:
            self._metrics.note_auto_scale(decision.action.kind.value)

    async def _plan(
        self,
        topic: ScalableTopic,
        inventory: Topic | None,
        loads: TopicLoads,
        policy: AutoScalePolicy,
        action: Action,
        now_ms: int,
    ) -> None:
        command = PlanLayoutChange(
            ChangeKind(action.kind.value), action.segments, now_ms, action.buckets, AUTO_SCALE
        )
        decided = decide(topic, command)
        if isinstance(decided, Rejected):
            self._metrics.note_auto_scale("refused")
            _logger.info("an operation is not begun", topic=topic.name, why=decided.message)
            retry_at = self._clock.monotonic() + self._interval_seconds
            self._note_at(topic.name, retry_at)
            return
        planned = next(each for each in decided.events if isinstance(each, LayoutChangePlanned))
        active = {each.segment_id for each in topic.active}
        why = AutoScaleDecided(
            topic.name,
            topic.topic_id,
            planned.operation_id,
            action.kind,
            action.segments,
            action.buckets,
            action.reason,
            now_ms,
            topic.group_sizes,
            policy.text,
            0 if inventory is None else inventory.policies_version,
            tuple([each for each in loads.loads.values() if each.segment_id in active]),
            loads.clocks,
        )
        self._state.check_not_restoring()
        await self._state.proposer.propose((*decided.events, why))
        _logger.info(
            "a topic is scaled",
            topic=topic.name,
            kind=action.kind.value,
            segments=action.segments,
            reason=action.reason.value,
        )
        self._begin(topic.name)


def _own(settings: ServiceSettings) -> tuple[AutoScalePolicy, int]:
    """Return the settings that evaluations depend on."""
    return settings.auto_scale, settings.auto_scale_interval_ms
