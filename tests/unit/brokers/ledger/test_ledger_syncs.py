"""What a loss of power leaves of a ledger, and which sync keeps what.

The ledger is on a simulated disk, which forgets everything that was not synced. Whenever something
was promised (acknowledged, or shown to a successor or a reader) a successor has to find it on what
would be left of the disk at that moment.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import ENTRIES, NAMES_LABEL, Owner, UnitDirectory
from brokers.adapters.ledger.format.measuring import opened, read_header
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.format.segments import Segment
from brokers.adapters.ledger.ownership.self_seal import seal_own
from brokers.adapters.ledger.ownership.takeover import Holding, Takeover, Unit, remove_superfluous
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.domain.position import Position, epoch_of, ledger_id_of, segment_of
from brokers.ports.ledger import LedgerDamaged, NewEntry
from nextgen.storage.disk import make_directory_durably
from tests.support.simulated.disk import SimDisk

TOPIC = "0a1b00112233445566778899"
UNIT = Unit(TOPIC, "", "persistent://public/default/orders")
ROOT = Path("/data/ledgers")
LABELS = (
    NAMES_LABEL,
    "ledger.entries",
    "ledger.facts",
    "ledger.own",
    "ledger.predecessor",
    "ledger.prefix_name",
    "ledger.read",
    "ledger.root",
    "ledger.seal",
    "ledger.segment_name",
    "ledger.snapshot",
    "ledger.unit_name",
)


class Lost(Exception):
    """What was promised is not there."""


class Life:
    """One unit on one disk, its owners one after another, and what was promised of it."""

    def __init__(self, *, ignored: str | None = None) -> None:
        self.disk = SimDisk()
        if ignored is not None:
            self.disk.ignore_sync(ignored)
        make_directory_durably(self.disk, ROOT, label="ledger.root")
        self.directory = UnitDirectory(ROOT, TOPIC, "", self.disk)
        self.promised = 0
        self.fact = b""
        self._owner = Owner("b", "", lambda: 1)
        self._epoch = 0
        self._holding: Holding | None = None
        self._files: UnitFiles | None = None
        self._next_entry = 0

    def take_over(self, epoch: int) -> None:
        """Open the unit in an epoch; everything that is found is promised."""
        self._epoch, self._owner = epoch, Owner("b", f"token-{epoch}", lambda: 1)
        holding = Takeover(self.directory, UNIT, epoch, self._owner, _no_step).run()
        remove_superfluous(self.directory, epoch, holding)
        self._files = UnitFiles(
            self.directory, UNIT, epoch, self._owner, holding, index_bytes=60, on_step=_no_step
        )
        self._holding, self._next_entry = holding, 0
        self.promised = holding.past.table.entry_count
        self.check()

    def write(self) -> None:
        """Write one entry and one fact, and sync neither."""
        assert self._holding is not None
        assert self._files is not None
        segment = self._holding.next_segment
        position = Position(ledger_id_of(self._epoch, segment), self._next_entry)
        producers: dict[str, int] | None = None if self._next_entry else {}
        entry = NewEntry(b"entry", 1, "p", self._next_entry)
        pending = PendingEntry(entry, position, 1, b"p", producers, None)
        self._next_entry += 1
        self._files.write(Batch([pending], {"cursor/c": b"%d" % self.promised}))

    def store(self) -> None:
        """Acknowledge one entry and one fact."""
        self.write()
        self._acknowledge(self.promised + 1, b"%d" % self.promised)

    def store_fact(self) -> None:
        """Acknowledge a fact alone."""
        assert self._files is not None
        self._files.write(Batch([], {"cursor/c": b"0"}))
        self._acknowledge(self.promised, b"0")

    def _acknowledge(self, entries: int, fact: bytes) -> None:
        assert self._files is not None
        self._files.sync()
        assert not self._files.is_fenced()
        self.promised, self.fact = entries, fact
        self.check()
        self._files.settle()

    def let_go(self) -> None:
        """End the own epoch."""
        assert self._files is not None
        assert self._holding is not None
        self._files.finish()
        seal_own(self.directory, self._epoch, self._holding.claim, self._owner, _no_step)
        self.check()

    def check(self) -> None:
        """Have a successor look at what a loss of power would leave now."""
        disk = self.disk.durable_copy()
        directory = UnitDirectory(ROOT, TOPIC, "", disk)
        owner = Owner("b", "last", lambda: 1)
        if not disk.is_directory(ROOT):
            raise Lost("the ledger directory is gone")
        past = Takeover(directory, UNIT, self._epoch + 100, owner, _no_step).run().past
        found = sum(self._entries_in(directory, segment) for segment in past.table.segments)
        if found < self.promised:
            raise Lost(f"{found} of {self.promised} entries are there")
        if self.fact and past.facts.get("cursor/c", b"") < self.fact:
            raise Lost(f"{past.facts} is older than {self.fact!r}")

    def _entries_in(self, directory: UnitDirectory, segment: Segment) -> int:
        ledger_id = segment.ledger_id
        path = directory.numbered(epoch_of(ledger_id), segment_of(ledger_id), ENTRIES)
        with opened(directory.storage, path) as handle:
            header, start = read_header(directory.storage, handle, path)
            scan = Scan(
                directory.storage,
                handle,
                path,
                start=start,
                salt=header.salt,
                limit=segment.length,
            )
            return sum(1 for _ in scan)


def _no_step(_name: str) -> None:
    return


async def play(life: Life) -> None:
    """Go through everything by which an entry is promised."""
    life.take_over(1)
    life.store_fact()
    life.store()
    life.store()
    life.write()  # Its process dies before it syncs that.
    life.take_over(2)
    life.store()
    life.write()
    life.take_over(2)  # The same process opens its epoch again.
    life.store()
    life.let_go()
    life.take_over(3)
    life.store()
    life.write()
    store = DiskLedgerStore(ROOT, broker_id="reader", storage=life.disk)
    reader = await store.open_reader(TOPIC, "")
    assert reader is not None
    life.promised = reader.entry_count
    life.check()
    await store.close()


async def test_a_loss_of_power_takes_nothing_that_was_promised() -> None:
    life = Life()

    await play(life)

    assert life.promised == 8
    assert set(life.disk.syncs) - {"ledger.removed_claims", "ledger.own_seal"} == {*LABELS}


@pytest.mark.parametrize("label", LABELS)
async def test_without_one_of_its_syncs_a_ledger_loses_what_was_promised(label: str) -> None:
    with pytest.raises((Lost, LedgerDamaged, FileNotFoundError)):
        await play(Life(ignored=label))


async def test_a_failed_sync_of_what_a_predecessor_wrote_makes_nothing_durable() -> None:
    life = Life()
    life.take_over(1)
    life.store()
    life.write()
    life.disk.fail_sync("ledger.predecessor", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        life.take_over(2)

    life.take_over(2)

    assert life.promised == 1


async def test_a_failed_sync_of_the_own_epoch_makes_nothing_durable() -> None:
    life = Life()
    life.take_over(1)
    life.store()
    life.write()
    life.disk.fail_sync("ledger.own", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        life.take_over(1)

    life.take_over(1)

    assert life.promised == 1
