"""The ``export`` commands without a cluster: which export is meant, and how a command ends."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.logs.export_logs import FakeLog, events


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NEXTGEN_TARGET", "NEXTGEN_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def export_to(directory: Path, count: int) -> None:
    asyncio.run(export_log(FakeLog({1: events(1, count)}), LocalStore(directory)))


def run(*arguments: str):
    return CliRunner().invoke(app, ["export", *arguments])


def checked(*arguments: str) -> dict:
    result = run("check", *arguments, "--json")
    assert result.exit_code == ExitCode.DONE, result.output
    return json.loads(result.stdout)


def test_the_data_directorys_export_is_meant_by_default(tmp_path: Path) -> None:
    export_to(tmp_path / "data" / "export", 3)
    export_to(tmp_path / "data" / "chaos" / "1" / "export", 4)

    assert checked("--data-dir", str(tmp_path / "data"))["events"] == 3


def test_the_newest_chaos_runs_export_comes_second(tmp_path: Path) -> None:
    for name, count in (("b-older", 4), ("a-newer", 5)):
        export_to(tmp_path / "data" / "chaos" / name / "export", count)
    os.utime(tmp_path / "data" / "chaos" / "b-older" / "export", (1, 1))

    assert checked("--data-dir", str(tmp_path / "data"))["events"] == 5


def test_an_export_can_be_named(tmp_path: Path) -> None:
    export_to(tmp_path / "mine", 6)

    assert checked(str(tmp_path / "mine"))["events"] == 6
    assert checked((tmp_path / "mine").as_uri())["events"] == 6


def test_without_any_export_the_command_says_how_to_make_one(tmp_path: Path) -> None:
    result = run("check", "--data-dir", str(tmp_path / "data"))

    assert result.exit_code == ExitCode.CANNOT_RUN
    assert "nextgen export run" in result.stderr


def test_a_check_that_finds_something_ends_with_its_code_and_the_report(tmp_path: Path) -> None:
    export_to(tmp_path / "mine", 6)
    next((tmp_path / "mine").rglob("*.parquet")).unlink()

    result = run("check", str(tmp_path / "mine"), "--json")

    assert result.exit_code == ExitCode.CHECK_FAILED
    assert json.loads(result.stdout)["ok"] is False
    assert "is missing" in result.stderr


def test_status_without_a_cluster_says_what_is_exported(tmp_path: Path) -> None:
    export_to(tmp_path / "mine", 6)

    result = run("status", str(tmp_path / "mine"), "--json")

    assert result.exit_code == ExitCode.DONE
    (shard,) = json.loads(result.stdout)["shards"]
    assert (shard["exported_position"], shard["commit_position"]) == (6, None)
    assert "6" in run("status", str(tmp_path / "mine")).stdout


def test_a_run_without_a_cluster_says_so(tmp_path: Path) -> None:
    result = run("run", "--data-dir", str(tmp_path / "data"))

    assert result.exit_code == ExitCode.CANNOT_RUN
    assert "there is no local cluster" in result.stderr
    assert not (tmp_path / "data" / "export").exists()


@pytest.mark.parametrize("command", ["run", "status", "check"])
@pytest.mark.parametrize("library", ["pyarrow", "fsspec"])
def test_without_the_libraries_the_extra_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str, command: str
) -> None:
    if library == "fsspec":
        pytest.importorskip("fsspec")
        arguments = [command, "memory://somewhere/export", "--target", "127.0.0.1:1"]
    else:
        arguments = [command, str(tmp_path)]
    for name in [name for name in sys.modules if name.startswith("nextgen.export.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)

    result = run(*arguments)

    assert result.exit_code == ExitCode.CANNOT_RUN
    assert "run make setup in" in result.stderr
