"""``tokens``: the commands of ``bin/pulsar tokens``, with its key formats.

Keys and tokens made here serve Pulsar's brokers and clients, and theirs serve here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.output import print_json, print_line
from nextgen.kernel.errors import MetadataError, RefusesToStart
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX
from nextgen.runtime.lifecycle.exit_code import code_of, print_error
from nextgen.runtime.security.authentication.key_source import read_key
from nextgen.runtime.security.authentication.passwords import password_hash
from nextgen.runtime.security.authentication.provider import checked_role
from nextgen.runtime.security.authentication.token_keys import (
    algorithm_of_secret,
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
from nextgen.runtime.security.private_file import write_private

SecretKey = Annotated[
    str | None,
    typer.Option(
        "--secret-key", "-sk", help="Secret key: file:///path, data:;base64,…, a path or base64."
    ),
]
TokenArgument = Annotated[str | None, typer.Argument(metavar="[TOKEN]", show_default=False)]
TokenFile = Annotated[Path | None, typer.Option("--token-file", "-f", help="File with the token.")]
Stdin = Annotated[bool, typer.Option("--stdin", "-i", help="Read the token from standard input.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Keys and tokens of clients, as 'bin/pulsar tokens' makes them.", no_args_is_help=True
    )
    group.command("create-secret-key")(create_secret_key)
    group.command("create-key-pair")(create_key_pair)
    group.command("create")(create)
    group.command("show")(show)
    group.command("validate")(validate)
    group.command("hash-password")(hash_password)
    app.add_typer(group, name="tokens")


def create_secret_key(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the key. Default: standard output."),
    ] = None,
    algorithm: Annotated[
        str, typer.Option("--signature-algorithm", "-a", help="HS256, HS384 or HS512.")
    ] = "HS256",
    base64: Annotated[
        bool, typer.Option("--base64", "-b", help="Base64, to be given in a data: URL.")
    ] = False,
) -> None:
    """Make a secret key. A file with it, unless in base64, is given as file:///path."""

    def work() -> None:
        key = os.urandom(secret_bytes(algorithm))
        if base64:
            from base64 import b64encode

            key = b64encode(key)
        if output is not None:
            write_private(output, key)
        else:
            sys.stdout.buffer.write(key)
            sys.stdout.buffer.flush()

    _run(work)


def create_key_pair(
    private: Annotated[
        Path, typer.Option("--output-private-key", help="File for the private key (DER).")
    ],
    public: Annotated[
        Path, typer.Option("--output-public-key", help="File for the public key (DER).")
    ],
    algorithm: Annotated[
        str,
        typer.Option(
            "--signature-algorithm", "-a", help="RS256, RS384, RS512, ES256, ES384 or ES512."
        ),
    ] = "RS256",
) -> None:
    """Make a private key, which signs tokens, and its public key, which servers check them by."""

    def work() -> None:
        private_der, public_der = new_key_pair(algorithm)
        write_private(private, private_der)
        write_private(public, public_der)

    _run(work)


def create(
    subject: Annotated[str, typer.Option("--subject", "-s", help="The role.")],
    key: SecretKey = None,
    private_key: Annotated[
        str | None,
        typer.Option("--private-key", "-pk", help="Private key: as a secret key is given."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--signature-algorithm", "-a", help="Default: the strongest that the key serves for."
        ),
    ] = None,
    expiry_time: Annotated[
        str | None,
        typer.Option("--expiry-time", "-e", help="From now: 30s, 10m, 3h, 7d, 1y. Default: none."),
    ] = None,
    audience: Annotated[
        str | None, typer.Option("--audience", help="Whom the token is for. Default: everybody.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--headers", help="Header of the token: kid=KEY.")
    ] = None,
) -> None:
    """Make a token that proves a role, and print it."""

    def work() -> None:
        claims: dict[str, Any] = {"sub": checked_role(subject)}
        if audience is not None:
            claims["aud"] = audience
        if expiry_time is not None:
            claims["exp"] = int(time.time()) + _duration(expiry_time)
        signing, default = _signing_key(key, private_key)
        named = _headers(headers or [])
        print_line(make_token(signing, algorithm or default, claims, named))

    _run(work)


def show(token: TokenArgument = None, token_file: TokenFile = None, stdin: Stdin = False) -> None:
    """Print header and claims of a token. Its signature is not checked."""

    def work() -> None:
        header, claims = shown_parts(_token(token, token_file, stdin))
        print_json(dict(header))
        print_line("---")
        print_json(dict(claims))

    _run(work)


def validate(
    token: TokenArgument = None,
    token_file: TokenFile = None,
    stdin: Stdin = False,
    key: SecretKey = None,
    public: Annotated[
        str | None,
        typer.Option("--public-key", "-pk", help="Public key: as a secret key is given."),
    ] = None,
    role_claim: Annotated[
        str, typer.Option("--token-auth-claim", help="The role's claim.")
    ] = "sub",
) -> None:
    """Check a token's signature and times as a server does, and print its claims."""

    def work() -> None:
        given = _token(token, token_file, stdin)
        header_of(given)
        if (key is None) == (public is None):
            raise RefusesToStart("give one of --secret-key and --public-key")
        if key is not None:
            checking = secret_key("--secret-key", read_key("--secret-key", key))
        else:
            assert public is not None, "one of them is given"
            checking = public_key("--public-key", read_key("--public-key", public))
        rules = TokenRules(role_claim)
        claims = checked_claims(given, checking, rules)
        authenticated_by(claims, rules)
        print_json(claims)

    _run(work)


def hash_password(
    user: Annotated[str, typer.Argument(help="The user, who becomes the role.")],
) -> None:
    """Print a line for a password file. The password is read from standard input."""

    def work() -> None:
        role = checked_role(user)
        if ":" in role:
            raise RefusesToStart("a user's name has no colon")
        password = sys.stdin.readline().rstrip("\n")
        if not password:
            raise RefusesToStart("the password is empty")
        print_line(f"{role}:{password_hash(password)}")

    _run(work)


def _signing_key(secret: str | None, private: str | None) -> tuple[Any, str]:
    """Return the key to sign with, and its algorithm unless another is given."""
    if (secret is None) == (private is None):
        raise RefusesToStart("give one of --secret-key and --private-key")
    if secret is not None:
        data = read_key("--secret-key", secret)
        return secret_key("--secret-key", data).key, algorithm_of_secret(data)
    assert private is not None, "one of them is given"
    signing, algorithms = signing_key("--private-key", read_key("--private-key", private))
    return signing, algorithms[0]


def _headers(given: list[str]) -> Mapping[str, str]:
    pairs = [one.partition("=") for one in given]
    if not all(name and sign for name, sign, _ in pairs):
        raise RefusesToStart("--headers is name=value")
    return {name: value for name, _, value in pairs}


def _duration(text: str) -> int:
    try:
        return duration_s(text)
    except ValueError as error:
        raise RefusesToStart(f"--expiry-time: {error}") from error


def _token(argument: str | None, file: Path | None, is_stdin: bool) -> bytes:
    if sum((argument is not None, file is not None, is_stdin)) > 1:
        raise RefusesToStart("give one of TOKEN, --token-file and --stdin")
    if is_stdin:
        return sys.stdin.buffer.read(AUTH_DATA_BYTES_MAX + 1).strip()
    if file is not None:
        try:
            with file.open("rb") as opened:
                return opened.read(AUTH_DATA_BYTES_MAX + 1).strip()
        except OSError as error:
            raise RefusesToStart(f"{file} cannot be read: {error.strerror or error}") from error
    given = argument or os.environ.get("TOKEN", "")
    if not given:
        raise RefusesToStart("there is no token: give TOKEN, --token-file or --stdin")
    return given.strip().encode()


def _run(work: Callable[[], None]) -> None:
    try:
        work()
    except MetadataError as error:
        print_error(str(error))
        raise typer.Exit(code_of(error)) from None
