"""Where topics keep their messages, cursors and schemas.

The rule everything rests on (see docs/flows/pulsar.md, "Who may acknowledge"): a future of
``append`` or ``put_state`` is fulfilled only after its bytes were fsynced and *then* no fence of a
later epoch was found. Whoever got such an answer will find the bytes whatever happens next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from brokers.domain.position import Position


class Fenced(Exception):
    """A later epoch owns the topic: this owner acknowledges nothing any more.

    ``used_epoch`` is the highest epoch in which anything was stored, where that was looked for;
    else 0. An owner that finds it at or above its own epoch and is the owner all the same needs a
    higher one.
    """

    def __init__(self, message: str = "", *, used_epoch: int = 0) -> None:
        super().__init__(message)
        self.used_epoch = used_epoch


class LedgerDamaged(Exception):
    """Bytes inside what was sealed do not have the checksum that they were written with."""


class StorageFailed(Exception):
    """The disk refused (full, I/O error), or the ledger is closed.

    What was not acknowledged may be found when the ledger is opened again, as after a crash; the
    sequence ids in ``producers`` then cover it.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored SEND, batch or chunk as it came: nothing in it is ever unpacked or rewritten."""

    position: Position
    payload: bytes
    """What followed the command in the SEND frame: checksum, metadata, body."""
    message_count: int
    """1, or the number of messages of a batch."""
    publish_time_ms: int
    """The broker's clock when the entry was appended; never lower than the entry's before."""
    producer_name: str
    sequence_id: int
    """The highest sequence id in the entry."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What ``append`` takes; fields as in ``Entry``."""

    payload: bytes
    message_count: int
    producer_name: str
    sequence_id: int


class LedgerReader(Protocol):
    """Reads one topic unit, as its owner or not. Sees acknowledged entries only.

    For a non-owner that is what a seal covers, and of the present owner's segment what was
    durable when it was last looked at.
    """

    @property
    def first(self) -> Position:
        """The lowest position still kept; one behind ``last`` when the topic is empty."""
        ...

    @property
    def last(self) -> Position:
        """The last acknowledged entry's position, ``BEFORE_ALL`` if there never was one."""
        ...

    @property
    def entry_count(self) -> int:
        """Entries kept."""
        ...

    @property
    def byte_count(self) -> int:
        """Bytes of the segments kept."""
        ...

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        """Return acknowledged entries strictly behind ``after``, in order; at least one if any.

        ``after`` may be any position, also one that was never written or is trimmed.

        Raises:
            LedgerDamaged: A checksum does not hold. Nothing is skipped.
            StorageFailed: The disk refused.
        """
        ...

    def read_recent(
        self, after: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry] | None:
        """Return what ``read`` would if it is in memory, None if it is not. Never waits."""
        ...

    async def before_time(self, publish_time_ms: int) -> Position:
        """Return the position behind which every entry was published at or after the time."""
        ...

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return how many kept entries are in (``after``, ``up_to``]."""
        ...

    @property
    def state(self) -> Mapping[str, bytes]:
        """The small facts kept beside the entries: ``cursor/<name>``, ``schema/<version>`` ..."""
        ...


class TopicLedger(LedgerReader, Protocol):
    """One topic unit, opened by its owner of one epoch. Used on one event loop."""

    @property
    def epoch(self) -> int: ...

    @property
    def is_fenced(self) -> bool:
        """Whether a fence was found. Once true it stays true."""
        ...

    @property
    def producers(self) -> Mapping[str, int]:
        """Producer name → highest sequence id that was acknowledged, over restarts and owners.

        At most ``PRODUCERS_REMEMBERED_MAX``: those that were silent longest are forgotten.
        """
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes that were given to this ledger and whose futures are still open."""
        ...

    @property
    def is_congested(self) -> bool:
        """Whether storage is behind: whoever feeds this ledger should pause until it is not.

        Look again after any of its futures: the last open one ends every congestion.
        """
        ...

    def append(self, entry: NewEntry) -> asyncio.Future[Position]:
        """Store one entry behind all others. Futures are fulfilled in the order of the calls.

        The future fails with ``Fenced`` or ``StorageFailed``; then so do all later ones until
        the ledger is opened again, so that order holds. It also fails so when what is pending
        goes beyond ``LEDGER_PENDING_BYTES_MAX``, which takes a caller that ignores
        ``is_congested`` or a disk that is stuck.

        Raises:
            ValueError: The payload is larger than ``LEDGER_ENTRY_BYTES_MAX``, or a number
                does not fit: sequence ids are -1 to 2**63 - 1, message counts below 2**32.
        """
        ...

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        """Store a small fact, or remove it (None); ``state`` shows it at once.

        Fulfilled in order, by the same rule as ``append`` and failing alike. Of calls for one
        key that are made before a write begins only the last is written.

        Raises:
            ValueError: The key or the value is too long, or the key begins with a zero byte.
        """
        ...

    def on_appended(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after new entries were acknowledged; return how to stop that."""
        ...

    def on_fenced(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once if this owner is fenced."""
        ...

    def on_failed(self, listener: Callable[[Exception], None]) -> None:
        """Call ``listener`` once if storage fails for another reason than a fence.

        From then on the ledger stores nothing until it is opened again. Pending appends fail
        before the listener is called.
        """
        ...

    def look_for_fence(self) -> None:
        """Find out soon whether a later epoch was opened, although nothing is stored."""
        ...

    async def trim(self, up_to: Position) -> None:
        """Drop whole segments all of whose entries are at or below ``up_to``; never the last."""
        ...

    async def close(self, *, is_over: bool = False) -> None:
        """Finish what was appended and let go of the files.

        ``is_over``: the epoch has ended, and is sealed unless storage failed before. A successor
        takes over sooner then; the epoch itself cannot be opened again (``Fenced``).
        """
        ...


class LedgerStore(Protocol):
    """All topics' ledgers, in one directory that brokers share."""

    async def open(self, topic_id: str, unit: str, epoch: int, *, topic_name: str) -> TopicLedger:
        """Become the owner in ``epoch``: claim, fence the epochs below, seal them, take over.

        Opening again in the epoch that this process holds already gives the same ledger.

        Raises:
            Fenced: A later epoch has claimed it, or another process has this one. Says the
                ``used_epoch``.
            LedgerDamaged: What an earlier owner sealed is not whole.
            StorageFailed: The disk refused.
        """
        ...

    async def prepare(self, topic_id: str, unit: str) -> None:
        """Read what an ``open`` that may follow soon will need. Writes nothing, tells nothing."""
        ...

    async def open_reader(self, topic_id: str, unit: str) -> LedgerReader | None:
        """Read without owning; None if nothing was ever stored."""
        ...

    async def close(self) -> None:
        """Close every ledger."""
        ...
