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
CertFile = Annotated[
    Path | None,
    typer.Option(
        "--pulsar-admin-cert-file",
        envvar="PULSAR_CERT_FILE",
        help="Certificate that proves a role there, for https://; with its key.",
        show_default=False,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--pulsar-admin-key-file",
        envvar="PULSAR_KEY_FILE",
        help="Key of that certificate, without a password.",
        show_default=False,
    ),
]


def access_to(
    url: str,
    token: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> Callable[[], AdminAccess]:
    """Return what reads the files; wrong usage ends the command before.

    It raises ``RefusesToStart`` for a file that cannot be read, or holds something else, and for a
    key that is not that of the certificate.
    """
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} does not begin with http:// or https://")
    if token and token_file is not None:
        raise typer.BadParameter(
            "--token, or PULSAR_TOKEN, and --pulsar-admin-token-file are two tokens: give one"
        )
    if (cert_file is None) != (key_file is None):
        raise typer.BadParameter(
            "--pulsar-admin-cert-file and --pulsar-admin-key-file belong together: give both"
        )
    for option, file in (("ca", ca_file), ("cert", cert_file)):
        if file is not None and not url.startswith("https://"):
            raise typer.BadParameter(
                f"--pulsar-admin-{option}-file is for https://, and the URL is {url}"
            )
    own = None if cert_file is None or key_file is None else (cert_file, key_file)

    def read() -> AdminAccess:
        from nextgen.migration.admin_rest import AdminAccess
        from nextgen.runtime.security.client_token import checked_token, read_token
        from nextgen.runtime.security.tls import client_context

        proof = checked_token(token.strip(), "--token") if token else ""
        if token_file is not None:
            proof = read_token(token_file)
        is_plain = ca_file is None and own is None
        tls = None if is_plain else client_context(ca_file, own)
        return AdminAccess(proof, tls, is_certified=own is not None)

    return read
