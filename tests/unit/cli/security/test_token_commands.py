"""``nextgen tokens``: what it makes is what servers accept."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nextgen.cli.local.local_tokens import KEY_FILE, TOKEN_FILE, make_tokens, token_flags
from nextgen.main import program
from nextgen.runtime.security.authentication.passwords import parsed_users
from nextgen.runtime.security.authentication.provider import Credentials
from nextgen.runtime.security.authentication.settings import (
    AUTHENTICATION_FLAGS,
    authentication_settings,
)
from nextgen.runtime.settings import Given

RUNNER = CliRunner()


def tokens(*arguments: str, stdin: str | None = None, code: int = 0) -> Result:
    result = RUNNER.invoke(program("tokens"), ["tokens", *arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def test_a_token_of_a_secret_key_is_shown_and_validated(tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    tokens("create-secret-key", "--output", str(key))
    assert (len(key.read_bytes()), key.stat().st_mode & 0o777) == (32, 0o600)

    token = tokens("create", "-s", "ada", "-e", "1h", "-sk", key.as_uri()).stdout.strip()

    shown = tokens("show", token).stdout
    assert json.loads(shown.partition("---")[2])["sub"] == "ada"
    assert json.loads(tokens("validate", "-sk", str(key), token).stdout)["sub"] == "ada"
    file = tmp_path / "token"
    file.write_text(token)
    tokens("validate", "-sk", str(key), "-f", str(file))
    tokens("validate", "-sk", str(key), "-i", stdin=token)


def test_a_key_in_base64_is_given_in_a_data_url(tmp_path: Path) -> None:
    encoded = tokens("create-secret-key", "--base64", "-a", "HS512").stdout
    assert len(base64.b64decode(encoded)) == 64
    url = f"data:;base64,{encoded}"

    token = tokens("create", "-s", "ada", "-sk", url).stdout.strip()

    assert json.loads(tokens("show", token).stdout.partition("---")[0])["alg"] == "HS512"
    tokens("validate", "-sk", url, token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384"])
def test_a_token_of_a_key_pair_is_validated_by_the_public_key(
    tmp_path: Path, algorithm: str
) -> None:
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    pair = ("--output-private-key", str(private), "--output-public-key", str(public))
    tokens("create-key-pair", "-a", algorithm, *pair)

    made = tokens("create", "-s", "ada", "-pk", str(private), "--audience", "blue").stdout.strip()

    assert json.loads(tokens("validate", "-pk", str(public), made).stdout)["aud"] == "blue"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("create", "-s", "ada"), "one of"),
        (("create", "-s", "a\nb", "-sk", "c" * 64), "control"),
        (("create", "-s", "ada", "-sk", "c" * 64, "-e", "soon"), "--expiry-time"),
        (("create", "-s", "ada", "-sk", "c" * 64, "--headers", "x"), "--headers"),
        (("create", "-s", "ada", "-sk", "AAAA"), "at least 32"),
        (("create-secret-key", "-a", "RS256"), "no secret key"),
        (("show",), "there is no token"),
        (("show", "x", "-i"), "one of"),
        (("show", "a.b.c"), "header"),
        (("show", "-f", "/nowhere"), "cannot be read"),
        (("validate", "a.b.c", "-sk", "c" * 64), "header"),
        (("hash-password", "a:b"), "colon"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], why: str) -> None:
    result = RUNNER.invoke(program("tokens"), ["tokens", *arguments], input="x\n")
    assert result.exit_code not in (0, 70)
    assert why in result.output


def test_validate_needs_one_key_and_a_valid_signature() -> None:
    token = tokens("create", "-s", "ada", "-sk", "c" * 64, "--headers", "kid=1").stdout.strip()
    assert "one of" in tokens("validate", token, code=78).output
    assert "signature" in tokens("validate", token, "-sk", "d" * 64, code=78).output


def test_a_password_becomes_a_line_of_a_password_file() -> None:
    line = tokens("hash-password", "ada", stdin="secret\n").stdout
    assert parsed_users("users", line.encode())["ada"].is_of(b"secret")
    assert "empty" in tokens("hash-password", "ada", stdin="\n", code=78).output


def test_a_local_cluster_has_a_key_and_its_operators_token(tmp_path: Path) -> None:
    make_tokens(tmp_path)
    key, token = (tmp_path / KEY_FILE).read_bytes(), (tmp_path / TOKEN_FILE).read_bytes()
    make_tokens(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == key
    assert (tmp_path / TOKEN_FILE).read_bytes() == token
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600

    values = {flag.name: flag.default or "" for flag in AUTHENTICATION_FLAGS}
    made = authentication_settings(
        Given(values | token_flags(tmp_path, authorization=False))
    ).authenticator()
    assert made is not None
    found = made.authenticate_now(Credentials("token", token.strip()))
    assert found is not None
    assert found.role == "admin"
