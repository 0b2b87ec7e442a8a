"""An owner that stands still between two steps of a round, while a successor takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from brokers.adapters.ledger.disk_ledger import DiskLedger
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.adapters.ledger.writing.writers import Queue, Writer
from brokers.domain.position import Position
from brokers.ports.ledger import Fenced, NewEntry
from tests.support.sim_disk import SimDisk

ROOT = Path("/ledgers")
TOPIC = "0a1b00112233445566778899"
NAME = "persistent://public/default/orders"
STEPS = ("nothing", "written", "synced", "looked")
"""Of a round, when the owner stands still."""


class SteppedWriter(Writer):
    """A writer without a thread: the test has it do one step after another."""

    def __init__(self, *named: object) -> None:
        super().__init__(*named)  # type: ignore[arg-type]
        self.round: Iterator[None] = iter(())
        self.is_free = False
        """Whether rounds begin and end without the test."""

    def _start(self, name: str) -> None:
        """There is no thread."""

    def enqueue(self, queue: Queue) -> None:
        self._waiting.append(queue)
        if self.is_free:
            self._loop.call_soon(self._write_all)

    def _write_all(self) -> None:
        self.begin(0)
        self.finish()

    def begin(self, steps: int) -> None:
        self.round = self.write_round()
        for _ in range(steps):
            next(self.round)

    def finish(self) -> None:
        for _ in self.round:
            pass

    def stop(self) -> None:
        """There is no thread."""


class Owner:
    """A process with one ledger, opened in ``epoch``."""

    def __init__(self, disk: SimDisk, broker_id: str) -> None:
        self.store = DiskLedgerStore(
            ROOT, broker_id=broker_id, storage=disk, make_writer=self._make_writer
        )
        self.writers: list[SteppedWriter] = []
        self.ledger: DiskLedger

    def _make_writer(self, *named: object) -> SteppedWriter:
        self.writers.append(SteppedWriter(*named))
        return self.writers[-1]

    @property
    def writer(self) -> SteppedWriter:
        (writer,) = self.writers
        return writer

    async def open(self, epoch: int) -> None:
        self.ledger = await self.store.open(TOPIC, "", epoch, topic_name=NAME)

    def append(self, payload: bytes) -> asyncio.Future[Position]:
        return self.ledger.append(NewEntry(payload, 1, "p", 1))

    async def finish(self) -> None:
        """Have the round end, and its outcome arrive."""
        self.writer.finish()
        await asyncio.sleep(0)

    async def close(self) -> None:
        for writer in self.writers:
            writer.is_free = True
        await self.store.close()


@pytest.fixture
async def owners() -> AsyncIterator[tuple[Owner, Owner]]:
    disk = SimDisk()
    owners = Owner(disk, "a"), Owner(disk, "b")
    await owners[0].open(1)
    yield owners
    for owner in owners:
        await owner.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["first round", "a later round"])
@pytest.mark.parametrize("step", STEPS)
async def test_an_owner_that_stands_still_in_a_round_acknowledges_what_its_successor_has(
    owners: tuple[Owner, Owner], step: str, is_first: bool
) -> None:
    owner, successor = owners
    if not is_first:
        stored = owner.append(b"0")
        owner.writer.begin(0)
        await owner.finish()
        assert await stored
    appended = owner.append(b"1")
    owner.writer.begin(STEPS.index(step))

    await successor.open(2)
    await owner.finish()

    assert appended.done()
    if step == "looked":
        assert appended.exception() is None, "the fence was looked for before it was made"
    if appended.exception() is None:
        assert successor.ledger.last == appended.result()
    else:
        assert isinstance(appended.exception(), Fenced)


async def test_an_owner_that_was_fenced_acknowledges_nothing_more(
    owners: tuple[Owner, Owner],
) -> None:
    owner, successor = owners
    await successor.open(2)

    appended = owner.append(b"1")
    owner.writer.begin(0)
    await owner.finish()

    assert isinstance(appended.exception(), Fenced)
    assert owner.ledger.is_fenced


@pytest.mark.parametrize("is_over", [False, True], ids=["closed", "sealed"])
async def test_a_ledger_that_is_looked_at_while_it_closes_is_closed_once(
    owners: tuple[Owner, Owner], is_over: bool
) -> None:
    owner, _ = owners
    closing = asyncio.ensure_future(owner.ledger.close(is_over=is_over))
    await asyncio.sleep(0)
    owner.writer.begin(len(STEPS) - 1)

    owner.ledger.look_for_fence()

    await owner.finish()
    owner.writer.begin(0)
    await owner.finish()
    await closing
    assert owner.writer.units == 0
