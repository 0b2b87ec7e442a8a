"""Plans moves after which every broker carries its share: as few moves as possible.

    burdens ──needs_rebalance?──▶ plan ──▶ moves, each from the fullest to the emptiest

A unit weighs ``UNIT_WEIGHT`` and its traffic (``weight_of``): one scale, which does not depend on
what others carry, so that every shard, and every plan, weighs a unit alike. A broker's share of the
weight of its kind is its share of the capacity of its kind. All arithmetic is in integers and ties
go to the first id, so the same input gives the same plan.

Hysteresis: a rebalance begins when some broker is outside ``START_PERMILLE`` of its share and goes
on until all are within ``GOAL_PERMILLE``. Both are widened to a whole unit: a share of 2.5 units
cannot be met. Loads are smoothed before they weigh (``measured_loads``), and a unit that brings two
brokers hardly nearer to their shares stays, so that noise in reports does not move units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

START_PERMILLE = 100
"""A rebalance begins when a broker is further than this from its share."""

GOAL_PERMILLE = 50
"""A rebalance ends when no broker is further than this from its share."""

UNIT_WEIGHT = 1_000
"""Weight of a unit without traffic: as much as 1,000 bytes a second. 50,000 of them, which fill a
broker, weigh what saturates a core in small messages. Without traffic, units are counted."""

LOOKS_PER_PAIR_MAX = 1_000
"""Units of one broker that are tried for another before the next pair: rules may forbid many."""


@dataclass(frozen=True, slots=True)
class Movable:
    """One unit of a broker that may be moved, and its weight."""

    name: str
    weight: int = UNIT_WEIGHT


@dataclass(frozen=True, slots=True)
class Burden:
    """One broker as the planner sees it.

    ``weight`` is that of all its units, whether they may be moved or not. ``movable`` are those
    that may. ``room`` is how many more it may get.
    """

    broker_id: str
    capacity_units: int
    weight: int
    movable: Sequence[Movable] = ()
    room: int = 1 << 30
    others: int = 0
    """Units besides ``movable`` that may be moved, of ``other_weight`` each, and have no names."""

    other_weight: int = UNIT_WEIGHT
    is_eager: bool = True
    """Whether moves may be made for its sake. If not, it only takes part in those of others."""

    kind: str = ""
    """Brokers of one kind are evened out among themselves: no unit goes to another kind."""


@dataclass(frozen=True, slots=True)
class Move:
    """One named unit, or ``count`` units without names (``name`` is "" then)."""

    name: str
    from_broker_id: str
    to_broker_id: str
    count: int = 1
    weight: int = field(default=UNIT_WEIGHT, compare=False)
    """Of each of the units."""


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


def weight_of(rate: int) -> int:
    """Return the weight of a unit with traffic of ``rate`` bytes a second."""
    return UNIT_WEIGHT + rate


def needs_rebalance(burdens: Collection[Burden]) -> bool:
    """Return whether a broker is so far from its share that a rebalance has to begin."""
    shares = shares_of(burdens)
    return any(
        not is_within(burden.weight, shares[burden.broker_id], START_PERMILLE) for burden in burdens
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

    def __init__(
        self, burdens: Sequence[Burden], may_go: MayGo, *, goal_permille: int = GOAL_PERMILLE
    ) -> None:
        shares = shares_of(burdens)
        self._brokers = [
            _Broker(burden, shares[burden.broker_id], goal_permille) for burden in burdens
        ]
        self._above = sorted(self._brokers, key=_by_need)
        self._below = sorted(self._brokers, key=_by_lack)
        self._may_go = may_go
        self._refused: set[tuple[str, str]] = set()
        self.moves: list[Move] = []

    def step(self, units_max: int = 1 << 30) -> bool:
        """Add the best remaining move; return False if there is none, or none is needed.

        A move of units without names has as many at once as are needed, at most ``units_max``.
        """
        for giver, taker in self._pairs():
            move = self._best_move(giver, taker, units_max)
            if move is None:
                continue
            for broker in (giver, taker):
                self._above.pop(bisect_left(self._above, _by_need(broker), key=_by_need))
                self._below.pop(bisect_left(self._below, _by_lack(broker), key=_by_lack))
            giver.weight -= move.count * move.weight
            taker.weight += move.count * move.weight
            taker.room -= move.count
            for broker in (giver, taker):
                insort(self._above, broker, key=_by_need)
                insort(self._below, broker, key=_by_lack)
            self.moves.append(move)
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
        for giver in self._above:
            if not (giver.units or giver.others):
                continue
            for taker in self._below:
                if taker.burden.kind != giver.burden.kind:
                    continue
                if taker.room > 0 and giver.excess > taker.excess and _is_wanted(giver, taker):
                    yield giver, taker

    def _best_move(self, giver: _Broker, taker: _Broker, units_max: int) -> Move | None:
        """Return the move that brings both nearest to their shares: of half the gap, or nearly."""
        gap = giver.excess - taker.excess
        place = self._place_of_unit(giver, taker, gap)
        named = None if place is None else giver.units[place].weight
        other = giver.other_weight if giver.others and _fits(giver.other_weight, gap) else None
        if other is not None and (named is None or abs(gap - 2 * other) < abs(gap - 2 * named)):
            count = _count_of_others(giver, taker, gap, units_max)
            giver.others -= count
            return Move("", giver.broker_id, taker.broker_id, count, other)
        if place is None:
            return None
        unit = giver.units.pop(place)
        return Move(unit.name, giver.broker_id, taker.broker_id, 1, unit.weight)

    def _place_of_unit(self, giver: _Broker, taker: _Broker, gap: int) -> int | None:
        """Return the index of the best unit that may go, None if none of those looked at may."""
        units = giver.units
        above = bisect_right(units, gap // 2, key=_weight)
        below = above - 1
        for _ in range(LOOKS_PER_PAIR_MAX):
            if above < len(units) and not _fits(units[above].weight, gap):
                above = len(units)
            if below < 0 and above == len(units):
                return None
            is_below = above == len(units) or (
                below >= 0 and gap - 2 * units[below].weight <= 2 * units[above].weight - gap
            )
            place = below if is_below else above
            below, above = (below - 1, above) if is_below else (below, above + 1)
            key = (units[place].name, taker.broker_id)
            if key in self._refused:
                continue
            if self._may_go(*key):
                return place
            self._refused.add(key)
        return None


@dataclass(slots=True, eq=False)
class _Broker:
    """A broker during planning. ``units`` are those that it may still give, lightest first."""

    burden: Burden
    share: int
    goal_permille: int
    weight: int = field(init=False)
    room: int = field(init=False)
    others: int = field(init=False)
    other_weight: int = field(init=False)
    units: list[Movable] = field(init=False)

    def __post_init__(self) -> None:
        self.weight, self.room = self.burden.weight, self.burden.room
        self.others, self.other_weight = self.burden.others, self.burden.other_weight
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
        return not is_within(self.weight, self.share, self.goal_permille)

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


def shares_of(burdens: Collection[Burden]) -> dict[str, int]:
    """Return each broker's share of the weight of its kind, which is its share of the capacity."""
    total: Counter[str] = Counter()
    capacity: Counter[str] = Counter()
    for burden in burdens:
        total[burden.kind] += burden.weight
        capacity[burden.kind] += burden.capacity_units
    return {
        burden.broker_id: total[burden.kind] * burden.capacity_units // capacity[burden.kind]
        if capacity[burden.kind]
        else burden.weight
        for burden in burdens
    }


def is_within(weight: int, share: int, permille: int) -> bool:
    """Return whether a broker is within ``permille`` of its share, widened to a whole unit."""
    away = abs(weight - share)
    return away < UNIT_WEIGHT or away * 1000 <= share * permille


def _fits(weight: int, gap: int) -> bool:
    """Return whether a unit brings two brokers nearer to their shares even if noise hid a part.

    What a unit's traffic overshoots must be less than a third of it: otherwise a slightly wrong
    report moves it there and the next one moves it back.
    """
    return weight + (weight - UNIT_WEIGHT) // 3 < gap


def _is_wanted(giver: _Broker, taker: _Broker) -> bool:
    return (giver.burden.is_eager and giver.is_above) or (taker.burden.is_eager and taker.is_below)


def _count_of_others(giver: _Broker, taker: _Broker, gap: int, units_max: int) -> int:
    """Return how many units without names go: neither broker passes its share for the other's goal,
    and none the middle between them."""
    missing = 0
    for broker in (giver, taker):
        if broker.burden.is_eager and broker.is_outside:
            allowed = max(UNIT_WEIGHT - 1, broker.share * broker.goal_permille // 1000)
            missing = max(missing, abs(broker.excess) - allowed)
    until_share = min([away for away in (giver.excess, -taker.excess) if away > 0])
    weight = giver.other_weight
    wanted = min(-(-missing // weight), until_share // weight, gap // 2 // weight)
    return max(1, min(wanted, giver.others, taker.room, units_max))


def _weight(unit: Movable) -> int:
    return unit.weight


def _by_need(broker: _Broker) -> tuple[bool, float, str]:
    return not broker.is_above, -broker.relative, broker.broker_id


def _by_lack(broker: _Broker) -> tuple[bool, float, str]:
    return not broker.is_below, broker.relative, broker.broker_id
