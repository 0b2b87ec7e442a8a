"""``SlotMoves``: moves from the pushed cluster view, calls to other shards by the router."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.client.log.reader import pin_replicas
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import InvalidRequest
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, NodeMessage, SlotMoveReport
from protos.nextgen.v1.events_pb2 import SlotMoveChanged
from protos.nextgen.v1.shard_service_pb2 import (
    CopySlotsRequest,
    CopySlotsResponse,
    PinLogRequest,
    ReleaseSlotsRequest,
    ReleaseSlotsResponse,
    ShardRequest,
)
from shards.adapters.cluster import Listeners
from shards.domain.slot_moves.steps import MovePhase, SlotMove
from shards.domain.slots.events import SlotRanges
from shards.wire.slot_event import from_ranges


class LinkedSlotMoves:
    """``SlotMoves`` of all shards that this node leads."""

    def __init__(self, link: ClusterLink, router: ShardRouter) -> None:
        self._link = link
        self._router = router
        self._listeners = Listeners()
        link.on_change(self._on_change)
        link.on_connected(self._listeners.notify)

    @property
    def map_version(self) -> int:
        return self._link.view.shard_map_version

    def of_shard(self, shard_id: int) -> Sequence[SlotMove]:
        return [
            as_move(move)
            for _, move in sorted(self._link.view.slot_moves.items())
            if shard_id in (move.from_shard, move.to_shard)
        ]

    def slots_of(self, shard_id: int) -> SlotRanges:
        table = self._link.view.map_table
        return () if table is None else table.ranges_of(shard_id)

    def report(self, report: SlotMoveReport) -> None:
        self._link.send(NodeMessage(slot_move=report))

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def copy(
        self, shard_id: int, request: CopySlotsRequest, *, timeout_ms: int
    ) -> CopySlotsResponse:
        response = await self._router.call(
            shard_id, ShardRequest(copy_slots=request), timeout_ms=timeout_ms
        )
        if not response.HasField("copy_slots"):
            raise InvalidRequest(f"the answer has {response.WhichOneof('body')}, no rows of slots")
        return response.copy_slots

    async def release(
        self, shard_id: int, request: ReleaseSlotsRequest, *, timeout_ms: int
    ) -> ReleaseSlotsResponse:
        response = await self._router.call(
            shard_id, ShardRequest(release_slots=request), timeout_ms=timeout_ms
        )
        if not response.HasField("release_slots"):
            raise InvalidRequest(f"the answer has {response.WhichOneof('body')}, no release")
        return response.release_slots

    async def pin(self, shard_id: int, reader_id: str, position: int, ttl_ms: int) -> None:
        await pin_replicas(
            self._link.view.replica_endpoints(shard_id),
            PinLogRequest(shard_id=shard_id, reader_id=reader_id, position=position, ttl_ms=ttl_ms),
        )

    def _on_change(self, _view: ClusterView, update: ClusterUpdate) -> None:
        if update.full or update.slot_moves:
            self._listeners.notify()


def as_move(move: SlotMoveChanged) -> SlotMove:
    """Return a move as the shards' leaders know it."""
    return SlotMove(
        move.move_id,
        from_ranges(move.ranges),
        move.from_shard,
        move.to_shard,
        MovePhase(move.phase),
        move.reason,
    )
