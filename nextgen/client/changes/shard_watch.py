"""Follows one shard's changes for one subscriber, from replica to replica.

    one stream: open ─▶ add every watch behind its own last position ─▶ updates ─▶ listeners
       ▲                                                                   │
       └── 20 to 500 ms, or a new leader is pushed ◀── error, silence, a new leader

Each watch keeps its position over reconnects: its listener gets every matching event once and in
order, or ``on_reset`` and a snapshot if events were missed. An update for all watches together
(watch_id 0) carries each event once; the watches that it matches are found here with the same index
as in the shard.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import structlog

from nextgen.client.changes.watch_places import (
    CreationListener,
    LeaseListener,
    WatchListener,
    WatchPlaces,
)
from nextgen.client.changes.watch_requests import WatchRequests
from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.shared_channels import SharedChannels
from nextgen.client.transport.stream_call import WATCH, stream_call
from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import (
    ConnectionLost,
    MetadataError,
    NotLeader,
    PositionAhead,
    Unavailable,
)
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS, CONNECT_TIMEOUT_MS
from nextgen.kernel.limits.stream import WATCH_REST_SILENCE_MS_MAX, WATCH_SILENCE_MS_MAX
from nextgen.tasks.background import cancel_and_wait, join
from nextgen.tasks.first_to_end import run_until_first
from nextgen.tasks.timeouts import Timeout, timeout
from protos.nextgen.v1.inventory_pb2 import Kind
from protos.nextgen.v1.shard_service_pb2 import (
    WatchRenew,
    WatchShardRequest,
    WatchShardUpdate,
)

__all__ = ["CreationListener", "LeaseListener", "ShardWatch", "WatchLink", "WatchListener"]

_BACKOFF_MS_MIN = 20
_BACKOFF_MS_MAX = 500

_logger = structlog.get_logger(__name__)


class WatchLink(Protocol):
    """Gives the endpoints of a shard's replicas; a ``ClusterLink`` is one."""

    @property
    def view(self) -> ClusterView: ...

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool: ...


class ShardWatch:
    """The stream of one subscriber to one shard. ``run`` it as a task; cancel that to stop.

    With ``at_leader`` False any replica may serve the stream, which spreads the load. Only the
    leader serves leased and acknowledged watches, so they need ``at_leader``; one stream has leased
    or acknowledged watches, not both. Streams with the same ``channels`` share connections. Without
    a leased watch, a stream that is silent for ``silence_ms`` begins anew.
    """

    def __init__(
        self,
        shard_id: int,
        subscriber_id: str,
        link: WatchLink,
        *,
        at_leader: bool = True,
        channels: SharedChannels | None = None,
        silence_ms: int = WATCH_SILENCE_MS_MAX,
    ) -> None:
        self.shard_id = shard_id
        self.subscriber_id = subscriber_id
        self.heard_at = float("-inf")
        """When the last update arrived, on the event loop's clock, in seconds."""
        self.rests = False
        """Whether the last renewal of the lease let it rest, so that few updates come."""
        self.is_current = False
        """Whether the stream is connected and has delivered an update."""
        self.breaks = 0
        """How often the stream has ended: each time every watch has to catch up again."""
        self._silence_ms = silence_ms
        self._link = link
        self._at_leader = at_leader
        self._channels = channels
        self._places = WatchPlaces()
        self._requests: WatchRequests | None = None
        self._hint: str | None = None
        self._avoided: str | None = None
        self._in_effect: Callable[[int], int] | None = None
        self._withheld: Callable[[], Collection[int]] | None = None
        self._complete_term: Callable[[], int] = lambda: 0
        self._creations_may_wait: Callable[[], bool] = lambda: False
        self._may_rest: Callable[[], bool] = lambda: False
        self._silence: Timeout | None = None
        """The limit of the wait for an update that is under way."""
        self._silent_since = float("-inf")

    def __repr__(self) -> str:
        condition = "current" if self.is_current else "waiting"
        return f"<ShardWatch shard={self.shard_id} {self._places!r} {condition}>"

    @property
    def resets(self) -> int:
        """Number of resets of watches since the start."""
        return self._places.resets

    @property
    def position(self) -> int:
        """The position up to which every live watch has its events."""
        return self._places.position

    def add(
        self,
        listener: WatchListener,
        *,
        kinds: Sequence[Kind],
        prefix: str = "",
        names: Sequence[str] = (),
        from_position: int = 0,
        without_snapshot: bool = False,
        leased: bool = False,
        on_lease: LeaseListener | None = None,
        on_created: CreationListener | None = None,
        on_caught_up: Callable[[], None] | None = None,
        acknowledged: bool = False,
    ) -> int:
        """Add a watch for ``listener``; return its id, which stays the same over reconnects.

        ``from_position`` 0 begins with a snapshot, or with ``without_snapshot`` at the present
        position. Works before ``run`` and at any time later. If the shard refuses the watch, its
        listener gets ``on_ended``. Effective writes wait for an ``acknowledged`` watch: a change is
        acknowledged when its listener has returned, or as ``acknowledge_with`` decides.
        ``on_caught_up`` is called whenever ``is_caught_up`` becomes true.

        Raises:
            Overloaded: There are ``WATCHES_PER_STREAM_MAX`` already.
        """
        assert self._at_leader or not (leased or acknowledged), "the leader serves such watches"
        watch_id = self._places.add(
            listener,
            kinds=kinds,
            prefix=prefix,
            names=names,
            from_position=from_position,
            without_snapshot=without_snapshot,
            leased=leased,
            on_lease=on_lease,
            on_created=on_created,
            on_caught_up=on_caught_up,
            acknowledged=acknowledged,
        )
        if self._requests is not None:
            self._requests.add(self._places.request(watch_id))
            if leased:
                self.renew_lease()
        return watch_id

    def acknowledge_with(self, in_effect: Callable[[int], int]) -> None:
        """Let ``in_effect`` decide up to which position acknowledged watches have applied changes.

        It gets the position up to which they were delivered, and is called after each update and
        each ``acknowledge``. The returned position is acknowledged.
        """
        self._in_effect = in_effect

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None:
        """Let ``withheld`` name acknowledged watches that must not be acknowledged yet, because
        their changes have not taken effect. It is called together with that of
        ``acknowledge_with``."""
        self._withheld = withheld

    def complete_with(self, complete_term: Callable[[], int]) -> None:
        """Send what ``complete_term`` returns with each acknowledgement; see ``WatchRenew``.

        It is called when the acknowledgement is sent, after all watches that were added before.
        """
        self._complete_term = complete_term

    def let_creations_wait_with(self, may_wait: Callable[[], bool]) -> None:
        """Let ``may_wait`` decide whether the names of creations may wait for the next regular
        update. It is called with each renewal of the lease; call ``renew_lease`` when they no
        longer may."""
        self._creations_may_wait = may_wait

    def let_lease_rest_with(self, may_rest: Callable[[], bool]) -> None:
        """Let ``may_rest`` decide whether the lease may rest: nothing is answered from what it
        covers. It is called with each renewal; call ``renew_lease`` when the lease is needed."""
        self._may_rest = may_rest

    def renew_lease(self) -> None:
        """Acknowledge what the leased watch has taken in, and ask for more time."""
        position = self._places.leased_position
        if self._requests is None or position is None:
            return
        rested, self.rests = self.rests, self._may_rest()
        self._requests.renew(
            position,
            _now_ms(),
            creations_may_wait=self._creations_may_wait(),
            may_rest=self.rests,
        )
        if rested and not self.rests:
            # An update comes at once, so its silence counts from here on.
            self._silent_since = asyncio.get_running_loop().time()
            if self._silence is not None and not self._silence.expired():
                self._silence.reschedule(self._silent_since + self._silence_s)

    def acknowledge(self) -> None:
        """Send a new acknowledgement: more changes have taken effect."""
        if self._requests is not None and self._places.has_acknowledged:
            self._requests.renew_with(self._renewal)

    def remove(self, watch_id: int) -> None:
        """End a watch; its listener is not called any more. An unknown id is ignored."""
        if self._places.remove(watch_id) and self._requests is not None:
            self._requests.remove(watch_id)

    def position_of(self, watch_id: int) -> int:
        """Return the position up to which a watch has its events, from which it can be resumed.

        0 while its snapshot is not complete.
        """
        return self._places.position_of(watch_id)

    def is_caught_up(self, watch_id: int) -> bool:
        """Return whether a watch has all its events up to ``heard_at``.

        False until its snapshot is complete, and after a reconnect until it has caught up.
        """
        return self._places.is_caught_up(watch_id)

    async def run(self) -> None:
        """Follow the shard for ever."""
        backoff_ms = _BACKOFF_MS_MIN
        while True:
            await self._link.wait_until(lambda view: self._endpoint(view) is not None)
            term = self._link.view.leader_term(self.shard_id)
            endpoint = self._hint or self._endpoint(self._link.view)
            self._hint = None
            assert endpoint is not None, "the wait above returns when a replica is known"
            try:
                await self._follow_until_superseded(endpoint, term)
                backoff_ms = _BACKOFF_MS_MIN
                continue
            except MetadataError as error:
                if self.is_current:
                    backoff_ms = _BACKOFF_MS_MIN
                    _logger.info("changes lost", shard=self.shard_id, error=str(error))
                self._avoided = endpoint
                if isinstance(error, NotLeader) and error.leader_hint not in {None, endpoint}:
                    self._hint = error.leader_hint
            finally:
                self.is_current = False
            await self._link.wait_until(
                lambda view, term=term: view.leader_term(self.shard_id) > term,  # type: ignore[misc]
                int(backoff_ms * random.uniform(0.5, 1.0)),
            )
            backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)

    def _endpoint(self, view: ClusterView) -> str | None:
        leader = view.leader_endpoint(self.shard_id)
        if self._at_leader:
            return leader
        others = [
            endpoint
            for endpoint in view.replica_endpoints(self.shard_id)
            if endpoint not in {leader, self._avoided}
        ]
        return random.choice(others) if others else leader

    async def _follow_until_superseded(self, endpoint: str, term: int) -> None:
        """Follow at ``endpoint``; return when another node leads with a higher term."""
        if not self._at_leader:
            await self._follow(endpoint)
            return
        await run_until_first(
            self._follow(endpoint),
            self._link.wait_until(
                lambda view: (
                    view.leader_term(self.shard_id) > term
                    and view.leader_endpoint(self.shard_id) != endpoint
                )
            ),
        )

    async def _follow(self, endpoint: str) -> None:
        async with stream_call(
            endpoint, WATCH, WatchShardRequest, WatchShardUpdate, self._channels
        ) as call:
            try:
                await self._converse(call, endpoint)
            finally:
                self._requests = None
                self.rests = False
                self.breaks += 1
                self._places.disconnected()

    async def _converse(self, call: Any, endpoint: str) -> None:
        requests = self._requests = WatchRequests(self.shard_id, self.subscriber_id)
        for request in self._places.requests():
            requests.add(request)
        self.renew_lease()
        # After every watch: from this request on the shard knows all watches of this subscriber.
        self.acknowledge()
        writing = join(requests.write_to(call))
        try:
            async with timeout(CONNECT_TIMEOUT_MS / 1_000):
                update = await self._read(call, endpoint, writing)
            self.heard_at = asyncio.get_running_loop().time()
            while True:
                self._take(update, endpoint)
                try:
                    async with timeout(self._silence_s) as self._silence:
                        update = await self._read(call, endpoint, writing)
                finally:
                    self._silence = None
                # An update after a silence may have been delayed on the way, so it is not used.
                if asyncio.get_running_loop().time() - self._silent_since > self._silence_s:
                    raise ConnectionLost(f"{endpoint} was silent for {self._silence_s} s")
        finally:
            await cancel_and_wait(writing)

    @property
    def _silence_s(self) -> float:
        if self._places.leased_position is None:
            return self._silence_ms / 1_000
        return (WATCH_REST_SILENCE_MS_MAX if self.rests else ASSIGNMENT_TTL_MS) / 1_000

    def _take(self, update: WatchShardUpdate, endpoint: str) -> None:
        self.heard_at = self._silent_since = asyncio.get_running_loop().time()
        self.is_current = True
        self._avoided = None
        if update.HasField("error"):
            self._take_error(update.watch_id, from_detail(update.error), endpoint)
            return
        for ended in self._places.take(update, self.heard_at):
            if self._requests is not None:
                self._requests.remove(ended)
        if update.watch_id and update.watch_id == self._places.leased_id:
            # Acknowledge after the listeners returned: a move relies on it to end the former owner.
            self.renew_lease()
            return
        if update.watch_id and not self._places.is_caught_up(update.watch_id):
            return  # The watch is still behind, so no more was taken in than before.
        self.acknowledge()

    def _renewal(self) -> WatchRenew:
        position, behind = self._places.taken_in()
        if self._in_effect is not None:
            position = min(position, self._in_effect(position))
        if self._withheld is not None:
            behind = sorted({*behind, *self._withheld()})
        return WatchRenew(
            acked_position=position,
            asked_at_ms=_now_ms(),
            behind=behind,
            complete_term=self._complete_term(),
        )

    def _take_error(self, watch_id: int, error: MetadataError, endpoint: str) -> None:
        """Handle an update that ends one watch.

        Raises:
            MetadataError: Another replica may serve the watch, so the stream has to move there.
        """
        if isinstance(error, PositionAhead) and not error.is_final:
            self._hint = self._link.view.leader_endpoint(self.shard_id)
            raise Unavailable(f"{endpoint} is behind: {error}")
        if isinstance(error, NotLeader | Unavailable):
            raise error
        self._places.end(watch_id, error)

    async def _read(
        self, call: Any, endpoint: str, writing: asyncio.Task[None]
    ) -> WatchShardUpdate:
        update = await call.read()
        if not isinstance(update, WatchShardUpdate):
            # The status carries the reason, if there is one.
            code = await call.code()
            raise Unavailable(f"{endpoint} ended the watch ({code.name})")
        if update.HasField("error") and not update.watch_id:
            raise from_detail(update.error)
        if writing.done():
            raise ConnectionLost(f"{endpoint} no longer accepts requests")
        return update


def _now_ms() -> int:
    """Return this process's monotonic clock in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1_000)
