"""The stock Java client of Pulsar 5, which knows scalable topics, from Maven Central."""

from __future__ import annotations

import pytest

from tests.support.callers.foreign_client import Checked, java_v5_program, run_checks
from tests.support.callers.stock_client import PulsarSystem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

CHECKS = (
    "one segment",
    "several segments",
    "absent and not to be created",
    "classic topic",
    "classic topic with partitions",
    "classic topic that is migrated",
    "queue shared",
    "checkpoint",
    "segments move under load",
    "split and merge under load",
    "stream over split and merge",
    "queue of a namespace",
    "stream of a namespace",
    "kill under load",
)


@pytest.fixture(scope="module")
def outcome(system: PulsarSystem) -> dict[str, Checked]:
    system.start_dead()
    return run_checks(
        [
            *java_v5_program("checks.Main", "512m"),
            *(system.service_url, "java-v5-", "segments"),
        ],
        system,
    )


@pytest.mark.parametrize("check", CHECKS)
def test_the_java_client_of_scalable_topics(outcome: dict[str, Checked], check: str):
    assert outcome[check] == Checked(check, "")


def test_every_check_of_the_java_client_of_scalable_topics_is_looked_at(
    outcome: dict[str, Checked],
):
    assert tuple(outcome) == CHECKS
