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
from cluster_manager.domain.membership import NodeRegistered
from cluster_manager.domain.shard_map import ShardMap, ShardMapChanged
from cluster_manager.projections import tables
from nextgen.replication.ports import Entry


def fold_entries(connection: Connection, entries: Sequence[Entry]) -> None:
    """Fold committed entries, in order, within the caller's transaction."""
    for entry in entries:
        for event in wire.events_of_entry(entry):
            fold_event(connection, event)


def fold_event(connection: Connection, event: ClusterEvent) -> None:
    """Fold one event."""
    match event:
        case NodeRegistered(node):
            _put(connection, tables.NODES, tables.node_row(node))
        case ShardMapChanged(shard_map):
            _replace_shard_map(connection, shard_map)
        case BrokerRecorded(broker):
            _put(connection, tables.BROKERS, tables.broker_row(broker))
            _fold_account(connection, broker.broker_id, event)
        case _:
            _fold_account(connection, event.broker_id, event)


def _fold_account(connection: Connection, broker_id: str, event: FoldedEvent) -> None:
    """Evolve one broker's account by the ledger's own rule, so that there is only one."""
    before = tables.load_ledger(connection, broker_id)
    account = capacity_ledger.evolve(before, event).accounts.get(broker_id)
    if account is None or account == before.accounts.get(broker_id):
        return
    _put(connection, tables.ACCOUNTS, tables.account_row(broker_id, account))
    _replace_rows(
        connection,
        tables.LEASES,
        tables.LEASES.c.broker_id == broker_id,
        tables.lease_rows(broker_id, account),
    )


def _replace_shard_map(connection: Connection, shard_map: ShardMap) -> None:
    row = {"version": shard_map.version, "slot_owners": shard_map.table.to_bytes()}
    _replace_rows(connection, tables.SHARD_MAP, sql.true(), [row])
    _replace_rows(connection, tables.REPLICAS, sql.true(), tables.replica_rows(shard_map))


def _replace_rows(
    connection: Connection,
    table: sql.Table,
    which: sql.ColumnElement[bool],
    rows: list[dict[str, Any]],
) -> None:
    connection.execute(sql.delete(table).where(which))
    if rows:
        connection.execute(sql.insert(table), rows)


def _put(connection: Connection, table: sql.Table, row: dict[str, Any]) -> None:
    """Insert ``row``, or replace the one with the same key."""
    keys = [column.name for column in table.primary_key.columns]
    values = {name: value for name, value in row.items() if name not in keys}
    statement = insert(table).values(row).on_conflict_do_update(index_elements=keys, set_=values)
    connection.execute(statement)
