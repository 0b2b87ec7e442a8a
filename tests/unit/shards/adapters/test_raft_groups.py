"""What becomes of the data of a replica that was removed from this node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nextgen.kernel.errors import JournalCorrupted, Overloaded, Unavailable
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.ports import NodeId
from nextgen.storage.disk import DiskStorage, Storage
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from shards.adapters.raft_groups import RaftGroups
from tests.support.simulated.disk import SimDisk

DATA = Path("/data")


class HostWithGroups:
    """A host as far as its open groups go."""

    def __init__(self, storage: Storage, *group_ids: int) -> None:
        self.storage = storage
        self.opened: list[dict[str, Any]] = []
        self.groups: list[Any] = [
            SimpleNamespace(engine=SimpleNamespace(group_id=group_id)) for group_id in group_ids
        ]

    async def open_group(
        self, _group_id: int, _members: object, _open_view: object, **named: Any
    ) -> None:
        self.opened.append(named)
        raise OSError(28, "no space left on device")


def groups_in(directory: Path, *open_ids: int, storage: Storage | None = None) -> RaftGroups:
    host = HostWithGroups(storage or DiskStorage(), *open_ids)
    return RaftGroups(cast(PySyncObjHost, host), directory)


def put(directory: Path, name: str, text: str) -> None:
    (directory / name / "journal").mkdir(parents=True)
    (directory / name / "journal" / "content").write_text(text)


async def test_the_data_is_renamed_and_the_note_of_the_membership_stays(tmp_path: Path) -> None:
    put(tmp_path, "group-1", "one")
    (tmp_path / "group-1.member").touch()
    put(tmp_path, "group-2", "two")

    moved = await groups_in(tmp_path).put_aside({1, 3})

    assert list(moved) == [1]
    assert (tmp_path / "group-1.removed" / "journal" / "content").read_text() == "one"
    assert sorted(child.name for child in tmp_path.iterdir()) == [
        "group-1.member",
        "group-1.removed",
        "group-2",
    ]


async def test_one_removed_replica_of_a_shard_is_kept_and_no_more(tmp_path: Path) -> None:
    put(tmp_path, "group-1.removed", "earlier")
    put(tmp_path, "group-1", "later")

    await groups_in(tmp_path).put_aside({1})

    assert [child.name for child in tmp_path.iterdir()] == ["group-1.removed"]
    assert (tmp_path / "group-1.removed" / "journal" / "content").read_text() == "later"


async def test_what_is_open_is_not_touched(tmp_path: Path) -> None:
    put(tmp_path, "group-1", "one")

    assert list(await groups_in(tmp_path, 1).put_aside({1})) == []
    assert (tmp_path / "group-1").is_dir()


async def test_data_that_cannot_be_moved_stays_and_ends_nothing(tmp_path: Path) -> None:
    class Refusing(DiskStorage):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(28, "no space left on device")

    put(tmp_path, "group-1", "one")

    assert list(await groups_in(tmp_path, storage=Refusing()).put_aside({1})) == []
    assert (tmp_path / "group-1").is_dir()


async def test_what_is_known_of_the_cluster_survives_a_power_cut_once_stored() -> None:
    disk = SimDisk()
    disk.make_directory(DATA)
    disk.sync_directory(DATA.parent, label="given")
    first, second = (ClusterUpdate(heartbeat_sequence=sequence) for sequence in (1, 2))
    await groups_in(DATA, storage=disk).store(first)
    await groups_in(DATA, storage=disk).store(second)

    disk.crash()

    assert groups_in(DATA, storage=disk).stored() == second


async def test_what_is_stored_already_needs_no_space() -> None:
    disk = SimDisk()
    disk.make_directory(DATA)
    known = ClusterUpdate(full=True)
    await groups_in(DATA, storage=disk).store(known)
    disk.fill_up()

    await groups_in(DATA, storage=disk).store(known)

    assert groups_in(DATA, storage=disk).stored() == known


async def test_a_full_disk_keeps_what_was_stored_and_says_so() -> None:
    disk = SimDisk()
    disk.make_directory(DATA)
    await groups_in(DATA, storage=disk).store(ClusterUpdate(full=True))
    disk.fill_up()

    with pytest.raises(Unavailable, match="takes no files"):
        await groups_in(DATA, storage=disk).store(ClusterUpdate(heartbeat_sequence=1))

    assert groups_in(DATA, storage=disk).stored() == ClusterUpdate(full=True)


async def test_what_was_put_aside_is_not_back_after_a_power_cut() -> None:
    disk = SimDisk()
    for directory in (DATA, DATA / "group-1"):
        disk.make_directory(directory)
        disk.sync_directory(directory.parent, label="given")

    await groups_in(DATA, storage=disk).put_aside({1})
    disk.crash()

    assert disk.is_directory(DATA / "group-1.removed")
    assert not disk.is_directory(DATA / "group-1")


def test_a_node_that_stored_nothing_knows_nothing_of_the_cluster() -> None:
    disk = SimDisk()
    disk.make_directory(DATA)

    assert groups_in(DATA, storage=disk).stored() is None


async def test_what_was_stored_and_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "cluster.binpb").write_bytes(b"\xff\xff")

    with pytest.raises(JournalCorrupted, match=r"cluster\.binpb is damaged"):
        groups_in(tmp_path).stored()


class SlowVerification:
    """A verification that ends when it is let go of."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def run(self, at_position: int) -> int:
        await self.goes_on.wait()
        return at_position


async def test_one_replica_is_verified_at_a_time_and_none_that_is_not_here(tmp_path: Path) -> None:
    groups, slow = groups_in(tmp_path), SlowVerification()
    groups._verifications[1] = cast(Any, slow)
    first = asyncio.create_task(groups.verify(1, 7))
    await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        async with timeout(1):
            await groups.verify(1, 8)
    with pytest.raises(Unavailable, match="shard 2 has no replica here"):
        await groups.verify(2, 7)
    slow.goes_on.set()

    assert cast(Any, await first) == 7


@pytest.mark.parametrize("may_be_lost", [True, False])
async def test_what_a_failed_start_left_does_not_make_a_replica_of_the_past(
    tmp_path: Path, may_be_lost: bool
) -> None:
    """The directory says nothing: the journal in it does, and the host reads that."""
    (tmp_path / "group-1").mkdir()
    host = HostWithGroups(DiskStorage())
    groups = RaftGroups(cast(PySyncObjHost, host), tmp_path)

    with pytest.raises(OSError, match="no space"):
        await groups.open(1, [NodeId("node-1")], is_joining=False, may_be_lost=may_be_lost)

    assert host.opened == [{"joining": False, "rejoining": may_be_lost}]
