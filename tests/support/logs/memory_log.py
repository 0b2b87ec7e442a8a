"""A replicated log in memory: the port's fake, for the tests of everything above it.

One replica without peers or disk. By default it leads and commits what is proposed at the
next turn of the loop, so records proposed in one turn share an entry, as in the real one.
A test can hold commits or applies back, take leadership away and give it back.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from nextgen.kernel.errors import NotLeader, Overloaded, ProposalLost, TransferFailed, Unavailable
from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.kernel.limits.cluster import ENTRY_RECORDS_MAX, PROPOSE_QUEUE_BYTES_MAX
from nextgen.kernel.limits.snapshot import LOG_PINS_MAX
from nextgen.replication.ports import (
    AppliedPoint,
    Commit,
    Configuration,
    Entry,
    GroupId,
    LogPin,
    LogReader,
    LogStatus,
    MemberChange,
    MemberProgress,
    NodeId,
    PositionCompacted,
    Record,
    Role,
    RoleChange,
    StateMachine,
)
from nextgen.replication.protocol.entry_codec import check_record
from nextgen.replication.protocol.membership import after_change, members_of
from nextgen.replication.retention.named_readers import check_reader
from nextgen.replication.retention.subscriptions import ListenerSet, ProgressWaiters, call_listener
from nextgen.replication.view.digest import batches_of

DEFAULT_GROUP_ID = GroupId(1)
DEFAULT_NODE_ID = NodeId("node-1")

Pending = tuple[Record, "asyncio.Future[Commit]"]


class _MemoryPin:
    """A ``LogPin``; one of memory is never broken."""

    is_broken = False

    def __init__(self, name: str, position: int, pins: list[_MemoryPin]) -> None:
        self.name = name
        self.position = position
        self._pins = pins

    def advance(self, position: int) -> None:
        self.position = max(self.position, position)

    def release(self) -> None:
        if self in self._pins:
            self._pins.remove(self)


class MemoryLog:
    """A ``ReplicatedLog`` whose moods a test decides. Applies on the loop, not on a thread.

    ``leads`` says whether it leads from the start. What ``state_machine`` has applied
    already counts as compacted, as after a restart from a snapshot.
    """

    def __init__(
        self,
        state_machine: StateMachine,
        *,
        group_id: GroupId = DEFAULT_GROUP_ID,
        node_id: NodeId = DEFAULT_NODE_ID,
        members: Sequence[NodeId] = (),
        leads: bool = True,
        snapshot_path: Path | None = None,
    ) -> None:
        self._state_machine = state_machine
        self._group_id = group_id
        self._node_id = node_id
        self._configuration = Configuration(tuple(sorted(members)) or (node_id,))
        self._snapshot_path = snapshot_path
        self._base = state_machine.applied()
        self._applied = self._base
        self._entries: list[Entry] = []
        self._pins: list[_MemoryPin] = []
        self._readers: dict[str, tuple[_MemoryPin, int]] = {}
        self.expedited = 0
        self.event_levels: dict[NodeId, int] = {}
        """What members are known to know; those that are not here know as much as this program."""
        self._queue: list[Pending] = []
        self._queue_bytes = 0
        self._flush_scheduled = False
        self._commits_held = False
        self._applies_held = False
        self._quorum_lost = False
        self._elections = 0
        self._term = self._base.term
        self._role = Role.FOLLOWER
        self._leader_id: NodeId | None = None
        self._commit_listeners: ListenerSet[Sequence[Entry]] = ListenerSet()
        self._position_listeners: ListenerSet[tuple[int, int]] = ListenerSet()
        self._role_listeners: ListenerSet[RoleChange] = ListenerSet()
        self._index_waiters = ProgressWaiters(self._base.index)
        self._position_waiters = ProgressWaiters(self._base.position)
        if leads:
            self.become_leader()

    def __repr__(self) -> str:
        return (
            f"<MemoryLog group={self._group_id} role={self._role} term={self._term} "
            f"last={self._last_index} applied={self._applied.index} queued={len(self._queue)}>"
        )

    # What a test decides ----------------------------------------------------------------------

    def hold_commits(self) -> None:
        """Let proposals wait until ``release_commits``."""
        self._commits_held = True

    def release_commits(self) -> None:
        """Commit the pending records, and from here on each one at once."""
        self._commits_held = False
        self._flush()

    def hold_applies(self) -> None:
        """Let the view fall behind: commits go on, applies wait."""
        self._applies_held = True

    def release_applies(self) -> None:
        """Apply what waits, and from here on everything as it is committed."""
        self._applies_held = False
        self._apply()

    def lose_quorum(self) -> None:
        """Make ``read_index`` fail while this replica still believes that it leads."""
        self._quorum_lost = True

    def lose_leadership(
        self, leader_id: NodeId | None = None, *, pending_survives: bool = False
    ) -> None:
        """Let ``leader_id`` lead the next term; proposals in flight fail as lost.

        ``pending_survives`` commits them all the same, as a real successor may.
        """
        records = [record for record, _ in self._queue]
        self._fail_pending("leadership moved")
        self._term += 1
        self._set_role(Role.FOLLOWER, leader_id)
        self._append(())
        if pending_survives and records:
            self._append(tuple(records))

    def become_leader(self) -> None:
        """Win the next term: writes its empty entry, applies it, then tells the listeners."""
        self._fail_pending("leadership moved")
        self._term += 1
        self._elections += 1
        self._quorum_lost = False
        self._append(())
        held, self._applies_held = self._applies_held, False
        self._apply()
        self._applies_held = held
        self._set_role(Role.LEADER, self._node_id)

    def fork(self, state_machine: StateMachine) -> MemoryLog:
        """Return the log of another replica that has everything which is committed here; it
        follows nobody yet. ``state_machine`` is new, and nothing was compacted here."""
        assert not self._base.index, "entries are gone"
        other = MemoryLog(
            state_machine,
            group_id=self._group_id,
            members=self._configuration.voters,
            leads=False,
        )
        other._entries = list(self._entries)
        other._term = self._term
        other._apply()
        return other

    # The port ---------------------------------------------------------------------------------

    @property
    def status(self) -> LogStatus:
        return LogStatus(
            group_id=self._group_id,
            role=self._role,
            term=self._term,
            leader_id=self._leader_id,
            members=self._configuration.voters,
            last_index=self._last_index,
            commit_index=self._last_index,
            commit_position=self._next_position - 1,
            applied=self._applied,
            first_position=self._base.position + 1,
            view_lag_ms=0.0,
            journal_bytes=sum(len(r.payload) for entry in self._entries for r in entry.records),
            elections=self._elections,
            log_pins=len(self._pins),
            learners=self._configuration.learners,
            configuration_index=self._configuration.index,
            progress=self._progress(),
        )

    @property
    def is_leader(self) -> bool:
        return self._role is Role.LEADER

    @property
    def commit_position(self) -> int:
        return self._next_position - 1

    @property
    def applied_point(self) -> AppliedPoint:
        return self._applied

    @property
    def hears_leader(self) -> bool:
        return self._role is not Role.STOPPED and self._leader_id is not None

    @property
    def event_level(self) -> int:
        return min(map(self._event_level_of, members_of(self._configuration)))

    def behind_event_level(self, level: int) -> Sequence[NodeId]:
        members = members_of(self._configuration)
        return tuple(member for member in members if self._event_level_of(member) < level)

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        if not self.is_leader:
            raise NotLeader(self._group_id, self._leader_id)
        check_record(record)
        if self._queue_bytes + len(record.payload) > PROPOSE_QUEUE_BYTES_MAX:
            raise Overloaded(f"group {self._group_id}: the propose queue is full")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Commit] = loop.create_future()
        self._queue.append((record, future))
        self._queue_bytes += len(record.payload)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            loop.call_soon(self._flush)
        return future

    async def read_index(self, *, asked_at: float | None = None) -> int:
        if not self.is_leader or self._quorum_lost:
            raise NotLeader(self._group_id, None if self._quorum_lost else self._leader_id)
        index = self._last_index
        await asyncio.sleep(0)
        if not self.is_leader:
            raise NotLeader(self._group_id, self._leader_id)
        return index

    async def wait_applied(self, index: int) -> None:
        self._check_running()
        await self._index_waiters.wait(index)

    async def wait_position(self, position: int) -> None:
        self._check_running()
        await self._position_waiters.wait(position)

    def read(self, from_position: int, *, events_max: int, bytes_max: int) -> Sequence[Entry]:
        oldest = self._base.position + 1
        if from_position < oldest:
            raise PositionCompacted(from_position, oldest)
        if from_position >= self._next_position:
            return ()
        # The last entry that begins at or before the position; one without events shares its
        # position with the entry behind it, and is never the one that holds it.
        start = bisect_right(self._entries, from_position, key=lambda e: e.first_position) - 1
        return _limited_run(self._entries[start:], events_max=events_max, bytes_max=bytes_max)

    def on_commit(self, listener: Callable[[Sequence[Entry]], None]) -> Callable[[], None]:
        return self._commit_listeners.add(listener)

    def on_commit_positions(self, listener: Callable[[int, int], None]) -> Callable[[], None]:
        return self._position_listeners.add(lambda positions: listener(*positions))

    def expedite_commits(self) -> Callable[[], None]:
        """Every commit is known at once here; what counts is that each call is ended."""
        self.expedited += 1

        def end() -> None:
            self.expedited -= 1

        return end

    def on_role_change(self, listener: Callable[[RoleChange], None]) -> Callable[[], None]:
        unsubscribe = self._role_listeners.add(listener)
        call_listener(listener, RoleChange(self._term, self._role, self._leader_id))
        return unsubscribe

    async def transfer_leadership(self, target: NodeId) -> None:
        if not self.is_leader:
            raise NotLeader(self._group_id, self._leader_id)
        if target == self._node_id:
            return
        if target not in self._configuration.voters:
            raise TransferFailed(f"{target} is not a member of group {self._group_id}")
        self.release_commits()
        self.lose_leadership(target)

    async def change_members(self, change: MemberChange) -> Configuration:
        """Every learner has caught up here, and every change is committed at once."""
        if not self.is_leader:
            raise NotLeader(self._group_id, self._leader_id)
        present = self._configuration
        self._configuration = after_change(present, change, index=self._last_index + 1)
        if self._configuration is not present:
            self._append(())
        await asyncio.sleep(0)
        made = self._configuration
        others = [voter for voter in made.voters if voter != self._node_id]
        if self._node_id not in made.voters:
            self.lose_leadership(others[0])
            self._set_role(Role.LEARNER, others[0])
        return made

    async def compact(self) -> AppliedPoint:
        self._check_running()
        point = self._state_machine.make_durable()
        if self._snapshot_path is not None:
            point = self._state_machine.write_snapshot(self._snapshot_path)
        kept = min([point.position + 1, *(pin.position for pin in self._pins)])
        while self._entries and self._entries[0].next_position <= kept:
            gone = self._entries[0]
            if gone.index > point.index:
                break
            del self._entries[0]
            self._base = AppliedPoint(gone.index, gone.term, gone.next_position - 1)
        return point

    def pin(self, name: str, position: int) -> LogPin:
        oldest = self._base.position + 1
        if position < oldest:
            raise PositionCompacted(position, oldest)
        if len(self._pins) >= LOG_PINS_MAX:
            raise Overloaded(f"{LOG_PINS_MAX} readers pin this log already")
        pin = _MemoryPin(name, position, self._pins)
        self._pins.append(pin)
        return pin

    async def pin_reader(self, reader_id: str, position: int, ttl_ms: int) -> None:
        check_reader(reader_id, position, ttl_ms)
        before = self._readers.pop(reader_id, None)
        if before is not None:
            position = max(position, before[0].position)
            before[0].release()
        if ttl_ms:
            pin = self.pin(reader_id, position)
            assert isinstance(pin, _MemoryPin)
            self._readers[reader_id] = (pin, ttl_ms)

    def readers(self) -> Sequence[LogReader]:
        """Time does not pass here: each one has all of its time left."""
        return tuple(
            LogReader(reader_id, pin.position, ttl_ms, is_broken=False)
            for reader_id, (pin, ttl_ms) in sorted(self._readers.items())
        )

    async def stop(self) -> None:
        if self._role is Role.STOPPED:
            return
        self._fail_pending("the replica stopped")
        self._set_role(Role.STOPPED, None)
        error = Unavailable(f"group {self._group_id}: the replica stopped")
        self._index_waiters.fail(error)
        self._position_waiters.fail(error)
        self._state_machine.close()

    # Inside -----------------------------------------------------------------------------------

    @property
    def _last_index(self) -> int:
        return self._base.index + len(self._entries)

    @property
    def _next_position(self) -> int:
        return self._entries[-1].next_position if self._entries else self._base.position + 1

    def _event_level_of(self, node_id: NodeId) -> int:
        return self.event_levels.get(node_id, EVENT_LEVEL)

    def _progress(self) -> tuple[MemberProgress, ...]:
        """The others, none of which exists, follow without delay."""
        if not self.is_leader:
            return ()
        return tuple(
            MemberProgress(node_id, True, self._last_index, self._applied.index, False)
            for node_id in members_of(self._configuration)
            if node_id != self._node_id
        )

    def _check_running(self) -> None:
        if self._role is Role.STOPPED:
            raise Unavailable(f"group {self._group_id}: the replica stopped")

    def _set_role(self, role: Role, leader_id: NodeId | None) -> None:
        self._role = role
        self._leader_id = leader_id
        self._role_listeners.tell(RoleChange(self._term, role, leader_id))

    def _fail_pending(self, why: str) -> None:
        pending, self._queue = self._queue, []
        self._queue_bytes = 0
        for _, future in pending:
            if not future.done():
                future.set_exception(ProposalLost(f"group {self._group_id}: {why}"))

    def _flush(self) -> None:
        self._flush_scheduled = False
        while self._queue and not self._commits_held and self.is_leader:
            batch = self._queue[:ENTRY_RECORDS_MAX]
            del self._queue[: len(batch)]
            self._queue_bytes -= sum(len(record.payload) for record, _ in batch)
            position = self._next_position
            entry = self._append(tuple(record for record, _ in batch))
            for record, future in batch:
                if not future.done():
                    future.set_result(Commit(entry.index, entry.term, position))
                position += record.events

    def _append(self, records: Sequence[Record]) -> Entry:
        entry = Entry(self._last_index + 1, self._term, self._next_position, tuple(records))
        self._entries.append(entry)
        self._position_listeners.tell((entry.first_position, entry.next_position - 1))
        self._commit_listeners.tell((entry,))
        self._apply()
        return entry

    def _apply(self) -> None:
        waiting = self._entries[self._applied.index - self._base.index :]
        if self._applies_held or not waiting:
            return
        for batch in batches_of(waiting, self._applied.position):
            self._state_machine.apply(batch)
        last = waiting[-1]
        self._applied = AppliedPoint(last.index, last.term, last.next_position - 1)
        self._index_waiters.advance(self._applied.index)
        self._position_waiters.advance(self._applied.position)


def _limited_run(entries: Sequence[Entry], *, events_max: int, bytes_max: int) -> Sequence[Entry]:
    """Return the first of ``entries`` and as many after it as stay within both limits."""
    run: list[Entry] = []
    events = 0
    size = 0
    for entry in entries:
        events += entry.next_position - entry.first_position
        size += sum(len(record.payload) for record in entry.records)
        if run and (events > events_max or size > bytes_max):
            break
        run.append(entry)
    return run
