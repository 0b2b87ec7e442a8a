"""The sending half of snapshot transfer: one snapshot to each follower that needs one.

    offer (an empty chunk)  ──▶  what do you have of it?
                            ◀──  the offset wanted next: 0, or where an earlier transfer ended
    chunk, chunk, chunk ... ──▶  a few ahead of their answers
                            ◀──  the offset wanted next, for each
                            ◀──  installed

A *round* begins with an offer. An unexpected answer begins the next round at the receiver's offset;
later answers of an earlier round are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from nextgen.kernel.limits.snapshot import (
    SNAPSHOT_CHUNKS_IN_FLIGHT_MAX,
    SNAPSHOT_FOLLOW_MS,
    SNAPSHOT_RETRY_MS,
    SNAPSHOT_REWINDS_MAX,
    SNAPSHOT_SILENCE_MS_MAX,
)
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.membership import encode_configuration
from nextgen.replication.protocol.messages import CONFIGURATION_FIELD
from nextgen.replication.raft.replica import RaftReplica
from nextgen.replication.raft.replicator import FollowerProgress
from nextgen.replication.retention.log_retention import LogRetention, Pin
from nextgen.replication.snapshot.files import Snapshot, SnapshotFiles
from nextgen.replication.snapshot.partial import SnapshotDamaged, SnapshotIdentity
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class TransferFailedError(Exception):
    """A transfer was interrupted; the receiver keeps its part, and the next transfer continues
    it."""


class OutgoingSnapshot:
    """Computes the next chunk, without I/O. ``length`` is that of the whole file."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._expected: deque[int | None] = deque()  # Offsets in answers; None is any.
        self.round = 0
        self.next_offset = 0
        self.needs_offer = True
        self.is_installed = False
        self.rewinds = 0

    def __repr__(self) -> str:
        return f"<OutgoingSnapshot {self.next_offset}/{self._length} in_flight={self.in_flight}>"

    @property
    def is_interrupted(self) -> bool:
        """Whether a part of it was sent, and not all."""
        return self.next_offset > 0 and not self.is_installed

    @property
    def in_flight(self) -> int:
        """Chunks that were sent and not answered."""
        return len(self._expected)

    @property
    def may_send(self) -> bool:
        is_offering = self.needs_offer or None in self._expected
        has_room = self.in_flight < SNAPSHOT_CHUNKS_IN_FLIGHT_MAX
        return not is_offering and self.next_offset < self._length and has_room

    def offered(self) -> None:
        """Note that an offer was sent, which begins a round."""
        self.round += 1
        self.needs_offer = False
        self._expected.clear()
        self._expected.append(None)

    def sent(self, length: int) -> None:
        """A chunk of ``length`` bytes at ``next_offset`` is sent."""
        self.next_offset += length
        self._expected.append(self.next_offset)

    def silent(self) -> None:
        """After a long silence, request the receiver's offset again."""
        self.needs_offer = True

    def answered(self, message: Message) -> bool:
        """Handle a ``snapshot_answer``; return False if it belongs to an earlier round."""
        if message["round"] != self.round:
            return False
        if message["installed"]:
            self.is_installed = True
        elif not message.get("installing") and self._expected:
            self._continue_at(self._expected.popleft(), min(message["offset"], self._length))
        return True

    def _continue_at(self, expected: int | None, wanted: int) -> None:
        if expected == wanted:
            return
        self.next_offset = wanted
        if expected is not None:
            self.rewinds += 1
            self._expected.clear()
            self.needs_offer = True


class _Transfer:
    """One transfer under way."""

    def __init__(
        self,
        snapshot: Snapshot,
        identity: SnapshotIdentity,
        pin: Pin,
        configuration: Configuration | None,
    ) -> None:
        self.snapshot = snapshot
        self.identity = identity
        self.configuration = configuration
        self.pin = pin
        self.state = OutgoingSnapshot(identity.length)
        self.heard = asyncio.Event()
        self.silent_ms = 0
        self.is_connection_lost = False


class SnapshotSender:
    """See the module. ``write`` writes a snapshot; ``transfers`` is shared by all groups."""

    def __init__(
        self,
        replica: RaftReplica,
        files: SnapshotFiles,
        retention: LogRetention,
        executor: Executor,
        *,
        write: Callable[[], Coroutine[Any, Any, None]],
        transfers: asyncio.Semaphore,
    ) -> None:
        self._replica = replica
        self._files = files
        self._retention = retention
        self._executor = executor
        self._write = write
        self._transfers = transfers
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._under_way: dict[NodeId, _Transfer] = {}

    def send_to(self, follower: NodeId) -> None:
        """Start to send a snapshot to ``follower``, unless that is under way."""
        if follower not in self._tasks:
            self._tasks[follower] = start("snapshot_send", self._send(follower))

    def peer_lost(self, node_id: NodeId) -> None:
        """Stop waiting for ``node_id``, whose connection broke."""
        transfer = self._under_way.get(node_id)
        if transfer is not None:
            transfer.is_connection_lost = True
            transfer.heard.set()

    def on_answer(self, sender: NodeId, message: Message) -> None:
        transfer = self._under_way.get(sender)
        is_ours = transfer is not None and message["index"] == transfer.identity.point.index
        if transfer is not None and is_ours and transfer.state.answered(message):
            transfer.heard.set()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Cancel every transfer; return the tasks that end by it."""
        tasks = [*self._tasks.values(), *self._following]
        for task in tasks:
            task.cancel()
        return tasks

    # Inside -----------------------------------------------------------------------------------

    async def _send(self, follower: NodeId) -> None:
        installed: int | None = None
        try:
            async with self._transfers:
                installed = await self._transfer(follower)
        except (OSError, TransferFailedError, SnapshotDamaged) as error:
            _logger.warning(
                "group %s: the snapshot for %s was not sent: %s",
                self._replica.group_id,
                follower,
                error,
            )
            await asyncio.sleep(SNAPSHOT_RETRY_MS / 1000)
        finally:
            # Before the kick: a transfer that it starts must not find this one under way.
            self._tasks.pop(follower, None)
        progress = self._progress_of(follower)
        if progress is None:
            return
        progress.needs_snapshot = False
        if installed is not None:
            progress.matched(installed)
        self._replica.kick()

    def _progress_of(self, follower: NodeId) -> FollowerProgress | None:
        leadership = self._replica.leadership
        return leadership.replicator.followers.get(follower) if leadership else None

    async def _transfer(self, follower: NodeId) -> int | None:
        """Return the index the follower has installed, None if leadership ended first."""
        async with self._held_snapshot(follower) as transfer:
            self._under_way[follower] = transfer
            try:
                while not transfer.state.is_installed:
                    leadership = self._replica.leadership
                    if leadership is None:
                        return None
                    await self._send_what_may(follower, transfer, leadership.term)
                    await self._wait_answer(follower, transfer)
            finally:
                del self._under_way[follower]
            self._keep_what_follows(follower, transfer.identity.point.index + 1)
            return transfer.identity.point.index

    def _keep_what_follows(self, follower: NodeId, first_index: int) -> None:
        """Retain the log from ``first_index`` on until the follower has caught up: otherwise the
        next compaction would make it need another snapshot."""
        pin = self._retention.hold_entries(f"{follower} follows", first_index)
        start("snapshot_follow", self._let_follow(follower, pin), self._following)

    async def _let_follow(self, follower: NodeId, pin: Pin) -> None:
        goal = self._replica.journal.last_index
        try:
            matched_before, matched = -1, 0
            while matched_before < matched < goal and not pin.is_broken:
                await asyncio.sleep(SNAPSHOT_FOLLOW_MS / 1000)
                progress = self._progress_of(follower)
                if progress is None or not progress.connected:
                    return
                matched_before, matched = matched, progress.match_index
                pin.move_to(matched + 1)
        finally:
            pin.release()

    @asynccontextmanager
    async def _held_snapshot(self, follower: NodeId) -> AsyncIterator[_Transfer]:
        """Yield a snapshot, which is kept with the log behind it until the transfer is over.

        It stays longer only if the follower has a part of it, to go on with the rest.
        """
        # Before the copy is written: it will have at least what the log begins with now.
        base_index = self._replica.journal.base_index
        pin = self._retention.hold_entries(f"snapshot for {follower}", base_index + 1)
        transfer: _Transfer | None = None
        try:
            snapshot = await self._hold(base_index)
            try:
                configuration = self._replica.journal.configuration_at(snapshot.point.index)
                pin.move_to(snapshot.point.index + 1)
                identity = await self._blocking(self._files.identity_of, snapshot)
                transfer = _Transfer(snapshot, identity, pin, configuration)
                yield transfer
            finally:
                keeps = transfer is not None and transfer.state.is_interrupted
                self._executor.submit(partial(self._files.release, keeps=keeps))
        finally:
            pin.release()

    async def _hold(self, index_min: int) -> Snapshot:
        snapshot = await self._blocking(self._files.hold, index_min)
        if snapshot is None:
            await self._write()
            snapshot = await self._blocking(self._files.hold, index_min)
        if snapshot is None:
            raise TransferFailedError("an outdated one is still being sent to another follower")
        return snapshot

    async def _send_what_may(self, follower: NodeId, transfer: _Transfer, term: int) -> None:
        state = transfer.state
        if state.needs_offer:
            state.offered()
            self._send_chunk(follower, transfer, term, 0, b"", 0)
        while state.may_send:
            round_number, offset = state.round, state.next_offset
            data, checksum = await self._blocking(
                self._files.read_chunk,
                transfer.snapshot.path,
                offset,
                self._replica.config.snapshot_chunk_bytes,
            )
            if not data:
                raise SnapshotDamaged(f"{transfer.snapshot.path} is shorter than it was")
            if (round_number, offset) == (state.round, state.next_offset) and state.may_send:
                state.sent(len(data))
                self._send_chunk(follower, transfer, term, offset, data, checksum)

    def _send_chunk(
        self,
        follower: NodeId,
        transfer: _Transfer,
        term: int,
        offset: int,
        data: bytes,
        checksum: int,
    ) -> None:
        identity = transfer.identity
        message = {
            "type": "snapshot_chunk",
            "term": term,
            "index": identity.point.index,
            "index_term": identity.point.term,
            "position": identity.point.position,
            "offset": offset,
            "total": identity.length,
            "data": data,
            "checksum": checksum,
            "file_checksum": identity.checksum,
            "round": transfer.state.round,
        }
        if transfer.configuration is not None:
            message[CONFIGURATION_FIELD] = encode_configuration(transfer.configuration)
        if not self._replica.send(follower, message):
            raise TransferFailedError("the connection is gone")

    async def _wait_answer(self, follower: NodeId, transfer: _Transfer) -> None:
        """Return when a message arrived, or when the offset has to be requested."""
        deadline_ms = self._replica.config.snapshot_chunk_deadline_ms
        while not transfer.heard.is_set() and not transfer.state.needs_offer:
            try:
                async with timeout(SNAPSHOT_SILENCE_MS_MAX / 1000):
                    await transfer.heard.wait()
            except TimeoutError:
                transfer.silent_ms += SNAPSHOT_SILENCE_MS_MAX
                if transfer.silent_ms >= deadline_ms:
                    raise TransferFailedError("no answer in time") from None
                transfer.state.silent()
        if transfer.heard.is_set():
            transfer.silent_ms = 0
            transfer.heard.clear()
        if transfer.is_connection_lost:
            raise TransferFailedError("the connection is gone")
        if transfer.pin.is_broken:
            raise TransferFailedError("it took so long that the log behind it was cut")
        if transfer.state.rewinds > SNAPSHOT_REWINDS_MAX:
            raise TransferFailedError(f"{follower} takes it in wrong again and again")

    async def _blocking(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._executor, work, *arguments)
