"""The software bill of materials of each lock file, as CycloneDX JSON, checked against the lock.

    python scripts/sbom.py [--directory build/sbom] [--no-validate] [LOCK ...]

cyclonedx-py writes it. The check is ours: a bill that leaves out a package or a hash is worse than
none, because people rely on it. Exit 1 if one differs from its lock.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Pins = dict[tuple[str, str], frozenset[str]]
"""SHA-256 hashes of each name and version."""

_PIN = re.compile(r"([a-z0-9-]+)==([^\s;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_DIGEST = "SHA-256"


def pins_of_lock(text: str) -> Pins:
    """Return what a lock file pins.

    Raises:
        ValueError: A line is none of a lock file with hashes.
    """
    pins: Pins = {}
    for block in text.replace("\\\n", " ").splitlines():
        line = block.partition("#")[0].strip()
        if not line:
            continue
        pin, hashes = _PIN.match(line), frozenset(_HASH.findall(line))
        if pin is None or not hashes:
            raise ValueError(f"not a pin with hashes: {line[:100]}")
        pins[pin[1], pin[2]] = hashes
    return pins


def pins_of_bill(bill: dict[str, Any]) -> Pins:
    """Return what a bill lists."""
    return {
        (component["name"], component["version"]): frozenset(
            one["content"]
            for reference in component.get("externalReferences", ())
            if reference["type"] == "distribution"
            for one in reference.get("hashes", ())
            if one["alg"] == _DIGEST
        )
        for component in bill.get("components", ())
    }


def differences(lock: Pins, bill: Pins) -> list[str]:
    """Return a sentence for each package in which a bill differs from its lock."""
    found = []
    for name, version in sorted(lock.keys() | bill.keys()):
        pin = (name, version)
        if pin not in bill:
            found.append(f"{name} {version} is in the lock and not in the bill")
        elif pin not in lock:
            found.append(f"{name} {version} is in the bill and not in the lock")
        elif lock[pin] != bill[pin]:
            found.append(f"{name} {version} has other hashes in the bill than in the lock")
    return found


def write_bill(lock: Path, directory: Path, *, is_validated: bool = True) -> Path:
    """Write the bill of a lock file and return where it is.

    ``is_validated``: by the schema of CycloneDX, too, which takes most of the time.
    """
    bill = directory / f"{lock.stem}.cdx.json"
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(str(Path(sys.executable).with_name("cyclonedx-py")), "requirements"),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
            *("--output-reproducible", "--output-format", "JSON", "--output-file", str(bill)),
            *(() if is_validated else ("--no-validate",)),
            str(lock),
        ],
        # It warns that a lock file has no graph of dependencies, which is so.
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=True,
    )
    return bill


def main(arguments: list[str]) -> int:
    """Write and check the bills; return the exit code."""
    parser = argparse.ArgumentParser(description="Write and check bills of materials.")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "sbom")
    parser.add_argument("--no-validate", action="store_true")
    parser.add_argument("locks", type=Path, nargs="*", metavar="LOCK")
    given = parser.parse_args(arguments)
    code = 0
    for lock in given.locks or sorted(ROOT.glob("requirements*.lock")):
        bill = write_bill(lock, given.directory, is_validated=not given.no_validate)
        pins = pins_of_lock(lock.read_text())
        found = differences(pins, pins_of_bill(json.loads(bill.read_text())))
        for sentence in found:
            sys.stderr.write(f"{bill}: {sentence}\n")
        code = 1 if found else code
        hashes = sum(map(len, pins.values()))
        sys.stdout.write(f"{bill}: {len(pins)} packages, {hashes} hashes\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
