"""Group 0's view keeps its digest, and a view of an earlier version is upgraded where it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from cluster_manager import wire
from cluster_manager.adapters.stored_view import (
    REPLICAS_WITHOUT_PARTS,
    WITHOUT_CONFIGURATION,
    WITHOUT_KINDS,
    WITHOUT_LED,
    WITHOUT_LOOKUP_REPORTS,
    WITHOUT_QUOTAS,
    StoredView,
    open_view_store,
)
from cluster_manager.domain.exclusions import Exclusions, NodeExcluded
from cluster_manager.domain.shard_map import ShardMapChanged as MapChanged
from cluster_manager.projections.tables import METADATA
from nextgen.kernel.routing.slots import SlotTable
from nextgen.replication.ports import Entry, Record
from nextgen.replication.view.database import fingerprint
from protos.nextgen.v1.events_pb2 import DecidedCommand, Event
from tests.support.golden.cluster_log import RECORDS, described


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


def test_excluded_nodes_are_read_back_however_often_they_were_excluded(tmp_path):
    store = open_view_store(tmp_path)
    excluded = [[NodeExcluded("lost")], [NodeExcluded("stolen")], [NodeExcluded("lost")]]
    store.apply(
        [
            Entry(index, 1, index, (wire.record_of(events, 1_700_000_000_000),))
            for index, events in enumerate(excluded, start=1)
        ]
    )

    state, _ = StoredView(store).load()

    assert state.exclusions == Exclusions({"lost", "stolen"})
    assert store.running_digest == scanned(store)
    store.close()


OF_QUOTAS = ("quotas", "quota_units")
OF_CONFIGURATION = ("configuration", "settings", "excluded_nodes")
OF_SLOTS = ("slot_moves", "slot_plans")
OF_NODES = ("node_states",)
LATEST_TABLES = (*OF_SLOTS, *OF_NODES)
WITHOUT_KIND = "ALTER TABLE brokers DROP COLUMN kind;"
WITHOUT_ZONE = f"{WITHOUT_KIND}ALTER TABLE nodes DROP COLUMN zone;"
LATER_TABLES = WITHOUT_ZONE + "".join(
    f"DROP TABLE {name};" for name in (*OF_QUOTAS, *OF_CONFIGURATION, *LATEST_TABLES)
)

LATER_COLUMNS = {
    "brokers": (
        *("rack", "quarantined_until_ms", "draining"),
        *("drain_units_per_second", "revision"),
    ),
    "leases": ("version", "units_used", "term"),
}


CONFIGURATION_COLUMNS = {"brokers": ("announced_units",)}
LED_COLUMNS = {"placements": ("has_led",), "nodes": ("zone",)}
KIND_COLUMNS = {"brokers": ("kind",)}
"""Columns that no earlier version had."""

EVERY_COLUMN = (LATER_COLUMNS, CONFIGURATION_COLUMNS, LED_COLUMNS, KIND_COLUMNS)


def add_earlier(metadata, *, without, lacks=EVERY_COLUMN):
    """Put the tables of an earlier version into ``metadata``."""
    for table in METADATA.sorted_tables:
        if table.name not in without:
            later = [name for columns in lacks for name in columns.get(table.name, ())]
            kept = [each for each in table.columns if each.name not in later]
            columns = [Column(*_shape(each), **_rules(each)) for each in kept]
            Table(table.name, metadata, *columns)


def _shape(column):
    return column.name, column.type


def _rules(column):
    return {"primary_key": column.primary_key, "nullable": column.nullable}


EARLIER, WITHOUT_REPORTS, EARLIER_QUOTAS = MetaData(), MetaData(), MetaData()
EARLIER_CONFIGURATION, EARLIER_LED, EARLIER_KINDS = MetaData(), MetaData(), MetaData()
LATER = (*OF_QUOTAS, *OF_CONFIGURATION, *LATEST_TABLES)
add_earlier(EARLIER, without=("replicas", "placements", "lookup_reports", *LATER))
add_earlier(WITHOUT_REPORTS, without=("lookup_reports", *LATER))
add_earlier(EARLIER_QUOTAS, without=LATER, lacks=EVERY_COLUMN[1:])
add_earlier(
    EARLIER_CONFIGURATION, without=(*OF_CONFIGURATION, *LATEST_TABLES), lacks=EVERY_COLUMN[1:]
)
add_earlier(EARLIER_LED, without=LATEST_TABLES, lacks=EVERY_COLUMN[2:])
add_earlier(EARLIER_KINDS, without=(), lacks=EVERY_COLUMN[3:])
EARLIER_REPLICAS = Table(
    "replicas",
    EARLIER,
    Column("shard_id", Integer, primary_key=True),
    Column("preference", Integer, primary_key=True),
    Column("node_id", Text, nullable=False),
)


def test_the_earlier_tables_are_those_of_the_earlier_version():
    assert fingerprint(EARLIER, 1) == REPLICAS_WITHOUT_PARTS
    assert fingerprint(WITHOUT_REPORTS, 1) == WITHOUT_LOOKUP_REPORTS
    assert fingerprint(EARLIER_QUOTAS, 1) == WITHOUT_QUOTAS
    assert fingerprint(EARLIER_CONFIGURATION, 1) == WITHOUT_CONFIGURATION
    assert fingerprint(EARLIER_LED, 1) == WITHOUT_LED
    assert fingerprint(EARLIER_KINDS, 1) == WITHOUT_KINDS


WITHOUT_LED_COLUMN = "ALTER TABLE placements DROP COLUMN has_led;"
WITHOUT_LATEST = f"{WITHOUT_ZONE}{WITHOUT_LED_COLUMN}" + "".join(
    f"DROP TABLE {name};" for name in LATEST_TABLES
)


@pytest.mark.parametrize(("version", "has_led"), [(1, False), (2, True)])
def test_by_an_earlier_view_all_shards_of_a_map_later_than_the_first_have_led(
    tmp_path, version, has_led
):
    first = next(e.shard_map for events in RECORDS for e in events if isinstance(e, MapChanged))
    stored = replace(first, table=SlotTable(version, first.table.owners))
    changed = wire.shard_map_to_proto(stored)
    store = open_view_store(tmp_path)
    command = DecidedCommand(events=[Event(schema_version=1, shard_map_changed=changed)])
    store.apply([Entry(1, 1, 1, (Record(command.SerializeToString(), 1),))])
    folded, digest = StoredView(store).load()[0], store.running_digest
    store.close()
    path = tmp_path / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"{WITHOUT_LATEST} PRAGMA user_version={WITHOUT_LED}")

    again = open_view_store(tmp_path)

    upgraded = StoredView(again).load()[0]
    assert {each.has_led for each in upgraded.shard_map.placements} == {has_led}
    assert (upgraded, again.running_digest) == (folded, digest), "as from the log"
    again.close()


@pytest.mark.parametrize(
    ("earlier", "later_tables"),
    [
        (WITHOUT_QUOTAS, LATER),
        (WITHOUT_CONFIGURATION, (*OF_CONFIGURATION, *LATEST_TABLES)),
        (WITHOUT_LED, LATEST_TABLES),
    ],
)
def test_a_view_without_later_tables_is_upgraded_where_it_is(tmp_path, earlier, later_tables):
    store = open_view_store(tmp_path)
    store.apply(entries())
    expected, state = store.running_digest, StoredView(store).load()
    store.close()
    path = tmp_path / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        dropped = "".join(f"DROP TABLE {name};" for name in later_tables)
        dropped += WITHOUT_ZONE + WITHOUT_LED_COLUMN
        if "configuration" in later_tables:
            dropped += "ALTER TABLE brokers DROP COLUMN announced_units;"
        connection.executescript(f"{dropped} PRAGMA user_version={earlier}")

    again = open_view_store(tmp_path)

    assert (again.running_digest, StoredView(again).load()) == (expected, state)
    again.close()


def test_a_view_without_kinds_of_brokers_is_upgraded_where_it_is(tmp_path):
    store = open_view_store(tmp_path)
    store.apply(entries())
    expected, state = store.running_digest, StoredView(store).load()
    store.close()
    path = tmp_path / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"{WITHOUT_KIND} PRAGMA user_version={WITHOUT_KINDS}")

    again = open_view_store(tmp_path)

    assert (again.running_digest, StoredView(again).load()) == (expected, state)
    again.close()


def test_a_view_without_windows_of_lookups_is_upgraded_where_it_is(tmp_path):
    store = open_view_store(tmp_path)
    store.apply(entries())
    expected, state = store.running_digest, StoredView(store).load()
    store.close()
    path = tmp_path / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            f"{LATER_TABLES}{WITHOUT_LED_COLUMN}DROP TABLE lookup_reports;"
            f"PRAGMA user_version={WITHOUT_LOOKUP_REPORTS}"
        )

    again = open_view_store(tmp_path)

    assert (again.running_digest, StoredView(again).load()) == (expected, state)
    again.close()


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
            "DROP TABLE later; DROP TABLE placements; DROP TABLE lookup_reports;"
            f"{LATER_TABLES}"
            "DROP TABLE view_digest; DROP TABLE digest_points;"
            f"PRAGMA user_version={REPLICAS_WITHOUT_PARTS}"
        )

    again = open_view_store(tmp_path)

    assert again.running_digest == expected, "as if this version had folded the log"
    upgraded, index = StoredView(again).load()
    assert (described(upgraded), index) == (described(state[0]), state[1])
    assert upgraded.shard_map == state[0].shard_map
    again.close()


def test_leases_of_a_release_that_recorded_no_use_count_as_used_after_the_upgrade(tmp_path):
    store = open_view_store(tmp_path)
    store.apply(entries())
    store.close()
    path = tmp_path / "view.000000000001.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name, columns in LATER_COLUMNS.items():
            for column in columns:
                connection.execute(f"ALTER TABLE {name} DROP COLUMN {column}")
        connection.executescript(
            f"{LATER_TABLES}{WITHOUT_LED_COLUMN}DROP TABLE lookup_reports;"
            f"PRAGMA user_version={WITHOUT_LOOKUP_REPORTS}"
        )
    expected = open_view_store(tmp_path / "folded")
    expected.apply(entries())

    again = open_view_store(tmp_path)

    assert StoredView(again).load() == StoredView(expected).load()
    assert again.running_digest == expected.running_digest
    leases = StoredView(again).load()[0].ledger.accounts["broker-1"].leases
    assert leases
    assert all(lease.units_used == lease.units for lease in leases.values())
    again.close()
    expected.close()
