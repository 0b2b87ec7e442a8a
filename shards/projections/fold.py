"""The fold: what a view store does with the committed entries of a shard.

Deterministic: the tables depend on the log alone, not on how its entries are cut into batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from nextgen.kernel.limits import OUTCOME_WINDOW_POSITIONS, OUTCOMES_MAX
from nextgen.replication.ports import Entry, Record
from nextgen.replication.view_digest import rows_digest, select_of
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.topic import TopicDeleted
from shards.projections.births import read_births, write_births
from shards.projections.evolution import State, StateKind, evolve_all
from shards.projections.reading import prefix_range
from shards.projections.rows import (
    MAPPINGS,
    Row,
    insert_new,
    query_many,
    query_of,
    read_rows,
    write_states,
)
from shards.projections.tables import ASSIGNMENTS, OUTCOME_COUNT, OUTCOMES
from shards.wire_event import DomainEvent, decode_events

Outcome = tuple[bytes, int, bytes]
"""Command id, the shard's last event position after the command, outcome."""

_REMOVE_EPOCHS = f"DELETE FROM {ASSIGNMENTS.name} WHERE key >= ? AND key < ? RETURNING *"
_INSERT_OUTCOMES = f"INSERT OR IGNORE INTO {OUTCOMES.name} VALUES (?, ?, ?, ?)"
_REPLACE_OUTCOMES = f"INSERT OR REPLACE INTO {OUTCOMES.name} VALUES (?, ?, ?, ?)"
_FORGET_OUTCOMES = f"DELETE FROM {OUTCOMES.name} WHERE sequence < ? RETURNING *"
_SELECT_COUNT = f"{select_of(OUTCOME_COUNT)} WHERE id = 1"


def fold(connection: Connection, entries: Sequence[Entry]) -> int | None:
    """Fold ``entries`` into the tables and return by how much their digest grew.

    None if that is not known: a name was created that was there already, which no leader decides.
    The caller owns the transaction.

    Raises:
        UnknownEvent: The log holds an event that this program does not know.
    """
    writing = _Writing(connection)
    outcomes: list[Outcome] = []
    last_position = 0
    for entry in entries:
        last_position = entry.first_position - 1
        for record in entry.records:
            last_position += record.events
            command_id, outcome = writing.take(record, entry.index)
            if command_id:
                outcomes.append((command_id, last_position, outcome))
    changes = writing.finish()
    if writing.has_events or outcomes:
        recorded, change = _record_outcomes(connection, outcomes)
        changes += [change, _forget_outcomes(connection, recorded, last_position)]
    return None if None in changes else sum(filter(None, changes))


class _Writing:
    """Records on their way into the tables, in order: births and all others by turns."""

    def __init__(self, connection: Connection) -> None:
        self.has_events = False
        self._connection = connection
        self._events: list[DomainEvent] = []
        self._births: list[Row] = []
        self._changes: list[int | None] = []

    def take(self, record: Record, index: int) -> tuple[bytes, bytes]:
        """Take a record of entry ``index`` over; return its command id and outcome."""
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
        return decided.command_id, decided.outcome

    def finish(self) -> list[int | None]:
        """Write what is left; return the digest's changes, None for one that is not known."""
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
    """Remove what is kept of the units of deleted topics: their ids never return."""
    change = 0
    for each in events:
        if isinstance(each, TopicDeleted):
            within = prefix_range(f"{each.topic_id}/")
            gone = connection.exec_driver_sql(_REMOVE_EPOCHS, within).fetchall()
            change -= rows_digest(ASSIGNMENTS.name, map(tuple, gone))
    return change


def _record_outcomes(connection: Connection, outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Store ``outcomes``; return how many were ever stored, and the digest's change."""
    counts = connection.exec_driver_sql(_SELECT_COUNT).fetchall()
    recorded = int(counts[0][1]) if counts else 0
    if not outcomes:
        return recorded, 0
    # An id that comes twice is kept as it came last.
    rows: dict[bytes, Row] = {
        command_id: (command_id, position, sequence, outcome)
        for sequence, (command_id, position, outcome) in enumerate(outcomes, start=recorded + 1)
    }
    change = _store_outcomes(connection, rows, recorded)
    recorded += len(outcomes)
    connection.exec_driver_sql("INSERT OR REPLACE INTO outcome_count VALUES (1, ?)", (recorded,))
    change += rows_digest(OUTCOME_COUNT.name, [(1, recorded)])
    return recorded, change - rows_digest(OUTCOME_COUNT.name, map(tuple, counts))


def _store_outcomes(connection: Connection, rows: Mapping[bytes, Row], recorded: int) -> int:
    change = rows_digest(OUTCOMES.name, rows.values())
    if not insert_new(connection, _INSERT_OUTCOMES, [*rows.values()]):
        query = query_of(lambda: connection)
        found = query_many(query, select_of(OUTCOMES), "command_id", [*rows])
        earlier = [row for each in found if (row := tuple(each))[2] <= recorded]
        change -= rows_digest(OUTCOMES.name, earlier)
        connection.exec_driver_sql(_REPLACE_OUTCOMES, [rows[row[0]] for row in earlier])
    return change


def _forget_outcomes(connection: Connection, recorded: int, last_position: int) -> int:
    """Forget by position and number alone, so that what stays does not depend on the batches."""
    if not recorded:
        return 0
    row = connection.exec_driver_sql(
        "SELECT sequence FROM outcomes WHERE position > ? ORDER BY sequence LIMIT 1",
        (last_position - OUTCOME_WINDOW_POSITIONS,),
    ).first()
    oldest_kept = recorded + 1 if row is None else int(row[0])
    bound = max(oldest_kept, recorded - OUTCOMES_MAX + 1)
    gone = connection.exec_driver_sql(_FORGET_OUTCOMES, (bound,)).fetchall()
    return -rows_digest(OUTCOMES.name, map(tuple, gone))
