"""Group 0's view keeps its digest, and a view of an earlier version is upgraded where it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from cluster_manager import wire
from cluster_manager.adapters.stored_view import (
    REPLICAS_WITHOUT_PARTS,
    StoredView,
    open_view_store,
)
from cluster_manager.projections.tables import METADATA
from nextgen.replication.ports import Entry
from nextgen.replication.view_database import fingerprint
from tests.support.write_golden_cluster_log import RECORDS, described


def entries():
    made, position = [], 1
    for index, events in enumerate(RECORDS, start=1):
        record = wire.record_of(events, 1_700_000_000_000 + index)
        made.append(Entry(index, 1, position, (record,)))
        position += len(events)
    return made


def scanned(store):
    with store.pinned_state() as state:
        return state.scan()


@pytest.mark.parametrize("size", [1, 3, len(RECORDS)])
def test_the_digest_is_what_a_scan_gives_whatever_the_batches(tmp_path, size):
    whole, cut = open_view_store(tmp_path / "whole"), open_view_store(tmp_path / "cut")
    whole.apply(entries())

    for start in range(0, len(RECORDS), size):
        cut.apply(entries()[start : start + size])
        assert cut.running_digest == scanned(cut) != 0

    assert cut.running_digest == whole.running_digest
    whole.close()
    cut.close()


EARLIER = MetaData()
for _table in METADATA.sorted_tables:
    if _table.name not in ("replicas", "placements"):
        _table.to_metadata(EARLIER)
EARLIER_REPLICAS = Table(
    "replicas",
    EARLIER,
    Column("shard_id", Integer, primary_key=True),
    Column("preference", Integer, primary_key=True),
    Column("node_id", Text, nullable=False),
)


def test_the_earlier_tables_are_those_of_the_earlier_version():
    assert fingerprint(EARLIER, 1) == REPLICAS_WITHOUT_PARTS


def test_a_view_of_the_earlier_version_is_upgraded_where_it_is(tmp_path):
    store = open_view_store(tmp_path)
    store.apply(entries())
    expected, state = store.running_digest, StoredView(store).load()
    store.close()
    path = tmp_path / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            "ALTER TABLE replicas RENAME TO later;"
            "CREATE TABLE replicas (shard_id INTEGER NOT NULL, preference INTEGER NOT NULL,"
            " node_id TEXT NOT NULL, PRIMARY KEY (shard_id, preference));"
            "INSERT INTO replicas SELECT shard_id, preference, node_id FROM later;"
            "DROP TABLE later; DROP TABLE placements;"
            "DROP TABLE view_digest; DROP TABLE digest_points;"
            f"PRAGMA user_version={REPLICAS_WITHOUT_PARTS}"
        )

    again = open_view_store(tmp_path)

    assert again.running_digest == expected, "as if this version had folded the log"
    upgraded, index = StoredView(again).load()
    assert (described(upgraded), index) == (described(state[0]), state[1])
    assert upgraded.shard_map == state[0].shard_map
    again.close()
