"""The mesh: one listener and one connection per peer pair for all Raft groups of a process.

It accepts nodes that proved the cluster's secret (``handshake``); without a secret, nodes whose
address it knows. Anything else that connects is closed without an answer (ADR 0056).

Of two processes the one with the greater node id dials. A connection that breaks is probed
at once, by dialing: if the peer's port refuses, every group hears ``on_peer_unreachable``
within a round trip, which is what makes a failover fast.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from nextgen.kernel.events.levels import EVENT_LEVEL, EVENT_LEVEL_UNREPORTED
from nextgen.kernel.limits.cluster import MESH_CONNECTIONS_MAX
from nextgen.kernel.limits.raft import (
    MESH_HANDSHAKES_MAX,
    MESH_PEERS_REMEMBERED_MAX,
    MESH_REASON_CHARACTERS_MAX,
)
from nextgen.replication.mesh.connection import HELLO_DEADLINE_S, PeerConnection
from nextgen.replication.mesh.frames import (
    MESH_PROTOCOL_VERSION,
    Hello,
    Message,
    RemoteProtocolError,
)
from nextgen.replication.mesh.handshake import ClusterSecret, MeshDoor, MeshTls, Peer
from nextgen.replication.ports import NodeId
from nextgen.tasks.background import cancel_and_wait, keep, start
from nextgen.tasks.timeouts import timeout

CONNECT_DEADLINE_S = 1.0
"""Deadline for a connection to a peer that was away for longer."""

PROBE_DEADLINE_S = 0.15
"""Deadline for the probe after a connection broke; a live host on a LAN accepts much sooner."""

REDIAL_DELAY_S_MIN = 0.05
"""Pause before the first attempt to dial again."""

REDIAL_DELAY_S_MAX = 1.0
"""Pause between attempts to reach a peer that stays away. Each costs one refused connection."""

LOG_INTERVAL_S = 60.0
"""Interval of log lines about one refused peer."""

LOG_LINES_MAX = 64
"""Log lines about refused peers in that time: an attacker at the port must not fill the disk."""

UNANSWERED_HELLOS = 5
"""Consecutive unanswered hellos after which the peer is logged."""

T = TypeVar("T")

_ACCEPT_TURNS = 3
"""Turns of the loop within which a connection accepted before the listener closed is opened."""

_logger = logging.getLogger(__name__)


class MeshChannel(Protocol):
    """The calls that a group gets from the mesh, all on the loop."""

    def on_message(self, sender: NodeId, message: Message) -> None:
        """Handle a message. ``RemoteProtocolError`` closes the sender's connection."""
        ...

    def on_peer_connected(self, node_id: NodeId) -> None: ...

    def on_peer_disconnected(self, node_id: NodeId) -> None: ...

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        """Handle a peer whose port refuses connections, or whose process has restarted."""
        ...


class Mesh:
    """All connections of this process. Channels are numbers that both sides agree on."""

    def __init__(
        self,
        node_id: NodeId,
        cluster_id: str,
        *,
        listen_host: str,
        listen_port: int,
        incarnation: str | None = None,
        secret: ClusterSecret | None = None,
        tls: MeshTls | None = None,
    ) -> None:
        """With ``tls`` a certificate takes the place of the secret, which is not asked for."""
        self._secret = secret if tls is None else None
        self._tls = tls
        self._door: MeshDoor | None = None
        self._ends_exclusions: Callable[[], None] | None = None
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._listen_host = listen_host
        self._listen_port = listen_port
        self._incarnation = incarnation or secrets.token_hex(8)
        self._server: asyncio.Server | None = None
        self._addresses: dict[NodeId, tuple[str, int]] = {}
        self._incarnations: dict[NodeId, str] = {}
        self._event_levels: dict[NodeId, int] = {}
        self._on_event_levels: Callable[[Mapping[NodeId, int]], None] | None = None
        self._channels: dict[int, MeshChannel] = {}
        self._connections: dict[NodeId, PeerConnection] = {}
        self._all_connections: set[PeerConnection] = set()
        # Accepted connections without a known peer, in order: a dict, because a set has no order.
        self._handshakes: dict[PeerConnection, None] = {}
        self._dialers: dict[NodeId, asyncio.Task[None]] = {}
        self._probes: dict[NodeId, asyncio.Task[None]] = {}
        self._unanswered: dict[NodeId, int] = {}
        self._last_logged_at: dict[str, float] = {}
        self._stopping = False
        self.refused_count = 0
        """Connections closed before it was known which node is at the other end."""

    def __repr__(self) -> str:
        return f"<Mesh node={self._node_id} connected={sorted(self._connections)}>"

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        assert self._server is not None, "the mesh has not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def outbox_bytes(self) -> int:
        """Bytes for all peers that were not sent yet."""
        return sum(connection.outbox_bytes for connection in self._connections.values())

    @property
    def connection_count(self) -> int:
        """Peers that are connected."""
        return len(self._connections)

    @property
    def unproven_count(self) -> int:
        """Peers that are connected and have not proven the cluster's secret."""
        peers = (connection.peer for connection in self._connections.values())
        return sum(peer is not None and not peer.is_proven for peer in peers)

    async def start(self) -> None:
        """Listen. ``OSError`` names the port if it is taken."""
        if self._secret is None and self._tls is None:
            _logger.warning(
                "no cluster secret: whatever reaches port %d and knows the cluster id and a "
                "node id may take part in the Raft groups of this process",
                self._listen_port,
            )
        factory: Callable[[], asyncio.Protocol] = partial(PeerConnection, self, None)
        if self._tls is not None:
            factory = self._door = self._tls.door(factory)
            self._ends_exclusions = self._tls.on_excluded(self._exclude)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(factory, self._listen_host, self._listen_port)

    async def stop(self) -> None:
        """Close every connection and the listener."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        if self._door is not None:
            self._door.close()
        if self._ends_exclusions is not None:
            self._ends_exclusions()
        tasks = [*self._dialers.values(), *self._probes.values()]
        await cancel_and_wait(*tasks)
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        connections = tuple(self._all_connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in connections))
        if self._server is not None:
            await self._server.wait_closed()

    def register(self, channel: int, receiver: MeshChannel) -> None:
        """Deliver messages of ``channel`` to ``receiver``, and report connected peers to it."""
        self._channels[channel] = receiver
        for node_id in tuple(self._connections):
            receiver.on_peer_connected(node_id)

    def unregister(self, channel: int) -> None:
        self._channels.pop(channel, None)

    async def set_peer_address(self, node_id: NodeId, host: str, port: int) -> None:
        """Learn or change where a peer listens; reconnects if the address changed."""
        if self._addresses.get(node_id) == (host, port) or node_id == self._node_id:
            return
        self._addresses[node_id] = (host, port)
        dialer = self._dialers.pop(node_id, None)
        if dialer is not None:
            await cancel_and_wait(dialer)
        connection = self._connections.get(node_id)
        if connection is not None and connection.dialed is not None:
            connection.abort()
        if self._node_id > node_id and not self._stopping:
            self._dialers[node_id] = keep("mesh_dialer", partial(self._keep_dialing, node_id))

    def is_connected(self, node_id: NodeId) -> bool:
        return node_id in self._connections

    def peer_event_level(self, node_id: NodeId) -> int:
        """Return the event level that a peer reported last, connected or not.

        ``EVENT_LEVEL_UNREPORTED`` for a peer that never reported one.
        """
        return self._event_levels.get(node_id, EVENT_LEVEL_UNREPORTED)

    def peer_shares_heartbeats(self, node_id: NodeId) -> bool:
        """Return whether a peer is connected that reads the heartbeats that groups share."""
        connection = self._connections.get(node_id)
        hello = connection.hello if connection is not None else None
        return hello is not None and hello.shares_heartbeats

    def keep_event_levels(
        self, known: Mapping[NodeId, int], on_heard: Callable[[Mapping[NodeId, int]], None]
    ) -> None:
        """Begin with the levels that peers reported to an earlier process. Call BEFORE ``start``.

        ``on_heard`` is called with the levels of all peers whenever one reports its own.
        """
        self._event_levels = dict(known)
        self._on_event_levels = on_heard

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool:
        """Queue ``message`` for ``node_id``; False if there is no connection."""
        connection = self._connections.get(node_id)
        if connection is None:
            return False
        connection.send(channel, message)
        return True

    # Called by connections --------------------------------------------------------------------

    def hello_to(self, target_id: NodeId) -> Hello:
        return Hello(
            MESH_PROTOCOL_VERSION,
            self._cluster_id,
            self._node_id,
            target_id,
            self._incarnation,
            EVENT_LEVEL,
            shares_heartbeats=True,
        )

    @property
    def tls(self) -> MeshTls | None:
        """The certificates that peers must have; None: no TLS."""
        return self._tls

    @property
    def secret(self) -> ClusterSecret | None:
        """The secret that peers must prove; None: no proof is needed."""
        return self._secret

    def connection_opened(self, connection: PeerConnection) -> None:
        if self._stopping or len(self._all_connections) >= MESH_CONNECTIONS_MAX:
            connection.abort()
        self._all_connections.add(connection)
        if connection.dialed is not None:
            return
        self._handshakes[connection] = None
        if len(self._handshakes) > MESH_HANDSHAKES_MAX:
            # The oldest, not this one: a peer needs two round trips, silence may last seconds.
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            self.refused_count += 1
            oldest.abort()

    def check_hello(self, hello: Hello, dialed: NodeId | None) -> None:
        if hello.protocol_version != MESH_PROTOCOL_VERSION:
            raise RemoteProtocolError(
                f"it speaks mesh protocol version {hello.protocol_version}, "
                f"this process speaks {MESH_PROTOCOL_VERSION}"
            )
        if hello.cluster_id != self._cluster_id:
            raise RemoteProtocolError(
                f"{hello.node_id} belongs to cluster {hello.cluster_id!r}, "
                f"this process to {self._cluster_id!r}"
            )
        if hello.target_id != self._node_id or hello.node_id == self._node_id:
            raise RemoteProtocolError(
                f"{hello.node_id} looks for {hello.target_id}, this is {self._node_id}"
            )
        if dialed is not None and hello.node_id != dialed:
            raise RemoteProtocolError(f"{dialed} was dialed, {hello.node_id} answered")

    def check_peer(self, peer: Peer) -> None:
        node_id = peer.hello.node_id
        if peer.is_proven:
            return
        if node_id not in self._addresses:
            raise RemoteProtocolError(f"{node_id} is no node that this process knows")
        present = self._connections.get(node_id)
        if present is not None and present.peer is not None and present.peer.is_proven:
            raise RemoteProtocolError(f"{node_id} is connected already, with the cluster's secret")

    def peer_known(self, connection: PeerConnection, peer: Peer) -> None:
        hello = peer.hello
        self._handshakes.pop(connection, None)
        restarted = self._incarnations.get(hello.node_id) not in (None, hello.incarnation)
        _remember(self._incarnations, hello.node_id, hello.incarnation)
        _remember(self._event_levels, hello.node_id, hello.event_level)
        if self._on_event_levels is not None:
            self._on_event_levels(dict(self._event_levels))
        previous = self._connections.get(hello.node_id)
        self._connections[hello.node_id] = connection
        if previous is not None:
            previous.abort()
            self._tell_disconnected(hello.node_id)
        for receiver in tuple(self._channels.values()):
            if restarted:
                receiver.on_peer_unreachable(hello.node_id)
            receiver.on_peer_connected(hello.node_id)

    def message_received(self, sender: NodeId, channel: int, message: Message) -> None:
        receiver = self._channels.get(channel)
        if receiver is not None:  # A group this process has not opened yet, or has stopped.
            receiver.on_message(sender, message)

    def protocol_broken(self, connection: PeerConnection, error: RemoteProtocolError) -> None:
        who = connection.hello.node_id if connection.hello else connection.dialed
        self.refused_count += connection.hello is None
        # An unknown peer is identified by its address, because its own claims are not trusted.
        peer = who or f"a stranger at {connection.remote_host}"
        reason = str(error)[:MESH_REASON_CHARACTERS_MAX]
        self._log_rarely(peer, "mesh: the connection to %s is closed: %s", peer, reason)

    def connection_closed(self, connection: PeerConnection) -> None:
        self._all_connections.discard(connection)
        self._handshakes.pop(connection, None)
        if connection.hello is None:
            return
        node_id = connection.hello.node_id
        if self._connections.get(node_id) is not connection:
            return
        del self._connections[node_id]
        self._tell_disconnected(node_id)
        if not self._stopping and connection.dialed is None and node_id in self._addresses:
            self._probes[node_id] = start("mesh_probe", self._probe(node_id))

    # Inside -----------------------------------------------------------------------------------

    def _exclude(self, node_ids: frozenset[str]) -> None:
        """Close the connections of nodes that the cluster has excluded."""
        for connection in tuple(self._all_connections):
            if connection.hello is not None and connection.hello.node_id in node_ids:
                connection.abort()

    def _tell_disconnected(self, node_id: NodeId) -> None:
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_disconnected(node_id)

    def _tell_unreachable(self, node_id: NodeId) -> None:
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_unreachable(node_id)

    async def _keep_dialing(self, node_id: NodeId) -> None:
        delay_s = REDIAL_DELAY_S_MIN
        deadline_s = CONNECT_DEADLINE_S
        while True:
            connection = await self._dial(node_id, deadline_s)
            if connection is None:
                self._tell_unreachable(node_id)
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(delay_s * 2, REDIAL_DELAY_S_MAX)
                deadline_s = CONNECT_DEADLINE_S
                continue
            await asyncio.shield(connection.closed)
            # The first attempt after a loss is the probe: short, and at once.
            delay_s = REDIAL_DELAY_S_MIN
            deadline_s = PROBE_DEADLINE_S

    async def _dial(self, node_id: NodeId, deadline_s: float) -> PeerConnection | None:
        host, port = self._addresses[node_id]
        loop = asyncio.get_running_loop()
        connection: PeerConnection | None = None
        try:
            async with timeout(deadline_s):
                _, connection = await loop.create_connection(
                    lambda: PeerConnection(self, node_id),
                    host,
                    port,
                    ssl=None if self._tls is None else self._tls.client_context(),
                )
            async with timeout(HELLO_DEADLINE_S):
                await asyncio.shield(connection.established)
        except (OSError, TimeoutError):
            if connection is not None:
                connection.abort()
                self._note_unanswered(node_id)
            return None
        except asyncio.CancelledError:
            if connection is not None:
                connection.abort()
            raise
        self._unanswered.pop(node_id, None)
        return connection

    def _note_unanswered(self, node_id: NodeId) -> None:
        """Log a peer that refuses this process, which it does without an answer."""
        count = self._unanswered[node_id] = self._unanswered.get(node_id, 0) + 1
        if count >= UNANSWERED_HELLOS:
            self._log_rarely(
                f"unanswered {node_id}",
                "mesh: %s closes connections without an answer; its own log says why, if it "
                "belongs to another cluster or has another secret",
                node_id,
            )

    async def _probe(self, node_id: NodeId) -> None:
        """Find out whether a peer that dials us is still there, by touching its port.

        A dying process may still accept, and then close: only a connection that stays open
        for the whole deadline counts as a sign of life.
        """
        host, port = self._addresses[node_id]
        try:
            async with timeout(PROBE_DEADLINE_S):
                reader, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            alive = False
        else:
            try:
                alive = await _stays_open(reader, PROBE_DEADLINE_S)
            finally:
                writer.transport.abort()
                await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        self._probes.pop(node_id, None)
        if not alive and node_id not in self._connections:
            self._tell_unreachable(node_id)

    def _log_rarely(self, key: str, text: str, *arguments: object) -> None:
        now = asyncio.get_running_loop().time()
        logged = self._last_logged_at
        while logged and now - next(iter(logged.values())) >= LOG_INTERVAL_S:
            del logged[next(iter(logged))]
        if key in logged or len(logged) >= LOG_LINES_MAX:
            return
        logged[key] = now
        _logger.warning(text, *arguments)


def _remember(known: dict[NodeId, T], node_id: NodeId, value: T) -> None:
    """Set ``value``; beyond the bound the node that was set longest ago is forgotten."""
    known.pop(node_id, None)
    known[node_id] = value
    if len(known) > MESH_PEERS_REMEMBERED_MAX:
        del known[next(iter(known))]


async def _stays_open(reader: asyncio.StreamReader, deadline_s: float) -> bool:
    try:
        async with timeout(deadline_s):
            return bool(await reader.read(1))
    except TimeoutError:
        return True
    except OSError:
        return False
