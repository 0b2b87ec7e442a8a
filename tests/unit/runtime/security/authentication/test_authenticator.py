"""A client's role, the cache of checked tokens, and the original principals of proxies."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from nextgen.kernel.errors import Forbidden, Overloaded, RefusesToStart, Unauthenticated
from nextgen.kernel.limits.inbound import (
    AUTH_DATA_BYTES_MAX,
    PASSWORD_CHECKS_RUNNING_MAX,
    PASSWORD_CHECKS_WAITING_MAX,
    PROXY_ROLES_MAX,
    VERIFIED_CREDENTIALS_MAX,
)
from nextgen.runtime.security.authentication.authentication_metrics import authentications
from nextgen.runtime.security.authentication.authenticator import NO_METHOD, Authenticator
from nextgen.runtime.security.authentication.certificate_provider import CertificateProvider
from nextgen.runtime.security.authentication.header import credentials_in
from nextgen.runtime.security.authentication.provider import Authenticated, Credentials
from nextgen.runtime.security.authentication.settings import (
    AUTHENTICATION_FLAGS,
    NO_AUTHENTICATION,
    AuthenticationSettings,
    authentication_settings,
)
from nextgen.runtime.settings import Given
from tests.support.callers.role_proofs import PASSWORD, SECRET, authenticator, token_of

TOKEN = Credentials("token", token_of("ada"))
BASIC = Credentials("basic", f"ada:{PASSWORD}".encode())


class CountingProvider:
    """Accepts everything, as role ``ada``."""

    method = "token"
    is_slow = False
    is_remembered = True

    def __init__(self, expires_at_s: float | None = None) -> None:
        self.checks = 0
        self.keys = 0
        self.expires_at_s = expires_at_s

    def generation(self) -> int:
        return self.keys

    def authenticate(self, credentials: Credentials) -> Authenticated:
        self.checks += 1
        return Authenticated("ada", self.expires_at_s)


class BlockingProvider(CountingProvider):
    """Checks in another thread, until it is let go."""

    is_slow = True

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.running = 0

    def authenticate(self, credentials: Credentials) -> Authenticated:
        self.running += 1
        self.go.wait(10)
        return super().authenticate(credentials)


async def test_a_password_is_checked_in_another_thread_and_then_remembered() -> None:
    checking = authenticator()

    assert checking.authenticate_now(BASIC) is None
    assert await checking.authenticate(BASIC) == Authenticated("ada")
    assert checking.authenticate_now(BASIC) == Authenticated("ada")
    with pytest.raises(Unauthenticated):
        await checking.authenticate(Credentials("basic", b"ada:wrong"))


async def test_a_client_without_proof_is_anonymous_only_if_that_role_has_a_name() -> None:
    nothing = Credentials(NO_METHOD)
    with pytest.raises(Unauthenticated, match="basic, token"):
        authenticator().authenticate_now(nothing)
    with pytest.raises(Unauthenticated):
        authenticator(anonymous_role="guest").authenticate_now(Credentials("athenz"))
    assert authenticator(anonymous_role="guest").authenticate_now(nothing) == Authenticated("guest")


def test_a_check_is_remembered_until_the_proof_expires_or_the_keys_change() -> None:
    now = [100.0]
    provider = CountingProvider(expires_at_s=200.0)
    checking = Authenticator([provider], clock=lambda: now[0])
    for _ in range(3):
        checking.authenticate_now(TOKEN)
    assert provider.checks == 1

    provider.keys += 1
    checking.authenticate_now(TOKEN)
    assert provider.checks == 2

    now[0] = 200.0
    checking.authenticate_now(TOKEN)
    assert provider.checks == 3


def test_verified_credentials_max() -> None:
    provider = CountingProvider()
    checking = Authenticator([provider])
    for number in range(VERIFIED_CREDENTIALS_MAX + 1):
        checking.authenticate_now(Credentials("token", str(number).encode()))

    checking.authenticate_now(Credentials("token", b"1"))
    assert provider.checks == VERIFIED_CREDENTIALS_MAX + 1
    checking.authenticate_now(Credentials("token", b"0"))
    assert provider.checks == VERIFIED_CREDENTIALS_MAX + 2


async def test_password_checks_running_max_and_password_checks_waiting_max() -> None:
    """PASSWORD_CHECKS_WAITING_MAX + 1 at a time: one is refused, and few threads are busy."""
    provider = BlockingProvider()
    checking = Authenticator([provider])
    waiting = [
        asyncio.create_task(checking.authenticate(Credentials("token", str(number).encode())))
        for number in range(PASSWORD_CHECKS_WAITING_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match=str(PASSWORD_CHECKS_WAITING_MAX)):
        await checking.authenticate(Credentials("token", b"one more"))
    while provider.running < PASSWORD_CHECKS_RUNNING_MAX:
        await asyncio.sleep(0)
    assert provider.running == PASSWORD_CHECKS_RUNNING_MAX

    provider.go.set()
    assert set(await asyncio.gather(*waiting)) == {Authenticated("ada")}


@pytest.mark.parametrize(
    ("role", "original", "acts_for"),
    [
        ("ada", "", "ada"),
        ("ada", "ada", "ada"),
        ("proxy", "ada", "ada"),
        ("ada", "eve", None),
        ("proxy", "", None),
        ("proxy", "proxy", None),
        ("proxy", "other-proxy", None),
    ],
)
def test_only_a_proxy_acts_for_another_role(role: str, original: str, acts_for: str | None) -> None:
    checking = authenticator(proxy_roles=frozenset({"proxy", "other-proxy"}))
    if acts_for is None:
        with pytest.raises(Forbidden):
            checking.check_original(role, original)
    else:
        assert checking.check_original(role, original) == acts_for


def test_the_header_of_http_gives_the_credentials() -> None:
    checking = authenticator()
    certified = Authenticator([CertificateProvider()])

    assert credentials_in("Bearer abc", None, checking) == Credentials("token", b"abc")
    assert credentials_in("basic YTpi", None, checking) == Credentials("basic", b"a:b")
    assert credentials_in(None, {"subject": ()}, checking).method == NO_METHOD
    assert credentials_in("", {"subject": ()}, certified).method == "tls"
    for wrong in ("Digest x", "Basic !", "Bearer \xe9", "x" * (2 * AUTH_DATA_BYTES_MAX + 1)):
        with pytest.raises(Unauthenticated) as refused:
            credentials_in(wrong, None, checking)
        assert wrong not in str(refused.value)


# Settings ------------------------------------------------------------------------------------


def settings(**given: str) -> AuthenticationSettings:
    values = {flag.name: flag.default or "" for flag in AUTHENTICATION_FLAGS}
    named = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    assert named.keys() <= values.keys()
    read = Given(values | {"--authentication-enabled": "true"} | named)
    found = authentication_settings(read)
    read.check()
    return found


def role_of(made: Authenticator | None, credentials: Credentials) -> str:
    assert made is not None
    found = made.authenticate_now(credentials)
    assert found is not None
    return found.role


def test_settings_have_pulsars_names_and_make_an_authenticator() -> None:
    secret = f"data:,{SECRET.decode()}"
    pulsars = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
    made = settings(token_secret_key=secret, authentication_providers=f"{pulsars},tls")
    assert role_of(made.authenticator(), TOKEN) == "ada"
    assert "secret" not in repr(made)
    assert SECRET.decode() not in repr(made)
    again = Given({flag.name: flag.default or "" for flag in AUTHENTICATION_FLAGS} | made.flags())
    assert authentication_settings(again).flags() == made.flags()
    assert {"--tokenSecretKey"} <= {name for flag in AUTHENTICATION_FLAGS for name in flag.aliases}
    assert NO_AUTHENTICATION.authenticator() is None
    assert settings(authentication_enabled="false").authenticator() is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "without a way"),
        ({"authentication_providers": "kerberos"}, "kerberos"),
        ({"authentication_providers": "token"}, "one of"),
        ({"authentication_providers": "basic"}, "--basic-auth-conf"),
        ({"authentication_providers": "oidc"}, "--openid-allowed-token-issuers"),
        ({"token_secret_key": "data:,short"}, "at least 32"),
        ({"basic_auth_conf": "data:,ada:plain"}, "line 1"),
        ({"openid_jwks_file": "data:,{}", "openid_allowed_token_issuers": "x"}, "JWKS"),
        ({"authentication_providers": "tls", "proxy_roles": "a\x01"}, "control"),
        ({"authentication_providers": "tls", "anonymous_user_role": "\x01"}, "control"),
    ],
)
def test_settings_that_cannot_be_used_are_named(given: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusesToStart, match=why):
        settings(**given).authenticator()


def test_proxy_roles_max() -> None:
    proxies = [f"p{number}" for number in range(PROXY_ROLES_MAX + 1)]
    tls = {"authentication_providers": "tls"}
    assert settings(**tls, proxy_roles=",".join(proxies[1:])).authenticator() is not None
    with pytest.raises(RefusesToStart, match=str(PROXY_ROLES_MAX)):
        settings(**tls, proxy_roles=",".join(proxies)).authenticator()


def test_expiry_is_unix_time() -> None:
    assert abs(authenticator().now() - time.time()) < 60


async def test_proofs_are_counted_by_a_known_method_and_their_outcome():
    checking = authenticator()
    await checking.authenticate(Credentials("token", token_of("ada")))
    await checking.authenticate(Credentials("token", token_of("ada")))
    await checking.authenticate(Credentials("basic", f"ada:{PASSWORD}".encode()))
    for credentials in (
        Credentials("token", b"garbage"),
        Credentials("basic", b"ada:wrong"),
        Credentials("none"),
        Credentials("invented-by-a-client", b"x"),
    ):
        with pytest.raises(Unauthenticated):
            await checking.authenticate(credentials)

    shown = {
        (sample.labels["kind"], sample.labels["outcome"]): sample.value
        for sample in authentications(checking.counts).samples
        if sample.name.endswith("_total")
    }
    kinds = ("token", "basic", "tls", "none", "other")
    none = {(kind, outcome): 0 for kind in kinds for outcome in ("accepted", "refused")}
    refusals = {(kind, "refused"): 1 for kind in ("token", "basic", "none", "other")}
    accepted = {("token", "accepted"): 2, ("basic", "accepted"): 1}
    assert shown == none | refusals | accepted
