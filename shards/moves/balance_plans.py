"""Plans the balance of all brokers at one node, round by round, for the leaders that it has.

    directory: sessions, load reports, settings ─▶ ``Balance`` (pure) ─▶ plan ─▶ ``Balancer`` of
                                                                           each shard led here

Every node plans for the whole cluster, from the same pushed reports, and its leaders carry out the
moves of their own units. One object per process: a new leader has the history of loads at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from nextgen.client.wire.broker_load import report_permille, traffic_of
from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.limits.placement import BALANCE_ROUND_LAG_MS
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport
from shards.domain.placement.balance import Balance, BalancePlan, BrokerView, Standing
from shards.domain.placement.measured_loads import Report
from shards.metrics import NodeMetrics
from shards.ports import BrokerDirectory, Clock

LOOK_SECONDS = 5.0
"""Between two reads of the directory: brokers report their load at most so often."""

OnPlan = Callable[[BalancePlan], None]

_logger = structlog.get_logger(__name__)


class BalancePlans:
    """The rounds of one node. Call ``run`` once, for as long as the node runs."""

    def __init__(self, directory: BrokerDirectory, clock: Clock, metrics: NodeMetrics) -> None:
        self._directory = directory
        self._clock = clock
        self._metrics = metrics
        self._balance = Balance()
        self._listeners: list[OnPlan] = []
        self._read: dict[str, int] = {}
        """By session: when its last report that was taken in had been measured."""
        self._refused: Counter[str] = Counter()
        self.last: BalancePlan | None = None
        """The plan of the last round; None before the first, and while there are none."""

    def __repr__(self) -> str:
        return f"<BalancePlans listeners={len(self._listeners)}>"

    @property
    def settings(self) -> BalanceSettings:
        """The settings as of now."""
        return self._directory.settings().balance

    def on_plan(self, listener: OnPlan) -> Callable[[], None]:
        """Call ``listener`` with each plan that moves units; return how to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def run(self) -> None:
        """Plan a round whenever one is due, until cancelled."""
        while True:
            self._look()
            await asyncio.sleep(self._pause_seconds())

    def _pause_seconds(self) -> float:
        """Return the time to the next round, or to the next read of reports if that is sooner."""
        interval_ms = self.settings.interval_seconds * 1_000
        left_ms = interval_ms - (self._clock.wall_ms() - BALANCE_ROUND_LAG_MS) % interval_ms
        return min(LOOK_SECONDS, left_ms / 1_000)

    def _look(self) -> None:
        now_ms = self._clock.wall_ms()
        views = []
        for broker in self._directory.live():
            report = self._directory.load(broker.session_id)
            if report is not None and self._read.get(broker.session_id) != report.measured_at_ms:
                self._read[broker.session_id] = report.measured_at_ms
                self._balance.take(_report_of(broker, report), now_ms)
            if not broker.draining:
                views.append(
                    BrokerView(
                        broker.broker_id,
                        broker.session_id,
                        broker.capacity_units,
                        may_receive=broker.quarantined_until_ms <= now_ms,
                        kind=broker.kind,
                    )
                )
        for session_id in self._read.keys() - {view.session_id for view in views}:
            del self._read[session_id]
        self._count_refused()
        settings = self.settings
        if not settings.enabled:
            self.last = None
            return
        plan = self._balance.plan(views, settings, now_ms)
        if plan is not None:
            self._publish(plan)

    def _publish(self, plan: BalancePlan) -> None:
        self.last = plan
        standings = plan.standings
        is_quiet = not any(each.hits_permille or each.is_begun for each in standings)
        is_planned = bool(plan.moves or plan.shifts)
        outcome = "planned" if is_planned else "even" if is_quiet else "waiting"
        self._metrics.note_balance(outcome)
        self._metrics.imbalance.set(max([permille_of(each) for each in standings], default=0))
        for each in standings:
            if each.why_not:
                self._metrics.note_left_out(each.why_not)
        if is_planned:
            for listener in tuple(self._listeners):
                listener(plan)

    def _count_refused(self) -> None:
        for why, count in (self._balance.refused - self._refused).items():
            self._metrics.note_left_out(why, count)
            _logger.info("load reports are ignored", why=why, reports=count)
        self._refused = self._balance.refused.copy()


def permille_of(standing: Standing) -> int:
    """Return what a broker carries in permille of its share."""
    return 1_000 * standing.weight // max(1, standing.share)


def _report_of(broker: BrokerRecorded, report: LoadReport) -> Report:
    bound = frozenset(report.bound)
    return Report(
        broker.broker_id,
        broker.session_id,
        report.measured_at_ms,
        report.topics,
        traffic_of(report),
        {each.name: traffic_of(each) for each in report.busiest},
        report_permille(report),
        frozenset([each.name for at, each in enumerate(report.busiest) if at in bound]),
    )
