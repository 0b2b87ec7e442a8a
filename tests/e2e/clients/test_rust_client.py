"""An independent client in Rust: pulsar-rs, in a wheel that binds it to Python."""

from __future__ import annotations

import sys

import pytest

from tests.support.callers.foreign_client import ROOT, Checked, built, run_checks
from tests.support.callers.stock_client import PulsarSystem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

PROJECT = ROOT / "tests" / "e2e" / "rust"
CHECKS = (
    "produce and consume",
    "batches",
    "batches of falling size",
    "acknowledgements are kept",
    "topic moved",
    "broker killed",
)


@pytest.fixture(scope="module")
def outcome(system: PulsarSystem) -> dict[str, Checked]:
    # In a folder of its own and not in the environment: a hundred megabytes that only this test
    # wants, for which not every platform has a wheel.
    lock = PROJECT / "requirements.lock"
    folder = built(
        "rust",
        [lock],
        lambda folder: [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"),
            *("--require-hashes", "--requirement", str(lock), "--target", str(folder)),
        ],
    )
    system.start_dead()
    return run_checks(
        [sys.executable, str(PROJECT / "checks.py"), system.first_service_url, "rust-"],
        system,
        environment={"PYTHONPATH": str(folder)},
    )


@pytest.mark.parametrize("check", CHECKS)
def test_the_rust_client(outcome: dict[str, Checked], check: str):
    assert outcome[check] == Checked(check, "")
