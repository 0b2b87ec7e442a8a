"""Recovery of a journal at start: how much of the bytes on disk can be trusted.

The question is whether unreadable bytes had ever been reported durable. If so, this replica may
have voted or acknowledged on their basis, and must do neither before a leader has sent the lost
entries again.

The bytes behind the last sound record of the last segment are judged in this order:

1. It was durable for certain, because the mark beside the journal says so, or a sound
   record further on was written when it already was: DAMAGED_TAIL.
2. It is all zeros: CLEAN. Preallocated space that was never written reads as zeros.
3. The unreadable record misses a whole disk sector (zeros up to the sector's end): a write
   that the crash cut short, TORN_TAIL. Nothing in it was acknowledged, because an
   acknowledgement waits for the sync of the whole write.
4. Every sector of it was written and its checksum is wrong: the medium is damaged, DAMAGED_TAIL.

If the mark was not written back before a power cut, no later record proves that the last batch was
durable. If then exactly a whole sector of it turned to zeros, damage looks like a torn write.

A segment is started only when the one before it is synced to its end. So damage in any
other segment, or between two, cannot be a torn write and cannot be mended from a leader's
tail: JournalCorrupted, and nothing is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from nextgen.kernel.errors import JournalCorrupted, RefusesToStart, WrongCluster
from nextgen.replication.journal.format import (
    ALIGNMENT_BYTES,
    FORMAT_VERSION,
    HEADER_BYTES,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    DurableMark,
    Identity,
    Kind,
    RecordHeader,
    SegmentHeader,
    address_of,
    decode_mark,
    decode_record_header,
    decode_segment_header,
    payload_at,
    record_bytes,
    segment_format_version,
    sequence_of,
)
from nextgen.replication.journal.table import EntryTable
from nextgen.replication.protocol.membership import (
    ConfigurationHistory,
    decode_configuration,
    decode_if_known,
    encode_if_known,
    is_configuration,
)
from nextgen.storage.disk import Storage

SEGMENT_SUFFIX = ".journal"
MARK_NAME = "durable.mark"
PREPARING_NAME = "segment.preparing"
SECTOR_BYTES = 512
"""The unit a disk writes completely or not at all."""

UNKNOWN_VOTE = "?"
"""A vote of this term whose candidate is unknown: it equals no candidate, so no vote is given."""


class Outcome(StrEnum):
    """The condition in which a journal was found."""

    NEW = "new"
    CLEAN = "clean"
    TORN_TAIL = "torn_tail"
    DAMAGED_TAIL = "damaged_tail"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The findings of a recovery, for the log line and for the decision to vote.

    ``old_last_index`` and ``old_term`` are the highest that are known to have been here
    before the damage; without damage they are those of the journal.
    """

    outcome: Outcome
    old_last_index: int
    old_term: int
    discarded_bytes: int = 0


@dataclass(slots=True)
class JournalState:
    """The fold of all records, in order."""

    table: EntryTable
    hard_term: int = 0
    voted_for: str = ""
    unverified_index: int = 0
    configurations: ConfigurationHistory = field(default_factory=ConfigurationHistory)
    format_version: int = 1  # Of the segment that is being written; never falls.

    @classmethod
    def at(cls, header: SegmentHeader) -> JournalState:
        table = EntryTable(header.base_index, header.base_term, header.next_position)
        state = cls(table, header.hard_term, header.voted_for, header.unverified_index)
        if header.configuration:
            state.configurations.append(decode_configuration(header.configuration))
        return state

    @property
    def configuration(self) -> bytes:
        """The configuration that holds, as records carry it; empty for none."""
        return encode_if_known(self.configurations.newest)

    def continues_with(self, header: SegmentHeader) -> bool:
        """True if ``header`` begins a segment exactly where this state ends.

        After damage was cut, the next segment begins with an unknown vote.
        """
        table = self.table
        mine = (table.last_index, table.last_term, table.next_position)
        if mine != (header.base_index, header.base_term, header.next_position):
            return False
        if (header.configuration or b"") != self.configuration:
            return False
        if header.voted_for == UNKNOWN_VOTE:
            return header.hard_term >= self.hard_term
        return (header.hard_term, header.voted_for) == (self.hard_term, self.voted_for)

    def fold(self, record: RecordHeader, address: int, payload: bytes) -> bool:
        """Apply one record; return False if it cannot follow the records so far."""
        table = self.table
        match record.kind:
            case Kind.ENTRY:
                return self._fold_entry(record, address, payload)
            case Kind.HARD_STATE:
                self.hard_term, self.voted_for = record.term, payload.decode()
            case Kind.TRUNCATE if record.entry_index in table:
                table.truncate_from(record.entry_index)
                self.configurations.truncate_from(record.entry_index)
                if self.configuration != payload:
                    # The configuration before it was in a segment that is gone.
                    self.configurations.reset(decode_if_known(payload))
            case Kind.TRUNCATE if record.entry_index <= table.first_index:
                # Its references to older segments are void, because those are removed.
                table.reset(record.entry_index - 1, record.term, record.first_position)
                self.configurations.reset(decode_if_known(payload))
            case Kind.TRUNCATE:
                return False
            case Kind.RESET:
                table.reset(record.entry_index, record.term, record.first_position)
                self.configurations.reset(decode_if_known(payload))
            case Kind.UNVERIFIED:
                self.unverified_index = record.entry_index
            case Kind.CONFIGURATION:
                self.configurations.learn(decode_if_known(payload), index=record.entry_index)
        return True

    def _fold_entry(self, record: RecordHeader, address: int, payload: bytes) -> bool:
        table = self.table
        follows = (table.last_index + 1, table.next_position)
        if (record.entry_index, record.first_position) != follows:
            return False
        if record.term < table.last_term:
            return False
        position, events = record.first_position, record.events
        table.append(record.term, position, events, address, record.length)
        if is_configuration(payload):
            self.configurations.append(decode_configuration(payload))
        return True


@dataclass(slots=True)
class Tail:
    """The bytes behind the last sound record of a segment."""

    offset: int
    synced_to: int = 0  # The highest address that a sound record proves durable.
    all_zero: bool = True
    torn: bool = False
    last_index: int = 0  # The highest that unreachable but sound records name.
    last_term: int = 0


@dataclass(slots=True)
class Recovered:
    """A recovered journal. Nothing on disk has been changed."""

    state: JournalState
    sequences: list[int]
    end: int  # Address behind the last sound record.
    recovery: Recovery
    durable_to: int = 0  # Address up to which all bytes are known to be durable.


def segment_name(sequence: int) -> str:
    return f"{sequence:012d}{SEGMENT_SUFFIX}"


def recover(storage: Storage, directory: Path, identity: Identity) -> Recovered | None:
    """Read the journal in ``directory``; None if there has never been one. Changes nothing.

    Raises:
        WrongCluster: It belongs to another cluster, node or group.
        JournalCorrupted: It is damaged where no leader can repair it.
        RefusesToStart: A later version of the program wrote it.
    """
    names = storage.list_names(directory)
    segments = [name for name in names if name.endswith(SEGMENT_SUFFIX)]
    mark = _read_mark(storage, directory, identity) if MARK_NAME in names else None
    if not segments:
        if mark is not None and mark.address:
            raise _corrupted(directory, "its segments are missing")
        return None
    sequences = [int(name.removesuffix(SEGMENT_SUFFIX)) for name in segments]
    _check_sequences(directory, sequences, mark)
    state: JournalState | None = None
    tail = Tail(HEADER_BYTES)
    for sequence in sequences:
        data = _read(storage, directory / segment_name(sequence))
        header = _checked_header(directory, sequence, data, identity)
        if state is None:
            state = JournalState.at(header)
        elif not state.continues_with(header) or not tail.all_zero:
            raise _corrupted(directory, f"{segment_name(sequence - 1)} is damaged")
        state.hard_term, state.voted_for = header.hard_term, header.voted_for
        state.unverified_index = header.unverified_index
        if header.configuration is not None:
            state.format_version = 2
        tail = _scan(directory, state, sequence, data, header.bytes_long)
    assert state is not None, "there is at least one segment"
    end = address_of(sequences[-1], tail.offset)
    discarded = max(len(data.rstrip(b"\0")) - tail.offset, 0)
    recovery = _judge(state, tail, end, mark, discarded)
    durable_to = max(tail.synced_to, mark.address if mark else 0)
    return Recovered(state, sequences, end, recovery, durable_to)


def _scan(directory: Path, state: JournalState, sequence: int, data: bytes, offset: int) -> Tail:
    """Fold the sound records of a segment into ``state`` and judge the bytes behind them."""
    synced_to = 0
    while True:
        address = address_of(sequence, offset)
        record = decode_record_header(data, offset, address)
        payload = payload_at(data, offset, record) if record else None
        if record is None or payload is None:
            break
        if not state.fold(record, address, payload):
            raise _corrupted(
                directory,
                f"a {Kind(record.kind).name} record for entry {record.entry_index} follows entry "
                f"{state.table.last_index}",
            )
        synced_to = max(synced_to, record.synced_to)
        offset += record_bytes(record.length)
    tail = Tail(offset, synced_to)
    tail.all_zero = data.count(0, offset) == len(data) - offset
    if not tail.all_zero:
        tail.torn = _misses_a_sector(data, offset, record)
        _look_behind(tail, data, sequence)
    return tail


def _misses_a_sector(data: bytes, offset: int, record: RecordHeader | None) -> bool:
    """Return whether a whole sector of the record at ``offset`` is zeros, so was never written."""
    length = record_bytes(record.length) if record else RECORD_HEADER_BYTES
    end = min(offset + length, len(data))
    sector = offset - offset % SECTOR_BYTES
    while sector < end:
        begin = max(offset, sector)
        sector += SECTOR_BYTES
        if data.count(0, begin, sector) == min(sector, len(data)) - begin:
            return True
    return False


def _look_behind(tail: Tail, data: bytes, sequence: int) -> None:
    """Find sound records behind the first unreadable one, and how far they prove durability."""
    at = data.find(RECORD_MAGIC, tail.offset)
    while at >= 0:
        aligned = at % ALIGNMENT_BYTES == 0
        record = decode_record_header(data, at, address_of(sequence, at)) if aligned else None
        if record is not None:
            tail.synced_to = max(tail.synced_to, record.synced_to)
            tail.last_term = max(tail.last_term, record.term)
            if record.kind == Kind.ENTRY:
                tail.last_index = max(tail.last_index, record.entry_index)
        at = data.find(RECORD_MAGIC, at + 1)


def _judge(
    state: JournalState, tail: Tail, end: int, mark: DurableMark | None, discarded: int
) -> Recovery:
    last_index, last_term = state.table.last_index, max(state.hard_term, state.table.last_term)
    durable_to = max(tail.synced_to, mark.address if mark else 0)
    if durable_to <= end:
        if tail.all_zero:
            return Recovery(Outcome.CLEAN, last_index, last_term)
        if tail.torn:
            return Recovery(Outcome.TORN_TAIL, last_index, last_term, discarded)
    if mark is not None:
        last_index, last_term = max(last_index, mark.last_index), max(last_term, mark.hard_term)
    return Recovery(
        Outcome.DAMAGED_TAIL,
        max(last_index, tail.last_index),
        max(last_term, tail.last_term),
        discarded,
    )


def _check_sequences(directory: Path, sequences: list[int], mark: DurableMark | None) -> None:
    for before, after in pairwise(sequences):
        if after != before + 1:
            raise _corrupted(directory, f"{segment_name(before + 1)} is missing")
    if mark is not None and sequence_of(mark.address) > sequences[-1]:
        raise _corrupted(directory, f"{segment_name(sequences[-1] + 1)} is missing")


def _checked_header(
    directory: Path, sequence: int, data: bytes, identity: Identity
) -> SegmentHeader:
    version = segment_format_version(data)
    if version is not None and version > FORMAT_VERSION:
        raise RefusesToStart(
            f"the journal in {directory} has format {version}, this program reads up to "
            f"{FORMAT_VERSION}: start the version that wrote it"
        )
    header = decode_segment_header(data)
    if header is None or header.sequence != sequence:
        raise _corrupted(directory, f"the header of {segment_name(sequence)} is damaged")
    if header.identity != identity:
        raise WrongCluster(
            f"the journal in {directory} belongs to another cluster, node or group: check the "
            f"cluster id, the node id and the data directory of this process"
        )
    return header


def _read(storage: Storage, path: Path) -> bytes:
    handle = storage.open(path)
    try:
        return storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)


def _read_mark(storage: Storage, directory: Path, identity: Identity) -> DurableMark | None:
    return decode_mark(_read(storage, directory / MARK_NAME)[:MARK_BYTES], identity)


def _corrupted(directory: Path, finding: str) -> JournalCorrupted:
    return JournalCorrupted(
        f"the journal in {directory} is corrupted, {finding}: stop this node, move {directory} "
        f"away and start it again; the replica is rebuilt from the others"
    )
