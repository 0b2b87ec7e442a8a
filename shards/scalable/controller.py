"""The controller of a shard's scalable topics: one per term, started by the shard leader.

It keeps nothing that a new leader would miss. What is to be done is in the topics' own states: it
is found by the view's index of topics with work, and by the notes of commands that were committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from nextgen.kernel.errors import MetadataError, ProposalLost
from nextgen.kernel.limits.scalable import SCALABLE_TOPICS_AT_WORK_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import ExecuteRequest
from shards.domain.scalable.state import ScalableTopic
from shards.domain.states import StateKind
from shards.scalable.pruning import Pruning
from shards.scalable.scaling.auto_scaler import AutoScaler
from shards.scalable.topic_work import TopicWork, WorkDependencies
from shards.scalable.unknown_subscriptions import FindKnown, adopt_unknown

_LOOK_SECONDS = 60.0
"""Between two looks at the index. Commands are noted at once, so nothing is found but what a failed
note left behind."""

_PAGE = 256

_logger = structlog.get_logger(__name__)


class ScalableController:
    """Carries on the changes of one shard's scalable topics, for one term."""

    def __init__(self, shard_id: int, dependencies: WorkDependencies) -> None:
        self._shard_id = shard_id
        self._state = dependencies.state
        self._dependencies = dependencies
        self._works: dict[str, TopicWork] = {}
        self._has_room = asyncio.Event()
        self._is_full = False
        self._is_closed = False
        self._pruning = Pruning(shard_id, dependencies, self.resume)
        self.scaler = AutoScaler(
            dependencies.state,
            dependencies.policies,
            dependencies.directory,
            dependencies.clock,
            dependencies.metrics,
            dependencies.has_ended,
            self.resume,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<ScalableController shard={self._shard_id} topics={len(self._works)}>"

    @property
    def position(self) -> int:
        """The last event position that is known to be committed."""
        return self._state.position

    @property
    def topics(self) -> int:
        """How many scalable topics the shard has; 0 once the term is over."""
        state = self._state
        return 0 if state.term.is_over else state.reads.total(StateKind.SCALABLE_TOPIC)

    @property
    def topics_at_work(self) -> int:
        return len(self._works)

    def start(self) -> None:
        """Begin with what earlier leaders left."""
        self._tasks = [
            keep("scalable_topics", self._find_work),
            keep("segment_pruning", self._pruning.run),
        ]
        self.scaler.start()

    def close(self) -> None:
        """Stop at once; the next leader goes on."""
        self._is_closed = True
        self.scaler.close()
        for task in self._tasks:
            task.cancel()
        for work in self._works.values():
            work.close()

    def resume(self, name: str) -> TopicWork | None:
        """Resume the pending operations of the topic ``name``, and see whether it is to be split or
        merged; call it AFTER a commit.

        Returns the work, None if there is nothing to do, or too much: then it is found later.

        Raises:
            NotLeader: The term is over.
        """
        if not self._is_here(name):
            return None
        topic = self._state.reads.load_scalable(name)
        if topic is not None:
            self.scaler.note(name)
        if topic is None or not topic.has_work or self._is_closed:
            return None
        work = self._works.get(name)
        if work is None:
            if len(self._works) >= SCALABLE_TOPICS_AT_WORK_MAX:
                return None
            work = TopicWork(name, self._dependencies, lambda: self._on_idle(name))
            self._works[name] = work
        work.resume(topic)
        return work

    def look_again(self) -> None:
        """Resume what many topics have pending since this moment: a restore has ended, or slots
        have come."""
        self._has_room.set()

    def let_go(self, is_gone: Callable[[str], bool]) -> None:
        """Stop at topics that another shard carries on from here on, as the next leader would."""
        for name, work in self._works.items():
            if is_gone(name):
                work.close()

    async def adopt_unknown(self, request: ExecuteRequest, find_known: FindKnown) -> None:
        """See ``unknown_subscriptions``; call it BEFORE the commands of ``request`` are decided."""
        await adopt_unknown(self._dependencies, request, find_known)

    async def wait(
        self, name: str, is_settled: Callable[[ScalableTopic | None], bool]
    ) -> ScalableTopic | None:
        """Return the topic once ``is_settled`` is true of it and that is committed.

        Raises:
            ProposalLost: Leadership moved meanwhile. What was waited for may still happen.
        """
        try:
            while not is_settled(topic := self._state.reads.load_scalable(name)):
                self._state.slots.check_key(_routing_key(name))
                work = self.resume(name)
                if work is None:
                    await self._wait_room()
                else:
                    await work.decisions.wait_change()
            await self._state.proposer.confirm()
        except MetadataError as error:
            raise ProposalLost(f"it is begun, but not known to be done: {error}") from error
        return topic

    def _is_here(self, name: str) -> bool:
        return self._state.slots.has(slot_of(_routing_key(name)))

    async def _wait_room(self) -> None:
        # Too many topics are at work, or the state changes this moment.
        await asyncio.sleep(0.1)

    def _on_idle(self, name: str) -> None:
        work = self._works[name]
        if not work.is_idle:
            return
        del self._works[name]
        if self._is_full:
            self._has_room.set()
        if not self._is_closed and not self._state.term.is_over:
            # Something may have been begun since the task looked for the last time.
            self.resume(name)

    async def _find_work(self) -> None:
        while not self._state.term.is_over:
            self._is_full = False
            self._has_room.clear()
            try:
                await self._resume_all()
            except MetadataError as error:
                # The term is over, which the log says a moment later.
                _logger.debug("work is not looked for", shard=self._shard_id, why=str(error))
                return
            with contextlib.suppress(TimeoutError):
                async with timeout(_LOOK_SECONDS):
                    await self._has_room.wait()

    async def _resume_all(self) -> None:
        """Resume what the index has, as far as there is room."""
        after = ""
        while names := self._state.scans.scalable_with_work(after, _PAGE):
            for name in names:
                self._is_full = len(self._works) >= SCALABLE_TOPICS_AT_WORK_MAX
                if self._is_full:
                    return
                self.resume(name)
                # A topic may be large: reading it is a turn of the loop.
                await asyncio.sleep(0)
            after = names[-1]


def _routing_key(name: str) -> str:
    """Return the routing key of a canonical name."""
    return name.partition("://")[2]
