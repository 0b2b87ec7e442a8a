"""The balance of this project: what the shards run, fed with the reports that brokers send."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

from benchmarks.support.balance.cluster import MESSAGE_BYTES, STEP_SECONDS, SimulatedCluster
from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.limits.placement import (
    BALANCE_ROUND_LAG_MS,
    BUSIEST_UNITS_MAX,
    LOAD_REPORT_MS_MAX,
)
from shards.domain.placement.balance import Balance, BrokerView
from shards.domain.placement.measured_loads import Report

CAPACITY_UNITS = 50_000
REPORT_CHANGE = 0.1
MESSAGE_COST = 1 + 256 / MESSAGE_BYTES
"""Weight of a byte: a message counts as 256 bytes beside its own, as in the shards' loads."""


@dataclass(slots=True)
class _Due:
    at_ms: int
    topic: int
    from_broker: int
    to_broker: int


class ByTopic:
    name = "by topic (this project)"

    def __init__(self, seed: int, settings: BalanceSettings | None = None) -> None:
        self._settings = settings or BalanceSettings()
        self._random = random.Random(seed)
        self._balance = Balance()
        self._reported: dict[int, tuple[int, float, int]] = {}
        self._named: dict[int, frozenset[int]] = {}
        self._sessions: dict[int, int] = {}
        self._due: list[_Due] = []
        self._moved_at: dict[int, int] = {}

    def start(self, cluster: SimulatedCluster) -> None:
        """Place the topics evenly by count, at random: first lookups compare units."""
        order = list(range(len(cluster.bundles)))
        self._random.shuffle(order)
        cluster.places = [0] * len(order)
        brokers = [
            broker for broker in cluster.brokers for _ in range(round(cluster.capacities[broker]))
        ]
        for number, topic in enumerate(order):
            cluster.places[topic] = brokers[number % len(brokers)]

    def lost(self, cluster: SimulatedCluster, broker: int) -> None:
        """Place each topic at the emptier of two random brokers."""
        self._sessions[broker] = self._sessions.get(broker, 0) + 1
        self._reported.pop(broker, None)
        counts = [0] * len(cluster.capacities)
        for place in cluster.places:
            counts[place] += 1
        for topic, place in enumerate(cluster.places):
            if place == broker:
                two = self._random.sample(cluster.brokers, 2)
                to = min(two, key=lambda each: counts[each] / cluster.capacities[each])
                counts[to] += 1
                cluster.places[topic] = to

    def step(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        now_ms = 1000 * now_seconds
        self._report(cluster, now_ms)
        views = [
            BrokerView(
                str(broker),
                self._session(broker),
                round(CAPACITY_UNITS * cluster.capacities[broker]),
            )
            for broker in cluster.brokers
        ]
        plan = self._balance.plan(views, self._settings, now_ms + BALANCE_ROUND_LAG_MS)
        if plan is not None:
            some = [
                (int(move.name), int(move.from_broker_id), int(move.to_broker_id))
                for move in plan.moves
            ]
            for shift in plan.shifts:
                giver, taker = int(shift.from_broker_id), int(shift.to_broker_id)
                some += [
                    (topic, giver, taker)
                    for topic in self._unnamed(cluster, giver, shift.count, now_ms)
                ]
            pace_ms = (plan.carried_out_by_ms - now_ms) / max(1, len(some))
            for place, (topic, giver, taker) in enumerate(some):
                self._due.append(_Due(now_ms + int(place * pace_ms), topic, giver, taker))
        self._carry_out(cluster, now_ms)

    def _carry_out(self, cluster: SimulatedCluster, now_ms: int) -> None:
        until_ms = now_ms + 1000 * STEP_SECONDS
        for due in self._due:
            is_there = cluster.places[due.topic] == due.from_broker
            if due.at_ms < until_ms and is_there and cluster.is_alive[due.to_broker]:
                cluster.move(due.topic, due.to_broker)
                self._moved_at[due.topic] = now_ms
        self._due = [due for due in self._due if due.at_ms >= until_ms]

    def _unnamed(self, cluster: SimulatedCluster, giver: int, count: int, now_ms: int) -> list[int]:
        """Return topics of the giver that its last report does not name and that may move."""
        grace_ms = 1000 * self._settings.grace_seconds
        named = self._named[giver]
        planned = {due.topic for due in self._due}
        free = [
            topic
            for topic, place in enumerate(cluster.places)
            if place == giver
            and topic not in named
            and topic not in planned
            and now_ms - self._moved_at.get(topic, -grace_ms) >= grace_ms
        ]
        self._random.shuffle(free)
        return free[:count]

    # Reports ----------------------------------------------------------------------------------

    def _session(self, broker: int) -> str:
        return f"{broker}/{self._sessions.get(broker, 0)}"

    def _report(self, cluster: SimulatedCluster, now_ms: int) -> None:
        """Send the reports that are due: of a large change, else once a minute."""
        loads, usages = cluster.loads(), cluster.usages()
        own: dict[int, list[int]] = {broker: [] for broker in cluster.brokers}
        due = set()
        counts = [0] * len(loads)
        for place in cluster.places:
            counts[place] += 1
        for broker in cluster.brokers:
            at_ms, load, units = self._reported.get(broker, (-LOAD_REPORT_MS_MAX, 0.0, 0))
            if (
                now_ms - at_ms >= LOAD_REPORT_MS_MAX
                or abs(loads[broker] - load) > REPORT_CHANGE * max(loads[broker], load)
                or abs(counts[broker] - units) > max(10, REPORT_CHANGE * max(units, counts[broker]))
            ):
                due.add(broker)
        if not due:
            return
        for topic, place in enumerate(cluster.places):
            if place in due:
                own[place].append(topic)
        rates = cluster.rates
        for broker in sorted(due):
            busiest = heapq.nlargest(BUSIEST_UNITS_MAX, own[broker], key=rates.__getitem__)
            self._named[broker] = frozenset(busiest)
            self._reported[broker] = now_ms, loads[broker], counts[broker]
            self._balance.take(
                Report(
                    str(broker),
                    self._session(broker),
                    now_ms,
                    counts[broker],
                    MESSAGE_COST * loads[broker],
                    {str(topic): MESSAGE_COST * rates[topic] for topic in busiest},
                    round(1000 * usages[broker]),
                ),
                now_ms,
            )


class NoBalance:
    """Topics stay where they were placed, evenly by count."""

    name = "none"

    def __init__(self, seed: int) -> None:
        self._by_topic = ByTopic(seed)

    def start(self, cluster: SimulatedCluster) -> None:
        self._by_topic.start(cluster)

    def lost(self, cluster: SimulatedCluster, broker: int) -> None:
        self._by_topic.lost(cluster, broker)

    def step(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        pass
