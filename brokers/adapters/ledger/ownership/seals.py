"""Seals: the final content of an epoch, as its successor measured it. All readers use the seal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from brokers.adapters.ledger.format.files import UnitDirectory, read_file
from brokers.adapters.ledger.format.records import Kind, SegmentEnd, encode, record_at
from brokers.ports.ledger import LedgerDamaged


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of one epoch. Entries that it does not cover do not exist."""

    epoch: int
    sealed_by: int
    """The epoch that made the seal."""
    segments: tuple[SegmentEnd, ...]
    """All segments of the epoch, ascending, empty ones included."""
    state: tuple[int, int] | None
    """Number and length of the file of facts; None if the epoch never served."""
    producers: dict[str, int]
    """Highest sequence ids over all epochs up to this one."""


def encode_seal(seal: Seal) -> bytes:
    """Return the file's bytes."""
    fields = {
        "epoch": seal.epoch,
        "sealed_by": seal.sealed_by,
        "segments": [end.pack() for end in seal.segments],
        "state": seal.state,
        "producers": list(seal.producers.items()),
    }
    return encode(Kind.SEAL, msgpack.packb(fields))


def read_seal(directory: UnitDirectory, epoch: int) -> Seal:
    """Return the seal of an epoch.

    Raises:
        LedgerDamaged: The seal is not whole, although it gets its name only when it is.
    """
    path = directory.seal(epoch)
    content = read_file(directory.storage, path)
    record = record_at(memoryview(content), 0, 0)
    if record is None or record.kind != Kind.SEAL:
        raise LedgerDamaged(f"{path}: no valid record at byte 0")
    fields: dict[str, Any] = msgpack.unpackb(record.body)
    state = fields["state"]
    return Seal(
        epoch=fields["epoch"],
        sealed_by=fields["sealed_by"],
        segments=tuple(SegmentEnd(*end) for end in fields["segments"]),
        state=None if state is None else (state[0], state[1]),
        producers=dict(fields["producers"]),
    )
