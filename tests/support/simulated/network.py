"""The mesh of a simulated group: connections and frames whose fate a seed decides.

Frames of one connection arrive in order unless told otherwise. A killed process resets its
connections behind the last frame it sent; a machine that lost power says nothing to anybody.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from typing import Generic, TypeVar

from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.replication.mesh.frames import Message, decode_frame, encode_frame
from nextgen.replication.mesh.mesh import MeshChannel
from nextgen.replication.ports import NodeId
from nextgen.replication.protocol.heartbeats import (
    HEARTBEAT_ANSWERS,
    HEARTBEATS,
    Heartbeat,
    parse_answers,
)

Peer = TypeVar("Peer")

SILENCE_S_MAX = 5.0
"""After a power cut, until the others' systems give the connection up."""

LENGTH_BYTES = 4
"""Before the body of a frame. Here a frame arrives as a whole: there is nothing to cut."""

REORDERED_MS_MAX = 40.0
"""Longest extra delay of a frame that is overtaken."""


class SimNetwork:
    """Delivers frames late, rarely not at all, and not across a cut."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._free_at: dict[tuple[SimMesh, SimMesh], float] = {}
        self.meshes: dict[NodeId, SimMesh] = {}
        self.cut: set[frozenset[NodeId]] = set()
        self.cut_one_way: set[tuple[NodeId, NodeId]] = set()
        """Sender and target between which nothing arrives in this direction."""
        self.tap: Callable[[NodeId, NodeId, Message], None] = lambda _sender, _target, _m: None
        """Sees every message at the moment it is sent."""
        self.arrived: Callable[[NodeId, NodeId, bytes, Message], None] = lambda *_: None
        """Sees every frame at the moment it is delivered, before its receiver does."""
        self.unreachable: Callable[[NodeId, NodeId], None] = lambda _node, _peer: None
        """Called with a node before it hears that a peer's port refuses."""
        self.loss = 0.0
        self.duplicates = 0.0
        self.reordered = 0.0
        self.delay_ms_max = 2.0

    def calm_down(self) -> None:
        """Take every fault back."""
        self.cut.clear()
        self.cut_one_way.clear()
        self.loss = self.duplicates = self.reordered = 0.0
        self.delay_ms_max = 2.0

    def is_cut(self, sender: NodeId, target: NodeId) -> bool:
        return (sender, target) in self.cut_one_way or frozenset((sender, target)) in self.cut

    def are_connected(self, one: NodeId, other: NodeId) -> bool:
        """True if two processes are connected and hear each other."""
        mesh, peer = self.meshes.get(one), self.meshes.get(other)
        return (
            mesh is not None
            and peer is not None
            and mesh.peers.get(other) is peer
            and peer.peers.get(one) is mesh
            and not self.is_cut(one, other)
            and not self.is_cut(other, one)
        )

    def send(self, sender: SimMesh, target_id: NodeId, channel: int, message: Message) -> bool:
        target = sender.peers.get(target_id)
        if target is None:
            return False
        frame = encode_frame(channel, message)
        for each in _each_of(message):
            self.tap(sender.node_id, target_id, each)
        chance = self._chance
        if chance.random() < self.loss:
            return True
        self._send_frame(sender, target, frame)
        if self.duplicates and chance.random() < self.duplicates:
            self._send_frame(sender, target, frame)
        return True

    def _send_frame(self, sender: SimMesh, target: SimMesh, frame: bytes) -> None:
        chance, link, now = self._chance, (sender, target), self._now
        at = now + chance.uniform(0.05, self.delay_ms_max) / 1000
        if self.reordered and chance.random() < self.reordered:
            at += chance.uniform(0, REORDERED_MS_MAX) / 1000
        else:
            at = self._free_at[link] = max(at, self._free_at.get(link, 0.0))
        self._in(target, at - now, self._deliver, sender, target, frame)

    def _deliver(self, sender: SimMesh, target: SimMesh, frame: bytes) -> None:
        # A connection's frames end with it: neither process sees one of an earlier life.
        if target.peers.get(sender.node_id) is not sender:
            return
        if self.is_cut(sender.node_id, target.node_id):
            return
        channel, message = decode_frame(frame[LENGTH_BYTES:])
        for each in _each_of(message):
            self.arrived(sender.node_id, target.node_id, frame, each)
        target.receive(sender.node_id, channel, message)

    def unplug(self, node_id: NodeId) -> None:
        """Cut a living node off in a way that makes the others take it for dead at once."""
        for other in tuple(self.meshes.values()):
            if other.node_id != node_id:
                self.cut.add(frozenset((node_id, other.node_id)))
                self._in(other, 0.0, other.tell_unreachable, node_id)

    def join(self, mesh: SimMesh) -> None:
        self.meshes[mesh.node_id] = mesh
        for other in tuple(self.meshes.values()):
            if other is not mesh:
                self._in(other, 0.0, other.connect, mesh)
                self._in(mesh, 0.0, mesh.connect, other)

    def leave(self, mesh: SimMesh, *, silently: bool = False) -> None:
        """End ``mesh``'s connections. The others learn it by a reset, or after a silence."""
        if self.meshes.get(mesh.node_id) is mesh:
            del self.meshes[mesh.node_id]
        for other in tuple(self.meshes.values()):
            if silently:
                delay_s = self._chance.uniform(1.0, SILENCE_S_MAX)
            else:
                flushed_at = self._free_at.get((mesh, other), 0.0)
                delay_s = self._chance.uniform(0.1, 3) / 1000 + max(0.0, flushed_at - self._now)
            self._in(other, delay_s, other.disconnect, mesh, not silently)
        for link in [link for link in self._free_at if mesh in link]:
            del self._free_at[link]

    @property
    def _now(self) -> float:
        return self._loop.time()

    def _in(self, mesh: SimMesh, delay_s: float, work: Callable[..., None], *given: object) -> None:
        self._loop.call_later(delay_s, work, *given, context=mesh.context)


def _each_of(message: Message) -> Iterator[Message]:
    """Yield the messages that ``message`` stands for: what groups share is judged one by one."""
    if message["type"] == HEARTBEATS:
        yield from (Heartbeat(*record).as_append() for record in message["records"])
    elif message["type"] == HEARTBEAT_ANSWERS:
        records = [list(record) for record in message["records"]]
        yield from (answer for _, answer in parse_answers({**message, "records": records}))
    else:
        yield message


class MeshEnd(Generic[Peer]):
    """What one process's end of every simulated mesh has in common."""

    port = 0

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.peers: dict[NodeId, Peer] = {}
        """The processes that this one believes to be connected with, each in one of its lives."""
        self.event_levels: dict[NodeId, int] = {}
        """The event level of each peer; one that is not here has the same as this process."""
        self.earlier_peers: set[NodeId] = set()
        """Peers of a release whose groups share no heartbeats."""
        self._channels: dict[int, MeshChannel] = {}

    def register(self, channel: int, receiver: MeshChannel) -> None:
        self._channels[channel] = receiver
        for node_id in tuple(self.peers):
            receiver.on_peer_connected(node_id)

    def unregister(self, channel: int) -> None:
        self._channels.pop(channel, None)

    @property
    def connection_count(self) -> int:
        raise NotImplementedError("a simulated process has no metrics of its mesh")

    outbox_bytes = unproven_count = refused_count = connection_count

    def is_connected(self, node_id: NodeId) -> bool:
        return node_id in self.peers

    def peer_event_level(self, node_id: NodeId) -> int:
        return self.event_levels.get(node_id, EVENT_LEVEL)

    def peer_shares_heartbeats(self, node_id: NodeId) -> bool:
        return node_id in self.peers and node_id not in self.earlier_peers

    def keep_event_levels(
        self, known: Mapping[NodeId, int], on_heard: Callable[[Mapping[NodeId, int]], None]
    ) -> None:
        """There is no hello: tests set ``event_levels``."""

    def receive(self, sender: NodeId, channel: int, message: Message) -> None:
        if channel in self._channels:
            self._channels[channel].on_message(sender, message)


class SimMesh(MeshEnd["SimMesh"]):
    """One process's end of the network; a ``HostMesh``. Belongs to the process that makes it."""

    def __init__(self, network: SimNetwork, node_id: NodeId) -> None:
        super().__init__(node_id)
        self.context = copy_context()
        self._network = network

    async def start(self) -> None:
        self._network.join(self)

    async def stop(self) -> None:
        self._network.leave(self)

    async def set_peer_address(self, node_id: NodeId, host: str, port: int) -> None:
        """There are no addresses here."""

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool:
        return self._network.send(self, node_id, channel, message)

    def connect(self, peer: SimMesh) -> None:
        """Take ``peer`` in; if an earlier life of it was never seen off, it has restarted."""
        if self._network.meshes.get(peer.node_id) is not peer:
            return  # It died meanwhile.
        earlier = self.peers.get(peer.node_id)
        if earlier is not None and earlier is not peer:
            self.disconnect(earlier, refuses=True)
        self.peers[peer.node_id] = peer
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_connected(peer.node_id)

    def disconnect(self, peer: SimMesh, refuses: bool) -> None:
        """Drop the connection of ``peer``; ``refuses``: its port refuses connections at once."""
        if self.peers.get(peer.node_id) is not peer:
            return
        del self.peers[peer.node_id]
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_disconnected(peer.node_id)
        if refuses:
            self.tell_unreachable(peer.node_id)

    def tell_unreachable(self, node_id: NodeId) -> None:
        self._network.unreachable(self.node_id, node_id)
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_unreachable(node_id)
