"""The part of a journal that is not on disk yet, and the callbacks that wait for it.

One batch is in flight, the next one fills. A full disk stalls: the same batch is tried again
every ``JOURNAL_RETRY_MS``. Any other failure breaks the journal for good, because the kernel may
have dropped the data of a failed sync, and the next sync would report success.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from nextgen.kernel.errors import Definite
from nextgen.kernel.limits.cluster import JOURNAL_RETRY_MS
from nextgen.replication.journal.format import DurableMark, SegmentHeader
from nextgen.replication.journal.worker import Batch, Runner, SegmentFiles


class JournalStalled(Definite):
    """The disk is full. Appended records are kept in memory and written again by a timer."""

    reason = "DISK_FULL"


class JournalBroken(Definite):
    """The disk failed. Nothing more becomes durable: the process must stop."""

    reason = "DISK_FAILED"


class PendingWrites:
    """The journal's half of the batches; lives on the event loop.

    ``log_end`` returns the present end of the log; ``durable`` is the end at which the last synced
    batch was handed over.
    """

    def __init__(
        self,
        files: SegmentFiles,
        runner: Runner,
        log_end: Callable[[], DurableMark],
        on_broken: Callable[[JournalBroken], None] | None,
    ) -> None:
        self._files = files
        self._runner = runner
        self._log_end = log_end
        self._on_broken = on_broken
        self._pending = Batch()
        self._in_flight: Batch | None = None
        self._changes = 0  # Since the journal was opened: what waiters count in.
        self._durable_changes = 0
        self._waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._retry_is_due = False
        self._closed = False
        self.durable = log_end()
        self.stalled: str | None = None
        self.broken: JournalBroken | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are in no batch yet."""
        return self._pending.size_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes that are not on disk."""
        in_flight = self._in_flight.size_bytes if self._in_flight else 0
        return self._pending.size_bytes + in_flight

    def write(self, data: bytes, offset: int) -> None:
        """Write behind everything before, into the segment that was started last.

        Raises:
            JournalBroken: The journal is broken for good.
        """
        assert not self._closed, "the journal is closed"
        if self.broken is not None:
            raise self.broken
        self._pending.write(data, offset)
        self._changes += 1

    def start_segment(self, header: SegmentHeader) -> None:
        self._pending.start_segment(header)
        self._changes += 1

    def drop_segments(self, sequences: Sequence[int]) -> None:
        """Remove segments once everything before is durable."""
        self._pending.drop_segments(sequences)
        self._changes += 1

    def forget_entries_behind(self, index: int) -> None:
        """Stop counting records behind ``index`` as in flight or durable."""
        self.durable = self.durable.lowered_to(index)
        if self._in_flight is not None:
            self._in_flight.end = self._in_flight.end.lowered_to(index)

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self._durable_changes == self._changes:
            callback()
            return
        self._waiters.append((self._changes, callback))
        self.start_batch()

    def start_batch(self) -> None:
        """Start writing the pending batch, unless one is in flight already."""
        busy = self._in_flight is not None or self.broken is not None
        if busy or self._closed or not self._pending.steps:
            return
        self._submit(self._hand_over())

    def sync(self) -> None:
        """Carry everything out on this thread, or wait for the worker that does.

        Raises:
            JournalStalled: The disk is full.
            JournalBroken: The disk failed.
        """
        while self.broken is None and (self._in_flight is not None or self._pending.steps):
            batch = self._in_flight or self._hand_over()
            batch.run(self._files)
            if not batch.done:
                self._fail(batch)
                break
            self._finish(batch)
        if self.broken is not None:
            raise self.broken
        if self.stalled is not None:
            raise JournalStalled(self.stalled)
        if self._waiters:
            self._runner.post(self._run_waiters)

    def close(self) -> None:
        """Write pending records if the disk accepts them. No callback runs afterwards."""
        self._waiters.clear()
        try:
            self.sync()
            self._files.sync_mark()
        except (JournalStalled, JournalBroken):
            # No caller was informed that it is durable, so no acknowledgement is wrong.
            pass
        finally:
            self._closed = True
            self._runner.close()
            self._files.close()

    def _hand_over(self) -> Batch:
        batch, self._pending = self._pending, Batch()
        batch.changes = self._changes
        batch.mark = batch.end = self._log_end()
        self._in_flight = batch
        return batch

    def _submit(self, batch: Batch) -> None:
        def work() -> None:
            batch.run(self._files)
            self._runner.post(lambda: self._settle(batch))

        self._runner.submit(work)

    def _settle(self, batch: Batch) -> None:
        """Apply the result of a batch, on the loop. ``sync`` may have done so before."""
        if batch is not self._in_flight or self._closed:
            return
        if not batch.done:
            self._fail(batch)
            return
        self._finish(batch)
        if self._waiters and self._waiters[-1][0] > self._durable_changes:
            # The next sync starts before the callbacks of this one run.
            self.start_batch()
        self._run_waiters()

    def _finish(self, batch: Batch) -> None:
        self._in_flight = None
        self.stalled = None
        self._durable_changes = batch.changes
        self.durable = batch.end

    def _fail(self, batch: Batch) -> None:
        if self.broken is not None:
            return
        if batch.may_retry:
            self.stalled = f"the disk is full: {batch.error}"
            if not self._retry_is_due:
                self._retry_is_due = True
                self._runner.call_later(JOURNAL_RETRY_MS, self._retry)
            return
        self.broken = JournalBroken(f"the journal's disk failed: {batch.error}")
        self.broken.__cause__ = batch.error
        if self._on_broken is None:
            raise self.broken
        self._on_broken(self.broken)

    def _retry(self) -> None:
        self._retry_is_due = False
        if self._in_flight is not None and self.broken is None and not self._closed:
            self._submit(self._in_flight)

    def _run_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._durable_changes:
            _, callback = self._waiters.popleft()
            try:
                callback()
            except BaseException:
                # The other callbacks are not affected: they run in the loop's next round.
                self._runner.post(self._run_waiters)
                raise
