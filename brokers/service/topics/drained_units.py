"""Reports of terminated units of which a durable subscription has acknowledged everything.

    acknowledged ─▶ the cursor is durable ─▶ reported to the manager, if the unit is held here

The controller of a scalable topic waits for them: a segment's children follow when it is drained.
Nothing is polled. A report may be lost with its connection, so all are repeated on the next one. A
unit that another owner opens is reported by that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from brokers.domain.holding import Holding
from brokers.ports.session import DrainedUnit
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.topic import Topic
from brokers.service.topics.unit import TopicUnit
from nextgen.tasks.background import start

_TOPICS_PER_STEP = 500
"""Topics that are looked at before the event loop runs other work: less than a millisecond."""


class DrainedUnits:
    """The reports of one broker. ``topics`` are its open ones."""

    def __init__(
        self,
        holding: Callable[[], Holding],
        topics: Iterable[Topic],
        report: Callable[[DrainedUnit], None],
    ) -> None:
        self._holding = holding
        self._topics = topics
        self._report = report
        self._repeating: asyncio.Task[None] | None = None

    def note(self, unit: TopicUnit, subscription: Subscription) -> None:
        """Report a drained subscription of a terminated unit, once that is durable.

        It is reported as of then: not if its cursor was set back meanwhile.
        """
        subscription.stored().add_done_callback(partial(self._stored, unit, subscription))

    def repeat(self) -> None:
        """Report again all that are drained: a connection to a manager is up."""
        self.close()
        self._repeating = start("drained_units", self._repeat())

    def close(self) -> None:
        """End a repetition that is running."""
        if self._repeating is not None:
            self._repeating.cancel()

    async def _repeat(self) -> None:
        for number, topic in enumerate(self._topics, start=1):
            if topic.is_terminated and topic.is_usable:
                for subscription in list(topic.subscriptions.values()):
                    if subscription.is_durable and subscription.is_drained:
                        self.note(topic.unit, subscription)
            if number % _TOPICS_PER_STEP == 0:
                await asyncio.sleep(0)

    def _stored(
        self, unit: TopicUnit, subscription: Subscription, stored: asyncio.Future[None]
    ) -> None:
        if stored.cancelled() or stored.exception() is not None:
            return
        assignment = self._holding().assigned(unit.name)
        is_held = (
            assignment is not None and assignment.key == unit.key and assignment.epoch == unit.epoch
        )
        if is_held and subscription.is_drained and not subscription.is_over:
            self._report(
                DrainedUnit(unit.topic_id, unit.unit, unit.name, unit.epoch, subscription.name)
            )
