"""Where the Admin REST of a stock Pulsar cluster is, and how it lets the command in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nextgen.migration.admin_rest import AdminAccess

PulsarAdmin = Annotated[
    str,
    typer.Option(
        "--pulsar-admin",
        envvar="PULSAR_ADMIN_URL",
        metavar="URL",
        help="Pulsar's own Admin REST, such as http://broker:8080.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="PULSAR_TOKEN",
        help="Sent there as 'Authorization: Bearer'. Others can see it in the list of processes: a "
        "file is better.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--pulsar-admin-token-file",
        envvar="PULSAR_TOKEN_FILE",
        help="File with that token.",
        show_default=False,
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--pulsar-admin-ca-file",
        envvar="PULSAR_CA_FILE",
        help="Authorities that may have signed its certificate. Default: the machine's.",
        show_default=False,
    ),
]


def access_to(
    url: str, token: str | None, token_file: Path | None, ca_file: Path | None
) -> Callable[[], AdminAccess]:
    """Return what reads the files; wrong usage ends the command before.

    It raises ``RefusesToStart`` for a file that cannot be read, or holds something else.
    """
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} does not begin with http:// or https://")
    if token and token_file is not None:
        raise typer.BadParameter(
            "--token, or PULSAR_TOKEN, and --pulsar-admin-token-file are two tokens: give one"
        )
    if ca_file is not None and not url.startswith("https://"):
        raise typer.BadParameter(f"--pulsar-admin-ca-file is for https://, and the URL is {url}")

    def read() -> AdminAccess:
        from nextgen.migration.admin_rest import AdminAccess
        from nextgen.runtime.security.client_token import checked_token, read_token
        from nextgen.runtime.security.tls import client_context

        proof = checked_token(token.strip(), "--token") if token else ""
        if token_file is not None:
            proof = read_token(token_file)
        return AdminAccess(proof, None if ca_file is None else client_context(ca_file))

    return read
