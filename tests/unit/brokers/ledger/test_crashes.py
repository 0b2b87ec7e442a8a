"""Random appends, facts, crashes at any step, torn tails and takeovers, against a model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.adapters.ledger.accepting import remember
from brokers.adapters.ledger.format.files import DISK, ENTRIES, NAMES_LABEL, Owner, UnitDirectory
from brokers.adapters.ledger.format.measuring import opened, read_header
from brokers.adapters.ledger.format.records import decode_entry
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.ownership.self_seal import seal_own
from brokers.adapters.ledger.ownership.takeover import Holding, Takeover, Unit, remove_superfluous
from brokers.adapters.ledger.writing.append_file import AppendFile
from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.domain.position import Position, epoch_of, ledger_id_of, segment_of
from brokers.ports.ledger import Fenced, NewEntry

TOPIC = "0a1b00112233445566778899"
UNIT = Unit(TOPIC, "", "persistent://public/default/orders")
SEGMENT_BYTES = 600
INDEX_BYTES = 150
_link, _unlink = os.link, os.unlink


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True, slots=True)
class Round:
    """Entries (producer, size) and facts (key, size or removal) that are stored together."""

    entries: list[tuple[str, int]]
    facts: list[tuple[str, int | None]]


@dataclass(frozen=True, slots=True)
class CrashAt:
    """The next ``steps`` steps are done, then the process is gone, and power with it or not."""

    steps: int
    kept: float | None
    """How much of what was not fsynced is on the disk; None: all of it, only the process died."""
    flips: bool
    """Whether the last byte that is kept is another."""
    lost_names: int
    """Which of the names made or removed since the last fsync of the directory are as they were
    before, a bit for each: no order is promised. Only where power is lost."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """The same process lets go of the epoch and opens it again."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """The owner ends its epoch itself, and there is another one."""


@dataclass(slots=True)
class Model:
    """What must be there, and what may be."""

    entries: list[bytes] = field(default_factory=list)
    attempted: list[bytes] = field(default_factory=list)
    producers: dict[str, int] = field(default_factory=dict)
    facts: dict[str, bytes] = field(default_factory=dict)
    attempted_facts: list[dict[str, bytes | None]] = field(default_factory=list)

    def acknowledge(self) -> None:
        self.entries += self.attempted
        for facts in self.attempted_facts:
            self._store(self.facts, facts)
        self.attempted, self.attempted_facts = [], []

    def check(
        self, entries: list[bytes], producers: dict[str, int], facts: dict[str, bytes]
    ) -> None:
        """Compare with what was found; what was found is what there is from here on."""
        more = entries[len(self.entries) :]
        assert entries[: len(self.entries)] == self.entries
        assert more == self.attempted[: len(more)]
        allowed = dict(self.facts)
        possible = [dict(allowed)]
        for attempted in self.attempted_facts:
            for key, value in attempted.items():
                self._store(allowed, {key: value})
                possible.append(dict(allowed))
        assert facts in possible
        expected: dict[str, int] = {}
        for number, entry in enumerate(entries):
            remember(expected, entry.split(b"-")[0].decode(), number)
        assert producers == expected
        self.entries, self.facts = entries, facts
        self.attempted, self.attempted_facts = [], []

    @staticmethod
    def _store(facts: dict[str, bytes], changes: dict[str, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                facts.pop(key, None)
            else:
                facts[key] = value


Operation = Round | CrashAt | Reopen | LetGo


class WatchedDirectory(UnitDirectory):
    """Knows which names a loss of power cannot take; keeps their files for when it takes others."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, TOPIC, "")
        self._kept = root / "kept"
        self._kept.mkdir()
        self._durable: dict[str, int] = {}

    def sync(self, label: str = NAMES_LABEL) -> None:
        self._durable = self._names()
        for name, inode in self._durable.items():
            with suppress(FileExistsError):
                _link(f"{self.path}/{name}", self._kept / str(inode))

    def lose(self, names: int) -> None:
        now = self._names()
        changed = [
            name for name in sorted(now | self._durable) if now.get(name) != self._durable.get(name)
        ]
        for number, name in enumerate(changed):
            if not names >> number & 1:
                continue
            if name in now:
                _unlink(f"{self.path}/{name}")
            if name in self._durable:
                _link(self._kept / str(self._durable[name]), f"{self.path}/{name}")

    def _names(self) -> dict[str, int]:
        return {entry.name: entry.inode() for entry in os.scandir(self.path)}


class Machine:
    """One unit, its present owner, and the model."""

    def __init__(self, root: Path) -> None:
        self._directory = WatchedDirectory(root)
        self._epoch = 0
        self._files: UnitFiles | None = None
        self._steps_left: int | None = None
        self._model = Model()
        self._count = 0
        self._segment = -1
        self._next_entry = 0
        self._segment_bytes = SEGMENT_BYTES + 1

    def play(self, operations: list[Operation]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # A process may also be gone right behind each change of a name.
            for change in (os.link, os.replace, os.unlink):
                patch.setattr(os, change.__name__, self._stepping(change))
            self._play_all(operations)

    def _stepping(self, change: Callable[..., None]) -> Callable[..., None]:
        def changes(*paths: str) -> None:
            change(*paths)
            self._on_step(change.__name__)

        return changes

    def _play_all(self, operations: list[Operation]) -> None:
        self._open(new_epoch=True)
        for operation in operations:
            match operation:
                case CrashAt():
                    self._steps_left = operation.steps
                    self._crash = operation
                case _:
                    self._play(operation)
        self._steps_left = None
        self._end()
        self._open(new_epoch=True)
        self._end()

    def _play(self, operation: Round | Reopen | LetGo) -> None:
        try:
            if isinstance(operation, Round):
                self._store(operation)
            elif isinstance(operation, LetGo):
                self._let_go()
                self._open(new_epoch=True)
            else:
                self._end()
                self._open(new_epoch=False)
        except Crash:
            while True:
                # The next owner may be stopped by the same crash; then there is another one.
                self._lose_power()
                try:
                    self._open(new_epoch=True)
                    return
                except Crash:
                    continue

    def _on_step(self, name: str) -> None:
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                self._steps_left = None
                raise Crash(name)

    def _open(self, *, new_epoch: bool) -> None:
        self._epoch += new_epoch
        owner = self._owner = Owner("b", f"token-{self._epoch}", lambda: 1)
        takeover = Takeover(self._directory, UNIT, self._epoch, owner, self._on_step)
        holding = takeover.run()
        self._check(holding)
        remove_superfluous(self._directory, self._epoch, holding)
        self._files = UnitFiles(
            self._directory,
            UNIT,
            self._epoch,
            owner,
            holding,
            index_bytes=INDEX_BYTES,
            on_step=self._on_step,
        )
        self._claim = holding.claim
        self._segment = holding.next_segment - 1
        self._segment_bytes = SEGMENT_BYTES + 1

    def _let_go(self) -> None:
        assert self._files is not None
        self._files.finish()
        self._files = None
        seal_own(self._directory, self._epoch, self._claim, self._owner, self._on_step)
        with pytest.raises(Fenced):
            Takeover(self._directory, UNIT, self._epoch, self._owner, lambda _name: None).run()

    def _check(self, holding: Holding) -> None:
        entries: list[bytes] = []
        for segment in holding.past.table.segments:
            ledger_id = segment.ledger_id
            path = self._directory.numbered(epoch_of(ledger_id), segment_of(ledger_id), ENTRIES)
            with opened(DISK, path) as handle:
                header, start = read_header(DISK, handle, path)
                scan = Scan(DISK, handle, path, start=start, salt=header.salt, limit=segment.length)
                found = [bytes(decode_entry(record.body).payload) for record in scan]
            assert len(found) == segment.entries
            entries += found
        self._model.check(entries, dict(holding.past.producers), holding.past.facts)

    def _store(self, stored: Round) -> None:
        assert self._files is not None
        batch = Batch()
        for producer, size in stored.entries:
            batch.entries.append(self._pending(producer, size))
        for key, size in stored.facts:
            batch.facts.pop(key, None)
            batch.facts[key] = None if size is None else b"%d" % self._count + b"f" * size
        self._model.attempted_facts = [batch.facts]
        self._files.write(batch)
        self._files.sync()
        assert not self._files.is_fenced()
        self._model.acknowledge()
        self._files.settle()

    def _pending(self, producer: str, size: int) -> PendingEntry:
        producers = None
        if self._segment_bytes > SEGMENT_BYTES:
            self._segment, self._segment_bytes, self._next_entry = self._segment + 1, 0, 0
            producers = {}
            everything = [*self._model.entries, *self._attempted]
            for number, entry in enumerate(everything):
                remember(producers, entry.split(b"-")[0].decode(), number)
        sequence_id = len(self._model.entries) + len(self._attempted)
        payload = f"{producer}-{sequence_id}-".encode() + b"x" * size
        self._attempted.append(payload)
        self._segment_bytes += len(payload) + 50
        position = Position(ledger_id_of(self._epoch, self._segment), self._next_entry)
        self._next_entry += 1
        entry = NewEntry(payload, 1, producer, sequence_id)
        return PendingEntry(entry, position, 1, producer.encode(), producers, None)

    @property
    def _attempted(self) -> list[bytes]:
        return self._model.attempted

    def _end(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None

    def _lose_power(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close()
        if self._crash.kept is None:
            return
        self._directory.lose(self._crash.lost_names)
        if files is None:
            return
        for file in (files._entries, files._state):
            if file is not None:
                self._tear(file, self._crash.kept)

    def _tear(self, file: AppendFile, kept: float) -> None:
        """Keep a part of what was not fsynced, and nothing of what is not in the model yet."""
        if not os.path.exists(file.path):
            return
        size = os.path.getsize(file.path)
        end = file.durable + int((size - file.durable) * kept)
        with open(file.path, "r+b") as torn:
            torn.truncate(end)
            if self._crash.flips and end > file.durable:
                torn.seek(end - 1)
                last = torn.read(1)
                torn.seek(end - 1)
                torn.write(bytes([last[0] ^ 0x55]))


@pytest.fixture(autouse=True, scope="module")
def no_fsync() -> Iterator[None]:
    """What an fsync would have kept is known without it: ``AppendFile.durable``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(os, "fdatasync", lambda handle: None)
        yield


rounds = st.builds(
    Round,
    entries=st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 300)), max_size=6),
    facts=st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 100)), max_size=3),
)
crashes = st.builds(
    CrashAt,
    steps=st.integers(0, 20),
    kept=st.none() | st.floats(0, 1),
    flips=st.booleans(),
    lost_names=st.integers(0, 2**8 - 1),
)
operations = st.lists(rounds | rounds | crashes | st.builds(Reopen) | st.builds(LetGo), max_size=12)


@given(operations=operations)
@settings(max_examples=60, deadline=None)
def test_what_was_acknowledged_survives_every_crash(
    operations: list[Operation],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        Machine(Path(root)).play(operations)
