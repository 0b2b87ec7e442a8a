"""The writer threads. All appends that arrive during a round share the thread's next round.

A round takes the units with pending appends, writes each unit's share, fsyncs each, checks each for
a fence, and only then passes all outcomes to the event loop in one call. Appends that arrive during
a round wait for the next one. Nothing is polled, and without pending appends there is no fsync.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.ports.ledger import Fenced, StorageFailed
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.tasks.threads import start_thread


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one unit's share of a round."""

    queue: Queue
    batch: Batch
    error: Exception | None
    is_released: bool
    looked_at_ns: int
    """Unix time just before the check for a fence; 0 if there was no check."""


class Queue:
    """The pending work of one unit: added by the event loop, taken by its thread."""

    __slots__ = (
        "_entries",
        "_facts",
        "_facts_stored",
        "_is_releasing",
        "_is_waiting",
        "_writer",
        "failure",
        "files",
        "on_outcome",
    )

    def __init__(
        self, writer: Writer, files: UnitFiles, on_outcome: Callable[[Outcome], None]
    ) -> None:
        self._writer = writer
        self._entries: list[PendingEntry] = []
        self._facts: dict[str, bytes | None] = {}
        self._facts_stored: list[asyncio.Future[None]] = []
        self._is_waiting = False
        self._is_releasing = False
        self.files = files
        self.on_outcome = on_outcome
        self.failure: Exception | None = None
        """The reason why writing has ended. Set by the thread, once."""

    def append(self, pending: PendingEntry) -> None:
        """Queue an entry behind all others."""
        with self._writer.lock:
            self._entries.append(pending)
            self._wait()

    def put(self, key: str, value: bytes | None, stored: asyncio.Future[None]) -> None:
        """Queue a fact; it replaces one with the same key that no round has taken yet."""
        with self._writer.lock:
            self._facts.pop(key, None)
            self._facts[key] = value
            self._facts_stored.append(stored)
            self._wait()

    def look(self) -> None:
        """Request a check for a fence, even if nothing is pending."""
        with self._writer.lock:
            self._wait()

    def release(self) -> None:
        """Close the files after all pending work; nothing may be queued afterwards."""
        with self._writer.lock:
            self._is_releasing = True
            self._wait()

    def take(self) -> tuple[Batch, bool, bool]:
        """Return a round's share, whether more is left, and whether to release the files.

        The writer's lock is held.
        """
        size = count = 0
        for pending in self._entries:
            size += len(pending.entry.payload)
            count += 1
            if size >= pulsar_limits.LEDGER_ROUND_BYTES_MAX:
                break
        batch = Batch(self._entries[:count], self._facts, self._facts_stored)
        self._entries = self._entries[count:]
        self._facts, self._facts_stored = {}, []
        self._is_waiting = bool(self._entries)
        return batch, self._is_waiting, self._is_releasing and not self._is_waiting

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._writer.enqueue(self)


class Writer:
    """One thread and the units that it writes for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, open_files_max: int) -> None:
        self._loop = loop
        self._open_files_max = open_files_max
        self._with_files: OrderedDict[Queue, None] = OrderedDict()
        self._waiting: deque[Queue] = deque()
        self._is_stopping = False
        self._is_idle = False
        self.lock = threading.Lock()
        self._condition = threading.Condition(self.lock)
        self.units = 0
        """Number of open units; the store updates it, on the loop."""
        self._start(name)

    def enqueue(self, queue: Queue) -> None:
        """Add a unit to the next round. The caller holds the lock."""
        self._waiting.append(queue)
        if self._is_idle:
            self._is_idle = False
            self._condition.notify()

    def _start(self, name: str) -> None:
        self._thread = start_thread(name, self._run)

    def stop(self) -> None:
        """End the thread after all pending work, and wait for it."""
        with self.lock:
            self._is_stopping = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.lock:
                while not self._waiting and not self._is_stopping:
                    self._is_idle = True
                    self._condition.wait()
                self._is_idle = False
                if not self._waiting:
                    return
            for _step in self.write_round():
                pass

    def write_round(self) -> Iterator[None]:
        """Write one round of pending work, and report the outcomes on the loop.

        Yields after each step, when all units have finished it. The
        caller MUST exhaust it before it begins another round.
        """
        with self.lock:
            shares = self._take()
        for step in (_Share.write, _Share.sync, _Share.look):
            for share in shares:
                if share.queue.failure is None:
                    share.queue.failure = _error_of(step, share)
            yield
        outcomes = [share.outcome() for share in shares]
        # A handle that cannot be closed must not stop the thread for other units.
        with suppress(OSError):
            self._close_some_files(outcomes)
        # If the loop was closed meanwhile, no task awaits the outcomes.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_tell, outcomes)

    def _take(self) -> list[_Share]:
        shares = []
        for _ in range(min(len(self._waiting), pulsar_limits.LEDGER_ROUND_TOPICS_MAX)):
            queue = self._waiting.popleft()
            batch, is_more, is_released = queue.take()
            if is_more:
                self._waiting.append(queue)
            shares.append(_Share(queue, batch, is_released))
        return shares

    def _close_some_files(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the files of the most recently used units open, and release others."""
        for outcome in outcomes:
            self._with_files.pop(outcome.queue, None)
            if outcome.is_released and outcome.error is None:
                outcome.queue.files.finish()
            elif outcome.is_released:
                outcome.queue.files.close()
            elif outcome.queue.files.open_files:
                self._with_files[outcome.queue] = None
        in_use = sum(queue.files.open_files for queue in self._with_files)
        while in_use > self._open_files_max and self._with_files:
            oldest, _ = self._with_files.popitem(last=False)
            in_use -= oldest.files.open_files
            oldest.files.close()


class _Share:
    """One unit's part of a round, and its failure, if any."""

    __slots__ = ("batch", "is_released", "looked_at_ns", "queue")

    def __init__(self, queue: Queue, batch: Batch, is_released: bool) -> None:
        self.queue = queue
        self.batch = batch
        self.is_released = is_released
        self.looked_at_ns = 0

    def write(self) -> None:
        self.queue.files.write(self.batch)

    def sync(self) -> None:
        self.queue.files.sync()

    def look(self) -> None:
        self.looked_at_ns = time.time_ns()
        if self.queue.files.is_fenced():
            raise Fenced("a later epoch owns the topic")
        self.queue.files.settle()

    def outcome(self) -> Outcome:
        return Outcome(
            self.queue, self.batch, self.queue.failure, self.is_released, self.looked_at_ns
        )


def _error_of(step: Callable[[_Share], None], share: _Share) -> Exception | None:
    try:
        step(share)
    except Fenced as error:
        return error
    except Exception as error:
        # The top of the thread's work: any failure ends this unit and no other. A missing file
        # means a later owner, which removed it.
        if _is_fenced(share):
            return Fenced("a later epoch owns the topic")
        failure = StorageFailed(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure
    return None


def _is_fenced(share: _Share) -> bool:
    try:
        return share.queue.files.is_fenced()
    except OSError:
        return False


def _tell(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        outcome.queue.on_outcome(outcome)
