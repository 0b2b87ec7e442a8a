"""Folds the events of group 0 into the tables, by the rules of the domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from cluster_manager import wire
from cluster_manager.domain import capacity_ledger
from cluster_manager.domain.broker_directory import BrokerRecorded
from cluster_manager.domain.capacity_ledger import FoldedEvent
from cluster_manager.domain.cluster import ClusterEvent
from cluster_manager.domain.lookup_reports import LookupWindowRecorded, forgotten_before_ms
from cluster_manager.domain.membership import NodeRegistered
from cluster_manager.domain.quotas import Quotas, QuotasSet
from cluster_manager.domain.shard_map import ShardMap, ShardMapChanged
from cluster_manager.projections import tables
from nextgen.replication.ports import Entry
from nextgen.replication.view_digest import rows_digest


def fold_entries(connection: Connection, entries: Sequence[Entry]) -> int:
    """Fold committed entries, in order, within the caller's transaction.

    Returns by how much the digest of the rows grew.
    """
    return sum(
        fold_event(connection, event) for entry in entries for event in wire.events_of_entry(entry)
    )


def fold_event(connection: Connection, event: ClusterEvent) -> int:
    """Fold one event; return by how much the digest grew."""
    match event:
        case NodeRegistered(node):
            return _put(connection, tables.NODES, tables.node_row(node))
        case ShardMapChanged(shard_map):
            return _replace_shard_map(connection, shard_map)
        case BrokerRecorded(broker):
            change = _put(connection, tables.BROKERS, tables.broker_row(broker))
            return change + _fold_account(connection, broker.broker_id, event)
        case LookupWindowRecorded(window):
            limit_ms = forgotten_before_ms(window.began_at_ms)
            forgotten = tables.LOOKUP_REPORTS.c.last_began_at_ms < limit_ms
            change = _replace_rows(connection, tables.LOOKUP_REPORTS, forgotten, [])
            return change + _put(
                connection, tables.LOOKUP_REPORTS, tables.lookup_report_row(window)
            )
        case QuotasSet(quotas):
            return _replace_quotas(connection, quotas)
        case _:
            return _fold_account(connection, event.broker_id, event)


def _fold_account(connection: Connection, broker_id: str, event: FoldedEvent) -> int:
    """Evolve one broker's account by the ledger's own rule, so that there is only one."""
    before = tables.load_ledger(connection, broker_id)
    account = capacity_ledger.evolve(before, event).accounts.get(broker_id)
    if account is None or account == before.accounts.get(broker_id):
        return 0
    change = _put(connection, tables.ACCOUNTS, tables.account_row(broker_id, account))
    return change + _replace_rows(
        connection,
        tables.LEASES,
        tables.LEASES.c.broker_id == broker_id,
        tables.lease_rows(broker_id, account),
    )


def _replace_shard_map(connection: Connection, shard_map: ShardMap) -> int:
    row = {"version": shard_map.version, "slot_owners": shard_map.table.to_bytes()}
    change = _replace_rows(connection, tables.SHARD_MAP, sql.true(), [row])
    placements = tables.placement_rows(shard_map)
    change += _replace_rows(connection, tables.PLACEMENTS, sql.true(), placements)
    replicas = tables.replica_rows(shard_map)
    return change + _replace_rows(connection, tables.REPLICAS, sql.true(), replicas)


def _replace_quotas(connection: Connection, quotas: Quotas) -> int:
    change = _replace_rows(connection, tables.QUOTAS, sql.true(), [tables.quotas_row(quotas)])
    rows = tables.quota_unit_rows(quotas)
    return change + _replace_rows(connection, tables.QUOTA_UNITS, sql.true(), rows)


def _replace_rows(
    connection: Connection,
    table: sql.Table,
    which: sql.ColumnElement[bool],
    rows: list[dict[str, Any]],
) -> int:
    before = _digest(connection, table, which)
    connection.execute(sql.delete(table).where(which))
    if rows:
        connection.execute(sql.insert(table), rows)
    return _digest(connection, table, which) - before


def _put(connection: Connection, table: sql.Table, row: dict[str, Any]) -> int:
    """Insert ``row``, or replace the one with the same key."""
    keys = [column.name for column in table.primary_key.columns]
    values = {name: value for name, value in row.items() if name not in keys}
    statement = insert(table).values(row).on_conflict_do_update(index_elements=keys, set_=values)
    which = sql.and_(*(table.c[name] == row[name] for name in keys))
    before = _digest(connection, table, which)
    connection.execute(statement)
    return _digest(connection, table, which) - before


def _digest(connection: Connection, table: sql.Table, which: sql.ColumnElement[bool]) -> int:
    """Return the digest of some rows, read back: as they are stored, not as they were given."""
    # Columns without their types: a boolean is stored as a number, and hashed as one.
    columns = [sql.type_coerce(column, sql.types.NullType()) for column in table.columns]
    rows = connection.execute(sql.select(*columns).where(which))
    return rows_digest(table.name, map(tuple, rows))
