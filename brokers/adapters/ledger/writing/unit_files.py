"""One owner's files: the work of a writer thread for one unit in one round."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from brokers.adapters.ledger.accepting import remember
from brokers.adapters.ledger.format.files import (
    ENTRIES,
    INDEX,
    STATE,
    OnStep,
    Owner,
    UnitDirectory,
    create_temporary,
)
from brokers.adapters.ledger.format.measuring import opened, read_header
from brokers.adapters.ledger.format.records import (
    SALT_BITS,
    FileHeader,
    IndexPoint,
    SegmentEnd,
    encode_entry,
    encode_header,
    encode_index,
    encode_state,
)
from brokers.adapters.ledger.ownership.takeover import Holding, Unit, write_state_file
from brokers.adapters.ledger.writing.append_file import AppendFile
from brokers.domain.position import BEFORE_ALL, Position, segment_of
from brokers.ports.ledger import NewEntry
from nextgen.kernel.limits import pulsar as pulsar_limits

_STATE_ROLL_FACTOR = 4
_ENTRIES_LABEL, _FACTS_LABEL = "ledger.entries", "ledger.facts"
_ledger_id_of = attrgetter("position.ledger_id")


class PendingEntry:
    """An entry that is not acknowledged yet."""

    __slots__ = ("end", "entry", "future", "position", "producer_name", "producers", "time_ms")

    def __init__(
        self,
        entry: NewEntry,
        position: Position,
        time_ms: int,
        producer_name: bytes,
        producers: dict[str, int] | None,
        future: asyncio.Future[Position] | None,
    ) -> None:
        self.entry = entry
        self.position = position
        self.time_ms = time_ms
        self.producer_name = producer_name
        self.producers = producers
        """Set for the first entry of a segment only: the highest sequence ids before it."""
        self.future = future
        self.end = 0
        """Offset of its end in the file, set when it is written."""


@dataclass(slots=True)
class Batch:
    """The entries and facts of one unit in one round."""

    entries: list[PendingEntry] = field(default_factory=list)
    facts: dict[str, bytes | None] = field(default_factory=dict)
    facts_stored: list[asyncio.Future[None]] = field(default_factory=list)
    points: list[tuple[int, IndexPoint]] = field(default_factory=list)
    """Index points made while writing: ledger id and point."""


class UnitFiles:
    """All files that one owner appends to. Used by one thread at a time; calls block.

    A round is ``write``, ``sync``, ``is_fenced``, and ``settle`` only if not fenced. After an
    ``OSError`` the files are in the same state as after a crash, and no further call may be made.
    """

    def __init__(
        self,
        directory: UnitDirectory,
        unit: Unit,
        epoch: int,
        owner: Owner,
        holding: Holding,
        *,
        index_bytes: int,
        on_step: OnStep,
    ) -> None:
        self._directory = directory
        self._storage = directory.storage
        self._unit = unit
        self._epoch = epoch
        self._owner = owner
        self._claim = holding.claim
        self._previous = holding.previous
        self._index_bytes = index_bytes
        self._on_step = on_step
        self._entries: AppendFile | None = None
        self._entries_path = ""
        """The name of the segment, which it gets with its first fsync."""
        self._first_time_ms = 0
        self._last = BEFORE_ALL
        self._last_time_ms = 0
        self._last_point = 0
        self._is_indexed = True
        self._unindexed: dict[str, int] = {}
        self._index_records: list[bytes] = []
        self._facts = dict(holding.past.facts)
        self._state_number = holding.state.number
        self._state = AppendFile(
            directory.storage,
            directory.numbered(epoch, holding.state.number, STATE),
            end=holding.state.length,
            salt=holding.state.salt,
            label=_FACTS_LABEL,
        )
        self._snapshot_bytes = holding.state.length
        self._old_state: str | None = None

    @property
    def open_files(self) -> int:
        entries_open = self._entries is not None and self._entries.is_open
        return entries_open + self._state.is_open

    def write(self, batch: Batch) -> None:
        """Write a round's entries and facts.

        Raises:
            OSError: The disk refused.
        """
        for ledger_id, entries in groupby(batch.entries, key=_ledger_id_of):
            self._write_entries(ledger_id, list(entries), batch)
        if batch.entries:
            self._on_step("entries written")
        if batch.facts:
            self._write_facts(batch.facts)
            self._on_step("facts written")

    def sync(self) -> None:
        """Return when the round's bytes are on the medium."""
        if self._entries is not None and self._entries.is_dirty:
            self._sync_entries(self._entries)
        if self._state.is_dirty:
            self._state.sync()
            self._on_step("facts fsynced")

    def is_fenced(self) -> bool:
        """Check for a fence. Call it AFTER ``sync`` and before anything is acknowledged."""
        is_fenced = self._directory.is_fenced(self._epoch, self._claim)
        self._on_step("fence looked for")
        return is_fenced

    def settle(self) -> None:
        """Finish the round, in steps that only an unfenced owner may do."""
        if self._index_records and self._entries is not None:
            self._append_index(self._entries)
        if self._old_state is not None:
            self._storage.unlink(self._old_state)
            self._old_state = None

    def close(self) -> None:
        """Close the handles. The next round reopens those that it needs."""
        self._state.close()
        if self._entries is not None:
            self._entries.close()

    def finish(self) -> None:
        """Close the files for good. Call it only if all rounds succeeded."""
        self._state.finish()
        if self._entries is not None:
            self._entries.finish()

    def _write_entries(self, ledger_id: int, entries: list[PendingEntry], batch: Batch) -> None:
        parts: list[bytes] = []
        if entries[0].producers is not None:
            parts.append(self._begin_segment(segment_of(ledger_id), entries[0]))
        file = self._entries
        assert file is not None, "the first entry of a segment begins it"
        offset = file.end + sum(map(len, parts))
        for pending in entries:
            if offset - self._last_point >= self._index_bytes:
                self._add_point(batch, ledger_id, offset, pending)
            entry = pending.entry
            parts += encode_entry(
                entry_id=pending.position.entry_id,
                publish_time_ms=pending.time_ms,
                sequence_id=entry.sequence_id,
                message_count=entry.message_count,
                producer_name=pending.producer_name,
                payload=entry.payload,
                salt=file.salt,
                since_durable=offset - file.durable,
            )
            offset += len(parts[-2]) + len(parts[-1])
            pending.end = offset
            remember(self._unindexed, entry.producer_name, entry.sequence_id)
            self._last, self._last_time_ms = pending.position, pending.time_ms
        file.append(b"".join(parts))

    def _begin_segment(self, number: int, first: PendingEntry) -> bytes:
        """Create the next entries file; return its header, to be written with its first entries.

        The file gets its name when both are durable, see ``_sync_entries``.
        """
        previous = self._previous
        if self._entries is not None:
            previous = self._end_segment(self._entries)
        assert first.producers is not None, "a segment begins with the sequence ids before it"
        header = self._header(number, previous, first.producers)
        content = encode_header(header)
        temporary = self._directory.temporary(self._epoch, f"{self._owner.token}-entries")
        self._entries = AppendFile(
            self._storage,
            temporary,
            end=0,
            salt=header.salt,
            label=_ENTRIES_LABEL,
            handle=create_temporary(self._storage, temporary),
        )
        self._entries_path = self._directory.numbered(self._epoch, number, ENTRIES)
        self._last_point = len(content)
        self._first_time_ms = first.time_ms
        self._unindexed = {}
        self._is_indexed = True
        return content

    def _sync_entries(self, file: AppendFile) -> None:
        """Return when the segment's bytes are on the medium; the first time, rename it too."""
        file.sync()
        self._on_step("entries fsynced")
        if file.path != self._entries_path:
            self._storage.rename(file.path, self._entries_path)
            file.path = self._entries_path
            self._directory.sync("ledger.segment_name")
            self._on_step("segment begun")

    def _end_segment(self, file: AppendFile) -> SegmentEnd:
        # The next segment's header has the end of this one, which must be durable before.
        self._sync_entries(file)
        file.finish()
        self._append_index(file)
        return SegmentEnd(
            segment=segment_of(self._last.ledger_id),
            length=file.end,
            entries=self._last.entry_id + 1,
            first_time_ms=self._first_time_ms,
            last_time_ms=self._last_time_ms,
        )

    def _add_point(self, batch: Batch, ledger_id: int, offset: int, pending: PendingEntry) -> None:
        assert self._entries is not None, "there is an entry before"
        point = IndexPoint(offset, pending.position.entry_id, self._last_time_ms)
        self._index_records.append(encode_index(point, self._unindexed, salt=self._entries.salt))
        self._unindexed = {}
        self._last_point = offset
        batch.points.append((ledger_id, point))

    def _append_index(self, file: AppendFile) -> None:
        """Write the index points of durable entries, without fsync: an index can be made again."""
        records, self._index_records = self._index_records, []
        if not records or not self._is_indexed:
            return
        path = f"{file.path.removesuffix(ENTRIES)}{INDEX}"
        try:
            handle = self._storage.open(path, create=True)
            try:
                end = self._storage.size(handle)
                if not end:
                    records.insert(0, encode_header(self._header(0, None, {}, salt=file.salt)))
                self._storage.pwrite(handle, b"".join(records), end)
            finally:
                self._storage.close(handle)
        except OSError:
            # The stored points are correct. Points behind a gap would hide sequence ids.
            self._is_indexed = False

    def _write_facts(self, facts: dict[str, bytes | None]) -> None:
        for key, value in facts.items():
            if value is None:
                self._facts.pop(key, None)
            else:
                self._facts[key] = value
        longest = max(
            pulsar_limits.LEDGER_STATE_ROLL_BYTES, _STATE_ROLL_FACTOR * self._snapshot_bytes
        )
        if self._state.end > longest:
            self._begin_state_file()
            return
        records: list[bytes] = []
        offset = self._state.end
        for key, value in facts.items():
            since_durable = offset - self._state.durable
            records.append(
                encode_state(key, value, salt=self._state.salt, since_durable=since_durable)
            )
            offset += len(records[-1])
        self._state.append(b"".join(records))

    def _begin_state_file(self) -> None:
        """Write all facts to a new file. The old one is removed after a later check for a fence."""
        with opened(self._storage, self._state.path) as handle:
            producers = read_header(self._storage, handle, self._state.path)[0].producers
        number = self._state_number + 1
        header = self._header(number, None, producers)
        length = write_state_file(self._directory, header, self._facts, self._owner.token)
        self._state.close()
        self._old_state = self._state.path
        self._state_number = number
        self._snapshot_bytes = length
        self._state = AppendFile(
            self._storage,
            self._directory.numbered(self._epoch, number, STATE),
            end=length,
            salt=header.salt,
            label=_FACTS_LABEL,
        )
        self._on_step("facts written anew")

    def _header(
        self,
        number: int,
        previous: SegmentEnd | None,
        producers: dict[str, int],
        *,
        salt: int | None = None,
    ) -> FileHeader:
        return FileHeader(
            salt=secrets.randbits(SALT_BITS) if salt is None else salt,
            topic_id=self._unit.topic_id,
            unit=self._unit.unit,
            epoch=self._epoch,
            number=number,
            topic_name=self._unit.topic_name,
            created_ms=self._owner.now_ms(),
            previous=previous,
            producers=producers,
        )
