"""The storage of topics: their messages, cursors and schemas.

The central rule (see docs/flows/pulsar.md, "Who may acknowledge"): a future of ``append`` or
``put_state`` is fulfilled only after its bytes were fsynced and *then* no fence of a later epoch
was found. After such an answer, every later owner finds the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from brokers.domain.position import Position


class Fenced(Exception):
    """A later epoch owns the topic: this owner acknowledges nothing more.

    ``used_epoch`` is the highest epoch in which anything was stored, or 0 if it was not determined.
    An owner by the shard's assignment that finds it at or above its own epoch needs a higher epoch.
    """

    def __init__(self, message: str = "", *, used_epoch: int = 0) -> None:
        super().__init__(message)
        self.used_epoch = used_epoch


class LedgerDamaged(Exception):
    """Sealed bytes do not match their checksum."""


class StorageFailed(Exception):
    """The disk refused (full, I/O error), or the ledger is closed.

    Entries that were not acknowledged may exist when the ledger is opened again, as after a crash;
    the sequence ids in ``producers`` then include them.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored SEND, batch or chunk, unchanged: a ledger never unpacks or rewrites it."""

    position: Position
    payload: bytes
    """The part of the SEND frame behind the command: checksum, metadata, body."""
    message_count: int
    """1, or the number of messages of a batch."""
    publish_time_ms: int
    """The broker's clock at the append; never lower than that of the entry before."""
    producer_name: str
    sequence_id: int
    """The highest sequence id in the entry."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """The argument of ``append``; fields as in ``Entry``."""

    payload: bytes
    message_count: int
    producer_name: str
    sequence_id: int


class Extent(NamedTuple):
    """One kept ledger of a topic, which is a segment."""

    ledger_id: int
    entries: int
    size_bytes: int
    """Of an owner's last ledger: up to the end of the last acknowledged entry."""
    first_time_ms: int
    """Publish times of its first and last entries."""
    last_time_ms: int


class LedgerReader(Protocol):
    """Reads one topic unit, as its owner or not. Sees acknowledged entries only.

    For a non-owner these are the entries that seals cover, and the entries of the present owner's
    segment that were durable at the last refresh.
    """

    @property
    def first(self) -> Position:
        """The lowest kept position; one behind ``last`` if the topic is empty."""
        ...

    @property
    def last(self) -> Position:
        """The last acknowledged entry's position, ``BEFORE_ALL`` if there never was one."""
        ...

    @property
    def entry_count(self) -> int:
        """Number of entries that the ledger keeps."""
        ...

    @property
    def byte_count(self) -> int:
        """Bytes of the kept segments."""
        ...

    @property
    def extents(self) -> Sequence[Extent]:
        """The kept ledgers, ascending."""
        ...

    def extents_from(self, ledger_id: int) -> Sequence[Extent]:
        """Return the kept ledgers from this id on, ascending."""
        ...

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        """Return acknowledged entries strictly behind ``after``, in order; at least one if any.

        ``after`` may be any position, also one that was never written or is trimmed.

        Raises:
            LedgerDamaged: A checksum does not match. Nothing is skipped.
            Fenced: The unit was removed.
            StorageFailed: The disk refused.
        """
        ...

    def read_recent(
        self, after: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry] | None:
        """Return the same as ``read`` if it is in memory, else None. Never waits."""
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
        """Whether a fence was found. Once true, it stays true."""
        ...

    @property
    def last_time_ms(self) -> int:
        """Publish time of the last entry, whether it is kept or not; 0 if nothing was published."""
        ...

    @property
    def producers(self) -> Mapping[str, int]:
        """Producer name → highest sequence id that was acknowledged, over restarts and owners.

        At most ``PRODUCERS_REMEMBERED_MAX`` producers; those that were silent longest are dropped.
        """
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes of appends whose futures are not done yet."""
        ...

    @property
    def is_congested(self) -> bool:
        """Whether storage is behind. Callers should then pause their appends.

        Check again after any future of this ledger: the last pending one ends every congestion.
        """
        ...

    def append(self, entry: NewEntry) -> asyncio.Future[Position]:
        """Store one entry behind all others. Futures are fulfilled in the order of the calls.

        If a future fails with ``Fenced`` or ``StorageFailed``, all later ones fail too until the
        ledger is opened again, so that order is kept. Futures also fail if pending bytes exceed
        ``LEDGER_PENDING_BYTES_MAX``: a caller ignored ``is_congested``, or the disk is stuck.

        Raises:
            ValueError: The payload is larger than ``LEDGER_ENTRY_BYTES_MAX``, or a number
                does not fit: sequence ids are -1 to 2**63 - 1, message counts below 2**32.
        """
        ...

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        """Store a small fact, or remove it (None); ``state`` shows it at once.

        Futures are fulfilled in order and fail by the same rules as those of ``append``. Of several
        calls for one key before a write begins, only the last is written.

        Raises:
            ValueError: The key or the value is too long, or the key begins with a zero byte.
        """
        ...

    def on_appended(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after entries were acknowledged; return a function that stops it."""
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
        """Check soon whether a later epoch was opened, even if nothing is stored."""
        ...

    async def trim(self, up_to: Position) -> None:
        """Drop segments whose entries are all at or below ``up_to``, but never the last one."""
        ...

    async def close(self, *, is_over: bool = False) -> None:
        """Finish pending appends and close the files.

        ``is_over``: the epoch has ended, and is sealed unless storage failed before. A successor
        then takes over faster, and the epoch itself cannot be opened again (``Fenced``).
        """
        ...


class LedgerStore(Protocol):
    """All topics' ledgers, in one directory that brokers share."""

    async def open(self, topic_id: str, unit: str, epoch: int, *, topic_name: str) -> TopicLedger:
        """Become the owner in ``epoch``: claim, fence the epochs below, seal them, take over.

        Opening an epoch that this process has open already returns the same ledger.

        Raises:
            Fenced: A later epoch has claimed the unit, or another process has this epoch. It has
                the ``used_epoch``.
            LedgerDamaged: A sealed file of an earlier owner is damaged.
            StorageFailed: The disk refused.
        """
        ...

    async def prepare(self, topic_id: str, unit: str) -> None:
        """Read ahead the files that a soon following ``open`` needs. Writes nothing."""
        ...

    async def remove(self, topic_id: str, unit: str, epoch: int) -> None:
        """Remove what epochs up to the end of the generation of ``epoch`` stored in a unit.

        The unit's topic is deleted. An owner that has it open acknowledges nothing more, and finds
        itself fenced; no epoch of these generations opens it again. A unit that is claimed in a
        later generation stays whole: a cluster that was restored from a backup has the topic again.
        May be repeated. A crash on the way leaves files that nobody reads.

        Raises:
            StorageFailed: The disk refused; files may be left.
        """
        ...

    async def open_reader(self, topic_id: str, unit: str) -> LedgerReader | None:
        """Read without owning; None if nothing was ever stored."""
        ...

    async def close(self) -> None:
        """Close every ledger."""
        ...
