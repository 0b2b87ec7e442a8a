"""Removing the ledger of a deleted topic, interrupted at any step, beside an owner that goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import UnitDirectory
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import Position
from brokers.ports.ledger import Fenced, NewEntry, StorageFailed
from tests.support.simulated.disk import PowerCut, SimDisk

ROOT = Path("/ledgers")
NAME = "persistent://a/b/c"


def store_on(disk: SimDisk) -> DiskLedgerStore:
    return DiskLedgerStore(ROOT, broker_id="a", storage=disk)


@pytest.mark.parametrize("files", range(5))
async def test_an_owner_acknowledges_nothing_once_a_file_is_gone(files: int):
    disk = SimDisk()
    store = store_on(disk)
    ledger = await store.open("topic", "p1", 1, topic_name=NAME)
    await ledger.append(NewEntry(b"x", 1, "p", 0))
    left = iter(range(files))

    directory = UnitDirectory(ROOT, "topic", "p1", disk)
    directory.remove(lambda: next(left, None) is None)

    with pytest.raises((Fenced, StorageFailed)):
        await ledger.append(NewEntry(b"y", 1, "p", 1))
    assert ledger.is_fenced
    await store.close()


async def test_a_removal_that_a_stop_interrupted_is_finished_by_the_next():
    disk = SimDisk()
    store = store_on(disk)
    ledger = await store.open("topic", "", 1, topic_name=NAME)
    await ledger.append(NewEntry(b"x", 1, "p", 0))
    await ledger.close()
    directory = UnitDirectory(ROOT, "topic", "", disk)
    directory.remove(lambda: True)
    assert directory.exists()

    await store.remove("topic", "")

    assert not directory.exists()
    await store.close()


@pytest.mark.parametrize("was_opened", [True, False])
@pytest.mark.parametrize("loses_power", [True, False])
async def test_an_owner_that_has_not_heard_of_a_removal_opens_nothing(
    was_opened: bool, loses_power: bool
) -> None:
    """The fences of a unit go with its directory, and an owner of an early epoch may come back: it
    would begin an empty ledger, and acknowledge messages of a topic that is no more."""
    disk = SimDisk()
    disk.make_directory(ROOT)
    disk.sync_directory(ROOT.parent, label="made by people")
    early, late = store_on(disk), store_on(disk)
    if was_opened:
        for store, epoch in ((early, 1), (late, 2)):
            await (await store.open("topic", "p1", epoch, topic_name=NAME)).close()
    await late.remove("topic", "p1")
    if loses_power:
        disk.crash()

    for epoch in (1, 2):
        with pytest.raises(Fenced):
            await store_on(disk).open("topic", "p1", epoch, topic_name=NAME)

    if not loses_power:
        assert not UnitDirectory(ROOT, "topic", "p1", disk).exists()
    await early.close()
    await late.close()


async def test_a_claim_that_a_removal_did_not_see_is_given_up() -> None:
    """The owner looks for the mark behind its claim: one of the two finds the other."""
    disk = SimDisk()
    store = store_on(disk)
    directory = UnitDirectory(ROOT, "topic", "", disk)

    def remove(step: str) -> None:
        if step == "claim written":
            directory._mark_removed()

    store.on_step = remove
    with pytest.raises(Fenced):
        await store.open("topic", "", 1, topic_name=NAME)
    await store.close()


@pytest.mark.parametrize("operations", range(8))
async def test_a_removal_is_for_good_wherever_the_power_fails(operations: int) -> None:
    """Either nothing was removed, or nobody opens the unit again."""
    disk = SimDisk()
    store = store_on(disk)
    ledger = await store.open("topic", "", 1, topic_name=NAME)
    await ledger.append(NewEntry(b"x", 1, "p", 0))
    await ledger.close()
    disk.cut_power_after(operations)
    with suppress(PowerCut):
        UnitDirectory(ROOT, "topic", "", disk).remove()
    disk.keep_power()
    disk.crash()

    try:
        again = await store_on(disk).open("topic", "", 1, topic_name=NAME)
    except Fenced:
        return
    found = await again.read(
        Position(again.last_position.ledger_id, -1), entries_max=2, bytes_max=99
    )
    assert [bytes(each.payload) for each in found] == [b"x"]


async def test_only_the_named_unit_is_removed():
    disk = SimDisk()
    store = store_on(disk)
    ledger, other = await asyncio.gather(
        store.open("topic", "p1", 1, topic_name=NAME), store.open("topic", "p2", 1, topic_name=NAME)
    )
    await ledger.append(NewEntry(b"x", 1, "p", 0))

    await store.remove("topic", "p1")

    assert not UnitDirectory(ROOT, "topic", "p1", disk).exists()
    await other.append(NewEntry(b"y", 1, "p", 0))
    await store.close()


async def test_a_disk_that_refuses_is_reported():
    disk = SimDisk()
    store = store_on(disk)
    ledger = await store.open("topic", "", 1, topic_name=NAME)
    await ledger.close()
    disk.fail_sync("ledger.removal", 5)

    with pytest.raises(StorageFailed):
        await store.remove("topic", "")

    disk.heal_syncs()
    await store.close()
