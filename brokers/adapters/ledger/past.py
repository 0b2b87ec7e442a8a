"""What a unit's files hold, sealed epochs and one that is open: what an owner and a reader see."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.adapters.ledger.files import ENTRIES, STATE, Listing, UnitDirectory
from brokers.adapters.ledger.measuring import MeasuredEpoch, first_kept, read_facts
from brokers.adapters.ledger.seals import Seal, read_seal
from brokers.adapters.ledger.segments import SegmentTable
from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import LedgerDamaged


@dataclass(frozen=True, slots=True)
class Past:
    """Entries by their segments, facts, and the highest sequence ids."""

    table: SegmentTable
    facts: dict[str, bytes]
    producers: dict[str, int]


def read_past(
    directory: UnitDirectory, listing: Listing, open_epoch: int, measured: MeasuredEpoch
) -> Past:
    """Read the sealed epochs of a listing, and behind them ``open_epoch`` as it was measured.

    Raises:
        LedgerDamaged: Something that a seal tells of is not whole, or not there.
    """
    seals = [read_seal(directory.seal(epoch)) for epoch in listing.sealed if epoch < open_epoch]
    facts = _facts(directory, seals, open_epoch, measured)
    lowest = first_kept(facts)
    table = SegmentTable()
    for seal in seals:
        for end in seal.segments:
            if ledger_id_of(seal.epoch, end.segment) >= lowest:
                table.add(seal.epoch, end)
    for epoch, number in sorted(table.files()):
        if number not in listing.segments[epoch]:
            path = directory.numbered(epoch, number, ENTRIES)
            raise LedgerDamaged(f"{path}: sealed, but not there")
    for end in measured.segments:
        table.add(open_epoch, end)
    producers = measured.producers
    if producers is None:
        producers = seals[-1].producers if seals else {}
    return Past(table, facts, producers)


def _facts(
    directory: UnitDirectory, seals: list[Seal], open_epoch: int, measured: MeasuredEpoch
) -> dict[str, bytes]:
    found = [(seal.epoch, seal.state) for seal in seals]
    found.append((open_epoch, measured.state))
    for epoch, state in reversed(found):
        if state is None:
            continue
        path = directory.numbered(epoch, state[0], STATE)
        try:
            return read_facts(path, state[1]).facts
        except FileNotFoundError as error:
            raise LedgerDamaged(f"{path}: sealed, but not there") from error
    return {}
