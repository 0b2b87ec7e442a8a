"""An owner that releases its ledger seals its epoch itself, wherever it stops."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import DISK, ENTRIES, Owner, UnitDirectory
from brokers.adapters.ledger.format.measuring import opened, read_header
from brokers.adapters.ledger.format.records import decode_entry
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.ownership.seals import read_seal
from brokers.adapters.ledger.ownership.self_seal import seal_own
from brokers.adapters.ledger.ownership.takeover import Holding, Takeover, Unit, remove_superfluous
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.domain.position import BEFORE_ALL, Position, epoch_of, ledger_id_of, segment_of
from brokers.ports.ledger import Fenced, NewEntry, StorageFailed
from nextgen.kernel.limits.pulsar import LEDGER_INDEX_BYTES

TOPIC = "0a1b00112233445566778899"
NAME = "persistent://public/default/orders"
UNIT = Unit(TOPIC, "", NAME)
OWN_STEPS = ("own epoch measured", "own seal written", "own epoch sealed")
TAKEOVER_STEPS = (
    "claim written",
    "fence written",
    "measured",
    "predecessor fsynced",
    "sealed",
    "second look",
    "snapshot written",
)
ENTRY = NewEntry(b"payload", 1, "p", 0)


class Crash(BaseException):
    """The process is gone."""


class Old:
    """The owner of epoch 1, which has stored two entries and a fact, and stores nothing more."""

    def __init__(self, root: Path) -> None:
        self.directory = UnitDirectory(root, TOPIC, "")
        self.owner = Owner("a", "token-a", lambda: 1)
        self.holding = Takeover(self.directory, UNIT, 1, self.owner, _no_step).run()
        self.files = UnitFiles(
            self.directory,
            UNIT,
            1,
            self.owner,
            self.holding,
            index_bytes=LEDGER_INDEX_BYTES,
            on_step=_no_step,
        )
        for number in range(2):
            self.store(number)
        self.files.finish()

    def store(self, number: int) -> None:
        position = Position(ledger_id_of(1, 0), number)
        entry = NewEntry(b"entry-%d" % number, 1, "p", number)
        producers: dict[str, int] | None = None if number else {}
        pending = PendingEntry(entry, position, 1, b"p", producers, None)
        self.files.write(Batch([pending], {"cursor/c": b"%d" % number}))
        self.files.sync()
        assert not self.files.is_fenced()
        self.files.settle()

    def seal(self, on_step: Callable[[str], None]) -> None:
        seal_own(self.directory, 1, self.holding.claim, self.owner, on_step)


def _no_step(_name: str) -> None:
    return


def take_over(root: Path, epoch: int, on_step: Callable[[str], None] = _no_step) -> Holding:
    directory = UnitDirectory(root, TOPIC, "")
    owner = Owner("b", f"token-{epoch}", lambda: 2)
    holding = Takeover(directory, UNIT, epoch, owner, on_step).run()
    remove_superfluous(directory, epoch, holding)
    return holding


def assert_has_all(root: Path, holding: Holding) -> None:
    directory = UnitDirectory(root, TOPIC, "")
    found: list[bytes] = []
    for segment in holding.past.table.segments:
        ledger_id = segment.ledger_id
        path = directory.numbered(epoch_of(ledger_id), segment_of(ledger_id), ENTRIES)
        with opened(DISK, path) as handle:
            header, start = read_header(DISK, handle, path)
            scan = Scan(DISK, handle, path, start=start, salt=header.salt, limit=segment.length)
            found += [bytes(decode_entry(record.body).payload) for record in scan]
    assert found == [b"entry-0", b"entry-1"]
    assert dict(holding.past.producers) == {"p": 1}
    assert holding.past.facts == {"cursor/c": b"1"}


def at(step: str, do: Callable[[], object]) -> Callable[[str], None]:
    """Return a step listener that does something once, when ``step`` was done."""
    left = [True]

    def on_step(name: str) -> None:
        if name == step and left:
            left.clear()
            do()

    on_step.left = left  # type: ignore[attr-defined]
    return on_step


def test_a_successor_of_a_sealed_epoch_neither_measures_nor_seals(tmp_path: Path) -> None:
    old = Old(tmp_path)
    steps: list[str] = []

    old.seal(_no_step)
    holding = take_over(tmp_path, 2, steps.append)

    assert_has_all(tmp_path, holding)
    assert steps == ["claim written", "second look", "snapshot written"]
    assert read_seal(old.directory, 1).sealed_by == 1
    assert 1 in old.directory.listing().fences


@pytest.mark.parametrize("step", OWN_STEPS)
def test_an_owner_that_is_gone_in_the_middle_has_lost_nothing(tmp_path: Path, step: str) -> None:
    old = Old(tmp_path)

    def crash() -> None:
        raise Crash

    with pytest.raises(Crash):
        old.seal(at(step, crash))
    holding = take_over(tmp_path, 2)

    assert_has_all(tmp_path, holding)
    assert not [name for name in os.listdir(old.directory.path) if name.startswith("temporary-1")]


@pytest.mark.parametrize("step", OWN_STEPS)
def test_a_seal_whose_name_a_loss_of_power_took_is_made_again(tmp_path: Path, step: str) -> None:
    """The name is durable only with the successor's snapshot; no process relies on it before."""
    old = Old(tmp_path)
    seen: list[str] = []
    old.seal(seen.append)
    assert step in seen
    os.unlink(old.directory.seal(1))

    holding = take_over(tmp_path, 2)

    assert_has_all(tmp_path, holding)
    assert read_seal(old.directory, 1).sealed_by == 2


@pytest.mark.parametrize("step", OWN_STEPS)
def test_a_successor_may_come_in_the_middle_of_it(tmp_path: Path, step: str) -> None:
    old = Old(tmp_path)
    found: list[Holding] = []

    old.seal(at(step, lambda: found.append(take_over(tmp_path, 2))))

    assert_has_all(tmp_path, found[0])
    assert_has_all(tmp_path, take_over(tmp_path, 3))


@pytest.mark.parametrize("step", TAKEOVER_STEPS)
def test_it_may_come_in_the_middle_of_a_takeover(tmp_path: Path, step: str) -> None:
    old = Old(tmp_path)
    on_step = at(step, lambda: old.seal(_no_step))

    holding = take_over(tmp_path, 2, on_step)

    assert not on_step.left, "the takeover has that step"  # type: ignore[attr-defined]
    assert_has_all(tmp_path, holding)
    assert_has_all(tmp_path, take_over(tmp_path, 3))


@pytest.mark.parametrize("step", ["claim written", "second look", "snapshot written"])
def test_a_successor_that_is_gone_in_the_middle_leaves_it_to_the_next(
    tmp_path: Path, step: str
) -> None:
    old = Old(tmp_path)
    old.seal(_no_step)

    def crash() -> None:
        raise Crash

    with pytest.raises(Crash):
        take_over(tmp_path, 2, at(step, crash))

    assert_has_all(tmp_path, take_over(tmp_path, 3))


def test_an_owner_that_slept_through_its_end_seals_nothing(tmp_path: Path) -> None:
    old = Old(tmp_path)
    take_over(tmp_path, 2)
    before = read_seal(old.directory, 1)

    old.seal(_no_step)

    assert read_seal(old.directory, 1) == before


def test_an_owner_whose_epoch_was_removed_adds_nothing_that_counts(tmp_path: Path) -> None:
    """Its claim is gone, and it is stopped behind its look for a fence."""
    directory = UnitDirectory(tmp_path, TOPIC, "")
    owner = Owner("a", "token-a", lambda: 1)
    holding = Takeover(directory, UNIT, 1, owner, _no_step).run()
    found: list[Holding] = []

    seal_own(
        directory,
        1,
        holding.claim,
        owner,
        at("own seal written", lambda: found.append(take_over(tmp_path, 2))),
    )

    assert found[0].past.table.end == 0
    later = take_over(tmp_path, 3)
    assert later.past.table.end == 0
    assert 1 not in directory.listing().sealed


# The store ------------------------------------------------------------------------------------


async def test_an_epoch_that_was_ended_cannot_be_opened_again_by_its_own_process(
    tmp_path: Path,
) -> None:
    store = DiskLedgerStore(tmp_path, broker_id="a")
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    position = await ledger.append(ENTRY)

    await ledger.close(is_over=True)

    with pytest.raises(StorageFailed):
        await ledger.append(ENTRY)
    with pytest.raises(Fenced):
        await store.open(TOPIC, "", 1, topic_name=NAME)
    successor = await store.open(TOPIC, "", 2, topic_name=NAME)
    assert successor.last == position
    await store.close()


async def test_an_epoch_that_is_only_closed_is_opened_again(tmp_path: Path) -> None:
    store = DiskLedgerStore(tmp_path, broker_id="a")
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    position = await ledger.append(ENTRY)

    await ledger.close()
    again = await store.open(TOPIC, "", 1, topic_name=NAME)

    assert again.last == position
    assert not UnitDirectory(tmp_path, TOPIC, "").listing().seals
    await store.close()


async def test_what_is_pending_is_stored_before_the_epoch_ends(tmp_path: Path) -> None:
    store = DiskLedgerStore(tmp_path, broker_id="a")
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    appended = ledger.append(ENTRY)
    stored = ledger.put_state("cursor/c", b"7")

    await ledger.close(is_over=True)

    assert (await appended).entry_id == 0
    await stored
    successor = await store.open(TOPIC, "", 2, topic_name=NAME)
    assert (successor.entry_count, dict(successor.state)) == (1, {"cursor/c": b"7"})
    await store.close()


async def test_a_fenced_owner_leaves_the_seal_to_its_successor(tmp_path: Path) -> None:
    store, other = (DiskLedgerStore(tmp_path, broker_id=name) for name in "ab")
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    await ledger.append(ENTRY)
    successor = await other.open(TOPIC, "", 2, topic_name=NAME)
    with pytest.raises(Fenced):
        await ledger.append(ENTRY)

    await ledger.close(is_over=True)

    assert read_seal(UnitDirectory(tmp_path, TOPIC, ""), 1).sealed_by == 2
    assert successor.entry_count == 1
    await other.close()
    await store.close()


async def test_reading_ahead_writes_nothing_and_keeps_the_owner_serving(tmp_path: Path) -> None:
    store, other = (DiskLedgerStore(tmp_path, broker_id=name) for name in "ab")
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    await ledger.append(ENTRY)
    before = sorted(os.listdir(UnitDirectory(tmp_path, TOPIC, "").path))

    await other.prepare(TOPIC, "")
    await other.prepare("0a1b99112233445566778899", "")

    assert sorted(os.listdir(UnitDirectory(tmp_path, TOPIC, "").path)) == before
    assert (await ledger.append(ENTRY)).entry_id == 1
    assert ledger.last > BEFORE_ALL
    await other.close()
    await store.close()
