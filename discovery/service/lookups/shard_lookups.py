"""Lookups that the cache cannot answer: one question per name at a time, many per request.

While ``LOOKUP_BATCHES_IN_FLIGHT_MAX`` requests to a shard, or ``LOOKUP_NAMES_IN_FLIGHT_MAX`` names,
are under way, further names wait for the next request, tenant by tenant (``LookupLine``). A name
that waits for ``LOOKUP_WAIT_MS_MAX`` is refused.

A name without an answer has a *flight*. A later lookup joins it unless the answer may be too old
for that lookup: if the flight was sent more than ``LOOKUP_STALENESS_MS_MAX`` ago or, for a fresh
lookup, was sent at all, a new flight supersedes it. The answer of a flight is also the answer of
all flights that it superseded, and a later answer to one of those is ignored: a topic never goes
back to an earlier owner (ADR 0051).

While names of a tenant wait for longer than ``LOOKUP_QUEUE_MS_MAX`` the latest of them go first:
the callers of the oldest have probably given up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog

from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache, AnswerFacts
from discovery.ports import Clock, Directory, Shards
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.line import LookupLine
from discovery.wire import answer_facts, encoded_answer, trouble_answer
from nextgen.client.routing.shard_batches import ShardBatches
from nextgen.kernel.errors import (
    MetadataError,
    Overloaded,
    SessionExpired,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import (
    LOOKUP_NAMES_WAITING_MAX,
    LOOKUP_QUEUE_MS_MAX,
    LOOKUP_STALENESS_MS_MAX,
    LOOKUP_WAIT_MS_MAX,
    REQUEST_TIMEOUT_DEFAULT_MS,
)
from nextgen.kernel.limits.discovery import LOOKUP_TENANT_NAMES_WAITING_MAX
from nextgen.kernel.limits.stream import MOVED_HOPS_MAX
from nextgen.kernel.routing.names import parse_topic, tenant_in
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import start
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import ShardLookupRequest, ShardRequest

_PAUSES_MS = (20, 100, 250)
"""Pauses before a name is looked up again, if its answer has an ended session or a superseded
assignment, or if no broker was found, maybe because the chosen one has just died. Some clients do
not retry a failed lookup, so a few attempts here are worth it."""

_STALENESS_S = LOOKUP_STALENESS_MS_MAX / 1_000

_NO_BROKER = RejectionCode.NO_BROKER.value
_NOT_FOUND = RejectionCode.NOT_FOUND.value

_logger = structlog.get_logger(__name__)


class _Flight:
    """The question for one name, shared by all lookups that wait for its answer."""

    __slots__ = ("batch", "future", "hops", "older", "since", "tenant", "topic")

    def __init__(self, topic: str, since: float, older: _Flight | None) -> None:
        self.topic = topic
        self.tenant = tenant_in(topic)
        self.since = since
        """When its first lookup came."""
        self.older = older
        """The flight that it superseded, which may have got its answer since."""
        self.hops = 0
        """How often its shard refused it because its slot is elsewhere."""
        self.batch: _Batch | None = None
        """The batch that requests it from the shard; None while it is queued."""
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def may_be_joined(self, now: float, *, is_fresh: bool) -> bool:
        """Return whether its answer will be recent enough for a lookup that begins ``now``."""
        sent_at = None if self.batch is None else self.batch.sent_at
        return sent_at is None or (not is_fresh and now - sent_at <= _STALENESS_S)

    def settle(self, encoded: bytes) -> None:
        """Answer all lookups that wait for it, or for a flight that it superseded."""
        flight: _Flight | None = self
        while flight is not None:
            if not flight.future.done():
                flight.future.set_result(encoded)
            # Dropped, or a name that is looked up without a pause would grow an endless chain.
            flight.older, flight = None, flight.older


class _Batch:
    """The flights of one request to a shard, and of its repetitions for unanswered ones."""

    __slots__ = ("flights", "has_turn", "is_own", "sent_at", "trace_id")

    def __init__(
        self, flights: list[_Flight], *, is_own: bool, sent_at: float, trace_id: str
    ) -> None:
        self.flights = flights
        """The flights without an answer yet."""
        self.is_own = is_own
        """Whether it serves one tenant only; see ``LookupLine``."""
        self.has_turn = True
        """Whether it counts as one of the batches under way."""
        self.sent_at: float | None = sent_at
        """When the request under way was sent, None between two requests."""
        self.trace_id = trace_id
        """The trace of its first caller that has one."""
        for flight in flights:
            flight.batch = self


class _Line:
    """Flights that wait for one shard; see ``ShardBatches``."""

    __slots__ = ("_clock", "expiry", "names", "trace_id")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.names: LookupLine[_Flight] = LookupLine()
        self.expiry: asyncio.TimerHandle | None = None
        self.trace_id = ""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def has_room(self) -> bool:
        return self.names.has_room

    def take(self) -> _Batch | None:
        now = self._clock()
        flights, is_own = self.names.take(now)
        if not flights:
            return None
        trace_id, self.trace_id = self.trace_id, ""
        # Its task sends it in the next turn of the loop: from here on it counts as sent.
        return _Batch(flights, is_own=is_own, sent_at=now, trace_id=trace_id)


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
        tenant_names_waiting_max: int = LOOKUP_TENANT_NAMES_WAITING_MAX,
    ) -> None:
        self._router = shards
        self._tenant_names_waiting_max = tenant_names_waiting_max
        self._directory = directory
        self._cache = cache
        self._absent = absent
        self._counters = counters
        self._clock = clock
        self._flights: dict[str, _Flight] = {}
        """By name, the latest of each."""
        self._of_tenant: Counter[str] = Counter()
        """How many these are, by tenant."""
        self.on_asked: Callable[[int], None] = lambda _shard_id: None
        """Called with the shard of each request, when it is sent."""
        self._batches: ShardBatches[_Line, _Batch] = ShardBatches(
            partial(_Line, clock), self._begin
        )

    def __repr__(self) -> str:
        return f"<ShardLookups names={len(self._flights)} requests={len(self._batches)}>"

    def ask(
        self, shard_id: int, topic: str, trace_id: str = "", *, is_fresh: bool = False
    ) -> asyncio.Future[bytes]:
        """Return a future of the encoded answer; it never fails. Do not cancel it: it is shared.

        With ``is_fresh`` the shard reads after this call. Otherwise the answer may be from up to
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
        if self._of_tenant[flight.tenant] >= self._tenant_names_waiting_max:
            error = Overloaded(
                f"{self._tenant_names_waiting_max} names of {flight.tenant} wait for shards",
                retry_after_ms=LOOKUP_QUEUE_MS_MAX,
            )
            flight.future.set_result(trouble_answer(topic, error))
            return flight.future
        if older is None:
            self._of_tenant[flight.tenant] += 1
        self._flights[topic] = flight
        self._put(shard_id, flight, trace_id)
        return flight.future

    async def stop(self) -> None:
        """Give up what is under way; its callers get ``Unavailable``."""
        for line in self._batches.lines():
            if line.expiry is not None:
                line.expiry.cancel()
        await self._batches.stop()
        for flight in tuple(self._flights.values()):
            error = Unavailable("this process is stopping")
            self._settle(flight, trouble_answer(flight.topic, error))

    def _expire_later(self, line: _Line, delay_s: float) -> None:
        line.expiry = asyncio.get_running_loop().call_later(delay_s, self._expire, line)

    def _expire(self, line: _Line) -> None:
        """Refuse the names that have waited too long for a request."""
        line.expiry = None
        overdue = self._clock() - LOOKUP_WAIT_MS_MAX / 1_000
        while line.names:
            flight = line.names.oldest
            if flight.since > overdue:
                self._expire_later(line, flight.since - overdue)
                return
            line.names.discard(flight)
            self._counters.lookups_by_result[Overloaded.reason] += 1
            error = Overloaded(
                f"its shard could not be asked within {LOOKUP_WAIT_MS_MAX} ms",
                retry_after_ms=LOOKUP_QUEUE_MS_MAX,
            )
            self._settle(flight, trouble_answer(flight.topic, error))

    def _begin(
        self, shard_id: int, line: _Line, batch: _Batch, tasks: set[asyncio.Task[None]]
    ) -> None:
        self.on_asked(shard_id)
        start("shard_lookup", self._carry_out(shard_id, line, batch), tasks)

    async def _carry_out(self, shard_id: int, line: _Line, batch: _Batch) -> None:
        try:
            # The request belongs to one trace, that of its first caller.
            with tracing.span("discovery.ask_shard", batch.trace_id, names=len(batch.flights)):
                await self._ask_shard(shard_id, line, batch, tracing.outgoing() or batch.trace_id)
        except StaleShardMap as error:
            self._reroute(batch, error)
        except MetadataError as error:
            self._give_up(batch, error, error.reason)
        except Exception as error:
            # A bug. The callers get an error rather than no answer.
            _logger.exception("a lookup failed", shard_id=shard_id)
            self._give_up(batch, Unavailable(repr(error)), Unavailable.reason)
        finally:
            self._make_way(shard_id, line, batch, [])

    def _reroute(self, batch: _Batch, error: StaleShardMap) -> None:
        """Have the flights of a batch asked of the shards that have their slots now."""
        lost: list[_Flight] = []
        for flight in batch.flights:
            if self._flights.get(flight.topic) is not flight:
                continue  # It gets the answer of the flight that superseded it.
            flight.hops += 1
            if flight.hops > MOVED_HOPS_MAX:
                lost.append(flight)
                continue
            flight.batch = None
            shard_id = self._router.shard_of_key(parse_topic(flight.topic).routing_key)
            self._put(shard_id, flight, batch.trace_id)
        self._counters.lookups_by_result[error.reason] += len(lost)
        for flight in lost:
            self._settle(flight, trouble_answer(flight.topic, error))

    def _put(self, shard_id: int, flight: _Flight, trace_id: str) -> None:
        line = self._batches.line(shard_id)
        line.names.put(flight)
        if line.expiry is None:
            self._expire_later(line, LOOKUP_WAIT_MS_MAX / 1_000)
        line.trace_id = line.trace_id or trace_id
        self._batches.send_soon(shard_id)

    def _give_up(self, batch: _Batch, error: MetadataError, reason: str) -> None:
        self._counters.lookups_by_result[reason] += len(batch.flights)
        for flight in batch.flights:
            self._settle(flight, trouble_answer(flight.topic, error))

    def _make_way(self, shard_id: int, line: _Line, batch: _Batch, left: list[_Flight]) -> None:
        """Make room in the line: of the batch only the flights in ``left`` count as under way."""
        if batch.has_turn:
            line.names.batch_done(is_own=batch.is_own)
        stay = set(left)
        line.names.names_done(flight for flight in batch.flights if flight not in stay)
        batch.has_turn, batch.flights = False, left
        self._batches.send_soon(shard_id)

    async def _ask_shard(self, shard_id: int, line: _Line, batch: _Batch, trace_id: str) -> None:
        """Ask until every name has a broker, by an answer that is not outdated on arrival.

        A lookup may have joined while the answer was on its way, and its caller may know of a later
        change of owner: every lookup that begins after an acknowledged change must show it.
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
                facts = None if answer.rejection_code else answer_facts(answer)
                is_outdated = facts is not None and self._cache.is_outdated(shard_id, facts)
                if is_patient or is_outdated or self._has_ended(answer):
                    again.append(flight)
                else:
                    self._take(shard_id, flight, answer, facts)
            self._counters.add_cold(latency_ms, len(names) - len(again))
            # A superseded one gets the answer of the flight that superseded it: a repeated request
            # could have a later answer than that.
            again = [flight for flight in again if self._flights.get(flight.topic) is flight]
            # A name that no broker may have must not delay the other names.
            self._make_way(shard_id, line, batch, again)
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

    def _take(
        self, shard_id: int, flight: _Flight, answer: LookupAnswer, facts: AnswerFacts | None
    ) -> None:
        """Give an answer to those who wait for it; ``facts`` is None for a rejection."""
        if flight.future.done():
            # A flight that superseded it was faster, and may have had a later answer.
            return
        encoded = encoded_answer(answer)
        if not answer.is_former:
            self._note_absence(shard_id, answer, encoded)
        if facts is not None:
            self._counters.lookups_by_result["assigned"] += 1
            # Changes of the unit come under its present name: a former one is asked for each time.
            if not answer.is_former:
                self._cache.insert(shard_id, encoded, facts)
        else:
            self._counters.lookups_by_result[answer.rejection_code] += 1
        self._settle(flight, encoded)

    def _note_absence(self, shard_id: int, answer: LookupAnswer, encoded: bytes) -> None:
        if answer.rejection_code != _NOT_FOUND:
            self._absent.forget(answer.topic)
            return
        topic = parse_topic(answer.topic)
        if topic.segment is None:
            # A segment comes with a change of its topic's layout, which is not named as a creation.
            self._absent.put(
                shard_id,
                answer.topic,
                topic.base_text,
                encoded,
                position=answer.position,
                now=self._clock(),
            )

    def _settle(self, flight: _Flight, encoded: bytes) -> None:
        if self._flights.get(flight.topic) is flight:
            del self._flights[flight.topic]
            self._of_tenant[flight.tenant] -= 1
            if not self._of_tenant[flight.tenant]:
                del self._of_tenant[flight.tenant]
        flight.settle(encoded)
