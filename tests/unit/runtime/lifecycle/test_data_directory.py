import json
import os
from pathlib import Path

import pytest

from nextgen.kernel.errors import RefusesToStart, WrongCluster
from nextgen.runtime.lifecycle.data_directory import DataDirectory, Identity


def opened(
    path: Path, cluster_id: str = "c-1", node_id: str = "shard-node-1", component: str = "shards"
) -> DataDirectory:
    return DataDirectory.open(path, cluster_id=cluster_id, node_id=node_id, component=component)


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


def test_the_first_use_makes_the_directory_and_its_identity(tmp_path: Path) -> None:
    with opened(tmp_path / "a" / "b") as directory:
        assert directory.path == tmp_path / "a" / "b"
        assert directory.identity == Identity("c-1", "shard-node-1", "shards")

    assert json.loads((tmp_path / "a" / "b" / "identity.json").read_text()) == {
        "cluster_id": "c-1",
        "node_id": "shard-node-1",
        "component": "shards",
    }


def test_the_same_process_opens_its_directory_again(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "journal").write_bytes(b"data")

    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "component"),
    [
        ("c-2", "shard-node-1", "shards"),
        ("c-1", "shard-node-2", "shards"),
        ("c-1", "shard-node-1", "discovery"),
    ],
)
def test_another_nodes_directory_is_refused_and_not_touched(
    tmp_path: Path, cluster_id: str, node_id: str, component: str
) -> None:
    opened(tmp_path).close()
    before = contents(tmp_path)

    with pytest.raises(WrongCluster) as refusal:
        opened(tmp_path, cluster_id, node_id, component)

    assert contents(tmp_path) == before
    assert "belongs to shards 'shard-node-1' of cluster 'c-1'" in str(refusal.value)
    assert f"{component} {node_id!r} of cluster {cluster_id!r}" in str(refusal.value)
    assert "give this process its own directory" in str(refusal.value)


def test_a_directory_in_use_is_refused_and_names_its_user(tmp_path: Path) -> None:
    with opened(tmp_path):
        before = contents(tmp_path)

        with pytest.raises(RefusesToStart, match=f"in use by process {os.getpid()}"):
            opened(tmp_path)
        assert contents(tmp_path) == before


def test_a_closed_directory_can_be_used_by_another(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    first.close()

    with opened(tmp_path) as second:
        assert repr(second) == f"<DataDirectory {tmp_path} of shard-node-1 open>"
    assert repr(first) == f"<DataDirectory {tmp_path} of shard-node-1 closed>"


def test_data_without_an_identity_is_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"data")

    with pytest.raises(RefusesToStart, match=r"holds journal but no identity\.json"):
        opened(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["journal"]


@pytest.mark.parametrize("name", ["lost+found", "logs", "shards.log", ".hidden", "lock"])
def test_what_is_not_data_does_not_keep_a_directory_from_being_new(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()

    opened(tmp_path).close()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"cluster_id": "c-1"}', "null"])
def test_a_damaged_identity_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity.json").write_text(text)

    with pytest.raises(RefusesToStart, match="is damaged"):
        opened(tmp_path)
    assert (tmp_path / "identity.json").read_text() == text


def test_a_path_that_is_a_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(RefusesToStart, match="cannot be used"):
        opened(tmp_path / "file")
    with pytest.raises(RefusesToStart, match="cannot be used"):
        opened(tmp_path / "file" / "deeper")


def test_a_crash_while_the_identity_is_written_leaves_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / ".identity.json.draft").write_text('{"cluster')

    with opened(tmp_path) as directory:
        assert directory.identity.cluster_id == "c-1"
    assert not (tmp_path / ".identity.json.draft").exists()


class RecordedDisk:
    """Stands before ``os`` and writes down what reaches the disk, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self._fsync = os.fsync
        self._replace = Path.replace
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(Path, "replace", lambda path, target: self.replace(path, target))

    def fsync(self, descriptor: int) -> None:
        self.steps.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        self._fsync(descriptor)

    def replace(self, path: Path, target: Path) -> Path:
        self.steps.append(f"rename to {target.name}")
        return self._replace(path, target)


def test_the_identity_is_durable_before_and_after_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the first fsync a power cut leaves an empty identity, without the second none,
    and without the third no directory at all."""
    disk = RecordedDisk(monkeypatch)

    opened(tmp_path / "node-1").close()

    assert disk.steps == [
        f"fsync {tmp_path.name}",
        "fsync .identity.json.draft",
        "rename to identity.json",
        "fsync node-1",
    ]


def test_opening_again_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).close()
    disk = RecordedDisk(monkeypatch)

    opened(tmp_path).close()

    assert disk.steps == []
