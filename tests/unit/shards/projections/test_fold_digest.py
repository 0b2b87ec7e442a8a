"""What the fold says of the digest is what a scan of its tables gives, in any batches."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Index, MetaData, Table, Text, text
from sqlalchemy.schema import CreateIndex, CreateTable

from nextgen.replication.view.database import driver_of, fingerprint
from nextgen.replication.view.digest import plus, scan
from shards.domain import broker_session, shard
from shards.domain.assignment import TopicAssigned
from shards.domain.topic import TopicCreated, TopicDeleted
from shards.projections import outcomes as outcomes_module
from shards.projections.fold import fold
from shards.projections.stored_view import (
    IDS_AS_TEXT,
    UNITS_BY_KEY_ONLY,
    WITHOUT_ANNOUNCED,
    WITHOUT_KINDS,
    WITHOUT_LOADS,
    WITHOUT_MOVES,
    WITHOUT_PRUNING,
    WITHOUT_RENAMES,
    WITHOUT_RESTORES,
    WITHOUT_SCALABLE_TOPICS,
    WITHOUT_SHADOWS,
    WITHOUT_TENANT_USAGE,
    open_view_store,
)
from shards.projections.tables import METADATA, SOURCE_OF_TOPIC
from tests.support.shards.events import ENDPOINTS, HISTORY, TIME_MS, TOPIC, entries_of, record_of
from tests.support.shards.world import MemoryView


class Followed(MemoryView):
    """A view in memory whose digest is kept beside it. ``unknown`` counts folds that gave none."""

    def __init__(self) -> None:
        super().__init__()
        self.digest_sum = 0
        self.unknown = 0

    def apply(self, entries):
        change = fold(self.reader(), entries)
        self.reader().commit()
        if change is None:
            self.unknown += 1
            self.digest_sum = self.scanned()
        else:
            self.digest_sum = plus(self.digest_sum, change)

    def scanned(self) -> int:
        return scan(driver_of(self.reader()), METADATA)[0]


def id_of(number):
    return number.to_bytes(16, "big")


def in_batches(entries, sizes):
    view = Followed()
    sizes = list(sizes)
    while entries:
        size = sizes.pop() if sizes else len(entries)
        view.apply(entries[:size])
        entries = entries[size:]
        assert view.digest_sum == view.scanned()
    return view


batch_sizes = st.lists(st.integers(1, 4), max_size=40)


@settings(max_examples=25, deadline=None)
@given(
    records=st.lists(st.integers(0, 6), min_size=1, max_size=len(HISTORY)),
    one=batch_sizes,
    other=batch_sizes,
)
def test_a_history_with_every_event_keeps_the_digest_that_a_scan_gives(records, one, other):
    groups, rest = [], list(HISTORY)
    for number, size in enumerate([*records, len(HISTORY)]):
        groups.append([record_of(rest[:size], id_of(number), b"outcome")])
        rest = rest[size:]
    entries = entries_of(groups)

    first, second = in_batches(entries, one), in_batches(entries, other)

    assert first.digest_sum == second.digest_sum
    assert first.unknown == second.unknown == 0
    first.reader().close()
    second.reader().close()


@settings(max_examples=40, deadline=None)
@given(
    commands=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 3), st.sampled_from((0, 0, 1, 2, 6))),
        min_size=1,
        max_size=30,
    ),
    one=batch_sizes,
    other=batch_sizes,
)
def test_outcomes_are_forgotten_alike_however_the_log_is_cut(commands, one, other):
    """Ids that come again, rejections that move no position, windows that everything leaves; and
    leaders that begin to order what is kept, at any place of the log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes_module, "OUTCOMES_MAX", 6)
        patch.setattr(outcomes_module, "OUTCOMES_WITHOUT_ORDERS_MAX", 4)
        patch.setattr(outcomes_module, "OUTCOME_WINDOW_POSITIONS", 5)
        groups, topic = [], 0
        for number, (command, events, ordered) in enumerate(commands):
            kept_from = ordered and max(1, topic - ordered)
            created = []
            for _ in range(events):
                topic += 1
                created.append(
                    TopicCreated(f"t-{topic}", f"persistent://a/b/t-{topic}", 0, "ns", TIME_MS)
                )
            outcome = b"outcome %d" % number
            record = record_of(created, id_of(command), outcome, outcomes_kept_from=kept_from)
            groups.append([record])
        entries = entries_of(groups)

        first, second = in_batches(entries, one), in_batches(entries, other)

    assert first.dump() == second.dump()
    assert first.digest_sum == second.digest_sum
    first.reader().close()
    second.reader().close()


def created(topic_id, name=TOPIC):
    return TopicCreated(topic_id, name, 0, "ns-1", TIME_MS)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([created("topic-1")], [TopicDeleted(TOPIC, "topic-1"), created("topic-2")]),
        ([created("topic-1")], [TopicDeleted(TOPIC, "topic-1")]),
        ([], [created("topic-1"), TopicDeleted(TOPIC, "topic-1")]),
        (
            [shard.SlotsAdopted(((0, 9),), 1)],
            [shard.SlotsAdopted(((0, 7),), 2)],
        ),
        (
            [broker_session.BrokerSessionEstablished("b", "s-1", 1, ENDPOINTS, 9, "")],
            [broker_session.BrokerSessionEstablished("b", "s-2", 2, ENDPOINTS, 9, "")],
        ),
        (
            [TopicAssigned("topic-1", "", TOPIC, 1, "b", "s", "x")],
            [TopicAssigned("topic-1", "", TOPIC, 2, "b", "s", "x")],
        ),
    ],
    ids=["made again", "deleted", "come and gone", "slots again", "session again", "moved"],
)
def test_what_replaces_something_that_is_stored_takes_it_from_the_digest(first, second):
    entries = entries_of([[record_of(first)], [record_of(second)]])

    view = in_batches(entries, [1, 1])

    assert view.digest_sum == view.scanned()
    assert view.unknown == 0
    view.reader().close()


def test_a_topic_that_is_created_over_another_has_the_view_scanned():
    """No leader decides that; if a log says it all the same, the digest stays right."""
    entries = entries_of([[record_of([created("topic-1")])], [record_of([created("topic-2")])]])

    view = in_batches(entries, [1, 1])

    assert view.unknown == 1
    assert view.digest_sum == view.scanned()
    view.reader().close()


# Views of earlier versions ----------------------------------------------------------------------

ADDED = {
    "broker_sessions": (
        "rack",
        "quarantined_until_ms",
        "draining",
        "drain_units_per_second",
        "revision",
        "started_at_ms",
    ),
    "tenants": ("policies", "policies_version"),
    "namespaces": ("policies", "policies_version"),
    "topics": ("policies", "policies_version"),
    "shard_meta": ("restore_id", "restore_phase", "least_epoch"),
}
"""Columns that the earlier versions did not have."""

ADDED_INDEXES = ("assignments_by_session",)
SHADOW_INDEX = "shadows_by_source"

TEXT_IDS = {"topics": ("topic_id", "namespace_id"), "assignments": ("session_id",)}


ANNOUNCED = "announced_units"
"""A column of broker_sessions that no earlier version had."""

MOVES = "slot_moves"
"""A column of shard_meta that no earlier version had."""

RENAMES = "former_names"
"""A column of topics that no earlier version had, and a table that is not in them either."""

KIND = "kind"
"""A column of broker_sessions that no earlier version had. Other tables have one too."""

MADE_LATER = (
    "tenant_usage",
    "scalable_topics",
    "topic_loads",
    "shadow_sources",
    "topic_names",
    "former_names",
)

LATEST_ADDED = {"shard_meta": ADDED["shard_meta"]}
"""Of ``ADDED``, those that the version without restores did not have."""


def _tables_without(
    text_ids: dict[str, tuple[str, ...]], added: dict[str, tuple[str, ...]] = ADDED
) -> MetaData:
    earlier = MetaData()
    for table in METADATA.sorted_tables:
        if table.name in MADE_LATER:
            continue
        columns = [
            column._copy()
            for column in table.columns
            if column.name not in (*added.get(table.name, ()), ANNOUNCED, MOVES, RENAMES)
            and (table.name, column.name) != ("broker_sessions", KIND)
        ]
        for column in columns:
            if column.name in text_ids.get(table.name, ()):
                column.type = Text()
        copy = Table(table.name, earlier, *columns, sqlite_with_rowid=False)
        for index in table.indexes:
            if index.name == SHADOW_INDEX:
                continue
            if index.name not in ADDED_INDEXES or added is not ADDED:
                Index(index.name, *(copy.columns[column.name] for column in index.columns))
    return earlier


def _tables_with_tenant_usage(added: dict[str, tuple[str, ...]]) -> MetaData:
    earlier = _tables_without({}, added)
    METADATA.tables["tenant_usage"].to_metadata(earlier)
    return earlier


def _tables_without_pruning() -> MetaData:
    earlier = _tables_with_tenant_usage({})
    table = METADATA.tables["scalable_topics"]
    columns = [each._copy() for each in table.columns if each.name != "prune_at_ms"]
    copy = Table(table.name, earlier, *columns, sqlite_with_rowid=False)
    for flag in ("work", "consumers"):
        where = copy.columns[f"has_{flag}"] == 1
        Index(f"scalable_topics_with_{flag}", copy.columns["name"], sqlite_where=where)
    return earlier


def _tables_with_scalable_topics(*more: str) -> MetaData:
    earlier = _tables_with_tenant_usage({})
    for name in ("scalable_topics", *more):
        METADATA.tables[name].to_metadata(earlier)
    return earlier


def _tables_without_columns(
    columns: Mapping[str, tuple[str, ...]], tables: Collection[str] = ("topic_names", RENAMES)
) -> MetaData:
    """Return later tables without some, and without some columns of each of others."""
    earlier = MetaData()
    for table in METADATA.sorted_tables:
        if table.name in columns:
            kept = [each._copy() for each in table.columns if each.name not in columns[table.name]]
            copy = Table(table.name, earlier, *kept, sqlite_with_rowid=False)
            if table.name == "topics":
                where = text(f"{SOURCE_OF_TOPIC} IS NOT NULL")
                Index(SHADOW_INDEX, text(SOURCE_OF_TOPIC), copy.columns["name"], sqlite_where=where)
        elif table.name not in tables:
            table.to_metadata(earlier)
    return earlier


EARLIER = {
    IDS_AS_TEXT: _tables_without(TEXT_IDS),
    UNITS_BY_KEY_ONLY: _tables_without({}),
    WITHOUT_TENANT_USAGE: _tables_without({}, LATEST_ADDED),
    WITHOUT_RESTORES: _tables_with_tenant_usage(LATEST_ADDED),
    WITHOUT_SCALABLE_TOPICS: _tables_with_tenant_usage({}),
    WITHOUT_PRUNING: _tables_without_pruning(),
    WITHOUT_LOADS: _tables_with_scalable_topics(),
    WITHOUT_SHADOWS: _tables_with_scalable_topics("topic_loads"),
    WITHOUT_ANNOUNCED: _tables_without_columns(
        {"broker_sessions": (ANNOUNCED, KIND), "shard_meta": (MOVES,), "topics": (RENAMES,)}
    ),
    WITHOUT_MOVES: _tables_without_columns(
        {"broker_sessions": (KIND,), "shard_meta": (MOVES,), "topics": (RENAMES,)}
    ),
    WITHOUT_RENAMES: _tables_without_columns({"broker_sessions": (KIND,), "topics": (RENAMES,)}),
    WITHOUT_KINDS: _tables_without_columns({"broker_sessions": (KIND,)}, ()),
}
COUNTED_TENANTS = (
    WITHOUT_RESTORES,
    WITHOUT_SCALABLE_TOPICS,
    WITHOUT_PRUNING,
    WITHOUT_LOADS,
    WITHOUT_SHADOWS,
    WITHOUT_ANNOUNCED,
    WITHOUT_MOVES,
    WITHOUT_RENAMES,
    WITHOUT_KINDS,
)
WITH_SHADOWS = (WITHOUT_ANNOUNCED, WITHOUT_MOVES, WITHOUT_RENAMES, WITHOUT_KINDS)
VERSIONS = pytest.mark.parametrize(
    "version",
    EARLIER,
    ids=[
        "ids as text",
        "units by key only",
        "tenants' units not counted",
        "no restores",
        "no scalable topics",
        "no pruning",
        "no loads",
        "no shadows",
        "no announced capacities",
        "no moves of slots",
        "no renames",
        "no kinds of brokers",
    ],
)


def _drop_latest(connection: sqlite3.Connection, version: int) -> None:
    if version == WITHOUT_KINDS:
        return
    connection.execute("DROP TABLE topic_names")
    connection.execute("DROP TABLE former_names")
    if version not in WITH_SHADOWS:
        connection.execute("DROP TABLE shadow_sources")
        connection.execute(f"DROP INDEX {SHADOW_INDEX}")


def _as_earlier(connection: sqlite3.Connection, version: int) -> None:
    """Make what was just folded what the earlier version would have made of it."""
    earlier = EARLIER[version]
    is_late = version not in (IDS_AS_TEXT, UNITS_BY_KEY_ONLY)
    text_ids = TEXT_IDS if version == IDS_AS_TEXT else {}
    changed: dict[str, tuple[str, ...]] = (
        LATEST_ADDED if is_late else {**ADDED, **text_ids, "assignments": ()}
    )
    _drop_latest(connection, version)
    if version not in (WITHOUT_SHADOWS, *WITH_SHADOWS):
        connection.execute("DROP TABLE topic_loads")
    if version in (WITHOUT_LOADS, WITHOUT_SHADOWS, *WITH_SHADOWS):
        changed = {}
    elif version == WITHOUT_PRUNING:
        changed = {"scalable_topics": ()}
    else:
        connection.execute("DROP TABLE scalable_topics")
    for table in sorted({*changed, "broker_sessions", "shard_meta", "topics"}):
        columns = [column.name for column in earlier.tables[table].columns]
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        connection.execute(f"DROP TABLE {table}")
        connection.execute(str(CreateTable(earlier.tables[table])))
        for row in rows:
            values = [
                value.hex()
                if name in text_ids.get(table, ()) and isinstance(value, bytes)
                else value
                for name, value in zip(columns, row, strict=True)
            ]
            connection.execute(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values
            )
        for index in earlier.tables[table].indexes:
            connection.execute(str(CreateIndex(index)))
    if version not in COUNTED_TENANTS:
        connection.execute("DROP TABLE tenant_usage")
    if not is_late:
        connection.execute("DROP TABLE view_digest")
        connection.execute("DROP TABLE digest_points")
    connection.execute(f"PRAGMA user_version={version}")


@VERSIONS
def test_the_earlier_tables_are_those_of_the_earlier_version(version):
    assert fingerprint(EARLIER[version], 1) == version


@VERSIONS
def test_a_view_of_the_earlier_version_is_upgraded_where_it_is(tmp_path, version):
    """Its log may have been cut: nothing else could bring the rows back."""
    ids = [f"00aa{number:020x}" for number in range(3)]
    events = [
        shard.SlotsAdopted(((0, 9),), 1),
        created(ids[0], "persistent://a/b/one"),
        TopicCreated(ids[1], "persistent://a/b/two", 0, ids[2], TIME_MS, (("k", "v"),)),
        TopicAssigned(ids[0], "", "persistent://a/b/one", 1, "b", ids[2], "x"),
        TopicAssigned(ids[1], "", "persistent://a/b/two", 1, "b", "no id", "x"),
    ]
    view = open_view_store(tmp_path / "view")
    view.apply(entries_of([[record_of(events, id_of(1), b"outcome")]]))
    expected, applied = view.running_digest, view.applied()
    view.close()
    path = tmp_path / "view" / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _as_earlier(connection, version)
        stored = connection.execute("SELECT topic_id FROM topics").fetchone()
    assert stored == (ids[0] if version == IDS_AS_TEXT else bytes.fromhex(ids[0]),)

    again = open_view_store(tmp_path / "view")

    assert again.applied() == applied
    assert again.running_digest == expected, "as if this version had folded the log"
    with again.pinned_state() as state:
        assert state.scan() == expected
    again.apply(
        entries_of(
            [[record_of([created(ids[2], "persistent://a/b/c")])]], from_index=2, from_position=6
        )
    )
    again.close()


@VERSIONS
def test_a_snapshot_of_the_earlier_version_is_upgraded_when_it_is_installed(tmp_path, version):
    view = open_view_store(tmp_path / "view")
    view.apply(entries_of([[record_of([created(f"00aa{1:020x}")])]]))
    view.write_snapshot(tmp_path / "snapshot")
    expected = view.running_digest
    view.close()
    with closing(sqlite3.connect(tmp_path / "snapshot", isolation_level=None)) as connection:
        _as_earlier(connection, version)
    other = open_view_store(tmp_path / "other")

    other.install_snapshot(tmp_path / "snapshot")

    assert other.running_digest == expected
    other.close()
