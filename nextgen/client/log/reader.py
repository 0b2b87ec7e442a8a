"""The committed log of one shard, read by position from any replica that can be reached.

Positions are dense and the same on every replica, so a reader whose replica fails continues at
another. Every batch is checked: an unexpected position ends the read with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import grpc

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.discovery.shard_replicas import ShardReplicas, replicas_of
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import (
    Definite,
    Indefinite,
    MetadataError,
    NotLeader,
    Overloaded,
    PositionAhead,
    PositionCompacted,
    Unavailable,
)
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import (
    EventBatch,
    PinLogRequest,
    PinLogResponse,
    ReadEventsRequest,
)
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

PAUSE_MS = 300
"""Milliseconds before another replica is tried."""

FAILURES_MAX = 10
"""Consecutive failures: three seconds, which covers two elections."""

FAILURES_FOLLOWING_MAX = 100
"""Consecutive failures while following: half a minute without any replica."""

PIN_TIMEOUT_MS = 2_000
"""Milliseconds for one replica to answer a pin."""

_ELSEWHERE = (Unavailable, Indefinite, NotLeader, Overloaded, PositionCompacted, PositionAhead)
"""Errors of one replica that another replica may not have."""


class LogNotDense(Definite):
    """A replica sent an event that is not the next one: nothing behind it can be trusted."""

    reason = "LOG_NOT_DENSE"

    def __init__(self, shard_id: int, expected: int, found: int, what: str = "event") -> None:
        super().__init__(
            f"the log of shard {shard_id} is not dense: position {expected} was expected, "
            f"an {what} says {found}"
        )
        self.shard_id = shard_id
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events in order, and how far the log was read for them.

    Everything before ``next_position`` was read: continue from there. ``commit_position`` is the
    last event that the replica knew as committed.
    """

    events: Sequence[Event]
    next_position: int
    commit_position: int


class ShardLogReader:
    """Reads one shard. ``prefer_follower`` spares the leader as long as a follower answers.

    ``types`` are names of payload fields, ``key_prefix`` is matched against the events' keys
    (``event_keys``). They filter the events, not the positions: those stay dense.
    """

    def __init__(
        self,
        discovery_endpoints: Sequence[str],
        shard_id: int,
        *,
        prefer_follower: bool = False,
        types: Sequence[str] = (),
        key_prefix: str = "",
    ) -> None:
        self.shard_id = shard_id
        self._discovery_endpoints = tuple(discovery_endpoints)
        self._prefer_follower = prefer_follower
        self._types = tuple(types)
        self._key_prefix = key_prefix

    def __repr__(self) -> str:
        return f"<ShardLogReader shard={self.shard_id} prefer_follower={self._prefer_follower}>"

    async def pages(
        self, position: int = 1, *, follow: bool = False, limit: int = 0
    ) -> AsyncGenerator[EventPage, None]:
        """Yield the committed events from ``position`` on, each position once and in order.

        Ends at the present, unless ``follow``, and after ``limit`` events, 0 for no bound.
        A replica that fails, falls behind or has compacted the position is replaced by another. A
        page may hold no event. Read-ahead is bounded by the stream's flow-control window.

        Raises:
            Refused: There is no such shard.
            InvalidRequest: A type does not exist.
            PositionCompacted: No replica has the position any more. The error names the oldest
                position that a replica still has.
            PositionAhead: The leader confirms that the position lies in the future.
            LogNotDense: A replica sent a position that is not the expected one.
            MetadataError: No replica answers.
        """
        progress = _Progress(max(1, position), limit or None, follow=follow)
        nodes = DiscoveryNodes(self._discovery_endpoints, in_order=True)
        try:
            while True:
                replicas: ShardReplicas | None = None
                try:
                    replicas = await replicas_of(nodes, self.shard_id)
                    endpoint = self._choose(replicas, progress)
                    async with aclosing(self._read_once(endpoint, progress)) as pages:
                        async for page in pages:
                            yield page
                    if progress.is_done:
                        return
                    failure: MetadataError = Unavailable(f"the stream of {endpoint} ended early")
                except _ELSEWHERE as error:
                    failure = error
                progress.failed(failure, replicas)
                await asyncio.sleep(PAUSE_MS / 1000)
        finally:
            await nodes.close()

    # Inside -----------------------------------------------------------------------------------

    def _choose(self, replicas: ShardReplicas, progress: _Progress) -> str:
        wants_leader = isinstance(progress.last_error, PositionAhead)
        followers_first = self._prefer_follower and not wants_leader
        order = replicas.in_order(followers_first=followers_first)
        # A replica that may be behind is not tried again before the leader was.
        turn = 0 if wants_leader and replicas.leader else progress.failures
        progress.endpoint = order[turn % len(order)]
        return progress.endpoint

    async def _read_once(
        self, endpoint: str, progress: _Progress
    ) -> AsyncGenerator[EventPage, None]:
        request = ReadEventsRequest(
            shard_id=self.shard_id,
            from_position=progress.position,
            follow=progress.follow,
            events_max=progress.remaining or 0,
            types=self._types,
            key_prefix=self._key_prefix,
        )
        channel = open_channel(endpoint)
        try:
            # A frozen process accepts a connection and then stays silent.
            await wait_connected(channel, endpoint)
            async for batch in ShardServiceStub(channel).ReadEvents(request):
                if batch.HasField("error"):
                    raise from_detail(batch.error)
                self._check(batch, progress.position)
                yield progress.accept(batch)
        except grpc.RpcError as error:
            raise error_of_rpc(error) from error
        finally:
            await close_channel(channel)

    def _check(self, batch: EventBatch, expected: int) -> None:
        """Raise ``LogNotDense`` unless ``batch`` goes on at ``expected``."""
        is_filtered = bool(self._types or self._key_prefix)
        for event in batch.events:
            if event.shard_id != self.shard_id:
                raise LogNotDense(self.shard_id, expected, event.position, "event of another shard")
            found = event.position
            if found < expected or (found > expected and not is_filtered):
                raise LogNotDense(self.shard_id, expected, found)
            expected = found + 1
        ends = batch.next_position
        if ends < expected or (ends > expected and not is_filtered):
            raise LogNotDense(self.shard_id, expected, ends, "end of a page")


@dataclass(slots=True)
class _Progress:
    """The progress of one read, and its failures since it last advanced."""

    position: int
    remaining: int | None
    follow: bool
    known: int = 0
    """The last committed position that any replica reported: a reader that was moved to a replica
    which is behind must not take the end of that replica's log for the present."""
    endpoint: str = ""
    failures: int = 0
    last_error: MetadataError | None = None
    compacted: dict[str, PositionCompacted] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        if self.remaining is not None and self.remaining <= 0:
            return True
        return not self.follow and self.position > self.known

    def accept(self, batch: EventBatch) -> EventPage:
        self.position = batch.next_position
        self.known = max(self.known, batch.commit_position)
        if self.remaining is not None:
            self.remaining -= len(batch.events)
        self.failures, self.last_error = 0, None
        self.compacted.clear()
        return EventPage(batch.events, batch.next_position, batch.commit_position)

    def failed(self, error: MetadataError, replicas: ShardReplicas | None) -> None:
        """Note a failure; raise an error once no further replica is to be tried."""
        self.failures += 1
        self.last_error = error
        if isinstance(error, PositionAhead) and error.is_final:
            raise error
        if isinstance(error, PositionCompacted):
            self.compacted[self.endpoint] = error
            if replicas is not None and set(replicas.endpoints.values()) <= set(self.compacted):
                raise self._most_kept()
        # Once a replica has compacted the position, a silent replica does not get the long wait.
        is_patient = self.follow and not self.compacted
        bound = FAILURES_FOLLOWING_MAX if is_patient else FAILURES_MAX
        if self.failures < bound:
            return
        if self.compacted:
            raise self._most_kept()
        if isinstance(error, PositionAhead):
            raise Unavailable(f"no leader confirms that {error}") from error
        raise error

    def _most_kept(self) -> PositionCompacted:
        return min(self.compacted.values(), key=lambda error: error.oldest)


async def read_events(
    discovery_endpoints: Sequence[str],
    shard_id: int,
    position: int = 1,
    *,
    follow: bool = False,
    types: Sequence[str] = (),
    key_prefix: str = "",
    limit: int = 0,
) -> AsyncGenerator[Event, None]:
    """Yield the events of ``ShardLogReader.pages`` one by one, from the leader if there is one.

    Raises:
        MetadataError: As there.
    """
    reader = ShardLogReader(discovery_endpoints, shard_id, types=types, key_prefix=key_prefix)
    async with aclosing(reader.pages(position, follow=follow, limit=limit)) as pages:
        async for page in pages:
            for event in page.events:
                yield event


async def pin_log(
    discovery_endpoints: Sequence[str],
    shard_id: int,
    reader_id: str,
    position: int,
    *,
    ttl_ms: int,
) -> None:
    """Pin the log of every replica of the shard: entries from ``position`` on are retained.

    The pin lasts ``ttl_ms`` from now, over restarts. Call again to renew it, with 0 to release it.
    A replica that does not answer has no pin until the next renewal: renew often.

    Raises:
        PositionCompacted: No replica has the position any more.
        PositionAhead: The leader confirms that the position lies in the future.
        MetadataError: No replica accepted the pin.
    """
    assert reader_id, "a reader has a name"
    answers = await _ask_all(
        discovery_endpoints,
        PinLogRequest(shard_id=shard_id, reader_id=reader_id, position=position, ttl_ms=ttl_ms),
    )
    _check_pinned(list(answers.values()))


async def pin_replicas(endpoints: Sequence[str], request: PinLogRequest) -> None:
    """Pin the log of the replicas at ``endpoints``, as ``pin_log`` does.

    Raises:
        PositionCompacted: No replica has the position any more.
        MetadataError: No replica accepted the pin.
    """
    answers = await asyncio.gather(*(_pin_at(endpoint, request) for endpoint in endpoints))
    _check_pinned(answers)


async def log_readers(
    discovery_endpoints: Sequence[str], shard_id: int
) -> dict[str, PinLogResponse | MetadataError]:
    """Return the named readers of a shard's log as each replica knows them, by node id.

    Raises:
        MetadataError: The replicas are not known.
    """
    return await _ask_all(discovery_endpoints, PinLogRequest(shard_id=shard_id))


def _check_pinned(answers: Sequence[PinLogResponse | MetadataError]) -> None:
    errors = [answer for answer in answers if isinstance(answer, MetadataError)]
    for error in errors:
        if isinstance(error, PositionAhead) and error.is_final:
            raise error
    if errors and len(errors) == len(answers):
        raise next((one for one in errors if isinstance(one, PositionCompacted)), errors[0])


async def _ask_all(
    discovery_endpoints: Sequence[str], request: PinLogRequest
) -> dict[str, PinLogResponse | MetadataError]:
    nodes = DiscoveryNodes(discovery_endpoints, in_order=True)
    try:
        replicas = await replicas_of(nodes, request.shard_id)
    finally:
        await nodes.close()
    answers = await asyncio.gather(
        *(_pin_at(endpoint, request) for endpoint in replicas.endpoints.values())
    )
    return dict(zip(replicas.endpoints, answers, strict=True))


async def _pin_at(endpoint: str, request: PinLogRequest) -> PinLogResponse | MetadataError:
    channel = open_channel(endpoint)
    try:
        response: PinLogResponse = await ShardServiceStub(channel).PinLog(
            request, timeout=PIN_TIMEOUT_MS / 1000
        )
    except grpc.RpcError as error:
        return error_of_rpc(error)
    finally:
        await close_channel(channel)
    return from_detail(response.error) if response.HasField("error") else response
