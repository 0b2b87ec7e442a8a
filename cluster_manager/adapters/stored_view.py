"""The ``View`` port on the view store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from cluster_manager.domain.cluster import ClusterState
from cluster_manager.projections.fold import fold_entries
from cluster_manager.projections.tables import METADATA, PLACEMENTS, REPLICAS, load_state
from nextgen.replication.view_database import recreate_table
from nextgen.replication.view_store import ViewStore

REPLICAS_WITHOUT_PARTS = 0x6F0E_5379
"""Fingerprint of the tables in which a placement had nothing but replicas."""


def open_view_store(directory: Path) -> ViewStore:
    """Return the state machine that folds group 0's log into tables in ``directory``."""
    return ViewStore(
        directory, METADATA, fold_entries, upgrades={REPLICAS_WITHOUT_PARTS: _add_parts}
    )


def _add_parts(connection: sqlite3.Connection) -> None:
    recreate_table(connection, REPLICAS, {"part": "'replicas'"})
    connection.execute(str(CreateTable(PLACEMENTS).compile(dialect=sqlite.dialect()))).close()
    connection.execute(
        f"INSERT INTO {PLACEMENTS.name} SELECT DISTINCT shard_id, 0 FROM {REPLICAS.name}"
    ).close()


class StoredView:
    """Reads the tables back."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store

    def load(self) -> tuple[ClusterState, int]:
        """See ``View.load``."""
        # Asked first: entries that are applied in between are folded a second time by the
        # caller, which changes nothing, because every event says how things are after it.
        index = self._store.applied().index
        with self._store.read_transaction() as connection:
            return load_state(connection), index
