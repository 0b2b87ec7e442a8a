"""Reads a unit that another process may own. It writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from brokers.adapters.ledger.format.files import UnitDirectory
from brokers.adapters.ledger.format.measuring import MeasuredEpoch, measure_epoch, sync_files
from brokers.adapters.ledger.format.segments import SegmentTable
from brokers.adapters.ledger.ownership.past import Past, read_past
from brokers.adapters.ledger.reading.table_reader import Readers, TableReader
from brokers.domain.position import Position
from brokers.ports.ledger import Entry, LedgerDamaged, StorageFailed

_LOOKS_MAX = 10
_NOTHING = MeasuredEpoch((), None, None)


class ForeignReader(TableReader):
    """Reads sealed epochs, and the durable entries of the open epoch at the last refresh.

    A refresh follows the owner's own rule: measure, fsync, and only then check for a fence. If
    there is none, any later seal of the epoch includes everything that was measured. So entries
    that were returned cannot disappear, even if their owner has not acknowledged them yet.
    """

    def __init__(self, directory: UnitDirectory, readers: Readers) -> None:
        super().__init__(directory, readers, SegmentTable())
        self._facts: dict[str, bytes] = {}
        self._confirmed: tuple[int, MeasuredEpoch] = (-1, _NOTHING)

    @property
    def state(self) -> Mapping[str, bytes]:
        return self._facts

    async def look(self) -> bool:
        """Measure the files again; return False if nothing was ever stored.

        Raises:
            LedgerDamaged: A sealed file is damaged.
            StorageFailed: The disk refused.
        """
        loop = asyncio.get_running_loop()
        try:
            past = await loop.run_in_executor(self._readers.threads, self._look)
        except OSError as error:
            raise StorageFailed(f"{self._directory.path}: {error}") from error
        if past is None:
            return False
        self._table = past.table
        self._facts = {key: value for key, value in past.facts.items() if key[:1] != "\0"}
        return True

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        if after >= self.last:
            await self.look()
        try:
            return await super().read(after, entries_max=entries_max, bytes_max=bytes_max)
        except LedgerDamaged:
            # The owner may have trimmed the segment.
            first = self.first
            await self.look()
            if self.first == first:
                raise
            return await super().read(after, entries_max=entries_max, bytes_max=bytes_max)

    def _look(self) -> Past | None:
        for attempt in range(1, _LOOKS_MAX + 1):
            try:
                return self._look_once()
            except (LedgerDamaged, FileNotFoundError):
                # A successor may have sealed the epoch, or an owner removed a file, meanwhile.
                if attempt == _LOOKS_MAX or not self._directory.exists():
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _look_once(self) -> Past | None:
        directory = self._directory
        if not directory.exists():
            return None
        listing = directory.listing()
        if not listing.claims:
            return None
        unsealed = listing.unsealed
        if not unsealed:
            return read_past(directory, listing, max(listing.claims) + 1, _NOTHING)
        epoch = unsealed[0]
        claim = directory.claim_identity(epoch)
        measured = measure_epoch(directory, epoch)
        sync_files(directory.storage, measured.open_files(directory, epoch), label="ledger.read")
        if claim is not None and not directory.is_fenced(epoch, claim):
            self._confirmed = epoch, measured
        elif self._confirmed[0] != epoch:
            # A takeover is running: the end of the epoch is not decided yet.
            self._confirmed = epoch, _NOTHING
        return read_past(directory, listing, epoch, self._confirmed[1])
