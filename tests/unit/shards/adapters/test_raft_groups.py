"""What becomes of the data of a replica that was removed from this node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nextgen.replication.raft_host import PySyncObjHost
from shards.adapters.raft_groups import RaftGroups


class HostWithGroups:
    """A host as far as its open groups go."""

    def __init__(self, *group_ids: int) -> None:
        self.groups: list[Any] = [
            SimpleNamespace(engine=SimpleNamespace(group_id=group_id)) for group_id in group_ids
        ]


def groups_in(directory: Path, *open_ids: int) -> RaftGroups:
    return RaftGroups(cast(PySyncObjHost, HostWithGroups(*open_ids)), directory)


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


async def test_data_that_cannot_be_moved_stays_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "group-1", "one")

    def refuse(_path: Path, _target: Path) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "replace", refuse)

    assert list(await groups_in(tmp_path).put_aside({1})) == []
    assert (tmp_path / "group-1").is_dir()
