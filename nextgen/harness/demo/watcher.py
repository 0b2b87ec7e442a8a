"""Observes changes of leaders as every node does: the cluster manager pushes them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, Hello

OnNews = Callable[[str], None]
IsRunning = Callable[[str], bool]


class LeaderWatcher:
    """Counts the leaderships that were taken over from a dead node; reports every change."""

    def __init__(
        self,
        cluster_id: str,
        manager_endpoints: Sequence[str],
        *,
        node_of: Callable[[str], str],
        is_running: IsRunning,
        on_news: OnNews,
    ) -> None:
        hello = Hello(cluster_id=cluster_id, node_id=f"demo-{secrets.token_hex(4)}", kind="client")
        self.failovers = 0
        self.link = ClusterLink(manager_endpoints, hello)
        self._node_of = node_of
        self._is_running = is_running
        self._on_news = on_news
        self._leaders: dict[int, str] = {}
        self._manager = ""
        self._live_brokers: dict[str, str] = {}
        self.link.on_change(self._changed)
        self.link.on_connected(self._connected)

    async def start(self) -> None:
        await self.link.start()
        await self.link.wait_ready()

    async def stop(self) -> None:
        await self.link.stop()

    def _changed(self, view: ClusterView, _update: ClusterUpdate) -> None:
        for shard_id, leader in view.leaders.items():
            before = self._leaders.get(shard_id)
            self._leaders[shard_id] = leader.node_id
            if before is not None and before != leader.node_id:
                verb = self._moved_from(before)
                self._on_news(f"shard {shard_id} {verb} {leader.node_id}, term {leader.term}")
        for broker_id, broker in view.brokers.items():
            before = self._live_brokers.get(broker_id)
            session = broker.session_id if broker.is_live else ""
            self._live_brokers[broker_id] = session
            if before and not session:
                self._on_news(f"the session of {broker_id} ended, its topics may be given away")
            elif before is not None and session and session != before:
                self._on_news(f"{broker_id} has a new session, epoch {broker.epoch}")

    def _connected(self) -> None:
        manager = self._node_of(self.link.leader_endpoint or "")
        before, self._manager = self._manager, manager
        if before and manager != before:
            self._on_news(f"the cluster manager {self._moved_from(before)} {manager}")

    def _moved_from(self, before: str) -> str:
        """Count the change if the former leader is dead; otherwise leaders are being spread."""
        if self._is_running(before):
            return "was handed over to"
        self.failovers += 1
        return "is led by"
