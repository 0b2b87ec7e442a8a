"""What shard nodes say of themselves, over connections that stay open while a load runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from nextgen.client.transport.channel import close_channel, open_channel
from protos.nextgen.v1.shard_service_pb2 import GetNodeStatusRequest, NodeStatus
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

ANSWER_TIMEOUT_S = 5.0
SAMPLE_S = 0.1


@dataclass(slots=True)
class Lags:
    """How far views were behind, over all samples of all replicas."""

    samples: int = 0
    late: int = 0  # Older than the bound.
    max_ms: float = 0.0
    bound_ms: float = 200.0

    def add(self, lag_ms: float) -> None:
        self.samples += 1
        self.late += lag_ms > self.bound_ms
        self.max_ms = max(self.max_ms, lag_ms)


class ShardNodes:
    """The shard nodes at these endpoints. A context manager."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._channels = [open_channel(endpoint) for endpoint in endpoints]
        self._stubs = [ShardServiceStub(channel) for channel in self._channels]

    async def __aenter__(self) -> ShardNodes:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for channel in self._channels:
            await close_channel(channel)

    async def statuses(self) -> list[NodeStatus]:
        """Return what each node says at the moment."""
        request = GetNodeStatusRequest()
        calls = [stub.GetNodeStatus(request, timeout=ANSWER_TIMEOUT_S) for stub in self._stubs]
        return list(await asyncio.gather(*calls))

    async def committed_events(self) -> int:
        """Return how many events the shards' logs hold, as their leaders say."""
        committed: dict[int, int] = {}
        for status in await self.statuses():
            for replica in status.replicas:
                known = committed.get(replica.group_id, 0)
                committed[replica.group_id] = max(known, replica.commit_position)
        return sum(committed.values())

    async def views_behind(self) -> int:
        """Return how many replicas have not folded all that their group has committed."""
        statuses = await self.statuses()
        replicas = [replica for status in statuses for replica in status.replicas]
        committed: dict[int, int] = {}
        for replica in replicas:
            known = committed.get(replica.group_id, 0)
            committed[replica.group_id] = max(known, replica.commit_position)
        return sum(each.applied_position < committed[each.group_id] for each in replicas)

    async def watch_lags(self, lags: Lags) -> None:
        """Sample every replica until cancelled."""
        while True:
            for status in await self.statuses():
                for replica in status.replicas:
                    lags.add(replica.view_lag_ms)
            await asyncio.sleep(SAMPLE_S)
