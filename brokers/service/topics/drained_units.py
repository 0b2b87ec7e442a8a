"""Reports of terminated units of which a durable subscription has acknowledged everything.

    acknowledged ─▶ the cursor is durable ─▶ reported to the manager ─▶ settled by the topic's shard
                                                  ╰─ the connection broke ─▶ reported on the next

The controller of a scalable topic waits for them: a segment's children follow when it is drained.
Nothing is polled, and what is settled is not reported again without a new reason. A unit that
another owner opens is reported by that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from brokers.domain.holding import Holding
from brokers.ports.session import DrainedUnit
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.unit import TopicUnit
from nextgen.kernel.limits.scalable import DRAINED_UNITS_IN_FLIGHT_MAX


class DrainedUnits:
    """The reports of one broker. At most ``DRAINED_UNITS_IN_FLIGHT_MAX`` are not settled."""

    def __init__(
        self,
        holding: Callable[[], Holding],
        report: Callable[[Sequence[DrainedUnit]], None],
    ) -> None:
        self._holding = holding
        self._report = report
        # Every report that is not settled is in one of the first two, in the order of sending.
        self._unsent: dict[DrainedUnit, Subscription] = {}
        self._sent: dict[DrainedUnit, Subscription] = {}
        self._noted_again: set[DrainedUnit] = set()
        """Sent ones for which a reason came behind the report: it may have been too early."""

    def __repr__(self) -> str:
        return f"<DrainedUnits unsent={len(self._unsent)} sent={len(self._sent)}>"

    def note(self, unit: TopicUnit, subscription: Subscription) -> None:
        """Report a drained subscription of a terminated unit, once that is durable.

        It is reported as of then: not if its cursor was set back meanwhile.
        """
        subscription.stored().add_done_callback(partial(self._stored, unit, subscription))

    def connected(self) -> None:
        """Report again what is not settled: there is another connection to a manager."""
        self._unsent = {**self._sent, **self._unsent}
        self._sent = {}
        self._noted_again.clear()
        self._send()

    def settled(self, units: Sequence[DrainedUnit]) -> None:
        """Note that the shards of these units need no further report of them."""
        for drained in units:
            subscription = self._sent.pop(drained, None)
            if subscription is not None and drained in self._noted_again:
                self._noted_again.discard(drained)
                self._unsent[drained] = subscription
        self._send()

    def _stored(
        self, unit: TopicUnit, subscription: Subscription, stored: asyncio.Future[None]
    ) -> None:
        if stored.cancelled() or stored.exception() is not None:
            return
        drained = DrainedUnit(unit.topic_id, unit.unit, unit.name, unit.epoch, subscription.name)
        if drained in self._sent:
            self._sent[drained] = subscription
            self._noted_again.add(drained)
        else:
            self._unsent[drained] = subscription
            self._send()

    def _send(self) -> None:
        page: list[DrainedUnit] = []
        while self._unsent and len(self._sent) < DRAINED_UNITS_IN_FLIGHT_MAX:
            drained = next(iter(self._unsent))
            subscription = self._unsent.pop(drained)
            if self._is_so(drained, subscription):
                self._sent[drained] = subscription
                page.append(drained)
        if page:
            self._report(page)

    def _is_so(self, drained: DrainedUnit, subscription: Subscription) -> bool:
        """Whether a report holds, and is this broker's to make."""
        assignment = self._holding().assigned(drained.name)
        is_held = (
            assignment is not None
            and assignment.key == (drained.topic_id, drained.unit)
            and assignment.epoch == drained.epoch
        )
        return is_held and subscription.is_drained and not subscription.is_over
