"""What the discovery service needs from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nextgen.client.cluster_view import ClusterView
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse

Clock = Callable[[], float]
"""Seconds that never go back; the event loop's time."""


class Shards(Protocol):
    """The way to the shards: ``nextgen.client.routing.ShardRouter`` or a fake.

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
    """What is known of the cluster: ``nextgen.client.cluster_link.ClusterLink`` or a fake."""

    @property
    def view(self) -> ClusterView: ...
