"""The stock Java client, of the 4.x line and the 5.0 milestone, from Maven Central."""

from __future__ import annotations

import pytest

from tests.support.callers.foreign_client import JAVA_CLIENTS, Checked, java_program, run_checks
from tests.support.callers.stock_client import PulsarSystem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

CHECKS = (
    "produce and consume",
    "what a message carries",
    "batches and compression",
    "chunks",
    "partitions",
    "partitions grow",
    "creation forbidden",
    "named producer",
    "access modes",
    "reader",
    "table view",
    "non persistent",
    "pattern",
    "come and go",
    "several topics",
    "transactions refused",
    "exclusive",
    "shared",
    "key shared",
    "failover",
    "individual acknowledgements",
    "acknowledgements with receipts",
    "cumulative within a batch",
    "seek",
    "redelivery",
    "acknowledgement timeout",
    "dead letters",
    "delayed",
    "unsubscribe",
    "json schema",
    "avro schema",
    "schema versions",
    "schema asked for",
    "schema by the message",
    "key value schema",
    "incompatible schema",
    "http service url",
    "move under load",
    "kill under load",
)


@pytest.fixture(scope="module", params=list(JAVA_CLIENTS))
def outcome(request: pytest.FixtureRequest, system: PulsarSystem) -> dict[str, Checked]:
    system.start_dead()
    return run_checks(
        [
            *java_program("checks.Main", request.param, "512m"),
            *(system.service_url, f"java-{request.param}-"),
        ],
        system,
    )


@pytest.mark.parametrize("check", CHECKS)
def test_the_java_client(outcome: dict[str, Checked], check: str):
    assert outcome[check] == Checked(check, "")


def test_every_check_of_the_java_client_is_looked_at(outcome: dict[str, Checked]):
    assert tuple(outcome) == CHECKS
