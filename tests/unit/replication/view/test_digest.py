"""A view's digest: the same whatever the batches, the same as a scan, another for other rows."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from nextgen.kernel.limits.cluster import DIGEST_POSITIONS, DIGESTS_KEPT
from nextgen.replication.ports import AppliedPoint, Entry, Record, ViewDigest
from nextgen.replication.view.database import read_only
from nextgen.replication.view.digest import (
    batches_of,
    digest_of,
    next_digest_position,
    plus,
    rows_digest,
    scan,
    stored_of,
)
from nextgen.replication.view.store import ViewStore
from tests.support.logs.views import METADATA, entries_of, fold_names, names_in, open_view

values = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())
rows = st.lists(st.tuples(values, values), max_size=20)
digests = st.integers(0, 2**64 - 1)


def scanned(view: ViewStore) -> int:
    with view.pinned_state() as state:
        return state.scan()


def file_of(view_directory: Path) -> Path:
    return view_directory / "view.000000000001.sqlite"


def to_the_next_point(*, index: int, position: int, name: str = "many") -> Entry:
    """An entry of one record whose events end where digests are taken."""
    events = next_digest_position(position) - position
    return Entry(index, 1, position + 1, (Record(name.encode(), events),))


# The number ------------------------------------------------------------------------------------


@given(rows, st.randoms())
def test_the_order_of_rows_does_not_matter(some, chance):
    shuffled = list(some)
    chance.shuffle(shuffled)

    assert rows_digest("names", shuffled) == rows_digest("names", some)


@given(rows, rows)
def test_what_is_subtracted_is_as_if_it_had_never_been_added(some, others):
    both = rows_digest("names", [*some, *others])

    assert plus(both, -rows_digest("names", others)) == rows_digest("names", some)


@pytest.mark.parametrize("other", [("a", 1), ("b", 2), ("a", "2"), ("a", None), (b"a", 2)])
def test_a_row_that_differs_in_content_or_type_differs(other):
    assert rows_digest("names", [other]) != rows_digest("names", [("a", 2)])


def test_a_row_of_another_table_differs():
    assert rows_digest("names", [("a", 2)]) != rows_digest("others", [("a", 2)])


def test_a_row_that_is_there_twice_counts_twice():
    assert rows_digest("names", [("a", 2)] * 2) != 0
    assert rows_digest("names", [("a", 2)] * 2) != rows_digest("names", [("a", 2)])


@given(digests)
def test_every_digest_fits_into_an_integer_of_sqlite(digest):
    assert -(2**63) <= stored_of(digest) < 2**63
    assert digest_of(stored_of(digest)) == digest


# Where it is taken -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (0, DIGEST_POSITIONS),
        (DIGEST_POSITIONS - 1, DIGEST_POSITIONS),
        (DIGEST_POSITIONS, 2 * DIGEST_POSITIONS),
    ],
)
def test_digests_are_taken_at_the_multiples(position, expected):
    assert next_digest_position(position) == expected


@given(st.lists(st.integers(0, 3 * DIGEST_POSITIONS), min_size=1, max_size=12))
def test_every_digest_point_ends_a_batch_and_nothing_is_lost(events):
    entries, position = [], 0
    for index, count in enumerate(events, start=1):
        entries.append(Entry(index, 1, position + 1, (Record(b"x", count),)))
        position += count

    batches = list(batches_of(entries, 0))

    assert [entry for batch in batches for entry in batch] == entries
    reached = 0
    for batch in batches:
        before_the_last = batch[-1].first_position - 1
        assert before_the_last < next_digest_position(reached)
        reached = batch[-1].next_position - 1


def test_a_batch_that_goes_on_behind_a_digest_point_is_a_bug(tmp_path):
    view = open_view(tmp_path / "view")
    first = to_the_next_point(index=1, position=0)

    with pytest.raises(AssertionError, match="ends its batch"):
        view.apply([first, _behind(first)])

    assert view.applied() == AppliedPoint(0, 0, 0)
    view.close()


def _behind(entry: Entry, name: str = "a") -> Entry:
    return Entry(entry.index + 1, 1, entry.next_position, (Record(name.encode(), 1),))


# In a view -------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    events=st.lists(st.sampled_from([0, 1, 1_000, DIGEST_POSITIONS]), min_size=1, max_size=10),
    cuts=st.lists(st.integers(1, 4), max_size=10),
)
def test_it_does_not_depend_on_batches_and_is_what_a_scan_gives(events, cuts):
    entries, position = [], 0
    for index, count in enumerate(events, start=1):
        entries.append(Entry(index, 1, position + 1, (Record(f"n{count}".encode(), count),)))
        position += count
    with tempfile.TemporaryDirectory() as directory:
        one = open_view(Path(directory) / "one")
        other = open_view(Path(directory) / "other")

        for batch in batches_of(entries, 0):
            one.apply(batch)
        while entries:
            size = cuts.pop() if cuts else 1
            for batch in batches_of(entries[:size], other.applied().position):
                other.apply(batch)
            entries = entries[size:]

        assert one.running_digest == other.running_digest == scanned(one) == scanned(other)
        assert one.digest() == other.digest()
        assert (one.digest() is not None) is (position >= DIGEST_POSITIONS)
        one.close()
        other.close()


def test_the_digest_point_is_stored_with_the_view_and_travels_with_its_copies(tmp_path):
    view = open_view(tmp_path / "view")
    view.apply([to_the_next_point(index=1, position=0)])
    view.write_snapshot(tmp_path / "snapshot")
    taken, running = view.digest(), view.running_digest
    view.close()

    again = open_view(tmp_path / "view")
    copy = open_view(tmp_path / "copy")
    copy.install_snapshot(tmp_path / "snapshot")

    assert taken == ViewDigest(1, DIGEST_POSITIONS, running, taken.scheme)
    for other in (again, copy):
        assert (other.digest(), other.running_digest) == (taken, running)
        other.close()


def test_a_stated_number_of_points_is_stored(tmp_path):
    view = open_view(tmp_path / "view")
    position = 0
    for index in range(1, DIGESTS_KEPT + 3):
        view.apply([to_the_next_point(index=index, position=position)])
        position = view.applied().position
    view.close()

    with closing(read_only(file_of(tmp_path / "view"))) as connection:
        positions = [
            row[0] for row in connection.execute("SELECT position FROM digest_points ORDER BY 1")
        ]
    assert len(positions) == DIGESTS_KEPT
    assert positions[-1] == position


def test_a_view_that_is_begun_again_has_no_digest(tmp_path):
    view = open_view(tmp_path / "view")
    view.apply([to_the_next_point(index=1, position=0)])

    view.quarantine()

    assert (view.digest(), view.running_digest) == (None, 0)
    view.close()


@pytest.mark.parametrize("remembers", [False, True], ids=["never had one", "has an old one"])
def test_a_view_that_an_earlier_program_wrote_is_scanned_and_keeps_its_rows(tmp_path, remembers):
    """A rolling upgrade: with a log that was cut the rows are all there is."""
    view = open_view(tmp_path / "view")
    view.apply([to_the_next_point(index=1, position=0)])
    view.close()
    with closing(sqlite3.connect(file_of(tmp_path / "view"), isolation_level=None)) as connection:
        if remembers:
            connection.execute("INSERT INTO names VALUES ('theirs', 7)")
            connection.execute("UPDATE applied SET log_index = 2")
        else:
            connection.execute("DROP TABLE view_digest")
            connection.execute("DROP TABLE digest_points")

    again = open_view(tmp_path / "view")

    assert names_in(again) == {"many": 1} | ({"theirs": 7} if remembers else {})
    assert again.running_digest == scanned(again) != 0
    assert again.digest() is None, "what was taken before may be of other rows"
    again.close()


def test_a_fold_that_cannot_tell_what_it_replaced_has_the_view_scanned(tmp_path):
    def fold(connection: Connection, entries: Sequence[Entry]) -> None:
        fold_names(connection, entries)

    view = ViewStore(tmp_path / "view", METADATA, fold)

    view.apply(entries_of("ab"))
    view.apply(entries_of("b", from_index=3))

    assert view.running_digest == scanned(view) != 0
    view.close()


def test_a_row_that_was_changed_behind_the_fold_is_found_by_a_scan_and_once_it_is_touched(
    tmp_path,
):
    sound, spoiled = open_view(tmp_path / "sound"), open_view(tmp_path / "spoiled")
    for view in (sound, spoiled):
        view.apply(entries_of("ab"))
    with closing(sqlite3.connect(file_of(tmp_path / "spoiled"), isolation_level=None)) as stranger:
        stranger.execute("UPDATE names SET seen = 5 WHERE name = 'a'")

    assert spoiled.running_digest == sound.running_digest
    assert scanned(spoiled) != spoiled.running_digest
    for view in (sound, spoiled):
        view.apply(entries_of("a", from_index=3))
        last = to_the_next_point(index=4, position=3, name="b")
        view.apply([last])
    assert spoiled.digest() != sound.digest()
    for view in (sound, spoiled):
        view.close()


def test_a_scan_reads_every_table(tmp_path):
    view = open_view(tmp_path / "view")
    view.apply(entries_of("abc"))

    with closing(read_only(file_of(tmp_path / "view"))) as connection:
        digest, count = scan(connection, METADATA, pause_s=0.000_001)

    assert (digest, count) == (view.running_digest, 3)
    view.close()
