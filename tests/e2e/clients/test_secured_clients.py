"""Stock Java and Go clients over TLS, with tokens and permissions.

The JavaScript client knows no TLS, and the bindings of the Rust client take no token.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.callers.foreign_client import go_program, java_program
from tests.support.permissions.secured_system import (
    WRONG_PROOFS,
    ForeignClient,
    SecuredClient,
    SecuredSystem,
    check_a_wrong_proof_is_refused,
    check_permissions_decide,
    check_the_operator_produces_and_consumes,
    secured_system,
)

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

PROGRAMS = {
    "java": lambda: java_program("checks.Secured", "4", "256m"),
    "go": lambda: [go_program(), "secured"],
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSystem]:
    with secured_system(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module", params=list(PROGRAMS))
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(language: str, secured: SecuredSystem) -> Iterator[SecuredClient]:
    program = ForeignClient(PROGRAMS[language](), secured)
    yield program
    program.close()


def topic_of(language: str, name: str) -> str:
    return f"persistent://public/default/secured-{language}-{name}"


def test_a_client_with_a_token_produces_and_consumes(
    secured: SecuredSystem, client: SecuredClient, language: str
) -> None:
    check_the_operator_produces_and_consumes(secured, client, topic_of(language, "valid"))


@pytest.mark.parametrize("proof", WRONG_PROOFS)
def test_a_client_without_a_valid_token_is_refused(
    secured: SecuredSystem, client: SecuredClient, language: str, proof: str
) -> None:
    check_a_wrong_proof_is_refused(secured, client, topic_of(language, "refused"), proof)


def test_a_client_does_what_its_role_may_do_and_no_more(
    secured: SecuredSystem, client: SecuredClient, language: str
) -> None:
    check_permissions_decide(secured, client, topic_of(language, "permitted"))
