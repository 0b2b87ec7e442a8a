"""Brokers with traffic that report it, and nodes that each plan the balance from the reports.

Everything happens in order of time, from one seed. Each node leads some shards: it makes the moves
of its own plan whose units are of these, at an even pace, and nobody else's.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count, pairwise

from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.limits.placement import BALANCE_ROUND_LAG_MS, BUSIEST_UNITS_MAX
from nextgen.kernel.routing.hashing import hash64
from shards.domain.placement.balance import (
    Balance,
    BalancePlan,
    BrokerView,
    UnitMove,
    UnitShift,
    part_of,
)
from shards.domain.placement.measured_loads import Report

START_MS = 1_800_000_000_000
CAPACITY_UNITS = 50_000


class BalancedBrokers:
    """``rates`` is the traffic of each unit, ``places`` its broker; both may be changed."""

    def __init__(
        self,
        rates: Mapping[str, int],
        places: Mapping[str, str],
        *,
        brokers: Mapping[str, int] | Sequence[str] = (),
        nodes: int = 1,
        shards: int = 1,
        noise: float = 0.0,
        delay_ms_max: int = 0,
        settings: BalanceSettings | None = None,
        seed: int = 1,
    ) -> None:
        self.rates, self.places = dict(rates), dict(places)
        given = brokers or sorted(set(places.values()))
        self.capacities = (
            dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, CAPACITY_UNITS)
        )
        self.settings = settings or BalanceSettings()
        self.balances = [Balance() for _ in range(nodes)]
        self.last_plans: list[BalancePlan | None] = [None] * nodes
        self.closed: set[str] = set()
        self.stuck: set[str] = set()
        """Units that rules of their own keep where they are."""

        self.busy_permille: dict[str, int] = {}
        self.silent: set[str] = set()
        """Brokers that do not report."""

        self.moved: list[tuple[int, str, str, str]] = []
        """Moves that were made: when, the unit, from where, to where."""

        self._noise, self._delay_ms_max = noise, delay_ms_max
        self._shards = shards
        self._random = random.Random(seed)
        self._happens: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.now_ms = START_MS
        self._phases = {broker: self._random.randrange(60_000) for broker in self.capacities}
        self._rounds = 0
        self._last_named: dict[str, frozenset[str]] = {}

    @property
    def interval_ms(self) -> int:
        return 1000 * self.settings.interval_seconds

    def run(self, rounds: int) -> int:
        """Run so many rounds; return how many units moved."""
        before = len(self.moved)
        for _ in range(rounds):
            self._rounds += 1
            edge_ms = START_MS + self._rounds * self.interval_ms
            for broker in self.capacities:
                self._at(edge_ms - self._random.randrange(self.interval_ms), self._report, broker)
            for node in range(len(self.balances)):
                late_ms = self._random.randrange(self._delay_ms_max + 1)
                self._at(edge_ms + BALANCE_ROUND_LAG_MS + late_ms, self._plan, node)
            while self._happens and self._happens[0][0] <= edge_ms + self.interval_ms // 2:
                self.now_ms, _, happen = heapq.heappop(self._happens)
                happen()
        return len(self.moved) - before

    def loads(self) -> dict[str, int]:
        """Return the true traffic of each broker."""
        loads = dict.fromkeys(self.capacities, 0)
        for unit, broker in self.places.items():
            loads[broker] += self.rates[unit]
        return loads

    def imbalance(self) -> float:
        """Return the highest load by capacity as a multiple of the mean."""
        loads = self.loads()
        mean = sum(loads.values()) / sum(self.capacities.values())
        return max(loads[broker] / units / mean for broker, units in self.capacities.items())

    def counts(self) -> Counter[str]:
        return Counter(self.places.values())

    def shortest_stay_ms(self) -> int | None:
        """Return the shortest time between two moves of one unit, None if none moved twice."""
        times: dict[str, list[int]] = {}
        for at_ms, unit, _, _ in self.moved:
            times.setdefault(unit, []).append(at_ms)
        stays = [after - before for each in times.values() for before, after in pairwise(each)]
        return min(stays, default=None)

    def most_in_a_minute(self) -> int:
        """Return the most moves in any sixty seconds."""
        times = [at_ms for at_ms, *_ in self.moved]
        first = most = 0
        for place, at_ms in enumerate(times):
            while times[first] <= at_ms - 60_000:
                first += 1
            most = max(most, place - first + 1)
        return most

    # What happens -----------------------------------------------------------------------------

    def _at(self, at_ms: int, what: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._happens, (at_ms, next(self._order), lambda: what(*arguments)))

    def _report(self, broker: str) -> None:
        if broker in self.silent:
            return
        off = 1 + self._random.uniform(-self._noise, self._noise)
        rates = {
            unit: self.rates[unit] * off for unit, place in self.places.items() if place == broker
        }
        busiest = heapq.nlargest(BUSIEST_UNITS_MAX, rates, key=lambda unit: (rates[unit], unit))
        report = Report(
            broker,
            f"s-{broker}",
            self.now_ms,
            len(rates),
            sum(rates.values()),
            {unit: rates[unit] for unit in busiest if rates[unit] > 0},
            self.busy_permille.get(broker, 0),
        )
        self._last_named[broker] = frozenset(report.named)
        for node in range(len(self.balances)):
            delay_ms = self._random.randrange(self._delay_ms_max + 1)
            self._at(self.now_ms + delay_ms, self._take, node, report)

    def _take(self, node: int, report: Report) -> None:
        self.balances[node].take(report, self.now_ms)

    def _plan(self, node: int) -> None:
        views = [
            BrokerView(broker, f"s-{broker}", units, broker not in self.closed)
            for broker, units in self.capacities.items()
        ]
        plan = self.balances[node].plan(views, self.settings, self.now_ms)
        if plan is None:
            return
        self.last_plans[node] = plan
        moves = [move for move in plan.moves if self._leader_of(move.name) == node]
        for shift in plan.shifts:
            moves += self._parts_of(shift, node)
        pace_ms = max(0, plan.carried_out_by_ms - self.now_ms) / max(1, len(moves))
        for place, move in enumerate(moves):
            self._at(self.now_ms + int(place * pace_ms), self._move, move)

    def _leader_of(self, unit: str) -> int:
        return hash64(unit) % self._shards % len(self.balances)

    def _parts_of(self, shift: UnitShift, node: int) -> list[UnitMove]:
        named = self._last_named[shift.from_broker_id]
        here: dict[int, list[str]] = {}
        for unit, place in self.places.items():
            if place == shift.from_broker_id and unit not in named:
                here.setdefault(hash64(unit) % self._shards, []).append(unit)
        units_all = sum(map(len, here.values()))
        moves = []
        for shard, units in here.items():
            if shard % len(self.balances) == node:
                draw = hash64(f"{shard}/{shift.from_broker_id}/{shift.to_broker_id}/{self._rounds}")
                part = part_of(shift.count, units_here=len(units), units_all=units_all, draw=draw)
                moves += [
                    UnitMove(unit, shift.from_broker_id, shift.to_broker_id)
                    for unit in units[:part]
                ]
        return moves

    def _move(self, move: UnitMove) -> None:
        if self.places[move.name] == move.from_broker_id and move.name not in self.stuck:
            self.places[move.name] = move.to_broker_id
            self.moved.append((self.now_ms, move.name, move.from_broker_id, move.to_broker_id))
