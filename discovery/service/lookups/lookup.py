"""Lookups: from the cache at once, else from the shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from google.protobuf.message import DecodeError

from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.ports import Clock, Directory, Shards
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.shard_lookups import ShardLookups
from discovery.wire import (
    decoded_answer,
    demanded_epochs,
    known_positions,
    parse_lookup,
    refused_answer,
    trouble_answer,
)
from nextgen.client.transport.request_fields import TooManyFields
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest, MetadataError
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.discovery import LOOKUP_TENANT_NAMES_WAITING_MAX
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from nextgen.runtime.telemetry import lookup_steps, tracing
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

_NO_PLACES: Container[int] = ()
_NO_POSITIONS: Mapping[int, int] = {}


class OpenLookup:
    """A lookup that waits for shards: the answers of the cache, and the places without one.

    A place in ``fresh`` needs an answer that its shard gives after the lookup began. So does every
    name of a shard of which the caller knows a position (``known``).
    """

    __slots__ = ("answers", "began_at", "demands", "fresh", "known", "missing", "request")

    def __init__(
        self,
        request: LookupRequest,
        answers: list[bytes],
        missing: list[int],
        began_at: float,
        demands: bool,
        fresh: Container[int],
        known: Mapping[int, int],
    ) -> None:
        self.began_at = began_at
        self.demands = demands
        self.fresh = fresh
        self.known = known
        self.request = request
        self.answers = answers
        self.missing = missing


class LookupService:
    """Answers ``Lookup`` and ``LookupStream`` messages, from bytes to bytes.

    A message that the cache can answer in full never waits: see ``answer_at_once``. An answer is
    linearizable if the request demands it, else not older than ``LOOKUP_STALENESS_MS_MAX`` when the
    lookup begins, and never behind an earlier answer of this service about the topic (ADR 0051).
    """

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
        self._shards = shards
        self._directory = directory
        self._cache = cache
        self._absent = absent
        self._counters = counters
        self._clock = clock
        self._lookups = ShardLookups(
            shards, directory, cache, absent, counters, clock, tenant_names_waiting_max
        )

    @property
    def shard_map_version(self) -> int:
        """The version of the shard map that answers are given by."""
        return self._directory.view.shard_map_version

    def on_asked(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the shard of each request that lookups send to it."""
        self._lookups.on_asked = listener

    def answer_at_once(self, data: bytes) -> bytes | OpenLookup:
        """Return the serialised ``LookupResponse``, or a lookup to pass to ``answer_later``.

        Raises:
            InvalidRequest: ``data`` is not a lookup within the limits.
        """
        try:
            request = parse_lookup(data)
        except InvalidRequest:
            self._counters.requests_invalid += 1
            raise
        names = request.topics
        now = self._clock()
        answers, missing = self._cache.lookup(names, now)
        # One check for both: nearly no message has demands, and the fast path takes microseconds.
        demands = request.fresh or bool(request.min_epochs)
        fresh = self._take_out(request, answers, missing) if demands else _NO_PLACES
        known: Mapping[int, int] = _NO_POSITIONS
        if missing:
            known = known_positions(request)
            self._absent.fill(names, answers, missing, now, known=known, asked_anew=fresh)
        counters = self._counters
        counters.lookup_messages += 1
        counters.names_looked_up += len(answers)
        counters.answers_from_cache += len(answers) - len(missing)
        if missing:
            return OpenLookup(request, answers, missing, now, demands, fresh, known)
        counters.tally.at_once += len(answers)
        return self._response(answers, request.request_id, demands)

    async def answer_later(
        self, lookup: OpenLookup, timeout_ms: int = REQUEST_TIMEOUT_DEFAULT_MS
    ) -> bytes:
        """Return the serialised ``LookupResponse`` once the shards have answered.

        A name whose shard has not answered within ``timeout_ms`` gets a retryable answer, so that a
        shard without a leader does not fail the names of other shards.
        """
        trace_id = lookup.request.trace_id
        if tracing.active is None:
            return await self._answer_metered(lookup, timeout_ms, trace_id)
        # The message carries the caller's trace, also on a shared stream. Without it the call's own
        # span is the parent, or a trace begins here.
        parent = trace_id or tracing.traceparent()
        with tracing.span("discovery.lookup", parent, missing=len(lookup.missing)):
            lookup_steps.step(9)
            answer = await self._answer_metered(lookup, timeout_ms, tracing.traceparent())
            lookup_steps.step(23)
            return answer

    async def _answer_metered(self, lookup: OpenLookup, timeout_ms: int, trace_id: str) -> bytes:
        tally, names = self._counters.tally, len(lookup.answers)
        try:
            answer = await self._answer_later(lookup, timeout_ms, trace_id)
        except asyncio.CancelledError:
            tally.given_up(self._waited_ms(lookup), lookups=names)
            raise
        failed = sum(decoded_answer(lookup.answers[place]).retryable for place in lookup.missing)
        tally.add(self._waited_ms(lookup), lookups=names, failed=failed)
        return answer

    def _waited_ms(self, lookup: OpenLookup) -> float:
        return (self._clock() - lookup.began_at) * 1_000

    async def _answer_later(self, lookup: OpenLookup, timeout_ms: int, trace_id: str) -> bytes:
        waiting: dict[int, asyncio.Future[bytes]] = {}
        names = lookup.request.topics
        for place in lookup.missing:
            is_fresh = place in lookup.fresh
            answer = self._asked(names[place], trace_id, lookup.known, is_fresh=is_fresh)
            if isinstance(answer, bytes):
                lookup.answers[place] = answer
            else:
                waiting[place] = answer
        if waiting:
            # Unlike gather, wait leaves the shared futures alone when this is cancelled.
            await asyncio.wait(set(waiting.values()), timeout=timeout_ms / 1_000)
        for place, future in waiting.items():
            lookup.answers[place] = (
                future.result() if future.done() else self._late(names[place], timeout_ms)
            )
        return self._response(lookup.answers, lookup.request.request_id, lookup.demands)

    async def answer(self, data: bytes, timeout_ms: int) -> bytes:
        """Return the serialised ``LookupResponse``, within ``timeout_ms``.

        Raises:
            InvalidRequest: ``data`` is not a lookup within the limits.
        """
        answer = self.answer_at_once(data)
        if isinstance(answer, bytes):
            return answer
        return await self.answer_later(answer, timeout_ms)

    async def locate(self, name: TopicName, is_fresh: bool = False) -> LookupAnswer:
        """Return the answer for one name: its broker, or a rejection.

        With ``is_fresh`` the shard reads after this call: nothing that is known here is used.

        Raises:
            Unavailable: No shard map is known here yet.
        """
        topic = name.text
        self._counters.names_looked_up += 1
        if not is_fresh:
            answers, missing = self._cache.lookup((topic,), self._clock())
            if not missing:
                self._counters.answers_from_cache += 1
                return decoded_answer(answers[0])
            absence = self._absent.find(topic, self._clock())
            if absence is not None:
                self._counters.answers_from_cache += 1
                return decoded_answer(absence)
        with tracing.span("discovery.lookup", missing=1):
            lookup_steps.step(9)
            shard_id = self._shards.shard_of_key(name.routing_key)
            flight = self._lookups.ask(shard_id, topic, tracing.outgoing(), is_fresh=is_fresh)
            # Unlike await, wait leaves the shared future alone when this is cancelled.
            await asyncio.wait((flight,))
            lookup_steps.step(23)
        return decoded_answer(flight.result())

    def refusal(self, data: bytes, error: MetadataError) -> bytes:
        """Return the ``LookupResponse`` that refuses a message of a stream as a whole."""
        version = self._directory.view.shard_map_version
        return LookupResponse(
            # What has too many fields is not parsed for its id either.
            request_id=0 if isinstance(error, TooManyFields) else _request_id(data),
            error=to_detail(error, shard_map_version=version),
            shard_map_version=version,
        ).SerializeToString()

    async def stop(self) -> None:
        """Give up the lookups that wait for shards."""
        await self._lookups.stop()

    def _asked(
        self, spelling: str, trace_id: str, known: Mapping[int, int], *, is_fresh: bool
    ) -> bytes | asyncio.Future[bytes]:
        try:
            name = parse_topic(spelling)
        except InvalidName as error:
            self._counters.lookups_by_result[RejectionCode.INVALID_NAME] += 1
            return refused_answer(spelling, RejectionCode.INVALID_NAME, str(error))
        topic = name.text
        if topic != spelling:
            self._cache.add_alias(spelling, topic)
            absence = None if is_fresh else self._absent.find(topic, self._clock(), known)
            if absence is not None:
                return absence
        try:
            shard_id = self._shards.shard_of_key(name.routing_key)
        except MetadataError as error:
            self._counters.lookups_by_result[error.reason] += 1
            return trouble_answer(topic, error)
        # A request in flight may be older than the position that the caller knows of the shard.
        is_fresh = is_fresh or shard_id in known
        return self._lookups.ask(shard_id, topic, trace_id, is_fresh=is_fresh)

    def _late(self, spelling: str, timeout_ms: int) -> bytes:
        self._counters.lookups_by_result[DeadlineExceeded.reason] += 1
        error = DeadlineExceeded(f"its shard did not answer within {timeout_ms} ms")
        return trouble_answer(parse_topic(spelling).text, error)

    def _take_out(
        self, request: LookupRequest, answers: list[bytes], missing: list[int]
    ) -> Container[int]:
        """Remove cached answers that the request does not accept.

        Returns the places that need a fresh answer of their shard.

        Raises:
            InvalidRequest: See ``demanded_epochs``.
        """
        try:
            demanded = demanded_epochs(request)
        except InvalidRequest:
            self._counters.requests_invalid += 1
            raise
        if request.fresh:
            missing[:] = range(len(answers))
            answers[:] = [b""] * len(answers)
            return range(len(answers))
        for place, epoch in demanded.items():
            if answers[place] and decoded_answer(answers[place]).epoch < epoch:
                answers[place] = b""
        missing[:] = [place for place, answer in enumerate(answers) if not answer]
        return {place for place in missing if place in demanded}

    def _response(self, answers: list[bytes], request_id: int, demands: bool) -> bytes:
        rest = LookupResponse(
            request_id=request_id, shard_map_version=self._directory.view.shard_map_version
        )
        if demands:
            rest.fresh = True
        return b"".join(answers) + rest.SerializeToString()


def _request_id(data: bytes) -> int:
    """Return the id in a message that may be nothing at all; 0 if it has none."""
    try:
        return LookupRequest.FromString(data).request_id
    except DecodeError:
        return 0
