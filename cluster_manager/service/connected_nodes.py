"""The nodes that are connected to the leader: their connections, what is pushed, who is silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from cluster_manager import wire
from cluster_manager.domain.membership import SHARD_KIND
from cluster_manager.domain.shard_map import ShardMap
from cluster_manager.ports import Clock
from cluster_manager.service.connection import NodeConnection
from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.limits.cluster import JOIN_SILENCE_MS
from nextgen.kernel.limits.placement import LEADERS_GATHERED_MS
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

UpdateListener = Callable[[cluster_pb.ClusterUpdate], None]

_logger = structlog.get_logger(__name__)


class ConnectedNodes:
    """The connections of one term. Each is sent the same updates, in the same order."""

    def __init__(
        self,
        clock: Clock,
        on_update: UpdateListener,
        *,
        whole_map: Callable[[], ShardMap],
        on_silent: Callable[[], None],
    ) -> None:
        """``on_update`` gets what every node gets; ``whole_map`` returns the committed map;
        ``on_silent`` is called after a silent node was disconnected."""
        self._clock = clock
        self._on_update = on_update
        self._whole_map = whole_map
        self._on_silent = on_silent
        self._connections: dict[str, NodeConnection] = {}
        self._leaders: dict[int, cluster_pb.LeaderReport] = {}
        self._cancel_gathering: Callable[[], None] | None = None
        self._silence_timers: dict[NodeConnection, Callable[[], None]] = {}

    def __repr__(self) -> str:
        return f"<ConnectedNodes {len(self._connections)}>"

    @property
    def connections(self) -> Mapping[str, NodeConnection]:
        """The connected nodes by id."""
        return self._connections

    def shard_nodes(self) -> set[str]:
        """Return the ids of the connected shard nodes."""
        return {
            node_id
            for node_id, connection in self._connections.items()
            if connection.kind == SHARD_KIND
        }

    def connect(self, hello: cluster_pb.Hello) -> NodeConnection:
        """Connect a node; an older connection of it is ended, for the node has abandoned it."""
        before = self._connections.get(hello.node_id)
        if before is not None:
            self.disconnect(before, InvalidRequest(f"node {hello.node_id} has joined again"))
        connection = NodeConnection(
            hello.node_id,
            hello.kind,
            self._clock.monotonic_ms(),
            takes_deltas=hello.takes_deltas,
        )
        self._connections[hello.node_id] = connection
        self._watch_silence(connection)
        return connection

    def disconnect(self, connection: NodeConnection, error: MetadataError | None) -> None:
        """End a connection with ``error``."""
        connection.end(error)
        cancel = self._silence_timers.pop(connection, None)
        if cancel is not None:
            cancel()
        if self._connections.get(connection.node_id) is connection:
            del self._connections[connection.node_id]
            _logger.info("node left", node=connection.node_id)

    def disconnect_all(self, error: MetadataError) -> None:
        """End every connection with ``error``, for good."""
        if self._cancel_gathering is not None:
            self._cancel_gathering()
        for connection in tuple(self._connections.values()):
            self.disconnect(connection, error)

    def push_to_all(self, update: cluster_pb.ClusterUpdate) -> None:
        """Send ``update`` to every node, with the whole map to those that take no deltas."""
        self._on_update(update)
        has_delta, whole = update.HasField("map_delta"), update
        for connection in tuple(self._connections.values()):
            if has_delta and not connection.takes_deltas:
                if whole is update:
                    whole = wire.with_whole_map(update, self._whole_map())
                self._push(connection, whole)
            else:
                self._push(connection, update)

    def push_leader(self, leader: cluster_pb.LeaderReport) -> None:
        """Send a shard's leader to every node: at once, or with others that come closely together.

        At most ``LEADERS_GATHERED_MS`` later.
        """
        self._leaders[leader.shard_id] = leader
        if self._cancel_gathering is None:
            self._push_leaders()

    def _push_leaders(self) -> None:
        self._cancel_gathering = None
        leaders, self._leaders = self._leaders, {}
        if leaders:
            self.push_to_all(cluster_pb.ClusterUpdate(leaders=leaders.values()))
            due_ms = self._clock.monotonic_ms() + LEADERS_GATHERED_MS
            self._cancel_gathering = self._clock.call_at(due_ms, self._push_leaders)

    def push_to_shard_nodes(self, update: cluster_pb.ClusterUpdate) -> None:
        """Send ``update`` to every shard node."""
        for connection in tuple(self._connections.values()):
            if connection.kind == SHARD_KIND:
                self._push(connection, update)

    def _push(self, connection: NodeConnection, update: cluster_pb.ClusterUpdate) -> None:
        connection.push(update)
        if connection.has_ended:
            _logger.warning("slow node dropped", node=connection.node_id)
            self.disconnect(connection, None)

    def _watch_silence(self, connection: NodeConnection) -> None:
        """Disconnect the node when it has been silent for too long.

        There is one timer per connection, set again only when it fires, so heartbeats are cheap.
        """
        silent_at_ms = connection.heard_at_ms + JOIN_SILENCE_MS
        if silent_at_ms <= self._clock.monotonic_ms():
            _logger.warning("node is silent", node=connection.node_id, for_ms=JOIN_SILENCE_MS)
            self.disconnect(connection, None)
            self._on_silent()
            return
        self._silence_timers[connection] = self._clock.call_at(
            silent_at_ms, lambda: self._watch_silence(connection)
        )
