"""Spreads one shard's units evenly over the live brokers.

    read units, rules, loads ─▶ plan (pure, ``domain.rebalance``) ─▶ moves, at a pace ─▶ again
                                     ╰─ the answer to a request for the plan only

Each shard evens out its own units. Rounds follow each other until nothing is left to move or a
round has moved nothing. A unit that was moved stays where it is for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from nextgen.client.wire.broker_load import report_permille
from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.limits.placement import (
    DRAIN_UNITS_PER_SECOND,
    DRAIN_UNITS_PER_SECOND_MAX,
    REBALANCE_COOL_DOWN_MS,
    REBALANCE_MOVES_NAMED_MAX,
)
from nextgen.tasks.background import start
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import (
    BrokerUnits,
    PlannedMove,
    RebalanceRequest,
    RebalanceResponse,
    TopicMove,
    UnitCountRequest,
    UnitCountResponse,
)
from shards.assignment.placement_policies import PlacementPolicies
from shards.assignment.unit_placer import PlacementRound, UnitPlacer
from shards.domain.assignment import ASKED_BY_REBALANCE
from shards.domain.placement.rebalance import (
    Burden,
    Movable,
    Plan,
    Planner,
    needs_rebalance,
)
from shards.moves.evacuation import Evacuation
from shards.moves.evacuation_pace import Pace
from shards.moves.paced_moves import PacedMoves
from shards.moves.rebalance_look import (
    PAGE_UNITS,
    REBALANCE_UNITS_READ_MAX,
    Look,
    RebalanceLooks,
    Sweep,
    Unit,
)
from shards.ports import BrokerDirectory, Clock
from shards.state.shard_state import ShardState

REBALANCE_ROUNDS_MAX = 20
"""Plans that one rebalance carries out, one after the other: nearly always it is one."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """``moves`` has the target broker of each unit by name, "" for any that its rules allow."""

    burdens: Sequence[Burden]
    moves: dict[str, str]
    units: dict[str, Unit]
    sweep: Sweep
    is_needed: bool
    """Whether brokers are too far from their shares, or were at the beginning of the run."""

    reason: str

    @property
    def is_all(self) -> bool:
        """Whether there is nothing to move, and every unit was read."""
        return not self.moves and self.sweep.is_over


class Rebalancer:
    """Plans and rebalances of one shard, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        moves: PacedMoves,
        placer: UnitPlacer,
        policies: PlacementPolicies,
        evacuation: Evacuation,
        directory: BrokerDirectory,
        shard_ids: Callable[[], Sequence[int]],
        clock: Clock,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._moves = moves
        self._placer = placer
        self._evacuation = evacuation
        self._looks = RebalanceLooks(state, placer, policies, evacuation.loads, directory, clock)
        self._directory = directory
        self._shard_ids = shard_ids
        self._left = 0
        self.on_begin: Callable[[], None] = lambda: None
        """Called before units are moved because somebody asked for it, and when that is stopped."""
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Rebalancer shard={self._shard_id} left={self._left}>"

    def close(self) -> None:
        """Stop at once; the next leader finishes the moves that were begun."""
        if self._task is not None:
            self._task.cancel()

    @property
    def units_under_way(self) -> int:
        """Units that a rebalance or an evacuation has still to move.

        At least one while a rebalance makes its next plan.
        """
        return (self._left or int(self.is_running)) + self._evacuation.units_under_way

    async def count(self, _request: UnitCountRequest) -> UnitCountResponse:
        """Return how many units each session has here, and how many have to leave."""
        usage = self._state.scans.usage()
        brokers = {broker.session_id: broker for broker in self._directory.live()}
        for session_id in brokers:
            usage.setdefault(session_id, 0)
        answer = UnitCountResponse(
            brokers=[
                self._count_of(session_id, self._evacuation.broker_of(session_id), units)
                for session_id, units in sorted(usage.items())
            ],
            under_way=self.units_under_way,
            evacuating=self._evacuation.units_under_way,
        )
        await self._state.proposer.confirm()
        return answer

    async def answer(self, request: RebalanceRequest) -> RebalanceResponse:
        """Plan, and begin the moves unless only the plan is wanted. Or stop a rebalance.

        Raises:
            InvalidRequest: The rate is too high.
            MetadataError: A namespace's policies could not be read, or leadership moved.
        """
        if request.units_per_second > DRAIN_UNITS_PER_SECOND_MAX:
            raise InvalidRequest(
                f"a rebalance of {request.units_per_second} units a second, "
                f"at most {DRAIN_UNITS_PER_SECOND_MAX} are allowed"
            )
        if request.stop:
            return self._stop()
        if self.is_running and not request.plan_only:
            why = "a rebalance is under way"
            return self._response(why)
        found = await self._plan(is_begun=False)
        if not (found.is_all or request.plan_only or self.is_running):
            rate = (request.units_per_second or DRAIN_UNITS_PER_SECOND) / self._shards()
            self.on_begin()
            self._left = len(found.moves)
            self._task = start("rebalance", self._carry_out(found, rate))
            self._task.add_done_callback(self._ended)
        await self._state.proposer.confirm()
        return self._planned(found)

    # Planning ---------------------------------------------------------------------------------

    async def _plan(self, *, is_begun: bool, sweep: Sweep | None = None) -> _Found:
        look = await self._looks.look(sweep)
        # The plan ages while it is carried out, so the mover checks the rules again.
        placing = self._placer.begin(is_plan=True)
        away, stuck = await _drive_away(look, placing)
        burdens = self._burdens(look, away, stuck, placing)
        is_needed = is_begun or needs_rebalance(burdens)
        plan = await _even_out(look, burdens, placing, is_needed=is_needed)
        moves = away | {move.name: move.to_broker_id for move in plan.moves}
        return _Found(
            burdens,
            moves,
            {name: look.units[name] for name in moves},
            look.sweep,
            is_needed,
            _reason(plan, len(away), stuck, look.units_unread, is_needed=is_needed),
        )

    def _burdens(
        self,
        look: Look,
        away: Collection[str],
        stuck: Collection[str],
        placing: PlacementRound,
    ) -> list[Burden]:
        """Return the brokers with their units, without those that a rule drives away."""
        grace_s = REBALANCE_COOL_DOWN_MS / 1_000
        movable: dict[str, list[Movable]] = {broker_id: [] for broker_id in look.brokers}
        extra: dict[str, int] = dict.fromkeys(look.brokers, 0)
        for name, unit in look.units.items():
            broker_id = unit.assignment.broker_id
            weight = look.weights.get(name, look.unnamed_weights[broker_id])
            extra[broker_id] += weight - look.unnamed_weights[broker_id]
            if name in away:
                extra[broker_id] -= weight
            elif name not in stuck and not self._moves.moved.is_resting(name, grace_s):
                movable[broker_id].append(Movable(name, weight))
        return [
            Burden(
                broker_id,
                broker.capacity_units,
                self._state.reads.used_units(broker.session_id) * look.unnamed_weights[broker_id]
                + extra[broker_id],
                movable[broker_id],
                placing.room_at(broker_id),
                kind=broker.kind,
            )
            for broker_id, broker in look.brokers.items()
        ]

    # Carrying out -----------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether a rebalance that was asked for is under way."""
        return self._task is not None and not self._task.done()

    async def _carry_out(self, found: _Found, rate: float) -> None:
        pace = self._moves.pace()
        rounds = 0
        while not found.is_all and rounds < REBALANCE_ROUNDS_MAX:
            moved = await self._round(found, pace, rate)
            _logger.info("rebalanced", shard=self._shard_id, units=moved, planned=len(found.moves))
            if found.sweep.is_over:
                if not moved:
                    return
                rounds += 1
            found = await self._plan(is_begun=found.is_needed, sweep=found.sweep)
            self._left = len(found.moves)

    async def _round(self, found: _Found, pace: Pace, rate: float) -> int:
        """Carry out the moves of one plan at the pace; return how many units moved."""
        moves = [
            TopicMove(
                topic=name,
                target_broker_id=target,
                expected_epoch=found.units[name].assignment.epoch,
                asked_by=ASKED_BY_REBALANCE,
            )
            for name, target in found.moves.items()
        ]
        moved = 0

        def answered(batch: Sequence[TopicMove], answers: Sequence[LookupAnswer]) -> None:
            nonlocal moved
            self._left = max(0, self._left - len(batch))
            moved += sum(not answer.rejection_code for answer in answers)

        await self._moves.make(moves, pace, rate, answered)
        return moved

    def _stop(self) -> RebalanceResponse:
        was_running = self.is_running
        self.on_begin()
        self.close()
        self._task, self._left = None, 0
        reason = "stopped, what was begun is finished" if was_running else "none was under way"
        return self._response(reason)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is self._task:
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

    # Answers ----------------------------------------------------------------------------------

    def _response(self, reason: str) -> RebalanceResponse:
        return RebalanceResponse(
            reason=reason,
            under_way=self.units_under_way,
            evacuating=self._evacuation.units_under_way,
        )

    def _planned(self, found: _Found) -> RebalanceResponse:
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
        answer = self._response(found.reason)
        answer.count = len(found.moves)
        answer.before.extend(before.values())
        answer.after.extend(after.values())
        for name, target in list(found.moves.items())[:REBALANCE_MOVES_NAMED_MAX]:
            came_from = found.units[name].assignment.broker_id
            answer.moves.append(
                PlannedMove(name=name, from_broker_id=came_from, to_broker_id=target)
            )
        return answer

    def _broker_units(self, broker_id: str) -> BrokerUnits:
        broker = self._directory.broker(broker_id)
        session_id = "" if broker is None else broker.session_id
        return self._count_of(session_id, broker_id, self._state.reads.used_units(session_id))

    def _count_of(self, session_id: str, broker_id: str, units: int) -> BrokerUnits:
        load = self._directory.load(session_id)
        return BrokerUnits(
            broker_id=broker_id,
            session_id=session_id,
            units=units,
            load_permille=0 if load is None else report_permille(load),
        )


def _with_units(given: BrokerUnits, units: int) -> BrokerUnits:
    changed = BrokerUnits()
    changed.CopyFrom(given)
    changed.units = max(0, units)
    return changed


def _reason(
    plan: Plan, away: int, stuck: Mapping[str, str], units_unread: int, *, is_needed: bool
) -> str:
    parts = []
    if away:
        parts.append(f"{away} units are where their rules forbid it")
    if stuck:
        name, why = next(iter(stuck.items()))
        parts.append(f"{len(stuck)} units have to leave and can go nowhere, first {name}: {why}")
    if units_unread:
        parts.append(
            f"{units_unread} units are not read yet for what rules forbid, carrying it out does so"
        )
    if not is_needed:
        parts.append("every broker is within a tenth of its share")
    elif plan.is_met:
        parts.append("every broker ends within a twentieth of its share")
    else:
        room = f"room (none is left at {', '.join(plan.full)})" if plan.full else "room"
        parts.append(f"rules, {room} or units that were just moved stand in the way of more")
    return "; ".join(parts)


async def _drive_away(look: Look, placing: PlacementRound) -> tuple[dict[str, str], dict[str, str]]:
    """Return moves of units that have to leave their brokers, and by name why others cannot.

    The units are placed one by one: where partitions must be apart, the last ones may stay.
    """
    away: dict[str, str] = {}
    stuck: dict[str, str] = {}
    for count, name in enumerate(look.misplaced):
        unit = look.units[name]
        if unit.is_forbidden_at(unit.assignment.broker_id, placing):
            avoid = (unit.assignment.session_id,)
            placed = placing.place(unit.topic, unit.assignment, unit.parents, avoid=avoid)
            if isinstance(placed, Rejected):
                stuck[name] = placed.message
            else:
                away[name] = ""
        if count % PAGE_UNITS == PAGE_UNITS - 1:
            await asyncio.sleep(0)
    return away, stuck


async def _even_out(
    look: Look, burdens: Sequence[Burden], placing: PlacementRound, *, is_needed: bool
) -> Plan:
    """Return the moves that bring the brokers to their shares; none unless ``is_needed``."""

    def may_go(name: str, broker_id: str) -> bool:
        return not look.units[name].is_forbidden_at(broker_id, placing)

    planner = Planner(burdens, may_go)
    while is_needed and len(planner.moves) < REBALANCE_UNITS_READ_MAX and planner.step():
        move = planner.moves[-1]
        unit = look.units[move.name]
        if unit.is_bound:
            placing.note_move(unit.topic, unit.assignment, unit.parents, move.to_broker_id)
        if len(planner.moves) % PAGE_UNITS == 0:
            await asyncio.sleep(0)
    return planner.plan()
