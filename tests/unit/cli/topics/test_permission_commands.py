"""``nextgen permissions``: which call each command makes, and what it shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nextgen.client.model import ObjectPolicies, Tenant, Written
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionAuthMode,
    SubscriptionPermission,
)
from nextgen.kernel.governance.policies import Policies
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode

runner = CliRunner()
TOPIC = "persistent://acme/orders/paid"
PERMITTING = Policies(
    permissions=(
        Permission("app", (AuthAction.PRODUCE, AuthAction.CONSUME)),
        Permission("later", (), b"x"),
    ),
    subscription_permissions=(SubscriptionPermission("s", ("a", "b")),),
    subscription_auth_mode=SubscriptionAuthMode.PREFIX,
)


class PlayedClient:
    """Notes the calls that change something."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.options: dict[str, Any] = {}

    def __call__(self, *_given: object, **options: Any) -> PlayedClient:
        self.options = options
        return self

    async def __aenter__(self) -> PlayedClient:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pass

    def __getattr__(self, method: str) -> Any:
        async def call(*given: Any) -> Written:
            self.calls.append((method, *given))
            return Written("id", 7, 1, 1)

        return call

    async def get_tenant(self, name: str) -> Tenant | None:
        properties = {"adminRoles": '["boss","root"]'}
        return Tenant(name, "id", properties, 1, False) if name == "acme" else None

    async def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        return ObjectPolicies(Policies() if merged else PERMITTING, 1)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedClient:
    client = PlayedClient()
    monkeypatch.setattr("nextgen.client.client.Client", client)
    return client


def run(*words: str) -> Result:
    return runner.invoke(app, ["permissions", *words, "--target", "127.0.0.1:1"])


@pytest.mark.parametrize(
    ("words", "call", "said"),
    [
        (
            ("grant", "acme/orders", "app", "produce", "consume", "produce"),
            ("grant", "acme/orders", "app", [AuthAction.PRODUCE, AuthAction.CONSUME]),
            "app may produce, consume with acme/orders",
        ),
        (
            ("grant", TOPIC, "app", "functions"),
            ("grant", TOPIC, "app", [AuthAction.FUNCTIONS]),
            f"app may functions with {TOPIC}",
        ),
        (("grant", "acme", "root"), ("grant_admin", "acme", "root"), "root is an admin of acme"),
        (
            ("grant", "acme/orders", "app", "-s", "mine"),
            ("grant_subscription", "acme/orders", "mine", "app"),
            "app may use subscription mine in acme/orders",
        ),
        (("revoke", "acme/orders", "app"), ("revoke", "acme/orders", "app"), "permitted nothing"),
        (("revoke", "acme", "root"), ("revoke_admin", "acme", "root"), "permitted nothing"),
        (
            ("revoke", "acme/orders", "app", "--subscription", "mine"),
            ("revoke_subscription", "acme/orders", "mine", "app"),
            "subscription mine of acme/orders",
        ),
    ],
)
def test_each_change_is_one_effective_call(
    played: PlayedClient, words: tuple[str, ...], call: tuple[Any, ...], said: str
):
    shown, plain = run(*words), run(*words, "--json")

    assert (shown.exit_code, plain.exit_code) == (0, 0)
    assert said in " ".join(shown.output.split())
    assert json.loads(plain.output) == {"name": words[1], "role": words[2], "version": 7}
    assert played.calls == [call, call]
    assert played.options["effective"] is True


@pytest.mark.parametrize(
    "words",
    [
        ("grant", "acme/orders", "app"),
        ("grant", "acme/orders", "app", "fly"),
        ("grant", "acme", "root", "produce"),
        ("grant", "acme/orders", "app", "consume", "-s", "mine"),
        ("grant", "acme/orders"),
        ("revoke", "acme/orders"),
    ],
)
def test_a_command_without_meaning_calls_nothing(played: PlayedClient, words: tuple[str, ...]):
    assert run(*words).exit_code == ExitCode.USAGE
    assert played.calls == []


def test_permissions_are_shown_by_role_and_subscription(played: PlayedClient):
    shown, plain = run("show", "acme/orders"), run("show", "acme/orders", "--json")

    assert json.loads(plain.output) == {
        "name": "acme/orders",
        "permissions": {"app": ["produce", "consume"], "later": []},
        "subscriptions": {"s": ["a", "b"]},
        "subscription_auth_mode": "prefix",
    }
    for part in ("app", "produce, consume", "later", "use", "subscriptions by prefix"):
        assert part in shown.output
    merged = json.loads(run("show", TOPIC, "--merged", "--json").output)
    assert merged["permissions"] == {}


def test_admins_of_a_tenant_are_shown(played: PlayedClient):
    shown, plain = run("show", "acme"), run("show", "acme", "--json")

    assert "root" in shown.output
    assert json.loads(plain.output) == {"name": "acme", "admins": ["boss", "root"]}
    absent = run("show", "nobody")
    assert absent.exit_code == ExitCode.REFUSED
    assert "does not exist" in absent.output
