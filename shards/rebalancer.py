"""Spreads one shard's units evenly over the brokers that live: plans, says so, and does it.

    look at units, rules, loads ─▶ plan (pure, ``domain.rebalance``) ─▶ moves, at a pace ─▶ again
                                        ╰─ asked for the plan alone: that is the answer

Each shard evens out its own units. What is left after a round is planned anew, until nothing is
or a round moved nothing. A unit that was moved stays where it is for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from nextgen.client.load_wire import report_permille
from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.names import parse_topic
from nextgen.kernel.placement_limits import (
    DRAIN_UNITS_PER_SECOND,
    DRAIN_UNITS_PER_SECOND_MAX,
    EVACUATION_BATCHES_MAX,
    EVACUATION_UNITS_PER_BATCH_MAX,
    REBALANCE_COOL_DOWN_MS,
    REBALANCE_MOVES_NAMED_MAX,
    REBALANCE_ROUNDS_MAX,
    REBALANCE_UNITS_READ_MAX,
)
from nextgen.kernel.policies import NO_RULES, Policies
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import (
    BrokerUnits,
    PlannedMove,
    RebalanceRequest,
    RebalanceResponse,
    TopicMove,
    UnitCountRequest,
    UnitCountResponse,
)
from shards.domain.assignment import Assignment
from shards.domain.rebalance import (
    UNIT_WEIGHT,
    Burden,
    Movable,
    Plan,
    Planner,
    needs_rebalance,
    weight_of,
)
from shards.domain.topic import Topic
from shards.evacuation import Evacuation
from shards.evacuation_pace import Pace
from shards.metrics import ShardMetrics
from shards.placement_policies import PlacementPolicies, rules_for
from shards.ports import BrokerDirectory, Clock
from shards.shard_state import ShardState
from shards.topic_mover import TopicMover
from shards.unit_placer import PlacementRound, UnitPlacer

ASKED_BY_REBALANCE = "rebalance"

_PAGE_UNITS = 500
"""Units read from the view, and planned, before others get their turn on the loop."""

_MOVE_TIMEOUT_MS = 20_000

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Unit:
    topic: Topic
    assignment: Assignment
    parents: Policies
    is_bound: bool
    """Whether any rule, or another partition, may have a say in where it goes."""


@dataclass(slots=True)
class _Look:
    """The shard's units as they were when a plan was begun."""

    brokers: dict[str, BrokerRecorded] = field(default_factory=dict)
    """Those that may be given units, by broker id."""
    units: dict[str, _Unit] = field(default_factory=dict)
    """Those that were read, by name."""
    weights: dict[str, int] = field(default_factory=dict)
    """Of the units that are not like any other, by name."""
    misplaced: dict[str, str] = field(default_factory=dict)
    """Units that their rules drive away, to whichever broker they allow."""


@dataclass(frozen=True, slots=True)
class _Found:
    """``moves`` is by name the broker that a unit is to go to, "" for any that its rules allow."""

    burdens: Sequence[Burden]
    plan: Plan
    moves: dict[str, str]
    units: dict[str, _Unit]
    reason: str


class Rebalancer:
    """Plans and rebalances of one shard, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        mover: TopicMover,
        placer: UnitPlacer,
        policies: PlacementPolicies,
        evacuation: Evacuation,
        directory: BrokerDirectory,
        shard_ids: Callable[[], Sequence[int]],
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._mover = mover
        self._placer = placer
        self._policies = policies
        self._evacuation = evacuation
        self._directory = directory
        self._shard_ids = shard_ids
        self._clock = clock
        self._metrics = metrics
        self._moved_at: dict[str, float] = {}
        self._left = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Rebalancer shard={self._shard_id} left={self._left}>"

    def close(self) -> None:
        """Stop at once; moves that were begun are finished by whoever leads next."""
        if self._task is not None:
            self._task.cancel()

    @property
    def units_under_way(self) -> int:
        """Units that a rebalance or an evacuation is still to move."""
        return self._left + self._evacuation.units_under_way

    async def count(self, _request: UnitCountRequest) -> UnitCountResponse:
        """Return how many units each session has here, and how many are to leave theirs."""
        usage = self._state.usage()
        brokers = {broker.session_id: broker for broker in self._directory.live()}
        for session_id in brokers:
            usage.setdefault(session_id, 0)
        answer = UnitCountResponse(
            brokers=[
                self._count_of(session_id, self._evacuation.broker_of(session_id), units)
                for session_id, units in sorted(usage.items())
            ],
            under_way=self.units_under_way,
        )
        await self._state.confirm()
        return answer

    async def answer(self, request: RebalanceRequest) -> RebalanceResponse:
        """Plan; begin what was planned unless only the plan is wanted. Or stop what is under way.

        Raises:
            InvalidRequest: The rate is too high.
            MetadataError: What is said of a namespace could not be read, or leadership moved.
        """
        if request.units_per_second > DRAIN_UNITS_PER_SECOND_MAX:
            raise InvalidRequest(
                f"a rebalance of {request.units_per_second} units a second, "
                f"at most {DRAIN_UNITS_PER_SECOND_MAX} are allowed"
            )
        if request.stop:
            return self._stop()
        if self._is_running and not request.plan_only:
            why = "a rebalance is under way"
            return RebalanceResponse(reason=why, under_way=self.units_under_way)
        found = await self._plan(is_begun=False)
        if found.moves and not request.plan_only and not self._is_running:
            rate = (request.units_per_second or DRAIN_UNITS_PER_SECOND) / self._shards()
            self._left = len(found.moves)
            self._task = asyncio.get_running_loop().create_task(self._carry_out(found, rate))
            self._task.add_done_callback(self._ended)
        await self._state.confirm()
        return self._response(found)

    # Planning ---------------------------------------------------------------------------------

    async def _plan(self, *, is_begun: bool) -> _Found:
        look = await self._look()
        misplaced = look.misplaced
        burdens = self._burdens(look)
        is_needed = is_begun or needs_rebalance(burdens)

        # A little old after a while, which the mover notices: it asks the rules again.
        placing = self._placer.begin()

        def may_go(name: str, broker_id: str) -> bool:
            return not _forbids(placing, look.units[name], broker_id)

        planner = Planner(burdens, may_go)
        while is_needed and planner.step():
            if len(planner.moves) >= REBALANCE_UNITS_READ_MAX:
                break
            if len(planner.moves) % _PAGE_UNITS == 0:
                await asyncio.sleep(0)
        plan = planner.plan()
        moves = {**misplaced, **{move.name: move.to_broker_id for move in plan.moves}}
        units = {name: look.units[name] for name in moves}
        return _Found(burdens, plan, moves, units, _reason(plan, len(misplaced), is_needed))

    async def _look(self) -> _Look:
        """Read units of the brokers that take part, the fullest first, as many as are planned."""
        look = _Look()
        now_ms = self._clock.wall_ms()
        for broker in self._directory.live():
            if not broker.draining and broker.quarantined_until_ms <= now_ms:
                look.brokers[broker.broker_id] = broker
        # What lies beyond the bound is not moved: it is not to be what the fullest ones have.
        for broker in sorted(look.brokers.values(), key=self._use_of, reverse=True):
            after = ""
            while len(look.units) < REBALANCE_UNITS_READ_MAX:
                page = self._state.units_of_session(broker.session_id, after, _PAGE_UNITS)
                if not page:
                    break
                after = page[-1].key
                await self._take(page, look)
                await asyncio.sleep(0)
        self._weigh(look)
        return look

    def _use_of(self, broker: BrokerRecorded) -> float:
        return self._state.used_units(broker.session_id) / max(1, broker.capacity_units)

    async def _take(self, page: Sequence[Assignment], look: _Look) -> None:
        names = [parse_topic(unit.name) for unit in page]
        parents = {name.namespace_text: self._policies.known(name.namespace_text) for name in names}
        missing = [namespace for namespace, said in parents.items() if said is None]
        if missing:
            said = await self._policies.read(missing)
            # What cannot be read now leaves its units where they are.
            parents |= {name: one for name, one in said.items() if isinstance(one, Policies)}
        topics = self._state.load_topics([name.base_text for name in names])
        placing = self._placer.begin()
        for name, topic, assignment in zip(names, topics, page, strict=True):
            above = parents[name.namespace_text]
            if topic is None or above is None:
                continue
            is_bound = topic.partitions > 1 or rules_for(above, topic) != NO_RULES
            unit = look.units[name.text] = _Unit(topic, assignment, above, is_bound)
            if _forbids(placing, unit, assignment.broker_id):
                look.misplaced[name.text] = ""

    def _weigh(self, look: _Look) -> None:
        rates: dict[str, int] = {}
        self._evacuation.loads.look(self._state.usage())
        for broker in look.brokers.values():
            own = self._evacuation.loads.rates(broker.session_id)
            rates.update({name: rate for name, rate in own.items() if name in look.units})
        total = sum(rates.values())
        look.weights = {
            name: weight_of(rate, total, len(look.units)) for name, rate in rates.items()
        }

    def _burdens(self, look: _Look) -> list[Burden]:
        """Return the brokers with what they have: units that rules drive away count no more."""
        now = self._clock.monotonic()
        movable: dict[str, list[Movable]] = {broker_id: [] for broker_id in look.brokers}
        extra: dict[str, int] = dict.fromkeys(look.brokers, 0)
        for name, unit in look.units.items():
            broker_id, weight = unit.assignment.broker_id, look.weights.get(name, UNIT_WEIGHT)
            extra[broker_id] += weight - UNIT_WEIGHT
            if name in look.misplaced:
                extra[broker_id] -= weight
            elif not self._is_cooling_down(name, now):
                movable[broker_id].append(Movable(name, weight))
        return [
            Burden(
                broker_id,
                broker.capacity_units,
                self._state.used_units(broker.session_id) * UNIT_WEIGHT + extra[broker_id],
                movable[broker_id],
            )
            for broker_id, broker in look.brokers.items()
        ]

    def _is_cooling_down(self, name: str, now: float) -> bool:
        moved_at = self._moved_at.get(name)
        return moved_at is not None and now - moved_at < REBALANCE_COOL_DOWN_MS / 1000

    # Carrying out -----------------------------------------------------------------------------

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _carry_out(self, found: _Found, rate: float) -> None:
        pace = Pace(self._clock.monotonic)
        for _ in range(REBALANCE_ROUNDS_MAX):
            moved = await self._round(found, pace, rate)
            _logger.info("rebalanced", shard=self._shard_id, units=moved, planned=len(found.moves))
            if not moved:
                return
            found = await self._plan(is_begun=True)
            self._left = len(found.moves)
            if not found.moves:
                return

    async def _round(self, found: _Found, pace: Pace, rate: float) -> int:
        """Carry out the moves of one plan at the pace; return how many units went."""
        waiting = list(found.moves.items())
        batches: set[asyncio.Task[int]] = set()
        moved = 0
        try:
            while waiting:
                await asyncio.sleep(pace.wait_seconds(rate))
                if len(batches) >= EVACUATION_BATCHES_MAX:
                    await asyncio.wait(batches, return_when=asyncio.FIRST_COMPLETED)
                units = pace.take(rate, min(len(waiting), EVACUATION_UNITS_PER_BATCH_MAX))
                some, waiting = waiting[:units], waiting[units:]
                if some:
                    work = self._move(found, some)
                    batches.add(asyncio.get_running_loop().create_task(work))
                done = {batch for batch in batches if batch.done()}
                batches -= done
                moved += sum(batch.result() for batch in done)
            return moved + sum(await asyncio.gather(*batches))
        finally:
            for batch in batches:
                batch.cancel()

    async def _move(self, found: _Found, some: Sequence[tuple[str, str]]) -> int:
        moves = [
            TopicMove(
                topic=name,
                target_broker_id=target,
                expected_epoch=found.units[name].assignment.epoch,
                asked_by=ASKED_BY_REBALANCE,
            )
            for name, target in some
        ]
        try:
            answers = await self._mover.move(moves, timeout_ms=_MOVE_TIMEOUT_MS)
        except MetadataError as error:
            _logger.info("units not moved", shard=self._shard_id, why=str(error))
            return 0
        finally:
            self._left = max(0, self._left - len(moves))
        now = self._clock.monotonic()
        moved = [answer.topic for answer in answers if not answer.rejection_code]
        for name in moved:
            self._moved_at.pop(name, None)
            self._moved_at[name] = now
        while len(self._moved_at) > REBALANCE_UNITS_READ_MAX:
            del self._moved_at[next(iter(self._moved_at))]
        self._metrics.note_evacuated(ASKED_BY_REBALANCE, len(moved))
        return len(moved)

    def _stop(self) -> RebalanceResponse:
        was_running = self._is_running
        self.close()
        self._left = 0
        reason = "stopped, what was begun is finished" if was_running else "none was under way"
        return RebalanceResponse(reason=reason, under_way=self.units_under_way)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._left = 0
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, MetadataError):
            _logger.info("rebalance ended early", shard=self._shard_id, why=str(error))
        else:
            _logger.error("a rebalance failed", shard=self._shard_id, exc_info=error)

    def _shards(self) -> int:
        try:
            return max(1, len(self._shard_ids()))
        except MetadataError:
            return 1

    # Saying -----------------------------------------------------------------------------------

    def _response(self, found: _Found) -> RebalanceResponse:
        gone = [found.units[name].assignment.broker_id for name in found.moves]
        come = [target for target in found.moves.values() if target]
        before = {
            burden.broker_id: self._broker_units(burden.broker_id) for burden in found.burdens
        }
        after = {
            broker_id: _with_units(
                units, units.units - gone.count(broker_id) + come.count(broker_id)
            )
            for broker_id, units in before.items()
        }
        named = list(found.moves.items())[:REBALANCE_MOVES_NAMED_MAX]
        return RebalanceResponse(
            moves=[
                PlannedMove(
                    name=name,
                    from_broker_id=found.units[name].assignment.broker_id,
                    to_broker_id=target,
                )
                for name, target in named
            ],
            count=len(found.moves),
            before=before.values(),
            after=after.values(),
            reason=found.reason,
            under_way=self.units_under_way,
        )

    def _broker_units(self, broker_id: str) -> BrokerUnits:
        broker = self._directory.broker(broker_id)
        session_id = "" if broker is None else broker.session_id
        return self._count_of(session_id, broker_id, self._state.used_units(session_id))

    def _count_of(self, session_id: str, broker_id: str, units: int) -> BrokerUnits:
        load = self._directory.load(session_id)
        return BrokerUnits(
            broker_id=broker_id,
            session_id=session_id,
            units=units,
            load_permille=0 if load is None else report_permille(load),
        )


def _forbids(placing: PlacementRound, unit: _Unit, broker_id: str) -> bool:
    if not unit.is_bound:
        return False
    return bool(placing.forbids(unit.topic, unit.assignment, unit.parents, broker_id))


def _with_units(given: BrokerUnits, units: int) -> BrokerUnits:
    changed = BrokerUnits()
    changed.CopyFrom(given)
    changed.units = max(0, units)
    return changed


def _reason(plan: Plan, misplaced: int, is_needed: bool) -> str:
    parts = []
    if misplaced:
        parts.append(f"{misplaced} units are where their rules forbid it")
    if not is_needed:
        parts.append("every broker is within a tenth of its share")
    elif plan.is_met:
        parts.append("every broker ends within a twentieth of its share")
    else:
        parts.append("rules, room or units that were just moved stand in the way of more")
    return "; ".join(parts)
