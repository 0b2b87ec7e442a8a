"""When committed entries are folded: not before they are due, and at once when awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

from nextgen.kernel.limits.cluster import APPLY_AT_ONCE_EVENTS
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.ports import AppliedPoint, Entry, Record, ViewDigest
from nextgen.replication.protocol.entry_codec import encode_records
from nextgen.replication.raft import applier
from nextgen.replication.raft.applier import Applier
from nextgen.replication.view.turns import ViewTurns
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import VirtualWorker, run_virtual

DELAY_MS = 20
FOLD_MS = 1.0


class Entries:
    """A log in memory; each entry holds one event."""

    base_index = 0

    def __init__(self) -> None:
        self.last_index = 0

    def entries(self, from_index: int, to_index: int, bytes_max: int) -> list[JournalEntry]:
        payload = encode_records([Record(b"event", 1)])
        last = min(to_index, self.last_index, from_index - 1 + max(1, bytes_max // len(payload)))
        return [JournalEntry(n, 1, n, 1, payload) for n in range(from_index, last + 1)]

    def index_of_position(self, position: int) -> int:
        return min(position, self.last_index + 1)


class Batches:
    """A view that remembers in which batches it was folded."""

    def __init__(self) -> None:
        self.indexes: list[list[int]] = []

    def applied(self) -> AppliedPoint:
        return AppliedPoint(0, 0, 0)

    def apply(self, entries: Sequence[Entry]) -> None:
        self.indexes.append([entry.index for entry in entries])

    def make_durable(self) -> AppliedPoint:
        raise NotImplementedError("no test here needs it")

    def digest(self) -> ViewDigest | None:
        return None

    def write_snapshot(self, path: Path) -> AppliedPoint:
        raise NotImplementedError("no test here needs it")

    def install_snapshot(self, path: Path) -> AppliedPoint:
        raise NotImplementedError("no test here needs it")

    def close(self) -> None:
        """Nothing to close."""


class ApplierWorld:
    """An applier with its log and its view."""

    def __init__(self, executor: Executor) -> None:
        self.log = Entries()
        self.view = Batches()
        self.is_awaited = False
        self.reached = asyncio.Event()
        self.wanted = 0
        self.applier = Applier(
            self.log,
            self.view,
            applied=AppliedPoint(0, 0, 0),
            turns=ViewTurns(lambda: executor),
            delay_ms=DELAY_MS,
            retry_ms=1,
            is_awaited=lambda: self.is_awaited,
            on_applied=self._applied,
            on_broken=self._broken,
        )

    def commit(self, index: int) -> None:
        self.log.last_index = index
        self.applier.committed(index, index)
        self.applier.kick(index)

    async def until(self, index: int) -> float:
        """Wait until ``index`` is folded and return how many milliseconds that took."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        self.wanted = index
        self.reached.clear()
        if self.applier.applied.index < index:
            async with timeout(5):
                await self.reached.wait()
        return (loop.time() - begin) * 1000

    def _applied(self, point: AppliedPoint) -> None:
        if point.index >= self.wanted:
            self.reached.set()

    def _broken(self, error: Exception) -> None:
        raise error


def run(scenario: Callable[[ApplierWorld], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = ApplierWorld(VirtualWorker(lambda: FOLD_MS))
        await scenario(world)
        await world.applier.stop()

    run_virtual(main)


@run_by(run)
async def test_commits_that_follow_each_other_share_a_transaction(world: ApplierWorld) -> None:
    for index in (1, 2, 3):
        world.commit(index)
        await asyncio.sleep(0)
    assert world.view.indexes == []

    took_ms = await world.until(3)

    assert world.view.indexes == [[1, 2, 3]]
    assert took_ms == pytest.approx(DELAY_MS + FOLD_MS)


@pytest.mark.parametrize(("one_less", "batches"), [(0, [[1, 2, 3]]), (1, [[1, 2], [3]])])
def test_apply_batch_bytes_max_are_one_transaction_and_one_byte_more_is_two(
    monkeypatch: pytest.MonkeyPatch, one_less: int, batches: list[list[int]]
) -> None:
    size_bytes = 3 * len(encode_records([Record(b"event", 1)]))
    monkeypatch.setattr(applier, "APPLY_BATCH_BYTES_MAX", size_bytes - one_less)

    async def scenario(world: ApplierWorld) -> None:
        world.commit(3)
        await world.until(3)
        assert world.view.indexes == batches

    run(scenario)


@pytest.mark.parametrize("one_less", [0, 1])
def test_apply_at_once_events_do_not_wait_and_one_less_does(one_less: int) -> None:
    async def scenario(world: ApplierWorld) -> None:
        world.commit(APPLY_AT_ONCE_EVENTS - one_less)
        assert world.applier.is_folding is not bool(one_less)

        took_ms = await world.until(APPLY_AT_ONCE_EVENTS - one_less)

        assert took_ms == pytest.approx(DELAY_MS * one_less + FOLD_MS)

    run(scenario)


@run_by(run)
async def test_what_is_awaited_is_folded_at_once(world: ApplierWorld) -> None:
    world.commit(1)
    world.is_awaited = True
    world.applier.kick(1)
    assert world.applier.is_folding

    await world.until(1)

    assert world.view.indexes == [[1]]


@run_by(run)
async def test_a_commit_with_a_waiter_is_folded_at_once(
    world: ApplierWorld,
) -> None:
    world.is_awaited = True
    world.commit(1)

    assert world.applier.is_folding
    await world.until(1)


@run_by(run)
async def test_a_view_is_never_older_than_the_delay_for_lack_of_a_kick(world: ApplierWorld) -> None:
    world.commit(1)
    await world.until(1)
    world.commit(2)

    await world.until(2)

    assert world.view.indexes == [[1], [2]]


@run_by(run)
async def test_what_was_committed_before_this_start_does_not_wait(world: ApplierWorld) -> None:
    """Its age is not known: it may be any."""
    world.log.last_index = 3
    world.applier.kick(3)

    assert world.applier.is_folding
    await world.until(3)
    assert world.view.indexes == [[1, 2, 3]]


@run_by(run)
async def test_nothing_is_folded_after_a_stop_though_it_was_due_later(world: ApplierWorld) -> None:
    world.commit(1)
    await world.applier.stop()
    await asyncio.sleep(DELAY_MS * 2 / 1000)

    assert world.view.indexes == []
