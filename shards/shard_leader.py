"""Everything that exists only while this replica leads its shard: one object per term.

Made when the replica's role becomes LEADER, closed when it is lost; nothing of it is reused, so
nothing ever has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nextgen.kernel.errors import NotLeader
from nextgen.kernel.slots import SlotTable
from nextgen.replication.ports import ReplicatedLog
from shards.assignment_feed import AssignmentFeed
from shards.broker_manager import BrokerManager
from shards.broker_sync import BrokerSync
from shards.decoded_entries import DecodedEntries
from shards.inventory_service import InventoryService
from shards.lease_keeper import LeaseKeeper
from shards.measured_log import MeasuredLog
from shards.metadata_watch import MetadataWatch
from shards.metrics import ShardMetrics
from shards.move_finisher import MoveFinisher
from shards.ports import (
    BrokerDirectory,
    BrokerManagers,
    CapacitySource,
    Clock,
    HomeShards,
    MetadataReader,
    ParentDirectory,
    SessionReports,
)
from shards.projections.rows import Query
from shards.shard_state import ShardState
from shards.topic_controller import TopicController
from shards.topic_mover import TopicMover


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a leader needs from outside its shard; the same for all shards of a node."""

    node_id: str
    directory: BrokerDirectory
    managers: BrokerManagers
    capacity: CapacitySource
    metadata: MetadataReader
    homes: HomeShards
    parents: ParentDirectory
    reports: SessionReports
    clock: Clock
    entropy: Callable[[int], bytes]
    """Returns so many random bytes."""
    draw: Callable[[], tuple[int, int]]
    """Returns two random numbers for a placement."""


class ShardLeader:
    """The services of one shard for one term of leadership."""

    def __init__(
        self,
        shard_id: int,
        term: int,
        log: ReplicatedLog,
        query: Query,
        around: Surroundings,
        metrics: ShardMetrics,
        decoded: DecodedEntries,
    ) -> None:
        self.shard_id = shard_id
        self.term = term
        self.metrics = metrics
        self._log = MeasuredLog(log, metrics.commit_latency, around.clock.monotonic)
        self.state = ShardState(
            shard_id, term, self._log, query, around.clock.wall_ms, around.entropy
        )
        watch = MetadataWatch(
            f"{around.node_id}/broker-manager-{shard_id}/{term}",
            around.homes,
            around.metadata,
            around.clock,
            metrics.metadata_delivered,
        )
        self.brokers = BrokerManager(
            shard_id, self.state, around.metadata, watch, around.reports, around.clock
        )
        self.feed = AssignmentFeed(shard_id, log, around.clock, decoded)
        self.leases = LeaseKeeper(
            shard_id,
            term,
            around.capacity,
            around.directory,
            self.state.used_units,
            around.clock,
        )
        sync = BrokerSync(shard_id, around.managers, around.directory)
        self.topics = TopicController(
            shard_id,
            self.state,
            sync,
            self.leases,
            around.directory,
            around.clock,
            around.draw,
            metrics,
        )
        self.inventory = InventoryService(
            self.state, around.parents, on_unassigned=self.topics.let_go
        )
        self._finisher = MoveFinisher(
            shard_id, self.state, self.topics, sync, self.feed, around.directory
        )
        self.mover = TopicMover(
            shard_id,
            self.state,
            self.topics,
            sync,
            self.leases,
            self._finisher,
            around.clock,
            around.draw,
            metrics,
        )

    def __repr__(self) -> str:
        return f"<ShardLeader shard={self.shard_id} term={self.term} {self.topics!r}>"

    def start(self, table: SlotTable) -> None:
        """Adopt the slots that the map gives this shard, then take over its brokers and leases."""
        self.state.adopt_slots(table.ranges_of(self.shard_id), table.version)
        self.brokers.start()
        self.leases.start()
        self._finisher.recover(self._log)

    def close(self, leader_hint: str | None) -> None:
        """Fail everybody who waits; they are sent to ``leader_hint``."""
        error = NotLeader(self.shard_id, leader_hint)
        self.state.close()
        self.inventory.close()
        self.topics.close(error)
        self.brokers.close(error)
        self.feed.close(error)
        self.leases.close()
        self._log.close()
