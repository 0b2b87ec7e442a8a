"""Follows the assignments of one shard, so that cached answers stay true.

    subscribe at the leader, from the position known ─▶ apply ─▶ renew ─▶ acknowledge ─┐
       ▲                                                       ▲───── next update ─────┤
       └──── 20 to 500 ms, or a new leader is pushed ◀──── error, silence, new leader ─┘

An update is acknowledged AFTER it took effect in the cache: a move releases the old owner on the
strength of it. Silence beyond the time-to-live ends the stream even if it comes back to life:
what it then delivers may have waited on the way, and a fresh stream begins with the present.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import structlog

from discovery.domain.answer_cache import AnswerCache
from discovery.wire import delta_of
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.transport.stream_call import WATCH_ASSIGNMENTS, stream_call
from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import ConnectionLost, MetadataError, NotLeader, Unavailable
from nextgen.kernel.limits.cluster import (
    CONNECT_TIMEOUT_MS,
    LOOKUP_STALENESS_MS_MAX,
    WATCH_TTL_MARGIN_MS,
)
from nextgen.tasks.first_to_end import run_until_first
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import AssignmentUpdate, WatchAssignmentsRequest

_TTL_DEFAULT_MS = 2_000
_BACKOFF_MS_MIN = 20
_BACKOFF_MS_MAX = 500

_logger = structlog.get_logger(__name__)


class AssignmentWatch:
    """The watch of one shard. ``run`` it as a task; cancel that to stop."""

    def __init__(
        self, shard_id: int, subscriber_id: str, link: ClusterLink, cache: AnswerCache
    ) -> None:
        self.shard_id = shard_id
        self.heard_at = float("-inf")
        """When the last update arrived, on the event loop's clock."""
        self.resets = 0
        self.is_current = False
        """Whether the stream stands and has delivered something."""
        self._subscriber_id = subscriber_id
        self._link = link
        self._cache = cache
        self._hint: str | None = None

    def __repr__(self) -> str:
        condition = "current" if self.is_current else "waiting"
        position = self._cache.position(self.shard_id)
        return f"<AssignmentWatch shard={self.shard_id} position={position} {condition}>"

    async def run(self) -> None:
        """Follow the shard for ever, from leader to leader."""
        backoff_ms = _BACKOFF_MS_MIN
        while True:
            await self._link.wait_until(lambda view: self._leader(view) is not None)
            term = self._link.view.leader_term(self.shard_id)
            endpoint = self._hint or self._link.view.leader_endpoint(self.shard_id)
            self._hint = None
            assert endpoint is not None, "a leader was known a moment ago"
            try:
                await self._follow_until_superseded(endpoint, term)
                backoff_ms = _BACKOFF_MS_MIN
                continue
            except MetadataError as error:
                if self.is_current:
                    backoff_ms = _BACKOFF_MS_MIN
                    _logger.info("assignments lost", shard_id=self.shard_id, error=str(error))
                if isinstance(error, NotLeader) and error.leader_hint not in {None, endpoint}:
                    self._hint = error.leader_hint
            finally:
                self.is_current = False
            await self._link.wait_until(
                lambda view, term=term: view.leader_term(self.shard_id) > term,  # type: ignore[misc]
                int(backoff_ms * random.uniform(0.5, 1.0)),
            )
            backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)

    def _leader(self, view: Any) -> str | None:
        endpoint: str | None = view.leader_endpoint(self.shard_id)
        return endpoint

    async def _follow_until_superseded(self, endpoint: str, term: int) -> None:
        """Follow at ``endpoint``; return when another node is known to lead with a higher term."""
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
            endpoint, WATCH_ASSIGNMENTS, WatchAssignmentsRequest, AssignmentUpdate
        ) as call:
            await self._converse(call, endpoint)

    async def _converse(self, call: Any, endpoint: str) -> None:
        from_position = self._cache.position(self.shard_id)
        async with timeout(CONNECT_TIMEOUT_MS / 1_000):
            await call.write(
                WatchAssignmentsRequest(
                    shard_id=self.shard_id,
                    subscriber_id=self._subscriber_id,
                    from_position=from_position,
                    asked_at_ms=_now_ms(),
                )
            )
            update = await self._read(call, endpoint)
        ttl_ms = update.ttl_ms or _TTL_DEFAULT_MS
        # From 0 means from the present on: what happened before is not known here.
        update.reset = update.reset or from_position == 0
        while True:
            self._take(update, ttl_ms)
            async with timeout(ttl_ms / 1_000):
                await call.write(
                    WatchAssignmentsRequest(acked_position=update.position, asked_at_ms=_now_ms())
                )
                update = await self._read(call, endpoint)
            if (asyncio.get_running_loop().time() - self.heard_at) * 1_000 > ttl_ms:
                raise ConnectionLost(f"{endpoint} was silent for more than {ttl_ms} ms")

    def _take(self, update: AssignmentUpdate, ttl_ms: int) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self.is_current = True
        if update.reset:
            self.resets += 1
            self._cache.reset(self.shard_id, update.position)
        self._cache.apply(self.shard_id, update.position, map(delta_of, update.deltas))
        usable_ms = min(max(0, ttl_ms - WATCH_TTL_MARGIN_MS), LOOKUP_STALENESS_MS_MAX)
        # Counted from the question, whatever held the answer up. A leader of a release that does
        # not say which question it answers is believed to have confirmed just now.
        confirmed_at_ms = update.confirmed_at_ms or _now_ms()
        self._cache.renew(self.shard_id, (confirmed_at_ms + usable_ms) / 1_000)

    async def _read(self, call: Any, endpoint: str) -> AssignmentUpdate:
        update = await call.read()
        if not isinstance(update, AssignmentUpdate):
            # The status says why, if there is a reason.
            code = await call.code()
            raise Unavailable(f"{endpoint} ended the watch ({code.name})")
        if update.HasField("error"):
            raise from_detail(update.error)
        return update


def _now_ms() -> int:
    """Return this process's monotonic clock, which is also the cache's."""
    return int(asyncio.get_running_loop().time() * 1_000)
