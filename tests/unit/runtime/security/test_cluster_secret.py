"""The file with the cluster secret: what is taken, what is refused, and how it is made."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import CLUSTER_SECRET_BYTES_MAX, CLUSTER_SECRET_BYTES_MIN
from nextgen.runtime.security.cluster_secret import load_cluster_secret, make_cluster_secret

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.secret"
    path.touch(mode=0o600)
    return path


def test_without_a_file_there_is_no_secret():
    assert load_cluster_secret(None) is None


def test_whitespace_around_a_secret_does_not_count(file: Path):
    file.write_bytes(b" \n" + SECRET + b"\r\n")

    assert load_cluster_secret(file) == SECRET


def test_cluster_secret_bytes_min_is_accepted_and_one_less_refused(file: Path):
    file.write_bytes(b"s" * CLUSTER_SECRET_BYTES_MIN + b"\n")
    assert load_cluster_secret(file) == b"s" * CLUSTER_SECRET_BYTES_MIN

    file.write_bytes(b"s" * (CLUSTER_SECRET_BYTES_MIN - 1) + b"\n")
    with pytest.raises(RefusesToStart, match=r"has 15 bytes, at least 16 are required"):
        load_cluster_secret(file)


def test_cluster_secret_bytes_max_is_accepted_and_one_more_refused(file: Path):
    file.write_bytes(b"s" * CLUSTER_SECRET_BYTES_MAX)
    assert load_cluster_secret(file) == b"s" * CLUSTER_SECRET_BYTES_MAX

    file.write_bytes(b"s" * (CLUSTER_SECRET_BYTES_MAX + 1))
    with pytest.raises(RefusesToStart, match="more than 4096 bytes"):
        load_cluster_secret(file)


def test_a_file_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(RefusesToStart, match=f"cannot be read from {path}"):
            load_cluster_secret(path)


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_that_every_user_can_read_is_taken_with_a_warning(
    file: Path, mode: int, warns: bool
):
    file.write_bytes(SECRET)
    file.chmod(mode)

    with capture_logs() as lines:
        assert load_cluster_secret(file) == SECRET

    assert [line["log_level"] for line in lines] == ["warning"] * warns
    assert SECRET.decode() not in str(lines)


def test_a_secret_that_was_made_is_random_and_readable_by_its_owner_only(tmp_path: Path):
    paths = [tmp_path / name for name in ("a", "b")]

    assert [make_cluster_secret(path) for path in paths] == [True, True]

    first, second = (load_cluster_secret(path) for path in paths)
    assert first is not None
    assert len(first) == 64
    assert first != second
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600, 0o600]
    assert sorted(tmp_path.iterdir()) == paths, "no draft is left behind"


def test_a_secret_that_is_there_is_kept(file: Path):
    file.write_bytes(SECRET)

    assert not make_cluster_secret(file)

    assert file.read_bytes() == SECRET


def test_of_two_processes_that_make_a_secret_at_once_one_wins(tmp_path: Path, monkeypatch):
    path = tmp_path / "cluster.secret"
    # The other process makes the file just after this one has looked.
    monkeypatch.setattr(Path, "exists", lambda _path: path.write_bytes(SECRET) < 0)

    assert not make_cluster_secret(path)

    assert path.read_bytes() == SECRET
    assert list(tmp_path.iterdir()) == [path]


def test_where_no_file_can_be_written_the_refusal_names_the_path(tmp_path: Path):
    path = tmp_path / "nowhere" / "cluster.secret"

    with pytest.raises(RefusesToStart, match=f"cannot be written to {path}"):
        make_cluster_secret(path)


def test_the_compose_files_command_makes_a_secret_and_then_keeps_it(tmp_path: Path):
    path = tmp_path / "cluster.secret"
    command = [sys.executable, "-m", "nextgen.runtime.security.cluster_secret", str(path)]

    said = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]

    assert [one.stdout for one in said] == [f"{path} was made\n", f"{path} is there already\n"]
    assert load_cluster_secret(path) is not None
