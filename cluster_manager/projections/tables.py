"""Tables of the cluster manager's view, and the conversion between rows and state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from cluster_manager.domain.broker_directory import Broker, BrokerDirectory
from cluster_manager.domain.capacity_ledger import Account, Lease, Ledger
from cluster_manager.domain.cluster import ClusterState
from cluster_manager.domain.configuration import Configuration
from cluster_manager.domain.exclusions import Exclusions
from cluster_manager.domain.lookup_reports import LookupReports
from cluster_manager.domain.membership import Membership, Node, NodeState, NodeStateSet
from cluster_manager.domain.quotas import Quotas
from cluster_manager.domain.shard_map import Placement, ShardMap
from cluster_manager.domain.slot_moves.moves import MovePhase, SlotMove, SlotMoves
from cluster_manager.domain.slot_moves.plans import Plan, PlanKind, PlanPhase, Plans
from nextgen.kernel.routing.slots import SlotRun, SlotTable
from nextgen.replication.view.database import driver_of
from nextgen.replication.view.digest import select_of

METADATA = sql.MetaData()

NODES = sql.Table(
    "nodes",
    METADATA,
    sql.Column("node_id", sql.Text, primary_key=True),
    sql.Column("kind", sql.Text, nullable=False),
    sql.Column("grpc", sql.Text, nullable=False),
    sql.Column("raft_host", sql.Text, nullable=False),
    sql.Column("raft_port", sql.Integer, nullable=False),
    sql.Column("http", sql.Text, nullable=False),
    sql.Column("zone", sql.Text, nullable=False),
)

NODE_STATES = sql.Table(
    "node_states",
    METADATA,
    sql.Column("node_id", sql.Text, primary_key=True),
    sql.Column("state", sql.Text, nullable=False),
    sql.Column("since_ms", sql.Integer, nullable=False),
)
"""The last state that was set of shard nodes; the others are active."""

SHARD_MAP = sql.Table(
    "shard_map",
    METADATA,
    sql.Column("version", sql.Integer, primary_key=True),
    sql.Column("slot_owners", sql.LargeBinary, nullable=False),
)
"""One row: the present map."""

REPLICAS = sql.Table(
    "replicas",
    METADATA,
    sql.Column("shard_id", sql.Integer, primary_key=True),
    sql.Column("part", sql.Text, primary_key=True),
    sql.Column("preference", sql.Integer, primary_key=True),
    sql.Column("node_id", sql.Text, nullable=False),
)
"""The nodes of each shard's replicas; preference 0 of part ``replicas`` should lead. The other
parts are ``joining`` and ``leaving``."""

PLACEMENTS = sql.Table(
    "placements",
    METADATA,
    sql.Column("shard_id", sql.Integer, primary_key=True),
    sql.Column("configuration_index", sql.Integer, nullable=False),
    sql.Column("has_led", sql.Boolean, nullable=False),
)
"""One row for each shard of the map."""

BROKERS = sql.Table(
    "brokers",
    METADATA,
    sql.Column("broker_id", sql.Text, primary_key=True),
    sql.Column("session_id", sql.Text, nullable=False),
    sql.Column("epoch", sql.Integer, nullable=False),
    sql.Column("is_live", sql.Boolean, nullable=False),
    sql.Column("pulsar_url", sql.Text, nullable=False),
    sql.Column("grpc", sql.Text, nullable=False),
    sql.Column("http", sql.Text, nullable=False),
    sql.Column("capacity_units", sql.Integer, nullable=False),
    sql.Column("zone", sql.Text, nullable=False),
    sql.Column("rack", sql.Text, nullable=False),
    sql.Column("quarantined_until_ms", sql.Integer, nullable=False),
    sql.Column("draining", sql.Boolean, nullable=False),
    sql.Column("drain_units_per_second", sql.Integer, nullable=False),
    sql.Column("revision", sql.Integer, nullable=False),
    sql.Column("announced_units", sql.Integer, nullable=False),
    sql.Column("kind", sql.Text, nullable=False),
)

ACCOUNTS = sql.Table(
    "accounts",
    METADATA,
    sql.Column("broker_id", sql.Text, primary_key=True),
    sql.Column("session_id", sql.Text, nullable=False),
    sql.Column("is_live", sql.Boolean, nullable=False),
    sql.Column("capacity_units", sql.Integer, nullable=False),
    sql.Column("granted_units", sql.Integer, nullable=False),
)

LEASES = sql.Table(
    "leases",
    METADATA,
    sql.Column("broker_id", sql.Text, primary_key=True),
    sql.Column("shard_id", sql.Integer, primary_key=True),
    sql.Column("units", sql.Integer, nullable=False),
    sql.Column("expires_at_ms", sql.Integer, nullable=False),
    sql.Column("version", sql.Integer, nullable=False),
    sql.Column("units_used", sql.Integer, nullable=False),
    sql.Column("term", sql.Integer, nullable=False),
)

LOOKUP_REPORTS = sql.Table(
    "lookup_reports",
    METADATA,
    sql.Column("node_id", sql.Text, primary_key=True),
    sql.Column("process", sql.Text, primary_key=True),
    sql.Column("last_began_at_ms", sql.Integer, nullable=False),
)
"""The last window of lookups that was recorded of each discovery process."""

QUOTAS = sql.Table(
    "quotas",
    METADATA,
    sql.Column("version", sql.Integer, primary_key=True),
    sql.Column("source", sql.Text, nullable=False),
)
"""One row for the present quotas, none before any were set."""

QUOTA_UNITS = sql.Table(
    "quota_units",
    METADATA,
    sql.Column("kind", sql.Text, primary_key=True),
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("units", sql.Integer, nullable=False),
)
"""The quota of each broker and tenant: ``kind`` is broker or tenant."""

CONFIGURATION = sql.Table(
    "configuration",
    METADATA,
    sql.Column("version", sql.Integer, primary_key=True),
)
"""One row for the present configuration, none before one was set."""

SETTINGS = sql.Table(
    "settings",
    METADATA,
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("text", sql.Text, nullable=False),
)
"""The overridden service-level settings."""

EXCLUDED_NODES = sql.Table(
    "excluded_nodes",
    METADATA,
    sql.Column("node_id", sql.Text, primary_key=True),
)
"""The nodes that are excluded for ever."""

SLOT_MOVES = sql.Table(
    "slot_moves",
    METADATA,
    sql.Column("move_id", sql.Integer, primary_key=True),
    sql.Column("ranges", sql.Text, nullable=False),
    sql.Column("from_shard", sql.Integer, nullable=False),
    sql.Column("to_shard", sql.Integer, nullable=False),
    sql.Column("phase", sql.Text, nullable=False),
    sql.Column("reason", sql.Text, nullable=False),
    sql.Column("from_position", sql.Integer, nullable=False),
    sql.Column("to_position", sql.Integer, nullable=False),
    sql.Column("shard_map_version", sql.Integer, nullable=False),
    sql.Column("plan_id", sql.Integer, nullable=False),
)
"""The moves of slots under way, and the last finished ones. Lists are JSON, here and in plans."""

SLOT_PLANS = sql.Table(
    "slot_plans",
    METADATA,
    sql.Column("plan_id", sql.Integer, primary_key=True),
    sql.Column("kind", sql.Text, nullable=False),
    sql.Column("phase", sql.Text, nullable=False),
    sql.Column("wanted", sql.Text, nullable=False),
    sql.Column("added", sql.Text, nullable=False),
    sql.Column("removed", sql.Text, nullable=False),
    sql.Column("retired", sql.Text, nullable=False),
    sql.Column("last_shard_id", sql.Integer, nullable=False),
    sql.Column("is_automatic", sql.Boolean, nullable=False),
    sql.Column("request_id", sql.Text, nullable=False),
    sql.Column("reason", sql.Text, nullable=False),
    sql.Column("began_at_ms", sql.Integer, nullable=False),
    sql.Column("ended_at_ms", sql.Integer, nullable=False),
)
"""The last plans."""

_BROKER, _TENANT = "broker", "tenant"

_PLAN_LISTS = ("added", "removed", "retired")

_PARTS = ("replicas", "joining", "leaving")

Row = Mapping[str, Any]


def row_of(table: sql.Table, value: object, **given: Any) -> dict[str, Any]:
    """Return the row of ``value``: the columns that are not ``given`` are its attributes."""
    return {
        column.name: given[column.name] if column.name in given else getattr(value, column.name)
        for column in table.columns
    }


def lease_rows(broker_id: str, account: Account) -> list[dict[str, Any]]:
    return [
        row_of(LEASES, lease, broker_id=broker_id, shard_id=shard_id)
        for shard_id, lease in account.leases.items()
    ]


def quota_unit_rows(quotas: Quotas) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "name": name, "units": units}
        for kind, named in ((_BROKER, quotas.brokers), (_TENANT, quotas.tenants))
        for name, units in named.items()
    ]


def setting_rows(configuration: Configuration) -> list[dict[str, Any]]:
    return [{"name": name, "text": text} for name, text in configuration.settings.items()]


def replica_rows(placements: Iterable[Placement]) -> list[dict[str, Any]]:
    return [
        {
            "shard_id": placement.shard_id,
            "part": part,
            "preference": preference,
            "node_id": node_id,
        }
        for placement in placements
        for part in _PARTS
        for preference, node_id in enumerate(getattr(placement, part))
    ]


def move_row(move: SlotMove) -> dict[str, Any]:
    return row_of(SLOT_MOVES, move, ranges=_packed(move.ranges), phase=move.phase.value)


def plan_row(plan: Plan) -> dict[str, Any]:
    wanted = [(run.first, run.last, run.shard_id) for run in plan.wanted]
    lists = {name: _packed(getattr(plan, name)) for name in _PLAN_LISTS}
    return row_of(
        SLOT_PLANS,
        plan,
        kind=plan.kind.value,
        phase=plan.phase.value,
        wanted=_packed(wanted),
        **lists,
    )


def load_state(connection: Connection) -> ClusterState:
    """Return the whole state, from the rows."""
    nodes = {row["node_id"]: Node(**row) for row in _rows(connection, NODES)}
    brokers = {row["broker_id"]: Broker(**row) for row in _rows(connection, BROKERS)}
    quotas = load_quotas(connection)
    return ClusterState(
        membership=Membership(nodes, load_node_states(connection)),
        shard_map=_load_shard_map(connection),
        directory=BrokerDirectory(brokers),
        ledger=replace(load_ledger(connection), quotas=quotas.brokers),
        quotas=quotas,
        configuration=load_configuration(connection),
        exclusions=Exclusions(
            frozenset(row["node_id"] for row in _rows(connection, EXCLUDED_NODES))
        ),
        slot_moves=SlotMoves(load_slot_moves(connection)),
        plans=Plans(load_plans(connection)),
        lookup_reports=LookupReports(
            {
                (row["node_id"], row["process"]): row["last_began_at_ms"]
                for row in _rows(connection, LOOKUP_REPORTS)
            }
        ),
    )


def load_node_states(connection: Connection) -> dict[str, NodeStateSet]:
    """Return the last states that were set, by node id."""
    return {
        row["node_id"]: NodeStateSet(row["node_id"], NodeState(row["state"]), row["since_ms"])
        for row in _rows(connection, NODE_STATES)
    }


def load_quotas(connection: Connection) -> Quotas:
    """Return the present quotas."""
    stored = connection.execute(sql.select(QUOTAS)).mappings().one_or_none()
    if stored is None:
        return Quotas()
    units: dict[str, dict[str, int]] = {_BROKER: {}, _TENANT: {}}
    for row in _rows(connection, QUOTA_UNITS):
        units[row["kind"]][row["name"]] = row["units"]
    return Quotas(stored["version"], units[_BROKER], units[_TENANT], stored["source"])


def load_configuration(connection: Connection) -> Configuration:
    """Return the present configuration."""
    stored = connection.execute(sql.select(CONFIGURATION)).mappings().one_or_none()
    if stored is None:
        return Configuration()
    settings = {row["name"]: row["text"] for row in _rows(connection, SETTINGS)}
    return Configuration(stored["version"], settings)


def load_slot_moves(connection: Connection) -> dict[int, SlotMove]:
    """Return the moves that are not forgotten, by id."""
    moves = {}
    for row in _rows(connection, SLOT_MOVES):
        ranges = tuple((first, last) for first, last in json.loads(row["ranges"]))
        values = {**row, "ranges": ranges, "phase": MovePhase(row["phase"])}
        moves[row["move_id"]] = SlotMove(**values)
    return moves


def load_plans(connection: Connection) -> dict[int, Plan]:
    """Return the plans that are not forgotten, by id."""
    plans = {}
    for row in _rows(connection, SLOT_PLANS):
        values = {
            **row,
            **{name: tuple(json.loads(row[name])) for name in _PLAN_LISTS},
            "kind": PlanKind(row["kind"]),
            "phase": PlanPhase(row["phase"]),
            "wanted": tuple(SlotRun(*run) for run in json.loads(row["wanted"])),
            "is_automatic": bool(row["is_automatic"]),
        }
        plans[row["plan_id"]] = Plan(**values)
    return plans


def load_ledger(connection: Connection, broker_id: str | None = None) -> Ledger:
    """Return the accounts of all brokers, or of one, without quotas."""
    leases: dict[str, dict[int, Lease]] = {}
    for row in _rows_of_broker(connection, LEASES, broker_id):
        lease = Lease(
            row["units"],
            row["expires_at_ms"],
            row["version"],
            row["units_used"],
            row["term"],
        )
        leases.setdefault(row["broker_id"], {})[row["shard_id"]] = lease
    return Ledger(
        {
            row["broker_id"]: Account(
                session_id=row["session_id"],
                is_live=bool(row["is_live"]),
                capacity_units=row["capacity_units"],
                granted_units=row["granted_units"],
                leases=leases.get(row["broker_id"], {}),
            )
            for row in _rows_of_broker(connection, ACCOUNTS, broker_id)
        }
    )


def load_slot_table(connection: Connection) -> SlotTable | None:
    """Return the slots of the present map, None while there is none."""
    stored = connection.execute(sql.select(SHARD_MAP)).mappings().one_or_none()
    if stored is None:
        return None
    return SlotTable.from_bytes(stored["version"], stored["slot_owners"])


def _load_shard_map(connection: Connection) -> ShardMap | None:
    table = load_slot_table(connection)
    if table is None:
        return None
    ordered = sql.select(REPLICAS).order_by(REPLICAS.c.preference)
    held: dict[tuple[int, str], list[str]] = {}
    for row in connection.execute(ordered).mappings():
        held.setdefault((row["shard_id"], row["part"]), []).append(row["node_id"])
    placements = connection.execute(sql.select(PLACEMENTS).order_by(PLACEMENTS.c.shard_id))
    return ShardMap(
        table,
        tuple(
            Placement(
                row["shard_id"],
                configuration_index=row["configuration_index"],
                has_led=bool(row["has_led"]),
                **{part: tuple(held.get((row["shard_id"], part), ())) for part in _PARTS},
            )
            for row in placements.mappings()
        ),
    )


def _packed(values: Sequence[object]) -> str:
    return json.dumps(values, separators=(",", ":"))


def _rows(connection: Connection, table: sql.Table) -> list[Row]:
    return [dict(row) for row in connection.execute(sql.select(table)).mappings()]


def _rows_of_broker(connection: Connection, table: sql.Table, broker_id: str | None) -> list[Row]:
    """Return the stored rows of one broker, or of all. Every event of an account reads them, so
    this uses the driver directly."""
    columns = table.columns.keys()
    statement = select_of(table)
    parameters: tuple[str, ...] = ()
    if broker_id is not None:
        statement, parameters = f"{statement} WHERE broker_id = ?", (broker_id,)
    found = driver_of(connection).execute(statement, parameters)
    return [dict(zip(columns, row, strict=True)) for row in found]
