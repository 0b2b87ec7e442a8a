"""The stock Go client: github.com/apache/pulsar-client-go."""

from __future__ import annotations

import pytest

from tests.support.callers.foreign_client import Checked, go_program, run_checks
from tests.support.callers.stock_client import PulsarSystem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

CHECKS = (
    "produce and consume",
    "batches and compression",
    "reader",
    "exclusive producer",
    "shared subscription",
    "key shared subscription",
    "partitions",
    "partitions that grow",
    "pattern",
    "topics come and go",
    "seek by time",
    "http service url",
    "topic moved",
    "broker killed",
)


@pytest.fixture(scope="module")
def outcome(system: PulsarSystem) -> dict[str, Checked]:
    system.start_dead()
    return run_checks(
        [go_program(), system.service_url, "go-"],
        system,
    )


@pytest.mark.parametrize("check", CHECKS)
def test_the_go_client(outcome: dict[str, Checked], check: str):
    assert outcome[check] == Checked(check, "")
