"""The log of one replica, cut behind its view, and copies of the view for followers that lack more.

the log has grown, or rests ──▶ view durable, off the loop ──▶ log cut behind it
a follower is behind the cut ──▶ a copy of the view ──▶ ``SnapshotSender`` ~~~ ``SnapshotReceiver``

The view is its own snapshot: a copy is written when a follower needs it, and removed behind it
(ADR 0165).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from nextgen.kernel.limits.snapshot import LOG_REST_MS
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import AppliedPoint, NodeId, StateMachine
from nextgen.replication.raft.replica import RaftReplica
from nextgen.replication.retention.log_retention import LogRetention
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.replication.snapshot.receiver import SnapshotReceiver
from nextgen.replication.snapshot.sender import SnapshotSender
from nextgen.replication.view.turns import ViewTurns
from nextgen.tasks.background import start

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class SnapshotTransfer:
    """The compaction of one replica's log, and its snapshots.

    ``executor`` makes views durable and copies them, ``transfer_executor`` moves chunks, each one
    thing at a time for all groups of the process; ``transfers`` bounds how many are sent at once.
    """

    def __init__(
        self,
        replica: RaftReplica,
        state_machine: StateMachine,
        files: SnapshotFiles,
        executor: Executor,
        *,
        transfer_executor: Executor,
        turns: ViewTurns,
        transfers: asyncio.Semaphore,
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._replica = replica
        self._state_machine = state_machine
        self._files = files
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # However often a replica is restarted, its log does not grow for longer.
        self._journal_bytes_before = 0
        self._compacted_index = 0
        self._seen: tuple[int, float] = (0, 0.0)  # The log's last index, and since when.
        self._compacting = asyncio.Lock()
        self._writing = asyncio.Lock()
        self.retention = LogRetention(replica.journal, replica.config.pinned_log_bytes_max)
        """The pins of the log; it cuts the log."""
        self._sender = SnapshotSender(
            replica,
            files,
            self.retention,
            transfer_executor,
            write=self._write,
            transfers=transfers,
        )
        self._receiver = SnapshotReceiver(
            replica,
            state_machine,
            files,
            transfer_executor,
            turns=turns,
            on_broken=on_broken,
        )

    @property
    def files(self) -> SnapshotFiles:
        """The complete copies; calls block."""
        return self._files

    async def stop(self) -> None:
        """Cancel every transfer and wait for disk operations."""
        tasks = self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._compacting, self._writing:
            await self._receiver.suspend()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Cancel every transfer; return the tasks that end by it."""
        self.retention.stop()
        for task in self._tasks:
            task.cancel()
        return [*self._tasks, *self._sender.abandon(), *self._receiver.abandon()]

    async def compact(self) -> AppliedPoint:
        """Make the view durable, cut the journal behind it, and return the durable point."""
        async with self._compacting:
            replica = self._replica
            compacted_index = replica.journal.last_index
            point = await self._blocking(self._state_machine.make_durable)
            replica.statistics.compactions += 1
            if not replica.stopped:
                tail_entries = replica.config.log_tail_entries
                self.retention.view_durable(point.index, tail_entries=tail_entries)
                replica.journal.flush()
                await self.retention.wait_cut()
                self._journal_bytes_before = replica.journal.bytes_on_disk
                self._compacted_index = compacted_index
                # No follower can go on behind a copy that the log does not continue.
                await self._blocking(self._files.drop_up_to, replica.journal.base_index - 1)
            return point

    def compact_if_due(self) -> None:
        """Begin to compact when the journal has grown enough since the last time."""
        grown = self._replica.journal.bytes_on_disk - self._journal_bytes_before
        if grown > self._replica.config.snapshot_journal_bytes:
            self._begin_to_compact()

    def compact_if_at_rest(self) -> None:
        """Begin to compact when nothing was appended for a while: what rests takes no more disk
        than it must. Called from time to time."""
        last_index, now = self._replica.journal.last_index, self._loop.time()
        if last_index != self._seen[0]:
            self._seen = last_index, now
        elif last_index > self._compacted_index and now - self._seen[1] >= LOG_REST_MS / 1000:
            self._begin_to_compact()

    def send_to(self, follower: NodeId) -> None:
        """Start to send a snapshot to ``follower``, unless that is under way."""
        self._sender.send_to(follower)

    def peer_lost(self, node_id: NodeId) -> None:
        """Stop waiting for ``node_id``, whose connection broke."""
        self._sender.peer_lost(node_id)

    def on_message(self, kind: str, sender: NodeId, message: Message) -> None:
        """Handle a chunk or the answer to one."""
        if kind == "snapshot_answer":
            self._sender.on_answer(sender, message)
        else:
            self._receiver.on_chunk(sender, message)

    # Inside -----------------------------------------------------------------------------------

    def _begin_to_compact(self) -> None:
        if not self._compacting.locked() and not self._replica.stopped:
            start("compact", self._compact_quietly(), self._tasks)

    async def _compact_quietly(self) -> None:
        try:
            await self.compact()
        except OSError as error:
            _logger.warning(
                "group %s: the view is not durable: %s; the journal keeps growing",
                self._replica.group_id,
                error,
            )
            self._journal_bytes_before = self._replica.journal.bytes_on_disk
            self._compacted_index = self._replica.journal.last_index

    async def _write(self) -> None:
        """Write a copy of the view for followers."""
        async with self._writing:
            began = self._loop.time()
            await self._blocking(self._files.write, self._state_machine)
            statistics = self._replica.statistics
            statistics.snapshots += 1
            statistics.last_snapshot_ms = (self._loop.time() - began) * 1000

    async def _blocking(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._executor, work, *arguments)
