"""Reads the sealed epochs of a unit, and the open one behind them, for an owner or a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from brokers.adapters.ledger.format.files import ENTRIES, STATE, Listing, UnitDirectory
from brokers.adapters.ledger.format.measuring import MeasuredEpoch, first_kept, read_facts
from brokers.adapters.ledger.format.segments import SegmentTable
from brokers.adapters.ledger.ownership.seals import Seal, read_seal
from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import LedgerDamaged


@dataclass(frozen=True, slots=True)
class Past:
    """Entries by their segments, facts, and the highest sequence ids."""

    table: SegmentTable
    facts: dict[str, bytes]
    producers: dict[str, int]


@dataclass(frozen=True, slots=True)
class SealedEpoch:
    """An epoch that the caller has just sealed: its seal and its facts."""

    seal: Seal
    facts: dict[str, bytes]


def read_past(
    directory: UnitDirectory,
    listing: Listing,
    open_epoch: int,
    measured: MeasuredEpoch,
    sealed: Mapping[int, SealedEpoch] = MappingProxyType({}),
) -> Past:
    """Read the sealed epochs of a listing, and append the measured ``open_epoch``.

    Epochs in ``sealed`` are not read again.

    Raises:
        LedgerDamaged: A file that a seal names is damaged or missing.
    """
    seals = [
        sealed[epoch].seal if epoch in sealed else read_seal(directory, epoch)
        for epoch in listing.sealed
        if epoch < open_epoch
    ]
    facts = measured.facts if measured.state is not None else _facts(directory, seals, sealed)
    lowest = first_kept(facts)
    table = SegmentTable()
    for seal in seals:
        for end in seal.segments:
            if ledger_id_of(seal.epoch, end.segment) >= lowest:
                table.add(seal.epoch, end)
    for epoch, number in sorted(table.files()):
        if number not in listing.segments[epoch]:
            path = directory.numbered(epoch, number, ENTRIES)
            raise LedgerDamaged(f"{path}: sealed, but missing")
    for end in measured.segments:
        table.add(open_epoch, end)
    producers = measured.producers
    if producers is None:
        producers = seals[-1].producers if seals else {}
    return Past(table, facts, producers)


def _facts(
    directory: UnitDirectory, seals: list[Seal], sealed: Mapping[int, SealedEpoch]
) -> dict[str, bytes]:
    for seal in reversed(seals):
        if seal.state is None:
            continue
        if seal.epoch in sealed:
            return sealed[seal.epoch].facts
        number, length = seal.state
        path = directory.numbered(seal.epoch, number, STATE)
        try:
            return read_facts(directory.storage, path, length).facts
        except FileNotFoundError as error:
            raise LedgerDamaged(f"{path}: sealed, but missing") from error
    return {}
