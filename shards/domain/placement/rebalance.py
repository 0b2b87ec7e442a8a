"""Plans moves after which every broker carries its share: as few moves as possible.

    burdens ──needs_rebalance?──▶ plan ──▶ moves, each from the fullest to the emptiest

A unit weighs ``UNIT_WEIGHT``, and more if it is busy (``weight_of``). A broker's share of the
whole weight is its share of the whole capacity. All arithmetic is in integers and ties go to the
first id, so the same input gives the same plan.

Hysteresis: a rebalance begins when some broker is outside ``START_PERMILLE`` of its share and goes
on until all are within ``GOAL_PERMILLE``. Both are widened to a whole unit: a share of 2.5 units
cannot be met. Loads are smoothed before they weigh (``smoothed``), and traffic is at most a third
of a broker's burden, so that noise in reports does not move units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

START_PERMILLE = 100
"""A rebalance begins when a broker is further than this from its share."""

GOAL_PERMILLE = 50
"""A rebalance ends when no broker is further than this from its share."""

UNIT_WEIGHT = 1_000
"""A unit without traffic. Fine enough for shares of capacity, coarse enough for integers."""

TRAFFIC_WEIGHT = 500
"""Weight of all traffic of the shard, per unit of the shard: half the weight of the units."""

TRAFFIC_UNITS_MAX = 20
"""Weight of a unit's traffic at most, in units, so that no single unit fills a broker."""

LOOKS_PER_PAIR_MAX = 1_000
"""Units of one broker that are tried for another before the next pair: rules may forbid many."""

SMOOTHING = 8
"""The weight of a new report is one part in this many; the rest is the smoothed rate before it."""


@dataclass(frozen=True, slots=True)
class Movable:
    """One unit of a broker that may be moved, and its weight."""

    name: str
    weight: int = UNIT_WEIGHT


@dataclass(frozen=True, slots=True)
class Burden:
    """One broker as the shard sees it.

    ``weight`` is that of all its units here, whether they may be moved or not. ``movable`` are
    those that may; the plan takes the heaviest that fits. ``room`` is how many more it may get.
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
    ``GOAL_PERMILLE``; if not, rules or a lack of room prevent it. ``full`` are the brokers that
    would get more units if they had room."""

    moves: tuple[Move, ...]
    after: Mapping[str, int]
    is_met: bool
    full: tuple[str, ...] = ()


MayGo = Callable[[str, str], bool]
"""Whether the rules allow the unit of this name on the broker of this id."""


def smoothed(known: int, reported: int) -> int:
    """Return the smoothed rate after a report. It converges to the rate of unchanging reports."""
    step = (reported - known) // SMOOTHING
    # Rounding down would stop short of a higher report for ever.
    return reported if abs(reported - known) < SMOOTHING else known + step


def weight_of(rate: int, total_rate: int, units: int) -> int:
    """Return the weight of a unit with ``rate`` of the ``total_rate`` of ``units`` units."""
    if total_rate <= 0 or rate <= 0:
        return UNIT_WEIGHT
    traffic = units * TRAFFIC_WEIGHT * rate // total_rate
    return UNIT_WEIGHT + min(traffic, TRAFFIC_UNITS_MAX * UNIT_WEIGHT)


def needs_rebalance(burdens: Collection[Burden]) -> bool:
    """Return whether a broker is so far from its share that a rebalance has to begin."""
    shares = _shares(burdens)
    return any(
        not _is_within(burden.weight, shares[burden.broker_id], START_PERMILLE)
        for burden in burdens
    )


def plan(burdens: Sequence[Burden], may_go: MayGo, *, moves_max: int) -> Plan:
    """Return the moves that bring every broker within ``GOAL_PERMILLE`` of its share.

    With equal units, and where no rule or lack of room interferes, no plan has fewer moves.
    """
    planner = Planner(burdens, may_go)
    while len(planner.moves) < moves_max and planner.step():
        pass
    return planner.plan()


class Planner:
    """Makes a plan move by move, so that the caller can yield the event loop between two moves.

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
        """Add the best remaining move; return False if there is none, or none is needed."""
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
        """Return the moves planned so far."""
        after = {broker.broker_id: broker.weight for broker in self._brokers}
        is_met = not any(broker.is_outside for broker in self._brokers)
        full = [each.broker_id for each in self._brokers if each.is_below and each.room <= 0]
        return Plan(tuple(self.moves), after, is_met, tuple(full))

    def _pairs(self) -> Iterator[tuple[_Broker, _Broker]]:
        """Yield pairs of a broker above its share and one below, the most urgent first."""
        above = sorted(self._brokers, key=_by_need, reverse=True)
        below = sorted(self._brokers, key=_by_lack)
        for giver in above:
            for taker in below:
                is_wanted = giver.is_above or taker.is_below
                if is_wanted and taker.room > 0 and giver.excess > taker.excess:
                    yield giver, taker

    def _place_of_unit(self, giver: _Broker, taker: _Broker) -> int | None:
        """Return the index of the unit whose move brings both nearest to their shares.

        The heaviest of those that do not overshoot the midpoint, else the lightest that does.
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
    """A broker during planning. ``units`` are those that it may still give, lightest first."""

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
        """Its weight above its share."""
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
        """Its weight above its share, as a fraction of the share."""
        return self.excess / max(self.share, UNIT_WEIGHT)


def _shares(burdens: Collection[Burden]) -> dict[str, int]:
    total = sum(burden.weight for burden in burdens)
    capacity = sum(burden.capacity_units for burden in burdens)
    if not capacity:
        return {burden.broker_id: burden.weight for burden in burdens}
    return {burden.broker_id: total * burden.capacity_units // capacity for burden in burdens}


def _is_within(weight: int, share: int, permille: int) -> bool:
    """Return whether a broker is within ``permille`` of its share, widened to a whole unit."""
    away = abs(weight - share)
    return away < UNIT_WEIGHT or away * 1000 <= share * permille


def _weight(unit: Movable) -> int:
    return unit.weight


def _by_need(broker: _Broker) -> tuple[bool, float, str]:
    return broker.is_above, broker.relative, broker.broker_id


def _by_lack(broker: _Broker) -> tuple[bool, float, str]:
    return not broker.is_below, broker.relative, broker.broker_id
