"""What workers compile together is what pytest collects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.shared_imports import collected_modules

FILES = ("one/test_a.py", "one/support.py", "two/test_b.py", "two/deep/test_c.py", "test_d.py")


def collected(root: Path, arguments: list[str], ignored: list[str] | None = None) -> list[str]:
    config: Any = SimpleNamespace(
        args=arguments,
        invocation_params=SimpleNamespace(dir=root),
        getoption={"ignore": ignored}.__getitem__,
    )
    return [path.relative_to(root).as_posix() for path in collected_modules(config)]


def test_named_folders_files_and_tests_are_imported_and_ignored_ones_are_not(
    tmp_path: Path,
) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert collected(tmp_path, ["."]) == [
        "one/test_a.py",
        "test_d.py",
        "two/deep/test_c.py",
        "two/test_b.py",
    ]
    assert collected(tmp_path, ["two", "test_d.py::test_x"], ["two/deep"]) == [
        "test_d.py",
        "two/test_b.py",
    ]
