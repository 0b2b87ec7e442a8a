"""What has arrived of a snapshot, over crashes: trusted only as far as it was checked."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from crc32c import crc32c

from nextgen.replication.ports import AppliedPoint
from nextgen.replication.snapshot.partial import (
    RECEIVED_NAME,
    RECEIVING_NAME,
    PartialSnapshot,
    SnapshotDamaged,
    SnapshotIdentity,
)
from tests.support.simulated.disk import PowerCut, SimDisk

FOLDER = Path("/data")
CHUNK_BYTES = 100
PROGRESS_BYTES = 300
DATA = random.Random(1).randbytes(2_050)
IDENTITY = SnapshotIdentity(AppliedPoint(9, 2, 40), len(DATA), crc32c(DATA))


def given_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    disk.sync_directory(Path("/"), label="setup")
    return disk


def partial_on(disk: SimDisk) -> PartialSnapshot:
    return PartialSnapshot(disk, FOLDER, PROGRESS_BYTES)


def receive(partial: PartialSnapshot, until: int = len(DATA)) -> None:
    while partial.offset < until:
        partial.receive(DATA[partial.offset : partial.offset + CHUNK_BYTES])


def given_partial(disk: SimDisk, until: int) -> PartialSnapshot:
    partial = partial_on(disk)
    partial.begin(IDENTITY)
    receive(partial, until)
    return partial


def test_what_arrived_is_the_whole_and_is_checked() -> None:
    disk = given_disk()

    path, checksum = given_partial(disk, len(DATA)).finish()

    assert (disk.read(path), checksum) == (DATA, IDENTITY.checksum)


def test_a_power_cut_costs_no_more_than_what_was_not_noted() -> None:
    for until in range(0, 2_000, CHUNK_BYTES):
        disk = given_disk()
        given_partial(disk, until)
        disk.crash()

        partial = partial_on(disk)
        partial.begin(IDENTITY)

        assert until - PROGRESS_BYTES < partial.offset <= until
        receive(partial)
        assert disk.read(partial.finish()[0]) == DATA


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_a_power_cut_at_every_operation_leaves_nothing_wrong(seed: int | None) -> None:
    operations = 0
    while True:
        disk = given_disk()
        disk.cut_power_after(operations)
        try:
            given_partial(disk, len(DATA)).finish()
        except PowerCut:
            pass
        else:
            break
        disk.crash(seed)

        partial = partial_on(disk)
        partial.begin(IDENTITY)
        receive(partial)
        assert disk.read(partial.finish()[0]) == DATA
        operations += 1
    assert operations > 40


def test_a_clean_stop_costs_nothing() -> None:
    disk = given_disk()
    given_partial(disk, 700).suspend()
    disk.crash()

    partial = partial_on(disk)
    partial.begin(IDENTITY)

    assert partial.offset == 700


def test_the_same_offer_again_changes_nothing() -> None:
    partial = given_partial(given_disk(), 700)

    partial.begin(IDENTITY)

    assert partial.offset == 700


@pytest.mark.parametrize(
    "other",
    [
        SnapshotIdentity(AppliedPoint(10, 2, 40), len(DATA), crc32c(DATA)),
        SnapshotIdentity(IDENTITY.point, len(DATA), crc32c(DATA) ^ 1),
        SnapshotIdentity(IDENTITY.point, len(DATA) + 1, crc32c(DATA)),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_another_snapshot_begins_anew(other: SnapshotIdentity, restarts: bool) -> None:
    disk = given_disk()
    partial = given_partial(disk, 700)
    if restarts:
        partial.suspend()
        partial = partial_on(disk)

    partial.begin(other)

    assert partial.offset == 0
    assert disk.read(FOLDER / RECEIVING_NAME) == b""


def test_bytes_that_rotted_while_it_was_stopped_are_not_built_upon() -> None:
    disk = given_disk()
    given_partial(disk, 700).suspend()
    disk.damage(FOLDER / RECEIVING_NAME, 650, b"rot")

    partial = partial_on(disk)
    partial.begin(IDENTITY)

    assert partial.offset == 0


def test_a_note_that_rotted_is_not_believed_and_the_one_before_it_is() -> None:
    disk = given_disk()
    given_partial(disk, 700).suspend()
    for place in (0, 512):
        note = disk.read(FOLDER / RECEIVED_NAME)[place + 8 : place + 16]
        if int.from_bytes(note, "big") == 3:
            disk.damage(FOLDER / RECEIVED_NAME, place + 20, b"rot")

    partial = partial_on(disk)
    partial.begin(IDENTITY)

    assert partial.offset == 600


def test_a_whole_that_is_not_what_was_offered_is_dropped() -> None:
    disk = given_disk()
    partial = given_partial(disk, len(DATA))
    disk.damage(FOLDER / RECEIVING_NAME, 3, b"rot")

    with pytest.raises(SnapshotDamaged):
        partial.finish()

    assert disk.list_names(FOLDER) == []
    partial.begin(IDENTITY)
    receive(partial)
    assert disk.read(partial.finish()[0]) == DATA


def test_what_is_of_no_use_any_more_is_removed() -> None:
    disk = given_disk()
    given_partial(disk, 700).suspend()

    partial_on(disk).drop_if_behind(8)
    assert RECEIVING_NAME in disk.list_names(FOLDER)

    partial_on(disk).drop_if_behind(9)
    assert disk.list_names(FOLDER) == []


def test_bytes_without_a_note_are_removed() -> None:
    disk = given_disk()
    given_partial(disk, 200)

    partial_on(disk).drop_if_behind(0)

    assert disk.list_names(FOLDER) == []
