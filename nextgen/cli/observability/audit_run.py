"""Follows every shard's log and every live broker, and judges events and intervals as they arrive.

GetCluster, each AUDIT_LOOK_MS ─┬─ shards ─▶ topic_assigned, by position ─┐
                                └─ live brokers ─▶ intervals, each second ─┴─▶ IntervalAudit
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from nextgen.audit.interval_check import Grant, IntervalAudit
from nextgen.audit.verdict import Finding
from nextgen.client.brokers.acknowledgements import acknowledged_intervals
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.log.reader import ShardLogReader
from nextgen.kernel.errors import MetadataError, PositionCompacted, Unavailable
from nextgen.kernel.limits.placement import AUDIT_LOG_GRACE_MS
from nextgen.tasks.background import cancel_and_wait
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import BrokerRecorded, Event

AUDIT_LOOK_MS = 2_000
"""Interval of checks for new shards and brokers."""

BROKER_PAUSE_MS = 500
"""Pause before another attempt to follow a broker."""

_CALL_TIMEOUT_MS = 15_000
_TYPES = ("topic_assigned",)


class Auditor:
    """Runs until it has a finding, fails, or is stopped."""

    def __init__(self, endpoints: Sequence[str], audit: IntervalAudit) -> None:
        self.audit = audit
        self.findings: list[Finding] = []
        self.positions: dict[int, int] = {}
        """Next position of each shard's log."""
        self.reached: set[str] = set()
        """Brokers that ever sent a report."""
        self.unreached: dict[str, str] = {}
        """Brokers that cannot be reached at the moment, with reasons."""
        self._endpoints = tuple(endpoints)
        self._endpoint_of: dict[str, str] = {}
        self._gone: set[str] = set()
        """Brokers without a session that could not be reached."""
        self._nodes = DiscoveryNodes(endpoints, in_order=True)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._over: asyncio.Future[None] | None = None
        """Done once something was found, or failed."""

    async def run(self, for_s: float | None) -> None:
        """Audit; return at the first finding, or after ``for_s``.

        Raises:
            MetadataError: The cluster or the log of a shard cannot be read, so nothing is proven.
        """
        self._over = asyncio.get_running_loop().create_future()
        self._start("cluster", self._follow_cluster)
        self._start("unknown epochs", self._settle_unknown)
        try:
            await self._wait(self._over, for_s)
            if self._over.done():
                self._over.result()
            else:
                await self._settle()
        finally:
            await cancel_and_wait(*self._tasks.values())
            self._over.cancel()
            await self._nodes.close()
        if not self.reached and not self.findings:
            raise Unavailable("no broker could be asked when it acknowledged messages")

    async def _wait(self, over: asyncio.Future[None], for_s: float | None) -> None:
        """Run the parts until ``over`` is done, or until the time is over."""
        await asyncio.wait({over}, timeout=for_s)

    async def _follow_cluster(self) -> None:
        while True:
            cluster = await self._nodes.call(
                "GetCluster", GetClusterRequest(), ClusterUpdate, timeout_ms=_CALL_TIMEOUT_MS
            )
            for placement in cluster.shard_map.shards:
                shard_id = placement.shard_id
                self._start(f"shard {shard_id}", self._follow_log, shard_id)
            for broker in cluster.brokers:
                if broker.endpoints.grpc:
                    self._look_at_broker(broker)
            await asyncio.sleep(AUDIT_LOOK_MS / 1_000)

    def _look_at_broker(self, broker: BrokerRecorded) -> None:
        """Follow a broker at its address. A broker whose session has ended may serve on, so it is
        dropped only when it cannot be reached either."""
        broker_id, endpoint = broker.broker_id, broker.endpoints.grpc
        name = f"broker {broker_id}"
        if self._endpoint_of.get(broker_id) != endpoint:
            self._stop(name)
            self._endpoint_of[broker_id] = endpoint
        if broker.is_live:
            self._gone.discard(broker_id)
        elif broker_id in self.unreached:
            self._stop(name)
            self._gone.add(broker_id)
            del self.unreached[broker_id]
        if broker_id not in self._gone:
            self._start(name, self._follow_broker, broker_id, endpoint)

    async def _follow_log(self, shard_id: int) -> None:
        while True:
            try:
                await self._read_log(shard_id, follow=True)
            except PositionCompacted as error:
                self.audit.has_whole_log = False
                self.positions[shard_id] = error.oldest

    async def _read_log(self, shard_id: int, *, follow: bool) -> None:
        reader = ShardLogReader(self._endpoints, shard_id, types=_TYPES)
        position = self.positions.setdefault(shard_id, 1)
        async with aclosing(reader.pages(position, follow=follow)) as pages:
            async for page in pages:
                for event in page.events:
                    self._take(self.audit.granted(_grant(event)))
                self.positions[shard_id] = max(self.positions[shard_id], page.next_position)

    async def _follow_broker(self, broker_id: str, endpoint: str) -> None:
        while True:
            try:
                async with aclosing(acknowledged_intervals(endpoint)) as reports:
                    async for intervals in reports:
                        self.reached.add(broker_id)
                        self.unreached.pop(broker_id, None)
                        for interval in intervals:
                            self._take(self.audit.heard(interval))
            except (MetadataError, TimeoutError) as error:
                self.unreached[broker_id] = str(error)
            await asyncio.sleep(BROKER_PAUSE_MS / 1_000)

    async def _settle_unknown(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_LOG_GRACE_MS / 1_000)
            await self._settle()

    async def _settle(self) -> None:
        """Read the logs up to the present if a broker acknowledged under an unknown epoch."""
        if not self.audit.unknown:
            return
        heard = self.audit.intervals
        for shard_id in tuple(self.positions):
            try:
                await self._read_log(shard_id, follow=False)
            except PositionCompacted as error:
                self.audit.has_whole_log = False
                self.positions[shard_id] = error.oldest
                await self._read_log(shard_id, follow=False)
        self._take(self.audit.log_is_read(heard))

    def _take(self, findings: Sequence[Finding]) -> None:
        self.findings += findings
        if findings and self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _start(
        self, name: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object
    ) -> None:
        """Start a part unless it runs. One that fails ends the audit."""
        if name not in self._tasks:
            task = asyncio.get_running_loop().create_task(work(*arguments), name=name)
            self._tasks[name] = task
            task.add_done_callback(self._ended)

    def _stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._over is not None and not self._over.done():
            self._over.set_exception(error)


def _grant(event: Event) -> Grant:
    assigned = event.topic_assigned
    return Grant(
        topic_id=assigned.topic_id,
        unit=assigned.unit,
        epoch=assigned.epoch,
        broker_id=assigned.broker_id,
        place=f"{event.shard_id}:{event.position}",
    )
