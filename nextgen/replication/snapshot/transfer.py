"""Snapshots of one replica: written when due, sent to followers, received from a leader.

the log has grown ──▶ written off the loop ──▶ view durable ──▶ log cut behind both
a follower is behind the cut ──▶ ``SnapshotSender`` ~~~ ``SnapshotReceiver`` ──▶ installed
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

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
    """The snapshots of one replica.

    ``executor`` writes them and ``transfer_executor`` moves their chunks, each one thing at a
    time for all groups of the process; ``transfers`` bounds how many are sent at once.
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
        self._writing = asyncio.Lock()
        self.retention = LogRetention(replica.journal, replica.config.pinned_log_bytes_max)
        """The pins of the log; it cuts the log."""
        self._sender = SnapshotSender(
            replica,
            files,
            self.retention,
            transfer_executor,
            take=self.take,
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
        async with self._writing:
            await self._receiver.suspend()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Cancel every transfer; return the tasks that end by it."""
        self.retention.stop()
        for task in self._tasks:
            task.cancel()
        return [*self._tasks, *self._sender.abandon(), *self._receiver.abandon()]

    async def take(self) -> AppliedPoint:
        """Write a snapshot and cut the journal behind it."""
        async with self._writing:
            began = self._loop.time()
            point = await self._blocking(self._files.write, self._state_machine)
            durable = await self._blocking(self._state_machine.make_durable)
            replica = self._replica
            replica.statistics.snapshots += 1
            replica.statistics.last_snapshot_ms = (self._loop.time() - began) * 1000
            if not replica.stopped:
                durable_index = min(point.index, durable.index)
                tail_entries = replica.config.snapshot_tail_entries
                self.retention.snapshot_taken(durable_index, tail_entries=tail_entries)
                replica.journal.flush()
                await self.retention.wait_cut()
                self._journal_bytes_before = replica.journal.bytes_on_disk
            return point

    def take_if_due(self) -> None:
        """Start a snapshot when the journal has grown enough since the last one."""
        grown = self._replica.journal.bytes_on_disk - self._journal_bytes_before
        if grown <= self._replica.config.snapshot_journal_bytes or self._writing.locked():
            return
        start("snapshot", self._take_quietly(), self._tasks)

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

    async def _take_quietly(self) -> None:
        try:
            await self.take()
        except OSError as error:
            _logger.warning(
                "group %s: no snapshot: %s; the journal keeps growing",
                self._replica.group_id,
                error,
            )
            self._journal_bytes_before = self._replica.journal.bytes_on_disk

    async def _blocking(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._executor, work, *arguments)
