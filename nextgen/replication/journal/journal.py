"""The durable log of one Raft group: entries, term and vote, on one disk.

    append ──▶ memory ──▶ batch ──▶ worker: write, sync ──▶ callbacks of ``when_durable``
                 │                                             │
                 └── read at once                              └── acks and votes leave

Nothing here blocks the event loop except ``sync`` and a read of an old entry. While the
worker syncs one batch the next one fills: however many callers there are, they share a sync.

A full disk stalls the journal: nothing is reported durable, the same bytes are tried again
until there is space. Any other failure breaks it for good.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.cluster import (
    JOURNAL_CACHE_BYTES,
    JOURNAL_PENDING_BYTES_MAX,
    JOURNAL_SEGMENT_BYTES,
)
from nextgen.replication.journal.format import (
    HEADER_BYTES,
    DurableMark,
    Identity,
    Kind,
    address_of,
    encode_record,
    offset_of,
    record_bytes,
    sequence_of,
)
from nextgen.replication.journal.pending import JournalBroken as JournalBroken
from nextgen.replication.journal.pending import JournalStalled as JournalStalled
from nextgen.replication.journal.pending import PendingWrites
from nextgen.replication.journal.reader import SegmentReader
from nextgen.replication.journal.recovery import JournalState, Recovery
from nextgen.replication.journal.repair import recover_or_begin, segment_header
from nextgen.replication.journal.table import EntryTable, PayloadCache
from nextgen.replication.journal.table import JournalEntry as JournalEntry
from nextgen.replication.journal.worker import Runner, SegmentFiles
from nextgen.replication.ports import Configuration
from nextgen.replication.protocol.membership import (
    decode_configuration,
    encode_if_known,
    is_configuration,
)
from nextgen.storage.disk import Storage


class Journal:
    """See the module. Every method is called on one thread, that of the event loop.

    While ``unverified_index`` is not 0, as after ``open`` with outcome DAMAGED_TAIL, the replica
    MUST NOT vote or campaign.
    """

    def __init__(
        self,
        files: SegmentFiles,
        reader: SegmentReader,
        identity: Identity,
        state: JournalState,
        sequences: list[int],
        *,
        recovery: Recovery,
        end: int,
        runner: Runner,
        on_broken: Callable[[JournalBroken], None] | None,
        segment_bytes: int,
        cache_bytes: int,
    ) -> None:
        self.recovery = recovery
        self._reader = reader
        self._identity = identity
        self._state = state
        self._table: EntryTable = state.table
        self._configurations = state.configurations
        self._cache = PayloadCache(cache_bytes)
        self._sequences = sequences
        self._end = end  # Address of the next record.
        self._segment_bytes = segment_bytes
        self._writes = PendingWrites(files, runner, self._log_end, on_broken)
        self._closed = False

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: Path,
        *,
        cluster_id: str,
        group_id: int,
        node_id: str,
        runner: Runner,
        unverified_if_new: int = 0,
        on_broken: Callable[[JournalBroken], None] | None = None,
        segment_bytes: int = JOURNAL_SEGMENT_BYTES,
        cache_bytes: int = JOURNAL_CACHE_BYTES,
    ) -> Journal:
        """Recover the journal in ``directory``, or begin one. Blocks; may run off the loop.

        A journal that is begun starts with ``unverified_if_new``; see ``journal.unverified``.

        Raises:
            WrongCluster: The journal is another cluster's, node's or group's.
            JournalCorrupted: It is damaged where no leader can repair it.
            RefusesToStart: A later version of the program wrote it.
            OSError: The disk is full, or broken.
        """
        identity = Identity.of(cluster_id, node_id, group_id)
        files = SegmentFiles(storage, directory, identity, segment_bytes)
        recovered = recover_or_begin(
            storage, directory, files, identity, unverified_if_new=unverified_if_new
        )
        return cls(
            files,
            SegmentReader(storage, directory),
            identity,
            recovered.state,
            recovered.sequences,
            recovery=recovered.recovery,
            end=recovered.end,
            runner=runner,
            on_broken=on_broken,
            segment_bytes=segment_bytes,
            cache_bytes=cache_bytes,
        )

    def __repr__(self) -> str:
        condition = "broken" if self._writes.broken else self.stalled or "ok"
        return (
            f"<Journal group={self._identity.group_id} first={self.first_index} "
            f"last={self.last_index} durable={self.durable_index} term={self._state.hard_term} "
            f"{condition}>"
        )

    # What is in the log -----------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """The oldest entry that can be read; ``last_index + 1`` if there is none."""
        return self._table.first_index

    @property
    def last_index(self) -> int:
        return self._table.last_index

    @property
    def last_term(self) -> int:
        """Term of the last entry, or of the base if there is none."""
        return self._table.last_term

    @property
    def base_index(self) -> int:
        """The last entry that was cut away, 0 if none was."""
        return self._table.base_index

    @property
    def base_term(self) -> int:
        return self._table.base_term

    @property
    def base_position(self) -> int:
        """The last event that was cut away, 0 if none was."""
        return self._table.base_position

    @property
    def last_position(self) -> int:
        """The last event in the log, committed or not."""
        return self._table.next_position - 1

    @property
    def hard_state(self) -> tuple[int, str | None]:
        """The current term, and the candidate of this node's vote. ``UNKNOWN_VOTE`` is no node's
        name: the vote is spent."""
        return self._state.hard_term, self._state.voted_for or None

    @property
    def unverified_index(self) -> int:
        """The replica does not vote before a leader has covered this entry; 0: it may vote. See
        ``nextgen.replication.journal.unverified``."""
        return self._state.unverified_index

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force, committed or not; None while the log has none.

        The same object until another one is in force.
        """
        return self._configurations.newest

    def configuration_at(self, index: int) -> Configuration | None:
        """Return the configuration in force after an entry, ``base_index`` to ``last_index``."""
        return self._configurations.at(index)

    def first_position_of(self, index: int) -> int:
        """Return the position of the first event of an entry, or of the next one if it has none."""
        return self._table.first_position_of(index)

    @property
    def bytes_on_disk(self) -> int:
        """Space that the segments take, preallocated space included."""
        return len(self._sequences) * self._segment_bytes

    def term_of(self, index: int) -> int:
        """Return the term of an entry from ``base_index`` to ``last_index``."""
        return self._table.term_of(index)

    def index_of_position(self, position: int) -> int:
        """Return the entry that holds an event; ``last_index + 1`` beyond the last event.

        Raises:
            PositionCompacted: The event was cut away.
        """
        return self._table.index_of_position(position)

    def entry(self, index: int) -> JournalEntry:
        """Return one entry; an old one is read from disk.

        Raises:
            JournalCorrupted: It is damaged on disk.
        """
        table = self._table
        first_position, events = table.first_position_of(index), table.events_of(index)
        payload = self._cache.get(index)
        if payload is None:
            payload = self._reader.payload(table.address_of(index), table.length_of(index))
        return JournalEntry(index, table.term_of(index), first_position, events, payload)

    def entries(self, from_index: int, to_index: int, bytes_max: int) -> list[JournalEntry]:
        """Return ``from_index .. to_index`` inclusive, in order, as far as the log has them.

        Stops before the payloads exceed ``bytes_max``, but not before the first.
        """
        found: list[JournalEntry] = []
        size = 0
        for index in range(from_index, min(to_index, self.last_index) + 1):
            size += self._table.length_of(index)
            if found and size > bytes_max:
                break
            found.append(self.entry(index))
        return found

    # Changing it: durable later, see when_durable ---------------------------------------

    def append(self, term: int, payload: bytes, events: int) -> int:
        """Append an entry whose events get the next positions; return its index.

        Raises:
            Overloaded: Too many bytes wait for the disk. Nothing was appended.
        """
        entry = JournalEntry(self.last_index + 1, term, self._table.next_position, events, payload)
        self.append_entry(entry)
        return entry.index

    def append_entry(self, entry: JournalEntry) -> None:
        """Append an entry that a leader numbered; index and position follow the last ones.

        Raises:
            Overloaded: Too many bytes wait for the disk. Nothing was appended.
        """
        table = self._table
        assert entry.index == table.last_index + 1, f"{entry.index} follows {table.last_index}"
        assert entry.first_position == table.next_position, "positions are dense"
        assert entry.term >= table.last_term, "terms never fall"
        if self._writes.waiting_bytes > JOURNAL_PENDING_BYTES_MAX:
            raise Overloaded("the journal waits for its disk")
        configuration: Configuration | None = None
        if is_configuration(entry.payload):
            configuration = decode_configuration(entry.payload)
            assert configuration.index == entry.index, "a configuration names its entry"
            self._begin_configurations()
        address = self._record(
            Kind.ENTRY,
            payload=entry.payload,
            events=entry.events,
            index=entry.index,
            term=entry.term,
            first_position=entry.first_position,
        )
        if configuration is not None:
            self._configurations.append(configuration)
        length = len(entry.payload)
        table.append(entry.term, entry.first_position, entry.events, address, length)
        self._cache.add(entry.index, entry.payload)
        self._cache.evict(self.durable_index)

    def truncate_from(self, index: int) -> None:
        """Void the entries from ``index`` on. The caller MUST know that none is committed."""
        table = self._table
        position = table.first_position_of(index)
        term_before = table.term_of(index - 1)
        self._record(
            Kind.TRUNCATE,
            payload=encode_if_known(self._configurations.at(index - 1)),
            index=index,
            term=term_before,
            first_position=position,
        )
        table.truncate_from(index)
        self._configurations.truncate_from(index)
        self._cache.truncate_from(index)
        self._writes.forget_entries_behind(index - 1)

    def set_hard_state(self, term: int, voted_for: str | None) -> None:
        """Change term and vote. The caller MUST wait until it is durable before using them."""
        assert term >= self._state.hard_term, "terms never fall"
        self._record(Kind.HARD_STATE, term=term, payload=(voted_for or "").encode())
        self._state.hard_term, self._state.voted_for = term, voted_for or ""

    def set_unverified(self, unverified_index: int) -> None:
        """Note up to where this replica may have forgotten its promises; 0: it may vote once that
        is durable. See ``nextgen.replication.journal.unverified``."""
        self._record(Kind.UNVERIFIED, index=unverified_index)
        self._state.unverified_index = unverified_index

    def learn_configuration(self, configuration: Configuration | None, *, index: int) -> None:
        """Note the configuration that is in force behind entry ``index``, which may be still to
        come, if that is new; None for the group's first one.

        For a replica that received it from a peer whose log agrees up to there, or
        is about to replace it.
        """
        if self._configurations.at(index) == configuration:
            return
        self._begin_configurations()
        payload = encode_if_known(configuration)
        self._record(Kind.CONFIGURATION, payload=payload, index=index)
        self._configurations.learn(configuration, index=index)

    def bytes_before(self, index: int) -> int:
        """Return the bytes that ``cut_before(index)`` would free."""
        return self._segments_before(index) * self._segment_bytes

    def cut_before(self, index: int, *, segments_max: int | None = None) -> bool:
        """Drop old entries, all of them before ``index``, in whole segments.

        At most ``segments_max`` of them, since appends wait meanwhile; return whether there are
        more. The caller MUST have made durable the snapshot that replaces them.
        """
        droppable = self._segments_before(index)
        dropped = droppable if segments_max is None else min(droppable, segments_max)
        if dropped:
            self._drop_segments(self._sequences[0] + dropped)
        return dropped < droppable

    def reset_to(
        self,
        index: int,
        term: int,
        position: int,
        configuration: Configuration | None = None,
    ) -> None:
        """Empty the log; the next entry is ``index + 1``, the next event ``position + 1``.

        For a replica that got a snapshot of that point, where ``configuration`` held. The
        caller MUST have made the snapshot durable.
        """
        if configuration is not None:
            self._begin_configurations()
        self._record(
            Kind.RESET,
            payload=encode_if_known(configuration),
            index=index,
            term=term,
            first_position=position + 1,
        )
        self._table.reset(index, term, position + 1)
        self._configurations.reset(configuration)
        self._cache.clear()
        self._writes.forget_entries_behind(index)
        self._start_segment()
        self._drop_segments(sequence_of(self._end))

    # Durability -------------------------------------------------------------------------

    @property
    def durable_index(self) -> int:
        """The last entry that is on disk, with everything before it."""
        return self._writes.durable.last_index

    @property
    def stalled(self) -> str | None:
        """Why no write becomes durable at the moment: the disk is full. None while it is not."""
        return self._writes.stalled

    @property
    def pending_bytes(self) -> int:
        """Bytes that are not on disk yet."""
        return self._writes.size_bytes

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back on the event loop when everything changed so far is on disk.

        At once, before this returns, if it is already. Callbacks run in the order of the
        calls; none runs after ``close`` or once the journal is broken.
        """
        self._writes.when_durable(callback)

    def flush(self) -> None:
        """Begin to write the pending records, without waiting for it."""
        self._writes.start_batch()

    def sync(self) -> None:
        """Return when everything changed so far is on disk. Blocks the event loop.

        Raises:
            JournalStalled: The disk is full; it is tried again in the background.
            JournalBroken: The disk failed.
        """
        self._writes.sync()

    def close(self) -> None:
        """Write the pending records, if the disk accepts them, and close the files."""
        if not self._closed:
            self._closed = True
            self._writes.close()
            self._reader.close()

    # Inside -----------------------------------------------------------------------------

    def _record(
        self,
        kind: Kind,
        *,
        payload: bytes = b"",
        events: int = 0,
        index: int = 0,
        term: int = 0,
        first_position: int = 0,
    ) -> int:
        """Add one record to the pending batch and return its address."""
        size = record_bytes(len(payload))
        assert HEADER_BYTES + size <= self._segment_bytes, "a record fits into a segment"
        if offset_of(self._end) + size > self._segment_bytes:
            self._start_segment()
        address = self._end
        data = encode_record(
            address,
            kind,
            payload=payload,
            events=events,
            index=index,
            term=term,
            first_position=first_position,
            synced_to=self._writes.durable.address,
        )
        self._writes.write(data, offset_of(address))
        self._end += size
        return address

    def _segments_before(self, index: int) -> int:
        """Return how many segments hold only entries before ``index``."""
        assert index <= self.last_index + 1, f"{index} is beyond the log"
        if index <= self.first_index:
            return 0
        kept = self._table.address_of(index) if index <= self.last_index else self._end
        return sequence_of(kept) - self._sequences[0]

    def _log_end(self) -> DurableMark:
        return DurableMark(self._end, self.last_index, self._state.hard_term)

    def _begin_configurations(self) -> None:
        """Continue in a segment of format version 2, which programs without configurations
        refuse."""
        if self._state.format_version == 1:
            self._state.format_version = 2
            self._start_segment()

    def _start_segment(self) -> None:
        sequence = sequence_of(self._end) + 1
        header = segment_header(self._identity, sequence, self._state)
        self._writes.start_segment(header)
        self._sequences.append(sequence)
        self._end = address_of(sequence, header.bytes_long)

    def _drop_segments(self, before: int) -> None:
        """Drop the segments with sequences below ``before``, and the entries in them."""
        gone = [sequence for sequence in self._sequences if sequence < before]
        if not gone:
            return
        self._writes.drop_segments(gone)
        self._sequences = [sequence for sequence in self._sequences if sequence >= before]
        self._table.cut_before_address(address_of(before, 0))
        self._configurations.cut_before(self._table.base_index)
        self._reader.forget(gone)
