"""The fold: what a view store does with the committed entries of a shard.

Deterministic: the tables depend on the log alone, not on how its entries are cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from nextgen.kernel.limits import OUTCOME_WINDOW_POSITIONS, OUTCOMES_MAX
from nextgen.replication.ports import Entry
from shards.domain.topic import TopicDeleted
from shards.projections.evolution import State, StateKind, evolve_all
from shards.projections.reading import prefix_range
from shards.projections.rows import query_of, read_states, write_states
from shards.projections.tables import ASSIGNMENTS
from shards.wire_event import DomainEvent, decode_decided

Outcome = tuple[bytes, int, bytes]
"""Command id, the shard's last event position after the command, outcome."""


def fold(connection: Connection, entries: Sequence[Entry]) -> None:
    """Fold ``entries`` into the tables. The caller owns the transaction.

    Raises:
        UnknownEvent: The log holds an event that this program does not know.
    """
    events: list[DomainEvent] = []
    outcomes: list[Outcome] = []
    last_position = 0
    for entry in entries:
        last_position = entry.first_position - 1
        for record in entry.records:
            decided = decode_decided(record.payload)
            assert len(decided.events) == record.events, (
                f"a record of entry {entry.index} says {record.events} events, "
                f"it holds {len(decided.events)}"
            )
            events += decided.events
            last_position += record.events
            if decided.command_id:
                outcomes.append((decided.command_id, last_position, decided.outcome))
    query = query_of(lambda: connection)

    def load(kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
        return read_states(query, kind, keys)

    for kind, states in evolve_all(events, load).items():
        write_states(connection, kind, states)
    _remove_epochs(connection, events)
    if events or outcomes:
        recorded = _record_outcomes(connection, outcomes)
        _forget_outcomes(connection, recorded, last_position)


def _remove_epochs(connection: Connection, events: Sequence[DomainEvent]) -> None:
    """Remove what is kept of the units of deleted topics: their ids never return."""
    ranges = [
        prefix_range(f"{each.topic_id}/") for each in events if isinstance(each, TopicDeleted)
    ]
    if ranges:
        connection.exec_driver_sql(
            f"DELETE FROM {ASSIGNMENTS.name} WHERE key >= ? AND key < ?", ranges
        )


def _record_outcomes(connection: Connection, outcomes: Sequence[Outcome]) -> int:
    """Store ``outcomes`` and return how many were ever stored."""
    row = connection.exec_driver_sql("SELECT recorded FROM outcome_count WHERE id = 1").first()
    recorded = 0 if row is None else int(row[0])
    if not outcomes:
        return recorded
    rows = [
        (command_id, position, sequence, outcome)
        for sequence, (command_id, position, outcome) in enumerate(outcomes, start=recorded + 1)
    ]
    recorded += len(outcomes)
    connection.exec_driver_sql("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", rows)
    connection.exec_driver_sql("INSERT OR REPLACE INTO outcome_count VALUES (1, ?)", (recorded,))
    return recorded


def _forget_outcomes(connection: Connection, recorded: int, last_position: int) -> None:
    if not recorded:
        return
    row = connection.exec_driver_sql(
        "SELECT sequence FROM outcomes WHERE position > ? ORDER BY sequence LIMIT 1",
        (last_position - OUTCOME_WINDOW_POSITIONS,),
    ).first()
    oldest_kept = recorded + 1 if row is None else int(row[0])
    bound = max(oldest_kept, recorded - OUTCOMES_MAX + 1)
    connection.exec_driver_sql("DELETE FROM outcomes WHERE sequence < ?", (bound,))
