"""The balance that nobody asks for: in rounds, the same plan at every node, of the whole cluster.

    load reports ─▶ ``MeasuredLoads`` ─▶ burdens ─▶ hits ─▶ ``Planner`` ─▶ moves, booked at once

Every leader plans the moves of all shards and carries out those of its own units. Nobody
coordinates: nodes plan the same because they fold the same reports, those that were measured before
the end of a round, and count the moves they planned as made. A node that missed a report plans
slightly otherwise; what it got wrong is in the next reports.

A broker is evened out once it was further than ``start_permille`` from its share in
``START_ROUNDS`` rounds with new reports, until it is within ``goal_permille`` or nothing more can
be moved. Units are weighed as by a rebalance that an operator asks for: by traffic, and a little by
count. The traffic of units that reports do not name is spread evenly over them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.limits.placement import (
    BALANCE_REPORT_AGE_MS_MAX,
    BALANCE_ROUND_LAG_MS,
    BALANCE_SETTLE_MS,
)
from shards.domain.placement.measured_loads import BrokerMeasured, MeasuredLoads, Report
from shards.domain.placement.rebalance import (
    UNIT_WEIGHT,
    Burden,
    Movable,
    Move,
    Planner,
    is_within,
    shares_of,
    weight_of,
)

START_ROUNDS = 3
"""Rounds in a row, each with a new report, in which a broker must be too far from its share."""

PLAN_MS_MAX = 60_000
"""A plan has the moves of so much time at most: after that, what was measured is too old."""

NO_REPORT = "no fresh report"
OVERLOADED = "overloaded"
WAITS = "waits for a report of its last moves"
CLOSED = "gets no units"


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A live broker session that does not drain."""

    broker_id: str
    session_id: str
    capacity_units: int
    may_receive: bool = True
    """False: it keeps what it has and gets nothing, as in quarantine."""

    kind: str = ""
    """See ``Burden.kind``."""


@dataclass(frozen=True, slots=True)
class UnitMove:
    name: str
    from_broker_id: str
    to_broker_id: str


@dataclass(frozen=True, slots=True)
class UnitShift:
    """``count`` units that the last report of ``from_broker_id`` does not name."""

    from_broker_id: str
    to_broker_id: str
    count: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a broker is from its share before the plan, for operators."""

    broker_id: str
    weight: int
    share: int
    hits_permille: int
    """Rounds in a row in which it was too far from its share; below 0 if it was below that."""

    is_begun: bool
    why_not: str
    """Why it gets no units, "" if it may."""


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """The moves of one round, over all shards. A unit is in at most one."""

    moves: tuple[UnitMove, ...]
    shifts: tuple[UnitShift, ...]
    standings: tuple[Standing, ...]
    carried_out_by_ms: int
    """Unix time until which the moves are to be made, evenly."""


@dataclass(slots=True)
class _Broker:
    """What is remembered of a broker from round to round."""

    counted_ms: int = 0
    """When the last report was measured that counted as a hit or not."""

    hits_permille: int = 0
    is_begun: bool = False
    resting: list[tuple[int, int]] = field(default_factory=list)
    """Units without names that it got: until when they stay, and how many."""


class Balance:
    """Plans the rounds. Its memory is soft: a node that starts needs ``START_ROUNDS`` rounds."""

    def __init__(self) -> None:
        self._loads = MeasuredLoads()
        self._brokers: dict[str, _Broker] = {}
        self._resting: dict[str, int] = {}
        """By name: until when a unit stays where it was moved."""

        self._round = -1

    def __repr__(self) -> str:
        return f"<Balance round={self._round} {self._loads!r}>"

    @property
    def refused(self) -> Counter[str]:
        """Reports that were ignored, by reason."""
        return self._loads.refused

    def take(self, report: Report, now_ms: int) -> None:
        """Take in a load report. One that was taken in before changes nothing."""
        self._loads.take(report, now_ms)

    def plan(
        self, brokers: Sequence[BrokerView], settings: BalanceSettings, now_ms: int
    ) -> BalancePlan | None:
        """Return the plan of a round that ended; None if none did since the last call.

        Its moves count as made. ``brokers`` are all that live and do not drain, in any order.
        """
        interval_ms = settings.interval_seconds * 1000
        number = (now_ms - BALANCE_ROUND_LAG_MS) // interval_ms
        if number == self._round:
            return None
        self._round = number
        ended_ms = number * interval_ms
        self._loads.open_round(ended_ms, interval_ms)
        # Not the time of this call: every node has to come to the same plan.
        self._forget(brokers, ended_ms)
        plan = self._plan(brokers, settings, ended_ms) if settings.enabled else None
        # What was measured since belongs to the next round, which may take it in as it comes.
        self._loads.open_round(ended_ms + interval_ms, interval_ms)
        return plan

    def _plan(
        self, brokers: Sequence[BrokerView], settings: BalanceSettings, ended_ms: int
    ) -> BalancePlan:
        burdens, why_not = self._burdens(brokers, settings, ended_ms)
        self._count_hits(burdens, why_not, settings)
        standings = self._standings(burdens, why_not)
        moves = self._moves(burdens, why_not, settings)
        touched = {
            broker_id for move in moves for broker_id in (move.from_broker_id, move.to_broker_id)
        }
        for broker_id, why in why_not.items():
            # What can be done for it is done; noise must not go on with it.
            if why != WAITS and broker_id not in touched:
                self._brokers[broker_id].is_begun = False
        carried_out_by_ms = self._book(moves, settings, ended_ms)
        return BalancePlan(
            tuple(
                UnitMove(each.name, each.from_broker_id, each.to_broker_id)
                for each in moves
                if each.name
            ),
            tuple(
                UnitShift(each.from_broker_id, each.to_broker_id, each.count)
                for each in moves
                if not each.name
            ),
            standings,
            carried_out_by_ms,
        )

    # Burdens ----------------------------------------------------------------------------------

    def _burdens(
        self, brokers: Sequence[BrokerView], settings: BalanceSettings, ended_ms: int
    ) -> tuple[list[Burden], dict[str, str]]:
        """Return the brokers with fresh reports, and why each broker gets nothing."""
        burdens: list[Burden] = []
        why_not: dict[str, str] = {}
        stays = self._resting.keys() | self._loads.named_twice()
        for view in sorted(brokers, key=lambda each: each.broker_id):
            measured = self._loads.of(view.broker_id, view.session_id)
            if measured is None or measured.measured_at_ms < ended_ms - BALANCE_REPORT_AGE_MS_MAX:
                why_not[view.broker_id] = NO_REPORT
                continue
            why = self._why_not(view, measured, settings)
            why_not[view.broker_id] = why
            burdens.append(self._burden(view, measured, why, stays))
        return burdens, why_not

    def _why_not(
        self, view: BrokerView, measured: BrokerMeasured, settings: BalanceSettings
    ) -> str:
        if self._loads.is_held(view.broker_id):
            return WAITS
        if not view.may_receive:
            return CLOSED
        if measured.busy_permille >= 10 * settings.overloaded_percent:
            return OVERLOADED
        return ""

    def _burden(
        self, view: BrokerView, measured: BrokerMeasured, why_not: str, stays: Container[str]
    ) -> Burden:
        movable: list[Movable] = []
        others = 0
        if why_not != WAITS:
            movable = [
                Movable(name, weight_of(measured.rates[name]))
                for name in sorted(measured.named - measured.bound)
                if name not in stays
            ]
            resting = sum(count for _, count in self._brokers[view.broker_id].resting)
            others = max(0, measured.unnamed_units - resting)
        return Burden(
            view.broker_id,
            view.capacity_units,
            measured.units * UNIT_WEIGHT + measured.load,
            movable,
            0 if why_not else max(0, view.capacity_units - measured.units),
            others,
            weight_of(measured.unnamed_rate),
            kind=view.kind,
        )

    # Rounds -----------------------------------------------------------------------------------

    def _count_hits(
        self, burdens: Sequence[Burden], why_not: Mapping[str, str], settings: BalanceSettings
    ) -> None:
        shares = shares_of(burdens)
        for burden in burdens:
            broker, share = self._brokers[burden.broker_id], shares[burden.broker_id]
            measured_at_ms = self._loads.measured_at_ms(burden.broker_id)
            if measured_at_ms > broker.counted_ms and why_not[burden.broker_id] != WAITS:
                broker.counted_ms = measured_at_ms
                broker.hits_permille = _hits(broker.hits_permille, burden.weight, share, settings)
            if abs(broker.hits_permille) >= 1000 * START_ROUNDS:
                broker.is_begun = True
            elif is_within(burden.weight, share, settings.goal_permille):
                broker.is_begun = False

    def _standings(
        self, burdens: Sequence[Burden], why_not: Mapping[str, str]
    ) -> tuple[Standing, ...]:
        shares = shares_of(burdens)
        weights = {burden.broker_id: burden.weight for burden in burdens}
        return tuple(
            Standing(
                broker_id,
                weights.get(broker_id, 0),
                shares.get(broker_id, 0),
                self._brokers[broker_id].hits_permille,
                self._brokers[broker_id].is_begun,
                why,
            )
            for broker_id, why in why_not.items()
        )

    def _moves(
        self, burdens: Sequence[Burden], why_not: Mapping[str, str], settings: BalanceSettings
    ) -> list[Move]:
        eager = [
            replace(
                burden,
                is_eager=self._brokers[burden.broker_id].is_begun
                and why_not[burden.broker_id] != WAITS,
            )
            for burden in burdens
        ]
        planner = Planner(eager, _anywhere, goal_permille=settings.goal_permille)
        left = units_of_budget(settings, self._round)
        while left > 0 and planner.step(left):
            left -= planner.moves[-1].count
        return planner.moves

    def _book(self, moves: Sequence[Move], settings: BalanceSettings, ended_ms: int) -> int:
        units = sum(move.count for move in moves)
        done_by_ms = (
            ended_ms
            + BALANCE_ROUND_LAG_MS
            + -(-units * 60_000 // max(1, settings.moves_per_minute_max))
        )
        stays_until_ms = done_by_ms + 1000 * settings.grace_seconds
        for move in moves:
            self._loads.book(move, done_by_ms + BALANCE_SETTLE_MS)
            if move.name:
                self._resting[move.name] = stays_until_ms
            else:
                self._brokers[move.to_broker_id].resting.append((stays_until_ms, move.count))
        return done_by_ms

    def _forget(self, brokers: Sequence[BrokerView], ended_ms: int) -> None:
        known = {view.broker_id for view in brokers}
        self._loads.keep(known)
        self._brokers = {
            broker_id: self._brokers.get(broker_id) or _Broker() for broker_id in known
        }
        for broker in self._brokers.values():
            broker.resting = [each for each in broker.resting if each[0] > ended_ms]
        self._resting = {name: at_ms for name, at_ms in self._resting.items() if at_ms > ended_ms}


def units_of_budget(settings: BalanceSettings, number: int) -> int:
    """Return how many units the plan of round ``number`` may move.

    Rounds shorter than a minute have a whole number of units each, which add up to the budget.
    """
    round_ms = min(PLAN_MS_MAX, 1000 * settings.interval_seconds)
    per_minute = settings.moves_per_minute_max
    return (number + 1) * round_ms * per_minute // 60_000 - number * round_ms * per_minute // 60_000


def _hits(before: int, weight: int, share: int, settings: BalanceSettings) -> int:
    """Return the hits of a broker, in thousandths, after a round with a new report.

    A round counts in full if the broker is twice as far from its share as the start, and less if it
    is nearer: noise is hardly beyond the start, and not for long.
    """
    if is_within(weight, share, settings.start_permille):
        return 0
    away_permille = 1000 * abs(weight - share) // max(1, share)
    beyond = 1000 * (away_permille - settings.start_permille) // settings.start_permille
    side = 1 if weight > share else -1
    return side * (max(0, side * before) + min(1000, beyond))


def part_of(count: int, *, units_here: int, units_all: int, draw: int) -> int:
    """Return how many of ``count`` units of a broker one shard moves, which has ``units_here``.

    The parts of all shards add up to ``count`` on average: what is left over of a whole unit is
    rounded up as often as it has to be, by ``draw``, a random integer of any size.
    """
    if units_all <= 0:
        return 0
    whole, rest = divmod(count * units_here, units_all)
    return min(units_here, whole + (draw % units_all < rest))


def _anywhere(_name: str, _broker_id: str) -> bool:
    """Rules of units are known to their own shards only, which leave out what a rule forbids."""
    return True
