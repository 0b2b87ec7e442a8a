"""What the room of moving slots needs from outside its shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from protos.nextgen.v1.cluster_service_pb2 import SlotMoveReport
from protos.nextgen.v1.shard_service_pb2 import (
    CopySlotsRequest,
    CopySlotsResponse,
    ReleaseSlotsRequest,
    ReleaseSlotsResponse,
)
from shards.domain.slot_moves.steps import SlotMove
from shards.domain.slots.events import SlotRanges


class SlotMoves(Protocol):
    """Moves of slots: what the cluster manager has planned, and the other shard of each."""

    @property
    def map_version(self) -> int:
        """The version of the shard map that is known here, 0 for none."""
        ...

    def of_shard(self, shard_id: int) -> Sequence[SlotMove]:
        """Return the moves in which a shard takes part and that are not over, by their ids."""
        ...

    def slots_of(self, shard_id: int) -> SlotRanges:
        """Return the slots that a shard has by the shard map that is known here."""
        ...

    def report(self, report: SlotMoveReport) -> None:
        """Tell the cluster manager, if there is a connection; the caller repeats it."""
        ...

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each change of a move, and after each reconnect to the cluster
        manager; returns a function that unsubscribes."""
        ...

    async def copy(
        self, shard_id: int, request: CopySlotsRequest, *, timeout_ms: int
    ) -> CopySlotsResponse:
        """Ask the leader of the shard that slots come from. May be repeated.

        Raises:
            MetadataError: The shard could not be reached, or it refuses.
        """
        ...

    async def release(
        self, shard_id: int, request: ReleaseSlotsRequest, *, timeout_ms: int
    ) -> ReleaseSlotsResponse:
        """As ``copy``. Repeated, it gets the answer of the first release."""
        ...

    async def pin(self, shard_id: int, reader_id: str, position: int, ttl_ms: int) -> None:
        """Keep the log of each replica of a shard from ``position`` on; ``ttl_ms`` 0: no more.

        Raises:
            MetadataError: No replica does.
        """
        ...


class NoSlotMoves:
    """``SlotMoves`` of a node without a cluster manager: there are no moves."""

    map_version = 0

    def of_shard(self, _shard_id: int) -> Sequence[SlotMove]:
        return ()

    def slots_of(self, _shard_id: int) -> SlotRanges:
        return ()

    def report(self, _report: SlotMoveReport) -> None:
        return

    def on_change(self, _listener: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def copy(
        self, _shard_id: int, _request: CopySlotsRequest, *, timeout_ms: int
    ) -> CopySlotsResponse:
        raise AssertionError(f"nobody copies within {timeout_ms} ms without a move")

    async def release(
        self, _shard_id: int, _request: ReleaseSlotsRequest, *, timeout_ms: int
    ) -> ReleaseSlotsResponse:
        raise AssertionError(f"nothing is released within {timeout_ms} ms without a move")

    async def pin(self, _shard_id: int, _reader_id: str, _position: int, _ttl_ms: int) -> None:
        return
