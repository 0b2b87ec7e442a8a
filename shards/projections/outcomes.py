"""Outcomes of commands in the view: recorded as they are decided, and forgotten by rule.

Until a log holds an order, an outcome is forgotten when ``OUTCOME_WINDOW_POSITIONS`` events have
followed it. From the first record with ``outcomes_kept_from`` on, leaders decide: outcomes below
that position are forgotten (ADR 0053). Either way only the newest are kept, up to a number of rows.
The rules depend on positions and counts alone, so all replicas forget the same outcomes, however
the log is cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from nextgen.kernel.limits.write import (
    OUTCOME_WINDOW_POSITIONS,
    OUTCOMES_MAX,
    OUTCOMES_WITHOUT_ORDERS_MAX,
)
from nextgen.replication.view.database import driver_of
from nextgen.replication.view.digest import rows_digest, select_of
from shards.projections.rows import Query, Row, insert_new, query_many, query_of
from shards.projections.tables import OUTCOME_COUNT, OUTCOMES

RECORDED, KEPT_FROM = 1, 2
"""Rows of ``OUTCOME_COUNT``: how many outcomes were ever recorded, and the last order."""

_INSERT = f"INSERT OR IGNORE INTO {OUTCOMES.name} VALUES (?, ?, ?, ?)"
_REPLACE = f"INSERT OR REPLACE INTO {OUTCOMES.name} VALUES (?, ?, ?, ?)"
_FORGET = f"DELETE FROM {OUTCOMES.name} WHERE sequence < ? RETURNING *"
_OLDEST = f"SELECT sequence, position FROM {OUTCOMES.name} ORDER BY sequence LIMIT 1"
_OLDEST_FROM = f"SELECT sequence FROM {OUTCOMES.name} WHERE position >= ? ORDER BY sequence LIMIT 1"
_STORE_COUNT = f"INSERT OR REPLACE INTO {OUTCOME_COUNT.name} VALUES (?, ?)"
_COUNTS = f"{select_of(OUTCOME_COUNT)} ORDER BY id"


class OutcomeFold:
    """Applies one batch of records to the outcomes. The caller owns the transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._driver = driver_of(connection)
        self._counts: list[Row] = self._driver.execute(_COUNTS).fetchall()
        before: dict[int, int] = dict(self._counts)
        self._recorded: int = before.get(RECORDED, 0)
        self._kept_from: int | None = before.get(KEPT_FROM)
        self._first_kept = 1
        self._outcomes: list[tuple[bytes, int, bytes]] = []

    @property
    def has_any(self) -> bool:
        """Whether the batch has an outcome to record."""
        return bool(self._outcomes)

    def order(self, kept_from: int, last_position: int) -> None:
        """Apply a leader's order; ``last_position`` is the last event before its record."""
        if self._kept_from is None:
            # Outcomes forgotten by the rule without orders stay forgotten.
            self._kept_from = last_position - OUTCOME_WINDOW_POSITIONS + 1
            recorded = self._recorded + len(self._outcomes)
            self._first_kept = recorded - OUTCOMES_WITHOUT_ORDERS_MAX + 1
        self._kept_from = max(self._kept_from, kept_from)

    def add(self, command_id: bytes, position: int, outcome: bytes) -> None:
        """Add an outcome; ``position`` is the shard's last event after the command."""
        self._outcomes.append((command_id, position, outcome))

    def write(self, last_position: int) -> int:
        """Write the tables and return by how much their digest changed."""
        change = self._record()
        self._recorded += len(self._outcomes)
        change += self._write_counts()
        return change + self._forget(last_position)

    def _record(self) -> int:
        # Of an id that occurs twice, the last outcome is kept.
        rows: dict[bytes, Row] = {
            command_id: (command_id, position, sequence, outcome)
            for sequence, (command_id, position, outcome) in enumerate(
                self._outcomes, start=self._recorded + 1
            )
        }
        return _store(self._connection, rows, self._recorded) if rows else 0

    def _write_counts(self) -> int:
        counts = [(RECORDED, self._recorded)] if self._recorded else []
        if self._kept_from is not None:
            counts.append((KEPT_FROM, self._kept_from))
        if counts == self._counts:
            return 0
        self._driver.executemany(_STORE_COUNT, counts)
        return rows_digest(OUTCOME_COUNT.name, counts) - rows_digest(
            OUTCOME_COUNT.name, self._counts
        )

    def _forget(self, last_position: int) -> int:
        if not self._recorded:
            return 0
        kept_from, rows_max = self._kept_from, OUTCOMES_MAX
        if kept_from is None:
            kept_from = last_position - OUTCOME_WINDOW_POSITIONS + 1
            rows_max = OUTCOMES_WITHOUT_ORDERS_MAX
        row = self._driver.execute(_OLDEST_FROM, (kept_from,)).fetchone()
        oldest_kept = self._recorded + 1 if row is None else int(row[0])
        bound = max(oldest_kept, self._recorded - rows_max + 1, self._first_kept)
        return -rows_digest(OUTCOMES.name, self._driver.execute(_FORGET, (bound,)).fetchall())


def _store(connection: Connection, rows: Mapping[bytes, Row], recorded: int) -> int:
    change = rows_digest(OUTCOMES.name, rows.values())
    if not insert_new(connection, _INSERT, [*rows.values()]):
        query = query_of(lambda: connection)
        found = query_many(query, select_of(OUTCOMES), "command_id", [*rows])
        earlier = [row for row in found if row[2] <= recorded]
        change -= rows_digest(OUTCOMES.name, earlier)
        driver_of(connection).executemany(_REPLACE, [rows[row[0]] for row in earlier])
    return change


def read_forgotten_position(query: Query, last_position: int) -> int:
    """Return the position up to which outcomes may have been forgotten, 0 if none ever was.

    ``last_position`` is the last event of the view. Every outcome recorded behind the returned
    position is known.
    """
    counts = {row[0]: int(row[1]) for row in query(_COUNTS)}
    recorded = counts.get(RECORDED, 0)
    if not recorded:
        return 0
    oldest = query(_OLDEST)
    sequence, position = oldest[0] if oldest else (recorded + 1, 0)
    kept_from = counts.get(KEPT_FROM)
    if kept_from is None:
        if not oldest:
            return max(0, last_position - OUTCOME_WINDOW_POSITIONS)
        return 0 if sequence == 1 else int(position)
    ordered = max(0, kept_from - 1)
    if recorded - sequence < min(OUTCOMES_MAX, OUTCOMES_WITHOUT_ORDERS_MAX) // 2:
        # Far below the bound by number, which has forgotten nothing that the last order keeps.
        return ordered
    return max(ordered, int(position))
