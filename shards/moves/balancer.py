"""Carries out one shard's part of the balance that nobody asks for.

    plan of the cluster ─┬─ named units that this shard has ─────╮
                         ╰─ this shard's part of unnamed units ──┴─▶ moved, until the plan is over

The plan is of all shards (``BalancePlans``). What cannot be moved now stays: the next reports show
it, and a later plan has it again. Whatever is more urgent comes first: units that leave lost or
draining brokers, and a rebalance that an operator asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import structlog

from nextgen.client.wire.broker_load import rate_of
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.placement import BALANCE_SETTLE_MS
from nextgen.kernel.routing.hashing import hash64
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import BalanceSeen
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove
from shards.assignment.unit_reads import UnitReads, load_own
from shards.domain.assignment import ASKED_BY_BALANCE, Assignment
from shards.domain.placement.balance import BalancePlan, part_of
from shards.domain.placement.rebalance import weight_of
from shards.metrics import ShardMetrics
from shards.moves.balance_plans import BalancePlans, permille_of
from shards.moves.evacuation import Evacuation
from shards.moves.paced_moves import PacedMoves
from shards.moves.rebalancer import Rebalancer
from shards.ports import BrokerDirectory, Clock
from shards.state.shard_state import ShardState

UNITS_SCANNED_MAX = 20_000
"""Units of one broker that are read to find those of a shift: most of the first ones may rest."""

_PAGE_UNITS = 500

_SECONDS_MIN = 1.0
"""The moves of a plan are spread over at least this time."""

_logger = structlog.get_logger(__name__)


class Balancer:
    """The scheduled balance of one shard, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        units: UnitReads,
        moves: PacedMoves,
        plans: BalancePlans,
        evacuation: Evacuation,
        rebalancer: Rebalancer,
        directory: BrokerDirectory,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._units = units
        self._moves = moves
        self._plans = plans
        self._evacuation = evacuation
        self._rebalancer = rebalancer
        self._directory = directory
        self._clock = clock
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe = plans.on_plan(self._begin)
        evacuation.on_begin = self.stop
        rebalancer.on_begin = self.stop

    def __repr__(self) -> str:
        return f"<Balancer shard={self._shard_id} running={self._is_running}>"

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def close(self) -> None:
        """Stop at once; the next leader finishes the moves that were begun."""
        self._unsubscribe()
        self.stop()

    def stop(self) -> None:
        """Give up the moves of the present plan that were not begun."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _begin(self, plan: BalancePlan) -> None:
        # An earlier plan's time is over: what it has not moved, this one has again.
        self.stop()
        why = self._why_not()
        if why:
            self._metrics.note_balance(why)
        else:
            self._task = start("balance", self._round(plan), expected=MetadataError)

    def _why_not(self) -> str:
        """Return the outcome of a round that does not begin, "" if it does."""
        if self._state.term.is_over:
            return "recovering"
        if self._evacuation.is_moving:
            return "evacuating"
        if self._rebalancer.is_running:
            return "rebalancing"
        is_known = self._moves.moved.is_known(self._plans.settings.grace_seconds)
        return "" if is_known else "recovering"

    # One round --------------------------------------------------------------------------------

    async def _round(self, plan: BalancePlan) -> None:
        """Move this shard's units of a plan, spread over the time that the plan has.

        Raises:
            MetadataError: The term is over.
        """
        wanted = [*self._named(plan), *[each async for each in self._unnamed(plan)]]
        if not wanted:
            self._metrics.note_balance("nothing_here")
            return
        left_s = max(0.0, (plan.carried_out_by_ms - self._clock.wall_ms()) / 1_000)
        answers: list[LookupAnswer] = []
        with contextlib.suppress(TimeoutError):
            async with timeout(left_s + BALANCE_SETTLE_MS / 1_000):
                await self._moves.make(
                    [each.move for each in wanted],
                    self._moves.pace(),
                    len(wanted) / max(left_s, _SECONDS_MIN),
                    lambda _moves, some: answers.extend(some),
                )
        self._conclude(wanted, answers)

    def _conclude(self, wanted: Sequence[_Wanted], answers: Sequence[LookupAnswer]) -> None:
        moved = {answer.topic for answer in answers if not answer.rejection_code}
        refused = [answer for answer in answers if answer.rejection_code and not answer.under_way]
        # Rules forbid it, and will at the next plan: have that choose others.
        forbidden = RejectionCode.NOT_ALLOWED
        self._moves.moved.note([each.topic for each in refused if each.rejection_code == forbidden])
        self._metrics.note_balance("moved" if moved else "refused")
        pairs = Counter(each.pair for each in wanted if each.move.topic in moved)
        _logger.info(
            "balanced",
            shard=self._shard_id,
            units=len(moved),
            planned=len(wanted),
            moves=dict(sorted(pairs.items())),
            refused=len(refused),
            why=refused[0].message if refused else "",
        )

    # The units of this shard ------------------------------------------------------------------

    def _named(self, plan: BalancePlan) -> Iterator[_Wanted]:
        """Yield the moves of named units that are this shard's and still where the plan says."""
        names = {each.name: name for each in plan.moves if (name := _parsed(each.name)) is not None}
        assigned = {
            assignment.name: assignment
            for _, assignment in load_own(self._state, self._units, list(names.values()))
            if assignment is not None and self._may_move(assignment)
        }
        for each in plan.moves:
            unit = assigned.get(each.name)
            if unit is not None and unit.broker_id == each.from_broker_id:
                yield _Wanted(unit, each.to_broker_id, self._seen(plan, unit, each.to_broker_id))

    async def _unnamed(self, plan: BalancePlan) -> AsyncIterator[_Wanted]:
        """Yield this shard's part of the units that reports do not name."""
        taken: set[str] = set()
        for shift in plan.shifts:
            giver = self._directory.broker(shift.from_broker_id)
            report = None if giver is None else self._directory.load(giver.session_id)
            if giver is None or report is None:
                continue
            draw = f"{self._shard_id} {shift.from_broker_id} {shift.to_broker_id}"
            left = part_of(
                shift.count,
                units_here=self._state.reads.used_units(giver.session_id),
                units_all=report.topics,
                draw=hash64(f"{draw} {plan.carried_out_by_ms}"),
            )
            taken |= {each.name for each in report.busiest}
            async for unit in self._units_of(giver.session_id):
                if left <= 0:
                    break
                if unit.name not in taken and self._may_move(unit):
                    taken.add(unit.name)
                    left -= 1
                    yield _Wanted(
                        unit, shift.to_broker_id, self._seen(plan, unit, shift.to_broker_id)
                    )

    async def _units_of(self, session_id: str) -> AsyncIterator[Assignment]:
        after = ""
        for _ in range(UNITS_SCANNED_MAX // _PAGE_UNITS):
            page = self._state.scans.units_of_session(session_id, after, _PAGE_UNITS)
            if not page:
                return
            for unit in page:
                yield unit
            after = page[-1].key
            await asyncio.sleep(0)

    def _may_move(self, unit: Assignment) -> bool:
        """Return whether a unit is at a live broker and not in its grace."""
        grace_s = self._plans.settings.grace_seconds
        if self._directory.session(unit.session_id) is None:
            return False
        return not self._moves.moved.is_resting(unit.name, grace_s)

    def _seen(self, plan: BalancePlan, unit: Assignment, target: str) -> BalanceSeen:
        """Return the numbers that an operator is shown as the reason of a move."""
        standings = {each.broker_id: each for each in plan.standings}
        giver = standings[unit.broker_id]
        report = self._directory.load(unit.session_id)
        busiest = () if report is None else report.busiest
        rate = next((rate_of(each) for each in busiest if each.name == unit.name), None)
        return BalanceSeen(
            from_permille=permille_of(giver),
            to_permille=permille_of(standings[target]),
            unit_permille=0 if rate is None else 1_000 * weight_of(rate) // max(1, giver.share),
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A move of a unit that this shard has."""

    unit: Assignment
    to_broker_id: str
    seen: BalanceSeen

    @property
    def pair(self) -> str:
        return f"{self.unit.broker_id}>{self.to_broker_id}"

    @property
    def move(self) -> TopicMove:
        return TopicMove(
            topic=self.unit.name,
            target_broker_id=self.to_broker_id,
            expected_epoch=self.unit.epoch,
            asked_by=ASKED_BY_BALANCE,
            balance=self.seen,
        )


def _parsed(text: str) -> TopicName | None:
    try:
        return parse_topic(text)
    except InvalidName:
        return None
