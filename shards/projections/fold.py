"""The fold: applies the committed entries of a shard to the tables of its view.

Deterministic: the tables depend on the log alone, not on how its entries are cut into batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from nextgen.kernel.routing.names import Unit
from nextgen.replication.ports import Entry, Record
from nextgen.replication.view.database import driver_of
from nextgen.replication.view.digest import rows_digest
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.assignment import unit_key
from shards.domain.scalable.events import SegmentStorageRemoved
from shards.domain.states import State, StateKind
from shards.domain.topic import TopicDeleted
from shards.projections.births import read_births, write_births
from shards.projections.evolution import evolve_all
from shards.projections.outcomes import OutcomeFold
from shards.projections.reading import prefix_range
from shards.projections.rows import MAPPINGS, Row, query_of, read_rows, write_states
from shards.projections.tables import ASSIGNMENTS
from shards.wire.event import DomainEvent, decode_events

_REMOVE_EPOCHS = f"DELETE FROM {ASSIGNMENTS.name} WHERE key >= ? AND key < ? RETURNING *"
_REMOVE_EPOCH = f"DELETE FROM {ASSIGNMENTS.name} WHERE key = ? RETURNING *"


def fold(connection: Connection, entries: Sequence[Entry]) -> int | None:
    """Fold ``entries`` into the tables and return by how much their digest grew.

    None if unknown: a name was created that existed already, which leaders never decide.
    The caller owns the transaction.

    Raises:
        UnknownEvent: The log holds an event that this program does not know.
    """
    writing = _Writing(connection)
    outcomes = OutcomeFold(connection)
    last_position = 0
    for entry in entries:
        last_position = entry.first_position - 1
        for record in entry.records:
            decided = writing.take(record, entry.index)
            if decided.outcomes_kept_from:
                outcomes.order(decided.outcomes_kept_from, last_position)
            last_position += record.events
            if decided.command_id:
                outcomes.add(decided.command_id, last_position, decided.outcome)
    changes = writing.finish()
    if writing.has_events or outcomes.has_any:
        changes.append(outcomes.write(last_position))
    return None if None in changes else sum(filter(None, changes))


class _Writing:
    """Writes records into the tables in order: runs of births, and runs of all other records."""

    def __init__(self, connection: Connection) -> None:
        self.has_events = False
        self._connection = connection
        self._events: list[DomainEvent] = []
        self._births: list[Row] = []
        self._changes: list[int | None] = []

    def take(self, record: Record, index: int) -> DecidedCommand:
        """Decode a record of entry ``index``, queue its events, and return it."""
        self.has_events = self.has_events or record.events > 0
        decided = DecidedCommand.FromString(record.payload)
        assert len(decided.events) == record.events, (
            f"a record of entry {index} says {record.events} events, it has {len(decided.events)}"
        )
        births = read_births(decided)
        if births is not None:
            self._write_events()
            self._births += births
        elif decided.events:
            self._write_births()
            self._events += decode_events(decided)
        return decided

    def finish(self) -> list[int | None]:
        """Write the queued events; return the digest's changes, None for an unknown one."""
        self._write_events()
        self._write_births()
        return self._changes

    def _write_events(self) -> None:
        if self._events:
            self._changes += _write_events(self._connection, self._events)
            self._changes.append(_remove_epochs(self._connection, self._events))
            self._events = []

    def _write_births(self) -> None:
        if self._births:
            self._changes.append(write_births(self._connection, self._births))
            self._births = []


def _write_events(connection: Connection, events: Sequence[DomainEvent]) -> list[int | None]:
    query = query_of(lambda: connection)
    before: dict[StateKind, dict[str, Row | None]] = defaultdict(dict)

    def load(kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
        rows = read_rows(query, kind, keys)
        before[kind].update(rows)
        from_row = MAPPINGS[kind].from_row
        return {key: None if row is None else from_row(row) for key, row in rows.items()}

    return [
        write_states(connection, kind, states, before[kind])
        for kind, states in evolve_all(events, load).items()
    ]


def _remove_epochs(connection: Connection, events: Sequence[DomainEvent]) -> int:
    """Remove the assignments of deleted topics and of segments that are gone.

    Neither the id of a topic nor that of a segment is used again.
    """
    change, driver = 0, driver_of(connection)
    for each in events:
        gone: Sequence[Row] = ()
        if isinstance(each, TopicDeleted):
            within = prefix_range(f"{each.topic_id}/")
            gone = driver.execute(_REMOVE_EPOCHS, within).fetchall()
        elif isinstance(each, SegmentStorageRemoved):
            key = unit_key(each.topic_id, Unit.segment(each.segment_id).text)
            gone = driver.execute(_REMOVE_EPOCH, (key,)).fetchall()
        change -= rows_digest(ASSIGNMENTS.name, gone)
    return change
