"""One replica of three loses power at each of its operations in turn, and keeps every promise.

A scripted history (votes, terms, entries as leader and as follower, a tail that is cut off,
journal files that are full, a snapshot and the cut behind it, a snapshot that is received and
installed) is played once to count what the replica writes, syncs, renames, removes and sends. Then
it is played once for each of these operations, or a share of them: the power fails exactly there,
of what was not synced nothing or a part survives, the replica starts again, and the history goes
on to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import copy_context
from pathlib import Path

import pytest

from nextgen.kernel.errors import MetadataError
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Commit, Entry, NodeId, Record, Role, RoleChange
from nextgen.storage.disk import Handle
from nextgen.tasks.timeouts import timeout
from tests.support.simulated.disk import PowerCut, SimDisk
from tests.support.simulated.raft import CONFIG, DATA, RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual

RESTART_AFTER_S = 0.05
STEP_TIMEOUT_S = 3.0
SETTLE_TIMEOUT_S = 60.0


class WatchedDisk(SimDisk):
    """Tells ``before`` of every operation that changes something, and can be stopped by it."""

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__()
        self._before = before

    def open(self, path: Path, *, create: bool = False) -> Handle:
        if create and path.name not in self.list_names(path.parent):
            self._before(f"create {_kind(path)}")
        return super().open(path, create=create)

    def preallocate(self, handle: Handle, size: int) -> None:
        self._before("preallocate")
        super().preallocate(handle, size)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        self._before("write")
        super().pwrite(handle, data, offset)

    def sync(self, handle: Handle, *, label: str) -> None:
        self._before(f"sync {label}")
        super().sync(handle, label=label)

    def sync_directory(self, path: Path, *, label: str) -> None:
        self._before(f"sync {label}")
        super().sync_directory(path, label=label)

    def rename(self, source: Path, target: Path) -> None:
        self._before(f"rename {_kind(source)}")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        if path.name in self.list_names(path.parent):
            self._before(f"unlink {_kind(path)}")
        super().unlink(path)


def _kind(path: Path) -> str:
    return re.sub(r"[-0-9a-f]{6,}", "N", path.name)


class History(RaftSimulation):
    """The group, its writers, and what the replica ``subject`` has promised to others."""

    config = dataclasses.replace(
        CONFIG,
        journal_segment_bytes=4096,
        log_tail_entries=2,
        snapshot_chunk_bytes=1024,
        snapshot_progress_bytes=2048,
    )

    def __init__(self, crash_at: int | None, *, keep_some: bool) -> None:
        super().__init__(seed=4)
        self.network.delay_ms_max = 0.1
        self.network.tap = self._sends
        self.order: list[str] = []
        """Every operation of the subject, in order."""
        self.crashed_at: str | None = None
        self._crash_at = crash_at
        self._outside = copy_context()  # Of no process, so that it lives on.
        self._restarting: asyncio.Task[None] | None = None
        self.subject = self.nodes[0]
        self.subject.disk = WatchedDisk(self._operates)
        self.subject.disk.make_directory(DATA)
        SimDisk.sync_directory(self.subject.disk, Path("/"), label="given")
        self.acked: dict[str, Commit] = {}
        self._keep_some = keep_some
        self._written = 0
        self._committed: dict[int, Entry] = {}
        self._leaders: dict[int, NodeId] = {}
        self._votes: dict[int, NodeId] = {}
        self._term_told = 0
        self._broken: list[str] = []
        self._agreed: set[str] = set()  # Acknowledged records that the subject said it has.

    # The history ------------------------------------------------------------------------------

    async def play(self) -> None:
        await self.start()
        await self._write(3)
        await self._hand_over(self.subject)
        await self._write(3)
        await self._leave_behind(self.nodes[1])
        await self._write(1)
        await self._lose_a_tail()
        await self._write(8, size=700)
        await self._snapshot(self.subject)
        await self._write(2)
        await self._fall_behind_the_cut()
        await self._write(2)
        await self._hand_over(self.nodes[2])
        await self._write(2)
        await self._settle()

    async def start(self) -> None:
        """Start all nodes; the subject may crash during its start."""
        for node in self.nodes:
            with contextlib.suppress(ConnectionResetError):
                await node.start()

    async def _write(self, count: int, size: int = 20) -> None:
        for _ in range(count):
            async with timeout(SETTLE_TIMEOUT_S):
                while not await self._write_one(size):
                    await asyncio.sleep(0.02)

    async def _write_one(self, size: int) -> bool:
        leader = next((n for n in self.nodes if n.log is not None and n.log.is_leader), None)
        if leader is None or leader.log is None:
            return False
        self._written += 1
        payload = f"{self._written}-".ljust(size, ".")
        try:
            future = leader.log.propose(Record(payload.encode(), 1))
            async with timeout(STEP_TIMEOUT_S):
                self.acked[payload] = await future
        except (MetadataError, TimeoutError):
            return False
        return True

    async def _hand_over(self, target: SimNode) -> None:
        with contextlib.suppress(MetadataError, TimeoutError):
            leader = await self.leader()
            assert leader.log is not None
            async with timeout(STEP_TIMEOUT_S):
                await leader.log.transfer_leadership(target.node_id)

    async def _lose_a_tail(self) -> None:
        """Entries of the subject, as a leader that is cut off, are replaced by its successor's."""
        self.network.unplug(self.subject.node_id)
        log = self.subject.log
        if log is not None and log.is_leader:
            for number in range(2):
                with contextlib.suppress(MetadataError):
                    future = log.propose(Record(f"never acknowledged {number}".encode(), 1))
                    future.add_done_callback(lambda done: done.cancelled() or done.exception())
        async with timeout(SETTLE_TIMEOUT_S):
            while not any(n.log and n.log.is_leader for n in self.nodes[1:]):
                await asyncio.sleep(0.02)
        await self._write_elsewhere(3)
        self.network.cut.clear()

    async def _write_elsewhere(self, count: int, size: int = 20) -> None:
        """Write while the subject is cut off: it may take itself for a leader for a while."""
        done = len(self.acked) + count
        async with timeout(SETTLE_TIMEOUT_S):
            while len(self.acked) < done:
                await self._write_one(size)
                await asyncio.sleep(0.02)

    async def _snapshot(self, node: SimNode) -> None:
        with contextlib.suppress(MetadataError, TimeoutError, ConnectionResetError):
            async with timeout(STEP_TIMEOUT_S):
                while node.log is None or node.process is None:
                    await asyncio.sleep(0.02)
                await node.process.ask(node.log.compact)

    async def _leave_behind(self, node: SimNode) -> None:
        """The subject, which leads, cuts what another has missed, and sends it a snapshot."""
        self.network.unplug(node.node_id)
        await self._write(16, size=700)
        await asyncio.sleep(0.5)  # Its view has them a moment after they are acknowledged.
        await self._snapshot(self.subject)
        self.network.cut.clear()

    async def _fall_behind_the_cut(self) -> None:
        """The others write, and cut what they wrote, while the subject is away."""
        self.network.unplug(self.subject.node_id)
        await self._write_elsewhere(16, size=700)
        for node in self.nodes[1:]:
            await self._snapshot(node)
        self.network.cut.clear()

    async def _settle(self) -> None:
        async with timeout(SETTLE_TIMEOUT_S):
            while not self._is_settled():
                await asyncio.sleep(0.05)

    def _is_settled(self) -> bool:
        logs = [node.log for node in self.nodes if node.log is not None]
        if len(logs) < len(self.nodes) or sum(log.is_leader for log in logs) != 1:
            return False
        ends = {(log.status.last_index, log.status.applied.index) for log in logs}
        return len(ends) == 1 and all(last == applied for last, applied in ends)

    # The crash --------------------------------------------------------------------------------

    def _operates(self, what: str) -> None:
        self.order.append(what)
        is_due = self._crash_at is not None and len(self.order) > self._crash_at
        if is_due and self.crashed_at is None:
            self.crashed_at = what
            assert self.subject.process is not None
            self.subject.process.kill()
            loop = asyncio.get_running_loop()
            loop.call_soon(self._crash, context=self._outside)
        if is_due and self._restarting is None:
            raise PowerCut

    def _crash(self) -> None:
        self.subject.crash(keep_some=self._keep_some)
        self._restarting = asyncio.ensure_future(self._restart())

    async def _restart(self) -> None:
        await asyncio.sleep(RESTART_AFTER_S)
        await self.subject.start()
        self._check_restarted()

    # What was promised ------------------------------------------------------------------------

    def _sends(self, sender: NodeId, target: NodeId, message: Message) -> None:
        if sender != self.subject.node_id:
            return
        kind = message["type"]
        self._operates(f"send {kind}")
        if kind in ("request_vote", "response_vote"):
            voted_for = sender if kind == "request_vote" else target
            known = self._votes.setdefault(message["term"], voted_for)
            self._require(known == voted_for, f"two votes in term {message['term']}")
        if kind in ("request_vote", "response_vote", "append"):
            self._term_told = max(self._term_told, message["term"])
        if kind == "append_answer" and message["success"]:
            self._agreed |= {
                payload
                for payload, commit in self.acked.items()
                if commit.index <= message["index"] and commit.term <= message["term"]
            }

    def _check_restarted(self) -> None:
        log = self.subject.log
        assert log is not None
        journal = log.engine.journal
        assert journal.hard_state[0] >= self._term_told, "a term was forgotten"
        for payload in self._agreed:
            commit = self.acked[payload]
            is_there = commit.index <= journal.base_index or (
                commit.index <= journal.last_index and journal.term_of(commit.index) == commit.term
            )
            assert is_there, f"{payload} was acknowledged and is lost"

    def saw_role(self, node_id: NodeId, change: RoleChange) -> None:
        if change.role is Role.LEADER:
            leader = self._leaders.setdefault(change.term, node_id)
            self._require(leader == node_id, f"two leaders in term {change.term}")

    def saw_committed(self, node_id: NodeId, entries: Sequence[Entry]) -> None:
        for entry in entries:
            known = self._committed.setdefault(entry.index, entry)
            self._require(known == entry, f"entry {entry.index} was committed twice")

    def _require(self, is_kept: bool, what: str) -> None:
        """Remember what was broken: who is called here swallows exceptions."""
        if not is_kept:
            self._broken.append(what)

    def check_end(self) -> None:
        assert not self._broken, self._broken
        views = [node.view.payloads for node in self.nodes if node.view is not None]
        assert len(views) == len(self.nodes)
        assert all(view == views[0] for view in views), "the views differ"
        lost = set(self.acked) - set(views[0])
        assert not lost, f"acknowledged and lost: {sorted(lost)}"


def played(crash_at: int | None, *, keep_some: bool = False, ignored_sync: str = "") -> History:
    async def main() -> History:
        # What a dead process leaves behind is nobody's: promises are checked by ``History``.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _found: None)
        history = History(crash_at, keep_some=keep_some)
        history.subject.disk.ignore_sync(ignored_sync)
        await history.play()
        if history._restarting is not None:
            await history._restarting
        history.check_end()
        for node in history.nodes:
            node.crash()
        return history

    return run_virtual(main)


NEEDED = {
    *("send request_vote", "send response_vote", "send append", "send append_answer"),
    *("send snapshot_answer", "write", "preallocate", "sync journal.batch", "sync view.bytes"),
    *("rename segment.preparing", "sync journal.segment_name", "unlink N.journal"),
    *("sync journal.drop_segment", "rename snapshot.writing", "unlink snapshotN.db"),
    *("sync snapshot.receiving", "sync snapshot.progress", "rename snapshot.receiving"),
    *("rename view.new", "sync view.name", "create group-1.member"),
}
"""Without these the history would prove little."""


def test_the_history_has_everything_that_may_be_interrupted() -> None:
    history = played(None)

    assert history.crashed_at is None
    assert set(history.order) >= NEEDED
    assert history.order.count("preallocate") > 1, "a journal file is full"


SHARE = 20
"""One of so many operations, and the first of each kind, is interrupted in each run of the tests;
every one is in `make nightly`."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "share", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(SHARE, id="a share")]
)
@pytest.mark.parametrize("keep_some", [False, True], ids=["nothing survives", "a part survives"])
def test_a_power_cut_at_every_operation_breaks_no_promise(keep_some: bool, share: int) -> None:
    order = played(None).order
    interrupted: Counter[str] = Counter()
    for number in chosen(order, share, first=share // 2 if keep_some else 0):
        try:
            history = played(number, keep_some=keep_some)
        except Exception as error:
            raise AssertionError(f"power cut at operation {number}") from error
        assert history.crashed_at is not None
        interrupted[history.crashed_at] += 1

    assert set(interrupted) == set(order)
    if share == 1:
        assert interrupted == Counter(order)


def chosen(order: Sequence[str], share: int, *, first: int) -> list[int]:
    """Return the numbers of one operation of ``share``, and of the first of each kind."""
    first_of_kind = {order.index(kind) for kind in order}
    return sorted({*range(first, len(order), share), *first_of_kind})


@pytest.mark.parametrize("label", ["journal.batch", "journal.segment_name", "view.bytes"])
def test_without_a_sync_some_promise_is_broken(
    label: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The test above would notice if the replica forgot one."""
    caplog.set_level("CRITICAL")
    for number in reversed(range(0, len(played(None).order), 3)):
        try:
            played(number, ignored_sync=label)
        except (AssertionError, MetadataError, TimeoutError):
            return
    raise AssertionError("nothing was noticed")
