"""What the engine of one replica needs from the objects that own it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import AppliedPoint, Entry, NodeId
from nextgen.replication.raft.divergence import ViewDiverged


class Link(Protocol):
    """Sends messages to the peers."""

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool: ...
    def is_connected(self, node_id: NodeId) -> bool: ...


class ReplicaOwner(Protocol):
    """What the engine reports to its host. All calls are on the loop."""

    def committed(self, first: int, last: int, known: Mapping[int, Entry]) -> None:
        """Handle committed entries ``first .. last``; ``known`` has those that are decoded
        already."""
        ...

    @property
    def is_view_awaited(self) -> bool:
        """True while a caller waits for the view to advance."""
        ...

    def applied(self, point: AppliedPoint) -> None: ...
    def role_may_have_changed(self) -> None: ...
    def snapshot_wanted(self, follower: NodeId) -> None: ...
    def snapshot_message(self, kind: str, sender: NodeId, message: Message) -> None: ...
    def peer_lost(self, node_id: NodeId) -> None: ...
    def broken(self, error: Exception) -> None: ...
    def diverged(self, error: ViewDiverged) -> None: ...
