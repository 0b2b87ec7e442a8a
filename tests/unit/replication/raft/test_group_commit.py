from __future__ import annotations

import pytest

from nextgen.kernel.errors import Overloaded, ProposalLost
from nextgen.kernel.limits.cluster import ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX, RECORD_BYTES_MAX
from nextgen.replication.ports import Commit, GroupId, Record
from nextgen.replication.protocol.entry_codec import RECORD_OVERHEAD_BYTES, decode_records
from nextgen.replication.raft.group_commit import (
    GATHERED_BYTES_MAX,
    GATHERED_RECORDS_MAX,
    GroupCommit,
)


class Appender:
    """A log that takes every entry, in term 1, and can refuse."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.position = 1
        self.refuses = False

    def __call__(self, payload: bytes, events: int) -> tuple[int, int, int]:
        if self.refuses:
            raise Overloaded("the journal waits for its disk")
        self.payloads.append(payload)
        first_position, self.position = self.position, self.position + events
        return len(self.payloads), 1, first_position


def commits_with(window: int = 2) -> GroupCommit:
    return GroupCommit(GroupId(1), window)


def propose_many(commits: GroupCommit, records: int) -> None:
    for _ in range(records):
        commits.propose(Record(b"a", 1))


async def test_what_waits_shares_an_entry_and_keeps_its_order() -> None:
    commits, append = commits_with(), Appender()
    records = [Record(b"a", 2), Record(b"b", 0), Record(b"c", 1)]
    futures = [commits.propose(record) for record in records]

    assert commits.fill(append) == 1
    commits.commit(1)

    assert list(decode_records(append.payloads[0])) == records
    assert [future.result() for future in futures] == [
        Commit(1, 1, 1),
        Commit(1, 1, 3),
        Commit(1, 1, 3),
    ]
    assert commits.is_empty


async def test_the_window_bounds_the_entries_in_flight() -> None:
    commits, append = commits_with(window=2), Appender()
    for _ in range(3):
        propose_many(commits, GATHERED_RECORDS_MAX)
        commits.fill(append)
    assert len(append.payloads) == 2

    commits.commit(1)
    commits.fill(append)

    assert len(append.payloads) == 3


@pytest.mark.parametrize(
    ("records", "entries"), [(GATHERED_RECORDS_MAX - 1, 1), (GATHERED_RECORDS_MAX, 2)]
)
async def test_few_records_wait_for_the_commit_of_the_entry_in_flight(
    records: int, entries: int
) -> None:
    commits, append = commits_with(), Appender()
    commits.propose(Record(b"a", 1))
    commits.fill(append)

    propose_many(commits, records)
    commits.fill(append)
    assert len(append.payloads) == entries

    commits.commit(1)
    commits.fill(append)
    assert len(append.payloads) == 2
    assert len(decode_records(append.payloads[1])) == records


@pytest.mark.parametrize("missing_bytes", [1, 0])
async def test_few_large_records_do_not_wait(missing_bytes: int) -> None:
    commits, append = commits_with(), Appender()
    commits.propose(Record(b"a", 1))
    commits.fill(append)

    commits.propose(Record(bytes(GATHERED_BYTES_MAX - RECORD_OVERHEAD_BYTES - missing_bytes), 1))
    commits.fill(append)

    assert len(append.payloads) == 2 - missing_bytes


@pytest.mark.parametrize("more", [0, 1])
async def test_an_entry_holds_so_many_records_and_no_more(more: int) -> None:
    commits, append = commits_with(), Appender()
    propose_many(commits, ENTRY_RECORDS_MAX + more)

    commits.fill(append)

    assert len(decode_records(append.payloads[0])) == ENTRY_RECORDS_MAX
    assert commits.records_waiting == more


async def test_an_entry_stays_below_its_limit_in_bytes() -> None:
    commits, append = commits_with(window=9), Appender()
    for _ in range(4):
        commits.propose(Record(bytes(RECORD_BYTES_MAX), 1))

    commits.fill(append)

    assert [len(decode_records(payload)) for payload in append.payloads] == [1, 1, 1, 1]
    assert max(map(len, append.payloads)) <= ENTRY_BYTES_MAX


async def test_a_refused_entry_stays_in_the_queue_in_order() -> None:
    commits, append = commits_with(), Appender()
    commits.propose(Record(b"a", 1))
    commits.propose(Record(b"b", 1))
    append.refuses = True
    with pytest.raises(Overloaded):
        commits.fill(append)

    append.refuses = False
    commits.fill(append)

    assert decode_records(append.payloads[0]) == (Record(b"a", 1), Record(b"b", 1))


async def test_failing_ends_what_is_queued_and_what_is_in_flight() -> None:
    commits, append = commits_with(window=1), Appender()
    futures = [commits.propose(Record(b"a", 1))]
    commits.fill(append)
    futures.append(commits.propose(Record(b"b", 1)))

    commits.fail("leadership moved")

    for future in futures:
        with pytest.raises(ProposalLost, match="leadership moved"):
            await future
    assert commits.is_empty


async def test_a_caller_that_gave_up_disturbs_nobody() -> None:
    commits, append = commits_with(), Appender()
    gone, stays = commits.propose(Record(b"a", 1)), commits.propose(Record(b"b", 1))
    gone.cancel()

    commits.fill(append)
    commits.commit(1)

    assert stays.result() == Commit(1, 1, 2)
