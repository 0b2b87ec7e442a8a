"""How much space a growing file reserves ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.adapters.ledger.writing.append_file import AppendFile
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.storage.disk import Handle
from tests.support.simulated.disk import SimDisk


class ReservingDisk(SimDisk):
    """Remembers how much each reservation was, beyond the byte that is being written."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved: list[int] = []

    def preallocate(self, _handle: Handle, size: int, *, begin: int = 0) -> None:
        self.reserved.append(size - begin - 1)


@pytest.mark.parametrize("size_max", [40, 41])
def test_a_file_reserves_twice_as_much_each_time_up_to_ledger_reserve_bytes_max(
    monkeypatch: pytest.MonkeyPatch, size_max: int
) -> None:
    monkeypatch.setattr(pulsar_limits, "LEDGER_RESERVE_BYTES_MIN", 10)
    monkeypatch.setattr(pulsar_limits, "LEDGER_RESERVE_BYTES_MAX", size_max)
    disk = ReservingDisk()
    disk.make_directory(Path("/ledgers"))
    handle = disk.open(Path("/ledgers/1"), create=True)
    file = AppendFile(disk, "/ledgers/1", end=0, salt=0, label="test", handle=handle)

    for _ in range(150):
        file.append(b"x")

    assert disk.reserved[:5] == [10, 11, 23, size_max, size_max]
