"""The positions of shards, which clients put into their commands (issued positions)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from discovery.ports import Clock, Directory, Shards
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits.write import (
    POSITION_FRESH_MS,
    POSITION_READ_TIMEOUT_MS,
    POSITION_WAIT_MS,
)
from nextgen.tasks.background import cancel_and_wait, start
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import GetRequest, ShardRequest


@dataclass(frozen=True, slots=True)
class _Known:
    position: int
    asked_at: float


class PositionService:
    """Reads positions from the shards' leaders; concurrent callers share one read.

    A shard's position never decreases, so an old one is never wrong, only less useful.
    Owned by one event loop; ``stop`` it at the end.
    """

    def __init__(self, shards: Shards, directory: Directory, clock: Clock) -> None:
        self._shards = shards
        self._directory = directory
        self._clock = clock
        self._known: dict[int, _Known] = {}
        self._reading: dict[int, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<PositionService shards={len(self._known)} reading={sorted(self._reading)}>"

    async def positions(
        self, _request: pb.GetPositionsRequest, timeout_ms: int
    ) -> pb.GetPositionsResponse:
        """Return a position of each shard that was ever reached from here.

        Positions read within ``POSITION_FRESH_MS`` are returned at once, others are read first. For
        a shard that does not answer within ``POSITION_WAIT_MS`` the last known position is
        returned.

        Raises:
            Unavailable: No shard map is known here yet.
        """
        shard_ids = self._directory.view.shard_ids
        if not shard_ids:
            raise Unavailable("no shard map is known here yet")
        fresh_from = self._clock() - POSITION_FRESH_MS / 1_000
        stale = [
            shard_id
            for shard_id in shard_ids
            if shard_id not in self._known or self._known[shard_id].asked_at < fresh_from
        ]
        if stale:
            reads = [self._read(shard_id) for shard_id in stale]
            await asyncio.wait(reads, timeout=min(timeout_ms, POSITION_WAIT_MS) / 1_000)
        response = pb.GetPositionsResponse()
        for shard_id in shard_ids:
            if shard_id in self._known:
                known = self._known[shard_id]
                response.positions.add(shard_id=shard_id, position=known.position)
        return response

    async def stop(self) -> None:
        """Cancel the reads in progress."""
        reads = list(self._reading.values())
        await cancel_and_wait(*reads)

    def _read(self, shard_id: int) -> asyncio.Task[None]:
        task = self._reading.get(shard_id)
        if task is None:
            task = start("position_read", self._read_from(shard_id))
            self._reading[shard_id] = task
            task.add_done_callback(lambda _done: self._reading.pop(shard_id))
        return task

    async def _read_from(self, shard_id: int) -> None:
        asked_at = self._clock()
        # A read without names is linearizable like any other: its answer has the shard's position.
        request = ShardRequest(get=GetRequest())
        try:
            answer = await self._shards.call(shard_id, request, timeout_ms=POSITION_READ_TIMEOUT_MS)
        except MetadataError:
            return
        self._known[shard_id] = _Known(answer.position, asked_at)


def issued_at(positions: Iterable[pb.ShardPosition]) -> dict[int, int]:
    """Return the positions that a client named for a command, by shard."""
    return {each.shard_id: each.position for each in positions}


def check_issued(positions: Sequence[pb.ShardPosition], shard_ids: Iterable[int]) -> None:
    """Check that a client that names positions names one of each of ``shard_ids``.

    Raises:
        Unavailable: It knew positions of other shards only; nothing was sent.
    """
    if not positions:
        return
    issued = issued_at(positions)
    for shard_id in shard_ids:
        if not issued.get(shard_id):
            raise Unavailable(f"the command came without a position of shard {shard_id}")
