"""Folds the events of group 0 into the tables, by the rules of the domain."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from cluster_manager import wire
from cluster_manager.domain import capacity_ledger
from cluster_manager.domain.broker_directory import BrokerRecorded
from cluster_manager.domain.capacity_ledger import FoldedEvent
from cluster_manager.domain.cluster import ClusterEvent
from cluster_manager.domain.configuration import Configuration, ConfigurationSet
from cluster_manager.domain.exclusions import NodeExcluded
from cluster_manager.domain.lookup_reports import LookupWindowRecorded, forgotten_before_ms
from cluster_manager.domain.membership import NodeRegistered, NodeStateSet
from cluster_manager.domain.quotas import Quotas, QuotasSet
from cluster_manager.domain.shard_map import Placement, ShardChanged, ShardMap, ShardMapChanged
from cluster_manager.domain.slot_moves.moves import FINISHED, SlotMoveChanged
from cluster_manager.domain.slot_moves.plans import PlanChanged
from cluster_manager.projections import tables
from nextgen.kernel.limits.placement import SLOT_MOVES_KEPT, SLOT_PLANS_KEPT
from nextgen.replication.ports import Entry
from nextgen.replication.view.database import driver_of
from nextgen.replication.view.digest import rows_digest, select_of

_ALL = "true"
"""The condition that selects every row."""

_OF_SHARD = "shard_id = ?"


def fold_entries(connection: Connection, entries: Sequence[Entry]) -> int:
    """Fold committed entries, in order, within the caller's transaction.

    Returns the difference of the rows' digest.
    """
    return sum(
        fold_event(connection, event) for entry in entries for event in wire.events_of_entry(entry)
    )


def fold_event(connection: Connection, event: ClusterEvent) -> int:
    """Fold one event; return the difference of the digest."""
    match event:
        case NodeRegistered() | NodeStateSet() | NodeExcluded():
            return _fold_node(connection, event)
        case ShardMapChanged(shard_map):
            return _replace_shard_map(connection, shard_map)
        case ShardChanged():
            return _change_shard_map(connection, event)
        case BrokerRecorded(broker):
            change = _put(connection, tables.BROKERS, tables.row_of(tables.BROKERS, broker))
            return change + _fold_account(connection, broker.broker_id, event)
        case LookupWindowRecorded(window):
            limit_ms = forgotten_before_ms(window.began_at_ms)
            reports = tables.LOOKUP_REPORTS
            change = _replace_rows(connection, reports, "last_began_at_ms < ?", (limit_ms,), [])
            return change + _put(
                connection,
                reports,
                tables.row_of(reports, window, last_began_at_ms=window.began_at_ms),
            )
        case QuotasSet(quotas):
            return _replace_quotas(connection, quotas)
        case ConfigurationSet(configuration):
            return _replace_configuration(connection, configuration)
        case SlotMoveChanged() | PlanChanged():
            return _fold_slots(connection, event)
        case _:
            return _fold_account(connection, event.broker_id, event)


def _fold_node(connection: Connection, event: NodeRegistered | NodeStateSet | NodeExcluded) -> int:
    match event:
        case NodeRegistered(node):
            return _put(connection, tables.NODES, tables.row_of(tables.NODES, node))
        case NodeStateSet():
            return _put(connection, tables.NODE_STATES, tables.row_of(tables.NODE_STATES, event))
        case NodeExcluded(node_id):
            return _put(connection, tables.EXCLUDED_NODES, {"node_id": node_id})


def _fold_account(connection: Connection, broker_id: str, event: FoldedEvent) -> int:
    """Evolve one broker's account with the ledger's own rule, so that there is only one rule."""
    before = tables.load_ledger(connection, broker_id)
    account = capacity_ledger.evolve(before, event).accounts.get(broker_id)
    if account is None or account == before.accounts.get(broker_id):
        return 0
    change = _put(
        connection, tables.ACCOUNTS, tables.row_of(tables.ACCOUNTS, account, broker_id=broker_id)
    )
    leases = tables.lease_rows(broker_id, account)
    return change + _replace_rows(connection, tables.LEASES, "broker_id = ?", (broker_id,), leases)


def _replace_shard_map(connection: Connection, shard_map: ShardMap) -> int:
    row = {"version": shard_map.version, "slot_owners": shard_map.table.to_bytes()}
    change = _replace_rows(connection, tables.SHARD_MAP, _ALL, (), [row])
    placements = [tables.row_of(tables.PLACEMENTS, each) for each in shard_map.placements]
    change += _replace_rows(connection, tables.PLACEMENTS, _ALL, (), placements)
    replicas = tables.replica_rows(shard_map.placements)
    return change + _replace_rows(connection, tables.REPLICAS, _ALL, (), replicas)


def _change_shard_map(connection: Connection, event: ShardChanged) -> int:
    """Fold a difference: the rows of the shards that it names, and the one row of the slots."""
    before = tables.load_slot_table(connection)
    assert before is not None, f"the map's version {event.version} came before any map"
    if event.version <= before.version:
        return 0
    table = before.with_runs(event.version, event.slots)
    row = {"version": table.version, "slot_owners": table.to_bytes()}
    change = _replace_rows(connection, tables.SHARD_MAP, _ALL, (), [row])
    for placement in event.changed:
        placements = [tables.row_of(tables.PLACEMENTS, placement)]
        change += _replace_shard(connection, placement.shard_id, placements, (placement,))
    for shard_id in event.removed:
        change += _replace_shard(connection, shard_id, (), ())
    return change


def _replace_shard(
    connection: Connection,
    shard_id: int,
    rows: Sequence[Mapping[str, Any]],
    placements: Sequence[Placement],
) -> int:
    change = _replace_rows(connection, tables.PLACEMENTS, _OF_SHARD, (shard_id,), rows)
    replicas = tables.replica_rows(placements)
    return change + _replace_rows(connection, tables.REPLICAS, _OF_SHARD, (shard_id,), replicas)


def _fold_slots(connection: Connection, event: SlotMoveChanged | PlanChanged) -> int:
    if isinstance(event, PlanChanged):
        change = _put(connection, tables.SLOT_PLANS, tables.plan_row(event.plan))
        return change + _forget_plans(connection)
    change = _put(connection, tables.SLOT_MOVES, tables.move_row(event.move))
    return change + _forget_moves(connection)


def _forget_moves(connection: Connection) -> int:
    finished = ", ".join(f"'{phase.value}'" for phase in sorted(FINISHED))
    where = (
        f"phase IN ({finished}) AND move_id NOT IN (SELECT move_id FROM {tables.SLOT_MOVES.name} "
        f"WHERE phase IN ({finished}) ORDER BY move_id DESC LIMIT {SLOT_MOVES_KEPT})"
    )
    return _replace_rows(connection, tables.SLOT_MOVES, where, (), [])


def _forget_plans(connection: Connection) -> int:
    where = (
        f"plan_id NOT IN (SELECT plan_id FROM {tables.SLOT_PLANS.name} "
        f"ORDER BY plan_id DESC LIMIT {SLOT_PLANS_KEPT})"
    )
    return _replace_rows(connection, tables.SLOT_PLANS, where, (), [])


def _replace_quotas(connection: Connection, quotas: Quotas) -> int:
    rows = [tables.row_of(tables.QUOTAS, quotas)]
    change = _replace_rows(connection, tables.QUOTAS, _ALL, (), rows)
    units = tables.quota_unit_rows(quotas)
    return change + _replace_rows(connection, tables.QUOTA_UNITS, _ALL, (), units)


def _replace_configuration(connection: Connection, configuration: Configuration) -> int:
    rows = [tables.row_of(tables.CONFIGURATION, configuration)]
    change = _replace_rows(connection, tables.CONFIGURATION, _ALL, (), rows)
    settings = tables.setting_rows(configuration)
    return change + _replace_rows(connection, tables.SETTINGS, _ALL, (), settings)


def _replace_rows(
    connection: Connection,
    table: sql.Table,
    where: str,
    parameters: tuple[Any, ...],
    rows: Sequence[Mapping[str, Any]],
) -> int:
    """Replace the rows that a condition on ``parameters`` selects by ``rows``."""
    driver = driver_of(connection)
    before = _digest(driver, table, where, parameters)
    driver.execute(f"DELETE FROM {table.name} WHERE {where}", parameters)
    driver.executemany(_insert_of(table), [_values(table, row) for row in rows])
    return _digest(driver, table, where, parameters) - before


def _put(connection: Connection, table: sql.Table, row: Mapping[str, Any]) -> int:
    """Insert ``row``, or replace the one with the same key."""
    driver = driver_of(connection)
    keys = [column.name for column in table.primary_key.columns]
    where = " AND ".join(f"{name} = ?" for name in keys)
    parameters = tuple(row[name] for name in keys)
    before = _digest(driver, table, where, parameters)
    changed = ", ".join(f"{name} = excluded.{name}" for name in row if name not in keys)
    # Not OR REPLACE, which would move the row in the order of unordered reads.
    change = f"DO UPDATE SET {changed}" if changed else "DO NOTHING"
    statement = f"{_insert_of(table)} ON CONFLICT ({', '.join(keys)}) {change}"
    driver.execute(statement, _values(table, row))
    return _digest(driver, table, where, parameters) - before


def _insert_of(table: sql.Table) -> str:
    return f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})"


def _values(table: sql.Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    assert row.keys() == set(table.columns.keys()), f"a row of {table.name} has other columns"
    return tuple(row[column.name] for column in table.columns)


def _digest(
    driver: sqlite3.Connection, table: sql.Table, where: str, parameters: tuple[Any, ...]
) -> int:
    """Return the digest of some rows as they are stored, by reading them back."""
    found = driver.execute(f"{select_of(table)} WHERE {where}", parameters)
    return rows_digest(table.name, found.fetchall())
