"""One shard on this node: its log, its view and, while this replica leads, its leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from nextgen.client.log.wire import replica_status
from nextgen.kernel.errors import MetadataError, NotLeader, Unavailable
from nextgen.kernel.routing.slots import SlotTable
from nextgen.replication.ports import NodeId, ReplicatedLog, Role, RoleChange
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ReplicaStatus
from shards.domain.shard import SHARD_KEY, Shard
from shards.domain.states import StateKind
from shards.inventory.reader import InventoryReader
from shards.metrics import ShardMetrics
from shards.node.shard_leader import LeaderDependencies, ShardLeader
from shards.projections.rows import Query, ReadTransaction, read_states
from shards.watches.change_hub import ChangeHub
from shards.watches.effective_writes import Subscription
from shards.watches.subscriber_ids import AcknowledgingStream

_logger = structlog.get_logger(__name__)


class Replica:
    """Owned by the node. ``leader`` is set exactly while this replica may decide.

    ``slot_table`` returns the present shard map. It is needed by the shard's first leader alone.
    ``hint`` returns the endpoint of the shard's leader if it is known. ``on_leading`` is called
    after each change of ``leader``, ``on_led`` with term and node id of another node that leads.
    """

    def __init__(
        self,
        shard_id: int,
        log: ReplicatedLog,
        query: Query,
        read_transaction: ReadTransaction,
        slot_table: Callable[[], SlotTable],
        dependencies: LeaderDependencies,
        metrics: ShardMetrics,
        *,
        hint: Callable[[int, NodeId | None], str | None],
        on_leading: Callable[[Replica], None],
        on_led: Callable[[int, int, NodeId], None] = lambda _shard_id, _term, _node_id: None,
    ) -> None:
        self.shard_id = shard_id
        self.log = log
        self.reader = InventoryReader(shard_id, log, query, read_transaction)
        self.leader: ShardLeader | None = None
        self._query = query
        self._slot_table = slot_table
        self._dependencies = dependencies
        self._metrics = metrics
        self._hint = hint
        self._on_leading = on_leading
        self._on_led = on_led
        self._committed = asyncio.Event()
        self._role_changed = asyncio.Event()
        self._successor_id: NodeId | None = None
        """The last other node known to lead: the hint after this replica has stopped."""
        self.changes = ChangeHub(
            shard_id,
            log,
            read_transaction,
            metrics.watches,
            join=self._join,
            wait_commit=self.wait_commit,
        )
        self._unsubscribes = [
            log.on_commit_positions(self._on_commit),
            log.on_role_change(self._on_role_change),
        ]

    def __repr__(self) -> str:
        status = self.log.status
        return f"<Replica shard={self.shard_id} role={status.role} term={status.term}>"

    @property
    def leader_id(self) -> NodeId | None:
        return self.log.status.leader_id

    @property
    def has_diverged(self) -> bool:
        """True once this view was found to differ from the other replicas'. It is not served."""
        status = self.log.status
        return status.role is Role.STOPPED and bool(status.divergence)

    def leading(self) -> ShardLeader:
        """Return this shard's leader.

        Raises:
            NotLeader: Another replica leads, or none; with a hint if its endpoint is known.
        """
        if self.leader is None or self.leader.state.term.is_over:
            raise self.not_leader()
        return self.leader

    async def wait_elected(self, timeout_ms: int) -> None:
        """Return once a leader is known, at the latest after ``timeout_ms``."""
        with contextlib.suppress(TimeoutError):
            async with timeout(timeout_ms / 1000):
                while self.is_between_leaders:
                    await self._role_changed.wait()

    @property
    def is_between_leaders(self) -> bool:
        """True while no leader is known, or this replica is elected and not yet ready."""
        if self.leader is not None or self.log.status.role is Role.STOPPED:
            return False
        return self.leader_id is None or self.leader_id == self._dependencies.node_id

    def not_leader(self) -> NotLeader:
        leader_id = self.leader_id
        if leader_id is None and self.log.status.role is Role.STOPPED:
            leader_id = self._successor_id
        return NotLeader(self.shard_id, self._hint(self.shard_id, leader_id))

    def has_slots(self) -> bool:
        """Return whether the shard owns slots or takes part in a move, by this replica's view."""
        own = read_states(self._query, StateKind.SHARD, (SHARD_KEY,))[SHARD_KEY]
        return isinstance(own, Shard) and bool(own.ranges or own.outgoing or own.incoming)

    async def wait_commit(self) -> None:
        """Return after the next commit on this replica, or when it has stopped."""
        await self._committed.wait()

    def status(self) -> ReplicaStatus:
        return replica_status(self.log.status, self._dependencies.node_id)

    async def stop(self) -> None:
        """Hand leadership over if this replica leads, then close log and view."""
        # The role change closes the leader: by then the successor is known.
        await self.log.stop()
        self._end_changes()
        self.close_leader()
        for unsubscribe in self._unsubscribes:
            unsubscribe()

    def _on_commit(self, first_position: int, last_position: int) -> None:
        self._metrics.commits.inc(last_position + 1 - first_position)
        self._wake_for_commit()

    def _wake_for_commit(self) -> None:
        # A fresh event for later waiters, so that each waiter wakes once per commit.
        committed, self._committed = self._committed, asyncio.Event()
        committed.set()

    def _on_role_change(self, change: RoleChange) -> None:
        if self.leader is not None and (
            change.role is not Role.LEADER or change.term != self.leader.term
        ):
            self.close_leader()
        if change.role is Role.LEADER and self.leader is None:
            self._lead(change.term)
        if change.leader_id is not None and change.leader_id != self._dependencies.node_id:
            self._successor_id = change.leader_id
            self._on_led(self.shard_id, change.term, change.leader_id)
        changed, self._role_changed = self._role_changed, asyncio.Event()
        changed.set()
        if change.role is Role.STOPPED:
            self._wake_for_commit()
            self._end_changes()

    def _lead(self, term: int) -> None:
        leader = ShardLeader(
            self.shard_id,
            term,
            self.log,
            self._query,
            self._dependencies,
            self._metrics,
        )
        try:
            leader.start(self._slot_table())
        except MetadataError as error:
            # Leadership was lost again already.
            _logger.error("cannot lead", shard=self.shard_id, term=term, why=str(error))
            leader.close(None)
            return
        self.leader = leader
        _logger.info("leading", shard=self.shard_id, term=term)
        self._on_leading(self)

    def _join(self, stream: AcknowledgingStream, *, is_leased: bool = False) -> Subscription:
        return self.leading().effective.join(stream, is_leased=is_leased)

    def _end_changes(self) -> None:
        stopped = (
            f"the replica of shard {self.shard_id} at {self._dependencies.node_id} has stopped"
        )
        self.changes.close(Unavailable(self.log.status.divergence or stopped))

    def close_leader(self) -> None:
        """Stop deciding: pending requests fail with a hint to the next leader."""
        leader, self.leader = self.leader, None
        if leader is None:
            return
        _logger.info("not leading any more", shard=self.shard_id, term=leader.term)
        leader.close(self._hint(self.shard_id, self.leader_id))
        self._on_leading(self)
