"""What a follower keeps and what it cuts off, entry by entry (hazard H1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.worker import InlineRunner
from nextgen.replication.mesh.frames import Message
from nextgen.replication.raft.append_rules import FollowOutcome, LogDiverged, follow_append
from tests.support.simulated.disk import SimDisk


def journal_of(*terms: int) -> Journal:
    """Return a log whose entries 1, 2, … are of ``terms`` and hold one event each."""
    disk = SimDisk()
    disk.make_directory(Path("/journal"))
    journal = Journal.open(
        disk,
        Path("/journal"),
        cluster_id="c",
        group_id=1,
        node_id="n",
        runner=InlineRunner(),
        segment_bytes=16 * 1024,
    )
    for term in terms:
        journal.append(term, b"entry", 1)
    return journal


def append(previous: tuple[int, int], *terms: int, first_position: int | None = None) -> Message:
    """Return an ``append`` with entries of ``terms`` behind ``previous`` (index, term)."""
    index, term = previous
    position = index if first_position is None else first_position - 1
    return {
        "previous_index": index,
        "previous_term": term,
        "entries": [
            [index + n, entry_term, position + n, 1, b"entry"]
            for n, entry_term in enumerate(terms, start=1)
        ],
    }


def terms_of(journal: Journal) -> list[int]:
    return [journal.term_of(index) for index in range(1, journal.last_index + 1)]


def test_entries_that_follow_are_appended() -> None:
    journal = journal_of(1)

    assert follow_append(journal, 0, append((1, 1), 1, 2)) == FollowOutcome(True, 3, 0)
    assert terms_of(journal) == [1, 1, 2]


def test_a_repeated_message_cuts_nothing_off() -> None:
    """The library's own handling deletes here what was acknowledged, and loses it (H1)."""
    journal = journal_of(1, 1, 1, 1)

    outcome = follow_append(journal, 0, append((1, 1), 1))

    assert outcome == FollowOutcome(True, 2, 0)
    assert terms_of(journal) == [1, 1, 1, 1]


def test_only_what_conflicts_is_cut_off() -> None:
    journal = journal_of(1, 1, 2, 2)

    outcome = follow_append(journal, 2, append((1, 1), 1, 3))

    assert outcome == FollowOutcome(True, 3, 2)
    assert terms_of(journal) == [1, 1, 3]


def test_a_conflict_at_or_below_the_commit_index_is_never_carried_out() -> None:
    journal = journal_of(1, 1, 2)

    with pytest.raises(LogDiverged):
        follow_append(journal, 3, append((2, 1), 3))
    with pytest.raises(LogDiverged):
        follow_append(journal, 3, append((3, 3)))
    assert terms_of(journal) == [1, 1, 2]


def test_a_gap_is_answered_with_the_entry_wanted_next() -> None:
    journal = journal_of(1, 1)

    assert follow_append(journal, 0, append((5, 1), 1)) == FollowOutcome(False, 3, 0)


def test_another_past_is_answered_with_what_follows_the_commit_index() -> None:
    journal = journal_of(1, 1, 1)

    assert follow_append(journal, 1, append((3, 2), 2)) == FollowOutcome(False, 2, 0)
    assert terms_of(journal) == [1, 1, 1]


def test_entries_before_the_base_count_as_agreed() -> None:
    journal = journal_of()
    journal.reset_to(10, 2, 10)

    outcome = follow_append(journal, 10, append((8, 1), 1, 2, 2, first_position=9))

    assert outcome == FollowOutcome(True, 11, 0)
    assert journal.last_index == 11


def test_a_message_that_ends_before_the_base_agrees_up_to_the_base() -> None:
    journal = journal_of()
    journal.reset_to(10, 2, 10)

    assert follow_append(journal, 10, append((3, 1), 1)) == FollowOutcome(True, 10, 0)


def test_positions_that_are_not_dense_stop_the_replica() -> None:
    journal = journal_of(1)

    with pytest.raises(LogDiverged, match="position"):
        follow_append(journal, 0, append((1, 1), 1, first_position=5))


@given(
    leader=st.lists(st.integers(1, 3), min_size=1, max_size=8).map(sorted),
    own=st.lists(st.integers(1, 3), max_size=8).map(sorted),
    data=st.data(),
)
def test_whatever_comes_success_means_that_both_logs_agree(leader, own, data) -> None:
    # Logs of real replicas share a prefix, and differ in terms where they differ.
    shared = data.draw(st.integers(0, min(len(leader), len(own))))
    own = leader[:shared] + [term + 3 for term in own[shared:]]
    journal = journal_of(*own)
    begin = data.draw(st.integers(0, len(leader)))
    end = data.draw(st.integers(begin, len(leader)))
    previous = (begin, leader[begin - 1] if begin else 0)
    message = append(previous, *leader[begin:end])

    outcome = follow_append(journal, min(shared, begin), message)

    if outcome.success:
        assert outcome.index == end
        assert terms_of(journal)[:end] == leader[:end]
    else:
        assert terms_of(journal) == own
        assert outcome.index <= begin
