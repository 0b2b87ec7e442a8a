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
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.kernel.limits.pulsar import LEDGER_WRITERS
from tests.support.simulated.disk import SimDisk

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

    def __init__(self, disk: SimDisk, broker_id: str, writers: int = LEDGER_WRITERS) -> None:
        self.store = DiskLedgerStore(
            ROOT,
            broker_id=broker_id,
            storage=disk,
            writers=writers,
            make_writer=self._make_writer,
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


@pytest.mark.parametrize("more", [0, 1])
async def test_ledger_round_bytes_max_are_one_round_and_an_entry_more_waits_for_the_next(
    owners: tuple[Owner, Owner], monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    owner, _ = owners
    monkeypatch.setattr(pulsar_limits, "LEDGER_ROUND_BYTES_MAX", 200)
    appended = [owner.append(b"x" * 100) for _ in range(2 + more)]

    owner.writer.begin(0)
    await owner.finish()

    assert [each.done() for each in appended] == [True, True, False][: len(appended)]
    owner.writer.begin(0)
    await owner.finish()
    assert all(each.done() for each in appended)


@pytest.mark.parametrize("more", [0, 1])
async def test_ledger_round_topics_max_are_written_in_one_round_and_one_more_in_the_next(
    more: int,
) -> None:
    owner = Owner(SimDisk(), "a", writers=1)
    count = pulsar_limits.LEDGER_ROUND_TOPICS_MAX + more
    ledgers = [
        await owner.store.open(f"{number:024x}", "", 1, topic_name=NAME) for number in range(count)
    ]
    owner.writer.begin(0)
    await owner.finish()
    appended = [ledger.append(NewEntry(b"1", 1, "p", 1)) for ledger in ledgers]

    owner.writer.begin(0)
    await owner.finish()

    assert sum(each.done() for each in appended) == count - more
    owner.writer.begin(0)
    await owner.finish()
    assert all(each.done() for each in appended)
    await owner.close()
