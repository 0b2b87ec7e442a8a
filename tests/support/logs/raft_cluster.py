"""Replicas of one group in this process, on loopback and a temporary directory.

Timers are shorter than in production: a test waits for conditions, never for a while.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

from nextgen.replication.config import RaftConfig
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.mesh.handshake import ClusterSecret
from nextgen.replication.ports import GroupId, NodeId
from nextgen.tasks.timeouts import timeout
from tests.support.logs.dict_state_machine import DictStateMachine

GROUP = GroupId(3)

QUICK = RaftConfig(
    heartbeat_ms=30,
    election_ms_min=300,
    election_ms_max=450,
    first_election_ms_min=60,
    first_election_ms_max=180,
    fast_election_stagger_ms=30,
    leader_contact_ms_max=900,
    log_tail_entries=0,
    journal_segment_bytes=16 * 1024 * 1024,
)

STEADY = dataclasses.replace(
    QUICK,
    election_ms_min=5_000,
    election_ms_max=8_000,
    leader_contact_ms_max=4_500,
    stall_ms_max=4_500,
    transfer_deadline_ms=20_000,
)
"""For tests in which one leader leads from the beginning to the end: it goes on leading although
this process stands still for two seconds."""

SMALL_SEGMENTS = 64 * 1024
"""Journal files so small that a few records fill one and a snapshot can cut them."""

WAIT_DEADLINE_S = 60.0


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return once ``condition`` holds."""
    try:
        async with timeout(WAIT_DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


class RaftCluster:
    """``size`` hosts with one group. Each can be stopped and started again, or cut off.

    ``secrets`` are what hosts have; one that is not named has ``secret``.
    """

    def __init__(
        self,
        directory: Path,
        size: int,
        config: RaftConfig = QUICK,
        *,
        secret: ClusterSecret | None = None,
    ) -> None:
        self.secret = secret
        self.secrets: dict[NodeId, ClusterSecret | None] = {}
        self.directory = directory
        self.config = config
        self.members = [NodeId(f"node-{number}") for number in range(1, size + 1)]
        self.hosts: dict[NodeId, PySyncObjHost] = {}
        self.logs: dict[NodeId, PySyncObjGroup] = {}
        self.views: dict[NodeId, DictStateMachine] = {}
        self._ports: dict[NodeId, int] = {}

    async def start(self) -> None:
        for member in self.members:
            await self._start_host(member)
        await self._introduce()
        for member in self.members:
            await self.open(member)

    async def stop(self) -> None:
        await asyncio.gather(*(host.stop() for host in self.hosts.values()))

    async def leader(self) -> PySyncObjGroup:
        """Return the log that leads, once there is one."""
        await eventually(lambda: any(log.is_leader for log in self.logs.values()), "a leader")
        return next(log for log in self.logs.values() if log.is_leader)

    async def settled_leader(self) -> PySyncObjGroup:
        """Return the log that leads, once all others follow it."""

        def is_settled() -> bool:
            leaders = {log.status.leader_id for log in self.logs.values()}
            return len(leaders) == 1 and None not in leaders

        await eventually(is_settled, "all follow one leader")
        return await self.leader()

    def name_of(self, log: PySyncObjGroup) -> NodeId:
        return next(member for member, found in self.logs.items() if found is log)

    def view_of(self, log: PySyncObjGroup) -> DictStateMachine:
        return self.views[self.name_of(log)]

    async def followers(self) -> list[PySyncObjGroup]:
        leader = await self.leader()
        return [log for log in self.logs.values() if log is not leader]

    async def stop_member(self, member: NodeId) -> None:
        await self.hosts.pop(member).stop()
        self.logs.pop(member)

    async def start_member(self, member: NodeId, *, rejoining: bool = False) -> PySyncObjGroup:
        await self._start_host(member)
        await self._introduce()
        return await self.open(member, rejoining=rejoining)

    async def open(self, member: NodeId, *, rejoining: bool = False) -> PySyncObjGroup:
        view_path = self.directory / member / "view.json"
        view_path.parent.mkdir(parents=True, exist_ok=True)
        view = DictStateMachine(view_path)
        self.views[member] = view
        self.logs[member] = await self.hosts[member].open_group(
            GROUP, self.members, view, rejoining=rejoining
        )
        return self.logs[member]

    async def _start_host(self, member: NodeId) -> None:
        (self.directory / member).mkdir(parents=True, exist_ok=True)
        host = PySyncObjHost(
            node_id=member,
            cluster_id="test-cluster",
            listen_host="127.0.0.1",
            listen_port=self._ports.get(member, 0),
            data_directory=self.directory / member,
            config=self.config,
            random_source=random.Random(member),
            secret=self.secrets.get(member, self.secret),
        )
        await host.start()
        self._ports[member] = host.port
        self.hosts[member] = host

    async def _introduce(self) -> None:
        for host in self.hosts.values():
            for member, port in self._ports.items():
                await host.set_peer_address(member, "127.0.0.1", port)
