"""Counts of the names in a view: exact as of one position, and off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.exc import TimeoutError as PoolTimeout

from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.listing import NAME_COUNTS_MAX, NAMES_COUNTED_PER_SLICE
from nextgen.replication.view.database import driver_of, read_applied, sqlite_errors
from shards.domain.states import StateKind
from shards.projections.foreign import read_foreign
from shards.projections.reading import Range, count_names
from shards.projections.rows import ReadTransaction, Row


@dataclass(frozen=True, slots=True)
class NameCount:
    """How many names there are as of ``position``, and how many units they have together."""

    names: int
    units: int
    position: int


class NameCounts:
    """Counts names in one view, ``NAME_COUNTS_MAX`` times at once. Owned by one event loop.

    Every name is read: a view keeps no sums by namespace, which each create would have to update.
    """

    def __init__(self, read_transaction: ReadTransaction) -> None:
        self._read_transaction = read_transaction
        self._running = 0

    async def count(self, kind: StateKind, ranges: Sequence[Range]) -> NameCount:
        """Return the number of names in ``ranges``, all as of one position of the view.

        Raises:
            Overloaded: Too many counts are under way.
            Unavailable: The view cannot be read at the moment.
        """
        if self._running >= NAME_COUNTS_MAX:
            raise Overloaded(f"{self._running} counts of names are under way")
        is_given_up = threading.Event()
        self._running += 1
        loop = asyncio.get_running_loop()
        counting = loop.run_in_executor(None, self._count, kind, ranges, is_given_up)
        counting.add_done_callback(self._done)
        try:
            with sqlite_errors():
                # Shielded: the thread ends with its slice, and is counted until then.
                return await asyncio.shield(counting)
        except asyncio.CancelledError:
            is_given_up.set()
            raise
        except (OSError, PoolTimeout) as error:
            raise Unavailable(f"the view cannot be read at the moment: {error}") from error

    def _done(self, counting: asyncio.Future[NameCount]) -> None:
        self._running -= 1
        if not counting.cancelled():
            counting.exception()  # Mark it as retrieved: the caller may have given up.

    def _count(
        self, kind: StateKind, ranges: Sequence[Range], is_given_up: threading.Event
    ) -> NameCount:
        names = units = 0
        with self._read_transaction() as connection:
            driver = driver_of(connection)

            def query(statement: str, parameters: tuple[object, ...] = ()) -> Sequence[Row]:
                return driver.execute(statement, parameters).fetchall()

            position, foreign = read_applied(driver).position, read_foreign(query)
            for within in ranges:
                after = ""
                while not is_given_up.is_set():
                    counted, of_these, after = count_names(
                        query,
                        kind,
                        within,
                        after=after,
                        limit=NAMES_COUNTED_PER_SLICE,
                        foreign=foreign,
                    )
                    names, units = names + counted, units + of_these
                    if not after:
                        break
        return NameCount(names, units, position)
