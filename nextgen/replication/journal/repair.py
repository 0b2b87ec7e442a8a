"""Makes the files match the recovered state, so that appending can continue."""

from __future__ import annotations

from pathlib import Path

from nextgen.replication.journal.format import (
    HEADER_BYTES,
    DurableMark,
    Identity,
    SegmentHeader,
    address_of,
    offset_of,
    sequence_of,
)
from nextgen.replication.journal.recovery import (
    PREPARING_NAME,
    UNKNOWN_VOTE,
    JournalState,
    Outcome,
    Recovered,
    Recovery,
    recover,
)
from nextgen.replication.journal.table import EntryTable
from nextgen.replication.journal.unverified import UNKNOWN_INDEX
from nextgen.replication.journal.worker import SegmentFiles
from nextgen.storage.disk import Storage, make_directory_durably


def recover_or_begin(
    storage: Storage,
    directory: Path,
    files: SegmentFiles,
    identity: Identity,
    *,
    unverified_if_new: int,
) -> Recovered:
    """Recover the journal in ``directory``, or begin one, ready for appends; see
    ``Journal.open``."""
    recovered = recover(storage, directory, identity)
    if recovered is None:
        make_directory_durably(storage, directory, label="journal.make_directory")
        return begin(files, identity, unverified_if_new)
    storage.unlink(directory / PREPARING_NAME)
    repair(files, identity, recovered)
    return recovered


def segment_header(identity: Identity, sequence: int, state: JournalState) -> SegmentHeader:
    """Return the header of a segment that begins where ``state`` ends."""
    table = state.table
    return SegmentHeader(
        identity=identity,
        sequence=sequence,
        base_index=table.last_index,
        base_term=table.last_term,
        next_position=table.next_position,
        hard_term=state.hard_term,
        voted_for=state.voted_for,
        unverified_index=state.unverified_index,
        configuration=None if state.format_version == 1 else state.configuration,
    )


def begin(files: SegmentFiles, identity: Identity, unverified_index: int) -> Recovered:
    """Write the first segment of a journal that did not exist."""
    state = JournalState(EntryTable(), unverified_index=unverified_index)
    # The mark's name becomes durable together with the segment's; until then it counts for nothing.
    files.write_mark(DurableMark(0, 0, 0))
    files.start_segment(segment_header(identity, 1, state))
    recovery = Recovery(Outcome.NEW, 0, 0)
    return Recovered(state, [1], address_of(1, HEADER_BYTES), recovery)


def repair(files: SegmentFiles, identity: Identity, recovered: Recovered) -> None:
    """Clear an unreadable tail and open the segment for appends.

    Damage is noted in the header of a new segment. Until that is durable the mark keeps it, so a
    crash in between finds the damage again. Its extent is unknown: the readable end, and a mark
    that may be old, are lower bounds of the lost log's end.
    """
    state, recovery, end = recovered.state, recovered.recovery, recovered.end
    sequence = sequence_of(end)
    if recovered.durable_to < end:
        # The bytes read may still be in the page cache only, and are about to be relied upon.
        is_here = sequence_of(recovered.durable_to) == sequence
        files.secure(sequence, offset_of(recovered.durable_to) if is_here else 0, offset_of(end))
    if recovery.outcome is Outcome.TORN_TAIL:
        # Or a record of the same length written there would bring its neighbours back.
        files.clear_tail(sequence, offset_of(end))
    if recovery.outcome is not Outcome.DAMAGED_TAIL:
        files.open_segment(sequence)
        return
    lost_to = end + max(recovery.discarded_bytes, 1)
    files.write_mark(DurableMark(lost_to, recovery.old_last_index, recovery.old_term))
    files.sync_mark()
    files.clear_tail(sequence, offset_of(end))
    files.open_segment(sequence)
    state.unverified_index = UNKNOWN_INDEX
    state.hard_term, state.voted_for = recovery.old_term, UNKNOWN_VOTE
    header = segment_header(identity, sequence + 1, state)
    files.start_segment(header)
    recovered.sequences.append(sequence + 1)
    recovered.end = address_of(sequence + 1, header.bytes_long)
