"""Converts states to rows and back, and runs the statements that read and write them.

Statements go to the driver as text: SQLAlchemy's overhead would cost more than the statements
themselves, most of which concern one or two rows by key.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from sqlalchemy import Connection, Table

from nextgen.client.wire.fields import Conversion
from nextgen.kernel.routing.ids import is_id
from nextgen.replication.view.database import driver_of
from nextgen.replication.view.digest import rows_digest, select_of
from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession, Endpoints
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.parent_gate import ParentGate, ParentKind
from shards.domain.policies import NO_PACKED_POLICIES
from shards.domain.properties import Properties
from shards.domain.renames.names import FormerName, OldName, TopicPointer
from shards.domain.scalable.loads import TopicLoads
from shards.domain.scalable.state import ScalableTopic
from shards.domain.shadows.source import ShadowSource
from shards.domain.shard import SHARD_KEY, Shard
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections import tables
from shards.projections.move_fields import pack_moves, unpack_moves
from shards.projections.row_fields import RowFields
from shards.wire.scalable import (
    pack_scalable_topic,
    pack_topic_loads,
    unpack_scalable_topic,
    unpack_topic_loads,
)

Row = tuple[Any, ...]

_first = itemgetter(0)

_PLACES_MAX = 1_024
"""Keys in one SELECT: SQLite allows 32,766, and longer texts are slower to prepare than to run."""


class Query(Protocol):
    """Runs one SELECT on a view and returns all of its rows."""

    def __call__(self, statement: str, parameters: tuple[Any, ...] = ()) -> Sequence[Row]: ...


ReadTransaction = Callable[[], AbstractContextManager[Connection]]
"""Opens a read transaction on a view, from any thread; see ``ViewStore.read_transaction``."""


@dataclass(frozen=True, slots=True)
class RowMapping:
    """The storage of one kind of state. The first column of a row is the key."""

    table: str
    key: str
    select: str
    select_keys: str
    select_one: str
    insert: str
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
    places = ", ".join("?" * len(names))
    select = select_of(table)
    return RowMapping(
        table=table.name,
        key=names[0],
        select=select,
        select_keys=f"SELECT {names[0]} FROM {table.name}",
        select_one=f"{select} WHERE {names[0]} = ?",
        insert=f"INSERT OR IGNORE INTO {table.name} VALUES ({places})",
        write=f"INSERT OR REPLACE INTO {table.name} VALUES ({places})",
        delete=f"DELETE FROM {table.name} WHERE {names[0]} = ?",
        to_row=to_row,
        from_row=from_row,
    )


def _pack(properties: Properties) -> str:
    return json.dumps(dict(properties), ensure_ascii=False, separators=(",", ":"))


def packed_pair(key: str, value: str) -> str:
    """Return a text that the stored properties of each object with this property contain."""
    return _pack(((key, value),))[1:-1]


def unpack_properties(packed: str) -> Properties:
    """Return the properties that were stored as ``packed``."""
    return tuple(json.loads(packed).items())


def pack_id(internal_id: str) -> str | bytes:
    """Return an id as it is stored: twelve bytes instead of twenty-four digits."""
    return bytes.fromhex(internal_id) if is_id(internal_id) else internal_id


def unpack_id(packed: str | bytes) -> str:
    return packed.hex() if isinstance(packed, bytes) else packed


def _unpack_shared_id(packed: str | bytes) -> str:
    """Return an id that many states have: they have it once."""
    return sys.intern(unpack_id(packed))


def _pack_names(names: tuple[OldName, ...]) -> str:
    pairs = [(each.name, each.until_ms) for each in names]
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _unpack_names(packed: str) -> tuple[OldName, ...]:
    return tuple([OldName(name, until_ms) for name, until_ms in json.loads(packed)])


def _pack_numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _unpack_numbers(packed: str) -> tuple[int, ...]:
    return tuple(map(int, packed.split()))


_ID: Conversion = (pack_id, unpack_id)
_SHARED_ID: Conversion = (pack_id, _unpack_shared_id)
_PROPERTIES: Conversion = (_pack, unpack_properties)
_EMPTY: dict[str, Any] = {"properties": (), "policies": NO_PACKED_POLICIES}
_OF_TOPIC: dict[str, Any] = {**_EMPTY, "former_names": ()}
_PARENT: dict[str, Conversion] = {"properties": _PROPERTIES, "life": (int, Life)}

_TENANT = RowFields(Tenant, tables.TENANTS, converted=_PARENT, nullable=_EMPTY)
_NAMESPACE = RowFields(Namespace, tables.NAMESPACES, converted=_PARENT, nullable=_EMPTY)
_TOPIC = RowFields(
    Topic,
    tables.TOPICS,
    converted={
        "properties": _PROPERTIES,
        "topic_id": _ID,
        "namespace_id": _SHARED_ID,
        "former_names": (_pack_names, _unpack_names),
    },
    nullable=_OF_TOPIC,
)
_POINTER = RowFields(TopicPointer, tables.TOPIC_NAMES, converted={"topic_id": _ID})
_FORMER = RowFields(FormerName, tables.FORMER_NAMES, converted={"topic_id": _ID})
_SOURCE = RowFields(
    ShadowSource,
    tables.SHADOW_SOURCES,
    converted={
        "topic_id": _ID,
        "shards": (_pack_numbers, _unpack_numbers),
        "is_deleting": (int, bool),
    },
)
_SESSION = RowFields(
    BrokerSession,
    tables.BROKER_SESSIONS,
    converted={
        "is_live": (int, bool),
        "draining": (int, bool),
        "started_at_ms": (_pack_numbers, _unpack_numbers),
    },
    inside={"endpoints": Endpoints},
)


def _scalable_row(key: str, state: ScalableTopic) -> tuple[Any, ...]:
    return (
        key,
        int(state.has_work),
        int(state.has_consumers),
        pack_scalable_topic(state),
        state.prune_at_ms,
    )


def _scalable(row: Row) -> ScalableTopic:
    return unpack_scalable_topic(row[3])


def _loads_row(key: str, state: TopicLoads) -> tuple[Any, ...]:
    return (key, pack_topic_loads(state))


def _loads(row: Row) -> TopicLoads:
    return unpack_topic_loads(row[1])


def _gate_row(key: str, state: ParentGate) -> tuple[Any, ...]:
    return (key, state.parent_id, int(state.is_open), state.attempt, state.version)


def _gate(row: Row) -> ParentGate:
    key, parent_id, is_open, attempt, version = row
    kind, _, name = key.partition("/")
    return ParentGate(ParentKind(kind), name, parent_id, bool(is_open), attempt, version)


def _assignment_row(key: str, state: Assignment) -> tuple[Any, ...]:
    return (key, state.name, state.epoch, state.broker_id, pack_id(state.session_id))


def _assignment(row: Row) -> Assignment:
    key, name, epoch, broker_id, session_id = row
    topic_id, _, unit = key.partition("/")
    # All units of a session share these texts.
    session_id, broker_id = _unpack_shared_id(session_id), sys.intern(broker_id)
    return Assignment(topic_id, unit, name, epoch, broker_id, session_id)


def _shard_row(_: str, state: Shard) -> tuple[Any, ...]:
    return (
        SHARD_KEY,
        json.dumps(state.ranges),
        state.shard_map_version,
        state.restore_id,
        state.restore_phase,
        state.least_epoch,
        pack_moves(state),
    )


def _shard(row: Row) -> Shard:
    _, ranges, *rest, moves = row
    owned = tuple([(first, last) for first, last in json.loads(ranges)])
    return Shard(owned, *rest, **unpack_moves(moves))


def _number_row(key: str, state: int) -> tuple[Any, ...]:
    return (key, state)


def _number(row: Row) -> int:
    return int(row[1])


MAPPINGS: dict[StateKind, RowMapping] = {
    StateKind.TENANT: _mapping(tables.TENANTS, _TENANT.to_row, _TENANT.from_row),
    StateKind.NAMESPACE: _mapping(tables.NAMESPACES, _NAMESPACE.to_row, _NAMESPACE.from_row),
    StateKind.TOPIC: _mapping(tables.TOPICS, _TOPIC.to_row, _TOPIC.from_row),
    StateKind.SCALABLE_TOPIC: _mapping(tables.SCALABLE_TOPICS, _scalable_row, _scalable),
    StateKind.TOPIC_LOADS: _mapping(tables.TOPIC_LOADS, _loads_row, _loads),
    StateKind.PARENT_GATE: _mapping(tables.PARENT_GATES, _gate_row, _gate),
    StateKind.SHADOW_SOURCE: _mapping(tables.SHADOW_SOURCES, _SOURCE.to_row, _SOURCE.from_row),
    StateKind.TOPIC_NAME: _mapping(tables.TOPIC_NAMES, _POINTER.to_row, _POINTER.from_row),
    StateKind.FORMER_NAME: _mapping(tables.FORMER_NAMES, _FORMER.to_row, _FORMER.from_row),
    StateKind.ASSIGNMENT: _mapping(tables.ASSIGNMENTS, _assignment_row, _assignment),
    StateKind.BROKER_SESSION: _mapping(tables.BROKER_SESSIONS, _SESSION.to_row, _SESSION.from_row),
    StateKind.SHARD: _mapping(tables.SHARD_META, _shard_row, _shard),
    StateKind.USAGE: _mapping(tables.BROKER_USAGE, _number_row, _number),
    StateKind.TENANT_USAGE: _mapping(tables.TENANT_USAGE, _number_row, _number),
    StateKind.TOTAL: _mapping(tables.TOTALS, _number_row, _number),
}


def query_many(query: Query, select: str, key: str, values: Sequence[Any]) -> list[Row]:
    """Return the rows of ``select`` whose column ``key`` is one of ``values``.

    The placeholders are padded to a power of two, so that there are only a few statements, which
    the driver keeps prepared.
    """
    rows: list[Row] = []
    for start in range(0, len(values), _PLACES_MAX):
        some = tuple(values[start : start + _PLACES_MAX])
        places = 1 << (len(some) - 1).bit_length()
        marks = ", ".join("?" * places)
        padding = some[:1] * (places - len(some))
        rows += query(f"{select} WHERE {key} IN ({marks})", some + padding)
    return rows


def read_rows(query: Query, kind: StateKind, keys: Iterable[str]) -> dict[str, Row | None]:
    """Return the rows stored under ``keys``; None for keys without a row.

    One SELECT for up to a thousand keys.
    """
    rows: dict[str, Row | None] = dict.fromkeys(keys)
    mapping = MAPPINGS[kind]
    for row in query_many(query, mapping.select, mapping.key, list(rows)):
        rows[row[0]] = tuple(row)
    return rows


def read_states(query: Query, kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
    """Return the states under ``keys``, None for keys without a state.

    One SELECT for up to a thousand keys.
    """
    states: dict[str, State | None] = dict.fromkeys(keys)
    mapping = MAPPINGS[kind]
    from_row = mapping.from_row
    for row in query_many(query, mapping.select, mapping.key, list(states)):
        states[row[0]] = from_row(row)
    return states


def write_states(
    connection: Connection,
    kind: StateKind,
    states: Mapping[str, State | None],
    before: Mapping[str, Row | None],
) -> int | None:
    """Store ``states``; None removes the row under the key. Return the digest's change.

    ``before`` has the rows stored under the keys, None for no row; a key that it lacks is taken to
    be new. If such a key has a row, the row is replaced and the result is None: the old row, and
    so the change of the digest, is unknown.
    """
    mapping = MAPPINGS[kind]
    to_row = mapping.to_row
    born: list[Row] = []
    changed: list[Row] = []
    for key, state in states.items():
        if state is not None:
            (changed if key in before else born).append(to_row(key, state))
    ended = [(key,) for key, state in states.items() if state is None]
    are_new = insert_new(connection, mapping.insert, born)
    if not are_new:
        _write(connection, mapping.write, born)
    _write(connection, mapping.write, changed)
    known = sum(before.get(key) is not None for (key,) in ended)
    if _write(connection, mapping.delete, ended) != known or not are_new:
        return None
    gone = [row for key in states if (row := before.get(key)) is not None]
    table = mapping.table
    return rows_digest(table, born) + rows_digest(table, changed) - rows_digest(table, gone)


def insert_new(connection: Connection, statement: str, rows: list[Row]) -> bool:
    """Store ``rows`` by an INSERT OR IGNORE; return whether no key was there before.

    A read before the write would add a tenth to the cost of the fold.
    """
    return _write(connection, statement, rows) == len(rows)


def _write(connection: Connection, statement: str, rows: list[Row]) -> int:
    """Run ``statement`` for each row, in the order of the keys: neighbours share pages.

    Returns how many rows it changed.
    """
    if not rows:
        return 0
    driver = driver_of(connection)
    before = driver.total_changes
    rows.sort(key=_first)
    driver.executemany(statement, rows)
    return driver.total_changes - before


def query_of(reader: Callable[[], Connection]) -> Query:
    """Return the ``Query`` that runs on the connection that ``reader`` returns at each call.

    ``ViewStore.reader`` is such a function.
    """

    def query(statement: str, parameters: tuple[Any, ...] = ()) -> Sequence[Row]:
        return driver_of(reader()).execute(statement, parameters).fetchall()

    return query
