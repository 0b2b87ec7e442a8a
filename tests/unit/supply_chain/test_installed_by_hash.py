"""What our scripts install is what a lock file says, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSTALLING = [
    ROOT / "deploy" / "Dockerfile",
    ROOT / "Makefile",
    ROOT / ".ci" / "run",
    *sorted((ROOT / "scripts").glob("*.sh")),
]
PIP_INSTALL = re.compile(r"\bpip3? install (.*?)(?:&&|;|$)", re.MULTILINE)
PROJECT_ITSELF = {"--no-deps", "--no-build-isolation", "--editable", "."}
LOCKS = sorted(ROOT.glob("requirements*.lock"))


def installs(text: str) -> list[set[str]]:
    """Return the words of each ``pip install`` in a script."""
    joined = text.replace("\\\n", " ")
    return [set(words.replace('"', "").split()) for words in PIP_INSTALL.findall(joined)]


def is_by_hash(words: set[str]) -> bool:
    """Return whether such a line installs nothing without a hash, also to build with."""
    if words >= PROJECT_ITSELF:
        return True
    builds_by_hash = "requirements-build.lock" in words or "--no-build-isolation" in words
    return {"--require-hashes", "--requirement"} <= words and builds_by_hash


def test_everything_is_installed_by_hash() -> None:
    found = {file.name: installs(file.read_text()) for file in INSTALLING}

    assert len(found["Dockerfile"]) == len(found["setup.sh"]) == 3
    assert {
        name: words for name, lines in found.items() for words in lines if not is_by_hash(words)
    } == {}


@pytest.mark.parametrize(
    "line",
    [
        "pip install aiohttp",
        "pip install --requirement requirements.lock --no-build-isolation",
        "pip install --require-hashes --requirement requirements.lock",
        "pip install --no-deps --editable .",
    ],
)
def test_a_line_that_takes_what_comes_is_noticed(line: str) -> None:
    assert [is_by_hash(words) for words in installs(line)] == [False]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_of_a_lock_has_a_hash(lock: Path) -> None:
    blocks = lock.read_text().replace("\\\n", " ").splitlines()
    pins = [line for line in blocks if line and not line.startswith("#")]

    assert pins
    assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []
