"""States to rows and back, and the statements that carry them.

Statements go to the driver as text: building them through SQLAlchemy's expressions for each batch
halves the rate at which events are folded (raft-feasibility, section 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, Table

from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession, Endpoints
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.parent_gate import ParentGate, ParentKind
from shards.domain.properties import Properties
from shards.domain.shard import SHARD_KEY, Shard
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections import tables
from shards.projections.evolution import State, StateKind

Row = Sequence[Any]

_PLACES_MAX = 1_024
"""Keys in one SELECT: SQLite allows 32,766, and longer texts are slower to prepare than to run."""


class Query(Protocol):
    """Runs one SELECT on a view and returns all of its rows."""

    def __call__(self, statement: str, parameters: tuple[Any, ...] = ()) -> Sequence[Row]: ...


@dataclass(frozen=True, slots=True)
class RowMapping:
    """How one kind of state is kept. The first column of a row is the key."""

    key: str
    select: str
    select_keys: str
    select_one: str
    write: str
    delete: str
    to_row: Callable[[str, Any], tuple[Any, ...]]
    from_row: Callable[[Row], State]


def _mapping(
    table: Table,
    to_row: Callable[[str, Any], tuple[Any, ...]],
    from_row: Callable[[Row], State],
) -> RowMapping:
    names = [column.name for column in table.columns]
    select = f"SELECT {', '.join(names)} FROM {table.name}"
    return RowMapping(
        key=names[0],
        select=select,
        select_keys=f"SELECT {names[0]} FROM {table.name}",
        select_one=f"{select} WHERE {names[0]} = ?",
        write=f"INSERT OR REPLACE INTO {table.name} VALUES ({', '.join('?' * len(names))})",
        delete=f"DELETE FROM {table.name} WHERE {names[0]} = ?",
        to_row=to_row,
        from_row=from_row,
    )


def _pack(properties: Properties) -> str | None:
    if not properties:
        return None
    return json.dumps(dict(properties), ensure_ascii=False, separators=(",", ":"))


def _unpack(packed: str | None) -> Properties:
    return tuple(json.loads(packed).items()) if packed else ()


def _tenant_row(_: str, state: Tenant) -> tuple[Any, ...]:
    packed = _pack(state.properties)
    return (state.name, state.tenant_id, packed, state.version, int(state.life))


def _tenant(row: Row) -> Tenant:
    name, tenant_id, packed, version, life = row
    return Tenant(tenant_id, name, _unpack(packed), version, Life(life))


def _namespace_row(_: str, state: Namespace) -> tuple[Any, ...]:
    return (
        state.name,
        state.namespace_id,
        state.tenant_id,
        _pack(state.properties),
        state.version,
        int(state.life),
    )


def _namespace(row: Row) -> Namespace:
    name, namespace_id, tenant_id, packed, version, life = row
    return Namespace(namespace_id, name, tenant_id, _unpack(packed), version, Life(life))


def _topic_row(_: str, state: Topic) -> tuple[Any, ...]:
    return (
        state.name,
        state.topic_id,
        state.partitions,
        state.version,
        state.namespace_id,
        state.created_time_ms,
        _pack(state.properties) if state.properties else None,
    )


def _topic(row: Row) -> Topic:
    name, topic_id, partitions, version, namespace_id, created_time_ms, packed = row
    return Topic(
        topic_id, name, partitions, version, namespace_id, created_time_ms, _unpack(packed)
    )


def _gate_row(key: str, state: ParentGate) -> tuple[Any, ...]:
    return (key, state.parent_id, int(state.is_open), state.attempt, state.version)


def _gate(row: Row) -> ParentGate:
    key, parent_id, is_open, attempt, version = row
    kind, _, name = key.partition("/")
    return ParentGate(ParentKind(kind), name, parent_id, bool(is_open), attempt, version)


def _assignment_row(key: str, state: Assignment) -> tuple[Any, ...]:
    return (key, state.name, state.epoch, state.broker_id, state.session_id)


def _assignment(row: Row) -> Assignment:
    key, name, epoch, broker_id, session_id = row
    topic_id, _, unit = key.partition("/")
    return Assignment(topic_id, unit, name, epoch, broker_id, session_id)


def _session_row(_: str, state: BrokerSession) -> tuple[Any, ...]:
    endpoints = state.endpoints
    return (
        state.broker_id,
        state.session_id,
        state.epoch,
        int(state.is_live),
        endpoints.pulsar_url,
        endpoints.grpc,
        endpoints.http,
        state.capacity_units,
        state.zone,
        state.granted_units,
    )


def _session(row: Row) -> BrokerSession:
    broker_id, session_id, epoch, is_live, pulsar_url, grpc, http, capacity, zone, granted = row
    endpoints = Endpoints(pulsar_url, grpc, http)
    return BrokerSession(
        broker_id, session_id, epoch, bool(is_live), endpoints, capacity, zone, granted
    )


def _shard_row(_: str, state: Shard) -> tuple[Any, ...]:
    return (SHARD_KEY, json.dumps(state.ranges), state.shard_map_version)


def _shard(row: Row) -> Shard:
    _, ranges, version = row
    return Shard(tuple([(first, last) for first, last in json.loads(ranges)]), version)


def _number_row(key: str, state: int) -> tuple[Any, ...]:
    return (key, state)


def _number(row: Row) -> int:
    return int(row[1])


MAPPINGS: dict[StateKind, RowMapping] = {
    StateKind.TENANT: _mapping(tables.TENANTS, _tenant_row, _tenant),
    StateKind.NAMESPACE: _mapping(tables.NAMESPACES, _namespace_row, _namespace),
    StateKind.TOPIC: _mapping(tables.TOPICS, _topic_row, _topic),
    StateKind.PARENT_GATE: _mapping(tables.PARENT_GATES, _gate_row, _gate),
    StateKind.ASSIGNMENT: _mapping(tables.ASSIGNMENTS, _assignment_row, _assignment),
    StateKind.BROKER_SESSION: _mapping(tables.BROKER_SESSIONS, _session_row, _session),
    StateKind.SHARD: _mapping(tables.SHARD_META, _shard_row, _shard),
    StateKind.USAGE: _mapping(tables.BROKER_USAGE, _number_row, _number),
    StateKind.TOTAL: _mapping(tables.TOTALS, _number_row, _number),
}


def query_many(query: Query, select: str, key: str, values: Sequence[Any]) -> list[Row]:
    """Return the rows of ``select`` whose column ``key`` is one of ``values``.

    The places are padded to a power of two: a handful of statements, which the driver keeps
    prepared.
    """
    rows: list[Row] = []
    for start in range(0, len(values), _PLACES_MAX):
        some = tuple(values[start : start + _PLACES_MAX])
        places = 1 << (len(some) - 1).bit_length()
        marks = ", ".join("?" * places)
        padding = some[:1] * (places - len(some))
        rows += query(f"{select} WHERE {key} IN ({marks})", some + padding)
    return rows


def read_states(query: Query, kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
    """Return the states under ``keys``, None for those that are not there.

    One SELECT for up to a thousand keys.
    """
    states: dict[str, State | None] = dict.fromkeys(keys)
    mapping = MAPPINGS[kind]
    from_row = mapping.from_row
    for row in query_many(query, mapping.select, mapping.key, list(states)):
        states[row[0]] = from_row(row)
    return states


def write_states(
    connection: Connection, kind: StateKind, states: Mapping[str, State | None]
) -> None:
    """Store ``states``; None removes what is stored under the key.

    In the order of the keys, which keeps neighbouring rows on the same pages.
    """
    mapping = MAPPINGS[kind]
    to_row = mapping.to_row
    rows = [to_row(key, state) for key, state in states.items() if state is not None]
    if rows:
        rows.sort(key=_first)
        connection.exec_driver_sql(mapping.write, rows)
    if len(rows) < len(states):
        gone = sorted([(key,) for key, state in states.items() if state is None])
        connection.exec_driver_sql(mapping.delete, gone)


def query_of(reader: Callable[[], Connection]) -> Query:
    """Return the ``Query`` that runs on whatever connection ``reader`` gives at the time.

    ``ViewStore.reader`` is such a function.
    """

    def query(statement: str, parameters: tuple[Any, ...] = ()) -> Sequence[Row]:
        return reader().exec_driver_sql(statement, parameters).fetchall()

    return query


def _first(row: tuple[Any, ...]) -> Any:
    return row[0]
