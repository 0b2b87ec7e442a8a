"""Snapshots in motion: written, sent by chunks, received and installed.

One chunk is in flight at a time; each carries a checksum and its answer the offset wanted
next. A follower that was interrupted starts again from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crc32c import crc32c

from nextgen.replication.mesh_frames import Message
from nextgen.replication.ports import AppliedPoint, NodeId, StateMachine
from nextgen.replication.raft_replica import RaftReplica
from nextgen.replication.snapshot_files import SnapshotFiles

T = TypeVar("T")

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Incoming:
    """What is being received."""

    sender: NodeId
    point: AppliedPoint
    total: int
    offset: int = 0


class SnapshotTransfer:
    """The snapshots of one replica. ``executor`` runs what touches the disk, one at a time."""

    def __init__(
        self,
        replica: RaftReplica,
        state_machine: StateMachine,
        files: SnapshotFiles,
        executor: Executor,
        *,
        apply_executor: Executor,
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._replica = replica
        self._state_machine = state_machine
        self._files = files
        self._executor = executor
        self._apply_executor = apply_executor
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._senders: dict[NodeId, asyncio.Task[None]] = {}
        self._answers: dict[NodeId, asyncio.Future[Message]] = {}
        self._incoming: _Incoming | None = None
        self._chunks: asyncio.Queue[tuple[NodeId, Message]] = asyncio.Queue(maxsize=4)
        self._receiver: asyncio.Task[None] | None = None
        self._journal_bytes_before = replica.journal.bytes_on_disk
        self._writing = asyncio.Lock()

    async def stop(self) -> None:
        """Cancel every transfer and wait for what touches the disk."""
        tasks = self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._writing:
            await self._blocking(self._files.abandon_receiving)

    def abandon(self) -> list[asyncio.Task[None]]:
        """Cancel every transfer; return the tasks that end by it."""
        tasks = [*self._tasks, *self._senders.values()]
        if self._receiver is not None:
            tasks.append(self._receiver)
        for task in tasks:
            task.cancel()
        return tasks

    # Writing ----------------------------------------------------------------------------------

    async def take(self) -> AppliedPoint:
        """Write a snapshot and cut the journal behind it."""
        async with self._writing:
            point = await self._blocking(self._files.write, self._state_machine)
            durable = await self._blocking(self._state_machine.make_durable)
            self._replica.statistics.snapshots += 1
            journal = self._replica.journal
            kept = min(point.index, durable.index) - self._replica.config.snapshot_tail_entries
            if not self._replica.stopped:
                journal.cut_before(max(journal.first_index, kept + 1))
                journal.flush()
                self._journal_bytes_before = journal.bytes_on_disk
            return point

    def take_if_due(self) -> None:
        """Start a snapshot when the journal has grown enough since the last one."""
        grown = self._replica.journal.bytes_on_disk - self._journal_bytes_before
        if grown <= self._replica.config.snapshot_journal_bytes or self._writing.locked():
            return
        self._own(self._loop.create_task(self._take_quietly()))

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

    # Sending ----------------------------------------------------------------------------------

    def send_to(self, follower: NodeId) -> None:
        """Start to send the newest snapshot to ``follower``, unless that is under way."""
        if follower not in self._senders:
            task = self._loop.create_task(self._send(follower))
            self._senders[follower] = task

    def peer_lost(self, node_id: NodeId) -> None:
        """Give up waiting for ``node_id``: its connection is gone."""
        answer = self._answers.get(node_id)
        if answer is not None and not answer.done():
            answer.set_exception(TimeoutError("the connection is gone"))

    async def _send(self, follower: NodeId) -> None:
        try:
            installed = await self._send_chunks(follower)
        except (OSError, TimeoutError) as error:
            _logger.warning(
                "group %s: the snapshot for %s was not sent: %s",
                self._replica.group_id,
                follower,
                error or "no answer in time",
            )
            installed = None
        finally:
            # Before the kick: what it starts must not take this one for still under way.
            self._senders.pop(follower, None)
        leadership = self._replica.leadership
        if leadership is None:
            return
        progress = leadership.replicator.followers[follower]
        progress.needs_snapshot = False
        if installed is not None:
            progress.matched(installed)
        self._replica.kick()

    async def _send_chunks(self, follower: NodeId) -> int | None:
        """Return the index the follower has installed, None if leadership ended first."""
        path, point = await self._snapshot_to_send()
        total = await self._blocking(self._files.size, path)
        offset = 0
        while True:
            leadership = self._replica.leadership
            if leadership is None:
                return None
            data, checksum = await self._blocking(
                self._files.read_chunk, path, offset, self._replica.config.snapshot_chunk_bytes
            )
            answer = await self._exchange(
                follower,
                {
                    "type": "snapshot_chunk",
                    "term": leadership.term,
                    "index": point.index,
                    "index_term": point.term,
                    "position": point.position,
                    "offset": offset,
                    "total": total,
                    "data": data,
                    "checksum": checksum,
                },
            )
            if answer["installed"]:
                return point.index
            offset = min(answer["offset"], total)

    async def _snapshot_to_send(self) -> tuple[Path, AppliedPoint]:
        async with self._writing:
            newest = await self._blocking(self._files.newest)
        if newest is not None and newest[1].index >= self._replica.journal.base_index:
            return newest
        await self.take()
        newest = await self._blocking(self._files.newest)
        assert newest is not None, "a snapshot was just written"
        return newest

    async def _exchange(self, follower: NodeId, message: Message) -> Message:
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._answers[follower] = answer
        try:
            if not self._replica.send(follower, message):
                raise TimeoutError("the connection is gone")
            async with asyncio.timeout(self._replica.config.snapshot_chunk_deadline_ms / 1000):
                return await answer
        finally:
            self._answers.pop(follower, None)

    # Receiving --------------------------------------------------------------------------------

    def on_message(self, kind: str, sender: NodeId, message: Message) -> None:
        """Take in a chunk or the answer to one."""
        if kind == "snapshot_answer":
            answer = self._answers.get(sender)
            if answer is not None and not answer.done():
                answer.set_result(message)
            return
        if message["term"] < self._replica.core.term or self._chunks.full():
            return  # The sender asks again after its deadline.
        self._chunks.put_nowait((sender, message))
        if self._receiver is None:
            self._receiver = self._loop.create_task(self._receive())
            self._receiver.add_done_callback(self._receiver_done)

    def _receiver_done(self, task: asyncio.Task[None]) -> None:
        self._receiver = None
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert isinstance(error, Exception)
            self._on_broken(error)

    async def _receive(self) -> None:
        while not self._chunks.empty():
            sender, message = self._chunks.get_nowait()
            try:
                await self._receive_chunk(sender, message)
            except OSError as error:
                self._incoming = None
                _logger.warning(
                    "group %s: a snapshot was not stored: %s", self._replica.group_id, error
                )

    async def _receive_chunk(self, sender: NodeId, message: Message) -> None:
        point = AppliedPoint(message["index"], message["index_term"], message["position"])
        if point.index <= self._replica.applier.applied.index:
            self._answer(sender, message, installed=True)
            return
        if message["offset"] == 0:
            await self._blocking(self._files.begin_receiving)
            self._incoming = _Incoming(sender, point, message["total"])
        incoming = self._incoming
        if incoming is None or (incoming.sender, incoming.point) != (sender, point):
            self._answer(sender, message, installed=False)
            return
        data = message["data"]
        sound = crc32c(data) == message["checksum"] and message["offset"] == incoming.offset
        if sound:
            await self._blocking(self._files.receive_chunk, data, incoming.offset)
            incoming.offset += len(data)
        if incoming.offset >= incoming.total:
            await self._install(incoming)
            self._replica.journal.when_durable(
                lambda: self._answer(sender, message, installed=True)
            )
        else:
            self._answer(sender, message, installed=False)

    async def _install(self, incoming: _Incoming) -> None:
        self._incoming = None
        path = await self._blocking(self._files.finish_receiving, incoming.point)
        replica = self._replica
        replica.installing = True
        try:
            await replica.applier.pause()
            point = await self._loop.run_in_executor(
                self._apply_executor, self._state_machine.install_snapshot, path
            )
            if not replica.stopped:
                replica.adopt_snapshot(point)
        finally:
            replica.installing = False

    def _answer(self, sender: NodeId, message: Message, *, installed: bool) -> None:
        offset = self._incoming.offset if self._incoming is not None else 0
        self._replica.send(
            sender,
            {
                "type": "snapshot_answer",
                "term": message["term"],
                "index": message["index"],
                "offset": offset,
                "installed": installed,
            },
        )

    # Inside -----------------------------------------------------------------------------------

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _blocking(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._executor, work, *arguments)
