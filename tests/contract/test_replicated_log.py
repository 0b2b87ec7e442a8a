"""What every replicated log promises: the fake in memory, a real group of one, and of three."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from nextgen.kernel.errors import (
    InvalidRequest,
    NotLeader,
    Overloaded,
    ProposalLost,
    TransferFailed,
    Unavailable,
)
from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.kernel.limits.cluster import PROPOSE_QUEUE_BYTES_MAX, RECORD_BYTES_MAX
from nextgen.kernel.limits.snapshot import LOG_PINS_MAX
from nextgen.replication.ports import (
    Commit,
    Entry,
    NodeId,
    PositionCompacted,
    Record,
    ReplicatedLog,
    Role,
    RoleChange,
)
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog
from tests.support.logs.raft_cluster import SMALL_SEGMENTS, STEADY, RaftCluster, eventually

EVERYTHING = 1 << 30


class Subject:
    """A log that leads, its view, and a log of the same group that does not lead."""

    def __init__(self, log: ReplicatedLog, view: DictStateMachine, other: ReplicatedLog) -> None:
        self.log = log
        self.view = view
        self.other = other


@pytest.fixture(params=["memory", "group of one", "group of three"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "memory":
        view = DictStateMachine()
        log = MemoryLog(view)
        yield Subject(log, view, MemoryLog(DictStateMachine(), leads=False))
        await log.stop()
        return
    size = 1 if request.param == "group of one" else 3
    config = dataclasses.replace(STEADY, journal_segment_bytes=8 * 1024 * 1024)
    cluster = RaftCluster(tmp_path, size, config)
    await cluster.start()
    leader = await cluster.settled_leader()
    others: Sequence[ReplicatedLog] = await cluster.followers()
    other = others[0] if others else MemoryLog(DictStateMachine(), leads=False)
    yield Subject(leader, cluster.view_of(leader), other)
    await cluster.stop()


async def propose_all(log: ReplicatedLog, *records: Record) -> list[Commit]:
    return await asyncio.gather(*(log.propose(record) for record in records))


def records_of(entries: Sequence[Entry]) -> list[Record]:
    return [record for entry in entries for record in entry.records]


async def test_records_get_dense_positions_in_the_order_of_the_proposals(
    subject: Subject,
) -> None:
    records = [Record(b"a", 2), Record(b"b", 0), Record(b"c", 3), Record(b"d", 1)]

    commits = await propose_all(subject.log, *records)

    assert [commit.first_position for commit in commits] == [1, 3, 3, 6]
    assert records_of(subject.log.read(1, events_max=100, bytes_max=EVERYTHING)) == records


async def test_records_proposed_together_share_an_entry(subject: Subject) -> None:
    commits = await propose_all(subject.log, Record(b"a", 1), Record(b"b", 1))

    assert commits[0].index == commits[1].index


async def test_a_commit_names_the_term_of_its_leader(subject: Subject) -> None:
    (commit,) = await propose_all(subject.log, Record(b"a", 1))

    assert commit.term == subject.log.status.term


async def test_the_view_has_every_record_after_a_read_index(subject: Subject) -> None:
    await propose_all(subject.log, Record(b"a", 1), Record(b"b", 1))

    await subject.log.wait_applied(await subject.log.read_index())

    assert subject.view.payloads() == [b"a", b"b"]


async def test_concurrent_reads_are_all_answered(subject: Subject) -> None:
    (commit,) = await propose_all(subject.log, Record(b"a", 1))

    indexes = await asyncio.gather(*(subject.log.read_index() for _ in range(50)))

    assert min(indexes) >= commit.index


async def test_waiting_for_a_position_ends_when_the_view_has_it(subject: Subject) -> None:
    waiting = asyncio.ensure_future(subject.log.wait_position(3))
    await propose_all(subject.log, Record(b"a", 2))
    assert not waiting.done()

    await propose_all(subject.log, Record(b"b", 1))

    await waiting
    assert subject.view.payloads() == [b"a", b"b"]


async def test_a_commit_listener_sees_every_entry_once_and_in_order(subject: Subject) -> None:
    seen: list[Entry] = []
    unsubscribe = subject.log.on_commit(seen.extend)

    for number in range(10):
        await propose_all(subject.log, Record(b"%d" % number, 1))
    unsubscribe()
    await propose_all(subject.log, Record(b"unseen", 1))

    assert [record.payload for record in records_of(seen)] == [b"%d" % n for n in range(10)]
    assert [entry.index for entry in seen] == list(range(seen[0].index, seen[0].index + len(seen)))


async def test_a_listener_of_positions_hears_where_the_committed_events_are(
    subject: Subject,
) -> None:
    before = subject.log.commit_position
    seen: list[tuple[int, int]] = []
    unsubscribe = subject.log.on_commit_positions(lambda first, last: seen.append((first, last)))

    await propose_all(subject.log, Record(b"a", 2))
    await propose_all(subject.log, Record(b"b", 0))
    await propose_all(subject.log, Record(b"c", 1))
    unsubscribe()
    await propose_all(subject.log, Record(b"unseen", 1))

    assert seen == [
        (before + 1, before + 2),
        (before + 3, before + 2),
        (before + 3, before + 3),
    ]


async def test_a_failing_listener_disturbs_nobody(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(entries: Sequence[Entry]) -> None:
        raise RuntimeError("a bug in a listener")

    seen: list[Entry] = []
    subject.log.on_commit(fail)
    subject.log.on_commit(seen.extend)

    await propose_all(subject.log, Record(b"a", 1))

    assert records_of(seen) == [Record(b"a", 1)]
    assert "a bug in a listener" in caplog.text


async def test_a_role_listener_gets_the_present_role_at_once(subject: Subject) -> None:
    changes: list[RoleChange] = []

    subject.log.on_role_change(changes.append)

    assert [(change.role, change.term) for change in changes] == [
        (Role.LEADER, subject.log.status.term)
    ]
    assert changes[0].leader_id == subject.log.status.leader_id


async def test_a_replica_that_does_not_lead_refuses_at_once(subject: Subject) -> None:
    with pytest.raises(NotLeader):
        subject.other.propose(Record(b"a", 1))
    with pytest.raises(NotLeader):
        await subject.other.read_index()
    with pytest.raises(NotLeader):
        await subject.other.transfer_leadership(NodeId("node-1"))
    assert not subject.other.is_leader


@pytest.mark.parametrize(
    "record", [Record(b"", 0), Record(bytes(RECORD_BYTES_MAX + 1), 1), Record(b"a", -1)]
)
async def test_a_record_that_may_not_enter_a_log_is_refused(
    subject: Subject, record: Record
) -> None:
    with pytest.raises(InvalidRequest):
        subject.log.propose(record)


async def test_a_record_of_the_largest_size_is_committed(subject: Subject) -> None:
    record = Record(bytes(RECORD_BYTES_MAX), 1)

    await propose_all(subject.log, record)

    assert records_of(subject.log.read(1, events_max=1, bytes_max=1)) == [record]


async def test_a_full_queue_refuses_and_keeps_what_it_has(subject: Subject) -> None:
    record = Record(bytes(RECORD_BYTES_MAX), 1)
    fits = PROPOSE_QUEUE_BYTES_MAX // (RECORD_BYTES_MAX + 16)
    futures = [subject.log.propose(record) for _ in range(fits)]

    with pytest.raises(Overloaded):
        futures += [subject.log.propose(record) for _ in range(2)]

    commits = await asyncio.gather(*futures)
    assert [commit.first_position for commit in commits] == list(range(1, len(futures) + 1))


async def test_reading_begins_with_the_entry_that_holds_the_position(subject: Subject) -> None:
    for payload in (b"a", b"b", b"c"):
        await propose_all(subject.log, Record(payload, 2))

    found = subject.log.read(4, events_max=2, bytes_max=EVERYTHING)

    assert records_of(found) == [Record(b"b", 2)]
    assert found[0].first_position == 3


async def test_reading_stops_before_it_exceeds_a_limit_but_not_before_the_first(
    subject: Subject,
) -> None:
    for _ in range(4):
        await propose_all(subject.log, Record(b"12345678", 3))

    by_events = subject.log.read(1, events_max=7, bytes_max=EVERYTHING)
    by_bytes = subject.log.read(1, events_max=100, bytes_max=1)

    assert len(records_of(by_events)) == 2
    assert len(records_of(by_bytes)) == 1


async def test_reading_beyond_the_last_event_returns_nothing(subject: Subject) -> None:
    await propose_all(subject.log, Record(b"a", 2))

    assert len(subject.log.read(3, events_max=10, bytes_max=EVERYTHING)) == 0
    assert len(subject.log.read(99, events_max=10, bytes_max=EVERYTHING)) == 0


async def test_a_position_before_the_log_is_reported_as_compacted(subject: Subject) -> None:
    with pytest.raises(PositionCompacted) as raised:
        subject.log.read(0, events_max=10, bytes_max=EVERYTHING)

    assert raised.value.oldest == 1


async def test_a_snapshot_names_the_applied_point_and_the_log_goes_on(subject: Subject) -> None:
    (commit,) = await propose_all(subject.log, Record(b"a", 4))
    await subject.log.wait_applied(commit.index)

    point = await subject.log.compact()
    await propose_all(subject.log, Record(b"b", 1))

    assert (point.index, point.position) == (commit.index, 4)
    assert records_of(subject.log.read(5, events_max=1, bytes_max=EVERYTHING)) == [Record(b"b", 1)]


async def test_pins_are_counted_until_they_are_released(subject: Subject) -> None:
    await propose_all(subject.log, Record(b"a", 3))

    pins = [subject.log.pin("reader", 1), subject.log.pin("reader", 99)]
    assert subject.log.status.log_pins == 2
    for pin in pins:
        pin.advance(100)
        pin.release()
        pin.release()

    assert subject.log.status.log_pins == 0
    assert not pins[0].is_broken


async def test_what_is_gone_cannot_be_pinned(subject: Subject) -> None:
    with pytest.raises(PositionCompacted):
        subject.log.pin("reader", 0)


async def test_so_many_pins_there_are_and_not_one_more(subject: Subject) -> None:
    await propose_all(subject.log, Record(b"a", 1))
    for _ in range(LOG_PINS_MAX):
        subject.log.pin("reader", 1)

    with pytest.raises(Overloaded):
        subject.log.pin("reader", 1)


async def test_a_named_reader_is_listed_until_it_releases_its_pin(subject: Subject) -> None:
    await propose_all(subject.log, Record(b"a", 5))
    await subject.log.pin_reader("exporter", 2, 60_000)
    await subject.log.pin_reader("exporter", 4, 60_000)
    await subject.log.pin_reader("exporter", 3, 60_000)

    (reader,) = subject.log.readers()
    assert (reader.reader_id, reader.position, reader.is_broken) == ("exporter", 4, False)
    assert 0 < reader.expires_in_ms <= 60_000
    assert subject.log.status.log_pins == 1

    await subject.log.pin_reader("exporter", 0, 0)
    assert len(subject.log.readers()) == 0
    assert subject.log.status.log_pins == 0


async def test_a_reader_without_a_name_is_refused(subject: Subject) -> None:
    with pytest.raises(InvalidRequest, match="name"):
        await subject.log.pin_reader("", 1, 60_000)


async def test_what_is_committed_and_whether_a_leader_is_heard_is_known(subject: Subject) -> None:
    before = subject.log.commit_position
    await propose_all(subject.log, Record(b"a", 5))

    assert subject.log.commit_position == before + 5 == subject.log.status.commit_position
    assert subject.log.hears_leader
    subject.log.expedite_commits()()

    await subject.log.stop()
    assert not subject.log.hears_leader


async def test_leadership_cannot_go_to_a_stranger(subject: Subject) -> None:
    with pytest.raises(TransferFailed):
        await subject.log.transfer_leadership(NodeId("nobody"))

    assert subject.log.is_leader


async def test_the_status_counts_what_was_committed_and_applied(subject: Subject) -> None:
    (commit,) = await propose_all(subject.log, Record(b"a", 3))
    await subject.log.wait_applied(commit.index)

    status = subject.log.status

    # Each in a term of its own; who stood still after the first one may have had to win another.
    assert status.role is Role.LEADER
    assert 1 <= status.elections <= status.term
    assert (status.commit_index, status.commit_position) == (commit.index, 3)
    assert (status.applied.index, status.applied.position) == (commit.index, 3)
    assert status.first_position == 1


async def test_a_stopped_replica_ends_every_wait_and_closes_its_view(subject: Subject) -> None:
    changes: list[RoleChange] = []
    subject.log.on_role_change(changes.append)
    waiting = asyncio.ensure_future(subject.log.wait_position(1_000))
    proposal = subject.log.propose(Record(b"a", 1))
    await asyncio.sleep(0)

    await subject.log.stop()
    await subject.log.stop()

    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(NotLeader):
        subject.log.propose(Record(b"b", 1))
    outcome = (await asyncio.gather(proposal, return_exceptions=True))[0]
    assert isinstance(outcome, Commit | ProposalLost)
    assert changes[-1].role is Role.STOPPED
    assert subject.view.closed


# What only some of them can be made to do ------------------------------------------------------


async def test_the_fake_loses_what_is_in_flight_when_leadership_moves() -> None:
    view = DictStateMachine()
    log = MemoryLog(view, members=[NodeId("node-1"), NodeId("node-2")])
    log.hold_commits()
    lost = log.propose(Record(b"a", 1))
    await asyncio.sleep(0)

    log.lose_leadership(NodeId("node-2"))

    with pytest.raises(ProposalLost):
        await lost
    with pytest.raises(NotLeader) as raised:
        log.propose(Record(b"b", 1))
    assert raised.value.leader_hint == "node-2"
    assert view.payloads() == []


async def test_the_fake_can_let_a_lost_proposal_survive_all_the_same() -> None:
    view = DictStateMachine()
    log = MemoryLog(view)
    log.hold_commits()
    lost = log.propose(Record(b"a", 1))

    log.lose_leadership(pending_survives=True)

    with pytest.raises(ProposalLost):
        await lost
    assert view.payloads() == [b"a"]


async def test_the_fake_lets_a_view_fall_behind() -> None:
    view = DictStateMachine()
    log = MemoryLog(view)
    log.hold_applies()
    await propose_all(log, Record(b"a", 1))
    waiting = asyncio.ensure_future(log.wait_position(1))
    await asyncio.sleep(0)
    assert (view.payloads(), waiting.done()) == ([], False)

    log.release_applies()

    await waiting
    assert view.payloads() == [b"a"]


async def test_the_fake_fails_a_read_without_a_quorum() -> None:
    log = MemoryLog(DictStateMachine())

    log.lose_quorum()

    with pytest.raises(NotLeader):
        await log.read_index()


async def test_a_cut_log_reports_the_oldest_position_that_is_left(tmp_path: Path) -> None:
    config = dataclasses.replace(STEADY, journal_segment_bytes=SMALL_SEGMENTS)
    cluster = RaftCluster(tmp_path, 1, config)
    await cluster.start()
    log = await cluster.leader()
    for _ in range(20):
        await propose_all(log, Record(bytes(10_000).replace(b"\0", b"x"), 1))
    await log.wait_position(20)

    await log.compact()

    oldest = log.status.first_position
    assert oldest > 1
    with pytest.raises(PositionCompacted) as raised:
        log.read(1, events_max=1, bytes_max=EVERYTHING)
    assert raised.value.oldest == oldest
    assert log.read(oldest, events_max=1, bytes_max=EVERYTHING)[0].first_position <= oldest
    await cluster.stop()


async def test_a_snapshot_leaves_what_is_pinned_until_it_is_released(tmp_path: Path) -> None:
    config = dataclasses.replace(STEADY, journal_segment_bytes=SMALL_SEGMENTS)
    cluster = RaftCluster(tmp_path, 1, config)
    await cluster.start()
    log = await cluster.leader()
    for _ in range(20):
        await propose_all(log, Record(bytes(10_000).replace(b"\0", b"x"), 1))
    await log.wait_position(20)
    pin = log.pin("reader", 1)

    await log.compact()
    assert log.status.pinned_bytes > 0
    assert log.read(1, events_max=1, bytes_max=EVERYTHING)[0].first_position == 1

    pin.release()
    await eventually(lambda: log.status.first_position > 1, "what was pinned is cut")
    assert log.status.pinned_bytes == 0
    await cluster.stop()


async def test_the_fake_leaves_what_is_pinned_until_it_is_released() -> None:
    log = MemoryLog(DictStateMachine())
    for _ in range(5):
        await propose_all(log, Record(b"a", 2))
    pin = log.pin("reader", 4)

    await log.compact()
    assert log.read(4, events_max=1, bytes_max=EVERYTHING)[0].first_position == 3
    assert log.status.first_position == 3

    pin.release()
    await log.compact()
    assert log.status.first_position == 11


async def test_every_member_comes_to_be_known_to_know_what_this_program_knows(
    subject: Subject,
) -> None:
    log = subject.log
    await eventually(lambda: log.event_level == EVENT_LEVEL, "every member was heard")

    assert log.behind_event_level(EVENT_LEVEL) == ()
    assert log.behind_event_level(EVENT_LEVEL + 1) == log.status.members


async def test_leadership_moves_to_the_replica_that_is_named(tmp_path: Path) -> None:
    cluster = RaftCluster(tmp_path, 3, STEADY)
    await cluster.start()
    leader = await cluster.settled_leader()
    await propose_all(leader, Record(b"a", 1))
    successor = (await cluster.followers())[0]

    await leader.transfer_leadership(cluster.name_of(successor))

    assert not leader.is_leader
    await eventually(lambda: successor.is_leader, "the successor leads")
    await propose_all(successor, Record(b"b", 1))
    for log in cluster.logs.values():
        await log.wait_position(2)
    assert {tuple(view.payloads()) for view in cluster.views.values()} == {(b"a", b"b")}
    await cluster.stop()
