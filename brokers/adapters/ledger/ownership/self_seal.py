"""Self-seal: an owner ends its own epoch and gives the unit up for good (ADR 0038).

A successor that finds the seal need not measure and seal the epoch. A successor may also fence and
seal at the same time: the first link(2) wins, and both seals are equal, because the owner has
written its last round before.

After a self-seal the epoch cannot be opened again, not even by the process that claimed it: entries
appended then would be behind the seal and would not exist (``Takeover``).
"""

from __future__ import annotations

from brokers.adapters.ledger.format.files import (
    OnStep,
    Owner,
    UnitDirectory,
    create_whole,
)
from brokers.adapters.ledger.format.measuring import measure_epoch
from brokers.adapters.ledger.ownership.seals import Seal, encode_seal
from brokers.ports.ledger import LedgerDamaged
from nextgen.storage.disk import FileIdentity


def seal_own(
    directory: UnitDirectory, epoch: int, claim: FileIdentity, owner: Owner, on_step: OnStep
) -> None:
    """Seal ``epoch``. Call it AFTER the last round, and only if all rounds succeeded.

    A fenced owner does nothing: its successor seals the epoch. Blocks.

    Raises:
        LedgerDamaged: Bytes that were durable once are not valid.
        OSError: The disk refused. The epoch is in the same state as after a crash.
    """
    try:
        if not directory.is_fenced(epoch, claim):
            _seal(directory, epoch, owner, on_step)
    except (LedgerDamaged, FileNotFoundError):
        # A concurrent successor has sealed the epoch, and removes files that it does not need.
        if not directory.is_fenced(epoch, claim):
            raise


def _seal(directory: UnitDirectory, epoch: int, owner: Owner, on_step: OnStep) -> None:
    measured = measure_epoch(directory, epoch)
    on_step("own epoch measured")
    if measured.producers is None:
        return
    # No fsync is needed: each round fsynced its own bytes, and none failed.
    seal = Seal(epoch, epoch, measured.segments, measured.state, measured.producers)
    temporary = directory.temporary(epoch, f"{owner.token}-seal-{epoch}")
    storage = directory.storage
    create_whole(storage, temporary, encode_seal(seal), label="ledger.own_seal")
    on_step("own seal written")
    try:
        storage.link(temporary, directory.seal(epoch))
    except FileExistsError:
        # A successor was faster. Its seal is equal.
        return
    finally:
        storage.unlink(temporary)
    # The successor's snapshot makes the seal's name durable. If the name is lost before, a
    # successor measures the same content.
    on_step("own epoch sealed")
