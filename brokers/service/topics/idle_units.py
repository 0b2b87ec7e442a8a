"""Finds and reports the units that were idle for as long as their policies allow.

A unit whose messages are still to be dropped by their age stays until that is done, see
``PendingUpkeep``: no broker would do it for a unit that none has.

The topic controller decides what follows: it ends the assignment unless a lookup of the unit is
running. A unit that stays assigned is reported again in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import structlog

from brokers.domain.holding import Assignment, Holding, UnitKey
from nextgen.kernel.limits.placement import (
    IDLE_LOOK_MS,
    IDLE_LOOK_MS_MIN,
    IDLE_UNITS_PER_MESSAGE_MAX,
)

_UNITS_PER_STEP = 500
"""Units that are checked before the event loop runs other work: about a millisecond."""

_logger = structlog.get_logger(__name__)


class UsedTopic(Protocol):
    """An open topic, whatever broker has it open."""

    @property
    def has_clients(self) -> bool: ...

    @property
    def is_usable(self) -> bool: ...

    def idle_for_ms(self, now_ms: int) -> int:
        """Return for how long nobody has used it, 0 if somebody does."""


class IdleUnits:
    """The idle units of one broker. ``topic`` returns the open topic of a canonical name.

    Idle time counts from the first round that found the unit unused, so a unit is reported late by
    up to one round, never early. ``clock`` is in milliseconds. ``service_ms`` returns the idle time
    of units for which no topic, namespace or tenant sets one; 0: for ever. It is read each time.
    ``has_upkeep`` returns whether a unit has to stay all the same.
    """

    def __init__(
        self,
        holding: Callable[[], Holding],
        topic: Callable[[str], UsedTopic | None],
        report: Callable[[Sequence[Assignment]], None],
        clock: Callable[[], int],
        *,
        service_ms: Callable[[], int],
        has_upkeep: Callable[[Assignment], bool],
    ) -> None:
        self._holding = holding
        self._topic = topic
        self._report = report
        self._clock = clock
        self._service_ms = service_ms
        self._has_upkeep = has_upkeep
        self._since_ms: dict[UnitKey, tuple[int, int]] = {}
        """By unit: the epoch, and since when the unit has been idle in it."""

    def __repr__(self) -> str:
        return f"<IdleUnits unused={len(self._since_ms)}>"

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self.pause_ms / 1000)
            try:
                await self.look()
            except Exception:
                _logger.exception("looking for idle units failed")

    @property
    def pause_ms(self) -> int:
        """Time until the next round: a millisecond for each unit that it checks."""
        return max(IDLE_LOOK_MS_MIN, min(IDLE_LOOK_MS, len(self._holding().assignments)))

    async def look(self) -> None:
        """Check all units once, and report those that were idle for long enough."""
        now_ms = self._clock()
        holding = self._holding()
        idle: list[Assignment] = []
        service_ms = self._service_ms()
        unused: dict[UnitKey, tuple[int, int]] = {}
        for number, unit in enumerate(tuple(holding.assignments.values()), start=1):
            idle_time_ms = _idle_time_ms(holding, unit, service_ms)
            if len(idle) < IDLE_UNITS_PER_MESSAGE_MAX:
                since = self._unused_since(unit, now_ms) if idle_time_ms else None
                if since is not None:
                    unused[unit.key] = (unit.epoch, since)
                    if now_ms - since >= idle_time_ms and not self._has_upkeep(unit):
                        idle.append(unit)
            elif unit.key in self._since_ms:
                unused[unit.key] = self._since_ms[unit.key]
            if number % _UNITS_PER_STEP == 0:
                await asyncio.sleep(0)
        self._since_ms = unused
        if idle:
            _logger.info("units are idle", units=len(idle))
            self._report(idle)

    def _unused_since(self, unit: Assignment, now_ms: int) -> int | None:
        """Return since when a unit is unused; None if it is in use."""
        left_at_ms = now_ms
        topic = self._topic(unit.name)
        if topic is not None:
            left_at_ms -= topic.idle_for_ms(now_ms)
            if left_at_ms == now_ms and (topic.has_clients or not topic.is_usable):
                return None
        epoch, since = self._since_ms.get(unit.key, (unit.epoch, left_at_ms))
        if epoch != unit.epoch:
            return now_ms
        return since if topic is None else max(since, left_at_ms)


def _idle_time_ms(holding: Holding, unit: Assignment, service_ms: int) -> int:
    """Return how long the unit may be idle; 0: for ever.

    The topic's own policy comes first, then its namespace's, then its tenant's, then the service's.
    """
    for idle_time_ms in _idle_times_ms(holding, unit):
        if idle_time_ms is not None:
            return idle_time_ms
    return service_ms


def _idle_times_ms(holding: Holding, unit: Assignment) -> Iterator[int | None]:
    topic = holding.topics.get(unit.topic.topic_id)
    yield None if topic is None else topic.policies.idle_time_ms
    tenant_name, namespace_name, _ = unit.name.partition("://")[2].split("/", 2)
    namespace = holding.namespaces.get(f"{tenant_name}/{namespace_name}")
    yield None if namespace is None else namespace.policies.idle_time_ms
    tenant = holding.tenants.get(tenant_name)
    yield None if tenant is None else tenant.policies.idle_time_ms
