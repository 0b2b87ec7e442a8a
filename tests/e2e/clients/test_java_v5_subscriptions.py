"""Subscriptions of scalable topics under the stock Java client of Pulsar 5."""

from __future__ import annotations

import pytest

from tests.support.callers.foreign_client import Checked, java_v5_program, run_checks
from tests.support.callers.stock_client import PulsarSystem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

CHECKS = (
    "seek stream",
    "seek queue",
    "queue away",
    "clear backlog",
    "checkpoints",
    "checkpoint group",
    "refused",
    "dead letters",
    "rebucket",
    "deleted",
    "names",
    "twin",
)


@pytest.fixture(scope="module")
def outcome(system: PulsarSystem) -> dict[str, Checked]:
    system.start_dead()
    return run_checks(
        [
            *java_v5_program("checks.Main", "512m"),
            *(system.service_url, "java-v5-subscriptions-", "subscriptions"),
        ],
        system,
    )


@pytest.mark.parametrize("check", CHECKS)
def test_subscriptions_of_the_java_client_of_scalable_topics(
    outcome: dict[str, Checked], check: str
):
    assert outcome[check] == Checked(check, "")


def test_every_check_of_subscriptions_is_looked_at(outcome: dict[str, Checked]):
    assert tuple(outcome) == CHECKS
