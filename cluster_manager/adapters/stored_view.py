"""The ``View`` port on the view store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable, Table

from cluster_manager.domain.cluster import ClusterState
from cluster_manager.projections.fold import fold_entries
from cluster_manager.projections.tables import (
    BROKERS,
    CONFIGURATION,
    EXCLUDED_NODES,
    LEASES,
    LOOKUP_REPORTS,
    METADATA,
    NODE_STATES,
    NODES,
    PLACEMENTS,
    QUOTA_UNITS,
    QUOTAS,
    REPLICAS,
    SETTINGS,
    SHARD_MAP,
    SLOT_MOVES,
    SLOT_PLANS,
    load_state,
)
from nextgen.kernel.routing.slots import FIRST_VERSION
from nextgen.replication.view.database import recreate_table
from nextgen.replication.view.store import ViewStore

REPLICAS_WITHOUT_PARTS = 0x6F0E_5379
"""Fingerprint of the tables before placements had joining and leaving replicas."""


WITHOUT_LOOKUP_REPORTS = 0x5614_D090
"""Fingerprint of the tables before windows of lookups, drains and returned leases were recorded."""

WITHOUT_QUOTAS = 0x6FDF_F6DD
"""Fingerprint of the tables before there were quotas."""

WITHOUT_CONFIGURATION = 0x6A05_F79D
"""Fingerprint of the tables before settings could be overridden, capacities lowered, and nodes
excluded."""

WITHOUT_LED = 0x7D0F_77F2
"""Fingerprint of the tables before it was recorded whether a shard has had a leader, and which zone
and state a shard node has, and before slots moved between shards."""

WITHOUT_KINDS = 0x1DD0_D9BE
"""Fingerprint of the tables before there were brokers of another kind than embedded ones."""

_SILENT_PLACEMENT = {"has_led": f"(SELECT version > {FIRST_VERSION} FROM {SHARD_MAP.name})"}
"""Maps of earlier releases leave the first version when every shard has had a leader."""

_SILENT_BROKER = {
    "rack": "''",
    "quarantined_until_ms": "0",
    "draining": "0",
    "drain_units_per_second": "0",
    "revision": "0",
    "announced_units": "0",
    "kind": "''",
}
_SILENT_LEASE = {"version": "0", "units_used": "units", "term": "0"}
"""A lease that an earlier release recorded without its use counts as fully used."""


def open_view_store(directory: Path) -> ViewStore:
    """Return the state machine that folds group 0's log into tables in ``directory``."""
    return ViewStore(
        directory,
        METADATA,
        fold_entries,
        upgrades={
            REPLICAS_WITHOUT_PARTS: _add_parts,
            WITHOUT_LOOKUP_REPORTS: _add_lookup_reports,
            WITHOUT_QUOTAS: _add_quotas,
            WITHOUT_CONFIGURATION: _add_configuration,
            WITHOUT_LED: _add_led,
            WITHOUT_KINDS: _add_kinds,
        },
    )


def _add_parts(connection: sqlite3.Connection) -> None:
    recreate_table(connection, REPLICAS, {"part": "'replicas'"})
    _create(connection, PLACEMENTS)
    connection.execute(
        f"INSERT INTO {PLACEMENTS.name} "
        f"SELECT DISTINCT shard_id, 0, {_SILENT_PLACEMENT['has_led']} FROM {REPLICAS.name}"
    ).close()
    _add_lookup_reports(connection)


def _add_lookup_reports(connection: sqlite3.Connection) -> None:
    _create(connection, LOOKUP_REPORTS)
    for table, silent in ((BROKERS, _SILENT_BROKER), (LEASES, _SILENT_LEASE)):
        _add_columns(connection, table, silent)
    _add_quotas(connection)


def _add_quotas(connection: sqlite3.Connection) -> None:
    for table in (QUOTAS, QUOTA_UNITS):
        _create(connection, table)
    _add_configuration(connection)


def _add_configuration(connection: sqlite3.Connection) -> None:
    for table in (CONFIGURATION, SETTINGS, EXCLUDED_NODES):
        _create(connection, table)
    _add_columns(connection, BROKERS, _SILENT_BROKER)
    _add_led(connection)


def _add_led(connection: sqlite3.Connection) -> None:
    _add_columns(connection, PLACEMENTS, _SILENT_PLACEMENT)
    _create(connection, NODE_STATES)
    _add_columns(connection, NODES, {"zone": "''"})
    _add_slot_moves(connection)


def _add_slot_moves(connection: sqlite3.Connection) -> None:
    for table in (SLOT_MOVES, SLOT_PLANS):
        _create(connection, table)
    _add_kinds(connection)


def _add_kinds(connection: sqlite3.Connection) -> None:
    _add_columns(connection, BROKERS, _SILENT_BROKER)


def _add_columns(connection: sqlite3.Connection, table: Table, silent: Mapping[str, str]) -> None:
    rows = connection.execute(f"SELECT name FROM pragma_table_info('{table.name}')").fetchall()
    present = {name for (name,) in rows}
    missing = {name: value for name, value in silent.items() if name not in present}
    if missing:
        recreate_table(connection, table, missing)


def _create(connection: sqlite3.Connection, table: Table) -> None:
    connection.execute(str(CreateTable(table).compile(dialect=sqlite.dialect()))).close()


class StoredView:
    """Reads the tables back."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store

    def load(self) -> tuple[ClusterState, int]:
        """See ``View.load``."""
        # Read the index first: the caller folds entries that are applied in between a second time,
        # which changes nothing, because every event carries the state after it.
        index = self._store.applied().index
        with self._store.read_transaction() as connection:
            return load_state(connection), index
