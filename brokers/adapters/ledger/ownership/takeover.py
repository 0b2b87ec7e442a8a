"""Takeover: becoming the owner of a unit in epoch E, and ending all lower epochs (ADR 0019).

    first      of a unit that nobody has claimed: create its directory and, under a temporary name,
               the snapshot that it is likely to begin with. Both become durable at the same time.
    claim      create ``claim-E``. If there is a higher claim, another process is the successor; if
               the unit was removed in this generation of epochs, its topic is deleted. If it was
               removed in an earlier one, the topic was restored: earlier claims go, durably.
    fence      create ``fence-e`` for every lower claimed e: its owner acknowledges nothing more.
               Claims and fences become durable before any later step relies on them: now, or with
               the snapshot if no epoch has to be sealed.
    seal       for every lower e without a seal, in order: measure its files, fsync them, and write
               the result to ``seal-e`` under a temporary name, which link(2) then renames. The
               first link wins, and all successors use the winner's seal. An owner that gave the
               unit up has sealed its epoch itself (``self_seal``).
    check      once more for a higher claim.
    snapshot   begin the own file of facts with the facts of the last epoch that served.

Measuring comes before fsync, so everything in a seal is durable. Bytes that the old owner writes
between the two may be durable too, but are behind the seal and so do not exist.

Of two successors of one epoch, the one that claims later sees the claim of the other. So at most
the higher one serves, and the lower one is among the epochs that it fences and seals.

A crash at any step leaves at worst a claim without a seal. The next owner seals that epoch, as
empty if it had no snapshot. The next owner that serves removes temporary files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from brokers.adapters.ledger.format.files import (
    STATE,
    TEMPORARY,
    Listing,
    OnStep,
    Owner,
    UnitDirectory,
    create_claim,
    create_fence,
    create_whole,
    read_file,
)
from brokers.adapters.ledger.format.measuring import measure_epoch, sync_files
from brokers.adapters.ledger.format.records import (
    SALT_BITS,
    FileHeader,
    SegmentEnd,
    encode_header,
    encode_state,
)
from brokers.adapters.ledger.ownership.past import Past, SealedEpoch, read_past
from brokers.adapters.ledger.ownership.seals import Seal, encode_seal, read_seal
from brokers.ports.ledger import Fenced, LedgerDamaged
from nextgen.kernel.events.generations import generation_of
from nextgen.storage.disk import FileIdentity

Together = Callable[[Sequence[Callable[[], None]]], None]
"""Runs steps that wait for the disk, perhaps at the same time; returns when all have ended."""


def one_by_one(steps: Sequence[Callable[[], None]]) -> None:
    """Run steps one after the other."""
    for step in steps:
        step()


@dataclass(frozen=True, slots=True)
class Unit:
    """The names of a unit, as in its files' headers."""

    topic_id: str
    unit: str
    topic_name: str


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of facts that is open for appending."""

    number: int
    salt: int
    length: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The content that a new owner begins with."""

    past: Past
    claim: FileIdentity
    state: StateFile
    next_segment: int
    previous: SegmentEnd | None
    """End of the own epoch's last segment, if the epoch was opened before."""
    kept: frozenset[tuple[int, int]]
    """Epoch and number of the existing segments."""


class Takeover:
    """One opening of one unit. Blocks; runs once, on any thread."""

    def __init__(
        self,
        directory: UnitDirectory,
        unit: Unit,
        epoch: int,
        owner: Owner,
        on_step: OnStep,
        together: Together = one_by_one,
    ) -> None:
        self._directory = directory
        self._unit = unit
        self._epoch = epoch
        self._owner = owner
        self._on_step = on_step
        self._together = together
        self._sealed: dict[int, SealedEpoch] = {}
        self._first: tuple[FileHeader, bytes] | None = None
        """Header and bytes of a first snapshot, which are durable under the temporary name."""

    def run(self) -> Holding:
        """Take over. The caller runs ``remove_superfluous`` afterwards.

        Raises:
            Fenced: A later epoch has claimed the unit, or another process has claimed this epoch.
            LedgerDamaged: A file of an earlier owner is damaged.
            OSError: The disk refused.
        """
        try:
            return self._run()
        except (LedgerDamaged, FileNotFoundError):
            # A later owner removed a file that it does not need.
            self._look()
            raise

    def _run(self) -> Holding:
        claim = self._claim()
        if self._fence().unsealed != [self._epoch]:
            self._seal_lower(self._directory.listing())
        listing = self._look()
        self._on_step("second look")
        holding = self._begin(listing, claim)
        self._on_step("snapshot written")
        if self._directory.is_fenced(self._epoch, claim):
            raise self._fenced(f"a later epoch than {self._epoch} owns")
        return holding

    def _claim(self) -> FileIdentity:
        directory, epoch = self._directory, self._epoch
        self._check_removed()
        if not directory.exists() or not self._look().claims:
            directory.make()
            self._make_durable()
        # No other process may continue the maker's epoch, whether the maker is alive or not.
        is_made = create_claim(directory.storage, directory.claim(epoch), self._owner.describe())
        if not is_made and self._owner.token.encode() not in read_file(
            directory.storage, directory.claim(epoch)
        ):
            raise self._fenced(f"another process has epoch {epoch} of")
        claim = directory.claim_identity(epoch)
        self._on_step("claim written")
        # A removal that makes its mark later finds this claim. It ends it, or spares the unit if
        # the claim is of a later generation.
        removed = self._check_removed()
        if removed is not None:
            # The topic was deleted and restored: its earlier messages are gone, or going.
            directory.drop_removed(removed)
        if claim is None:
            raise self._fenced(f"a later epoch than {epoch} owns")
        return claim

    def _make_durable(self) -> None:
        """Make the directory durable, before its first claim, and meanwhile a first snapshot."""
        header = self._header(0, {})
        content = _state_content(header, {})
        temporary = _temporary_state(self._directory, self._epoch, self._owner.token)
        write = partial(
            create_whole, self._directory.storage, temporary, content, label="ledger.snapshot"
        )
        self._together((write, *self._directory.syncs_above()))
        self._first = header, content
        self._on_step("directory durable")

    def _check_removed(self) -> int | None:
        """Return the last generation that was removed with its topic, all before this epoch's."""
        removed = self._directory.removed_generation
        if removed is not None and generation_of(self._epoch) <= removed:
            why = f"topic {self._unit.topic_name} of epoch {self._epoch} is deleted"
            raise Fenced(why, used_epoch=self._epoch)
        return removed

    def _look(self) -> Listing:
        """List the directory, and raise if this epoch is over.

        It is over if there is a higher claim, a fence of this epoch, or a seal of it, which this
        same process may have made.
        """
        listing = self._directory.listing()
        higher = max(listing.claims, default=-1)
        is_ended = self._epoch in listing.fences or self._epoch in listing.seals
        if higher > self._epoch or is_ended:
            raise Fenced(
                f"epoch {higher} owns {self._unit.topic_name}, {self._epoch} was requested",
                used_epoch=listing.used_epoch,
            )
        return listing

    def _fenced(self, why: str) -> Fenced:
        used_epoch = self._directory.listing().used_epoch
        return Fenced(f"{why} {self._unit.topic_name}", used_epoch=used_epoch)

    def _fence(self) -> Listing:
        directory = self._directory
        listing = self._look()
        for lower in sorted(listing.claims - listing.fences - {self._epoch}):
            create_fence(directory.storage, directory.fence(lower), directory.claim(self._epoch))
        if listing.unsealed != [self._epoch]:
            # This makes the claim durable too, and fences of a successor that did not get this far.
            directory.sync()
            self._on_step("fence written")
        return listing

    def _seal_lower(self, listing: Listing) -> None:
        """Seal the unsealed epochs of a listing that was made AFTER the fences."""
        for lower in listing.unsealed:
            if lower < self._epoch:
                self._seal(lower, listing)

    def _seal(self, lower: int, listing: Listing) -> None:
        directory = self._directory
        measured = measure_epoch(directory, lower, listing)
        self._on_step("measured")
        sync_files(
            directory.storage, measured.open_files(directory, lower), label="ledger.predecessor"
        )
        self._on_step("predecessor fsynced")
        producers = measured.producers
        if producers is None:
            producers = self._producers_before(lower)
        seal = Seal(lower, self._epoch, measured.segments, measured.state, producers)
        temporary = directory.temporary(self._epoch, f"{self._owner.token}-seal-{lower}")
        create_whole(directory.storage, temporary, encode_seal(seal), label="ledger.seal")
        try:
            directory.storage.link(temporary, directory.seal(lower))
            self._sealed[lower] = SealedEpoch(seal, measured.facts)
        except FileExistsError:
            # Another successor was faster. Its seal is the valid one.
            self._look()
        finally:
            directory.storage.unlink(temporary)
        # The snapshot makes the seal's name durable, before this owner serves.
        self._on_step("sealed")

    def _producers_before(self, epoch: int) -> dict[str, int]:
        lower = [sealed for sealed in self._directory.listing().sealed if sealed < epoch]
        return read_seal(self._directory, lower[-1]).producers if lower else {}

    def _begin(self, listing: Listing, claim: FileIdentity) -> Holding:
        """Read the earlier epochs, and begin the own file of facts with their facts."""
        directory, epoch = self._directory, self._epoch
        own = measure_epoch(directory, epoch, listing)
        # The own epoch has files only if this process opened it before and closed it.
        sync_files(directory.storage, own.open_files(directory, epoch), label="ledger.own")
        past = read_past(directory, listing, epoch, own, self._sealed)
        number = own.state[0] + 1 if own.state is not None else 0
        if self._first is None or number or past.facts or past.producers:
            header = self._header(number, past.producers)
            length = write_state_file(directory, header, past.facts, self._owner.token)
        else:
            header, content = self._first
            name_state_file(directory, header, self._owner.token)
            length = len(content)
        return Holding(
            past=past,
            claim=claim,
            state=StateFile(header.number, header.salt, length),
            next_segment=own.segments[-1].segment + 1 if own.segments else 0,
            previous=own.segments[-1] if own.segments else None,
            kept=frozenset(past.table.files()),
        )

    def _header(self, number: int, producers: dict[str, int]) -> FileHeader:
        return FileHeader(
            salt=secrets.randbits(SALT_BITS),
            topic_id=self._unit.topic_id,
            unit=self._unit.unit,
            epoch=self._epoch,
            number=number,
            topic_name=self._unit.topic_name,
            created_ms=self._owner.now_ms(),
            previous=None,
            producers=producers,
        )


def read_ahead(directory: UnitDirectory) -> None:
    """Read the files that a takeover will read, into the page cache. Writes nothing.

    Raises:
        LedgerDamaged, OSError: A takeover would fail in the same way.
    """
    if not directory.exists():
        return
    listing = directory.listing()
    for epoch in listing.sealed:
        read_seal(directory, epoch)
    for epoch in listing.unsealed:
        measure_epoch(directory, epoch)


def write_state_file(
    directory: UnitDirectory, header: FileHeader, facts: dict[str, bytes], token: str
) -> int:
    """Create a file of facts, complete and durable under its name; return its length."""
    content = _state_content(header, facts)
    temporary = _temporary_state(directory, header.epoch, token)
    create_whole(directory.storage, temporary, content, label="ledger.snapshot")
    name_state_file(directory, header, token)
    return len(content)


def name_state_file(directory: UnitDirectory, header: FileHeader, token: str) -> None:
    """Give a file of facts, whose bytes are durable, its name, durably."""
    temporary = _temporary_state(directory, header.epoch, token)
    directory.storage.rename(temporary, directory.numbered(header.epoch, header.number, STATE))
    directory.sync()


def _temporary_state(directory: UnitDirectory, epoch: int, token: str) -> str:
    return directory.temporary(epoch, f"{token}-state")


def _state_content(header: FileHeader, facts: dict[str, bytes]) -> bytes:
    records = b"".join(
        encode_state(key, value, salt=header.salt, since_durable=0) for key, value in facts.items()
    )
    return encode_header(replace(header, snapshot_bytes=len(records))) + records


def remove_superfluous(directory: UnitDirectory, epoch: int, holding: Holding) -> None:
    """Remove files that the takeover made superfluous. Call it at any time after, on any thread.

    The own snapshot was durable before a check found no fence, so no successor needs older files.
    Of an epoch without kept segments the claim is removed, durably, BEFORE the other files: see
    ``UnitDirectory.is_fenced``. A file of an epoch without a claim was written by an owner that
    paused until after its own end.
    """
    listing = directory.listing()
    kept = holding.kept
    ended = {lower for lower in listing.claims if lower < epoch} - {owner for owner, _ in kept}
    for lower in ended:
        directory.storage.unlink(directory.claim(lower))
    if ended:
        directory.sync("ledger.removed_claims")
    known = listing.claims - ended
    for name, owner in listing.epochs.items():
        if owner < epoch:
            superfluous = owner not in known or _is_left_over(name, owner, kept)
        else:
            superfluous = owner == epoch and _is_old_state(name, holding.state.number)
        if superfluous:
            directory.storage.unlink(f"{directory.path}/{name}")


def _is_left_over(name: str, owner: int, kept: frozenset[tuple[int, int]]) -> bool:
    """Whether a file is superfluous, of an epoch whose entries are kept."""
    if name.startswith(TEMPORARY):
        return True
    stem, _, kind = name.partition(".")
    return bool(kind) and (kind == STATE or (owner, int(stem.partition("-")[2])) not in kept)


def _is_old_state(name: str, number: int) -> bool:
    stem, _, kind = name.partition(".")
    return kind == STATE and int(stem.partition("-")[2]) < number
