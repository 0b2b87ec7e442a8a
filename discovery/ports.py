"""The ports of the discovery service."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol

from nextgen.client.changes.shard_watch import WatchListener
from nextgen.client.cluster.view import ClusterView
from protos.nextgen.v1.inventory_pb2 import Kind
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse, WatchShardUpdate

Clock = Callable[[], float]
"""Seconds that never go back; the event loop's time."""


class Shards(Protocol):
    """The way to the shards: ``nextgen.client.routing.router.ShardRouter`` or a fake.

    Every method raises ``MetadataError``.
    """

    def shard_of_key(self, routing_key: str) -> int: ...

    async def call(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse: ...

    async def call_key(
        self, routing_key: str, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse: ...

    async def call_any(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int
    ) -> ShardResponse: ...


class Directory(Protocol):
    """The known state of the cluster: ``nextgen.client.cluster.link.ClusterLink`` or a fake."""

    @property
    def view(self) -> ClusterView: ...


class ServiceConfiguration(Protocol):
    """The overrides of service-level settings, which the cluster manager keeps."""

    async def change(self, changes: Mapping[str, str | None]) -> None:
        """Override settings by name, None: no longer. All changes are made, or none.

        Raises:
            Refused: A name is no setting, or a value makes no sense; the message names it.
            MetadataError: The cluster manager did not answer.
        """
        ...


class ChangeStreams(Protocol):
    """One change stream to each shard, shared by all listeners, so listeners must not be slow.

    See ``nextgen.client.changes.shard_watch.ShardWatch`` for what listeners get, and when.
    """

    def position(self, shard_id: int) -> int:
        """Return the position of the shard's stream; 0 before its first update."""

    def add(
        self,
        shard_id: int,
        listener: WatchListener,
        *,
        kind: Kind,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> int:
        """Watch from a position, 0: from the present on, without a snapshot."""

    def remove(self, shard_id: int, watch_id: int) -> None: ...


class CatchUpReader(Protocol):
    """Reads a shard for one watch alone, no faster than it is iterated over."""

    def read(
        self,
        shard_id: int,
        *,
        kind: Kind,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> AsyncGenerator[WatchShardUpdate]:
        """Yield the snapshot, or the events behind ``from_position``, then later events for ever.

        Raises:
            MetadataError: The reason for the end; earlier yields stay valid.
        """
