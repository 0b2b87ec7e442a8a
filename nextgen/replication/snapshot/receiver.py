"""The receiving half of snapshot transfer: chunks are stored in order, then installed.

Each chunk is answered with the offset wanted next. The whole snapshot is checked before it replaces
anything; a damaged one is dropped and requested again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from crc32c import crc32c

from nextgen.kernel.limits.snapshot import SNAPSHOT_ALIVE_MS, SNAPSHOT_CHUNKS_WAITING_MAX
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import AppliedPoint, NodeId, StateMachine
from nextgen.replication.protocol.membership import decode_if_known
from nextgen.replication.protocol.messages import CONFIGURATION_FIELD
from nextgen.replication.raft.replica import RaftReplica
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.replication.snapshot.partial import SnapshotDamaged, SnapshotIdentity
from nextgen.replication.view.turns import ViewTurns
from nextgen.tasks.background import join, start

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class SnapshotReceiver:
    """See the module. ``on_broken`` gets errors that must not happen."""

    def __init__(
        self,
        replica: RaftReplica,
        state_machine: StateMachine,
        files: SnapshotFiles,
        executor: Executor,
        *,
        turns: ViewTurns,
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._replica = replica
        self._state_machine = state_machine
        self._files = files
        self._executor = executor
        self._turns = turns
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[tuple[NodeId, Message]] = asyncio.Queue(
            maxsize=SNAPSHOT_CHUNKS_WAITING_MAX
        )
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def on_chunk(self, sender: NodeId, message: Message) -> None:
        """Store a chunk; the sender repeats one that cannot be stored now."""
        is_late = message["term"] < self._replica.core.term
        if is_late or self._chunks.full() or self._stopping:
            return
        self._chunks.put_nowait((sender, message))
        if self._task is None:
            self._task = start("snapshot_receive", self._receive())
            self._task.add_done_callback(self._done)

    def abandon(self) -> list[asyncio.Task[None]]:
        """Cancel the transfer under way; return the cancelled tasks."""
        self._stopping = True
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    async def suspend(self) -> None:
        """Keep the received part for the next start."""
        try:
            await self._blocking(self._files.partial.suspend)
        except OSError as error:
            _logger.warning("group %s: %s", self._replica.group_id, error)

    # Inside -----------------------------------------------------------------------------------

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert isinstance(error, Exception)
            self._on_broken(error)

    async def _receive(self) -> None:
        while not self._chunks.empty():
            sender, message = self._chunks.get_nowait()
            try:
                await self._take_in(sender, message)
            except (OSError, SnapshotDamaged) as error:
                _logger.warning(
                    "group %s: a snapshot was not stored: %s", self._replica.group_id, error
                )
                await self._blocking(self._files.partial.drop)
                self._answer(sender, message)

    async def _take_in(self, sender: NodeId, message: Message) -> None:
        identity = _identity_in(message)
        point, partial, data = identity.point, self._files.partial, message["data"]
        if point.index <= self._replica.applier.applied.index:
            await self._blocking(partial.drop_if_behind, point.index)
            self._answer(sender, message, installed=True)
            return
        if point.index < self._replica.journal.base_index:
            return  # This log, which is sound, would not continue it. A later copy is asked for.
        if message["offset"] == 0 and not data:
            complete = await self._blocking(self._files.find, identity)
            if complete is not None:
                await self._finish(sender, message, self._install(complete, message))
                return
            await self._blocking(partial.begin, identity)
        is_next = partial.holds(identity) and message["offset"] == partial.offset
        if is_next and data and crc32c(data) == message["checksum"]:
            await self._blocking(partial.receive, data)
        if partial.holds(identity) and partial.offset >= identity.length:
            await self._finish(sender, message, self._publish_and_install(message))
        else:
            self._answer(sender, message)

    async def _finish(
        self, sender: NodeId, message: Message, installation: Coroutine[Any, Any, None]
    ) -> None:
        """Carry ``installation`` out; report to the sender from time to time that it is in
        progress."""
        work = join(installation)
        try:
            while not work.done():
                await asyncio.wait([work], timeout=SNAPSHOT_ALIVE_MS / 1000)
                if not work.done():
                    self._answer(sender, message, installing=True)
        finally:
            if not work.done():
                work.cancel()
        work.result()
        self._replica.journal.when_durable(lambda: self._answer(sender, message, installed=True))

    async def _publish_and_install(self, message: Message) -> None:
        point = _identity_in(message).point
        path = await self._blocking(self._files.finish_receiving, point)
        await self._install(path, message)

    async def _install(self, path: Path, message: Message) -> None:
        replica, point = self._replica, _identity_in(message).point
        replica.installing = True
        try:
            held = decode_if_known(message.get(CONFIGURATION_FIELD, b""))
            await replica.expect_snapshot(point, held)
            await replica.applier.pause()
            installed = await self._turns.run(self._state_machine.install_snapshot, path)
            if not replica.stopped:
                replica.adopt_snapshot(installed)
            await self._blocking(self._files.drop_up_to, installed.index)
        except OSError:
            replica.applier.resume_from(replica.applier.applied)
            raise
        finally:
            replica.installing = False

    def _answer(
        self,
        sender: NodeId,
        message: Message,
        *,
        installed: bool = False,
        installing: bool = False,
    ) -> None:
        partial = self._files.partial
        answer: Message = {
            "type": "snapshot_answer",
            "term": message["term"],
            "index": message["index"],
            "offset": partial.offset if partial.holds(_identity_in(message)) else 0,
            "installed": installed,
            "round": message["round"],
        }
        if installing:
            answer["installing"] = True
        self._replica.send(sender, answer)

    async def _blocking(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._executor, work, *arguments)


def _identity_in(chunk: Message) -> SnapshotIdentity:
    point = AppliedPoint(chunk["index"], chunk["index_term"], chunk["position"])
    return SnapshotIdentity(point, chunk["total"], chunk["file_checksum"])
