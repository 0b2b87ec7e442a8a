"""Removing the ledger of a deleted topic, interrupted at any step, beside an owner that goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import UnitDirectory
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.ports.ledger import Fenced, NewEntry, StorageFailed
from tests.support.simulated.disk import SimDisk

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
