"""The view of a shard on disk, of this version or an earlier one."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table, Text
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from nextgen.replication.view.database import Upgrade, recreate_table
from nextgen.replication.view.store import ViewStore
from shards.domain.assignment import tenant_of
from shards.projections.fold import fold
from shards.projections.rows import pack_id
from shards.projections.tables import (
    ASSIGNMENTS,
    BROKER_SESSIONS,
    FORMER_NAMES,
    METADATA,
    SCALABLE_TOPICS,
    SHADOW_SOURCES,
    SHADOWS_BY_SOURCE,
    SHARD_META,
    TENANT_USAGE,
    TOPIC_LOADS,
    TOPIC_NAMES,
    TOPICS,
)
from shards.wire.scalable import unpack_scalable_topic

IDS_AS_TEXT = 0x245B_A74B
"""Fingerprint of the tables that kept every id as its digits."""

UNITS_BY_KEY_ONLY = 0x2F7A_EC36
"""Fingerprint of the tables before policies, in which a session's units could not be found."""

WITHOUT_TENANT_USAGE = 0x6925_7A60
"""Fingerprint of the tables before a tenant's assigned units were counted."""

WITHOUT_RESTORES = 0x01A3_175B
"""Fingerprint of the tables before a shard's record had its last restore."""


WITHOUT_SCALABLE_TOPICS = 0x684D_D44B
"""Fingerprint of the tables before scalable topics."""


WITHOUT_PRUNING = 0x27F3_8DB4
"""Fingerprint of the tables before scalable topics had a time of their next pruning."""


WITHOUT_LOADS = 0x7897_83EA
"""Fingerprint of the tables before the loads of segments were recorded."""


WITHOUT_SHADOWS = 0x6B7E_705E
"""Fingerprint of the tables before shadow topics."""


WITHOUT_ANNOUNCED = 0x6717_DA06
"""Fingerprint of the tables before the capacity of a live broker could be changed."""


WITHOUT_MOVES = 0x79A3_E179
"""Fingerprint of the tables before slots moved between shards."""


WITHOUT_RENAMES = 0x26DA_C562
"""Fingerprint of the tables before topics were renamed."""


WITHOUT_KINDS = 0x71B2_4D49
"""Fingerprint of the tables before there were brokers of another kind than embedded ones."""


def open_view_store(directory: Path) -> ViewStore:
    """Return the state machine that folds a shard's log into tables in ``directory``."""
    upgrades = {
        IDS_AS_TEXT: _pack_ids,
        UNITS_BY_KEY_ONLY: _add_parts,
        WITHOUT_TENANT_USAGE: _add_tenant_usage_and_restores,
        WITHOUT_RESTORES: _add_restores_and_scalable_topics,
        WITHOUT_SCALABLE_TOPICS: _add_scalable_topics,
        WITHOUT_PRUNING: _add_prune_times,
        WITHOUT_LOADS: _add_loads,
        WITHOUT_SHADOWS: _nothing,
    }
    since_shadows = {version: _then(each, _add_shadows) for version, each in upgrades.items()}
    since_shadows[WITHOUT_ANNOUNCED] = _nothing
    announced = {version: _then(each, _add_announced) for version, each in since_shadows.items()}
    announced[WITHOUT_MOVES] = _nothing
    moving = {version: _then(each, _add_moves) for version, each in announced.items()}
    moving[WITHOUT_RENAMES] = _nothing
    renaming = {version: _then(each, _add_renames) for version, each in moving.items()}
    renaming[WITHOUT_KINDS] = _nothing
    complete = {version: _then(each, _add_kinds) for version, each in renaming.items()}
    return ViewStore(directory, METADATA, fold, upgrades=complete)


def _then(upgrade: Upgrade, step: Upgrade) -> Upgrade:
    def upgrade_all(connection: sqlite3.Connection) -> None:
        upgrade(connection)
        step(connection)

    return upgrade_all


def _nothing(_: sqlite3.Connection) -> None:
    """Leave what is there as it is."""


def _add_shadows(connection: sqlite3.Connection) -> None:
    """Add the empty table, and find the topics that have the property of shadows."""
    dialect = sqlite.dialect()
    for statement in (
        CreateTable(SHADOW_SOURCES),
        CreateIndex(SHADOWS_BY_SOURCE, if_not_exists=True),
    ):
        connection.execute(str(statement.compile(dialect=dialect))).close()


def _add_announced(connection: sqlite3.Connection) -> None:
    """Add the column: no broker of before had another capacity than it announced."""
    added = _added_columns(connection, BROKER_SESSIONS)
    if added:
        recreate_table(connection, BROKER_SESSIONS, added)


def _add_moves(connection: sqlite3.Connection) -> None:
    """Add the column: no slot of before has moved."""
    added = _added_columns(connection, SHARD_META)
    if added:
        recreate_table(connection, SHARD_META, added)


def _add_renames(connection: sqlite3.Connection) -> None:
    """Add the empty tables and the column, in place: no topic of before was renamed."""
    dialect = sqlite.dialect()
    for table in (TOPIC_NAMES, FORMER_NAMES):
        connection.execute(str(CreateTable(table).compile(dialect=dialect))).close()
    for column in _added_columns(connection, TOPICS):
        connection.execute(f"ALTER TABLE {TOPICS.name} ADD COLUMN {column} TEXT").close()


def _add_kinds(connection: sqlite3.Connection) -> None:
    """Add the column: every broker of before is embedded."""
    added = _added_columns(connection, BROKER_SESSIONS)
    if added:
        recreate_table(connection, BROKER_SESSIONS, added)


def _add_parts(connection: sqlite3.Connection) -> None:
    """Add the columns and indexes that earlier versions of the tables lack."""
    for table in _present_tables():
        added = _added_columns(connection, table)
        if added or table is ASSIGNMENTS:
            recreate_table(connection, table, added)
    _add_tenant_usage(connection)
    _add_scalable_topics(connection)


def _pack_ids(connection: sqlite3.Connection) -> None:
    connection.create_function("pack_id", 1, pack_id, deterministic=True)
    packed = {
        TOPICS.name: {"topic_id": "pack_id(topic_id)", "namespace_id": "pack_id(namespace_id)"},
        ASSIGNMENTS.name: {"session_id": "pack_id(session_id)"},
    }
    for table in _present_tables():
        values = {**_added_columns(connection, table), **packed.get(table.name, {})}
        if values:
            recreate_table(connection, table, values)
    _add_tenant_usage(connection)
    _add_scalable_topics(connection)


def _add_tenant_usage_and_restores(connection: sqlite3.Connection) -> None:
    _add_tenant_usage(connection)
    _add_restores_and_scalable_topics(connection)


def _add_restores_and_scalable_topics(connection: sqlite3.Connection) -> None:
    recreate_table(connection, SHARD_META, _added_columns(connection, SHARD_META))
    _add_scalable_topics(connection)


def _add_scalable_topics(connection: sqlite3.Connection) -> None:
    """Add the empty table: a log of before has no scalable topics."""
    dialect = sqlite.dialect()
    connection.execute(str(CreateTable(SCALABLE_TOPICS).compile(dialect=dialect))).close()
    for index in SCALABLE_TOPICS.indexes:
        connection.execute(str(CreateIndex(index).compile(dialect=dialect))).close()
    _add_loads(connection)


def _add_loads(connection: sqlite3.Connection) -> None:
    """Add the empty table: a log of before has no loads of segments."""
    create = str(CreateTable(TOPIC_LOADS).compile(dialect=sqlite.dialect()))
    connection.execute(create).close()


def _add_prune_times(connection: sqlite3.Connection) -> None:
    """Add the times, which follow from the states."""
    connection.create_function(
        "prune_at_ms",
        1,
        lambda state: unpack_scalable_topic(state).prune_at_ms,
        deterministic=True,
    )
    recreate_table(connection, SCALABLE_TOPICS, {"prune_at_ms": "prune_at_ms(state)"})
    _add_loads(connection)


def _add_tenant_usage(connection: sqlite3.Connection) -> None:
    """Fill in tenants' assigned units as of this point of the log, as if counted from the start."""
    create = str(CreateTable(TENANT_USAGE).compile(dialect=sqlite.dialect()))
    connection.execute(create).close()
    connection.create_function("tenant_of", 1, tenant_of, deterministic=True)
    connection.execute(
        f"INSERT INTO {TENANT_USAGE.name} SELECT tenant_of(name) AS tenant, count(*)"
        f" FROM {ASSIGNMENTS.name} WHERE broker_id <> '' GROUP BY tenant"
    ).close()


def _present_tables() -> list[Table]:
    """Return the tables that every earlier version had."""
    later = (
        TENANT_USAGE,
        SCALABLE_TOPICS,
        TOPIC_LOADS,
        SHADOW_SOURCES,
        TOPIC_NAMES,
        FORMER_NAMES,
    )
    return [table for table in METADATA.sorted_tables if table not in later]


def _added_columns(connection: sqlite3.Connection, table: Table) -> dict[str, str]:
    """Return the columns that an earlier table lacks, each with the value that events without the
    field mean."""
    rows = connection.execute(f"SELECT name FROM pragma_table_info('{table.name}')").fetchall()
    present = {name for (name,) in rows}
    return {column.name: _silent(column) for column in table.columns if column.name not in present}


def _silent(column: Column[Any]) -> str:
    if column.nullable:
        return "NULL"
    return "''" if isinstance(column.type, Text) else "0"
