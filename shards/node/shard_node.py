"""One shard node: opens its replicas, follows the shard map, and reports leaders and members.

At a start it opens the groups in its data directory, without any other process. When the cluster
manager's map arrives, the node opens the replicas that the map adds and closes those that no
placement names here any more. It stores map and addresses for the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.routing.slots import SlotTable
from nextgen.replication.ports import NodeId, ReplicatedLog
from nextgen.tasks.background import cancel_and_wait, keep, start
from protos.nextgen.v1.cluster_service_pb2 import (
    ClusterUpdate,
    LeaderReport,
    LeadershipTransfer,
    MembersReport,
    NodeMessage,
)
from protos.nextgen.v1.events_pb2 import NodeRegistered, ShardPlacement
from protos.nextgen.v1.shard_service_pb2 import NodeStatus
from shards.domain.membership_plan import Wish
from shards.metrics import NodeMetrics, ShardMetrics
from shards.node.membership_keeper import MembershipKeeper
from shards.node.replica import Replica
from shards.node.shard_leader import LeaderDependencies
from shards.node.size_reports import SizeReports
from shards.projections.rows import Query, ReadTransaction

SHARD_NODE = "shard"
"""Kind of this process in ``Hello`` and ``NodeRegistered``."""

_STORE_RETRY_S = 5.0
"""Seconds between attempts to store map and addresses while the disk refuses."""

_STORE_LATER_S = 5.0
"""Seconds until a change of the map is stored that concerns no replica of this node. At a restart
the node needs only its own replicas; with 1,000 shards the map has 100 KB."""

_Concerns = tuple[list[ShardPlacement], dict[str, NodeRegistered]]
"""Placements that name this node, and nodes' addresses."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """One shard's replica, opened from disk."""

    log: ReplicatedLog
    query: Query
    read_transaction: ReadTransaction


class Groups(Protocol):
    """The Raft groups of a node on disk and network. Implemented by ``adapters.raft_groups``."""

    async def open(
        self, shard_id: int, members: Sequence[NodeId], *, is_joining: bool, may_be_lost: bool
    ) -> OpenedGroup:
        """Open this node's replica of a shard, from disk if its data is there.

        ``members`` are the shard's voters in the map. ``is_joining``: this node is not among them
        and waits until the shard's leader adds it. ``may_be_lost``: the shard has had a leader
        before, so a replica with an empty disk may have lost its data.
        """
        ...

    async def put_aside(self, shard_ids: AbstractSet[int]) -> Sequence[int]:
        """Move away the data of these shards unless they are open; return the shards moved.

        A later ``open`` begins with an empty replica and knows that this node was a member before.
        """
        ...

    def disk_free_bytes(self) -> int:
        """Return the bytes that may still be written to the disk of the groups."""
        ...

    async def set_peer(self, node_id: NodeId, host: str, port: int) -> None: ...

    async def store(self, known: ClusterUpdate) -> None:
        """Store map and addresses for the next start, durably.

        Raises:
            Unavailable: The disk is full, or the write failed for another reason.
        """
        ...


class ShardNode:
    """Owned by one event loop. ``replicas`` are those open here; they change with the map."""

    def __init__(
        self,
        node_id: str,
        advertise: str,
        link: ClusterLink,
        groups: Groups,
        dependencies: LeaderDependencies,
        metrics: NodeMetrics,
        replicas: dict[int, Replica],
    ) -> None:
        self._node_id = NodeId(node_id)
        self._advertise = advertise
        self._link = link
        self._groups = groups
        self._dependencies = dependencies
        self._metrics = metrics
        self._replicas = replicas
        self._keepers: dict[int, MembershipKeeper] = {}
        self._sizes = SizeReports(replicas, link.send, groups.disk_free_bytes, dependencies.clock)
        self._changed = asyncio.Event()
        self._stored_concerns: _Concerns | None = None
        self._followed_table: SlotTable | None = None
        """By which leaders of this node follow objects of other shards."""
        self._stored_version = 0
        self._store_due_s: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._learning_own = False
        """True during a view change by this node's own report, which no other process has yet."""
        link.on_change(self._on_change)
        link.on_connected(self._report_again)
        link.on_transfer(self._on_transfer)

    def __repr__(self) -> str:
        led = sum(replica.leader is not None for replica in self._replicas.values())
        return f"<ShardNode {self._node_id} replicas={len(self._replicas)} leads={led}>"

    @property
    def replicas(self) -> Mapping[int, Replica]:
        return self._replicas

    async def open_known(self) -> None:
        """Open the replicas that the link's view names: at a start, those of the stored map.

        Raises:
            JournalCorrupted: A replica must not run.
        """
        await self._reconcile()

    async def run(self) -> None:
        """Follow the shard map until cancelled.

        Raises:
            JournalCorrupted: A replica that the map names must not run.
        """
        plans = self._dependencies.balance
        planning = None if plans is None else keep("balance_plans", plans.run)
        measuring = keep("shard_sizes", self._sizes.run)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._reconcile()
        finally:
            measuring.cancel()
            if planning is not None:
                planning.cancel()

    def readiness(self) -> tuple[bool, list[str]]:
        """Return whether every replica here serves or knows the leader, and the reasons if not."""
        reasons = []
        if self._link.view.slot_table is None:
            reasons.append("no shard map is known yet")
        for shard_id, placement in self._link.view.placements.items():
            if self._node_id not in placement.replicas:
                continue
            replica = self._replicas.get(shard_id)
            if replica is None:
                reasons.append(f"shard {shard_id} is not open yet")
            elif replica.has_diverged:
                reasons.append(replica.log.status.divergence)
            elif replica.leader_id is None:
                reasons.append(f"shard {shard_id} has no known leader")
            elif replica.leader_id == self._node_id and replica.leader is None:
                reasons.append(f"shard {shard_id} is being taken over")
        return not reasons, reasons

    def status(self) -> NodeStatus:
        status = NodeStatus(
            node_id=self._node_id,
            replicas=[replica.status() for _, replica in sorted(self._replicas.items())],
            shard_map_version=self._link.view.shard_map_version,
            counters=self._metrics.counters(),
        )
        for replica in self._replicas.values():
            if replica.leader is not None:
                status.sessions.extend(replica.leader.brokers.sessions.statuses())
        return status

    async def stop(self) -> None:
        """Hand over leadership and close every replica."""
        self._is_stopping = True
        for keeper in self._keepers.values():
            if (ending := keeper.close()) is not None:
                self._tasks.add(ending)
        await cancel_and_wait(*self._tasks)
        await asyncio.gather(*(replica.stop() for replica in self._replicas.values()))

    # The map ----------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        view = self._link.view
        for node in tuple(view.nodes.values()):
            if node.kind == SHARD_NODE and node.node_id != self._node_id and node.raft_port:
                await self._groups.set_peer(NodeId(node.node_id), node.raft_host, node.raft_port)
        if view.slot_table is None:
            return
        try:
            # Stored before a group is opened, so that a restart finds the group.
            await self._store(view)
        except Unavailable as error:
            _logger.warning("what is known of the cluster is not stored", why=str(error))
            asyncio.get_running_loop().call_later(_STORE_RETRY_S, self._changed.set)
            return
        for shard_id, placement in sorted(view.placements.items()):
            is_wanted = self._node_id in (*placement.replicas, *placement.joining)
            if is_wanted and shard_id not in self._replicas and not self._is_stopping:
                await self._open(placement)
        await self._close_unnamed(view)
        for replica in self._replicas.values():
            if replica.leader is not None and view.map_table is not self._followed_table:
                replica.leader.rehome()
        self._followed_table = view.map_table
        for keeper in self._keepers.values():
            keeper.look()

    async def _open(self, placement: ShardPlacement) -> None:
        view, shard_id = self._link.view, placement.shard_id
        members = [NodeId(each) for each in placement.replicas]
        opened = await self._groups.open(
            shard_id,
            members,
            is_joining=self._node_id not in members,
            # Possibly by this node: then its disk has lost the votes that elected it.
            may_be_lost=view.has_led(shard_id),
        )
        self._replicas[shard_id] = Replica(
            shard_id,
            opened.log,
            opened.query,
            opened.read_transaction,
            self._slot_table,
            self._dependencies,
            ShardMetrics(self._metrics, shard_id),
            hint=self._hint,
            on_leading=self._on_leading,
            # The leader is known from this node's own replica before the cluster manager pushes it.
            on_led=self._link.learn_leader,
        )
        _logger.info("replica open", shard=shard_id, members=members)

    def _slot_table(self) -> SlotTable:
        table = self._link.view.slot_table
        assert table is not None, "a replica was opened without a map"
        return table

    async def _close_unnamed(self, view: ClusterView) -> None:
        """Close replicas that the map no longer names here, and put their data aside.

        A replica that leads stays open: it is a member of its shard, so the map will name it again,
        or its own keeper hands over. Of a shard that has left the map every replica is closed. If
        its log has slots, the map is wrong, and the shard serves on.
        """
        unnamed = {
            shard_id
            for shard_id, placement in view.placements.items()
            if not self._is_named(placement)
        }
        gone = set(self._replicas) - set(view.placements)
        for shard_id in sorted(
            shard_id for shard_id in gone if self._replicas[shard_id].has_slots()
        ):
            _logger.warning("the map has no place for a shard with slots", shard=shard_id)
            gone.discard(shard_id)
        unnamed |= gone
        for shard_id in sorted(unnamed & set(self._replicas)):
            replica = self._replicas[shard_id]
            if (replica.leader is not None and shard_id not in gone) or self._is_stopping:
                continue
            del self._replicas[shard_id]
            await replica.stop()
            _logger.info("replica closed", shard=shard_id, why="no placement names this node")
        for shard_id in await self._groups.put_aside(unnamed):
            _logger.info("a removed replica's data is put aside", shard=shard_id)

    async def _store(self, view: ClusterView) -> None:
        """Store map and addresses. Leaders and brokers are not stored: they soon change.

        A change that concerns no replica of this node is stored later, together with others.
        """
        own = [placement for placement in view.placements.values() if self._is_named(placement)]
        concerns = own, dict(view.nodes)
        is_same_map = view.shard_map_version == self._stored_version
        if concerns == self._stored_concerns and (is_same_map or not self._is_store_due()):
            return
        self._store_due_s = None
        known = ClusterUpdate(full=True, shard_map=view.shard_map)
        known.nodes.extend(view.nodes[node_id] for node_id in sorted(view.nodes))
        version = view.shard_map_version
        await self._groups.store(known)
        self._stored_concerns, self._stored_version = concerns, version

    def _is_store_due(self) -> bool:
        """Return whether the first of the changes that are not stored has waited long enough."""
        loop = asyncio.get_running_loop()
        if self._store_due_s is None:
            self._store_due_s = loop.time() + _STORE_LATER_S
            loop.call_later(_STORE_LATER_S, self._changed.set)
        return loop.time() >= self._store_due_s

    def _is_named(self, placement: ShardPlacement) -> bool:
        return self._node_id in (*placement.replicas, *placement.joining, *placement.leaving)

    def _on_change(self, _view: ClusterView, update: ClusterUpdate) -> None:
        has_map = update.HasField("shard_map") or update.HasField("map_delta")
        if update.full or update.nodes or has_map:
            self._changed.set()
        for report in update.leaders:
            replica = self._replicas.get(report.shard_id)
            leader = replica.leader if replica is not None else None
            if leader is not None and leader.term == report.term and not self._learning_own:
                # The cluster manager pushes it to all connected nodes at once.
                leader.brokers.sessions.note_announced()

    # Leadership -------------------------------------------------------------------------------

    def _hint(self, shard_id: int, leader_id: NodeId | None) -> str | None:
        view = self._link.view
        if leader_id == self._node_id:
            # This node is elected, but not yet ready to decide: an immediate retry here would fail.
            return None
        node = view.nodes.get(leader_id) if leader_id is not None else None
        return node.grpc if node is not None else view.leader_endpoint(shard_id)

    def _on_leading(self, replica: Replica) -> None:
        self._keep_members(replica)
        if replica.leader is None:
            # The replica may have been kept open only because it led.
            self._changed.set()
            return
        report = self._report(replica.shard_id, replica.leader.term)
        self._learning_own = True
        try:
            self._link.learn_leader(report.shard_id, report.term, report.node_id, report.grpc)
        finally:
            self._learning_own = False
        self._link.send(NodeMessage(leader=report))
        self._sizes.report(replica.shard_id)

    def _report_again(self) -> None:
        for shard_id, replica in self._replicas.items():
            if replica.leader is not None:
                report = self._report(shard_id, replica.leader.term)
                self._link.send(NodeMessage(leader=report))
        for keeper in self._keepers.values():
            keeper.report_again()
        self._sizes.report()

    def _keep_members(self, replica: Replica) -> None:
        """Run a ``MembershipKeeper`` exactly while this node leads the shard."""
        before = self._keepers.pop(replica.shard_id, None)
        ending = before.close() if before is not None else None
        if ending is not None:
            self._tasks.add(ending)
            ending.add_done_callback(self._tasks.discard)
        if replica.leader is None or self._is_stopping:
            return
        keeper = MembershipKeeper(
            replica.shard_id,
            replica.leader.term,
            self._node_id,
            replica.log,
            wish=lambda: self._wish(replica.shard_id),
            send=self._send_members,
            clock=self._dependencies.clock,
        )
        self._keepers[replica.shard_id] = keeper
        keeper.start()

    def _wish(self, shard_id: int) -> Wish | None:
        placement = self._link.view.placements.get(shard_id)
        if placement is None:
            return None
        return Wish(tuple(placement.replicas), tuple(placement.joining), tuple(placement.leaving))

    def _send_members(self, report: MembersReport) -> None:
        self._link.send(NodeMessage(members=report))

    def _report(self, shard_id: int, term: int) -> LeaderReport:
        return LeaderReport(
            shard_id=shard_id, term=term, node_id=self._node_id, grpc=self._advertise
        )

    def _on_transfer(self, transfer: LeadershipTransfer) -> None:
        replica = self._replicas.get(transfer.shard_id)
        if replica is not None and replica.leader is not None and not self._is_stopping:
            self._run(self._transfer(replica, NodeId(transfer.target)))

    async def _transfer(self, replica: Replica, target: NodeId) -> None:
        try:
            await replica.log.transfer_leadership(target)
        except MetadataError as error:
            _logger.info("leadership stays", shard=replica.shard_id, target=target, why=str(error))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        start("shard_node_work", work, self._tasks)
