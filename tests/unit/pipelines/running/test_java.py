"""Without a JVM that Spark can use, a job says which package has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import JobRefused
from pipelines.running import java
from pipelines.running.java import JAVA_VERSION_MIN, check_java


def java_that_says(folder: Path, told: str) -> Path:
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_a_new_enough_java_is_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = java_that_says(tmp_path, f'openjdk version "{version}" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == str(program)


@pytest.mark.parametrize(("version", "major"), [("16.0.2", "16"), ("11.0.2", "11"), ("1.8.0", "8")])
def test_an_older_java_is_refused_with_the_package_to_install(
    version: str, major: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, f'java version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobRefused, match=f"is {major}: .*openjdk-{JAVA_VERSION_MIN}-jre-headless"):
        check_java()


def test_no_java_at_all_is_refused_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobRefused, match=r"no java here.*openjdk-17-jre-headless"):
        check_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobRefused, match=f"JAVA_HOME is {tmp_path}"):
        check_java()


def test_a_program_that_is_no_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, "hello")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobRefused, match="does not say its version: hello"):
        check_java()


def test_a_java_that_says_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, "").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "VERSION_TIMEOUT_S", 0.1)
    with pytest.raises(JobRefused, match=r"does not say its version within 0\.1 s"):
        check_java()
