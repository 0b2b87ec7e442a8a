"""The stock Python client over TLS, with tokens and permissions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.permissions.secured_system import (
    WRONG_PROOFS,
    PythonClient,
    SecuredClient,
    SecuredSystem,
    check_a_wrong_proof_is_refused,
    check_permissions_decide,
    check_the_operator_produces_and_consumes,
    secured_system,
)

TOPIC = "persistent://public/default/secured-python"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSystem]:
    with secured_system(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def client(secured: SecuredSystem) -> Iterator[SecuredClient]:
    python = PythonClient(secured)
    yield python
    python.close()


def test_a_client_with_a_token_produces_and_consumes(
    secured: SecuredSystem, client: SecuredClient
) -> None:
    check_the_operator_produces_and_consumes(secured, client, TOPIC)


@pytest.mark.parametrize("proof", WRONG_PROOFS)
def test_a_client_without_a_valid_token_is_refused(
    secured: SecuredSystem, client: SecuredClient, proof: str
) -> None:
    check_a_wrong_proof_is_refused(secured, client, TOPIC, proof)


def test_a_client_does_what_its_role_may_do_and_no_more(
    secured: SecuredSystem, client: SecuredClient
) -> None:
    check_permissions_decide(secured, client, TOPIC + "-permitted")
