"""Group commit: records wait together and share an entry.

An entry costs every replica messages, a sync and a transaction, however few records it holds. So
records wait while an entry is in flight, and share the next one. It is appended when nothing is in
flight any more, or beside the ones in flight, up to ``entries_in_flight_max``, when it would be
large. The queue is bounded: beyond it, ``Overloaded``.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nextgen.kernel.errors import Overloaded, ProposalLost
from nextgen.kernel.limits.cluster import (
    ENTRY_BYTES_MAX,
    ENTRY_RECORDS_MAX,
    PROPOSE_QUEUE_BYTES_MAX,
)
from nextgen.replication.ports import Commit, Entry, GroupId, Record
from nextgen.replication.protocol.entry_codec import (
    RECORD_OVERHEAD_BYTES,
    check_record,
    encode_records,
)

GATHERED_RECORDS_MAX = 64
"""Records that wait for the commit of the entries in flight; so many get an entry beside them."""

GATHERED_BYTES_MAX = 64 * 1024
"""The same in bytes."""

Pending = tuple[Record, "asyncio.Future[Commit]"]


@dataclass(slots=True)
class InFlight:
    """An entry that is appended and not yet committed, with its waiting callers."""

    entry: Entry
    futures: tuple[asyncio.Future[Commit], ...]
    appended_at: float
    durable_at: float = 0.0


class GroupCommit:
    """The queue of records and the entries in flight of one group's leader."""

    def __init__(self, group_id: GroupId, entries_in_flight_max: int) -> None:
        self._group_id = group_id
        self._entries_in_flight_max = entries_in_flight_max
        self._queue: deque[Pending] = deque()
        self._queue_bytes = 0
        self._in_flight: deque[InFlight] = deque()

    @property
    def is_empty(self) -> bool:
        """True when nothing waits and nothing is in flight."""
        return not self._queue and not self._in_flight

    @property
    def records_waiting(self) -> int:
        """Records that are in no entry yet."""
        return len(self._queue)

    @property
    def entries_in_flight(self) -> int:
        """Entries appended and not yet committed."""
        return len(self._in_flight)

    @property
    def has_work(self) -> bool:
        if not self._queue or len(self._in_flight) >= self._entries_in_flight_max:
            return False
        return (
            not self._in_flight
            or len(self._queue) >= GATHERED_RECORDS_MAX
            or self._queue_bytes >= GATHERED_BYTES_MAX
        )

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        """Queue ``record``.

        Raises:
            InvalidRequest: It may not enter a log.
            Overloaded: The queue is full.
        """
        check_record(record)
        size = len(record.payload) + RECORD_OVERHEAD_BYTES
        if self._queue_bytes + size > PROPOSE_QUEUE_BYTES_MAX:
            raise Overloaded(
                f"group {self._group_id}: {self._queue_bytes} bytes wait for the log already"
            )
        future: asyncio.Future[Commit] = asyncio.get_running_loop().create_future()
        self._queue.append((record, future))
        self._queue_bytes += size
        return future

    def fill(self, append: Callable[[bytes, int], tuple[int, int, int]]) -> int:
        """Append entries as far as the window allows; return how many.

        ``append`` takes payload and events and returns index, term and first position. When
        it raises ``Overloaded``, so does this; the records stay in the queue.
        """
        filled = 0
        while self.has_work:
            batch = self._take_batch()
            records = tuple(record for record, _ in batch)
            events = sum(record.events for record in records)
            try:
                index, term, first_position = append(encode_records(records), events)
            except Overloaded:
                self._put_back(batch)
                raise
            entry = Entry(index, term, first_position, records)
            futures = tuple(future for _, future in batch)
            self._in_flight.append(InFlight(entry, futures, time.monotonic()))
            filled += 1
        return filled

    def note_durable(self, durable_index: int) -> None:
        """Note the time for entries that reached this leader's own disk since the last call."""
        for flight in self._in_flight:
            if flight.entry.index > durable_index:
                return
            if not flight.durable_at:
                flight.durable_at = time.monotonic()

    def commit(self, commit_index: int) -> dict[int, Entry]:
        """Resolve the proposals in flight up to ``commit_index``; return their entries by index."""
        committed: dict[int, Entry] = {}
        while self._in_flight and self._in_flight[0].entry.index <= commit_index:
            done = self._in_flight.popleft()
            committed[done.entry.index] = done.entry
            position = done.entry.first_position
            for record, future in zip(done.entry.records, done.futures, strict=True):
                if not future.done():
                    future.set_result(
                        Commit(
                            done.entry.index,
                            done.entry.term,
                            position,
                            done.appended_at,
                            done.durable_at,
                        )
                    )
                position += record.events
        return committed

    def fail(self, why: str) -> None:
        """Fail everything as lost: leadership moved, or the replica stops."""
        futures = [future for flight in self._in_flight for future in flight.futures]
        futures += [future for _, future in self._queue]
        self._in_flight.clear()
        self._queue.clear()
        self._queue_bytes = 0
        for future in futures:
            if not future.done():
                future.set_exception(ProposalLost(f"group {self._group_id}: {why}"))

    def _put_back(self, batch: list[Pending]) -> None:
        self._queue.extendleft(reversed(batch))
        self._queue_bytes += sum(len(r.payload) + RECORD_OVERHEAD_BYTES for r, _ in batch)

    def _take_batch(self) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while self._queue and len(batch) < ENTRY_RECORDS_MAX:
            record_bytes = len(self._queue[0][0].payload) + RECORD_OVERHEAD_BYTES
            if batch and size + record_bytes > ENTRY_BYTES_MAX:
                break
            size += record_bytes
            self._queue_bytes -= record_bytes
            batch.append(self._queue.popleft())
        return batch
