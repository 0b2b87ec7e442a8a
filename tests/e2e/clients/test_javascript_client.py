"""An independent client in pure JavaScript: pulsar-flex from npm."""

from __future__ import annotations

import pytest

from tests.support.callers.foreign_client import ROOT, Checked, built, require_tools, run_checks
from tests.support.callers.stock_client import PulsarSystem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

PROJECT = ROOT / "tests" / "e2e" / "javascript"
CHECKS = (
    "produce and consume",
    "batches",
    "exclusive producer",
    "shared subscription",
    "failover subscription",
    "key shared subscription",
    "topic moved",
    "broker killed",
)
INSTALL = 'cp "$1"/package.json "$1"/package-lock.json . && exec npm ci --no-audit --no-fund'


@pytest.fixture(scope="module")
def outcome(system: PulsarSystem) -> dict[str, Checked]:
    require_tools("node", "npm")
    folder = built(
        "javascript",
        [PROJECT / "package.json", PROJECT / "package-lock.json"],
        lambda _: ["sh", "-c", INSTALL, "install", str(PROJECT)],
    )
    system.start_dead()
    address = system.first_service_url.removeprefix("pulsar://")
    return run_checks(
        ["node", str(PROJECT / "checks.js"), address, "js-"],
        system,
        environment={"NODE_PATH": str(folder / "node_modules")},
    )


@pytest.mark.parametrize("check", CHECKS)
def test_the_javascript_client(outcome: dict[str, Checked], check: str):
    assert outcome[check] == Checked(check, "")
