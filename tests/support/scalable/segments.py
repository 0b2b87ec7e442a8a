"""Segments at brokers, in memory: one ledger each, which all brokers share, as on a shared disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nextgen.kernel.errors import ConnectionLost, DeadlineExceeded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.scalable.segments import SegmentEnd
from nextgen.tasks.timeouts import timeout
from shards.domain.scalable.retention import SegmentUsage
from shards.domain.scalable.vocabulary import SubscriptionType
from shards.ports import SealedUnit, SegmentUnit

LATENCY_S = 0.001
"""Of a call, each way."""

BEGINNING = 0

ENTRY_BYTES = 100


@dataclass(slots=True)
class Ledger:
    """What is stored of one segment. ``cursors`` are the entries that each begins with."""

    epoch: int = 0
    is_terminated: bool = False
    is_removed: bool = False
    entries: list[Any] = field(default_factory=list)
    cursors: dict[str, int] = field(default_factory=dict)

    def claim(self, epoch: int) -> None:
        """Fence all earlier owners.

        Raises:
            Refused: A later one has fenced this one, or the segment is gone for good.
        """
        if self.is_removed or epoch < self.epoch:
            raise Refused(RejectionCode.STALE_EPOCH, f"epoch {epoch} is over")
        self.epoch = epoch


class Segments:
    """``SegmentBrokers`` in memory. ``holds`` says whether the broker at an endpoint has a unit.

    A test stops a broker by adding its endpoint to ``down`` (it is gone) or ``hanging`` (it does
    not answer). ``on_step`` is called with each call, before it takes effect and afterwards; what
    it raises is what the caller gets.
    """

    def __init__(self) -> None:
        self.ledgers: dict[str, Ledger] = {}
        """By the text of the unit: there is one topic."""
        self.down: set[str] = set()
        self.hanging: set[str] = set()
        self.holds: Callable[[SegmentUnit], bool] = lambda unit: True
        self.on_step: Callable[[str, SegmentUnit, Callable[[], None]], object] = ignore
        """Gets what happens, the unit, and a function that has the call take effect."""
        self.retention = (FOR_EVER, FOR_EVER)
        """Time and size of the retention in force."""
        self.queues: set[str] = set()
        """Subscriptions whose consumers share the messages of a classic unit."""
        self.calls: list[tuple[str, str, int]] = []
        """Kind, unit and epoch of each call that took effect, in order."""

    def ledger(self, unit: str) -> Ledger:
        return self.ledgers.setdefault(unit, Ledger())

    # SegmentBrokers ---------------------------------------------------------------------------

    async def ready(
        self, unit: SegmentUnit, subscriptions: Sequence[str], *, timeout_ms: int
    ) -> None:
        await self._call("ready", unit, timeout_ms, self._open)
        for name in subscriptions:
            await self._call("cursor", unit, timeout_ms, self._make_cursor, name)

    async def subscriptions(
        self, unit: SegmentUnit, *, timeout_ms: int
    ) -> Mapping[str, SubscriptionType]:
        # The table of crashes has no row for this call: it changes nothing, and a process that
        # crashes here is down in the row of the next call too.
        try:
            async with timeout(timeout_ms / 1_000):
                await asyncio.sleep(LATENCY_S)
                self._check(unit)
                while unit.endpoint in self.hanging:
                    await asyncio.sleep(0.01)
                queues = self.queues
                return {
                    name: SubscriptionType.QUEUE if name in queues else SubscriptionType.STREAM
                    for name in self._owned(unit).cursors
                }
        except TimeoutError:
            raise DeadlineExceeded(f"{unit.endpoint} did not answer") from None

    async def seal(self, unit: SegmentUnit, *, timeout_ms: int) -> SealedUnit:
        await self._call("seal", unit, timeout_ms, self._terminate)
        ledger = self.ledger(unit.unit)
        count = len(ledger.entries)
        return SealedUnit(SegmentEnd(1, count - 1), count * ENTRY_BYTES, list(ledger.cursors))

    async def usage(self, unit: SegmentUnit, *, timeout_ms: int) -> SegmentUsage:
        await self._call("usage", unit, timeout_ms, self._open)
        ledger = self.ledger(unit.unit)
        is_drained = all(each >= len(ledger.entries) for each in ledger.cursors.values())
        return SegmentUsage(is_drained, *self.retention)

    async def seek(
        self, unit: SegmentUnit, subscription: str, to_ms: int | None, *, timeout_ms: int
    ) -> None:
        await self._call("seek", unit, timeout_ms, self._seek, subscription, to_ms)

    async def drop(self, unit: SegmentUnit, subscription: str, *, timeout_ms: int) -> None:
        await self._call("drop", unit, timeout_ms, self._drop, subscription)

    async def remove(self, unit: SegmentUnit, *, timeout_ms: int) -> None:
        await self._call("remove", unit, timeout_ms, self._remove)

    async def publish(self, unit: SegmentUnit, entry: Any) -> None:
        """Publish as a client does: on return it is acknowledged."""
        await asyncio.sleep(LATENCY_S)
        self._check(unit)
        ledger = self._owned(unit)
        if ledger.is_terminated:
            raise Refused(RejectionCode.NOT_ALLOWED, f"{unit.name} is terminated")
        ledger.entries.append(entry)
        await asyncio.sleep(LATENCY_S)
        if unit.endpoint in self.down:
            raise ConnectionLost(f"{unit.endpoint} is gone")

    # What they do -----------------------------------------------------------------------------

    def _open(self, unit: SegmentUnit) -> None:
        self._owned(unit)

    def _make_cursor(self, unit: SegmentUnit, name: str) -> None:
        self._owned(unit).cursors.setdefault(name, BEGINNING)

    def _terminate(self, unit: SegmentUnit) -> None:
        self._owned(unit).is_terminated = True

    def _seek(self, unit: SegmentUnit, name: str, to_ms: int | None) -> None:
        ledger = self._owned(unit)
        ledger.cursors[name] = len(ledger.entries) if to_ms is None else to_ms

    def _drop(self, unit: SegmentUnit, name: str) -> None:
        self._owned(unit).cursors.pop(name, None)

    def _remove(self, unit: SegmentUnit) -> None:
        ledger = self.ledger(unit.unit)
        ledger.is_removed = True
        ledger.entries.clear()
        ledger.cursors.clear()

    def _owned(self, unit: SegmentUnit) -> Ledger:
        if not self.holds(unit):
            raise Refused(RejectionCode.STALE_EPOCH, f"{unit.endpoint} has no {unit.name}")
        ledger = self.ledger(unit.unit)
        ledger.claim(unit.epoch)
        return ledger

    async def _call(
        self,
        kind: str,
        unit: SegmentUnit,
        timeout_ms: int,
        effect: Callable[..., None],
        *given: object,
    ) -> None:
        self.on_step(f"{kind} {unit.unit} is sent", unit, lambda: effect(unit, *given))
        try:
            async with timeout(timeout_ms / 1_000):
                await asyncio.sleep(LATENCY_S)
                self._check(unit)
                while unit.endpoint in self.hanging:
                    await asyncio.sleep(0.01)
                effect(unit, *given)
                self.calls.append((kind, unit.unit, unit.epoch))
                self.on_step(f"{kind} {unit.unit} is done", unit, _nothing)
                await asyncio.sleep(LATENCY_S)
                if unit.endpoint in self.down:
                    raise ConnectionLost(f"{unit.endpoint} is gone")
        except TimeoutError:
            raise DeadlineExceeded(f"{unit.endpoint} did not answer") from None

    def _check(self, unit: SegmentUnit) -> None:
        if unit.endpoint in self.down:
            raise Unavailable(f"{unit.endpoint} is gone")


def ignore(step: str, unit: SegmentUnit, effect: Callable[[], None]) -> None:
    """Stand in nobody's way."""
    del step, unit, effect


def _nothing() -> None:
    """Have a call take effect that has."""


class NoSegments(Segments):
    """For shards whose scalable topics do not change: no broker is reached."""

    async def _call(self, kind: str, unit: SegmentUnit, *_: Any) -> None:
        raise Unavailable(f"{kind} of {unit.name}")
