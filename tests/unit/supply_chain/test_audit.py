"""The audit of what the locks pin, against a database of ours that speaks as OSV does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts.audit import ignored_on

ROOT = Path(__file__).parents[3]
LOCK = f"sample==1.0 \\\n    --hash=sha256:{'0' * 64}\n"
ENTRY = '[[ignored]]\nid = "{id}"\nreason = "not called"\nuntil = {until}\n'


class Database(BaseHTTPRequestHandler):
    """One vulnerability, in ``sample``."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        package = asked["package"]
        known = {
            "id": "GHSA-aaaa-bbbb-cccc",
            "aliases": ["CVE-2026-1"],
            "affected": [
                {
                    "package": package,
                    "ranges": [
                        {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}
                    ],
                }
            ],
        }
        body = json.dumps({"vulns": [known]} if package["name"] == "sample" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


@pytest.fixture
def audit(tmp_path: Path):
    def audited(url: str, lock: str = LOCK, ignored: str = "", **environment: str):
        (tmp_path / "some.lock").write_text(lock)
        (tmp_path / "ignored.toml").write_text(ignored)
        arguments = ("--ignored", tmp_path / "ignored.toml", tmp_path / "some.lock")
        return subprocess.run(
            [sys.executable, "scripts/audit.py", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "AUDIT_OSV_URL": url, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return audited


def test_a_known_vulnerability_is_a_failure_that_names_it(audit, database: str):
    done = audit(database)

    assert done.returncode == 1
    assert done.stderr == (
        "some.lock: sample 1.0: CVE-2026-1 (GHSA-aaaa-bbbb-cccc), mended in 1.1\n"
    )


def test_without_one_the_audit_passes(audit, database: str):
    done = audit(database, LOCK.replace("sample", "other"))

    assert (done.returncode, done.stdout) == (0, "1 lock files, 0 known vulnerabilities\n")


@pytest.mark.parametrize("known_as", ["GHSA-aaaa-bbbb-cccc", "CVE-2026-1"])
def test_one_is_ignored_with_a_reason_until_a_date(audit, database: str, known_as: str):
    assert audit(database, ignored=ENTRY.format(id=known_as, until="2999-01-01")).returncode == 0
    assert audit(database, ignored=ENTRY.format(id=known_as, until="2026-01-01")).returncode == 1


def test_an_ignored_one_without_a_reason_or_a_date_is_refused(tmp_path: Path):
    file = tmp_path / "ignored.toml"
    for missing in ("id", "reason", "until"):
        lines = ENTRY.format(id="CVE-2026-1", until="2027-01-01").splitlines()
        file.write_text("\n".join(line for line in lines if not line.startswith(missing)))
        with pytest.raises(ValueError, match="needs id, reason and until"):
            ignored_on(date(2026, 11, 29), file)


def test_a_database_that_is_not_reachable_is_said_and_skipped(audit):
    nowhere = "http://127.0.0.1:9/v1/query"

    done = audit(nowhere)
    assert done.returncode == 0
    assert done.stdout.startswith(f"skipped: pip-audit, because {nowhere} is not reachable: ")
    assert audit(nowhere, AUDIT_REQUIRED="1").returncode == 1


def test_a_lock_that_cannot_be_audited_is_no_pass(audit, database: str):
    done = audit(database, "sample>=1\n")

    assert done.returncode == 1
    assert "pip-audit failed" in done.stderr


def test_the_projects_own_list_of_the_ignored_is_readable():
    ignored_on(date(2026, 11, 29), ROOT / "scripts" / "audit-ignored.toml")
