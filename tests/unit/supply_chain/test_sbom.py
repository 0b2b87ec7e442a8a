"""A bill of materials lists exactly what its lock file pins."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.sbom import differences, pins_of_bill, pins_of_lock

ROOT = Path(__file__).parents[3]
LOCKS = sorted(ROOT.glob("requirements*.lock"))


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sbom")
    made(directory, "--no-validate")
    return directory


def made(directory: Path, *arguments: str) -> None:
    command = [sys.executable, "scripts/sbom.py", "--directory", str(directory), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_is_a_bill_of_every_lock(bills: Path):
    assert len(LOCKS) == 5
    assert sorted(file.name for file in bills.iterdir()) == sorted(
        f"{lock.stem}.cdx.json" for lock in LOCKS
    )


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_bill_lists_exactly_what_the_lock_has_with_its_hashes(bills: Path, lock: Path):
    bill = json.loads((bills / f"{lock.stem}.cdx.json").read_text())
    pins = pins_of_lock(lock.read_text())

    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "pulsar-nextgen"
    assert len(pins) == sum("==" in line for line in lock.read_text().splitlines())
    assert sum(map(len, pins.values())) == lock.read_text().count("--hash=sha256:")
    assert pins_of_bill(bill) == pins
    assert {one["purl"] for one in bill["components"]} == {
        f"pkg:pypi/{name}@{version}" for name, version in pins
    }


def test_a_bill_is_valid_by_the_schema_of_cyclonedx(tmp_path: Path):
    made(tmp_path, "requirements-build.lock")

    assert [file.name for file in tmp_path.iterdir()] == ["requirements-build.cdx.json"]


def test_a_bill_that_differs_is_noticed(bills: Path):
    lock = pins_of_lock((ROOT / "requirements.lock").read_text())
    bill = json.loads((bills / "requirements.cdx.json").read_text())
    shorter, longer, forged = (copy.deepcopy(bill) for _ in range(3))
    gone = shorter["components"].pop()
    longer["components"].append({**gone, "name": "stranger"})
    forged["components"][0]["externalReferences"][0]["hashes"][0]["content"] = "0" * 64
    name, version = gone["name"], gone["version"]

    def found(changed) -> list[str]:
        return differences(lock, pins_of_bill(changed))

    assert found(bill) == []
    assert found(shorter) == [f"{name} {version} is in the lock and not in the bill"]
    assert found(longer) == [f"stranger {version} is in the bill and not in the lock"]
    (sentence,) = found(forged)
    assert sentence.endswith("has other hashes in the bill than in the lock")


@pytest.mark.parametrize(
    "text", ["aiohttp>=3\n", "aiohttp==3.1\n", "-r other.lock\n", "git+https://host/x --hash=y\n"]
)
def test_a_lock_without_pins_and_hashes_is_refused(text: str):
    with pytest.raises(ValueError, match="not a pin with hashes"):
        pins_of_lock(text)
