"""Known vulnerabilities in what the lock files pin, by pip-audit and the database of OSV.

    python scripts/audit.py [--ignored scripts/audit-ignored.toml] [LOCK ...]

Exit 1: there are some that the file of the ignored ones does not list, or the audit failed. Where
the database cannot be reached the audit is skipped, which is said; AUDIT_REQUIRED=1 makes that a
failure as well. AUDIT_OSV_URL names a mirror.

An ignored one has a reason, and a date from which it is reported again:

    [[ignored]]
    id = "GHSA-…"
    reason = "…"
    until = 2027-01-31
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
OSV_URL = "https://api.osv.dev/v1/query"
REACHED_S_MAX = 15
AUDIT_S_MAX = 900


def ignored_on(day: date, file: Path) -> set[str]:
    """Return the ids that are ignored on a day.

    Raises:
        ValueError: An entry lacks an id, a reason or a date.
    """
    ids = set()
    for entry in tomllib.loads(file.read_text()).get("ignored", ()):
        until, reason = entry.get("until"), str(entry.get("reason", "")).strip()
        if not entry.get("id") or not reason or not isinstance(until, date):
            raise ValueError(f"{file}: each of [[ignored]] needs id, reason and until: {entry}")
        if day < until:
            ids.add(str(entry["id"]))
    return ids


def why_unreachable(url: str) -> str:
    """Return why the database does not answer; empty if it does."""
    body = json.dumps({"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "0"}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=REACHED_S_MAX) as answer:
            json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(error)
    return ""


def findings(lock: Path, url: str, ignored: set[str]) -> list[str]:
    """Return a sentence for each vulnerability of a lock file's packages.

    Raises:
        RuntimeError: The audit itself failed, or left out a package.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv"),
            *("--osv-url", url, "--strict", "--disable-pip", "--require-hashes"),
            *("--progress-spinner", "off", "--format", "json", "--requirement", str(lock)),
        ],
        capture_output=True,
        text=True,
        timeout=AUDIT_S_MAX,
        check=False,
    )
    try:
        audited = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"pip-audit failed on {lock}: {done.stderr[-2000:]}") from error
    found = []
    for package in audited:
        if "skip_reason" in package:
            raise RuntimeError(f"{package['name']} was left out: {package['skip_reason']}")
        found += [
            f"{lock.name}: {package['name']} {package['version']}: {one['id']}"
            f" ({', '.join(one['aliases'])}), mended in {', '.join(one['fix_versions']) or 'none'}"
            for one in package["vulns"]
            if ignored.isdisjoint({one["id"], *one["aliases"]})
        ]
    return found


def main(arguments: list[str]) -> int:
    """Audit the lock files; return the exit code."""
    parser = argparse.ArgumentParser(description="Look for known vulnerabilities.")
    parser.add_argument("--ignored", type=Path, default=ROOT / "scripts" / "audit-ignored.toml")
    parser.add_argument("locks", type=Path, nargs="*", metavar="LOCK")
    given = parser.parse_args(arguments)
    url = os.environ.get("AUDIT_OSV_URL") or OSV_URL
    try:
        ignored = ignored_on(datetime.now(UTC).date(), given.ignored)
        if reason := why_unreachable(url):
            sys.stdout.write(f"skipped: pip-audit, because {url} is not reachable: {reason}\n")
            return 1 if os.environ.get("AUDIT_REQUIRED") == "1" else 0
        locks = given.locks or sorted(ROOT.glob("requirements*.lock"))
        found = [sentence for lock in locks for sentence in findings(lock, url, ignored)]
    except (RuntimeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for sentence in found:
        sys.stderr.write(f"{sentence}\n")
    sys.stdout.write(f"{len(locks)} lock files, {len(found)} known vulnerabilities\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
