"""Lookups that the cache cannot answer: one question per name at a time, many per request.

Names that arrive while ``LOOKUP_BATCHES_IN_FLIGHT_MAX`` requests to their shard are under way, or
``LOOKUP_NAMES_IN_FLIGHT_MAX`` names, share the next one, tenant by tenant (``LookupLine``). A name
that could not be asked for within ``LOOKUP_WAIT_MS_MAX`` is refused.

A name that is being asked for already has a *flight*, which a lookup joins unless its answer may be
too old for it: one that was sent more than ``LOOKUP_STALENESS_MS_MAX`` ago, or, for a fresh lookup,
that was sent at all, is superseded by a new flight. The answer of a flight is that of all which it
superseded, and what comes for those later is ignored: a topic never goes back (ADR 0051).

While names of a tenant wait for longer than ``LOOKUP_QUEUE_MS_MAX`` its latest go first, so that
what comes behind a flood is answered at once, and not behind what nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import structlog

from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.ports import Clock, Directory, Shards
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.line import LookupLine, tenant_in
from discovery.wire import answer_facts, encoded_answer, trouble_answer
from nextgen.kernel.errors import MetadataError, Overloaded, SessionExpired, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import (
    LOOKUP_NAMES_WAITING_MAX,
    LOOKUP_QUEUE_MS_MAX,
    LOOKUP_STALENESS_MS_MAX,
    LOOKUP_WAIT_MS_MAX,
    REQUEST_TIMEOUT_DEFAULT_MS,
)
from nextgen.kernel.limits.discovery import LOOKUP_TENANT_NAMES_WAITING_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import start
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import ShardLookupRequest, ShardRequest

_PAUSES_MS = (20, 100, 250)
"""Before asking again for a name whose answer named a session that is known to be over, an
assignment that is known to have been followed by another, or said that there is no broker: one that
was picked may have died meanwhile. Some clients take a failed lookup for the end of everything."""

_STALENESS_S = LOOKUP_STALENESS_MS_MAX / 1_000

_NO_BROKER = RejectionCode.NO_BROKER.value
_NOT_FOUND = RejectionCode.NOT_FOUND.value

_logger = structlog.get_logger(__name__)


class _Flight:
    """The question for one name, and all who wait for its answer."""

    __slots__ = ("batch", "future", "older", "since", "tenant", "topic")

    def __init__(self, topic: str, since: float, older: _Flight | None) -> None:
        self.topic = topic
        self.tenant = tenant_in(topic)
        self.since = since
        """When it was asked for first."""
        self.older = older
        """The flight that it superseded, which may have got its answer since."""
        self.batch: _Batch | None = None
        """By which it is asked for; None while it waits in line."""
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def may_be_joined(self, now: float, *, is_fresh: bool) -> bool:
        """Return whether its answer will be recent enough for a lookup that begins ``now``."""
        sent_at = None if self.batch is None else self.batch.sent_at
        return sent_at is None or (not is_fresh and now - sent_at <= _STALENESS_S)

    def settle(self, encoded: bytes) -> None:
        """Answer all who wait for it or for what it superseded."""
        flight: _Flight | None = self
        while flight is not None:
            if not flight.future.done():
                flight.future.set_result(encoded)
            # Let go of, so that a name that is asked for without a pause makes no endless chain.
            flight.older, flight = None, flight.older


class _Shard:
    """Flights of one shard that wait to be sent."""

    __slots__ = ("expiry", "flush_is_due", "line", "trace_id")

    def __init__(self) -> None:
        self.line: LookupLine[_Flight] = LookupLine()
        self.expiry: asyncio.TimerHandle | None = None
        self.flush_is_due = False
        self.trace_id = ""


class _Batch:
    """Flights that a shard is being asked for by one request, or by those that follow it."""

    __slots__ = ("flights", "has_turn", "is_own", "sent_at")

    def __init__(self, flights: list[_Flight], *, is_own: bool) -> None:
        self.flights = flights
        """Those that have no answer yet."""
        self.is_own = is_own
        """Whether one tenant has it for itself; see ``LookupLine``."""
        self.has_turn = True
        """Whether it is one of the batches that are under way at a time."""
        self.sent_at: float | None = None
        """When the request that is under way left, None between two of them."""
        for flight in flights:
            flight.batch = self


class ShardLookups:
    """Asks shards, fills the cache. Owned by one event loop."""

    def __init__(
        self,
        shards: Shards,
        directory: Directory,
        cache: AnswerCache,
        absent: AbsentNames,
        counters: DiscoveryCounters,
        clock: Clock,
    ) -> None:
        self._router = shards
        self._directory = directory
        self._cache = cache
        self._absent = absent
        self._counters = counters
        self._clock = clock
        self._flights: dict[str, _Flight] = {}
        """By name, the latest of each."""
        self._of_tenant: Counter[str] = Counter()
        """How many these are, by tenant."""
        self._shards: dict[int, _Shard] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<ShardLookups names={len(self._flights)} requests={len(self._tasks)}>"

    def ask(
        self, shard_id: int, topic: str, trace_id: str = "", *, is_fresh: bool = False
    ) -> asyncio.Future[bytes]:
        """Return a future of the encoded answer; it never fails. Do not cancel it: it is shared.

        With ``is_fresh`` the shard is asked behind this call, else at most
        ``LOOKUP_STALENESS_MS_MAX`` before it.
        """
        now = self._clock()
        older = self._flights.get(topic)
        if older is not None and older.may_be_joined(now, is_fresh=is_fresh):
            return older.future
        flight = _Flight(topic, now, older)
        if len(self._flights) >= LOOKUP_NAMES_WAITING_MAX:
            error = Overloaded(
                f"{LOOKUP_NAMES_WAITING_MAX} names wait for shards",
                retry_after_ms=LOOKUP_QUEUE_MS_MAX,
            )
            flight.future.set_result(trouble_answer(topic, error))
            return flight.future
        if self._of_tenant[flight.tenant] >= LOOKUP_TENANT_NAMES_WAITING_MAX:
            error = Overloaded(
                f"{LOOKUP_TENANT_NAMES_WAITING_MAX} names of {flight.tenant} wait for shards",
                retry_after_ms=LOOKUP_QUEUE_MS_MAX,
            )
            flight.future.set_result(trouble_answer(topic, error))
            return flight.future
        if older is None:
            self._of_tenant[flight.tenant] += 1
        self._flights[topic] = flight
        shard = self._shards.setdefault(shard_id, _Shard())
        shard.line.put(flight)
        if shard.expiry is None:
            self._expire_later(shard, LOOKUP_WAIT_MS_MAX / 1_000)
        shard.trace_id = shard.trace_id or trace_id
        self._flush_soon(shard_id, shard)
        return flight.future

    async def stop(self) -> None:
        """Give up what is under way; whoever waits is told so."""
        self._is_stopped = True
        for shard in self._shards.values():
            if shard.expiry is not None:
                shard.expiry.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for flight in tuple(self._flights.values()):
            error = Unavailable("this process is stopping")
            self._settle(flight, trouble_answer(flight.topic, error))

    def _flush_soon(self, shard_id: int, shard: _Shard) -> None:
        """Send what waits once the messages at hand have been read, so that they share it."""
        if self._is_stopped or shard.flush_is_due or not shard.line.has_room:
            return
        shard.flush_is_due = True
        asyncio.get_running_loop().call_soon(self._flush, shard_id, shard)

    def _flush(self, shard_id: int, shard: _Shard) -> None:
        shard.flush_is_due = False
        while shard.line:
            flights, is_own = shard.line.take(self._clock())
            if not flights:
                return
            batch = _Batch(flights, is_own=is_own)
            # Its task sends it soon: from here on it counts as sent.
            batch.sent_at = self._clock()
            self._start(self._carry_out(shard_id, shard, batch, shard.trace_id))
            shard.trace_id = ""

    def _expire_later(self, shard: _Shard, delay_s: float) -> None:
        shard.expiry = asyncio.get_running_loop().call_later(delay_s, self._expire, shard)

    def _expire(self, shard: _Shard) -> None:
        """Refuse what has waited for too long to be asked for."""
        shard.expiry = None
        overdue = self._clock() - LOOKUP_WAIT_MS_MAX / 1_000
        while shard.line:
            flight = shard.line.oldest
            if flight.since > overdue:
                self._expire_later(shard, flight.since - overdue)
                return
            shard.line.discard(flight)
            self._counters.lookups_by_result[Overloaded.reason] += 1
            error = Overloaded(f"its shard could not be asked within {LOOKUP_WAIT_MS_MAX} ms")
            self._settle(flight, trouble_answer(flight.topic, error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        start("shard_lookup", work, self._tasks)

    async def _carry_out(self, shard_id: int, shard: _Shard, batch: _Batch, trace_id: str) -> None:
        try:
            # Of the first who asked: what a request asks for others besides has no other trace.
            with tracing.span("discovery.ask_shard", trace_id, names=len(batch.flights)):
                await self._ask_shard(shard_id, shard, batch, tracing.outgoing() or trace_id)
        except MetadataError as error:
            self._give_up(batch, error, error.reason)
        except Exception as error:
            # Whoever waits must be answered even if this is a mistake of ours.
            _logger.exception("a lookup failed", shard_id=shard_id)
            self._give_up(batch, Unavailable(repr(error)), Unavailable.reason)
        finally:
            self._make_way(shard_id, shard, batch, [])

    def _give_up(self, batch: _Batch, error: MetadataError, reason: str) -> None:
        self._counters.lookups_by_result[reason] += len(batch.flights)
        for flight in batch.flights:
            self._settle(flight, trouble_answer(flight.topic, error))

    def _make_way(self, shard_id: int, shard: _Shard, batch: _Batch, left: list[_Flight]) -> None:
        """Let others be asked for: only the names that are ``left`` count as in flight."""
        if batch.has_turn:
            shard.line.batch_done(is_own=batch.is_own)
        stay = set(left)
        shard.line.names_done(flight for flight in batch.flights if flight not in stay)
        batch.has_turn, batch.flights = False, left
        self._flush_soon(shard_id, shard)

    async def _ask_shard(self, shard_id: int, shard: _Shard, batch: _Batch, trace_id: str) -> None:
        """Ask until every name has a broker, by an answer that is not out of date already.

        Whoever asked while the answer was on its way may know better: a change of owner that was
        acknowledged in the meantime must show in every lookup begun behind it.
        """
        started = self._clock()
        for pause_ms in (*_PAUSES_MS, None):
            flights = batch.flights
            names = [flight.topic for flight in flights]
            request = ShardRequest(trace_id=trace_id, lookup=ShardLookupRequest(topics=names))
            batch.sent_at = self._clock()
            response = await self._router.call(
                shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
            batch.sent_at = None
            answers = response.lookup.answers
            if len(answers) != len(names):
                raise Unavailable(
                    f"shard {shard_id} gave {len(answers)} answers to {len(names)} names"
                )
            latency_ms = (self._clock() - started) * 1_000
            again: list[_Flight] = []
            for flight, answer in zip(flights, answers, strict=True):
                is_patient = pause_ms is not None and answer.rejection_code == _NO_BROKER
                if is_patient or self._has_ended(answer) or self._is_outdated(shard_id, answer):
                    again.append(flight)
                else:
                    self._take(shard_id, flight, answer)
            self._counters.add_cold(latency_ms, len(names) - len(again))
            # A superseded one gets the answer of the flight that superseded it: asked for again, it
            # could have a later answer than that.
            again = [flight for flight in again if self._flights.get(flight.topic) is flight]
            # A name that no broker may have must not hold up those that some broker may.
            self._make_way(shard_id, shard, batch, again)
            if not again:
                return
            if pause_ms is not None:
                await asyncio.sleep(pause_ms / 1_000)
        error = SessionExpired("it has another owner each time it is asked for")
        self._give_up(batch, error, SessionExpired.reason)

    def _has_ended(self, answer: LookupAnswer) -> bool:
        return bool(answer.session_id) and self._directory.view.has_session_ended(
            answer.broker_id, answer.session_id
        )

    def _is_outdated(self, shard_id: int, answer: LookupAnswer) -> bool:
        return not answer.rejection_code and self._cache.is_outdated(shard_id, answer_facts(answer))

    def _take(self, shard_id: int, flight: _Flight, answer: LookupAnswer) -> None:
        if flight.future.done():
            # A flight that superseded it was faster, and may have had a later answer.
            return
        encoded = encoded_answer(answer)
        self._note_absence(shard_id, answer, encoded)
        if not answer.rejection_code:
            self._counters.lookups_by_result["assigned"] += 1
            self._cache.insert(shard_id, encoded, answer_facts(answer))
        else:
            self._counters.lookups_by_result[answer.rejection_code] += 1
        self._settle(flight, encoded)

    def _note_absence(self, shard_id: int, answer: LookupAnswer, encoded: bytes) -> None:
        if answer.rejection_code == _NOT_FOUND:
            base, now = parse_topic(answer.topic).base_text, self._clock()
            self._absent.put(
                shard_id, answer.topic, base, encoded, position=answer.position, now=now
            )
        else:
            self._absent.forget(answer.topic)

    def _settle(self, flight: _Flight, encoded: bytes) -> None:
        if self._flights.get(flight.topic) is flight:
            del self._flights[flight.topic]
            self._of_tenant[flight.tenant] -= 1
            if not self._of_tenant[flight.tenant]:
                del self._of_tenant[flight.tenant]
        flight.settle(encoded)
