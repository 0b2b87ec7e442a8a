"""The disk that brokers keep their ledgers on, what was acknowledged, and what is left of it.

Brokers share the disk, as processes of one machine do. Each has the real store; its threads are
virtual, and a process can die or stand still between two steps of a round.

NothingStoredIsLost     what was acknowledged is durable, in one order, until its topic is deleted
ReadAgain               who opens a topic reads what was acknowledged before, see ``residents``
NothingShownIsLost      a sealed epoch has every entry that its seal counts
DamageIsNoTornTail      a damaged ledger is reported as damaged, but for the last round that it has
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from brokers.adapters.ledger.format.files import ENTRIES, Owner, UnitDirectory
from brokers.adapters.ledger.format.measuring import opened, read_header
from brokers.adapters.ledger.format.records import Record, decode_entry
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.ownership.takeover import Takeover, Unit, one_by_one
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.adapters.ledger.writing.writers import Queue, Writer
from brokers.bootstrap import serve as bootstrap
from brokers.domain.position import Position, epoch_of, ledger_id_of, segment_of
from brokers.ports.ledger import LedgerDamaged
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.process import PROCESS
from tests.support.simulated.virtual_time import VirtualWorker

UnitKey = tuple[str, str]

LEDGERS = Path("/ledgers")
SEGMENT_BYTES, INDEX_BYTES = 6_000, 1_500
"""Small, so that a run sees several segments of a topic, and their indexes."""

LAST_EPOCH = 2**40
"""Higher than any epoch of a run."""

ROT_RECORDS = 6
"""Number of a segment's last entries of which one is damaged."""


@dataclass(frozen=True, slots=True)
class Rot:
    """Damage to one entry of a segment."""

    ledger_id: int
    entry_id: int
    last_round: int
    """The first entry of the segment's last round: from it on damage looks like a torn tail."""

    def may_take(self, position: Position, *, is_reported: bool) -> bool:
        """Return whether an acknowledged entry may be missing, with a report of damage or not."""
        return (
            position.ledger_id == self.ledger_id
            and position.entry_id >= self.entry_id
            and (is_reported or position.entry_id >= self.last_round)
        )


@dataclass(slots=True)
class Storage:
    """What outlives brokers, and what their clients know of it."""

    disk: SimDisk = field(default_factory=SimDisk)
    acknowledged: dict[UnitKey, dict[Position, bytes]] = field(default_factory=dict)
    """Since the disk was new: there is one copy, and a lost disk takes it along."""
    rotten: dict[UnitKey, Rot] = field(default_factory=dict)
    """Units that may refuse to be served: their damage is for a person to look at."""
    deleted: Mapping[str | UnitKey, float] = field(default_factory=dict)
    """Ids of topics whose deletion is committed, and segments that left their layouts, each with
    the time since when that is known. Brokers remove their messages."""
    subscribed: set[UnitKey] = field(default_factory=set)
    """Units with a durable subscription that was acknowledged."""
    terminated: dict[UnitKey, float] = field(default_factory=dict)
    """Units whose termination was acknowledged, and when."""
    disks_lost: int = 0
    now: Callable[[], float] = lambda: 0.0
    """The simulation's own clock."""
    answers: int = 0
    read_again: int = 0
    sequence_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def store(self, _directory: Path, **named: Any) -> DiskLedgerStore:
        """Make the store of the present process, on the disk that brokers share."""
        process: Any = PROCESS.get()
        return DiskLedgerStore(
            LEDGERS,
            storage=self.disk,
            segment_bytes=SEGMENT_BYTES,
            index_bytes=INDEX_BYTES,
            make_writer=partial(SimulatedWriter, process.new_worker()),
            make_pool=lambda _threads, _name: process.new_worker(),
            together=one_by_one,
            **named,
        )

    def replace_disk(self) -> None:
        """Put an empty disk in. No broker may run: those that did have the lost one."""
        self.disk = SimDisk()
        self.acknowledged.clear()
        self.rotten.clear()
        self.subscribed.clear()
        self.terminated.clear()
        self.disks_lost += 1

    def rot(self, chance: random.Random) -> bool:
        """Damage one of the last entries of a unit; False if there is none to damage."""
        units = [key for key in self.acknowledged if key not in self.rotten]
        chance.shuffle(units)
        for key in units:
            directory = UnitDirectory(LEDGERS, *key, self.disk)
            found = newest_records(directory)
            if found is not None:
                path, ledger_id, records = found
                entry_id = chance.randrange(max(0, len(records) - ROT_RECORDS), len(records))
                self._damage(path, records[entry_id], chance)
                self.rotten[key] = Rot(ledger_id, entry_id, _last_round(records))
                return True
        return False

    def lost(self) -> Iterator[str]:
        """Yield what was acknowledged and is not stored, or not in one order."""
        disk = self.disk.durable_copy()
        for key, acknowledged in self.acknowledged.items():
            if self._is_deleted(key):
                continue
            try:
                stored, torn = stored_in(UnitDirectory(LEDGERS, *key, disk))
            except (LedgerDamaged, FileNotFoundError) as error:
                if key not in self.rotten:
                    yield f"{key} cannot be read: {error!r}"
                continue
            positions = list(stored)
            if positions != sorted(positions):
                yield f"{key} has its entries in no order: {positions}"
            if key not in self.rotten and torn:
                yield f"{key} is sealed with entries that are not there, in {sorted(torn)}"
            for position, payload in acknowledged.items():
                is_reported = position.ledger_id in torn
                if stored.get(position) != payload and not self.may_be_missing(
                    key, position, is_reported=is_reported
                ):
                    yield f"{position} of {key} was acknowledged and is lost"

    def may_be_missing(self, key: UnitKey, position: Position, *, is_reported: bool) -> bool:
        """Return whether the model lets an acknowledged entry be missing."""
        if self._is_deleted(key):
            return True
        rot = self.rotten.get(key)
        return rot is not None and rot.may_take(position, is_reported=is_reported)

    def _is_deleted(self, key: UnitKey) -> bool:
        return key[0] in self.deleted or key in self.deleted

    def is_damaged(self, topic_id: str) -> bool:
        return any(key[0] == topic_id for key in self.rotten)

    def _damage(self, path: str, record: Record, chance: random.Random) -> None:
        begin = chance.randrange(record.offset, record.end)
        end = min(record.end, begin + chance.randint(1, 16))
        found = self.disk.read(Path(path))[begin:end]
        self.disk.damage(Path(path), begin, bytes(byte ^ 0x5A for byte in found))


def stored_in(directory: UnitDirectory) -> tuple[dict[Position, bytes], set[int]]:
    """Return what a successor of all owners finds, and the segments that are not whole."""
    owner = Owner("successor", "successor", lambda: 1)
    takeover = Takeover(directory, Unit("", "", ""), LAST_EPOCH, owner, lambda _step: None)
    found: dict[Position, bytes] = {}
    torn: set[int] = set()
    for segment in takeover.run().past.table.segments:
        ledger_id = segment.ledger_id
        path = directory.numbered(epoch_of(ledger_id), segment_of(ledger_id), ENTRIES)
        records = records_in(directory, path, segment.length)
        for record in records:
            entry = decode_entry(record.body)
            found[Position(ledger_id, entry.entry_id)] = bytes(entry.payload)
        if len(records) < segment.entries:
            torn.add(ledger_id)
    return found, torn


def records_in(directory: UnitDirectory, path: str, length: int | None = None) -> list[Record]:
    """Return the entries of a segment that are whole, up to the first that is not."""
    storage = directory.storage
    with opened(storage, path) as handle:
        header, start = read_header(storage, handle, path)
        return list(Scan(storage, handle, path, start=start, salt=header.salt, limit=length))


def newest_records(directory: UnitDirectory) -> tuple[str, int, list[Record]] | None:
    """Return path, ledger id and entries of a unit's newest segment, None if it has no entry."""
    listing = directory.listing()
    epoch = max((each for each in listing.claims if listing.segments.get(each)), default=None)
    if epoch is None:
        return None
    number = listing.segments[epoch][-1]
    path = directory.numbered(epoch, number, ENTRIES)
    records = records_in(directory, path)
    return (path, ledger_id_of(epoch, number), records) if records else None


def _last_round(records: list[Record]) -> int:
    """Return the first entry of the round that the last one was written in."""
    durable = records[-1].offset - records[-1].since_durable
    return next(number for number, record in enumerate(records) if record.offset >= durable)


class SimulatedWriter(Writer):
    """A writer each of whose steps takes as long as the disk of its process does."""

    def __init__(self, worker: VirtualWorker, *named: Any) -> None:
        self._worker = worker
        self._round: Iterator[None] = iter(())
        super().__init__(*named)

    def _start(self, name: str) -> None:
        self._is_idle = True

    def enqueue(self, queue: Queue) -> None:
        self._waiting.append(queue)
        if self._is_idle:
            self._is_idle = False
            self._begin()

    def stop(self) -> None:
        """Nothing is pending: every ledger is closed."""

    def _begin(self) -> None:
        self._round = self.write_round()
        self._worker.submit(self._step)

    def _step(self) -> None:
        for _ in self._round:
            self._worker.submit(self._step)
            return
        self._is_idle = not self._waiting
        if self._waiting:
            self._begin()


@contextmanager
def shared_storage(storage: Storage) -> Iterator[None]:
    """Have all brokers keep their messages in ``storage`` for the time of a run."""
    with patch.object(bootstrap, "DiskLedgerStore", storage.store):
        yield
