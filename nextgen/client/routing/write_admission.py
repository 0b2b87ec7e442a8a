"""Admission of writes to a shard: at once while there is room, else by tenants in turn.

    write ──▶ room? ──▶ sent, or decided ──▶ answered, or committed ──▶ room for the next
                │ no                                                          │
                ▼                                                             │
            one queue per tenant ◀──────────────────── the next tenant's turn ┘

Without a bound all writes wait in one queue in the order of arrival, on the stream between two
processes or in the log. A tenant that sends faster than the shard commits would then make every
other tenant wait behind its backlog. Here those queues stay short and each tenant has a backlog of
its own: a write waits for the writes under way and for one write of each other tenant. A tenant
whose own queue is full is refused, with the time after which to retry; the others are not.

Discovery has one instance per shard, for the writes that it sends. The shard's leader has one for
the writes that it decides, because several discovery nodes send to it. While there is room no write
waits and nothing is allocated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prometheus_client import Counter

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.input.fair_queue import FairQueue
from nextgen.kernel.limits.write import (
    WRITE_RETRY_MS_MAX,
    WRITE_RETRY_MS_MIN,
    WRITES_IN_FLIGHT_MAX,
    WRITES_WAITING_MAX,
    WRITES_WAITING_PER_TENANT_MAX,
)


@dataclass(frozen=True, slots=True)
class WriteBounds:
    """What an operator may set; the defaults are those of ``nextgen.kernel.limits.write``."""

    cost_in_flight_max: int = WRITES_IN_FLIGHT_MAX
    """Beyond it writes wait by tenant."""

    waiting_per_tenant_max: int = WRITES_WAITING_PER_TENANT_MAX
    """Beyond it writes of the tenant are refused; at most ``WRITES_WAITING_MAX``."""


@dataclass(slots=True, eq=False)
class _Waiting:
    cost: int
    since: float
    admitted: asyncio.Future[None]


DEFAULT_BOUNDS = WriteBounds()


class WriteAdmission:
    """Counts the cost under way and keeps the queues. ``refusals`` counts refused requests."""

    def __init__(
        self,
        shard_id: int,
        refusals: Counter | None = None,
        bounds: WriteBounds = DEFAULT_BOUNDS,
    ) -> None:
        self._shard_id = shard_id
        self._bounds = bounds
        self._cost_in_flight_max = bounds.cost_in_flight_max
        self._refusals = refusals
        self._queue: FairQueue[_Waiting] = FairQueue(
            min(bounds.waiting_per_tenant_max, WRITES_WAITING_MAX), WRITES_WAITING_MAX
        )
        self._cost_in_flight = 0
        self._waited_ms = 0.0
        """Milliseconds that the last admitted request had waited."""

    def __repr__(self) -> str:
        return f"<WriteAdmission in_flight={self._cost_in_flight} waiting={len(self._queue)}>"

    @property
    def cost_in_flight(self) -> int:
        return self._cost_in_flight

    @property
    def requests_waiting(self) -> int:
        return len(self._queue)

    def try_enter(self, cost: int) -> bool:
        """Admit a write of ``cost`` at once if there is room; return whether it was admitted.

        The caller MUST call ``leave`` with the same cost when the write has ended.

        A request may exceed the bound by its own cost: one larger than the bound is admitted alone.
        """
        if self._cost_in_flight >= self._cost_in_flight_max:
            return False
        self._cost_in_flight += cost
        return True

    async def enter(self, tenants: Collection[str], cost: int) -> None:
        """Wait for a turn of each of ``tenants``; afterwards as ``try_enter``.

        A caller may give up. A write for several tenants spends a turn of every one of them, so
        that none has its writes carried out in the turns of another. It takes up room in the last
        turn only: writes that wait hold nothing that others wait for.

        Raises:
            Overloaded: Too many wait already, of one of the tenants or in all. ``retry_after_ms``
                is the wait of the request admitted last.
        """
        if self.try_enter(cost):
            return
        *others, last = tenants
        await self._wait_turns(dict.fromkeys(others, 0))
        if not self.try_enter(cost):
            await self._wait_turns({last: cost})

    async def _wait_turns(self, costs: Mapping[str, int]) -> None:
        """Wait for a turn of each tenant, all at once."""
        loop = asyncio.get_running_loop()
        waiting = {each: _Waiting(costs[each], loop.time(), loop.create_future()) for each in costs}
        queued: list[str] = []
        try:
            for tenant, turn in waiting.items():
                if not self._queue.put(tenant, turn):
                    raise self._refusal(tenant)
                queued.append(tenant)
            for turn in waiting.values():
                await turn.admitted
        except (asyncio.CancelledError, Overloaded):
            for tenant in queued:
                if not self._queue.discard(tenant, waiting[tenant]):
                    self.leave(waiting[tenant].cost)
            raise

    def leave(self, cost: int) -> None:
        """Release ``cost`` and admit the next writes in turn."""
        self._cost_in_flight -= cost
        assert self._cost_in_flight >= 0, "a write left twice"
        while self._cost_in_flight < self._cost_in_flight_max and self._admit_next():
            pass

    def _admit_next(self) -> bool:
        taken = self._queue.take()
        if taken is None:
            return False
        _, waiting = taken
        self._cost_in_flight += waiting.cost
        self._waited_ms = 1_000 * (asyncio.get_running_loop().time() - waiting.since)
        if waiting.admitted.done():
            # Cancelled, but its task has not run since: it will find itself out of the queue.
            return True
        waiting.admitted.set_result(None)
        return True

    def _refusal(self, tenant: str) -> Overloaded:
        if self._refusals is not None:
            self._refusals.inc()
        after_ms = round(min(max(self._waited_ms, WRITE_RETRY_MS_MIN), WRITE_RETRY_MS_MAX))
        return Overloaded(
            f"too many writes: {self._queue.waiting(tenant)} of tenant {tenant} wait for shard "
            f"{self._shard_id} (at most {self._bounds.waiting_per_tenant_max}), "
            f"{len(self._queue)} in all (at most {WRITES_WAITING_MAX}); come back in {after_ms} ms",
            after_ms,
        )


class AdmissionHold:
    """The cost of a request in the write admission, released once."""

    __slots__ = ("_admission", "_cost")

    def __init__(self, admission: WriteAdmission, cost: int) -> None:
        self._admission = admission
        self._cost = cost

    def release(self, _: object = None) -> None:
        cost, self._cost = self._cost, 0
        if cost:
            self._admission.leave(cost)
