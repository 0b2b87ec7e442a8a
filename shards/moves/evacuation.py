"""Moves units away from lost, draining and shrinking brokers, in the background.

    session has units here ──┬─ it ended   ─▶ assigned again, as by a lookup     ─╮  at a pace, the
                             ├─ it drains  ─▶ moved, while its clients go on     ─┤  busiest first
                             │                                                    ╯  until none left
                             ├─ it has more than its capacity ─▶ moved, the idle ones first, until
                             │                                   the shard's part of it fits
                             ╰─ else: left alone

Lookups do not wait for this. There is no state that a new leader would miss: the work left is the
units that the sessions still have. A draining broker that dies is lost; a broker whose drain is
cancelled keeps the units that it still has.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Protocol

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND, REASSIGN_UNITS_PER_SECOND
from nextgen.tasks.background import join, keep, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove
from shards.assignment.broker_sync import BrokerSync
from shards.assignment.unit_reads import UnitReads
from shards.domain.assignment import Assignment
from shards.metrics import ShardMetrics
from shards.moves.evacuation_loads import EvacuationLoads
from shards.moves.evacuation_order import EvacuationOrder
from shards.moves.evacuation_pace import (
    EVACUATION_BATCHES_MAX,
    EVACUATION_UNITS_PER_BATCH_MAX,
    EvacuationTurns,
    NodeEvacuations,
    Pace,
    share_of_rate,
)
from shards.moves.topic_mover import TopicMover
from shards.ports import BrokerDirectory, Clock
from shards.state.shard_state import ShardState

_LOOK_SECONDS = 5.0
"""Between two checks when nothing changes: brokers report their load at most so often."""

_RETRY_SECONDS_MIN = 2.0
_RETRY_SECONDS_MAX = 60.0
"""The pause after a pass that moved nothing, because of a missing lease or a slow move. It doubles
after each such pass, since rules may keep units where they are for good. A change among the brokers
ends it earlier."""

_UNKNOWN_LOOKS = 2
"""Checks after which a session that the directory lacks is looked up at its manager. A new session
appears in a moment; one that ended before the directory's memory began never does."""

_CARRY_TIMEOUT_MS = 20_000
"""For one batch: a move waits for caches and for brokers that hang."""

_logger = structlog.get_logger(__name__)


class Why(StrEnum):
    """Why a session is evacuated: a metric's label."""

    LOST = "lost"
    DRAIN = "drain"
    SHRINK = "shrink"


class Lookups(Protocol):
    """The shard's own lookups. A lookup assigns a unit whose session has ended."""

    async def lookup(self, topics: Sequence[str], *, timeout_ms: int) -> list[LookupAnswer]:
        """Return one answer per name, in order.

        Raises:
            MetadataError: Which of the units were assigned is unknown.
        """


class Evacuation:
    """Evacuations of one shard's units, for one term. ``shard_ids`` returns all shards."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        units: UnitReads,
        lookups: Lookups,
        mover: TopicMover,
        sync: BrokerSync,
        directory: BrokerDirectory,
        shard_ids: Callable[[], Sequence[int]],
        clock: Clock,
        metrics: ShardMetrics,
        node: NodeEvacuations,
        excess: Callable[[str], int] = lambda _session_id: 0,
    ) -> None:
        """``node`` is shared by all shards of the process. ``excess`` returns how many units of
        this shard have to leave a session for lack of capacity."""
        self._node = node
        self._excess = excess
        self._shard_id = shard_id
        self._state = state
        self._units = units
        self._lookups = lookups
        self._mover = mover
        self._sync = sync
        self._directory = directory
        self._shard_ids = shard_ids
        self._clock = clock
        self._metrics = metrics
        self.loads = EvacuationLoads(directory)
        self._lost_pace = Pace(clock.monotonic)
        self._lost_rate = 1.0
        self._sessions: dict[str, asyncio.Task[None]] = {}
        self._brokers: dict[str, str] = {}
        """The brokers of sessions under evacuation, which the directory may lack."""
        self._unknown: dict[str, int] = {}
        self._left_at = -math.inf
        """When a unit last left a session under evacuation."""
        self.on_begin: Callable[[], None] = lambda: None
        """Called when a session begins to be emptied."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe = directory.on_change(self._wake.set)

    def __repr__(self) -> str:
        return f"<Evacuation shard={self._shard_id} sessions={len(self._sessions)}>"

    @property
    def units_under_way(self) -> int:
        """Units that have to leave the sessions under evacuation and have not yet."""
        return sum(map(self._units_to_leave, self._sessions))

    @property
    def is_moving(self) -> bool:
        """Whether units leave lost or draining brokers; not if rules have kept them for a while."""
        if not self._sessions:
            return False
        return self._clock.monotonic() - self._left_at < _RETRY_SECONDS_MAX

    def start(self) -> None:
        """Begin to check the sessions."""
        self._task = keep("evacuations", self._run)

    def close(self) -> None:
        """Stop at once; the next leader goes on with the units that are left."""
        self._unsubscribe()
        for task in (self._task, *self._sessions.values()):
            if task is not None:
                task.cancel()

    def broker_of(self, session_id: str) -> str:
        """Return the broker of a session with units here, "" if it has none any more."""
        known = self._directory.session(session_id)
        if known is not None:
            return known.broker_id
        broker_id = self._brokers.get(session_id, "")
        if not broker_id:
            units = self._state.scans.units_of_session(session_id, "", 1)
            broker_id = units[0].broker_id if units else ""
            if session_id in self._sessions:
                self._brokers[session_id] = broker_id
        return broker_id

    # Checking ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                self._look()
            except MetadataError as error:
                # The term is over, which the log says a moment later.
                _logger.debug("evacuation stops", shard=self._shard_id, why=str(error))
                return
            with contextlib.suppress(TimeoutError):
                async with timeout(_LOOK_SECONDS):
                    await self._wake.wait()

    def _look(self) -> None:
        usage = self._state.scans.usage()
        self.loads.look(usage)
        for session_id in usage:
            if session_id in self._sessions:
                continue
            if self._why(session_id) is not None:
                self._begin(session_id)
        self._ask_for_unknown(usage)

    def _why(self, session_id: str) -> Why | None:
        """Return why a session has to be evacuated, None if it does not."""
        known = self._directory.session(session_id)
        if known is not None and not self._sync.has_ended(known.broker_id, session_id):
            if known.draining:
                return Why.DRAIN
            return Why.SHRINK if self._excess(session_id) else None
        broker_id = self.broker_of(session_id)
        return Why.LOST if broker_id and self._sync.has_ended(broker_id, session_id) else None

    def _units_to_leave(self, session_id: str) -> int:
        if self._why(session_id) is Why.SHRINK:
            return self._excess(session_id)
        return self._state.reads.used_units(session_id)

    def _ask_for_unknown(self, usage: dict[str, int]) -> None:
        """Look up a unit of each session that the directory lacks: its broker manager answers."""
        self._unknown = {
            session_id: self._unknown.get(session_id, 0) + 1
            for session_id in usage
            if session_id not in self._sessions and self._directory.session(session_id) is None
        }
        for session_id, looks in self._unknown.items():
            if looks >= _UNKNOWN_LOOKS:
                self._begin(session_id)

    # Emptying one session ---------------------------------------------------------------------

    def _begin(self, session_id: str) -> None:
        task = start("evacuation", self._empty(session_id))
        self._sessions[session_id] = task
        task.add_done_callback(lambda _: self._ended(session_id))

    def _ended(self, session_id: str) -> None:
        del self._sessions[session_id]
        self._brokers.pop(session_id, None)

    async def _empty(self, session_id: str) -> None:
        """Evacuate a session while there is a reason to.

        If the directory lacks it, a lookup of one unit first reads its broker manager's answer.
        """
        began = self._clock.monotonic()
        try:
            broker, before = self.broker_of(session_id), self._state.reads.used_units(session_id)
            if self._why(session_id) is None:
                await self._assign_anew(self._state.scans.units_of_session(session_id, "", 1))
            why = self._why(session_id)
            if why is None:
                return
            self._left_at = began
            self.on_begin()
            _logger.info(
                "taking units away", shard=self._shard_id, broker=broker, units=before, why=why
            )
            await self._pass_again_and_again(session_id)
            left = self._state.reads.used_units(session_id)
        except MetadataError as error:
            _logger.debug("evacuation stops", shard=self._shard_id, why=str(error))
            return
        _logger.info(
            "units were taken away",
            shard=self._shard_id,
            broker=broker,
            units=before - left,
            left=left,
            seconds=round(self._clock.monotonic() - began, 3),
        )

    async def _pass_again_and_again(self, session_id: str) -> None:
        pause_s = _RETRY_SECONDS_MIN
        while (
            self._state.reads.used_units(session_id) and (why := self._why(session_id)) is not None
        ):
            if self._directory.live() and await self._pass(session_id, why):
                pause_s = _RETRY_SECONDS_MIN
            elif self._state.reads.used_units(session_id):
                await self._wait_for_better(pause_s)
                pause_s = min(2 * pause_s, _RETRY_SECONDS_MAX)

    async def _pass(self, session_id: str, why: Why) -> int:
        """Go over the units once, at the pace, while the reason holds and there are brokers; return
        how many left."""
        order = EvacuationOrder(
            self._state,
            self._units,
            session_id,
            self.loads.busiest(session_id),
            are_busiest_last=why is Why.SHRINK,
        )
        pace, part = self._pace_of(session_id, why)
        turns = self._node.lost if why is Why.LOST else self._node.moves
        batches: dict[asyncio.Task[int], int] = {}
        left = 0
        try:
            while self._why(session_id) is why and self._directory.live():
                # An operator may have set another rate meanwhile.
                rate = part * self._units_per_second(session_id, why)
                await self._sleep(pace.wait_seconds(rate), turns)
                if len(batches) >= EVACUATION_BATCHES_MAX:
                    await asyncio.wait(batches, return_when=asyncio.FIRST_COMPLETED)
                batch_max = partial(self._batch_max, session_id, why, batches)
                most = batch_max()
                if not most and batches:
                    await asyncio.wait(batches, return_when=asyncio.FIRST_COMPLETED)
                wanted = pace.take(rate, most)
                allowed = await turns.take(wanted) if wanted else 0
                units = self._next(order, turns, allowed, batch_max)
                pace.give_back(wanted - len(units))
                if wanted and not units:
                    break
                if units:
                    batches[self._begin_batch(units, why, turns)] = len(units)
                for batch in [each for each in batches if each.done()]:
                    del batches[batch]
                    left += batch.result()
            return left + sum(await asyncio.gather(*batches))
        finally:
            for batch in batches:
                batch.cancel()

    @staticmethod
    def _next(
        order: EvacuationOrder,
        turns: EvacuationTurns,
        allowed: int,
        batch_max: Callable[[], int],
    ) -> Sequence[Assignment]:
        """Return the next units, fewer than are ``allowed`` if the reason has ended while the turn
        was waited for; the others are given back."""
        units: Sequence[Assignment] = ()
        try:
            most = min(allowed, batch_max())
            units = order.next(most) if most else ()
            return units
        finally:
            turns.give_back(allowed - len(units))

    def _batch_max(
        self, session_id: str, why: Why, batches: Mapping[asyncio.Task[int], int]
    ) -> int:
        """Return how many units may leave together now, beside ``batches`` that leave already."""
        if self._why(session_id) is not why:
            return 0
        if why is not Why.SHRINK:
            return EVACUATION_UNITS_PER_BATCH_MAX
        # Units of a batch may have left already: rather too few than too many.
        excess = self._excess(session_id) - sum(batches.values())
        return min(EVACUATION_UNITS_PER_BATCH_MAX, max(0, excess))

    async def _sleep(self, seconds: float, turns: EvacuationTurns) -> None:
        due = self._clock.monotonic() + seconds
        await asyncio.sleep(seconds)
        turns.note_late(self._clock.monotonic() - due)

    def _begin_batch(
        self, units: Sequence[Assignment], why: Why, turns: EvacuationTurns
    ) -> asyncio.Task[int]:
        batch = join(self._carry(units, why))
        # Also if it is cancelled before it begins.
        batch.add_done_callback(lambda _: turns.give_back(len(units)))
        return batch

    def _pace_of(self, session_id: str, why: Why) -> tuple[Pace, float]:
        """Return the pace of a pass, and this shard's part of the cluster's rate."""
        if why is not Why.LOST:
            return Pace(self._clock.monotonic), self._part([session_id])
        # All lost sessions together go at one pace, however many there are.
        lost = [each for each in {*self._sessions, session_id} if self._why(each) is Why.LOST]
        return self._lost_pace, self._part(lost)

    def _units_per_second(self, session_id: str, why: Why) -> int:
        if why is Why.LOST:
            return REASSIGN_UNITS_PER_SECOND
        known = self._directory.session(session_id)
        wanted = 0 if known is None else known.drain_units_per_second
        return wanted or DRAIN_UNITS_PER_SECOND

    def _part(self, session_ids: Sequence[str]) -> float:
        """Return this shard's part of the units that have to leave some sessions, as of now."""
        here = [self._state.reads.used_units(session_id) for session_id in session_ids]
        reported = [self.loads.units_reported(session_id) for session_id in session_ids]
        of_all = [max(pair) for pair in zip(here, reported, strict=True)]
        whole = sum(of_all) if all(reported) else 0
        return share_of_rate(1.0, sum(here), whole, max(1, len(self._known_shards())))

    def _known_shards(self) -> Sequence[int]:
        try:
            return self._shard_ids()
        except MetadataError:
            return ()

    async def _wait_for_better(self, pause_s: float) -> None:
        """Wait until brokers change: at least ``_RETRY_SECONDS_MIN`` and at most ``pause_s``."""
        changed = asyncio.Event()
        unsubscribe = self._directory.on_change(changed.set)
        try:
            await asyncio.sleep(_RETRY_SECONDS_MIN)
            with contextlib.suppress(TimeoutError):
                async with timeout(pause_s - _RETRY_SECONDS_MIN):
                    await changed.wait()
        finally:
            unsubscribe()

    # Carrying out -----------------------------------------------------------------------------

    async def _carry(self, units: Sequence[Assignment], why: Why) -> int:
        """Assign units again or move them; return how many left."""
        done = await (self._assign_anew(units) if why is Why.LOST else self._move(units, why))
        self._metrics.note_evacuated(why.value, done)
        if done:
            self._left_at = self._clock.monotonic()
        return done

    async def _assign_anew(self, units: Sequence[Assignment]) -> int:
        names = [unit.name for unit in units]
        try:
            answers = await self._lookups.lookup(names, timeout_ms=_CARRY_TIMEOUT_MS)
        except MetadataError as error:
            _logger.info("units not assigned anew yet", shard=self._shard_id, why=str(error))
            return 0
        return sum(not answer.rejection_code for answer in answers)

    async def _move(self, units: Sequence[Assignment], why: Why) -> int:
        moves = [
            TopicMove(topic=unit.name, expected_epoch=unit.epoch, asked_by=why.value)
            for unit in units
        ]
        try:
            answers = await self._mover.move(moves, timeout_ms=_CARRY_TIMEOUT_MS)
        except MetadataError as error:
            _logger.info("units not moved yet", shard=self._shard_id, why=str(error))
            return 0
        return sum(not answer.rejection_code for answer in answers)
