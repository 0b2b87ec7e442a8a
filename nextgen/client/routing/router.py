"""Requests to a shard: finds its leader, follows hints, retries what may be retried.

    failed with                       before the next attempt
    ---------------------------------------------------------------------------------------
    NotLeader with a hint             nothing: try the hint
    NotLeader, ConnectionLost,        wait for a leader of a higher term to be pushed, at most
      NotConnected                    5, 50, 250, 1,000 ms; then try another replica, which keeps
                                      the request until it knows a leader (ELECTION_WAIT_MS)
    StaleShardMap, moved_to or        nothing: the shard that has the slot, or the topic's home, is
      moved_names                     asked, within ``MOVED_HOPS_MAX``; not counted as a retry
    StaleShardMap                     wait for a higher map version, as long; then route again, by
                                      the map alone
    Unavailable, Overloaded,          20 to 200 ms with jitter, ``retry_after_ms`` at least;
      ProposalLost                    nothing more if the caller has no time for that

When a leader of a higher term is pushed, requests pending at another endpoint are given up shortly
after: their leader may have frozen.

A request to one shard (``call``) is not sent to another: its caller groups names by shard anew.
An attempt that failed indefinitely is repeated only if the caller sets ``idempotent``. If the
attempts end with a definite error after an indefinite one, the request's error is indefinite.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.exchange import ExchangePool, NotConnected
from nextgen.client.transport.retry_pause import retry_pause_ms
from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Definite,
    Indefinite,
    MetadataError,
    NotLeader,
    Overloaded,
    ProposalLost,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.limits.cluster import ROUTER_RETRIES_MAX
from nextgen.kernel.limits.stream import MOVED_HOPS_MAX
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse

LocalShard = Callable[[ShardRequest], Awaitable[ShardResponse]]
"""Answers a request in this process. Raises ``MetadataError`` or sets ``error``."""

LocalShards = Callable[[int], LocalShard | None]
"""Returns the shortcut to a shard that this process leads, None for every other."""

_LEADER_WAIT_MS = (5, 50, 250, 1_000, 1_000)
_PAUSE_MS = (20, 40, 80, 160, 200)
_ATTEMPT_SHARE_MS_MIN = 500
_ATTEMPT_MS_MIN = 20


class _NoTimeLeft(Unavailable):
    """The deadline passed before the request was sent."""


_RETRIED = (NotLeader, Unavailable, StaleShardMap, Overloaded, ConnectionLost, ProposalLost)


class ClusterSource(Protocol):
    """Where routes come from: a ``ClusterLink``, or a fake."""

    @property
    def view(self) -> ClusterView: ...

    def on_change(self, listener: ChangeListener) -> None: ...

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool: ...


@dataclass(slots=True)
class RouterStatistics:
    """Counts since start."""

    requests: int = 0
    failures: int = 0
    """Requests that ended with an error, other than errors of the caller."""
    retries: list[int] = field(default_factory=lambda: [0] * (ROUTER_RETRIES_MAX + 1))
    """``retries[n]``: requests that needed n retries, failed ones included."""

    @property
    def retries_total(self) -> int:
        return sum(count * requests for count, requests in enumerate(self.retries))

    def retries_quantile(self, quantile: float) -> int:
        """Return how many retries sufficed for the given share of all requests."""
        wanted = quantile * sum(self.retries)
        seen = 0
        for count, requests in enumerate(self.retries):
            seen += requests
            if seen >= wanted:
                return count
        return ROUTER_RETRIES_MAX


@dataclass(slots=True)
class _Attempts:
    """The attempts of one routed request."""

    key: str | int | None
    """The routing key, or the slot, whose shard is asked; None: ``shard_id`` is."""
    shard_id: int
    request: ShardRequest
    deadline: float
    idempotent: bool
    trace_id: str = ""
    """The trace id that the caller put into the request; each attempt is a child span of it."""
    retries: int = 0
    hint: str | None = None
    suspect: str | None = None
    """Endpoint that just failed: another one is tried if there is one."""
    suspect_term: int = 0
    dead: set[str] = field(default_factory=set)
    """Endpoints that refused the connection: hints to them are out of date."""
    was_indefinite: bool = False
    stamped: tuple[int, int] | None = None
    """The shard and its position at which commands count as issued; None: their caller said it."""
    hops: int = 0
    """How often a shard named the one that it gave the slot to."""
    shard_map_version: int = 0
    """Of the map by which the last attempt was routed."""


class ShardRouter:
    """Routes requests to shards: ``link`` knows their endpoints, ``pool`` sends.

    ``local`` answers requests to shards that this process leads.
    """

    def __init__(
        self, link: ClusterSource, pool: ExchangePool, local: LocalShards | None = None
    ) -> None:
        self._link = link
        self._pool = pool
        self._local = local or (lambda shard_id: None)
        self._positions: dict[int, int] = {}
        """By shard: the last position that an answer named."""
        self.statistics = RouterStatistics()
        link.on_change(self._on_change)

    def leader_term(self, shard_id: int) -> int:
        """Return the term of the shard's leader that is known here, 0 if none is."""
        return self._link.view.leader_term(shard_id)

    def shard_of_key(self, routing_key: str) -> int:
        """Return the shard that has the slot of ``routing_key``.

        Raises:
            Unavailable: No shard map is known yet.
        """
        return self.shard_of_slot(self._link.view.slot_of_key(routing_key))

    def _shard_of(self, key: str | int) -> int:
        return self.shard_of_key(key) if isinstance(key, str) else self.shard_of_slot(key)

    def shard_of_slot(self, slot: int) -> int:
        """Return the shard that has ``slot``.

        Raises:
            Unavailable: No shard map is known yet.
        """
        table = self._link.view.slot_table
        if table is None:
            raise Unavailable("no shard map is known here yet")
        return table.owners[slot]

    async def call(
        self,
        shard_id: int,
        request: ShardRequest,
        *,
        timeout_ms: int,
        idempotent: bool = True,
    ) -> ShardResponse:
        """Have the shard's leader answer ``request``, with at most ``ROUTER_RETRIES_MAX`` retries.

        ``idempotent``: carrying it out twice is harmless (a read, or every command has an id).
        ``request`` belongs to the router until this returns. Commands with ``issued`` keep these
        positions at every attempt.

        Raises:
            StaleShardMap: The shard does not have a slot of the request any more, or a newer map
                came after it said so. Group the names by ``shard_of_key`` again.
            MetadataError: The last attempt's error; indefinite if any attempt's was, and no later
                attempt settled it.
        """
        return await self._call(None, shard_id, request, timeout_ms, idempotent=idempotent)

    async def call_key(
        self,
        routing_key: str,
        request: ShardRequest,
        *,
        timeout_ms: int,
        idempotent: bool = True,
    ) -> ShardResponse:
        """As ``call``, to the shard of ``routing_key``, looked up again after a map change."""
        return await self._call(routing_key, 0, request, timeout_ms, idempotent=idempotent)

    async def call_slot(
        self, slot: int, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse:
        """As ``call_key``, to the shard that has ``slot``."""
        return await self._call(slot, 0, request, timeout_ms, idempotent=idempotent)

    async def call_any(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int
    ) -> ShardResponse:
        """Have any replica answer, for reads with a ``min_position``. Replicas take turns.

        Raises:
            MetadataError: The error of the last replica tried.
        """
        local = self._local(shard_id)
        if local is not None:
            return await self._ask_local(local, shard_id, request, timeout_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1_000
        endpoints = self._link.view.replica_endpoints(shard_id)
        random.shuffle(endpoints)
        request.shard_id = shard_id
        for endpoint in endpoints:
            remaining_ms = int((deadline - loop.time()) * 1_000)
            if remaining_ms <= 0:
                break
            # A replica that hangs must leave time for the next one.
            share_ms = min(remaining_ms, max(_ATTEMPT_SHARE_MS_MIN, remaining_ms // 2))
            try:
                response = await self._pool.request(endpoint, request, timeout_ms=share_ms)
            except (Unavailable, NotLeader, ConnectionLost, DeadlineExceeded, Overloaded):
                continue
            except StaleShardMap as error:
                # A replica with an empty view does not know its slots yet; the leader does. It also
                # knows better whether a name leads elsewhere.
                self._link.view.learn_names(error.moved_names)
                continue
            self.statistics.requests += 1
            self.statistics.retries[0] += 1
            return response
        remaining_ms = max(1, int((deadline - loop.time()) * 1_000))
        return await self.call(shard_id, request, timeout_ms=remaining_ms)

    async def _call(
        self,
        key: str | int | None,
        shard_id: int,
        request: ShardRequest,
        timeout_ms: int,
        *,
        idempotent: bool,
    ) -> ShardResponse:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1_000
        attempts = _Attempts(key, shard_id, request, deadline, idempotent)
        attempts.trace_id = request.trace_id
        self.statistics.requests += 1
        try:
            response = await self._attempt_until_settled(attempts)
            known = self._positions.get(request.shard_id, 0)
            self._positions[request.shard_id] = max(known, response.position)
            return response
        except MetadataError:
            self.statistics.failures += 1
            raise
        finally:
            self.statistics.retries[attempts.retries] += 1

    async def _attempt_until_settled(self, attempts: _Attempts) -> ShardResponse:
        error: MetadataError | None = None
        while True:
            try:
                return await self._attempt(attempts)
            except _NoTimeLeft as failure:
                # The error of the attempt before names the cause; this one does not.
                raise self._settled(attempts, error or failure) from None
            except _RETRIED as failure:
                error = failure
                if isinstance(failure, Indefinite):
                    attempts.was_indefinite = True
                    if not attempts.idempotent:
                        raise
                elif isinstance(failure, StaleShardMap) and self._follows(attempts, failure):
                    continue
            is_over = error.retry_after_ms >= self._remaining_ms(attempts)
            if is_over or attempts.retries >= ROUTER_RETRIES_MAX:
                raise self._settled(attempts, error)
            await self._prepare_retry(attempts, error)
            # DEADLINE_EXCEEDED of an attempt without time would hide the actual cause.
            if self._remaining_ms(attempts) <= _ATTEMPT_MS_MIN:
                raise self._settled(attempts, error)
            attempts.retries += 1

    def _follows(self, attempts: _Attempts, error: StaleShardMap) -> bool:
        """Learn where slots and names are that the refusing shard does not have; return whether to
        ask there at once."""
        key, view, asked = attempts.key, self._link.view, attempts.request.shard_id
        view.learn_names(error.moved_names)
        is_elsewhere = any(self.shard_of_key(each) != asked for each in error.moved_names)
        if error.moved_to:
            ranges = error.moved_slots
            if not ranges and key is not None:
                slot = view.slot_of_key(key) if isinstance(key, str) else key
                ranges = ((slot, slot),)
            view.learn_move(ranges, error.moved_to, attempts.shard_map_version)
        elif not is_elsewhere:
            # A move that this shard was named as the target of may have been taken back since.
            # The map does not change then, so the learned owners are dropped.
            view.forget_moves()
            return False
        if key is None:
            raise self._settled(attempts, error)
        if attempts.hops >= MOVED_HOPS_MAX or self._shard_of(key) == asked:
            return False
        attempts.hops += 1
        attempts.suspect, attempts.hint = None, None
        return True

    @staticmethod
    def _settled(attempts: _Attempts, error: MetadataError) -> MetadataError:
        if attempts.was_indefinite and isinstance(error, Definite):
            settled = DeadlineExceeded(f"it may have happened; the last attempt failed: {error}")
            settled.__cause__ = error
            return settled
        return error

    @staticmethod
    def _remaining_ms(attempts: _Attempts) -> int:
        return int((attempts.deadline - asyncio.get_running_loop().time()) * 1_000)

    async def _attempt(self, attempts: _Attempts) -> ShardResponse:
        if tracing.active is None:
            return await self._attempt_once(attempts)
        body = attempts.request.WhichOneof("body")
        parent = None if tracing.traceparent() else attempts.trace_id
        with tracing.span(f"route.{body}", parent, attempt=attempts.retries + 1) as span:
            attempts.request.trace_id = tracing.traceparent()
            response = await self._attempt_once(attempts)
            if span is not None:
                span.set_attribute("shard", attempts.request.shard_id)
                span.set_attribute("endpoint", attempts.suspect or "local")
            return response

    async def _attempt_once(self, attempts: _Attempts) -> ShardResponse:
        key = attempts.key
        shard_id = attempts.shard_id if key is None else self._shard_of(key)
        attempts.shard_map_version = self._link.view.shard_map_version
        self._stamp(attempts, shard_id)
        term = self._link.view.leader_term(shard_id)
        local = self._local(shard_id)
        if local is not None:
            attempts.suspect, attempts.suspect_term = None, term
            remaining_ms = max(1, self._remaining_ms(attempts))
            return await self._ask_local(local, shard_id, attempts.request, remaining_ms)
        endpoint = await self._endpoint(attempts, shard_id)
        timeout_ms = self._remaining_ms(attempts)
        if timeout_ms <= 0:
            raise _NoTimeLeft(f"shard {shard_id}: no time left to ask {endpoint}")
        attempts.suspect, attempts.suspect_term = endpoint, term
        try:
            return await self._pool.request(endpoint, attempts.request, timeout_ms=timeout_ms)
        except (NotConnected, ConnectionLost):
            attempts.dead.add(endpoint)
            raise

    def _stamp(self, attempts: _Attempts, shard_id: int) -> None:
        """Put the shard id and the commands' issued position into the request.

        A command whose caller set no positions counts as issued at its first attempt that may have
        reached its shard. If the slot is elsewhere since, that shard's position goes along.
        """
        request = attempts.request
        if request.HasField("execute"):
            execute = request.execute
            if attempts.stamped is None and not execute.issued:
                attempts.stamped = (shard_id, self._positions.get(shard_id, 0))
            if attempts.stamped is None:
                # Whoever made the request for this shard has found the position already.
                if request.shard_id != shard_id or not execute.issued_position:
                    named = {each.shard_id: each.position for each in execute.issued}
                    execute.issued_position = named.get(shard_id, 0)
            elif attempts.stamped[0] == shard_id:
                del execute.issued[:]
                execute.issued_position = attempts.stamped[1]
            elif not attempts.was_indefinite:
                del execute.issued[:]
                attempts.stamped = (shard_id, self._positions.get(shard_id, 0))
                execute.issued_position = attempts.stamped[1]
            else:
                first, position = attempts.stamped
                execute.issued_position = 0
                del execute.issued[:]
                execute.issued.add(shard_id=first, position=position)
        request.shard_id = shard_id

    async def _endpoint(self, attempts: _Attempts, shard_id: int) -> str:
        """Return the endpoint for the next attempt, waiting for a leader when none is known."""
        hint, attempts.hint = attempts.hint, None
        if hint is not None:
            return hint
        view = self._link.view
        endpoint = view.leader_endpoint(shard_id)
        if endpoint is None:
            await self._link.wait_until(
                lambda view: view.leader_endpoint(shard_id) is not None,
                max(0, self._remaining_ms(attempts)),
            )
            endpoint = view.leader_endpoint(shard_id)
            if endpoint is None:
                raise Unavailable(f"shard {shard_id} has no leader that is known here")
        if endpoint == attempts.suspect and view.leader_term(shard_id) <= attempts.suspect_term:
            return self._other_replica(shard_id, endpoint, attempts.retries)
        return endpoint

    def _other_replica(self, shard_id: int, suspect: str, turn: int) -> str:
        """Return a replica that may know a newer leader than the view; each turn another one.

        Every third turn it is the suspect itself, which may only have lost a connection.
        """
        others = [at for at in self._link.view.replica_endpoints(shard_id) if at != suspect]
        candidates = [*others[:2], suspect]
        return candidates[(turn - 1) % len(candidates)]

    @staticmethod
    async def _ask_local(
        local: LocalShard,
        shard_id: int,
        request: ShardRequest,
        timeout_ms: int,
    ) -> ShardResponse:
        request.shard_id = shard_id
        request.timeout_ms = timeout_ms
        try:
            async with timeout(timeout_ms / 1_000):
                response = await local(request)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"shard {shard_id}, led here, did not answer within {timeout_ms} ms"
            ) from error
        if response.HasField("error"):
            raise from_detail(response.error)
        return response

    async def _prepare_retry(self, attempts: _Attempts, error: MetadataError) -> None:
        remaining_ms = max(0, self._remaining_ms(attempts))
        wait_ms = min(remaining_ms, _LEADER_WAIT_MS[attempts.retries])
        if isinstance(error, StaleShardMap):
            version = max(self._link.view.shard_map_version + 1, error.shard_map_version)
            is_new = await self._link.wait_until(
                lambda view: view.shard_map_version >= version, wait_ms
            )
            if is_new and attempts.key is None:
                # Its names may have their slots elsewhere by the newer map.
                raise self._settled(attempts, error)
        elif isinstance(error, NotLeader) and self._is_useful(error.leader_hint, attempts):
            attempts.hint = error.leader_hint
        elif isinstance(error, NotLeader | NotConnected | ConnectionLost):
            shard_id, term = attempts.request.shard_id, attempts.suspect_term
            await self._link.wait_until(lambda view: view.leader_term(shard_id) > term, wait_ms)
        else:
            pause_ms = retry_pause_ms(error, _PAUSE_MS[attempts.retries])
            attempts.suspect = None
            await asyncio.sleep(min(remaining_ms, pause_ms) / 1_000)

    @staticmethod
    def _is_useful(hint: str | None, attempts: _Attempts) -> bool:
        return hint is not None and hint != attempts.suspect and hint not in attempts.dead

    def _on_change(self, view: ClusterView, update: ClusterUpdate) -> None:
        for leader in update.leaders:
            if leader.term == view.leader_term(leader.shard_id):
                self._pool.abandon(leader.shard_id, leader=leader.grpc)
