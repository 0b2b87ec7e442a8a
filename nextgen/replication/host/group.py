"""The replicated-log port on top of the engine: one replica of one Raft group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nextgen.kernel.errors import NotLeader, TransferFailed, Unavailable
from nextgen.kernel.events.levels import (
    CONFIGURATION_LEVEL,
    EVENT_LEVEL_UNREPORTED,
    not_known_everywhere,
)
from nextgen.kernel.limits.cluster import ENTRIES_PER_MESSAGE_MAX
from nextgen.replication.host.handovers import Handovers
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import (
    AppliedPoint,
    ChangeKind,
    Commit,
    Configuration,
    Entry,
    LogPin,
    LogReader,
    LogStatus,
    MemberChange,
    MemberProgress,
    NodeId,
    PositionCompacted,
    Record,
    RoleChange,
    StateMachine,
)
from nextgen.replication.protocol.entry_codec import decode_records
from nextgen.replication.protocol.membership import members_of
from nextgen.replication.raft.divergence import ViewDiverged
from nextgen.replication.raft.replica import RaftReplica
from nextgen.replication.retention.named_readers import NamedReaders
from nextgen.replication.retention.subscriptions import ListenerSet, ProgressWaiters, call_listener
from nextgen.replication.snapshot.transfer import SnapshotTransfer
from nextgen.replication.statistics import ReplicaStatistics
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout

_logger = logging.getLogger(__name__)


class PySyncObjGroup:
    """A ``ReplicatedLog``. Made by ``PySyncObjHost.open_group``; see ``ports`` for the promises."""

    def __init__(
        self,
        *,
        applied: AppliedPoint,
        handovers: Handovers,
        on_stopped: Callable[[PySyncObjGroup], None],
        event_level_of: Callable[[NodeId], int],
    ) -> None:
        """``event_level_of`` returns the event level that a member has reported, this one
        included."""
        self._handovers = handovers
        self._on_stopped = on_stopped
        self._event_level_of = event_level_of
        self._commit_listeners: ListenerSet[Sequence[Entry]] = ListenerSet()
        self._position_listeners: ListenerSet[tuple[int, int]] = ListenerSet()
        self._role_listeners: ListenerSet[RoleChange] = ListenerSet()
        self._index_waiters = ProgressWaiters(applied.index)
        self._position_waiters = ProgressWaiters(applied.position)
        self._last_role: RoleChange | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._replica: RaftReplica
        self._snapshots: SnapshotTransfer
        self._readers: NamedReaders
        self._state_machine: StateMachine
        self._release: Callable[[], Awaitable[None]]
        self._distrust: Callable[[], Awaitable[None]]

    def attach(
        self,
        replica: RaftReplica,
        snapshots: SnapshotTransfer,
        readers: NamedReaders,
        state_machine: StateMachine,
        release: Callable[[], Awaitable[None]],
        distrust: Callable[[], Awaitable[None]],
    ) -> None:
        """Set the engine and start it. ``release`` closes the view and returns the resources of the
        host; ``distrust`` notes on disk that the view must be rebuilt."""
        self._replica = replica
        self._snapshots = snapshots
        self._readers = readers
        self._state_machine = state_machine
        self._release = release
        self._distrust = distrust
        replica.start()

    def __repr__(self) -> str:
        return repr(self._replica).replace("RaftReplica", "PySyncObjGroup")

    @property
    def engine(self) -> RaftReplica:
        """The engine; the host passes messages and heartbeats to it."""
        return self._replica

    @property
    def snapshots(self) -> SnapshotTransfer:
        """This replica's snapshots and pins."""
        return self._snapshots

    @property
    def statistics(self) -> ReplicaStatistics:
        """Counters since this replica was opened; read only."""
        return self._replica.statistics

    @property
    def status(self) -> LogStatus:
        replica, journal = self._replica, self._replica.journal
        change, configuration = replica.role_change, self._replica.configuration
        commits = replica.leadership.commits if replica.leadership else None
        return LogStatus(
            group_id=replica.group_id,
            role=change.role,
            term=change.term,
            leader_id=change.leader_id,
            members=configuration.voters,
            last_index=journal.last_index,
            commit_index=replica.commit_index,
            commit_position=replica.commit_position,
            applied=replica.applier.applied,
            first_position=journal.base_position + 1,
            view_lag_ms=replica.applier.lag_ms,
            journal_bytes=journal.bytes_on_disk,
            elections=replica.statistics.elections,
            disk_trouble=replica.disk.trouble or "",
            log_pins=self._snapshots.retention.pin_count,
            pinned_bytes=self._snapshots.retention.pinned_bytes,
            log_readers=self._readers.count,
            readers_expired=self._readers.expired,
            snapshots=replica.statistics.snapshots,
            snapshots_installed=replica.statistics.snapshots_installed,
            snapshot_ms=replica.statistics.last_snapshot_ms,
            learners=configuration.learners,
            configuration_index=configuration.index,
            progress=self._progress(),
            digest=self._state_machine.digest(),
            divergence=replica.divergence.alarm,
            records_waiting=commits.records_waiting if commits else 0,
            entries_in_flight=commits.entries_in_flight if commits else 0,
            pins_broken=self._snapshots.retention.broken,
            statistics=replica.statistics,
        )

    @property
    def is_leader(self) -> bool:
        return self._replica.is_ready_leader

    @property
    def commit_position(self) -> int:
        return self._replica.commit_position

    @property
    def applied_point(self) -> AppliedPoint:
        return self._replica.applier.applied

    @property
    def hears_leader(self) -> bool:
        replica = self._replica
        return not replica.stopped and (replica.is_ready_leader or replica.election.is_leader_alive)

    @property
    def event_level(self) -> int:
        members = members_of(self._replica.configuration)
        return min(map(self._event_level_of, members), default=EVENT_LEVEL_UNREPORTED)

    def behind_event_level(self, level: int) -> Sequence[NodeId]:
        members = members_of(self._replica.configuration)
        return tuple(member for member in members if self._event_level_of(member) < level)

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        return self._replica.propose(record)

    async def read_index(self, *, asked_at: float | None = None) -> int:
        return await self._replica.ask_read_index(asked_at)

    async def wait_applied(self, index: int) -> None:
        self._check_running()
        await self._view_reaches(self._index_waiters, index)

    async def wait_position(self, position: int) -> None:
        self._check_running()
        if position <= self._replica.commit_position:
            await self._view_reaches(self._position_waiters, position)
            return
        stop_expediting = self.expedite_commits()
        try:
            await self._view_reaches(self._position_waiters, position)
        finally:
            stop_expediting()

    def read(self, from_position: int, *, events_max: int, bytes_max: int) -> Sequence[Entry]:
        replica, journal = self._replica, self._replica.journal
        oldest = journal.base_position + 1
        if from_position < oldest:
            raise PositionCompacted(from_position, oldest)
        if from_position > replica.commit_position:
            return ()
        first = journal.index_of_position(from_position)
        # An entry that begins behind the last allowed event is not read at all.
        end = journal.index_of_position(journal.first_position_of(first) + events_max)
        last = min(replica.commit_index, first + ENTRIES_PER_MESSAGE_MAX - 1, max(first, end - 1))
        return tuple(map(_decoded, journal.entries(first, last, bytes_max)))

    def on_commit(self, listener: Callable[[Sequence[Entry]], None]) -> Callable[[], None]:
        return self._commit_listeners.add(listener)

    def on_commit_positions(self, listener: Callable[[int, int], None]) -> Callable[[], None]:
        return self._position_listeners.add(lambda positions: listener(*positions))

    def expedite_commits(self) -> Callable[[], None]:
        return self._replica.following.expedite()

    def on_role_change(self, listener: Callable[[RoleChange], None]) -> Callable[[], None]:
        unsubscribe = self._role_listeners.add(listener)
        call_listener(listener, self._replica.role_change)
        return unsubscribe

    async def transfer_leadership(self, target: NodeId) -> None:
        if not self.is_leader:
            raise self._replica.not_leader()
        if target == self._replica.node_id:
            return
        await self._transfer(target, self._replica.config.transfer_deadline_ms)

    async def change_members(self, change: MemberChange) -> Configuration:
        if self.is_leader:
            staying = [
                member
                for member in self.behind_event_level(CONFIGURATION_LEVEL)
                if change != MemberChange(ChangeKind.REMOVE, member)
            ]
            if staying:
                group = f"group {self._replica.group_id}"
                raise not_known_everywhere(group, staying, "changes of the members")
        return await self._replica.change_members(change)

    def pin(self, name: str, position: int) -> LogPin:
        self._check_running()
        return self._snapshots.retention.pin(name, position)

    async def pin_reader(self, reader_id: str, position: int, ttl_ms: int) -> None:
        self._check_running()
        await self._readers.pin(reader_id, position, ttl_ms)

    def readers(self) -> Sequence[LogReader]:
        return self._readers.readers()

    async def compact(self) -> AppliedPoint:
        self._check_running()
        return await self._snapshots.compact()

    async def stop(self) -> None:
        if self._stopping is None:
            self._handovers.begin()
            self._stopping = start("replica_stop", self._stop())
        await asyncio.shield(self._stopping)

    def abandon(self) -> None:
        """End at once: see ``PySyncObjHost.abandon``."""
        self._replica.abandon()
        self._snapshots.abandon()
        self._readers.stop()
        if self._stopping is not None:
            self._stopping.cancel()

    # From the engine --------------------------------------------------------------------------

    def committed(self, first: int, last: int, known: Mapping[int, Entry]) -> None:
        replica = self._replica
        if len(self._position_listeners):
            first_position = replica.journal.first_position_of(first)
            self._position_listeners.tell((first_position, replica.commit_position))
        if len(self._commit_listeners):
            entries = [
                known.get(index) or _decoded(replica.journal.entry(index))
                for index in range(first, last + 1)
            ]
            self._commit_listeners.tell(entries)

    @property
    def is_view_awaited(self) -> bool:
        return bool(self._index_waiters.waiting or self._position_waiters.waiting)

    def applied(self, point: AppliedPoint) -> None:
        self._index_waiters.advance(point.index)
        self._position_waiters.advance(point.position)
        self._snapshots.compact_if_due()

    def role_may_have_changed(self) -> None:
        replica, last = self._replica, self._last_role
        if last is not None and replica.has_role(last):
            return
        change = replica.role_change
        if change != last:
            self._last_role = change
            self._role_listeners.tell(change)

    def snapshot_wanted(self, follower: NodeId) -> None:
        self._snapshots.send_to(follower)

    def snapshot_message(self, kind: str, sender: NodeId, message: Message) -> None:
        self._snapshots.on_message(kind, sender, message)

    def peer_lost(self, node_id: NodeId) -> None:
        self._snapshots.peer_lost(node_id)

    def broken(self, error: Exception) -> None:
        """Stop this replica for good: it must not be served."""
        if self._stopping is not None:
            return
        _logger.critical("%r stops: %s", self._replica, error, exc_info=error)
        self._replica.stopped = True
        self._replica.step_down("the replica broke")
        self._handovers.begin()
        self._stopping = start("replica_stop", self._stop())

    def diverged(self, error: ViewDiverged) -> None:
        """Stop for good: the view is built anew before it is served again."""
        self.broken(error)

    # Inside -----------------------------------------------------------------------------------

    async def _view_reaches(self, waiters: ProgressWaiters, value: int) -> None:
        reached = waiters.begin(value)
        if reached is not None:
            self._replica.view_is_wanted()
            await reached

    def _check_running(self) -> None:
        if self._replica.stopped:
            raise Unavailable(f"group {self._replica.group_id}: the replica stopped")

    def _progress(self) -> tuple[MemberProgress, ...]:
        leadership = self._replica.leadership
        if leadership is None:
            return ()
        return tuple(
            MemberProgress(
                follower.node_id,
                follower.connected,
                follower.match_index,
                follower.applied_index,
                follower.needs_snapshot,
            )
            for _, follower in sorted(leadership.replicator.followers.items())
            if follower.removed_at is None
        )

    async def _transfer(self, target: NodeId, deadline_ms: int) -> None:
        replica = self._replica
        leadership = replica.leadership
        assert leadership is not None, "a leader has a term of leadership"
        follower = leadership.replicator.followers.get(target)
        is_voter = target in replica.configuration.voters
        if follower is None or not follower.connected or not is_voter:
            raise TransferFailed(f"{target} is no connected voter of group {replica.group_id}")
        if not follower.disk_takes_writes:
            raise TransferFailed(f"{target} has no room on its disk for group {replica.group_id}")
        if not leadership.replicator.is_heard(target):
            # Proposals wait for a successor, and one that is frozen never comes.
            raise TransferFailed(f"{target} is silent in group {replica.group_id}")
        if leadership.hands_over:
            raise TransferFailed(f"group {replica.group_id} is being handed over already")
        leadership.hand_over(target)
        replica.kick()
        try:
            async with timeout(deadline_ms / 1000):
                await asyncio.shield(leadership.ended)
        except TimeoutError:
            raise TransferFailed(
                f"{target} did not take over group {replica.group_id} in {deadline_ms} ms"
            ) from None
        finally:
            leadership.keep()
            replica.kick()

    async def _stop(self) -> None:
        replica = self._replica
        if replica.divergence.diverged:
            try:
                await self._distrust()
            except OSError:
                _logger.critical("%r: its view is wrong and it may be served again", replica)
        try:
            await self._hand_over_before_stopping()
        finally:
            self._handovers.end()
        await self._handovers.wait()
        await replica.stop()
        self.role_may_have_changed()
        error = Unavailable(f"group {replica.group_id}: the replica stopped")
        self._index_waiters.fail(error)
        self._position_waiters.fail(error)
        await asyncio.gather(*self._readers.stop(), return_exceptions=True)
        await self._snapshots.stop()
        replica.journal.close()
        await self._release()
        self._on_stopped(self)

    async def _hand_over_before_stopping(self) -> None:
        replica = self._replica
        if not self.is_leader or replica.leadership is None:
            return
        best = replica.leadership.replicator.best_follower()
        if best is None:
            return
        try:
            await self._transfer(best, replica.config.stop_transfer_deadline_ms)
        except (TransferFailed, NotLeader) as error:
            _logger.warning("%r stops without a successor: %s", replica, error)
            return
        await self._successor_known(replica.config.heartbeat_ms)

    async def _successor_known(self, deadline_ms: int) -> None:
        """Return once the successor was heard, so that callers are redirected to it."""
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(change: RoleChange) -> None:
            if change.leader_id is not None and not known.done():
                known.set_result(None)

        unsubscribe = self.on_role_change(look)
        try:
            async with timeout(deadline_ms / 1000):
                await known
        except TimeoutError:
            _logger.info("%r stops before a new leader was heard", self._replica)
        finally:
            unsubscribe()


def _decoded(found: JournalEntry) -> Entry:
    return Entry(found.index, found.term, found.first_position, decode_records(found.payload))
