"""Removing the ledger of a deleted topic, interrupted at any step, beside an owner that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.adapters.ledger.disk_ledger import DiskLedger
from brokers.adapters.ledger.format.files import UnitDirectory
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import Fenced, NewEntry, StorageFailed
from nextgen.kernel.events.generations import (
    EPOCHS_MAX,
    GENERATION_BITS,
    GENERATIONS_MAX,
    next_generation_epoch,
)
from nextgen.tasks.timeouts import timeout
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
    directory.remove(1, lambda: next(left, None) is None)

    with pytest.raises((Fenced, StorageFailed)):
        await ledger.append(NewEntry(b"y", 1, "p", 1))
    assert ledger.is_fenced
    await store.close()


async def test_what_an_owner_reads_of_a_removed_unit_is_not_called_damaged(tmp_path: Path):
    """The owner has not heard yet that its topic is deleted: it was frozen, or cut off."""
    store, other = (DiskLedgerStore(tmp_path, broker_id=each) for each in "ab")
    ledger = await store.open("topic", "p1", 1, topic_name=NAME)
    await ledger.append(NewEntry(b"x", 1, "p", 0))
    await ledger.close()
    ledger = await store.open("topic", "p1", 2, topic_name=NAME)

    await other.remove("topic", "p1", 2)

    with pytest.raises(Fenced, match="removed"):
        await ledger.read(BEFORE_ALL, entries_max=10, bytes_max=1_000)
    ledger.look_for_fence()
    async with timeout(20):
        while not ledger.is_fenced:
            await asyncio.sleep(0.01)
    await store.close()
    await other.close()


async def test_a_removal_that_a_stop_interrupted_is_finished_by_the_next():
    disk = SimDisk()
    store = store_on(disk)
    ledger = await store.open("topic", "", 1, topic_name=NAME)
    await ledger.append(NewEntry(b"x", 1, "p", 0))
    await ledger.close()
    directory = UnitDirectory(ROOT, "topic", "", disk)
    directory.remove(1, lambda: True)
    assert directory.exists()

    await store.remove("topic", "", 1)

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
    await late.remove("topic", "p1", 2)
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
            directory._mark_removed(0)

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
        UnitDirectory(ROOT, "topic", "", disk).remove(1)
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

    await store.remove("topic", "p1", 1)

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
        await store.remove("topic", "", 1)

    disk.heal_syncs()
    await store.close()


# A cluster that is restored from a backup has deleted topics again, in a later generation. --------


class Interrupted:
    """A disk on which ``act`` happens right before the call number ``at``."""

    def __init__(self, disk: SimDisk, at: int, act: Callable[[], object]) -> None:
        self._disk = disk
        self._left = at
        self._act = act

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._disk, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self._act()
            return call(*arguments, **named)

        return counted


class RestoredUnit:
    """A unit with a message of generation 0, whose topic a restored cluster has again."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = SimDisk()
        self.disk.make_directory(ROOT)
        self.disk.sync_directory(ROOT.parent, label="made by people")
        self.ledger: DiskLedger | None = None
        self.stores: list[DiskLedgerStore] = []
        self.serve(1, b"before")
        self.close()

    def serve(self, epoch: int, payload: bytes, disk: Any = None) -> None:
        """Open the unit and have one message acknowledged."""
        self.ledger = self.loop.run_until_complete(self._serve(epoch, payload, disk or self.disk))

    def open(self, epoch: int) -> None:
        store = store_on(self.disk)
        self.stores.append(store)
        self.loop.run_until_complete(store.open("topic", "", epoch, topic_name=NAME))

    async def _serve(self, epoch: int, payload: bytes, disk: Any) -> DiskLedger:
        store = store_on(disk)
        self.stores.append(store)
        ledger = await store.open("topic", "", epoch, topic_name=NAME)
        await ledger.append(NewEntry(payload, 1, "p", epoch))
        return ledger

    def messages(self) -> list[bytes]:
        return self.loop.run_until_complete(self._messages())

    async def _messages(self) -> list[bytes]:
        assert self.ledger is not None
        found, after = list[bytes](), BEFORE_ALL
        while entries := await self.ledger.read(after, entries_max=9, bytes_max=999):
            found += [bytes(each.payload) for each in entries]
            after = entries[-1].position
        return found

    def remove(self, epoch: int, disk: Any = None) -> None:
        UnitDirectory(ROOT, "topic", "", disk or self.disk).remove(epoch)

    def close(self) -> None:
        """Close what is open, as processes that end."""
        for store in self.stores:
            self.loop.run_until_complete(store.close())
        self.stores.clear()

    def check_late_owner_is_refused(self) -> None:
        with pytest.raises(Fenced):
            self.serve(3, b"late")


@pytest.fixture
def unit() -> Iterator[RestoredUnit]:
    made = RestoredUnit()
    yield made
    made.close()
    made.loop.close()


RESTORED = next_generation_epoch(1)
REMOVAL_CALLS = 24
OPENING_CALLS = 64
"""Calls of the storage, some more than a removal and an opening with its first message make."""


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("call", range(REMOVAL_CALLS))
def test_a_restored_topic_loses_nothing_to_a_removal_that_it_interrupts(
    unit: RestoredUnit, call: int, *, loses_power: bool
) -> None:
    """It is opened at any moment of a removal, with all earlier messages or with none."""
    disk = Interrupted(unit.disk, call, lambda: unit.serve(RESTORED, b"restored"))
    unit.remove(1, disk)
    if not unit.stores:
        unit.serve(RESTORED, b"restored")

    found = unit.messages()
    assert found in ([b"before", b"restored"], [b"restored"])
    unit.close()
    if loses_power:
        unit.disk.crash()
    unit.check_late_owner_is_refused()
    unit.serve(RESTORED + 1, b"again")
    assert unit.messages()[-2:] == [b"restored", b"again"]


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("call", range(OPENING_CALLS))
def test_a_restored_topic_loses_nothing_to_a_removal_that_interrupts_its_opening(
    unit: RestoredUnit, call: int, *, loses_power: bool
) -> None:
    disk = Interrupted(unit.disk, call, lambda: unit.remove(1))
    try:
        unit.serve(RESTORED, b"restored", disk)
    except StorageFailed:  # Its directory went in between: the next client opens it.
        unit.serve(RESTORED, b"restored")

    found = unit.messages()
    assert found in ([b"before", b"restored"], [b"restored"])
    unit.close()
    if loses_power:
        unit.disk.crash()
    unit.check_late_owner_is_refused()
    unit.serve(RESTORED + 1, b"again")
    assert unit.messages()[-2:] == [b"restored", b"again"]


@pytest.mark.parametrize("restored", [RESTORED, 2 * RESTORED])
@pytest.mark.parametrize("survives", ["claim-1", "claim-2"])
@pytest.mark.parametrize("operations", range(16))
def test_a_restored_topic_has_all_earlier_messages_or_none_wherever_the_power_fails(
    unit: RestoredUnit, operations: int, survives: str, restored: int
) -> None:
    """The removal died before its mark was durable, and the opening dies, too."""
    unit.serve(2, b"more")
    unit.close()
    unit.disk.fail_sync("ledger.removal_mark", 5)
    unit.disk.fail_sync("ledger.unit_name", 5)
    with pytest.raises(OSError, match="error"):
        unit.remove(restored - 1)
    unit.disk.heal_syncs()
    unit.disk.cut_power_after(operations)
    with suppress(PowerCut, StorageFailed):
        unit.open(restored)
    unit.stores.clear()  # The process is gone.
    unit.disk.keep_power()
    unit.disk.crash(keep=lambda change: change == f"unlink {survives}")

    unit.serve(restored + 1, b"again")

    earlier = [each for each in unit.messages() if each in (b"before", b"more")]
    assert earlier in ([b"before", b"more"], [])


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("call", range(REMOVAL_CALLS))
@pytest.mark.parametrize("generations", [(0, 1), (1, 0), (1, 2), (2, 1)])
def test_of_two_removals_at_one_time_the_later_generation_holds(
    unit: RestoredUnit, call: int, generations: tuple[int, int], *, loses_power: bool
) -> None:
    first, second = (each << GENERATION_BITS for each in generations)
    later = max(generations) << GENERATION_BITS
    interrupted = Interrupted(unit.disk, call, lambda: unit.remove(second))
    unit.remove(first, interrupted)
    unit.remove(second)
    if loses_power:
        unit.disk.crash()

    for epoch in (3, later + 7):
        with pytest.raises(Fenced):
            unit.serve(epoch, b"late")
    unit.serve(next_generation_epoch(later), b"restored")
    assert unit.messages() == [b"restored"]


@pytest.mark.parametrize("operations", range(12))
def test_a_removal_in_a_later_generation_is_for_good_wherever_the_power_fails(
    unit: RestoredUnit, operations: int
) -> None:
    unit.serve(RESTORED, b"restored")
    unit.close()
    unit.disk.cut_power_after(operations)
    with suppress(PowerCut):
        unit.remove(RESTORED)
    unit.disk.keep_power()
    unit.disk.crash()

    try:
        unit.serve(RESTORED + 1, b"again")
    except Fenced:
        return
    assert unit.messages() == [b"before", b"restored", b"again"]


@pytest.mark.parametrize(
    ("epoch", "generation"),
    [
        (EPOCHS_MAX - 1, GENERATIONS_MAX - 1),
        (EPOCHS_MAX, GENERATIONS_MAX - 1),
        (2**64 - 1, GENERATIONS_MAX - 1),
    ],
)
def test_generations_max_bounds_the_mark_of_an_epoch_without_bound(
    unit: RestoredUnit, epoch: int, generation: int
) -> None:
    """A leader of an earlier release ends every epoch by the largest number there is."""
    unit.remove(epoch)

    assert UnitDirectory(ROOT, "topic", "", unit.disk).removed_generation == generation
    with pytest.raises(Fenced):
        unit.serve(EPOCHS_MAX - 1, b"late")


def test_a_mark_of_an_earlier_release_ends_the_first_generation(unit: RestoredUnit) -> None:
    """It is empty, and was made before any cluster could be restored over it."""
    unit.remove(1)

    mark = unit.disk.open(ROOT / "topi" / "removed-topic")
    assert unit.disk.size(mark) == 0
    unit.disk.close(mark)
    unit.check_late_owner_is_refused()
    unit.serve(RESTORED, b"restored")
    assert unit.messages() == [b"restored"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("serve"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.integers(1, 9)),
        st.just(("lose power", 0, 0)),
    ),
    max_size=12,
)


@given(steps=STEPS)
@settings(deadline=None)
def test_whatever_the_order_of_owners_and_removals_each_generation_has_its_own(
    steps: list[tuple[str, int, int]],
) -> None:
    """A model of one unit: the mark, the last claim, and what was acknowledged behind it."""
    unit = RestoredUnit()
    removed, claimed, kept = -1, 1, [b"before"]
    try:
        for number, (step, generation, within) in enumerate(steps):
            epoch = (generation << GENERATION_BITS) + within
            if step == "lose power":
                unit.disk.crash()
            elif step == "remove":
                unit.remove(epoch)
                if claimed >> GENERATION_BITS <= generation:
                    removed, claimed, kept = max(removed, generation), 0, []
            elif generation <= removed or epoch <= claimed:
                with pytest.raises(Fenced):
                    unit.serve(epoch, b"late")
                unit.close()
            else:
                payload = b"%d" % number
                unit.serve(epoch, payload)
                claimed, kept = epoch, [*kept, payload]
                assert unit.messages() == kept
                unit.close()
        unit.serve(9 << GENERATION_BITS, b"last")
        assert unit.messages() == [*kept, b"last"]
    finally:
        unit.close()
        unit.loop.close()
