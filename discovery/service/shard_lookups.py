"""Lookups that the cache cannot answer: one question per name at a time, many per request.

Names that arrive while ``LOOKUP_BATCHES_IN_FLIGHT_MAX`` requests to their shard are under way, or
``LOOKUP_NAMES_IN_FLIGHT_MAX`` names, share the next one. A name that is being asked for already
waits for that answer. One that could not be asked for within ``LOOKUP_WAIT_MS_MAX`` is refused.

While names stand in line for longer than ``LOOKUP_QUEUE_MS_MAX`` the latest go first, so that what
comes behind a flood is answered at once, and not behind what nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import islice
from typing import Any

import structlog

from discovery.domain.answer_cache import AnswerCache
from discovery.ports import Clock, Directory, Shards
from discovery.service.counters import DiscoveryCounters
from discovery.wire import answer_facts, encoded_answer, trouble_answer
from nextgen.kernel.decider import RejectionCode
from nextgen.kernel.errors import MetadataError, Overloaded, SessionExpired, Unavailable
from nextgen.kernel.limits import (
    LOOKUP_BATCHES_IN_FLIGHT_MAX,
    LOOKUP_NAMES_IN_FLIGHT_MAX,
    LOOKUP_NAMES_WAITING_MAX,
    LOOKUP_QUEUE_MS_MAX,
    LOOKUP_WAIT_MS_MAX,
    NAMES_PER_LOOKUP_MAX,
    REQUEST_TIMEOUT_DEFAULT_MS,
)
from nextgen.runtime import tracing
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import ShardLookupRequest, ShardRequest

_PAUSES_MS = (20, 100, 250)
"""Before asking again for a name whose answer named a session that is known to be over, an
assignment that is known to have been followed by another, or said that there is no broker: one that
was picked may have died meanwhile. Some clients take a failed lookup for the end of everything."""

_NO_BROKER = RejectionCode.NO_BROKER.value

_logger = structlog.get_logger(__name__)


class _Shard:
    """Names of one shard that wait to be asked for."""

    __slots__ = ("batches", "expiry", "flush_is_due", "in_flight", "trace_id", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str, float] = {}
        """By name, the oldest first: since when."""
        self.expiry: asyncio.TimerHandle | None = None
        self.batches = 0
        self.in_flight = 0
        """Names that the shard is being asked for."""
        self.flush_is_due = False
        self.trace_id = ""


class _Batch:
    """Names that a shard is being asked for by one request, or by those that follow it."""

    __slots__ = ("has_turn", "names")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        """Those that have no answer yet: others may be asked for by somebody else already."""
        self.has_turn = True
        """Whether it is one of the batches that are under way at a time."""


class ShardLookups:
    """Asks shards, fills the cache. Owned by one event loop."""

    def __init__(
        self,
        shards: Shards,
        directory: Directory,
        cache: AnswerCache,
        counters: DiscoveryCounters,
        clock: Clock,
    ) -> None:
        self._router = shards
        self._directory = directory
        self._cache = cache
        self._counters = counters
        self._clock = clock
        self._flights: dict[str, asyncio.Future[bytes]] = {}
        self._shards: dict[int, _Shard] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<ShardLookups names={len(self._flights)} requests={len(self._tasks)}>"

    def ask(self, shard_id: int, topic: str, trace_id: str = "") -> asyncio.Future[bytes]:
        """Return a future of the encoded answer; it never fails. Do not cancel it: it is shared."""
        flight = self._flights.get(topic)
        if flight is not None:
            return flight
        flight = asyncio.get_running_loop().create_future()
        if len(self._flights) >= LOOKUP_NAMES_WAITING_MAX:
            error = Overloaded(f"{LOOKUP_NAMES_WAITING_MAX} names wait for shards")
            flight.set_result(trouble_answer(topic, error))
            return flight
        self._flights[topic] = flight
        shard = self._shards.setdefault(shard_id, _Shard())
        shard.waiting[topic] = self._clock()
        if shard.expiry is None:
            self._expire_later(shard, LOOKUP_WAIT_MS_MAX / 1_000)
        shard.trace_id = shard.trace_id or trace_id
        self._flush_soon(shard_id, shard)
        return flight

    async def stop(self) -> None:
        """Give up what is under way; whoever waits is told so."""
        for shard in self._shards.values():
            if shard.expiry is not None:
                shard.expiry.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for topic in tuple(self._flights):
            self._settle(topic, trouble_answer(topic, Unavailable("this process is stopping")))

    def _flush_soon(self, shard_id: int, shard: _Shard) -> None:
        """Send what waits once the messages at hand have been read, so that they share it."""
        if shard.flush_is_due or shard.batches >= LOOKUP_BATCHES_IN_FLIGHT_MAX:
            return
        shard.flush_is_due = True
        asyncio.get_running_loop().call_soon(self._flush, shard_id, shard)

    def _flush(self, shard_id: int, shard: _Shard) -> None:
        shard.flush_is_due = False
        while shard.waiting and shard.batches < LOOKUP_BATCHES_IN_FLIGHT_MAX:
            room = LOOKUP_NAMES_IN_FLIGHT_MAX - shard.in_flight
            if room <= 0:
                return
            names = self._take_waiting(shard, min(NAMES_PER_LOOKUP_MAX, room))
            shard.batches += 1
            shard.in_flight += len(names)
            self._start(self._carry_out(shard_id, shard, names, shard.trace_id))
            shard.trace_id = ""

    def _take_waiting(self, shard: _Shard, names_max: int) -> list[str]:
        """Take the names that are asked for next out of the line."""
        oldest = next(iter(shard.waiting.values()))
        if self._clock() - oldest > LOOKUP_QUEUE_MS_MAX / 1_000:
            count = min(names_max, len(shard.waiting))
            return [shard.waiting.popitem()[0] for _ in range(count)]
        names = list(islice(shard.waiting, names_max))
        for name in names:
            del shard.waiting[name]
        return names

    def _expire_later(self, shard: _Shard, delay_s: float) -> None:
        shard.expiry = asyncio.get_running_loop().call_later(delay_s, self._expire, shard)

    def _expire(self, shard: _Shard) -> None:
        """Refuse what has waited for too long to be asked for."""
        shard.expiry = None
        overdue = self._clock() - LOOKUP_WAIT_MS_MAX / 1_000
        while shard.waiting:
            name, since = next(iter(shard.waiting.items()))
            if since > overdue:
                self._expire_later(shard, since - overdue)
                return
            del shard.waiting[name]
            self._counters.lookups_by_result[Overloaded.reason] += 1
            error = Overloaded(f"its shard could not be asked within {LOOKUP_WAIT_MS_MAX} ms")
            self._settle(name, trouble_answer(name, error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(
        self, shard_id: int, shard: _Shard, names: list[str], trace_id: str
    ) -> None:
        batch = _Batch(names)
        try:
            # Of the first who asked: what a request asks for others besides has no other trace.
            with tracing.span("discovery.ask_shard", trace_id, names=len(names)):
                await self._ask_shard(shard_id, shard, batch, tracing.outgoing() or trace_id)
        except MetadataError as error:
            self._counters.lookups_by_result[error.reason] += len(batch.names)
            for name in batch.names:
                self._settle(name, trouble_answer(name, error))
        except Exception as error:
            # Whoever waits must be answered even if this is a mistake of ours.
            _logger.exception("a lookup failed", shard_id=shard_id)
            for name in batch.names:
                self._settle(name, trouble_answer(name, Unavailable(repr(error))))
        finally:
            self._make_way(shard_id, shard, batch, [])

    def _make_way(self, shard_id: int, shard: _Shard, batch: _Batch, left: list[str]) -> None:
        """Let others be asked for: only the names that are ``left`` count as in flight."""
        shard.batches -= batch.has_turn
        shard.in_flight -= len(batch.names) - len(left)
        batch.has_turn, batch.names = False, left
        self._flush_soon(shard_id, shard)

    async def _ask_shard(self, shard_id: int, shard: _Shard, batch: _Batch, trace_id: str) -> None:
        """Ask until every name has a broker, by an answer that is not out of date already.

        Whoever asked while the answer was on its way may know better: a change of owner that was
        acknowledged in the meantime must show in every lookup begun behind it.
        """
        started = self._clock()
        names = batch.names
        for pause_ms in (*_PAUSES_MS, None):
            request = ShardRequest(trace_id=trace_id, lookup=ShardLookupRequest(topics=names))
            response = await self._router.call(
                shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
            answers = response.lookup.answers
            if len(answers) != len(names):
                raise Unavailable(
                    f"shard {shard_id} gave {len(answers)} answers to {len(names)} names"
                )
            latency_ms = (self._clock() - started) * 1_000
            again: list[str] = []
            for name, answer in zip(names, answers, strict=True):
                is_patient = pause_ms is not None and answer.rejection_code == _NO_BROKER
                if is_patient or self._has_ended(answer) or self._is_outdated(shard_id, answer):
                    again.append(name)
                else:
                    self._take(shard_id, name, answer)
            self._counters.add_cold(latency_ms, len(names) - len(again))
            if not again:
                return
            names = again
            # A name that no broker may have must not hold up those that some broker may.
            self._make_way(shard_id, shard, batch, names)
            if pause_ms is not None:
                await asyncio.sleep(pause_ms / 1_000)
        self._counters.lookups_by_result[SessionExpired.reason] += len(names)
        for name in names:
            error = SessionExpired(f"{name} has another owner each time it is asked for")
            self._settle(name, trouble_answer(name, error))

    def _has_ended(self, answer: LookupAnswer) -> bool:
        return bool(answer.session_id) and self._directory.view.has_session_ended(
            answer.broker_id, answer.session_id
        )

    def _is_outdated(self, shard_id: int, answer: LookupAnswer) -> bool:
        return not answer.rejection_code and self._cache.is_outdated(shard_id, answer_facts(answer))

    def _take(self, shard_id: int, name: str, answer: LookupAnswer) -> None:
        encoded = encoded_answer(answer)
        if not answer.rejection_code:
            self._counters.lookups_by_result["assigned"] += 1
            self._cache.insert(shard_id, encoded, answer_facts(answer))
        else:
            self._counters.lookups_by_result[answer.rejection_code] += 1
        self._settle(name, encoded)

    def _settle(self, topic: str, encoded: bytes) -> None:
        flight = self._flights.pop(topic, None)
        if flight is not None and not flight.done():
            flight.set_result(encoded)
