"""Ending an epoch by its own owner, which lets go of the unit for good (ADR 0038).

A successor finds the seal and has neither to measure nor to seal; the fence that it makes keeps
nobody back any more. It may come in the middle of this: whoever links first wins, and both measure
the same, since the owner has written its last round before.

After it nobody opens the epoch again, not the process that has claimed it either: what that would
append is behind the seal and would not exist (``Takeover``).
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
    """Seal ``epoch``. Only AFTER its last round, and only if all of them succeeded.

    An owner that is fenced leaves it to its successor. Blocks.

    Raises:
        LedgerDamaged: Bytes that were durable once are not valid.
        OSError: The disk refused. The epoch is as a crash would have left it.
    """
    try:
        if not directory.is_fenced(epoch, claim):
            _seal(directory, epoch, owner, on_step)
    except (LedgerDamaged, FileNotFoundError):
        # A successor that came in between has sealed it, and removes what it does not need.
        if not directory.is_fenced(epoch, claim):
            raise


def _seal(directory: UnitDirectory, epoch: int, owner: Owner, on_step: OnStep) -> None:
    measured = measure_epoch(directory, epoch)
    on_step("own epoch measured")
    if measured.producers is None:
        return
    # Nothing is fsynced here: each round did that with what it wrote, and none has failed.
    seal = Seal(epoch, epoch, measured.segments, measured.state, measured.producers)
    temporary = directory.temporary(epoch, f"{owner.token}-seal-{epoch}")
    storage = directory.storage
    create_whole(storage, temporary, encode_seal(seal), label="ledger.own_seal")
    on_step("own seal written")
    try:
        storage.link(temporary, directory.seal(epoch))
    except FileExistsError:
        # A successor was faster, and its account is as good.
        return
    finally:
        storage.unlink(temporary)
    # Its name is durable with the successor's snapshot; without it a successor measures the same.
    on_step("own epoch sealed")
