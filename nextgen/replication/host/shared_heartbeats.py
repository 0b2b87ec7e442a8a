"""One message with the heartbeats of all groups to a peer, and one with its answers.

    the host's beat ── each group that leads ──▶ send ─▶ gathered ─▶ heartbeats ──▶ peer
                                                                                     │
    each group ◀── heartbeat_answers ◀──────────── one answer of each group ◀────────┘

A batch of heartbeats is no more than its heartbeats: each group compares its own term, leader and
log, and confirms its own round of reads. One that is in another state than usual handles its
heartbeat as a message of its own, and answers by one. Peers of an earlier release get messages of
their own (ADR 0129).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from nextgen.kernel.limits.raft import HEARTBEATS_PER_MESSAGE_MAX
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.mesh.frames import HEARTBEATS_CHANNEL, Message, RemoteProtocolError
from nextgen.replication.ports import GroupId, NodeId
from nextgen.replication.protocol.heartbeats import (
    HEARTBEAT_ANSWERS,
    HEARTBEATS,
    Heartbeat,
    answer_record,
    heartbeat_in,
    parse_answers,
    parse_heartbeats,
    shared_message,
)


class HeartbeatMesh(Protocol):
    """The part of a mesh that shared heartbeats need."""

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool: ...
    def is_connected(self, node_id: NodeId) -> bool: ...
    def peer_shares_heartbeats(self, node_id: NodeId) -> bool: ...


class SharedHeartbeats:
    """The way of a host's groups to the mesh, and the mesh's channel of shared heartbeats.

    ``group`` returns an open group, None if there is none of that number.
    """

    def __init__(
        self, mesh: HeartbeatMesh, group: Callable[[GroupId], PySyncObjGroup | None]
    ) -> None:
        self._mesh = mesh
        self._group = group
        self._gathered: dict[NodeId, list[Heartbeat]] | None = None

    # The groups' side -------------------------------------------------------------------------

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Send the heartbeats of the body together, at its end."""
        gathered = self._gathered = {}
        try:
            yield
        finally:
            self._gathered = None
            for node_id, heartbeats in gathered.items():
                self._send(node_id, HEARTBEATS, heartbeats)

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool:
        """See ``Link``."""
        if self._gathered is not None and self._mesh.peer_shares_heartbeats(node_id):
            heartbeat = heartbeat_in(channel, message)
            if heartbeat is not None:
                self._gathered.setdefault(node_id, []).append(heartbeat)
                return True
        return self._mesh.send(node_id, channel, message)

    def is_connected(self, node_id: NodeId) -> bool:
        """See ``Link``."""
        return self._mesh.is_connected(node_id)

    # From the mesh ----------------------------------------------------------------------------

    def on_message(self, sender: NodeId, message: Message) -> None:
        """See ``MeshChannel``."""
        kind = message.get("type")
        if kind == HEARTBEATS:
            self._take_heartbeats(sender, parse_heartbeats(message))
        elif kind == HEARTBEAT_ANSWERS:
            self._take_answers(sender, parse_answers(message))
        else:
            raise RemoteProtocolError("a message of an unknown type among shared heartbeats")

    def on_peer_connected(self, node_id: NodeId) -> None:
        """Do nothing: each group hears of it by its own channel."""

    def on_peer_disconnected(self, node_id: NodeId) -> None:
        """Do nothing, as above."""

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        """Do nothing, as above."""

    # Inside -----------------------------------------------------------------------------------

    def _take_heartbeats(self, sender: NodeId, heartbeats: Sequence[Heartbeat]) -> None:
        answers = []
        for heartbeat in heartbeats:
            group = self._group(heartbeat.group_id)
            if group is None:
                continue  # It is not open yet, or has stopped.
            try:
                answer = group.engine.following.answer_heartbeat(sender, heartbeat)
            except Exception as error:
                group.broken(error)
                continue
            if answer is None:
                group.engine.on_message(sender, heartbeat.as_append())
            else:
                answers.append(answer_record(heartbeat.group_id, answer))
        self._send(sender, HEARTBEAT_ANSWERS, answers)

    def _take_answers(self, sender: NodeId, answers: Sequence[tuple[GroupId, Message]]) -> None:
        for group_id, answer in answers:
            group = self._group(group_id)
            if group is not None:
                group.engine.on_message(sender, answer)

    def _send(self, node_id: NodeId, kind: str, records: Sequence[Any]) -> None:
        for first in range(0, len(records), HEARTBEATS_PER_MESSAGE_MAX):
            part = records[first : first + HEARTBEATS_PER_MESSAGE_MAX]
            self._mesh.send(node_id, HEARTBEATS_CHANNEL, shared_message(kind, part))
