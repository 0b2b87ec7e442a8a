"""Leases broker capacity for one shard before it is needed, for one term of leadership.

It sends a request to the cluster manager when leadership begins, when brokers come or go, at a
third of the leases' life, when more than four fifths of a lease are in use, and when a lookup
finds no free unit. Each request returns units that were not needed for long, see ``lease_table``.
While the cluster manager is unreachable, assignments go on until the leases end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence

import structlog

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.governance.capacity_blocks import first_block
from nextgen.kernel.limits.cluster import LEASE_RETRY_MS
from nextgen.runtime.telemetry import lookup_steps
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import (
    CapacityLease,
    LeaseCapacityRequest,
    LeaseUse,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from shards.assignment.lease_table import GivenUnits, LeaseTable
from shards.domain.placement.rules import Candidate
from shards.domain.slots.events import OutgoingSlots
from shards.ports import BrokerDirectory, Cancellable, CapacitySource, Clock, Quotas

_GROWTH_INTERVAL_SECONDS = 0.2
"""Between two requests for more: thousands of lookups may want one while one is on its way.
Doubled after each request that brought nothing, up to ``_RETRY_SECONDS_MAX``: a broker may be full,
or have a quota of 0, for hours. A request for waiting lookups does not wait that long."""

_NOTHING_LEFT_SECONDS = 4 * _GROWTH_INTERVAL_SECONDS
"""The pause after two requests that brought nothing: from then on no lookup waits for capacity."""

_EXCESS_SECONDS = 1.0
"""Between two requests while a broker has less capacity than is leased: each returns what left the
broker since the one before."""

_RETRY_SECONDS_MIN = LEASE_RETRY_MS / 1000
_RETRY_SECONDS_MAX = 16.0
"""The longest pause between retries; a change in the directory ends it at once."""

_logger = structlog.get_logger(__name__)


class LeaseKeeper:
    """Owns the lease table of one shard's topic controller."""

    def __init__(
        self,
        shard_id: int,
        term: int,
        source: CapacitySource,
        directory: BrokerDirectory,
        quotas: Quotas,
        used_units: Callable[[str], int],
        clock: Clock,
        shard_ids: Callable[[], Sequence[int]],
        outgoing: Callable[[], Sequence[OutgoingSlots]] = tuple,
    ) -> None:
        """``shard_ids`` returns the shards of the cluster, or raises ``Unavailable``. ``outgoing``
        returns the moves of slots away from this shard that are not over."""
        self._shard_id = shard_id
        self._term = term
        self._source = source
        self._directory = directory
        self._quotas = quotas
        self._used_units = used_units
        self._clock = clock
        self._shard_ids = shard_ids
        self._table = LeaseTable()
        self._given = GivenUnits(outgoing)
        self._units_wanted = 0
        self.units_used = 0
        """Units assigned here, as of the last request."""
        self._grown_at = -math.inf
        self._growth_at = math.inf
        self._growth_seconds = _GROWTH_INTERVAL_SECONDS
        self._growth: Cancellable | None = None
        self._retry_seconds = _RETRY_SECONDS_MIN
        self._wake = asyncio.Event()
        self._waiters: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe = directory.on_change(self._wake.set)

    def __repr__(self) -> str:
        return f"<LeaseKeeper shard={self._shard_id} term={self._term} {self._table!r}>"

    @property
    def units_leased(self) -> int:
        return self._table.units_leased

    def excess(self, session_id: str) -> int:
        """Return how many units of this shard have to leave a session: its broker has less
        capacity than is leased."""
        return self._table.excess(session_id, self._used_units(session_id))

    @property
    def may_grow(self) -> bool:
        """Whether a request for more may bring units: not after two that brought none."""
        return self._growth_seconds < _NOTHING_LEFT_SECONDS

    def start(self) -> None:
        """Request leases as soon as a broker is live."""
        self._task = keep("leases", self._run)

    def close(self) -> None:
        """Stop the requests and wake all callers of ``wait_change``."""
        self._unsubscribe()
        if self._growth is not None:
            self._growth.cancel()
        if self._task is not None:
            self._task.cancel()
        self._wake_waiters()

    def candidates(self) -> list[Candidate]:
        """Return the live sessions with a lease in force, in a stable order."""
        now = self._clock.monotonic()
        self._look_at_given(now)
        found = []
        for broker in self._directory.live():
            lease = self._table.lease(broker.session_id, now)
            if lease is not None:
                used = self._used_units(broker.session_id)
                found.append(Candidate(broker.broker_id, broker.session_id, used, lease.units))
        return found

    def units_in_reach(self, broker: BrokerRecorded, units_reported: int) -> int:
        """Return how many units of a broker this shard may come to have: an estimate.

        At least the leased ones. More up to the broker's quota or capacity, without the units of
        other shards: those that they use, by the ``units_reported`` of the broker, or their first
        blocks if that is more.
        """
        now = self._clock.monotonic()
        self._look_at_given(now)
        lease = self._table.lease(broker.session_id, now)
        units_leased = 0 if lease is None else lease.units
        try:
            others = max(0, len(self._shard_ids()) - 1)
        except Unavailable:
            return units_leased
        leasable = self._leasable(broker)
        elsewhere = max(
            units_reported - self._used_units(broker.session_id),
            others * first_block(leasable, others + 1),
        )
        return max(units_leased, leasable - elsewhere)

    def note_use(self, candidates: list[Candidate]) -> None:
        """Request more if more than four fifths of a lease are in use."""
        now = self._clock.monotonic()
        for one in candidates:
            self._table.note_use(one.session_id, one.units_used, now)
        if any(5 * one.units_used > 4 * one.units_leased for one in candidates):
            self._grow(self._growth_seconds)

    def want(self, units: int) -> None:
        """Request ``units`` more than there are: lookups wait for them."""
        self._units_wanted = max(self._units_wanted, units)
        self._grow(_GROWTH_INTERVAL_SECONDS)

    async def wait_change(self, timeout_ms: float) -> bool:
        """Return True after the next answer to a request, False if ``timeout_ms`` passes first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        try:
            async with timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(future)
        return True

    def _grow(self, interval_s: float) -> None:
        at = max(self._clock.monotonic(), self._grown_at + interval_s)
        if self._growth is not None:
            if self._growth_at <= at:
                return
            self._growth.cancel()
        self._growth_at = at
        self._growth = self._clock.call_at(at, self._ask_for_growth)

    def _ask_for_growth(self) -> None:
        self._growth = None
        self._grown_at = self._clock.monotonic()
        self._growth_seconds = min(2 * self._growth_seconds, _RETRY_SECONDS_MAX)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            delay = await self._ask() if self._directory.live() else None
            with contextlib.suppress(TimeoutError):
                async with timeout(delay):
                    await self._wake.wait()

    async def _ask(self) -> float | None:
        """Send one request; return the seconds until the next one is due."""
        wanted, self._units_wanted = self._units_wanted, 0
        asked_at, traced_at = self._clock.monotonic(), time.monotonic()
        try:
            response = await self._source.lease_capacity(self._request(wanted))
        except MetadataError as error:
            _logger.debug("no leases", shard=self._shard_id, why=str(error))
            self._units_wanted = max(self._units_wanted, wanted)
            return self._retry_delay()
        self._mark_leased(response.leases, traced_at)
        units_before = self._table.units_leased
        self._table.replace(response.leases, asked_at)
        self._given.stated(asked_at)
        self._look_at_given(self._clock.monotonic())
        if self._table.units_leased > units_before:
            self._growth_seconds = _GROWTH_INTERVAL_SECONDS
        for why in response.refused:
            _logger.info("return refused", shard=self._shard_id, why=why)
        self._wake_waiters()
        if self._table.may_return_excess:
            return _EXCESS_SECONDS
        renew_at = self._table.renew_at(asked_at)
        # A live broker has no lease if its manager could not be reached a moment ago.
        if len(self._table.session_ids()) < len(self._directory.live()):
            return self._retry_delay()
        self._retry_seconds = _RETRY_SECONDS_MIN
        return None if renew_at is None else max(0.2, renew_at - self._clock.monotonic())

    def _mark_leased(self, leases: Sequence[CapacityLease], asked_at: float) -> None:
        """Trace the first lease on a session: when it was requested, and when it was granted."""
        known = self._table.session_ids()
        for lease in leases:
            if lease.session_id not in known:
                parent = lookup_steps.lease_parent(self._shard_id, lease.session_id)
                lookup_steps.step(5, parent, asked_at)
                lookup_steps.step(8, parent, units=lease.units)

    def _look_at_given(self, now: float) -> None:
        if self._given.look(now):
            # What has been settled is in the next answer.
            self._wake.set()
        self._table.give(self._given.units())

    def _request(self, units_wanted: int) -> LeaseCapacityRequest:
        now = self._clock.monotonic()
        self._look_at_given(now)
        live = self._directory.live()
        uses = []
        for broker in live:
            used = self._used_units(broker.session_id)
            self._table.note_use(broker.session_id, used, now)
            uses.append(
                LeaseUse(broker_id=broker.broker_id, session_id=broker.session_id, units_used=used)
            )
        self.units_used = sum(use.units_used for use in uses)
        self._table.forget_sessions({broker.session_id for broker in live})
        self._table.begin_excess_returns()
        if not units_wanted:
            self._table.begin_returns(self._first_blocks(live))
        return LeaseCapacityRequest(
            shard_id=self._shard_id,
            term=self._term,
            uses=uses,
            units_wanted=units_wanted,
            returns=self._table.returns(),
        )

    def _first_blocks(self, live: Sequence[BrokerRecorded]) -> dict[str, int]:
        try:
            shards = len(self._shard_ids())
        except Unavailable:
            return {}
        return {each.session_id: first_block(self._leasable(each), shards) for each in live}

    def _leasable(self, broker: BrokerRecorded) -> int:
        quota = self._quotas.of_broker(broker.broker_id)
        return broker.capacity_units if quota is None else min(quota, broker.capacity_units)

    def _retry_delay(self) -> float:
        delay, self._retry_seconds = (
            self._retry_seconds,
            min(self._retry_seconds * 2, _RETRY_SECONDS_MAX),
        )
        return delay

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for future in waiters:
            if not future.done():
                future.set_result(None)
