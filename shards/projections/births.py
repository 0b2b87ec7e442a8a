"""Records of hundreds of created topics: from stored events to rows, without states in between.

The row of a ``TopicCreated`` without properties consists of the event's fields and constants. A
record that holds nothing else, as bulk loads and large creates write them, is turned into rows
directly, in half the time of ``evolve`` and ``rows``. A test folds the same logs both ways.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from nextgen.replication.view.digest import rows_digest
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.states import State, StateKind
from shards.projections.rows import (
    MAPPINGS,
    Row,
    insert_new,
    pack_id,
    query_of,
    read_rows,
    write_states,
)
from shards.projections.tables import TOPICS
from shards.wire.event import SCHEMA_VERSION_MAX

BIRTHS_MIN = 64
"""The least events of a record for this path: fewer share statements with neighbouring records."""

_TOPIC_CREATED = "topic_created"
_VERSION = 1
"""The version of a topic that was never changed."""


def read_births(decided: DecidedCommand) -> list[Row] | None:
    """Return the topics of a record of many plain ``TopicCreated`` and nothing else, or None."""
    if len(decided.events) < BIRTHS_MIN:
        return None
    time_ms = decided.time_ms
    namespaces: dict[str, str | bytes] = {}
    rows: list[Row] = []
    for event in decided.events:
        if event.WhichOneof("payload") != _TOPIC_CREATED:
            return None
        created = event.topic_created
        if created.properties or event.schema_version > SCHEMA_VERSION_MAX:
            return None
        parent = created.namespace_id
        packed = namespaces.get(parent)
        if packed is None:
            packed = namespaces[parent] = pack_id(parent)
        rows.append(
            (
                created.name,
                pack_id(created.topic_id),
                created.partitions,
                _VERSION,
                packed,
                time_ms,
                None,  # Properties.
                None,  # Policies.
                0,  # Their version.
                None,  # Former names.
            )
        )
    return rows


def write_births(connection: Connection, rows: list[Row]) -> int | None:
    """Store the rows of topics, count them, and return the digest's change as ``fold`` does."""
    mapping = MAPPINGS[StateKind.TOPIC]
    counted = _count(connection, len(rows))
    if insert_new(connection, mapping.insert, rows):
        return None if counted is None else rows_digest(TOPICS.name, rows) + counted
    # A name that exists already; leaders never decide that. The later event wins.
    insert_new(connection, mapping.write, rows)
    return None


def _count(connection: Connection, added: int) -> int | None:
    kind, key = StateKind.TOTAL, StateKind.TOPIC.value
    before = read_rows(query_of(lambda: connection), kind, (key,))
    row = before[key]
    total = MAPPINGS[kind].from_row(row) if row is not None else 0
    assert isinstance(total, int)
    states: Mapping[str, State | None] = {key: total + added}
    return write_states(connection, kind, states, before)
