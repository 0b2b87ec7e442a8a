"""What tokens are accepted, and how every other one is refused."""

from __future__ import annotations

import base64
import hmac
import json
import time

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.errors import RefusesToStart, Unauthenticated
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX, ROLE_BYTES_MAX
from nextgen.runtime.security.authentication.provider import (
    Authenticated,
    Credentials,
    checked_role,
)
from nextgen.runtime.security.authentication.token_keys import (
    ALGORITHMS,
    SECRET_KEY_BYTES_MIN,
    new_key_pair,
    public_key,
    secret_bytes,
    secret_key,
    signing_key,
)
from nextgen.runtime.security.authentication.token_maker import duration_s, make_token
from nextgen.runtime.security.authentication.tokens import (
    TokenRules,
    authenticated_by,
    checked_claims,
    header_of,
    shown_parts,
)
from tests.support.callers.role_proofs import OTHER_SECRET, SECRET, token_of, token_provider

KEY = secret_key("key", SECRET)


def accepted(token: bytes, rules: TokenRules | None = None) -> Authenticated:
    return token_provider(rules=rules).authenticate(Credentials("token", token))


def refusal(token: bytes, rules: TokenRules | None = None) -> str:
    with pytest.raises(Unauthenticated) as refused:
        accepted(token, rules)
    assert token.decode("latin-1") not in str(refused.value) or not token
    return str(refused.value)


def encoded(value: object) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def test_a_valid_token_gives_its_role_and_its_end() -> None:
    assert accepted(token_of("ada")) == Authenticated("ada")

    ends = int(time.time()) + 60
    assert accepted(token_of("ada", exp=ends)) == Authenticated("ada", float(ends))


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (token_of("ada", lasts_s=-5), "has expired"),
        (token_of("ada", nbf=int(time.time()) + 3_600), "does not hold yet"),
        (token_of("ada", secret=OTHER_SECRET), "signature"),
        (token_of("ada")[:-4] + b"AAAA", "signature"),
        (jwt.encode({"sub": "ada"}, None, algorithm="none").encode(), "algorithm"),
        (b"", "no token"),
        (b"a.b", "three parts"),
        (b"a.b.c.d.e", "three parts"),
        (b"a.b.c", "header"),
        (encoded(["HS256"]) + b".e30.AAAA", "header"),
        (encoded(b"[" * 5_000) + b".e30.AAAA", "header"),
        (encoded({"alg": "HS256", "cty": "JWT"}) + b".e30.AAAA", "inside a token"),
        (encoded({"alg": "HS256"}) + b"." + encoded(b"\xff") + b".AAAA", "signature"),
        (make_token(SECRET, "HS256", {"name": "ada"}).encode(), "no claim 'sub'"),
        (make_token(SECRET, "HS256", {"sub": 7}).encode(), "not a text"),
        (make_token(SECRET, "HS256", {"sub": "a\nb"}).encode(), "control"),
        (make_token(SECRET, "HS256", {"sub": "a", "exp": "soon"}).encode(), "cannot be read"),
    ],
)
def test_a_token_that_proves_nothing_is_refused_with_the_reason(token: bytes, why: str) -> None:
    assert why in refusal(token)


def test_claims_of_any_form_are_refused_and_not_crashed_on() -> None:
    for claims in (b"[1]", b"[" * 5_000, b'{"exp": 1e999, "sub": "a"}', b"1" * 5_000, b"null"):
        header = encoded({"alg": "HS256", "typ": "JWT"})
        signed = header + b"." + encoded(claims)
        signature = jwt.get_algorithm_by_name("HS256").sign(signed, SECRET)
        assert refusal(signed + b"." + encoded(signature))


def test_a_public_key_is_no_secret_key() -> None:
    """1. The server checks by a public key, which everybody has.
    2. Somebody signs with its bytes as the secret of HS256."""
    _, public = new_key_pair("ES256")
    signed = encoded({"alg": "HS256", "typ": "JWT"}) + b"." + encoded({"sub": "root"})
    forged = signed + b"." + encoded(hmac.digest(public, signed, "sha256"))

    with pytest.raises(Unauthenticated, match="algorithm"):
        checked_claims(forged, public_key("key", public), TokenRules())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_makes_tokens_that_its_kind_of_key_accepts(algorithm: str) -> None:
    if algorithm.startswith("HS"):
        signing = b"s" * secret_bytes(algorithm)
        checking = secret_key("key", signing)
    else:
        private, public = new_key_pair(algorithm)
        signing, algorithms = signing_key("key", private)
        assert algorithm in algorithms
        checking = public_key("key", public)

    token = make_token(signing, algorithm, {"sub": "ada"}).encode()

    assert (
        authenticated_by(checked_claims(token, checking, TokenRules()), TokenRules()).role == "ada"
    )


def test_a_key_of_another_kind_or_size_is_refused() -> None:
    with pytest.raises(RefusesToStart, match="at least 32"):
        secret_key("key", b"s" * (SECRET_KEY_BYTES_MIN - 1))
    with pytest.raises(RefusesToStart, match="no public key"):
        public_key("key", b"garbage")
    with pytest.raises(RefusesToStart, match="no private key"):
        signing_key("key", b"garbage")
    with pytest.raises(RefusesToStart, match="no secret key"):
        secret_bytes("RS256")
    with pytest.raises(RefusesToStart, match="no key pair"):
        new_key_pair("HS256")
    with pytest.raises(RefusesToStart, match="signs no tokens"):
        make_token(b"s" * 32, "RS256", {"sub": "ada"})


def test_audience_claim_and_leeway_are_configurable() -> None:
    rules = TokenRules(role_claim="groups", audiences=("blue",), leeway_s=30)

    assert accepted(token_of("x", groups=["ada", "eve"], aud=["red", "blue"]), rules).role == "ada"
    assert accepted(token_of("x", groups="ada", aud="blue", lasts_s=-5), rules).role == "ada"
    assert "audience" in refusal(token_of("x", groups="ada", aud="red"), rules)
    assert "audience" in refusal(token_of("x", groups="ada", aud=7), rules)
    assert "no claim 'groups'" in refusal(token_of("x", groups=[], aud="blue"), rules)


def test_auth_data_bytes_max_is_checked_before_a_token_is_parsed() -> None:
    longest = b"a." + b"b" * (AUTH_DATA_BYTES_MAX - 4) + b".c"
    assert len(longest) == AUTH_DATA_BYTES_MAX
    assert "header" in refusal(longest)
    assert str(AUTH_DATA_BYTES_MAX) in refusal(longest + b"c")


def test_role_bytes_max() -> None:
    assert checked_role("r" * ROLE_BYTES_MAX)
    for role in ("r" * (ROLE_BYTES_MAX + 1), "é" * (ROLE_BYTES_MAX // 2 + 1)):
        with pytest.raises(Unauthenticated, match=str(ROLE_BYTES_MAX)):
            checked_role(role)


@pytest.mark.parametrize(
    "role", ["", " ", " a", "a ", "a\x00", "a\x7fb", "a\u202eb", "a\ud800", None, 3]
)
def test_a_role_has_characters_that_can_be_seen(role: object) -> None:
    with pytest.raises(Unauthenticated):
        checked_role(role)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_without_a_crash(data: bytes) -> None:
    with pytest.raises(Unauthenticated):
        _ = header_of(data) and checked_claims(data, KEY, TokenRules())


def test_two_keys_are_accepted_during_a_change() -> None:
    provider = token_provider(OTHER_SECRET, SECRET)

    for secret in (SECRET, OTHER_SECRET):
        assert provider.authenticate(Credentials("token", token_of("a", secret=secret))).role == "a"
    with pytest.raises(Unauthenticated, match="signature"):
        provider.authenticate(Credentials("token", token_of("a", secret=b"x" * 32)))


def test_parts_are_shown_unchecked() -> None:
    header, claims = shown_parts(token_of("ada", lasts_s=-5))
    assert (header["alg"], claims["sub"]) == ("HS256", "ada")
    with pytest.raises(Unauthenticated):
        shown_parts(encoded({"alg": "HS256"}) + b".!.AAAA")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("2h", 7_200), ("1y", 31_536_000)])
def test_durations_are_written_as_pulsar_does(text: str, seconds: int) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "1", "h", "-1h", "1 h", "9999999999s"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        duration_s(text)
