"""The view of a shard on disk, of this version or an earlier one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from nextgen.replication.view_database import recreate_table
from nextgen.replication.view_store import ViewStore
from shards.projections.fold import fold
from shards.projections.rows import pack_id
from shards.projections.tables import ASSIGNMENTS, METADATA, TOPICS

IDS_AS_TEXT = 0x245B_A74B
"""Fingerprint of the tables that kept every id as its digits."""


def open_view_store(directory: Path) -> ViewStore:
    """Return the state machine that folds a shard's log into tables in ``directory``."""
    return ViewStore(directory, METADATA, fold, upgrades={IDS_AS_TEXT: _pack_ids})


def _pack_ids(connection: sqlite3.Connection) -> None:
    connection.create_function("pack_id", 1, pack_id, deterministic=True)
    packed = {"topic_id": "pack_id(topic_id)", "namespace_id": "pack_id(namespace_id)"}
    recreate_table(connection, TOPICS, packed)
    recreate_table(connection, ASSIGNMENTS, {"session_id": "pack_id(session_id)"})
