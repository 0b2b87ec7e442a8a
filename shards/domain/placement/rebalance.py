"""Which units go where so that every broker carries its share: as few moves as possible.

    burdens ──needs_rebalance?──▶ plan ──▶ moves, each from the fullest to the emptiest

A unit weighs ``UNIT_WEIGHT``, and more if it is busy (``weight_of``). A broker's share of the
whole is that of its capacity. Everything is integers, and of equals the first by id is taken, so
the same input gives the same plan.

Hysteresis: nothing is done while every broker is within ``START_PERMILLE`` of its share; what is
begun goes on until all are within ``GOAL_PERMILLE``. Both are widened to a whole unit: a share of
2.5 units cannot be met. Loads are smoothed before they weigh (``smoothed``), and traffic makes out
a third of a broker's burden at most, so that what reports vary by does not move units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

START_PERMILLE = 100
"""A rebalance begins when a broker is further than this from its share."""

GOAL_PERMILLE = 50
"""And ends when none is further than this."""

UNIT_WEIGHT = 1_000
"""A unit without traffic. Fine enough for shares of capacity, coarse enough for integers."""

TRAFFIC_WEIGHT = 500
"""What all traffic of the shard weighs, per unit of the shard: half of what the units do."""

TRAFFIC_UNITS_MAX = 20
"""However busy, a unit weighs at most as much as so many others: one is nobody's whole load."""

LOOKS_PER_PAIR_MAX = 1_000
"""Units of one broker that are tried for another before the next pair is: rules may forbid many."""

SMOOTHING = 8
"""A report counts for one part in this many; the rest is what was known before."""


@dataclass(frozen=True, slots=True)
class Movable:
    """One unit of a broker that may be moved, and what it weighs."""

    name: str
    weight: int = UNIT_WEIGHT


@dataclass(frozen=True, slots=True)
class Burden:
    """One broker as the shard sees it.

    ``weight`` is that of all its units here, whether they may be moved or not. ``movable`` are
    those that may; the plan takes the heaviest that fits. ``room`` is how many it may be given.
    """

    broker_id: str
    capacity_units: int
    weight: int
    movable: Sequence[Movable] = ()
    room: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    from_broker_id: str
    to_broker_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``after`` is each broker's weight once the moves are done. ``is_met``: all are then within
    ``GOAL_PERMILLE``; if not, rules or room stand in the way. ``full`` are the brokers that would
    have been given more if they had room."""

    moves: tuple[Move, ...]
    after: Mapping[str, int]
    is_met: bool
    full: tuple[str, ...] = ()


MayGo = Callable[[str, str], bool]
"""Whether the rules allow the unit of this name on the broker of this id."""


def smoothed(known: int, reported: int) -> int:
    """Return what a rate counts as after a report. An unchanged report is reached in the end."""
    step = (reported - known) // SMOOTHING
    # Rounding down would stop short of a higher report for ever.
    return reported if abs(reported - known) < SMOOTHING else known + step


def weight_of(rate: int, total_rate: int, units: int) -> int:
    """Return what a unit weighs that has ``rate`` of the ``total_rate`` of so many units."""
    if total_rate <= 0 or rate <= 0:
        return UNIT_WEIGHT
    traffic = units * TRAFFIC_WEIGHT * rate // total_rate
    return UNIT_WEIGHT + min(traffic, TRAFFIC_UNITS_MAX * UNIT_WEIGHT)


def needs_rebalance(burdens: Collection[Burden]) -> bool:
    """Say whether a broker is so far from its share that a rebalance is to begin."""
    shares = _shares(burdens)
    return any(
        not _is_within(burden.weight, shares[burden.broker_id], START_PERMILLE)
        for burden in burdens
    )


def plan(burdens: Sequence[Burden], may_go: MayGo, *, moves_max: int) -> Plan:
    """Return the moves that bring every broker within ``GOAL_PERMILLE`` of its share.

    With equal units, and where no rule or room stands in the way, nobody can do it with fewer.
    """
    planner = Planner(burdens, may_go)
    while len(planner.moves) < moves_max and planner.step():
        pass
    return planner.plan()


class Planner:
    """A plan in the making, move by move: whoever shares a thread may pause between two.

    Each move goes from the broker furthest above its share to the one furthest below that may
    take it, and is made only if the two end nearer to their shares. So it ends.
    """

    def __init__(self, burdens: Sequence[Burden], may_go: MayGo) -> None:
        shares = _shares(burdens)
        self._brokers = [_Broker(burden, shares[burden.broker_id]) for burden in burdens]
        self._may_go = may_go
        self._refused: set[tuple[str, str]] = set()
        self.moves: list[Move] = []

    def step(self) -> bool:
        """Add the best move that is left; False if there is none, or none is needed."""
        for giver, taker in self._pairs():
            place = self._place_of_unit(giver, taker)
            if place is None:
                continue
            unit = giver.units.pop(place)
            giver.weight -= unit.weight
            taker.weight += unit.weight
            taker.room -= 1
            self.moves.append(Move(unit.name, giver.broker_id, taker.broker_id))
            return True
        return False

    def plan(self) -> Plan:
        """Return what was planned so far."""
        after = {broker.broker_id: broker.weight for broker in self._brokers}
        is_met = not any(broker.is_outside for broker in self._brokers)
        full = [each.broker_id for each in self._brokers if each.is_below and each.room <= 0]
        return Plan(tuple(self.moves), after, is_met, tuple(full))

    def _pairs(self) -> Iterator[tuple[_Broker, _Broker]]:
        """Yield who may give to whom, the most wanted first."""
        above = sorted(self._brokers, key=_by_need, reverse=True)
        below = sorted(self._brokers, key=_by_lack)
        for giver in above:
            for taker in below:
                is_wanted = giver.is_above or taker.is_below
                if is_wanted and taker.room > 0 and giver.excess > taker.excess:
                    yield giver, taker

    def _place_of_unit(self, giver: _Broker, taker: _Broker) -> int | None:
        """Return where the unit is that brings both nearest to their shares.

        The heaviest of those that do not reach beyond the middle, else the lightest beyond it.
        """
        units, gap = giver.units, giver.excess - taker.excess
        middle = bisect_right(units, gap // 2, key=_weight)
        end = bisect_left(units, gap, key=_weight)
        looks = 0
        for place in chain(range(middle - 1, -1, -1), range(middle, end)):
            looks += 1
            if looks > LOOKS_PER_PAIR_MAX:
                return None
            key = (units[place].name, taker.broker_id)
            if key in self._refused:
                continue
            if self._may_go(*key):
                return place
            self._refused.add(key)
        return None


@dataclass(slots=True)
class _Broker:
    """A broker while it is planned: what it has, and what it may still give, lightest first."""

    burden: Burden
    share: int
    weight: int = field(init=False)
    room: int = field(init=False)
    units: list[Movable] = field(init=False)

    def __post_init__(self) -> None:
        self.weight, self.room = self.burden.weight, self.burden.room
        self.units = sorted(self.burden.movable, key=lambda unit: (unit.weight, unit.name))

    @property
    def broker_id(self) -> str:
        return self.burden.broker_id

    @property
    def excess(self) -> int:
        """How far it is above its share."""
        return self.weight - self.share

    @property
    def is_outside(self) -> bool:
        return not _is_within(self.weight, self.share, GOAL_PERMILLE)

    @property
    def is_above(self) -> bool:
        return self.excess > 0 and self.is_outside

    @property
    def is_below(self) -> bool:
        return self.excess < 0 and self.is_outside

    @property
    def relative(self) -> float:
        """How far it is above its share, as a part of it."""
        return self.excess / max(self.share, UNIT_WEIGHT)


def _shares(burdens: Collection[Burden]) -> dict[str, int]:
    total = sum(burden.weight for burden in burdens)
    capacity = sum(burden.capacity_units for burden in burdens)
    if not capacity:
        return {burden.broker_id: burden.weight for burden in burdens}
    return {burden.broker_id: total * burden.capacity_units // capacity for burden in burdens}


def _is_within(weight: int, share: int, permille: int) -> bool:
    """Say whether a broker is near enough to its share, or as near as whole units allow."""
    away = abs(weight - share)
    return away < UNIT_WEIGHT or away * 1000 <= share * permille


def _weight(unit: Movable) -> int:
    return unit.weight


def _by_need(broker: _Broker) -> tuple[bool, float, str]:
    return broker.is_above, broker.relative, broker.broker_id


def _by_lack(broker: _Broker) -> tuple[bool, float, str]:
    return not broker.is_below, broker.relative, broker.broker_id
