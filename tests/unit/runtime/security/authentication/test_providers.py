"""Passwords, certificates, and keys of identity providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from nextgen.kernel.errors import RefusesToStart, Unauthenticated
from nextgen.kernel.limits.inbound import (
    AUTH_DATA_BYTES_MAX,
    JWKS_KEYS_MAX,
    KEY_FILE_BYTES_MAX,
    KEY_FILE_CHECK_MS,
    PASSWORD_HASH_MEMORY_BYTES_MAX,
    PASSWORD_HASH_ROUNDS_MAX,
    PASSWORD_USERS_MAX,
)
from nextgen.runtime.security.authentication.basic_provider import WRONG
from nextgen.runtime.security.authentication.certificate_provider import CertificateProvider
from nextgen.runtime.security.authentication.jwks_provider import JwksProvider, parsed_keys
from nextgen.runtime.security.authentication.key_source import ReloadedKey, file_of, read_key
from nextgen.runtime.security.authentication.passwords import (
    parsed_hash,
    parsed_users,
    password_hash,
)
from nextgen.runtime.security.authentication.provider import Authenticated, Credentials
from nextgen.runtime.security.authentication.token_keys import new_key_pair, signing_key
from nextgen.runtime.security.authentication.token_maker import make_token
from nextgen.runtime.security.authentication.tokens import TokenRules
from tests.support.callers.role_proofs import PASSWORD, basic_provider

ISSUER = "https://login.example"
CERTIFICATE = {
    "subject": ((("organizationName", "Acme"),), (("commonName", "billing"),)),
    "notAfter": "Jan  1 00:00:00 2030 GMT",
}


# Passwords -----------------------------------------------------------------------------------


def test_a_user_with_the_password_is_the_role() -> None:
    provider = basic_provider()

    assert provider.authenticate(Credentials("basic", f"ada:{PASSWORD}".encode())).role == "ada"
    for wrong in (b"ada:wrong", b"ada", b"eve:wrong", b"\xff:x", b"", b":"):
        with pytest.raises(Unauthenticated, match=WRONG):
            provider.authenticate(Credentials("basic", wrong))


def test_a_password_longer_than_auth_data_bytes_max_is_not_hashed() -> None:
    provider = basic_provider()
    with pytest.raises(Unauthenticated, match=WRONG):
        provider.authenticate(Credentials("basic", b"a:" + b"p" * (AUTH_DATA_BYTES_MAX - 2)))
    with pytest.raises(Unauthenticated, match=str(AUTH_DATA_BYTES_MAX)):
        provider.authenticate(Credentials("basic", b"a:" + b"p" * (AUTH_DATA_BYTES_MAX + 1 - 2)))


def test_a_hash_of_another_tool_is_checked() -> None:
    # PBKDF2-HMAC-SHA256 of "password" with the salt "salt": RFC 7914 has the vectors for one round.
    import base64
    import hashlib

    derived = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 10_000, 32)
    text = "$pbkdf2-sha256$10000$c2FsdA$" + base64.b64encode(derived).decode().rstrip("=")

    assert parsed_hash(text).is_of(b"password")
    assert not parsed_hash(text).is_of(b"Password")
    assert parsed_hash(password_hash("x")).is_of(b"x")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "$apr1$salt$hash",
        "$2y$10$abcdefghijklmnopqrstuv",
        "$scrypt$ln=0,r=8,p=1$c2FsdA$" + "A" * 43,
        "$scrypt$ln=14,r=8,p=1$c2FsdA$AAAA",
        "$scrypt$ln=14,r=8,p=1$!$AAAA",
        "$pbkdf2-sha256$9999$c2FsdA$" + "A" * 43,
    ],
)
def test_a_weak_or_foreign_hash_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hash|PBKDF2|scrypt|base64"):
        parsed_hash(text)


def test_password_hash_memory_bytes_max() -> None:
    largest = PASSWORD_HASH_MEMORY_BYTES_MAX.bit_length() - 1 - 10  # 128 bytes times r of 8.
    assert parsed_hash(f"$scrypt$ln={largest},r=8,p=1$c2FsdA$" + "A" * 43)
    with pytest.raises(ValueError, match=str(PASSWORD_HASH_MEMORY_BYTES_MAX)):
        parsed_hash(f"$scrypt$ln={largest + 1},r=8,p=1$c2FsdA$" + "A" * 43)


def test_password_hash_rounds_max() -> None:
    assert parsed_hash(f"$pbkdf2-sha256${PASSWORD_HASH_ROUNDS_MAX}$c2FsdA$" + "A" * 43)
    with pytest.raises(ValueError, match=str(PASSWORD_HASH_ROUNDS_MAX)):
        parsed_hash(f"$pbkdf2-sha256${PASSWORD_HASH_ROUNDS_MAX + 1}$c2FsdA$" + "A" * 43)


def test_a_password_file_names_the_line_that_is_wrong_and_nothing_of_it() -> None:
    hashed = password_hash("x")
    assert set(parsed_users("users", f"# people\n\nada:{hashed}\n".encode())) == {"ada"}
    for line in ("eve", "eve:plain", f"ada:{hashed}", f"a\x01:{hashed}"):
        with pytest.raises(RefusesToStart, match="line 2") as refused:
            parsed_users("users", f"ada:{hashed}\n{line}".encode())
        assert "plain" not in str(refused.value)
    with pytest.raises(RefusesToStart, match="UTF-8"):
        parsed_users("users", b"\xff")


def test_password_users_max() -> None:
    hashed = password_hash("x")
    lines = [f"user-{number}:{hashed}" for number in range(PASSWORD_USERS_MAX + 1)]
    assert len(parsed_users("users", "\n".join(lines[1:]).encode())) == PASSWORD_USERS_MAX
    with pytest.raises(RefusesToStart, match=str(PASSWORD_USERS_MAX)):
        parsed_users("users", "\n".join(lines).encode())


# Certificates --------------------------------------------------------------------------------


def test_the_common_name_of_a_certificate_is_the_role() -> None:
    found = CertificateProvider().authenticate(Credentials("tls", b"", CERTIFICATE))

    assert found == Authenticated("billing", 1_893_456_000.0)


@pytest.mark.parametrize(
    "certificate",
    [
        None,
        {},
        {"subject": ()},
        {"subject": ((("commonName", "a"),), (("commonName", "b"),))},
        {"subject": ((("commonName", "a\nb"),),)},
    ],
)
def test_a_certificate_without_one_usable_name_is_refused(certificate: Any) -> None:
    with pytest.raises(Unauthenticated):
        CertificateProvider().authenticate(Credentials("tls", b"", certificate))


# Identity providers --------------------------------------------------------------------------


class IdentityProvider:
    """Has a key pair, and tokens of its own."""

    def __init__(self, key_id: str) -> None:
        private, public = new_key_pair("ES256")
        self.key_id = key_id
        self.signing, _ = signing_key("key", private)
        loaded = serialization.load_der_public_key(public)
        described = jwt.get_algorithm_by_name("ES256").to_jwk(loaded)
        self.jwk = json.loads(described) | {"kid": key_id, "use": "sig", "alg": "ES256"}

    def token(self, **claims: Any) -> bytes:
        given = {"sub": "ada", "iss": ISSUER, "exp": 4_000_000_000} | claims
        kept = {name: value for name, value in given.items() if value is not None}
        return make_token(self.signing, "ES256", kept, {"kid": self.key_id}).encode()


def key_set(*jwks: Any) -> bytes:
    return json.dumps({"keys": list(jwks)}).encode()


def test_a_token_of_an_allowed_issuer_is_checked_by_the_key_that_it_names(tmp_path: Path) -> None:
    first, second = IdentityProvider("1"), IdentityProvider("2")
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set(first.jwk, {"kty": "oct", "k": "c2VjcmV0"}))
    now = [0.0]
    keys = ReloadedKey("keys", str(file), lambda data: parsed_keys("keys", data), lambda: now[0])
    provider = JwksProvider(keys, frozenset({ISSUER}), TokenRules(audiences=()))

    def role(token: bytes) -> str:
        return provider.authenticate(Credentials("token", token)).role

    assert role(first.token()) == "ada"
    for token, why in (
        (second.token(), "names no key"),
        (first.token(iss="https://evil.example"), "issuer"),
        (first.token(iss=None), "issuer"),
        (first.token(exp=None), "no end"),
        (first.token(exp=1), "expired"),
        (make_token(first.signing, "ES256", {"sub": "a"}).encode(), "names no key"),
    ):
        with pytest.raises(Unauthenticated, match=why):
            role(token)

    file.write_bytes(key_set(first.jwk, second.jwk))
    generation = provider.generation()
    now[0] += KEY_FILE_CHECK_MS / 1_000
    assert provider.generation() > generation
    assert role(second.token()) == "ada"

    file.write_bytes(b"{")
    now[0] += KEY_FILE_CHECK_MS / 1_000
    assert role(second.token()) == "ada"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 3}', b'{"keys": []}', b"[" * 9_000])
def test_a_document_without_keys_is_refused(data: bytes) -> None:
    with pytest.raises(RefusesToStart):
        parsed_keys("keys", data)


def test_keys_need_ids_of_their_own() -> None:
    one = IdentityProvider("1").jwk
    for wrong in ([one, one], [{**one, "kid": None} | {"x": 1}], [{"kty": "EC"}]):
        with pytest.raises(RefusesToStart):
            parsed_keys("keys", key_set(*wrong))


def test_jwks_keys_max() -> None:
    jwk = IdentityProvider("0").jwk
    most = [{**jwk, "kid": str(number)} for number in range(JWKS_KEYS_MAX)]
    assert len(parsed_keys("keys", key_set(*most))) == JWKS_KEYS_MAX
    with pytest.raises(RefusesToStart, match=str(JWKS_KEYS_MAX)):
        parsed_keys("keys", key_set(*most, {**jwk, "kid": "more"}))


# Where keys come from ------------------------------------------------------------------------


def test_a_key_is_given_as_for_pulsar(tmp_path: Path) -> None:
    file = tmp_path / "a key"
    file.write_bytes(b"raw")

    assert read_key("key", str(file)) == b"raw"
    assert read_key("key", file.as_uri()) == b"raw"
    assert read_key("key", "data:;base64,cmF3") == b"raw"
    assert read_key("key", "data:application/octet-stream;base64,cmF3") == b"raw"
    assert read_key("key", "data:,raw") == b"raw"
    assert read_key("key", "cmF3") == b"raw"
    assert file_of("c" * 5_000) is None


@pytest.mark.parametrize(
    "source", ["file:///nowhere/key", "data:cmF3", "not base64!", "data:;base64,!"]
)
def test_a_key_that_cannot_be_read_is_named_by_its_setting_only(source: str) -> None:
    with pytest.raises(RefusesToStart, match="--the-key") as refused:
        read_key("--the-key", source)
    assert "base64!" not in str(refused.value)


def test_key_file_bytes_max(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"k" * KEY_FILE_BYTES_MAX)
    assert len(read_key("key", str(file))) == KEY_FILE_BYTES_MAX
    file.write_bytes(b"k" * (KEY_FILE_BYTES_MAX + 1))
    with pytest.raises(RefusesToStart, match=str(KEY_FILE_BYTES_MAX)):
        read_key("key", str(file))


def test_a_key_file_that_disappears_stays_in_use(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"one")
    now = [0.0]
    key = ReloadedKey("key", str(file), bytes.decode, lambda: now[0])
    file.unlink()
    now[0] += 10

    assert (key.value(), key.generation) == ("one", 0)
