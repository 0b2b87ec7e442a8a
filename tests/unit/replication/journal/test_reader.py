"""Reading old entries of a journal: how many segments stay open."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.kernel.limits.cluster import JOURNAL_OPEN_SEGMENTS_MAX
from nextgen.replication.journal.format import Kind, address_of, encode_record
from nextgen.replication.journal.reader import SegmentReader
from nextgen.replication.journal.recovery import segment_name
from nextgen.storage.disk import DiskStorage, Handle


class CountingStorage(DiskStorage):
    """The real disk; remembers which segments are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: Path, **named: bool) -> Handle:
        self.opened.append(path.name)
        return super().open(path, **named)


@pytest.mark.parametrize("more", [0, 1])
def test_journal_open_segments_max_stay_open_and_one_more_closes_the_one_used_longest_ago(
    tmp_path: Path, more: int
) -> None:
    count = JOURNAL_OPEN_SEGMENTS_MAX + more
    for sequence in range(count):
        record = encode_record(address_of(sequence, 0), Kind.ENTRY, payload=b"entry")
        (tmp_path / segment_name(sequence)).write_bytes(record)
    storage = CountingStorage()
    reader = SegmentReader(storage, tmp_path)
    for sequence in range(count):
        assert reader.payload(address_of(sequence, 0), 5) == b"entry"
    storage.opened.clear()

    for sequence in (*range(1, count), 0):
        assert reader.payload(address_of(sequence, 0), 5) == b"entry"

    assert storage.opened == [segment_name(0)][:more]
    reader.close()
